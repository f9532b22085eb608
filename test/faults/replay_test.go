package faults_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// Over HTTP/2, net/http by itself repeats requests that the server may have processed. A
// create is sent once, whatever ends its stream. It is retried only if the server says
// that it was not processed.
func TestHTTP2DoesNotRepeatACreate_B02(t *testing.T) {
	const refusedStream = 7
	for code := range uint32(14) {
		for _, before := range []bool{false, true} { // true: an earlier request has opened the connection
			t.Run(fmt.Sprint(code, before), func(t *testing.T) {
				failed := false
				h := newHandmade(t, func(n int, stream uint32) string {
					if before && n == 1 || failed {
						return h2OK(stream, testkit.ServiceJSON)
					}
					failed = true
					return h2Reset(stream, code)
				})
				client := testkit.ClientAt(t, h.url, testkit.Tries(3, time.Millisecond), svc.WithHTTPClient(&http.Client{Transport: h.trusting}))
				want := 1
				if before {
					require.NoError(t, testkit.OpGet.Do(t.Context(), client))
					want++
				}
				err := testkit.OpCreate.Do(t.Context(), client)
				if code == refusedStream {
					require.NoError(t, err)
					want++
				} else {
					require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				}
				require.Len(t, h.seen(), want)
			})
		}
	}
}

// Behind a load balancer, a service may respond over HTTP/1 first and over HTTP/2 later.
// A create is still sent once.
func TestChangeOfProtocol_B02(t *testing.T) {
	h := newHandmade(t, func(_ int, stream uint32) string { return h2Reset(stream, 1) })
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testkit.ServiceJSON) }))
	defer old.Close()
	first := true
	tr := h.trusting
	tr.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if first {
			first = false
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(old.URL, "http://"))
		}
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := tr.TLSClientConfig.Clone()
		config.ServerName, config.NextProtos = "example.com", []string{"h2"}
		secure := tls.Client(c, config)
		return secure, secure.HandshakeContext(ctx)
	}
	client := testkit.ClientAt(t, h.url, testkit.Tries(3, time.Millisecond), svc.WithHTTPClient(&http.Client{Transport: tr}))
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
	tr.CloseIdleConnections()
	require.ErrorIs(t, testkit.OpCreate.Do(t.Context(), client), svc.ErrOutcomeUnknown)
	require.Len(t, h.seen(), 1)
}

// On failing HTTP/2 connections some versions of net/http repeat a request many times.
// The library limits this, for calls and for uploads.
func TestHTTP2DoesNotStorm_B04(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the trusted certificates cannot be set for one process")
	}
	if os.Getenv("SVC_TEST_CHILD") == "" {
		h := newHandmade(t, func(_ int, stream uint32) string { return h2Reset(stream, 1) })
		path := filepath.Join(t.TempDir(), "cert.pem")
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.cert}), 0o600))
		testkit.InChild(t, "SSL_CERT_FILE="+path, "SVC_TEST_URL="+h.url)
		n := len(h.seen())
		require.LessOrEqual(t, n, 4*2*3, "four calls with two attempts each, which net/http may repeat")
		require.GreaterOrEqual(t, n, 4*2)
		return
	}
	address := os.Getenv("SVC_TEST_URL")
	client := testkit.ClientAt(t, address, testkit.Tries(2, time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, op := range []testkit.Operation{testkit.OpGet, testkit.OpUpdate, testkit.OpDelete} {
		err := op.Do(ctx, client)
		require.Equal(t, 2, testkit.ErrorAs[*svc.TransportError](t, err).Attempts, op.Name)
	}
	_, err := client.Files.Put(ctx, svc.SignedURL(address+"/f?sig=x"), strings.NewReader("contents"), nil)
	require.Error(t, err)
	require.NoError(t, ctx.Err())
}

// twice is a transport that sends a request with a second transport if the first one
// fails.
type twice struct{ first, second http.RoundTripper }

func (f twice) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.first.RoundTrip(r)
	if err == nil {
		return resp, nil
	}
	return f.second.RoundTrip(r)
}

// A transport may try several ways. An error that proves that nothing was sent proves it
// only for the last way. So the outcome of a create is unknown.
func TestTransportsThatTryTwice_B02(t *testing.T) {
	dead := testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errno.ConnRefused}
	})
	for name, with := range map[string]func(real http.RoundTripper) svc.Option{
		"client": func(real http.RoundTripper) svc.Option {
			return svc.WithHTTPClient(&http.Client{Transport: twice{real, dead}})
		},
		"wrapper": func(http.RoundTripper) svc.Option {
			return svc.WithTransportWrapper(func(own http.RoundTripper) http.RoundTripper { return twice{own, dead} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := svctest.NewServer()
			defer srv.Close()
			srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			client := testkit.ClientAt(t, srv.URL(), svc.WithToken(srv.Token()), testkit.Tries(3, time.Millisecond), with(tr))
			_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Len(t, srv.Endpoints(), 1)
		})
	}
}

