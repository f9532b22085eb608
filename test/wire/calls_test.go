// Package wire_test tests the contents of requests and responses, and the handling of
// connections, proxies, tokens and hooks.
package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// idCalls are all calls that take an ID, with their paths.
var idCalls = map[string]func(ctx context.Context, c *svc.Client, id string) error{
	"GET /v1/inference-service/%s": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.InferenceServices.Get(ctx, id)
		return err
	},
	"PUT /v1/inference-service/%s": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.InferenceServices.Scale(ctx, id, 1)
		return err
	},
	"DELETE /v1/inference-service/%s": func(ctx context.Context, c *svc.Client, id string) error {
		return c.InferenceServices.Delete(ctx, id)
	},
	"GET /v1/svc-video-job/%s": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.VideoJobs.Get(ctx, id)
		return err
	},
	"DELETE /v1/svc-video-job/%s": func(ctx context.Context, c *svc.Client, id string) error { return c.VideoJobs.Delete(ctx, id) },
	"GET /v1/svc-image-job/%s": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.ImageJobs.Get(ctx, id)
		return err
	},
	"DELETE /v1/svc-image-job/%s": func(ctx context.Context, c *svc.Client, id string) error { return c.ImageJobs.Delete(ctx, id) },
	"GET /v1/files/%s": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.Files.Get(ctx, id)
		return err
	},
	"DELETE /v1/files/%s": func(ctx context.Context, c *svc.Client, id string) error { return c.Files.Delete(ctx, id) },
	"GET /v1/files/%s/presigned_url": func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.Files.PresignedURL(ctx, id)
		return err
	},
}

// An ID is sent as one segment of the path, escaped once, or it is refused.
func TestIDs_B42(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		lines = append(lines, r.Method+" "+r.RequestURI)
		mu.Unlock()
		w.WriteHeader(404)
	}))
	defer srv.Close()
	client := testkit.ClientAt(t, srv.URL)
	prefixed := testkit.ClientAt(t, srv.URL+"/a%2Fb")
	for id, escaped := range map[string]string{ // "" means that the ID is refused
		"svc-1":          "svc-1",
		"x#y":            "x%23y",
		"x?y=1":          "x%3Fy=1",
		"x y":            "x%20y",
		"x%2Fy":          "x%252Fy",
		"x%y":            "x%25y",
		"x%":             "x%25",
		"x;y,z":          "x%3By%2Cz",
		"a:b@c&d=e+f$g":  "a:b@c&d=e+f$g",
		"x\"y'z<>":       "x%22y%27z%3C%3E",
		"文件":             "%E6%96%87%E4%BB%B6",
		"...":            "...",
		".hidden":        ".hidden",
		"presigned_url":  "presigned_url",
		"{service_id}":   "%7Bservice_id%7D",
		"":               "",
		"  ":             "",
		"\t":             "",
		"\u00a0":         "",
		"x/y":            "",
		"/":              "",
		"x\\y":           "",
		".":              "",
		"..":             "",
		"../x":           "",
		"x\ny":           "",
		"x\r\nHost: y":   "",
		"x\x00":          "",
		"x\x7f":          "",
		"x\u0085y":       "",
		"not \xff UTF-8": "",
		"lost \ufffd":    "",
	} {
		for path, call := range idCalls {
			lines = nil
			err := call(t.Context(), client, id)
			if escaped == "" {
				require.ErrorAs(t, err, new(*svc.ValidationError), "%q", id)
				require.Empty(t, lines, "%q", id)
				continue
			}
			require.ErrorIs(t, err, svc.ErrNotFound)
			require.NoError(t, ignore(call(t.Context(), prefixed, id), svc.ErrNotFound))
			method, rest, _ := strings.Cut(fmt.Sprintf(path, escaped), " ")
			require.Equal(t, []string{method + " " + rest, method + " /a%2Fb" + rest}, lines)
		}
	}
	withURL := testkit.ClientAt(t, "https://h", svc.WithInferenceURL("https://i/"))
	_, err := withURL.InferenceServices.URL("x/y")
	require.ErrorAs(t, err, new(*svc.ValidationError))
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

