package faults_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
)

// matrixWireFault is a fault of a connection. Its do function returns whether the
// connection stays open.
type matrixWireFault struct {
	matrixFault

	do   func(s *matrixServer, conn net.Conn, req *http.Request) bool
	only []string // operations that the fault applies to; nil: all
}

// writes returns a fault that passes the request to the service, sends text as the
// response, and closes the connection.
func writes(text string) func(*matrixServer, net.Conn, *http.Request) bool {
	return func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		takesEffect(s.c, req)
		_, _ = io.WriteString(conn, strings.ReplaceAll(text, "LEAK", s.c.leak(req)))
		return false
	}
}

// oneOfEach has one operation of each class.
var oneOfEach = []string{"InferenceServices.Get", "InferenceServices.Update", "InferenceServices.Delete", "InferenceServices.Create", "Files.Put", "Files.DownloadURL"}

var matrixWireFaults = []matrixWireFault{
	{matrixFault: matrixFault{name: "closed", kind: matrixLost}, do: func(_ *matrixServer, _ net.Conn, req *http.Request) bool {
		matrixSend(req)
		return false
	}},
	{matrixFault: matrixFault{name: "closed after effect", kind: matrixLost, acts: true}, do: writes("")},
	{matrixFault: matrixFault{name: "reset after effect", kind: matrixLost, acts: true}, do: func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		takesEffect(s.c, req)
		matrixReset(conn)
		return false
	}},
	{matrixFault: matrixFault{name: "headers cut", kind: matrixLost, acts: true}, do: writes("HTTP/1.1 200 OK\r\nContent-Type: applic")},
	{matrixFault: matrixFault{name: "malformed status", kind: matrixLost, acts: true}, do: writes("HTTP/1.1 2OO LEAK\r\n\r\n")},
	{matrixFault: matrixFault{name: "malformed header", kind: matrixLost, acts: true}, do: writes("HTTP/1.1 200 OK\r\nno colon\r\n\r\n")},
	{matrixFault: matrixFault{name: "another protocol", kind: matrixLost, acts: true}, do: writes("220 mail.example ESMTP LEAK\r\n")},
	{matrixFault: matrixFault{name: "bad length", kind: matrixLost, acts: true}, do: writes("HTTP/1.1 200 OK\r\nContent-Length: LEAK\r\n\r\n{}")},
	{matrixFault: matrixFault{name: "answer cut", kind: matrixHeaders, acts: true, relays: true, cause: io.ErrUnexpectedEOF}, do: func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		head, body, err := s.real(req)
		if len(body) == 0 { // a delete has an empty body
			head, body = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), []byte("{}")
		}
		_, _ = conn.Write(append(head, body[:len(body)/2]...))
		return err != nil
	}},
	{matrixFault: matrixFault{name: "chunks cut", kind: matrixHeaders, acts: true, cause: io.ErrUnexpectedEOF}, do: func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		takesEffect(s.c, req)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[\"abc")
		return false
	}, only: slices.Concat(oneOfEach[:5], []string{"VideoJobs.List", "Files.Register"})},
	{matrixFault: matrixFault{name: "silence", kind: matrixLate, stalls: true}, do: func(_ *matrixServer, conn net.Conn, req *http.Request) bool {
		matrixSilence(conn, req)
		return false
	}, only: oneOfEach},
	{matrixFault: matrixFault{name: "slow body", kind: matrixHeaders, acts: true, stalls: true}, do: func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		takesEffect(s.c, req)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		matrixSilence(conn, req)
		return false
	}, only: []string{"InferenceServices.Get", "InferenceServices.Update", "InferenceServices.Delete", "InferenceServices.Create", "Files.DownloadURL"}},
	{matrixFault: matrixFault{name: "endless body", kind: matrixTooLarge, acts: true}, do: func(s *matrixServer, conn net.Conn, req *http.Request) bool {
		takesEffect(s.c, req)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := []byte("10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n")
		for {
			if _, err := conn.Write(chunk); err != nil {
				return false
			}
		}
	}, only: []string{"Flavors.List", "Files.Delete", "Files.Register"}},
	{matrixFault: matrixFault{name: "endless failure", kind: matrixRefusal, status: 403}, do: func(_ *matrixServer, conn net.Conn, req *http.Request) bool {
		matrixSend(req)
		_, _ = io.WriteString(conn, "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := []byte("10000\r\n" + strings.Repeat("no ", 1<<16)[:1<<16] + "\r\n")
		for {
			if _, err := conn.Write(chunk); err != nil {
				return false
			}
		}
	}, only: oneOfEach},
}