// stale is a connection that can be told to be dead in a way that shows only when
// something is written.
type stale struct {
	net.Conn
	dead *atomic.Bool
}

func (c stale) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: errno.Pipe}
	}
	return c.Conn.Write(p)
}

// An idle connection that was closed has taken nothing of a create. So the create is sent
// on another connection. If no other connection is possible, it is certain that nothing
// was sent.
func TestStaleConnection_B02(t *testing.T) {
	for name, restarted := range map[string]bool{"another": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			srv := svctest.NewServer()
			defer srv.Close()
			srv.AddEndpoint(svctest.Endpoint{})
			var dead atomic.Bool
			dials := 0
			tr := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials++; dials > 1 && !restarted {
					return nil, &net.OpError{Op: "dial", Net: network, Err: errno.ConnRefused}
				}
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil || dials > 1 {
					return c, err
				}
				return stale{c, &dead}, nil
			}}
			defer tr.CloseIdleConnections()
			client := testkit.ClientAt(t, srv.URL(), svc.WithToken(srv.Token()), testkit.Tries(2, time.Millisecond), svc.WithHTTPClient(&http.Client{Transport: tr}))
			_, err := client.InferenceServices.Get(t.Context(), "svc-1")
			require.NoError(t, err)
			dead.Store(true)
			_, err = client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
			require.Equal(t, 2, dials)
			if restarted {
				require.NoError(t, err)
				require.Len(t, srv.Endpoints(), 2)
				return
			}
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.ErrorIs(t, err, errno.ConnRefused)
		})
	}
}

// Failed transfers to storage do not use the retry budget of API calls.
func TestRetryBudgetOfTransfersIsTheirOwn(t *testing.T) {
	client := testkit.ClientOn(t, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "api.test" {
			return nil, errors.New("no route to storage")
		}
		return &http.Response{StatusCode: 503, ProtoMajor: 1, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
	}), testkit.Tries(3, time.Millisecond))
	for range 100 {
		_, err := client.Files.Put(t.Context(), "https://storage.test/f?sig=x", strings.NewReader("x"), nil)
		require.Error(t, err)
	}
	require.Equal(t, 3, testkit.ErrorAs[*svc.Error](t, testkit.OpDelete.Do(t.Context(), client)).Attempts)
}

// For a create without a body, sending the headers already counts as sending the create.
func TestHTTP2DoesNotRepeatWhatHasNoBody_B02(t *testing.T) {
	for _, before := range []bool{false, true} {
		failed := false
		h := newHandmade(t, func(n int, stream uint32) string {
			if before && n == 1 || failed {
				return h2OK(stream, testkit.ServiceJSON)
			}
			failed = true
			return h2Reset(stream, 1)
		})
		client := testkit.ClientAt(t, h.url, testkit.Tries(3, time.Millisecond), svc.WithHTTPClient(&http.Client{Transport: h.trusting}))
		want := 1
		if before {
			require.NoError(t, testkit.OpGet.Do(t.Context(), client))
			want++
		}
		err := client.Do(t.Context(), http.MethodPost, "/v1/restart", nil, nil)
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.NotErrorIs(t, err, context.Canceled)
		require.Len(t, h.seen(), want)
	}
}

// The body of a create can be read only once. So neither net/http nor a wrapper of the
// transport can send the create twice, even if the wrapper sets an Idempotency-Key.
func TestWrappersCannotRepeat_B02(t *testing.T) {
	for name, wrap := range map[string]func(own http.RoundTripper) http.RoundTripper{
		"a key": func(own http.RoundTripper) http.RoundTripper {
			return testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("Idempotency-Key", "k")
				return own.RoundTrip(r)
			})
		},
		"a second body": func(own http.RoundTripper) http.RoundTripper {
			return testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := own.RoundTrip(r)
				if err == nil || r.GetBody == nil {
					return resp, err
				}
				again := r.Clone(r.Context())
				if again.Body, err = r.GetBody(); err != nil {
					return nil, err
				}
				return own.RoundTrip(again)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := svctest.NewServer()
			defer srv.Close()
			srv.AddEndpoint(svctest.Endpoint{})
			client := testkit.ClientAt(t, srv.URL(), svc.WithToken(srv.Token()), testkit.Tries(3, time.Millisecond), svc.WithTransportWrapper(wrap))
			_, err := client.InferenceServices.Get(t.Context(), "svc-1") // uses HTTP/1, and leaves a connection open
			require.NoError(t, err)
			srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
			_, err = client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
			require.Len(t, srv.Endpoints(), 2)
		})
	}
}

