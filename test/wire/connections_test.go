package wire_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// counted is a server that counts its connections and their requests.
type counted struct {
	*httptest.Server
	conns, requests atomic.Int32
}

func newCounted(t *testing.T, handler func(n int, w http.ResponseWriter, r *http.Request)) *counted {
	c := new(counted)
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler(int(c.requests.Add(1)), w, r)
	}))
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.conns.Add(1)
		}
	}
	t.Cleanup(c.Close)
	return c
}

func startCounted(t *testing.T, handler func(n int, w http.ResponseWriter, r *http.Request)) *counted {
	c := newCounted(t, handler)
	c.Start()
	return c
}

func TestConnectionsAreReused_B04(t *testing.T) {
	big := strings.Repeat("x", 2<<10)
	for name, tt := range map[string]struct {
		status  func(n int) int
		body    string
		callers int
		calls   int
		fails   bool
		most    int32 // net/http may open a few connections that it does not use
	}{
		"retries, then success": {func(n int) int { return [3]int{200, 503, 503}[n%3] }, big, 1, 30, false, 2},
		"only failures":         {func(int) int { return 503 }, big, 1, 30, true, 2},
		"long failures":         {func(int) int { return 503 }, strings.Repeat("x", 60<<10), 1, testkit.Shorter(10, 3), true, 2},
		"many callers":          {func(int) int { return 200 }, "", 20, 20, false, 40},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NoGoroutineLeft(t)
			srv := startCounted(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				body := tt.body
				if tt.status(n) == 200 {
					body = testkit.ServiceJSON
				}
				w.WriteHeader(tt.status(n))
				_, _ = io.WriteString(w, body)
			})
			client := testkit.ClientAt(t, srv.URL, testkit.Tries(3, time.Microsecond))
			var callers sync.WaitGroup
			for range tt.callers {
				callers.Go(func() {
					for range tt.calls {
						if err := testkit.OpGet.Do(t.Context(), client); (err != nil) != tt.fails {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			client.CloseIdleConnections()
			require.LessOrEqual(t, srv.conns.Load(), tt.most)
		})
	}
}

// The pool keeps the connections of 128 callers that were active at the same time.
func TestPoolKeepsItsConnections_B04(t *testing.T) {
	const callers = 128
	var together sync.WaitGroup // responses wait until all requests of a round have arrived
	srv := startCounted(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		together.Done()
		together.Wait()
		_, _ = io.WriteString(w, testkit.ServiceJSON)
	})
	client := testkit.ClientAt(t, srv.URL)
	for range 2 {
		together.Add(callers)
		var round sync.WaitGroup
		for range callers {
			round.Go(func() { assert.NoError(t, testkit.OpGet.Do(t.Context(), client)) })
		}
		round.Wait()
	}
	client.CloseIdleConnections()
	require.Less(t, srv.conns.Load(), int32(callers+10), "net/http closes one whose write is noted late")
}

// An error of the protocol or the certificate is not retried.
func TestHopelessErrors_B09(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	host := strings.TrimPrefix(secure.URL, "https://")
	t.Run("plain http to https", func(t *testing.T) {
		err := testkit.OpGet.Do(t.Context(), testkit.ClientAt(t, "http://"+host, testkit.Tries(4, 2*time.Second)))
		require.Equal(t, 400, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
	})
	t.Run("wrong name", func(t *testing.T) {
		tr := secure.Client().Transport.(*http.Transport).Clone()
		tr.TLSClientConfig.ServerName = "other.test"
		defer tr.CloseIdleConnections()
		err := testkit.OpCreate.Do(t.Context(), testkit.ClientAt(t, secure.URL, svc.WithHTTPClient(&http.Client{Transport: tr}), testkit.Tries(4, 2*time.Second)))
		require.ErrorAs(t, err, new(x509.HostnameError))
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
	})
	t.Run("client certificate missing", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		srv.StartTLS()
		defer srv.Close()
		err := testkit.OpGet.Do(t.Context(), testkit.ClientAt(t, srv.URL, svc.WithHTTPClient(srv.Client()), testkit.Tries(4, 2*time.Second)))
		require.Equal(t, 1, testkit.ErrorAs[*svc.TransportError](t, err).Attempts, "%v", err)
	})
}

// rawServer sends the given responses, byte for byte.
func rawServer(t *testing.T, answers ...string) (address string, requests *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	requests = new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				n := min(int(requests.Add(1)), len(answers))
				_, _ = io.WriteString(conn, answers[n-1])
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String(), requests
}

// A response that is not HTTP, or that is cut off, counts as a lost connection.
func TestMalformedResponses(t *testing.T) {
	const head, good = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", `{"service_id":"svc-1"}`
	for name, answer := range map[string]string{
		"nothing":               "",
		"not HTTP":              "220 smtp.example ESMTP\r\n",
		"noise":                 "\x00\x01\x02\x03\r\n\r\n",
		"no status":             "HTTP/1.1 abc OK\r\n\r\n",
		"bad version":           "HTTP/9.x 200 OK\r\n\r\n",
		"bad header":            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"header cut":            "HTTP/1.1 200 OK\r\nContent-Ty",
		"two lengths":           head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"negative length":       head + "Content-Length: -1\r\n\r\n" + good,
		"body cut":              head + "Content-Length: 1000\r\n\r\n" + good[:12],
		"no body":               head + "Content-Length: 1000\r\n\r\n",
		"chunk cut":             head + "Transfer-Encoding: chunked\r\n\r\n16\r\n" + good[:12],
		"last chunk missing":    head + "Transfer-Encoding: chunked\r\n\r\n16\r\n" + good + "\r\n",
		"chunk without a size":  head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + good,
		"switches the protocol": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NoGoroutineLeft(t)
			for _, op := range testkit.Operations {
				address, requests := rawServer(t, answer, head+"Content-Length: 22\r\n\r\n"+good)
				client := testkit.ClientAt(t, address, testkit.Tries(3, time.Microsecond))
				err := op.Do(t.Context(), client)
				client.CloseIdleConnections()
				switch {
				case name == "switches the protocol":
					require.Error(t, err)
				case op.Method == "POST":
					require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
					require.EqualValues(t, 1, requests.Load())
					require.NotErrorIs(t, err, context.Canceled)
				default:
					require.NoError(t, err)
					require.EqualValues(t, 2, requests.Load())
				}
			}
		})
	}
}

