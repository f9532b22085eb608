// Package faults_test tests what a call does when something fails on its way: every
// operation with every fault, retries and their delays, redirects, unknown outcomes.
package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/testkit"
)

// The matrix tests every operation with every fault. Each pair of an operation and a
// fault is a cell. A cell checks the number of attempts, the error, the effect at the
// service and the time of the call; nothing may stay open, and no text may show a secret.
// The expected values come from the table of rules below. The table states the promises
// of the package documentation, independent of the code.

// matrixVerdict is what a call must do after a fault.
type matrixVerdict int

const (
	again   matrixVerdict = iota // the call is retried
	final                        // the call ends with the error of the fault
	unknown                      // the call ends, and its outcome is unknown
	success                      // the fault does not make the call fail
)

// matrixRules has two verdicts for each kind of fault: for a call that may be repeated,
// and for a create.
var matrixRules = map[matrixKind][2]matrixVerdict{
	matrixUnsent:          {again, again},
	matrixHopeless:        {final, final},
	matrixLost:            {again, unknown},
	matrixLate:            {again, unknown},
	matrixLimited:         {again, again},
	matrixOverload:        {again, unknown},
	matrixRefusal:         {final, final},
	matrixDoubt:           {final, unknown},
	matrixTooLong:         {final, final},
	matrixTooLongOverload: {final, unknown},
	matrixJunk:            {final, unknown},
	matrixNoRecord:        {final, unknown},
	matrixTooLarge:        {final, unknown},
	matrixHeaders:         {again, unknown},
}

// verdict returns the verdict for a class of calls.
func (f *matrixFault) verdict(class matrixClass) matrixVerdict {
	switch {
	case class == matrixCreate:
		return matrixRules[f.kind][1]
	case class == matrixRemove && f.kind == matrixNoRecord: // a delete needs only the status
		return success
	case class == matrixPut && f.status == 200, class == matrixPut && f.kind == matrixHeaders: // an upload needs only the status
		return success
	case class == matrixDownload && f.status == 200: // any body counts as the contents
		return success
	}
	return matrixRules[f.kind][0]
}

// matrixWant is the expected result of a cell.
type matrixWant struct {
	met     int // number of requests that met the fault's route
	ok      bool
	unknown bool
	effect  int
	is      []error
	isNot   []error
	status  int // status of the svc.Error

	replaced bool // a download that succeeds has other contents than the file
	busy     bool // real time is used, so an attempt may time out before it sends anything
}

// The retry policy and the timeout of the client in a cell.
var matrixPolicy = svc.RetryPolicy{MaxAttempts: 4, MinDelay: 100 * time.Millisecond, MaxDelay: 4 * time.Second}

const (
	matrixTimeout = 10 * time.Second
	matrixToken   = "tok-5ecre7-0123456789"
)

// expect returns the result that the rules require if the fault happens always, or once.
func (o *matrixOp) expect(f *matrixFault, always bool, attempts int) matrixWant {
	w := matrixWant{met: 1, isNot: []error{context.Canceled, context.DeadlineExceeded}}
	v := f.verdict(o.class)
	faults := 1
	switch {
	case v == success:
		w.ok = true
	case v == again && always && o.class == matrixRemove && f.relays:
		w.met, w.ok = 2, true // the second response is cut off as well, but its status says "not found"
	case v == again && always:
		w.met, faults = attempts, attempts
	case v == again:
		w.met, w.ok = 2, true
	}
	switch {
	case o.effect == nil:
	case o.class == matrixCreate: // every request that takes effect counts
		w.effect = faults*testkit.One(f.acts) + testkit.One(w.ok)
	default: // one call has at most one effect, however often it is sent
		w.effect = testkit.One(f.acts || w.ok && v == again)
	}
	if w.ok {
		w.replaced = v == success
		return w
	}
	if w.unknown = v == unknown; w.unknown {
		w.is = append(w.is, svc.ErrOutcomeUnknown)
	} else {
		w.isNot = append(w.isNot, svc.ErrOutcomeUnknown)
	}
	if f.cause != nil {
		w.is = append(w.is, f.cause)
	}
	sentinel := func(err error) { // of an outcome that is not known, the error has no other sentinel
		if w.unknown {
			w.isNot = append(w.isNot, err)
		} else {
			w.is = append(w.is, err)
		}
	}
	if f.stalls && f.status == 0 {
		sentinel(svc.ErrTimeout)
	}
	if f.kind == matrixTooLarge {
		w.is = append(w.is, httpcall.ErrTooLarge)
	}
	if f.status >= 300 {
		w.status = f.status
		for kind, statuses := range map[error][]int{
			svc.ErrUnauthorized: {401}, svc.ErrForbidden: {403}, svc.ErrNotFound: {404, 410}, svc.ErrConflict: {409},
			svc.ErrRateLimited: {429}, svc.ErrServer: {500, 501, 502, 503, 504, 505, 507, 511, 520, 599},
		} {
			for _, s := range statuses {
				if s == f.status {
					sentinel(kind)
				}
			}
		}
	}
	return w
}

// needless reports whether a cell would test nothing new.
func (o *matrixOp) needless(f *matrixFault, always bool) bool {
	v := f.verdict(o.class)
	return f.only != nil && !slices.Contains(f.only, o.name) ||
		always && v != again || // without a retry, "always" is the same as "once"
		o.transfer() && f.kind == matrixTooLarge || // transfers have no size limit
		o.transfer() && o.second() && f.status == 410 && !always || // a 410 means that the URL expired: see TestWordsOfStorage_C41
		o.class == matrixDownload && f.kind == matrixHeaders && always && !f.stalls // see TestMatrixDownloadInPieces
}

