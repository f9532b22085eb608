package faults_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// followed reports whether the call succeeds after the redirect. This holds for an API
// read within its origin, for an upload if the redirect keeps the method, and for every
// download.
func (o *matrixOp) followed(status int, elsewhere bool) bool {
	switch o.class {
	case matrixRead:
		return !elsewhere
	case matrixPut:
		return status == 307 || status == 308
	case matrixDownload:
		return true
	}
	return false
}

// matrixPlace is the target of a redirect. Its start is the URL without path and query.
type matrixPlace struct {
	name, start string
	elsewhere   bool // the target is not the origin of the call
	nowhere     bool // the redirect cannot be followed
}

var matrixPlaces = []matrixPlace{
	{name: "same origin", start: "https://svc.test"},
	{name: "relative"},
	{name: "with a default port", start: "https://SVC.test:443"},
	{name: "other host", start: "https://other.test", elsewhere: true},
	{name: "other port", start: "https://svc.test:8443", elsewhere: true},
	{name: "subdomain", start: "https://x.svc.test", elsewhere: true},
	{name: "with a password", start: "https://user:" + matrixToken + "@other.test", elsewhere: true},
	{name: "without TLS", start: "http://svc.test", nowhere: true},
	{name: "other scheme", start: "ftp://svc.test", nowhere: true},
	{name: "not an address", start: "https://[svc.test", nowhere: true},
}

func TestMatrixRedirect(t *testing.T) {
	sample := testkit.Shorter(1, 4) // every operation still meets a fourth of the redirects, and every redirect a fourth of the operations
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			n := i
			for _, status := range []int{301, 302, 303, 307, 308} {
				for _, place := range matrixPlaces {
					if n++; n%sample != 0 {
						continue
					}
					t.Run(fmt.Sprintf("%d/%s", status, place.name), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { matrixRedirected(t, op, status, place) })
					})
				}
			}
		})
	}
}

func matrixRedirected(t *testing.T, op *matrixOp, status int, place matrixPlace) {
	c := newMatrixCell(t, op)
	c.meet = func(_ int, req *http.Request) (*http.Response, error) {
		matrixSend(req)
		to := place.start + "/moved" + req.URL.RequestURI()
		resp := c.answer(req, status, "text/html", `<a href="`+to+`">moved</a>`)
		resp.Header.Set("Location", to)
		return resp, nil
	}
	w := matrixWant{met: 1, ok: !place.nowhere && op.followed(status, place.elsewhere)}
	if !w.ok {
		w.status, w.is, w.isNot = status, nil, []error{svc.ErrOutcomeUnknown}
		if op.class == matrixCreate && status <= 303 { // the create may have taken effect: such a redirect may point to the new record
			w.unknown, w.is, w.isNot = true, append(w.is, svc.ErrOutcomeUnknown), nil
		}
	} else if op.effect != nil {
		w.effect = 1
	}
	value, err := op.run(t.Context(), c)
	c.check(w, value, err)

	require.Len(t, c.moved, testkit.One(w.ok), "requests to the target of the redirect")
	for _, req := range c.moved {
		require.Empty(t, req.Header["Referer"])
		method := op.at[:len(req.Method)]
		require.Equal(t, method, req.Method)
		if op.transfer() {
			require.Empty(t, req.Header["Authorization"], "storage must not get the token")
		}
	}
}

// A redirect loop counts as one attempt. It ends after at most ten redirects, without
// delays.
func TestMatrixRedirectLoop(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		const status = 307 // every call that follows redirects follows this status
		if !op.followed(status, false) {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMatrixCell(t, op)
				c.meet = func(_ int, req *http.Request) (*http.Response, error) {
					matrixSend(req)
					resp := c.answer(req, status, "text/plain", "")
					resp.Header.Set("Location", req.URL.RequestURI())
					return resp, nil
				}
				value, err := op.run(t.Context(), c)
				require.Error(t, err)
				if op.class != matrixDownload {
					require.Zero(t, value)
				}
				testkit.RequireRedirect(t, err)
				require.LessOrEqual(t, len(c.met), 11)
				require.Greater(t, len(c.met), 2)
				require.Zero(t, c.met[len(c.met)-1].Sub(c.met[0]))
				var failure *svc.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, 1, failure.Attempts)
				c.finish()
				c.checkSecrets(value, err)
			})
		})
	}
}

// A redirect leads to a response with an error. The call retries from the original URL,
// and finally returns that error.
func TestMatrixRedirectToFailure(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		if !op.followed(307, false) {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMatrixCell(t, op)
				hops := 0
				c.meet = func(n int, req *http.Request) (*http.Response, error) {
					matrixSend(req)
					if n%2 == 1 {
						resp := c.answer(req, 307, "text/plain", "")
						resp.Header.Set("Location", req.URL.RequestURI())
						hops++
						return resp, nil
					}
					return c.answer(req, 503, "text/plain", "busy"), nil
				}
				value, err := op.run(t.Context(), c)
				c.finish()
				c.checkSecrets(value, err)
				var failure *svc.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, 503, failure.StatusCode)
				require.Equal(t, matrixPolicy.MaxAttempts, failure.Attempts)
				require.Equal(t, matrixPolicy.MaxAttempts, hops)
				require.Len(t, c.met, 2*matrixPolicy.MaxAttempts)
			})
		})
	}
}