// HTTP/2 errors that say "not processed" count as proof only if they come from a
// transport of net/http. Another transport may have sent the request another way before.
func TestTurnedDownAfterAnotherWay_B02(t *testing.T) {
	for _, second := range []string{"stream error: stream ID 1; REFUSED_STREAM; received from peer", "http2: Transport received Server's graceful shutdown GOAWAY"} {
		sent := 0
		client := testkit.ClientOn(t, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			require.NoError(t, err)
			sent++
			return nil, fmt.Errorf("http2: Transport: cannot retry err [%s] after Request.Body was written; define Request.GetBody to avoid this error", second)
		}), testkit.Tries(3, time.Millisecond))
		require.ErrorIs(t, testkit.OpCreate.Do(t.Context(), client), svc.ErrOutcomeUnknown)
		require.Equal(t, 1, sent)
	}
}

// After status 101 the connection no longer speaks HTTP. The client must not read from
// it, because nothing would end the read.
func TestSwitchingProtocolsHangsNothing_B18(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer l.Close()
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
					_, _ = c.Read(make([]byte, 1)) // blocks until the client closes the connection
				}
			})
		}
	})
	address := "http://" + l.Addr().String()
	client := testkit.ClientAt(t, address, testkit.Tries(2, time.Millisecond))
	link := svc.SignedURL(address + "/f?sig=x")
	_, put := client.Files.Put(t.Context(), link, strings.NewReader("x"), nil)
	_, download := client.Files.DownloadURL(t.Context(), link, io.Discard, nil)
	for name, err := range map[string]error{
		"get": testkit.OpGet.Do(t.Context(), client), "update": testkit.OpUpdate.Do(t.Context(), client), "delete": testkit.OpDelete.Do(t.Context(), client),
		"create": testkit.OpCreate.Do(t.Context(), client), "put": put, "download": download,
	} {
		require.Equal(t, http.StatusSwitchingProtocols, testkit.ErrorAs[*svc.Error](t, err).StatusCode, name)
		require.Equal(t, name == "create", errors.Is(err, svc.ErrOutcomeUnknown), name)
	}
}

// If a transport of the caller wraps the error of an http.Client, the whole error chain
// is kept.
func TestErrorsAroundThatOfAnHTTPClient(t *testing.T) {
	breaker := errors.New("circuit open")
	client := testkit.ClientOn(t, testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("%w: %w", breaker, &url.Error{Op: "Get", URL: "https://api.test/x?sig=topsecret", Err: errno.ConnRefused})
	}), testkit.Tries(1, 0))
	err := testkit.OpGet.Do(t.Context(), client)
	require.ErrorIs(t, err, breaker)
	require.ErrorIs(t, err, errno.ConnRefused)
	require.NotContains(t, err.Error(), "topsecret")
}

// A wrapper may return early and leave its request running. That request is still sent to
// its own URL, and not to that of another attempt.
func TestAbandonedRequestsKeepTheirAddress(t *testing.T) {
	var mu sync.Mutex
	var hosts []string
	var left sync.WaitGroup
	release := make(chan struct{})
	transport := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		hosts = append(hosts, r.URL.Host+"?"+r.URL.RawQuery)
		return &http.Response{StatusCode: 200, ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	first := true
	client := testkit.ClientOn(t, transport, testkit.Tries(1, 0), svc.WithTransportWrapper(func(own http.RoundTripper) http.RoundTripper {
		return testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			if !first {
				return own.RoundTrip(r)
			}
			first = false
			left.Go(func() {
				<-release
				if resp, err := own.RoundTrip(r); err == nil {
					_ = resp.Body.Close()
				}
			})
			return &http.Response{
				StatusCode: 307, ProtoMajor: 1, Header: http.Header{"Location": {"https://other.test/g?sig=two"}}, Body: http.NoBody, Request: r,
			}, nil
		})
	}))
	_, err := client.Files.DownloadURL(t.Context(), "https://storage.test/f?sig=one", io.Discard, nil)
	require.NoError(t, err)
	close(release)
	left.Wait()
	require.Equal(t, []string{"other.test?sig=two", "storage.test?sig=one"}, hosts)
}