func TestMatrix(t *testing.T) {
	sample := testkit.Shorter(1, 8) // every operation still meets an eighth of the faults, and every fault an eighth of the operations
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for j := i % sample; j < len(matrixFaults); j += sample {
				f := &matrixFaults[j]
				for _, always := range []bool{false, true} {
					if op.needless(f, always) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s", f.name, map[bool]string{true: "always", false: "once"}[always]), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							c := newMatrixCell(t, op)
							c.meet = func(n int, req *http.Request) (*http.Response, error) {
								if n == 1 || always {
									return f.do(c, req)
								}
								return c.pass(req)
							}
							start := time.Now()
							value, err := op.run(t.Context(), c)
							c.check(op.expect(f, always, matrixPolicy.MaxAttempts), value, err)
							c.checkTime(f, time.Since(start))
						})
					})
				}
			}
		})
	}
}

// checkTime checks the delays between attempts against the policy.
func (c *matrixCell) checkTime(f *matrixFault, elapsed time.Duration) {
	t := c.t
	limit := time.Duration(0)
	if f.stalls {
		limit = matrixTimeout
	}
	bound := limit
	for i := 1; i < len(c.met); i++ {
		low, high := matrixPolicy.MinDelay, min(matrixPolicy.MinDelay<<i, matrixPolicy.MaxDelay)
		if f.wait > 0 {
			low, high = f.wait, f.most
		}
		gap := c.met[i].Sub(c.met[i-1]) - limit
		require.GreaterOrEqual(t, gap, low, "the time before attempt %d", i+1)
		require.LessOrEqual(t, gap, high, "the time before attempt %d", i+1)
		bound += gap + limit
	}
	if f.stalls && f.kind == matrixHeaders && c.op.class == matrixPut {
		bound = time.Second // a successful upload does not wait for the rest of the response
	}
	require.LessOrEqual(t, elapsed, bound, "the time of the whole call")
}

// check compares the result of a cell with the expected one.
func (c *matrixCell) check(w matrixWant, value any, err error) {
	t := c.t
	t.Helper()
	c.finish()
	var failure *svc.Error
	var lost *svc.OutcomeUnknownError
	if w.ok {
		require.NoError(t, err)
		if c.op.class != matrixRemove && c.op.class != matrixDownload {
			require.NotZero(t, value)
		}
		if c.op.class == matrixDownload {
			require.EqualValues(t, c.written.Len(), value, "the number of bytes")
			if !w.replaced {
				require.Equal(t, matrixContents, c.written.String())
			}
		}
	} else {
		require.Error(t, err)
		if c.op.class != matrixDownload {
			require.Zero(t, value, "a failed call returned a result")
		}
		require.Equal(t, matrixContents[:min(len(matrixContents), c.written.Len())], c.written.String(), "the contents written so far")
		for _, target := range w.is {
			require.ErrorIs(t, err, target)
		}
		for _, target := range w.isNot {
			require.NotErrorIs(t, err, target)
		}
		if w.status != 0 {
			require.ErrorAs(t, err, &failure)
			require.Equal(t, w.status, failure.StatusCode)
		}
		if w.unknown {
			require.ErrorAs(t, err, &lost)
			require.Contains(t, []string{"", "matrix-made"}, lost.Name)
		}
	}
	if c.op.effect != nil {
		require.Equal(t, w.effect, c.op.effect(c), "number of effects at the service")
	}
	if !w.busy {
		require.Len(t, c.met, w.met, "requests")
		require.Equal(t, w.met, c.attempts(), "attempts that the hook reported")
		switch transport := new(svc.TransportError); {
		case failure != nil:
			require.Equal(t, w.met, failure.Attempts)
		case errors.As(err, &transport):
			require.Equal(t, w.met, transport.Attempts)
		}
	}
	if strings.HasPrefix(c.op.name, "Do ") {
		value = nil // Do returns the response unchanged, secrets included
	}
	c.checkSecrets(value, err)
}

// The responses of a download are cut off again and again. The download continues where
// it stopped, as long as each response brings new bytes.
func TestMatrixDownloadInPieces(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		if op.class != matrixDownload {
			continue
		}
		for name, cause := range map[string]error{"cut": io.ErrUnexpectedEOF, "reset": readError(errors.New("connection reset"))} {
			t.Run(op.name+"/"+name+"/to the end", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newMatrixCell(t, op)
					c.meet = func(n int, req *http.Request) (*http.Response, error) {
						return c.piece(req, 5*(n-1), 5, cause)
					}
					value, err := op.run(t.Context(), c)
					// The last response is cut off only after all its bytes, so it counts
					// as complete.
					c.check(matrixWant{met: (len(matrixContents) + 4) / 5, ok: true}, value, err)
				})
			})
			t.Run(op.name+"/"+name+"/until nothing comes", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newMatrixCell(t, op)
					c.meet = func(n int, req *http.Request) (*http.Response, error) {
						return c.piece(req, min(n-1, 2), testkit.One(n <= 2), cause)
					}
					value, err := op.run(t.Context(), c)
					c.check(matrixWant{met: 1 + matrixPolicy.MaxAttempts, is: []error{svc.ErrTruncated, cause}}, value, err)
					require.Equal(t, 2, c.written.Len())
				})
			})
		}
	}
}

// piece returns at most most bytes of the requested range. It checks that the range
// starts where the last piece ended.
func (c *matrixCell) piece(req *http.Request, from, most int, cause error) (*http.Response, error) {
	if from > 0 {
		require.Equal(c.t, fmt.Sprintf("bytes=%d-", from), req.Header.Get("Range"))
		require.NotEmpty(c.t, req.Header.Get("If-Range"))
	}
	return breakOff(c, req, func(n int) int { return min(n, most) }, cause)
}