func TestDo(t *testing.T) {
	s := testkit.Play(t, testkit.Reply{Status: 200, Body: "\xef\xbb\xbf{\"n\": 9007199254740993 }"}, testkit.Reply{Status: 200, Body: `{"n":1}`},
		testkit.Reply{Status: 200, Body: "anything <at> all"}, testkit.Reply{Status: 204}, testkit.Reply{Status: 200, Body: "<html>"}, testkit.OpGet.OK)
	client := s.Client()
	var out struct{ N int64 }
	require.NoError(t, client.Do(t.Context(), "get", "/v2/a%2Fb/c", nil, &out, svc.WithQuery("x", "1 &2"), svc.WithHeader("X-Mine", "m")))
	require.EqualValues(t, 9007199254740993, out.N)
	raw := json.RawMessage(`{"b": "<&>",  "a": 1.0}`)
	require.NoError(t, client.Do(t.Context(), "PATCH", "/v2/x", raw, nil))
	var answer json.RawMessage
	require.NoError(t, client.Do(t.Context(), "POST", "/v2/x", map[string]any{"a": nil}, &answer))
	require.Equal(t, "anything <at> all", string(answer))
	require.NoError(t, client.Do(t.Context(), "DELETE", "/v2/x", json.RawMessage(nil), nil))
	err := client.Do(t.Context(), "GET", "/v2/x", nil, &out)
	require.Equal(t, "svc: GET /v2/x: the response (200, application/json) is not what the service promises: an HTML or XML page of a proxy or portal, not a response of the service: \"<html>\"", err.Error())
	record := new(svc.InferenceService)
	require.NoError(t, client.Do(t.Context(), "GET", "/v2/x", nil, record))
	require.Equal(t, "svc-1", record.ServiceID)

	all := s.Seen()
	require.Equal(t, "GET /v2/a%2Fb/c?x=1+%262", all[0].Method+" "+all[0].Path)
	require.Equal(t, "m", all[0].Header.Get("X-Mine"))
	require.Equal(t, "Bearer "+testkit.Token, all[0].Header.Get("Authorization"))
	require.NotContains(t, all[0].Header, "Content-Type")
	require.Equal(t, string(raw), all[1].Body, "raw JSON is sent unchanged")
	require.Equal(t, "application/json", all[1].Header.Get("Content-Type"))
	require.Equal(t, `{"a":null}`, all[2].Body)
	require.Empty(t, all[3].Body)
	require.NotContains(t, all[3].Header, "Content-Type")
}

// A response that out cannot hold must not come to light after a create.
func TestDoSendsNothingIfOutCannotHoldTheResponse(t *testing.T) {
	for name, out := range map[string]any{
		"nil *json.RawMessage": (*json.RawMessage)(nil), "nil pointer": (*svc.InferenceService)(nil), "struct": svc.InferenceService{}, "map": map[string]any{},
	} {
		s := testkit.Play(t)
		err := s.Client().Do(t.Context(), "POST", "/v1/inference-service", testkit.Demo, out)
		require.ErrorContains(t, testkit.ErrorAs[*svc.ValidationError](t, err), "out must be a pointer", name)
		require.Empty(t, s.Seen(), name)
	}
}

func TestDo_RefusesWhatIsNoMethod(t *testing.T) {
	client := testkit.Play(t).Client()
	for _, method := range []string{"", " ", "GET /x", "G\nT", "GET\r\nX-Evil: 1", "ПОСТ"} {
		require.ErrorAs(t, client.Do(t.Context(), method, "/v2/x", nil, nil), new(*svc.ValidationError), "%q", method)
	}
}

