package svc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

	refused  = reply{err: errRefused, unsent: true}
	lost     = reply{err: errReset}
	cutShort = reply{status: 200, body: `{"service_id":"sv`, err: io.ErrUnexpectedEOF}
)

func status(code int) reply { return reply{status: code, body: `{"message":"no luck"}`} }

// What becomes of a call after a fault.
const (
	tryAgain  = "again"   // it is tried once more
	giveUp    = "final"   // its error is returned
	leaveOpen = "unknown" // its outcome is not known
)

type fault struct {
	name       string
	reply      reply
	repeatable string // of GET, PUT and DELETE
	create     string // of POST
}

func faults() []fault {
	list := []fault{
		{"connection refused", refused, tryAgain, tryAgain},
		{"unknown host", reply{err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}, unsent: true}, tryAgain, tryAgain},
		{"handshake breaks off", reply{err: io.EOF, unsent: true}, tryAgain, leaveOpen}, // a transport made by hand proves nothing
		{"connection reset", lost, tryAgain, leaveOpen},
		{"connection closed", reply{err: io.EOF}, tryAgain, leaveOpen},
		{"malformed answer", reply{err: errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP status code")}, tryAgain, leaveOpen},
		{"no answer", reply{after: ages}, tryAgain, leaveOpen},
		{"silence within the answer", reply{status: 200, body: `{"service_id":`, stall: true}, tryAgain, leaveOpen},
		{"answer cut", cutShort, tryAgain, leaveOpen},
		{"connection garbled", reply{err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad record MAC")}}, tryAgain, leaveOpen},
		{"bad certificate", reply{err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, unsent: true}, giveUp, giveUp},
		{"no TLS at the other end", reply{err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, unsent: true}, giveUp, leaveOpen},
		{"handshake refused", reply{err: &net.OpError{Op: "remote error", Err: errors.New("tls: unrecognized name")}, unsent: true}, giveUp, leaveOpen},
	}
	for code := 300; code < 600; code++ {
		f := fault{http.StatusText(code), status(code), giveUp, giveUp}
		switch {
		case code == 429:
			f.repeatable, f.create = tryAgain, tryAgain
		case code == 408:
			f.create = leaveOpen
		case code == 500, code == 502, code == 503, code == 504:
			f.repeatable, f.create = tryAgain, leaveOpen
		case code >= 500 && code != 501 && code != 505, code < 400 && code != 307 && code != 308:
			f.create = leaveOpen
		case f.name == "" && code%10 != 9:
			continue // a few that nobody has defined will do
		}
		f.name = fmt.Sprintf("%d %s", code, f.name)
		list = append(list, f)
	}
	return list
}

// What is retried: every kind of call with every kind of fault.
func TestRetryTable(t *testing.T) {
	for _, op := range operations {
		for _, f := range faults() {
			t.Run(op.name+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want := f.repeatable
					if op.method == "POST" {
						want = f.create
					}
					replies := []reply{f.reply}
					if want == tryAgain {
						replies = append(replies, op.ok)
					}
					s := play(t, replies...)
					start := time.Now()
					err := op.do(t.Context(), s.client(tries(4, 2*time.Second)))
					for _, r := range s.seen() {
						require.Equal(t, op.method+" "+op.path, r.Method+" "+r.Path)
					}
					limit := time.Duration(0)
					if f.reply.after > 0 || f.reply.stall {
						limit = svc.DefaultTimeout
					}
					if want == tryAgain {
						require.NoError(t, err)
						require.Equal(t, limit+2*time.Second, time.Since(start))
						return
					}
					require.Equal(t, limit, time.Since(start), "an error that nothing will change is returned at once")
					require.Equal(t, want == leaveOpen, errors.Is(err, svc.ErrOutcomeUnknown), "%v", err)
					if f.reply.status >= 300 {
						e := errorAs[*svc.Error](t, err)
						require.Equal(t, f.reply.status, e.StatusCode)
						require.Equal(t, "no luck", e.Message)
						require.Equal(t, 1, e.Attempts)
					} else {
						require.Equal(t, 1, errorAs[*svc.TransportError](t, err).Attempts)
					}
				})
			})
		}
	}
}