// An error response whose body is cut off keeps its status and the part of the body that
// was received.
func TestErrorBodyCut(t *testing.T) {
	address, requests := rawServer(t, "HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\nno such servi")
	for _, op := range testkit.Operations {
		err := op.Do(t.Context(), testkit.ClientAt(t, address, testkit.Tries(3, time.Microsecond)))
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, "no such servi", string(testkit.ErrorAs[*svc.Error](t, err).Body))
	}
	require.EqualValues(t, len(testkit.Operations), requests.Load())
}

// The client's own transport speaks HTTP/2. The same rules apply.
func TestHTTP2(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	var proto atomic.Value
	srv := newCounted(t, func(n int, w http.ResponseWriter, r *http.Request) {
		proto.Store(r.Proto)
		if _, err := io.Copy(io.Discard, r.Body); err != nil || n == 2 || r.Method == "POST" && n > 5 {
			panic(http.ErrAbortHandler) // this resets the stream
		}
		if n == 1 {
			w.WriteHeader(503)
		}
		_, _ = io.WriteString(w, testkit.ServiceJSON)
	})
	srv.EnableHTTP2 = true
	srv.StartTLS()
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	defer tr.CloseIdleConnections()
	client := testkit.ClientAt(t, srv.URL, svc.WithHTTPClient(&http.Client{Transport: tr}), testkit.Tries(3, time.Microsecond))
	require.NoError(t, testkit.OpGet.Do(t.Context(), client)) // responses: 503, a reset, the record
	require.NoError(t, testkit.OpUpdate.Do(t.Context(), client))
	require.NoError(t, testkit.OpCreate.Do(t.Context(), client))
	err := testkit.OpCreate.Do(t.Context(), client)
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.EqualValues(t, 6, srv.requests.Load())
	require.EqualValues(t, 1, srv.conns.Load())
	require.Equal(t, "HTTP/2.0", proto.Load())
}

// Calls that end early leave no connections and no goroutines behind, in whatever state
// they are.
func TestNothingIsLeftBehind(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	srv := startCounted(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n%2 == 0 {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	client := testkit.ClientAt(t, srv.URL, svc.WithTimeout(5*time.Millisecond), testkit.Tries(2, time.Millisecond))
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
			defer cancel()
			for _, op := range testkit.Operations {
				if err := op.Do(ctx, client); err == nil {
					t.Error("want an error")
				}
			}
		})
	}
	callers.Wait()
	client.CloseIdleConnections()
	srv.Close()
}
