package svctest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// onBoth runs a test twice: against a server with real connections, and against a
// server in memory.
func onBoth(t *testing.T, test func(t *testing.T, srv *svctest.Server), opts ...svctest.Option) {
	t.Helper()
	for name, start := range map[string]func(...svctest.Option) *svctest.Server{
		"loopback": svctest.NewServer, "in memory": svctest.NewInMemory,
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(opts...)
			t.Cleanup(srv.Close)
			test(t, srv)
		})
	}
}

// reply is a response whose body was read to its end.
type reply struct {
	Status int
	Header http.Header
	Body   string
	t      *testing.T
}

// JSON decodes the body into a map with plain values.
func (r reply) JSON() map[string]any {
	r.t.Helper()
	var v map[string]any
	require.NoError(r.t, json.Unmarshal([]byte(r.Body), &v), r.Body)
	return v
}

// send makes an API request. The body is sent as JSON.
func send(t *testing.T, srv *svctest.Server, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := trySend(t, srv, method, path, body, header...)
	require.NoError(t, err)
	return r
}

func trySend(t *testing.T, srv *svctest.Server, method, path, body string, header ...string) (reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+srv.Token())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	return do(t, srv, req)
}

func do(t *testing.T, srv *svctest.Server, req *http.Request) (reply, error) {
	t.Helper()
	client := srv.HTTPClient()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return reply{t: t}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), t}, err
}

const createBody = `{"name":"demo","description":"a demo endpoint","payment_type":"usd",
	"resource_metadata":{"flavor_id":"flavor-1","scale_type":"manual","target_instance_number":2},
	"deploy_metadata":{"image_url":"registry.example/app:1","command":"python serve.py","port":8000,"gpu_num":0}}`

// create creates an endpoint and returns its ID.
func create(t *testing.T, srv *svctest.Server) string {
	t.Helper()
	r := send(t, srv, "POST", "/v1/inference-service", createBody)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	return r.JSON()["service_id"].(string)
}

// status reads an endpoint and returns its status. If the response is not 200, status
// returns the text of the HTTP status, such as "Not Found".
func status(t *testing.T, srv *svctest.Server, id string) string {
	t.Helper()
	r := send(t, srv, "GET", "/v1/inference-service/"+id, "")
	if r.Status != http.StatusOK {
		return http.StatusText(r.Status)
	}
	return r.JSON()["status"].(string)
}

// scale changes the number of instances and returns the response.
func scale(t *testing.T, srv *svctest.Server, id, instances string) reply {
	t.Helper()
	return send(t, srv, "PUT", "/v1/inference-service/"+id, `{"resource_metadata":{"target_instance_number":`+instances+`}}`)
}

// storage sends a request to a presigned URL, as a plain HTTP client does.
func storage(t *testing.T, srv *svctest.Server, method, link, body string, header ...string) reply {
	t.Helper()
	r, err := tryStorage(t, srv, method, link, strings.NewReader(body), header...)
	require.NoError(t, err)
	return r
}

func tryStorage(t *testing.T, srv *svctest.Server, method, link string, body io.Reader, header ...string) (reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, link, body)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return do(t, srv, req)
}

// register creates a file record and returns its ID and presigned URL.
func register(t *testing.T, srv *svctest.Server) (id, link string) {
	t.Helper()
	r := send(t, srv, "POST", "/v1/files", `{"file_name":"train.jsonl","purpose":"fine-tune"}`)
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	return r.JSON()["id"].(string), r.JSON()["presigned_url"].(string)
}

// fileLink requests a new presigned URL of a file.
func fileLink(t *testing.T, srv *svctest.Server, id string) string {
	t.Helper()
	return send(t, srv, "GET", "/v1/files/"+id+"/presigned_url", "").JSON()["presigned_url"].(string)
}