// A delete that finds nothing has succeeded if an attempt before it may have
// done it, and only then.
func TestDeleteThatFindsNothing(t *testing.T) {
	gone, busy, done := status(404), status(429), opDelete.ok
	page := reply{status: 404, body: "<html>nginx</html>"}
	for name, tt := range map[string]struct {
		replies []reply
		want    error
	}{
		"at first":                     {[]reply{gone}, svc.ErrNotFound},
		"gone at first":                {[]reply{status(410)}, svc.ErrNotFound},
		"after a lost answer":          {[]reply{lost, gone}, nil},
		"gone after a lost answer":     {[]reply{lost, status(410)}, nil},
		"after a cut answer":           {[]reply{cutShort, gone}, nil},
		"after no answer":              {[]reply{{after: ages}, gone}, nil},
		"after a gateway's timeout":    {[]reply{status(504), gone}, nil},
		"after a bad gateway":          {[]reply{status(502), gone}, nil},
		"after a refusal":              {[]reply{status(503), gone}, svc.ErrNotFound},
		"after a server error":         {[]reply{status(500), gone}, svc.ErrNotFound},
		"after a refused connection":   {[]reply{refused, gone}, svc.ErrNotFound},
		"after too many requests":      {[]reply{busy, gone}, svc.ErrNotFound},
		"lost, then refused":           {[]reply{lost, refused, gone}, nil},
		"refused, then lost":           {[]reply{refused, lost, gone}, nil},
		"lost, then not allowed":       {[]reply{lost, status(403)}, svc.ErrForbidden},
		"lost, then a proxy's page":    {[]reply{lost, page}, svc.ErrNotFound}, // it may still be there
		"lost, then done":              {[]reply{lost, done}, nil},
		"lost, then conflict":          {[]reply{lost, status(409)}, svc.ErrConflict},
		"lost to the end":              {[]reply{lost, lost, lost, lost, lost}, syscall.ECONNRESET},
		"server errors to the end":     {[]reply{status(500), status(502), status(503), status(504), status(500)}, svc.ErrServer},
		"refused to the end":           {[]reply{refused, refused, refused, refused, refused}, syscall.ECONNREFUSED},
		"too many requests to the end": {[]reply{busy, busy, busy, busy, busy}, svc.ErrRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, tt.replies...)
				require.ErrorIs(t, opDelete.do(t.Context(), s.client()), tt.want)
			})
		})
	}
	for _, op := range []operation{opGet, opUpdate} {
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, lost, gone)
				require.ErrorIs(t, op.do(t.Context(), s.client()), svc.ErrNotFound)
			})
		})
	}
}

// What the answer holds then is an error, and not what was promised.
func TestDeleteThatFindsNothingReadsNothing(t *testing.T) {
	for name, body := range map[string]string{
		"an error": `{"error":{"code":"not_found"},"id":"x"}`, "a message": `{"message":"none","id":"x"}`, "text": "not found", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				none := reply{status: 404, body: body}
				require.NoError(t, opDelete.do(t.Context(), play(t, lost, none).client()))
				out := map[string]any{"mine": true}
				require.NoError(t, play(t, lost, none).client().Do(t.Context(), "DELETE", "/v2/x", nil, &out))
				require.Equal(t, map[string]any{"mine": true}, out)
				raw := json.RawMessage("mine")
				require.NoError(t, play(t, lost, none).client().Do(t.Context(), "DELETE", "/v2/x", nil, &raw))
				require.Equal(t, "mine", string(raw))
				require.NoError(t, play(t, lost, none).client().Do(t.Context(), "DELETE", "/v2/x", nil, nil))
			})
		})
	}
}

