package faults_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// A create that certainly was not sent is retried. It is not retried if the TLS
// certificate of the server is not valid. In both cases the outcome is known.
func TestCreateThatWasCertainlyNotSent(t *testing.T) {
	opErr := func(op string) error { return &net.OpError{Op: op, Net: "tcp", Err: errno.ConnRefused} }
	for name, tt := range map[string]struct {
		err      error
		attempts int
	}{
		"dial":           {opErr("dial"), 3},
		"socks":          {opErr("socks connect"), 3},
		"proxy":          {opErr("proxyconnect"), 3},
		"name":           {&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}, 3},
		"certificate":    {&tls.CertificateVerificationError{Err: errors.New("not one of ours")}, 1},
		"authority":      {x509.UnknownAuthorityError{}, 1},
		"host":           {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api.test"}, 1},
		"invalid":        {x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, 1},
		"another scheme": {fmt.Errorf("http: %w", http.ErrSchemeMismatch), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testkit.Loop(t, testkit.Reply{Err: tt.err, Unsent: true})
				err := testkit.OpCreate.Do(t.Context(), s.Client(testkit.Tries(3, time.Second)))
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, tt.attempts, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
				require.Len(t, s.Seen(), tt.attempts)
			})
		})
	}
	for _, err := range []error{opErr("read"), opErr("write"), &net.OpError{Op: "remote error", Err: fmt.Errorf("tls: bad certificate")}} {
		s := testkit.Loop(t, testkit.Reply{Err: err})
		require.ErrorIs(t, testkit.OpCreate.Do(t.Context(), s.Client(testkit.Tries(3, 1))), svc.ErrOutcomeUnknown)
		require.Len(t, s.Seen(), 1)
	}
}

// Values of Retry-After that are invalid, negative or too large.
func TestRetryAfterAtItsEdges(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "-0": 0, "0.5": 500 * time.Millisecond, "NaN": 0, "+Inf": 100 * 365 * 24 * time.Hour, "1e300": 100 * 365 * 24 * time.Hour, "-Inf": 0, "": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := testkit.Loop(t, testkit.Reply{Status: 429, Header: map[string]string{"Retry-After": text}})
			err := testkit.OpGet.Do(t.Context(), s.Client(testkit.Tries(1, 1)))
			require.Equal(t, want, testkit.ErrorAs[*svc.Error](t, err).RetryAfter, text)
		})
	}
}

// A connection may still use the headers of an earlier attempt when the next attempt is
// made. So an attempt must not change them.
func TestAnAttemptLeavesTheHeadersBeforeItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []http.Header
		n := 0
		source := svc.WithTokenSource(func(context.Context) (string, error) { n++; return fmt.Sprintf("token-%d", n), nil })
		c := testkit.ClientOn(t, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			kept = append(kept, r.Header)
			return nil, &net.OpError{Op: "dial", Err: errno.ConnRefused}
		}), source, testkit.Tries(3, time.Second))
		require.Error(t, testkit.OpCreate.Do(t.Context(), c))
		require.Len(t, kept, 3)
		for i, h := range kept {
			require.Equal(t, fmt.Sprintf("Bearer token-%d", i+1), h.Get("Authorization"))
		}
	})
}

// Every request body is sent with its length, at every attempt.
func TestBodiesHaveALength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("POST", svctest.RouteAny, svctest.RateLimited("1"))
		c := srv.Client()
		_, err := c.Files.Register(t.Context(), svc.RegisterFileRequest{FileName: "a"})
		require.NoError(t, err)
		_, err = c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "b", Body: strings.NewReader("")})
		require.NoError(t, err)
		requests := srv.Requests()
		require.Len(t, requests, 4)
		for _, r := range requests {
			require.Equal(t, r.BodySize, r.ContentLength, "%s %s", r.Method, r.Route)
			require.Empty(t, r.TransferEncoding)
			require.Equal(t, r.Method == "POST", r.BodySize > 0)
		}
	})
}

// Only the statuses from 200 to 299 are success.
func TestWhatIsSuccess(t *testing.T) {
	for status, want := range map[int]bool{200: true, 206: true, 299: true, 300: false, 304: false, 400: false} {
		err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: status, Body: testkit.ServiceJSON}).Client(testkit.Tries(1, 1)))
		require.Equal(t, want, err == nil, "%d: %v", status, err)
	}
}

// A redirect whose URL contains a user and a password does not change the Authorization
// header.
func TestRedirectBringsNoUserAlong(t *testing.T) {
	for name, call := range map[string]func(c *svc.Client) error{
		"public": func(c *svc.Client) error { _, err := c.Files.ListPublic(t.Context()); return err },
		"own":    func(c *svc.Client) error { _, err := c.Files.List(t.Context()); return err },
	} {
		s := testkit.Play(t, testkit.Reply{Status: 307, Header: map[string]string{"Location": "https://u:p@api.test/v1/there"}}, testkit.Reply{Status: 200, Body: "[]"})
		require.NoError(t, call(s.Client()))
		for _, r := range s.Seen() {
			require.Equal(t, map[string]string{"public": "", "own": "Bearer " + testkit.Token}[name], r.Header.Get("Authorization"), name)
		}
	}
}

// A create that is still waiting for a connection has sent nothing. So Deploy does not
// wait for its outcome when ctx ends.
func TestDeployWithoutAConnectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{}) // net/http continues to dial when nobody waits any more
		defer close(over)
		never := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			<-over
			return nil, net.ErrClosed
		}}
		start := time.Now()
		_, err := testkit.ClientOn(t, never).InferenceServices.Deploy(testkit.CancelAfter(t, time.Second, nil), testkit.Demo, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Cookies of the service are not sent to storage, and cookies of storage are not sent to
// the service.
func TestCookiesStayWithTheService(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s := testkit.Play(t,
		testkit.Reply{Status: 200, Body: testkit.ServiceJSON, Header: map[string]string{"Set-Cookie": "own=1"}},
		testkit.Reply{Status: 200, Body: "x", Header: map[string]string{"Set-Cookie": "storage=1"}},
		testkit.Reply{Status: 200, Body: "[]", Header: map[string]string{"Set-Cookie": "public=1"}},
		testkit.Reply{Status: 200, Body: testkit.ServiceJSON})
	c := testkit.ClientOn(t, s, svc.WithHTTPClient(&http.Client{Transport: s, Jar: jar}))
	require.NoError(t, testkit.OpGet.Do(t.Context(), c))
	_, err = c.Files.DownloadURL(t.Context(), "https://api.test/storage/a?X-Amz-Signature=x", io.Discard, nil)
	require.NoError(t, err)
	_, err = c.Files.ListPublic(t.Context())
	require.NoError(t, err)
	require.NoError(t, testkit.OpGet.Do(t.Context(), c))
	var sent []string
	for _, r := range s.Seen() {
		sent = append(sent, r.Header.Get("Cookie"))
	}
	require.Equal(t, []string{"", "", "", "own=1"}, sent)
}