func TestWithHeader(t *testing.T) {
	s := testkit.Play(t, testkit.OpCreate.OK)
	require.NoError(t, testkit.OpCreate.Do(t.Context(), s.Client(), nil, svc.WithHeader("x-mine", "1"), svc.WithHeader("X-MINE", "2"),
		svc.WithHeader("accept", "text/plain"), svc.WithHeader("User-Agent", "me"), svc.WithHeader("Content-Type", "application/json; charset=utf-8"), svc.WithHeader("X-Empty", "")))
	require.Equal(t, http.Header{
		"X-Mine": {"2"}, "Accept": {"text/plain"}, "User-Agent": {"me"}, "X-Empty": {""},
		"Content-Type": {"application/json; charset=utf-8"}, "Authorization": {"Bearer " + testkit.Token},
	}, s.Seen()[0].Header)

	for _, name := range []string{
		"Authorization", "authorization", "AUTHORIZATION", "Cookie", "cookie", "Content-Length", "transfer-encoding", "Connection",
		"host", "Trailer", "TE", "upgrade", "Accept-Encoding", "expect", "", " ", "a b", "a:b", "a\nb", "Authorization ", " Authorization", "é",
	} {
		err := testkit.OpGet.Do(t.Context(), testkit.Play(t).Client(), svc.WithHeader(name, "hush"))
		require.ErrorAs(t, err, new(*svc.ValidationError), "%q", name)
		require.NotContains(t, err.Error(), "hush")
	}
	for _, value := range []string{"a\nb", "a\r\nAuthorization: Bearer x", "a\x00b", "\x7f"} {
		require.ErrorAs(t, testkit.OpGet.Do(t.Context(), testkit.Play(t).Client(), svc.WithHeader("X-Mine", value)), new(*svc.ValidationError))
	}
}

func TestWithQuery(t *testing.T) {
	s := testkit.Play(t, testkit.OpGet.OK)
	require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(), svc.WithQuery("b", "2"), svc.WithQuery("a", "?&=#/ é"), svc.WithQuery("b", "3"), svc.WithQuery("e", "")))
	require.Equal(t, testkit.OpGet.Path+"?a=%3F%26%3D%23%2F+%C3%A9&b=3&e=", s.Seen()[0].Path)
}