// Every attempt sends the same request, body and all.
func TestAttemptsAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range operations {
			s := play(t, status(429), status(429), op.ok)
			require.NoError(t, op.do(t.Context(), s.client(), svc.WithHeader("X-Mine", "1"), svc.WithQuery("q", "a b")))
			all := s.seen()
			for _, r := range all[1:] {
				r.At, r.When = all[0].At, all[0].When
				require.Equal(t, all[0], r)
			}
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	policy := func(n int) svc.Option { return svc.WithRetry(svc.RetryPolicy{MaxAttempts: n}) }
	for name, tt := range map[string]struct {
		opts []svc.Option
		call []svc.RequestOption
		want int
	}{
		"default":                   {nil, nil, 5},
		"policy without a number":   {[]svc.Option{svc.WithRetry(svc.RetryPolicy{MinDelay: 1})}, nil, 5},
		"no retries":                {[]svc.Option{policy(1)}, nil, 1},
		"three":                     {[]svc.Option{policy(3)}, nil, 3},
		"no retries for a call":     {nil, []svc.RequestOption{svc.WithMaxAttempts(1)}, 1},
		"more for a call":           {[]svc.Option{policy(1)}, []svc.RequestOption{svc.WithMaxAttempts(7)}, 7},
		"the last option wins":      {[]svc.Option{policy(3), policy(2)}, nil, 2},
		"the last of a call's wins": {nil, []svc.RequestOption{svc.WithMaxAttempts(7), svc.WithMaxAttempts(2)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, f := range []reply{status(503), lost} {
					s := loop(t, f)
					var resp svc.Response
					err := opGet.do(t.Context(), s.client(tt.opts...), append(tt.call, svc.WithResponse(&resp))...)
					require.Len(t, s.seen(), tt.want)
					require.Equal(t, tt.want, resp.Attempts)
					if f.status != 0 {
						require.Equal(t, tt.want, errorAs[*svc.Error](t, err).Attempts)
					} else {
						require.Equal(t, tt.want, errorAs[*svc.TransportError](t, err).Attempts)
					}
					if tt.want > 1 {
						require.ErrorContains(t, err, fmt.Sprintf("%d attempts)", tt.want))
					}
				}
			})
		})
	}
}

// (a) The last answer is the error when retries run out, (b) so is the network's
// error, (c) and the end of the context.
func TestB03_LastAnswerIsKept(t *testing.T) {
	t.Run("answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := loop(t, reply{status: 503, body: `{"message":"down for maintenance"}`, header: map[string]string{"X-Request-Id": "req-7"}})
			err := opGet.do(t.Context(), s.client())
			e := errorAs[*svc.Error](t, fmt.Errorf("wrapped: %w", err))
			require.Equal(t, 503, e.StatusCode)
			require.Equal(t, "down for maintenance", e.Message)
			require.Equal(t, "req-7", e.RequestID)
			require.Equal(t, 5, e.Attempts)
			require.JSONEq(t, `{"message":"down for maintenance"}`, string(e.Body))
			require.Equal(t, "svc: GET /v1/inference-service/{service_id}: 503 Service Unavailable: down for maintenance (id svc-1, request req-7, 5 attempts)", err.Error())
			require.ErrorIs(t, err, svc.ErrServer)
		})
	})
	t.Run("closed port", func(t *testing.T) {
		client := clientAt(t, "http://"+closedPort(t), tries(2, time.Millisecond))
		for _, op := range operations {
			err := op.do(t.Context(), client)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.NotErrorIs(t, err, context.Canceled)
			require.Equal(t, 2, errorAs[*svc.TransportError](t, err).Attempts)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			require.ErrorIs(t, opGet.do(ctx, loop(t, reply{after: ages}).client()), context.Canceled)
		})
	})
}

// closedPort is an address at which nothing listens.
func closedPort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
