package svctest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/errno"
	"example.com/svc/svctest"
)

func TestInMemoryHostsAreTheOnlyOnes(t *testing.T) {
	srv := svctest.NewInMemory()
	client := srv.HTTPClient()
	_, err := client.Get("https://example.invalid/")
	var dns *net.DNSError
	require.ErrorAs(t, err, &dns)
	require.True(t, dns.IsNotFound)
	_, err = client.Get("ftp://svc.test/")
	require.ErrorContains(t, err, "unsupported protocol scheme")

	srv.Close()
	srv.Close()
	_, err = client.Get(srv.URL())
	require.ErrorIs(t, err, errno.ConnRefused)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)
}

func TestLoopbackRefusesAfterClose(t *testing.T) {
	srv := svctest.NewServer(svctest.WithSeparateStorage())
	_, link := register(t, srv)
	srv.Close()
	srv.Close()
	for _, url := range []string{srv.URL(), link} {
		_, err := srv.HTTPClient().Get(url)
		require.ErrorIs(t, err, errno.ConnRefused)
	}
	require.Len(t, srv.Files(), 1, "still there to inspect")
}

func TestInMemoryChecksWhatATransportChecks(t *testing.T) {
	srv := svctest.NewInMemory()
	body := &closeRecorder{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL()+"/v1/files", body)
	require.NoError(t, err)
	req.Header.Set("X-Extra", "a\r\nb")
	_, err = do(t, srv, req)
	require.ErrorContains(t, err, "invalid header field value")
	require.True(t, body.closed)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("changed my mind"))
	body = &closeRecorder{Reader: strings.NewReader("{}")}
	req, err = http.NewRequestWithContext(ctx, "POST", srv.URL()+"/v1/files", body)
	require.NoError(t, err)
	_, err = do(t, srv, req)
	require.ErrorContains(t, err, "changed my mind")
	require.True(t, body.closed)
	require.Empty(t, srv.Requests(), "neither has arrived")

	req, err = http.NewRequestWithContext(t.Context(), "", srv.URL()+"/v1/public-files", http.NoBody)
	require.NoError(t, err)
	req.Header, req.Method = nil, ""
	resp, err := srv.HTTPClient().Transport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "200 OK", resp.Status)
	require.EqualValues(t, 2, resp.ContentLength)
	require.Same(t, req, resp.Request)
	require.Equal(t, "GET", srv.Requests()[0].Method)
}

type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error {
	c.closed = true
	return nil
}

// A client can learn from an httptrace.ClientTrace whether its request was sent. The
// server in memory calls the functions of the trace.
func TestInMemoryTellsTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{DropBefore: true, ReadBytes: 1})
		_, link := register(t, srv)
		for name, tt := range map[string]struct {
			method, url string
			body        io.Reader
			wrote       error
		}{
			"no body":     {"GET", srv.URL() + "/v1/public-files", nil, nil},
			"body":        {"POST", srv.URL() + "/v1/files", strings.NewReader("{}"), nil},
			"broken body": {"POST", srv.URL() + "/v1/files", &closeRecorder{Reader: brokenReader{}}, errBroken},
			"dropped":     {"PUT", link, strings.NewReader("12345"), nil},
		} {
			var events []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GetConn: func(hostPort string) { events = append(events, hostPort) },
				GotConn: func(i httptrace.GotConnInfo) {
					events = append(events, i.Conn.LocalAddr().Network(), i.Conn.RemoteAddr().String())
				},
				WroteHeaders: func() { events = append(events, "headers") },
				WroteRequest: func(i httptrace.WroteRequestInfo) {
					require.ErrorIs(t, i.Err, tt.wrote, name)
					events = append(events, "request")
				},
			})
			req, err := http.NewRequestWithContext(ctx, tt.method, tt.url, tt.body)
			require.NoError(t, err)
			_, _ = do(t, srv, req)
			require.Equal(t, []string{"svc.test", "tcp", "127.0.0.1:443", "headers", "request"}, events, name)
		}
	})
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// handlers are handlers as a user may write them, by path.
var handlers = map[string]http.HandlerFunc{
	"/nothing":     func(http.ResponseWriter, *http.Request) {},
	"/no-content":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"/twice":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(202) },
	"/late-header": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.Header().Set("X-Late", "1") },
	"/short": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "9")
		_, _ = io.WriteString(w, "abc")
	},
	"/abort": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "abc")
		panic(http.ErrAbortHandler)
	},
	"/flushed-abort": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "abc")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"/long": func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}
	},
	"/too-long": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		if _, err := io.WriteString(w, "abc"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	},
	"/echo": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
}

// The responses of a user's handler arrive in memory the same way as over a real
// connection.
func TestInMemoryResponses(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		get := func(path string) (reply, error) {
			req, err := http.NewRequestWithContext(t.Context(), "GET", srv.InferenceURL()+"/inference-api/v1/inference_service/"+id+path, nil)
			require.NoError(t, err)
			if path == "/echo" {
				req, err = http.NewRequestWithContext(t.Context(), "POST", req.URL.String(), strings.NewReader("hello"))
				require.NoError(t, err)
			}
			return do(t, srv, req)
		}
		for path, want := range map[string]reply{
			"/nothing": {Status: 200}, "/no-content": {Status: 204}, "/twice": {Status: 201}, "/late-header": {Status: 200},
			"/long": {Status: 200, Body: strings.Repeat("x", 100_000)},
			"/echo": {Status: 200, Body: "hello"},
		} {
			if path == "/twice" && strings.HasPrefix(srv.URL(), "http://") {
				continue // net/http would log the second WriteHeader to stderr
			}
			r, err := get(path)
			require.NoError(t, err, path)
			require.Equal(t, want.Status, r.Status, path)
			require.Equal(t, want.Body, r.Body, path)
			require.Empty(t, r.Header.Get("X-Late"), path)
			require.NotEmpty(t, r.Header.Get("Date"), path)
			requests := srv.Requests()
			if path != "/nothing" {
				require.Equal(t, want.Status, requests[len(requests)-1].Status, path)
			}
		}
		for path, body := range map[string]string{"/short": "abc", "/flushed-abort": "abc", "/too-long": ""} {
			r, err := get(path)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, path)
			require.Equal(t, body, r.Body, path)
		}
		_, err := get("/abort")
		lost(t, err)
	}, svctest.WithInferenceHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) })))
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		srv := svctest.NewServer(svctest.WithSeparateStorage())
		_, link := register(t, srv)
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", link, "x").Status)
		srv.Fault("GET", svctest.RouteFiles, svctest.DropAfterEffect())
		_, _ = trySend(t, srv, "GET", "/v1/files", "")
		srv.Close()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 20*time.Second, time.Millisecond,
		"Eventually itself has one more")
}