func TestWithBodyField(t *testing.T) {
	const plain = `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0}}`
	for name, tt := range map[string]struct {
		opts []svc.RequestOption
		want string // "" means that the call is refused
	}{
		"none":               {nil, plain},
		"on top":             {[]svc.RequestOption{svc.WithBodyField("tags", []string{"<a>", "b"})}, `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0},"tags":["<a>","b"]}`},
		"in an object":       {[]svc.RequestOption{svc.WithBodyField("deploy_metadata.env", map[string]int{"A": 1})}, `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0,"env":{"A":1}}}`},
		"in a new object":    {[]svc.RequestOption{svc.WithBodyField("a.b.c", nil), svc.WithBodyField("a.b.d", 1<<62)}, `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0},"a":{"b":{"c":null,"d":4611686018427387904}}}`},
		"in place of ours":   {[]svc.RequestOption{svc.WithBodyField("resource_metadata.target_instance_number", "3")}, `{"name":"demo","resource_metadata":{"target_instance_number":"3"},"deploy_metadata":{"gpu_num":0}}`},
		"within a text":      {[]svc.RequestOption{svc.WithBodyField("name.first", 1)}, ""},
		"no name":            {[]svc.RequestOption{svc.WithBodyField("", 1)}, ""},
		"part without name":  {[]svc.RequestOption{svc.WithBodyField("a..b", 1)}, ""},
		"cannot be written":  {[]svc.RequestOption{svc.WithBodyField("a", make(chan int))}, ""},
		"raw, and not JSON":  {[]svc.RequestOption{svc.WithBodyField("a", json.RawMessage("{"))}, ""},
		"raw":                {[]svc.RequestOption{svc.WithBodyField("a", json.RawMessage("1.0"))}, `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0},"a":1.0}`},
		"twice, last counts": {[]svc.RequestOption{svc.WithBodyField("a", 1), svc.WithBodyField("a", 2)}, `{"name":"demo","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0},"a":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Play(t)
			if tt.want == "" {
				require.ErrorAs(t, testkit.OpCreate.Do(t.Context(), s.Client(), tt.opts...), new(*svc.ValidationError))
				return
			}
			s.Replies = []testkit.Reply{testkit.OpCreate.OK}
			require.NoError(t, testkit.OpCreate.Do(t.Context(), s.Client(), tt.opts...))
			require.JSONEq(t, tt.want, s.Seen()[0].Body)
		})
	}
	require.ErrorAs(t, testkit.OpCreate.Do(t.Context(), testkit.Play(t).Client(), svc.WithMaxAttempts(0)), new(*svc.ValidationError))
}

func TestWithResponse(t *testing.T) {
	id := map[string]string{"Request-Id": "req-9"}
	for name, tt := range map[string]struct {
		replies []testkit.Reply
		op      testkit.Operation
		status  int
		tries   int
		body    string
		id      string
	}{
		"success":     {[]testkit.Reply{{Status: 200, Body: testkit.ServiceJSON, Header: id}}, testkit.OpGet, 200, 1, testkit.ServiceJSON, "req-9"},
		"retried":     {[]testkit.Reply{testkit.Lost, testkit.Status(503), {Status: 200, Body: testkit.ServiceJSON, Header: id}}, testkit.OpGet, 200, 3, testkit.ServiceJSON, "req-9"},
		"delete":      {[]testkit.Reply{{Status: 204}}, testkit.OpDelete, 204, 1, "", ""},
		"failure":     {[]testkit.Reply{{Status: 404, Body: "gone", Header: id}}, testkit.OpGet, 404, 1, "gone", "req-9"},
		"not JSON":    {[]testkit.Reply{{Status: 200, Body: "<html>", Header: id}}, testkit.OpGet, 200, 1, "<html>", "req-9"},
		"cut":         {[]testkit.Reply{{Status: 200, Body: "{", Err: io.ErrUnexpectedEOF, Header: id}}, testkit.OpGet, 0, 1, "{", "req-9"},
		"long, cut":   {[]testkit.Reply{{Status: 200, Body: strings.Repeat("x", 1<<20), Err: io.ErrUnexpectedEOF}}, testkit.OpGet, 0, 1, strings.Repeat("x", 64<<10), ""},
		"long, 500":   {[]testkit.Reply{{Status: 501, Body: strings.Repeat("x", 1<<20)}}, testkit.OpGet, 501, 1, strings.Repeat("x", 64<<10), ""},
		"refused":     {[]testkit.Reply{testkit.Refused}, testkit.OpGet, 0, 1, "", ""},
		"lost create": {[]testkit.Reply{testkit.Lost}, testkit.OpCreate, 0, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testkit.Play(t, tt.replies...)
				resp := svc.Response{StatusCode: 1, Attempts: 77, RequestID: "old", Body: []byte("old")}
				err := tt.op.Do(t.Context(), s.Client(), svc.WithResponse(&resp), svc.WithMaxAttempts(len(tt.replies)), svc.WithResponse(&resp))
				require.Equal(t, tt.status < 200 || tt.status > 299 || name == "not JSON", err != nil, "%v", err)
				require.Equal(t, tt.status, resp.StatusCode)
				require.Equal(t, tt.tries, resp.Attempts)
				require.Equal(t, tt.body, string(resp.Body))
				require.Equal(t, tt.id, resp.RequestID)
				require.Equal(t, tt.id, resp.Header.Get("Request-Id"))
			})
		})
	}
	require.NoError(t, testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.OpGet.OK).Client(), svc.WithResponse(nil)))

	// If a call is refused before it is sent, its Response is reset to zero.
	resp := svc.Response{StatusCode: 200, Attempts: 1}
	require.Error(t, testkit.OpGet.Do(t.Context(), testkit.Play(t).Client(), svc.WithResponse(&resp), svc.WithMaxAttempts(0)))
	require.Zero(t, resp.StatusCode+resp.Attempts)
	resp = svc.Response{StatusCode: 200, Attempts: 1}
	client, err := svc.NewClient("https://h")
	require.NoError(t, err)
	require.ErrorIs(t, testkit.OpGet.Do(t.Context(), client, svc.WithResponse(&resp)), svc.ErrNoToken)
	require.Zero(t, resp.StatusCode+resp.Attempts)
}

// A Response contains the body, but printing or encoding it does not show the body.
func TestResponseHidesItsBody(t *testing.T) {
	leak := `{"presigned_url":"https://store.test/x?X-Amz-Signature=hush"}`
	s := testkit.Play(t, testkit.Reply{Status: 404, Body: leak, Header: map[string]string{"Location": "https://x/?sig=hush", "X-Request-Id": "Bearer " + testkit.Token}})
	var resp svc.Response
	require.Error(t, testkit.OpGet.Do(t.Context(), s.Client(), svc.WithResponse(&resp)))
	require.Equal(t, leak, string(resp.Body))
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "a", resp, "b", &resp)
	b, err := json.Marshal(resp)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(resp), fmt.Sprintf("%+v %#v %s %q %x", resp, resp, &resp, resp, resp), string(b), log.String()} {
		require.NotContains(t, text, "hush")
		require.NotContains(t, text, testkit.Token)
	}
}