// Faults of the network, tested with a TCP server and the client's own transport.
func TestMatrixWire(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	sample := testkit.Shorter(1, 8) // every operation still meets an eighth of the faults, and every fault an eighth of the operations
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for j := i % sample; j < len(matrixWireFaults); j += sample {
				f := &matrixWireFaults[j]
				if f.only != nil && !slices.Contains(f.only, op.name) {
					continue
				}
				if testing.Short() && strings.HasPrefix(f.name, "endless") { // megabytes are slow under the race detector
					continue
				}
				for _, always := range []bool{false, true} {
					if op.needless(&f.matrixFault, always) || f.stalls && !always {
						continue
					}
					t.Run(fmt.Sprintf("%s/%v", f.name, always), func(t *testing.T) {
						timeout, attempts := matrixTimeout, 3
						if f.stalls {
							timeout, attempts = 600*time.Millisecond, 2
						}
						s := newMatrixServer(t, op, attempts, timeout)
						s.meet = func(n int, conn net.Conn, req *http.Request) bool {
							if n == 1 || always {
								return f.do(s, conn, req)
							}
							return s.pass(conn, req)
						}
						want := op.expect(&f.matrixFault, always, attempts)
						want.busy = f.stalls
						value, err := s.run()
						s.c.check(want, value, err)
					})
				}
			}
		})
	}
}

// A server closes a connection before it reads a byte. A create is retried if it
// certainly was not sent; otherwise its outcome is unknown. In no case does it take
// effect more than once.
func TestMatrixClosedOnAccept(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	for i := range matrixOps {
		op := &matrixOps[i]
		if op.second() {
			continue // the first connection of these calls is for another request
		}
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", op.name, always), func(t *testing.T) {
				t.Parallel()
				s := newMatrixServer(t, op, 3, matrixTimeout)
				var conns atomic.Int32
				s.accepted = func(net.Conn) bool { return conns.Add(1) > 1 && !always }
				s.meet = func(_ int, conn net.Conn, req *http.Request) bool { return s.pass(conn, req) }
				_, err := s.run()
				s.c.checkSecrets(nil, err)
				effect := 0
				if op.effect != nil {
					effect = op.effect(s.c)
				}
				switch {
				case errors.Is(err, svc.ErrOutcomeUnknown):
					require.Equal(t, matrixCreate, op.class)
					require.Zero(t, effect)
				case always:
					require.Error(t, err)
					require.EqualValues(t, 3, conns.Load())
					require.Zero(t, effect)
				default:
					require.NoError(t, err)
					require.GreaterOrEqual(t, conns.Load(), int32(2))
					require.Equal(t, testkit.One(op.effect != nil), effect)
				}
			})
		}
	}
}

// The service closes a connection at the moment when the client uses it again.
func TestStaleConnection_B08(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			s := newMatrixServer(t, op, 3, matrixTimeout)
			s.meet = func(n int, conn net.Conn, req *http.Request) bool {
				if n == 1 {
					matrixSend(req)
					return false
				}
				return s.pass(conn, req)
			}
			s.serving.Go(s.accept)
			// This opens a connection in both pools: for the API and for storage.
			warm := svc.SignedURL(strings.Replace(string(s.c.link), "file-1", "none", 1))
			_, err := s.c.client.Files.DownloadURL(t.Context(), warm, io.Discard, nil)
			require.ErrorIs(t, err, svc.ErrForbidden)
			_, err = s.c.client.InferenceServices.Get(t.Context(), "none")
			require.ErrorIs(t, err, svc.ErrNotFound)

			value, err := op.run(t.Context(), s.c)
			s.close()
			s.c.checkSecrets(nil, err)
			if op.class == matrixCreate {
				require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Zero(t, op.effect(s.c))
				require.Len(t, s.c.met, 1)
				return
			}
			require.NoError(t, err)
			require.True(t, op.class == matrixRemove || value != nil)
			require.Len(t, s.c.met, 2)
			if op.effect != nil {
				require.Equal(t, 1, op.effect(s.c))
			}
		})
	}
}

// The connection fails before anything is sent. So even a create is retried, unless a
// retry is useless.
func TestMatrixNoConnection(t *testing.T) {
	const closed = testkit.ClosedPort
	var handshakes atomic.Int32
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			handshakes.Add(1)
		}
	}
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()

	for i := range matrixOps {
		op := &matrixOps[i]
		if op.second() {
			continue // these calls need a presigned URL first
		}
		for name, tt := range map[string]struct {
			base     string
			attempts int
			cause    error
		}{
			"refused":   {"http://" + closed, 3, errno.ConnRefused},
			"untrusted": {untrusted.URL, 1, nil},
			"no TLS":    {strings.Replace(plain.URL, "http:", "https:", 1), 1, nil},
		} {
			t.Run(op.name+"/"+name, func(t *testing.T) {
				s := newMatrixServer(t, op, 3, matrixTimeout)
				c := s.c
				defer s.close()
				c.setUp(tt.base, svc.RetryPolicy{MaxAttempts: 3, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond})
				before := handshakes.Load()
				c.link = svc.SignedURL(strings.Replace(string(c.link), c.base, tt.base, 1))
				value, err := op.run(t.Context(), c)
				require.Error(t, err)
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				if tt.cause != nil {
					require.ErrorIs(t, err, tt.cause)
				}
				var failure *svc.TransportError
				require.ErrorAs(t, err, &failure)
				require.Equal(t, tt.attempts, failure.Attempts)
				if name == "untrusted" {
					require.EqualValues(t, 1, handshakes.Load()-before)
				}
				c.checkSecrets(value, err)
			})
		}
	}
}
