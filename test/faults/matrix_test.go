// Package faults_test holds what becomes of a call when something fails on its way: every
// operation under every fault, retries and their delays, redirects, unknown outcomes.
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
	"example.com/svc/internal/testkit"
)

// The matrix holds every operation to the promises of the package comment under
// every fault: so many attempts, this error, this effect at the service, in
// bounded time, with nothing left open and no secret in any text. What to expect
// comes from the table of rules below, which knows the promises and not the code.

// matrixVerdict is what a call makes of a fault.
type matrixVerdict int

const (
	again   matrixVerdict = iota // it is tried again
	final                        // it is the end, with the error as it is
	unknown                      // it is the end, and whether the call took effect is not known
	success                      // it is none
)

// matrixRules says what follows from a fault for a call that can be repeated, and
// for a create.
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

// verdict applies the rules.
func (f *matrixFault) verdict(class matrixClass) matrixVerdict {
	switch {
	case class == matrixCreate:
		return matrixRules[f.kind][1]
	case class == matrixRemove && f.kind == matrixNoRecord: // nothing is promised but the status
		return success
	case class == matrixPut && f.status == 200, class == matrixPut && f.kind == matrixHeaders: // likewise
		return success
	case class == matrixDownload && f.status == 200: // whatever comes is the contents
		return success
	}
	return matrixRules[f.kind][0]
}

// matrixWant is what a cell must show.
type matrixWant struct {
	met     int // requests that came to where the fault is
	ok      bool
	unknown bool
	effect  int
	is      []error
	isNot   []error
	status  int // of an svc.Error

	replaced bool // what a download gets is not the contents of the file
	busy     bool // the clock is real: an attempt may run out of time before it gets anywhere
}

// Limits of the client in a cell, and what follows from them.
var matrixPolicy = svc.RetryPolicy{MaxAttempts: 4, MinDelay: 100 * time.Millisecond, MaxDelay: 4 * time.Second}

const (
	matrixTimeout = 10 * time.Second
	matrixToken   = "tok-5ecre7-0123456789"
)

// expect says what the rules make of a fault that is met always, or once.
func (o *matrixOp) expect(f *matrixFault, always bool, attempts int) matrixWant {
	w := matrixWant{met: 1, isNot: []error{context.Canceled, context.DeadlineExceeded}}
	v := f.verdict(o.class)
	faults := 1
	switch {
	case v == success:
		w.ok = true
	case v == again && always && o.class == matrixRemove && f.relays:
		w.met, w.ok = 2, true // the second answer breaks off too, but its status says "not found"
	case v == again && always:
		w.met, faults = attempts, attempts
	case v == again:
		w.met, w.ok = 2, true
	}
	switch {
	case o.effect == nil:
	case o.class == matrixCreate: // each request counts
		w.effect = faults*testkit.One(f.acts) + testkit.One(w.ok)
	default: // of one call, however often it is sent
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
	if f.stalls && f.status == 0 {
		w.is = append(w.is, svc.ErrTimeout)
	}
	if f.kind == matrixTooLarge {
		w.is = append(w.is, svc.ErrTooLarge)
	}
	if f.status >= 300 {
		w.status = f.status
		for sentinel, statuses := range map[error][]int{
			svc.ErrUnauthorized: {401}, svc.ErrForbidden: {403}, svc.ErrNotFound: {404, 410}, svc.ErrConflict: {409},
			svc.ErrRateLimited: {429}, svc.ErrServer: {500, 501, 502, 503, 504, 505, 507, 511, 520, 599},
		} {
			for _, s := range statuses {
				if s == f.status {
					w.is = append(w.is, sentinel)
				}
			}
		}
	}
	return w
}

// needless says of cells that they would show nothing.
func (o *matrixOp) needless(f *matrixFault, always bool) bool {
	v := f.verdict(o.class)
	return f.only != nil && !slices.Contains(f.only, o.name) ||
		always && v != again || // the same as once
		o.transfer() && f.kind == matrixTooLarge || // transfers have no limit
		o.transfer() && o.second() && f.status == 410 && !always || // the link has expired: see TestC41_WordsOfStorage
		o.class == matrixDownload && f.kind == matrixHeaders && always && !f.stalls // see TestMatrixDownloadInPieces
}

func TestMatrix(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for j := range matrixFaults {
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

// checkTime holds the times between attempts to the policy.
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
		bound = time.Second // a success is not kept waiting for the rest of its answer
	}
	require.LessOrEqual(t, elapsed, bound, "the time of the whole call")
}

// check holds the outcome of a cell to what is wanted.
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
			require.Zero(t, value, "a result beside an error")
		}
		require.Equal(t, matrixContents[:min(len(matrixContents), c.written.Len())], c.written.String(), "what was written")
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
		require.Equal(t, w.effect, c.op.effect(c), "what took effect")
	}
	if !w.busy {
		require.Len(t, c.met, w.met, "requests")
		require.Equal(t, w.met, c.attempts(), "attempts that the hook was told of")
		switch transport := new(svc.TransportError); {
		case failure != nil:
			require.Equal(t, w.met, failure.Attempts)
		case errors.As(err, &transport):
			require.Equal(t, w.met, transport.Attempts)
		}
	}
	if strings.HasPrefix(c.op.name, "Do ") {
		value = nil // the caller's own, as it came
	}
	c.checkSecrets(value, err)
}

// A download whose answers keep breaking off goes on where it stopped as long as
// each brings something.
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
					// The last piece is whole in spite of what comes after it.
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

// piece lets most bytes of what is asked for through, if it is asked for from
// where the last piece ended.
func (c *matrixCell) piece(req *http.Request, from, most int, cause error) (*http.Response, error) {
	if from > 0 {
		require.Equal(c.t, fmt.Sprintf("bytes=%d-", from), req.Header.Get("Range"))
		require.NotEmpty(c.t, req.Header.Get("If-Range"))
	}
	return breakOff(c, req, func(n int) int { return min(n, most) }, cause)
}
