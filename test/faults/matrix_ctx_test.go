package faults_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// matrixEnd is a way in which the caller's context ends during a call.
type matrixEnd struct {
	name string
	ctx  func(context.Context) (context.Context, context.CancelFunc)
	meet func(c *matrixCell, req *http.Request) (*http.Response, error)
	// took is the duration of a call that may be repeated, onceTook that of a create.
	took, onceTook time.Duration
	want, once     matrixWant // want is for a call that may be repeated, once for a create

	promised bool // the response has begun; an upload does not need the rest
}

func cancelAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		if d == 0 {
			cancel()
			return ctx, cancel
		}
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}

func deadlineIn(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

var (
	isCanceled = []error{context.Canceled}
	isDeadline = []error{context.DeadlineExceeded}
	noUnknown  = []error{svc.ErrOutcomeUnknown}
	noContext  = []error{context.Canceled, context.DeadlineExceeded}
	unclear    = []error{svc.ErrOutcomeUnknown}
)

func both(lists ...[]error) (all []error) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// matrixInDelay is a time within the delay before the second attempt: half of the
// shortest delay.
const matrixInDelay = 50 * time.Millisecond

var (
	says503 = matrixSays(503, "application/json", `{"message":"LEAK"}`)
	says429 = matrixSays(429, "application/json", `{"message":"LEAK"}`)
	drops   = matrixFails(takesEffect, io.EOF)
	refuses = matrixFaults[0].do
)

var matrixEnds = []matrixEnd{
	{
		name: "cancelled before the call", ctx: cancelAfter(0), meet: says503,
		want: matrixWant{is: isCanceled, isNot: noUnknown}, once: matrixWant{is: isCanceled, isNot: noUnknown},
	},
	{
		name: "deadline before the call", ctx: deadlineIn(-time.Second), meet: says503,
		want: matrixWant{is: isDeadline, isNot: noUnknown}, once: matrixWant{is: isDeadline, isNot: noUnknown},
	},
	{
		name: "cancelled in flight", ctx: cancelAfter(time.Second), meet: stalls, took: time.Second, onceTook: time.Second,
		want: matrixWant{met: 1, is: isCanceled, isNot: both(noUnknown, []error{svc.ErrTimeout})},
		once: matrixWant{met: 1, is: both(isCanceled, unclear), unknown: true},
	},
	{
		name: "cancelled in the answer", ctx: cancelAfter(matrixInDelay), took: matrixInDelay, onceTook: matrixInDelay, promised: true,
		meet: func(c *matrixCell, req *http.Request) (*http.Response, error) { return breakOff(c, req, none, nil) },
		want: matrixWant{met: 1, is: isCanceled, isNot: noUnknown, effect: 1},
		once: matrixWant{met: 1, is: both(isCanceled, unclear), unknown: true, effect: 1},
	},
	{
		name: "deadline in flight", ctx: deadlineIn(time.Second), meet: stalls, took: time.Second, onceTook: time.Second,
		want: matrixWant{met: 1, is: isDeadline, isNot: both(noUnknown, []error{svc.ErrTimeout})},
		once: matrixWant{met: 1, is: both(isDeadline, unclear), unknown: true},
	},
	{
		name: "cancelled in the delay after 503", ctx: cancelAfter(matrixInDelay), meet: says503, took: matrixInDelay,
		want: matrixWant{met: 1, is: both(isCanceled, []error{svc.ErrServer}), isNot: noUnknown, status: 503},
		once: matrixWant{met: 1, is: unclear, isNot: noContext, unknown: true, status: 503},
	},
	{
		name: "cancelled in the delay after 429", ctx: cancelAfter(matrixInDelay), meet: says429, took: matrixInDelay, onceTook: matrixInDelay,
		want: matrixWant{met: 1, is: both(isCanceled, []error{svc.ErrRateLimited}), isNot: noUnknown, status: 429},
		once: matrixWant{met: 1, is: both(isCanceled, []error{svc.ErrRateLimited}), isNot: noUnknown, status: 429},
	},
	{
		name: "cancelled in the delay after a lost answer", ctx: cancelAfter(matrixInDelay), meet: drops, took: matrixInDelay,
		want: matrixWant{met: 1, is: isCanceled, isNot: noUnknown, effect: 1},
		once: matrixWant{met: 1, is: both(unclear, []error{io.EOF}), isNot: noContext, unknown: true, effect: 1},
	},
	{
		name: "cancelled in the delay after a refused connection", ctx: cancelAfter(matrixInDelay), meet: refuses, took: matrixInDelay, onceTook: matrixInDelay,
		want: matrixWant{met: 1, is: isCanceled, isNot: noUnknown}, once: matrixWant{met: 1, is: isCanceled, isNot: noUnknown},
	},
	{
		name: "deadline in the delay after 503", ctx: deadlineIn(matrixInDelay), meet: says503,
		want: matrixWant{met: 1, is: []error{svc.ErrServer}, isNot: both(noContext, noUnknown), status: 503},
		once: matrixWant{met: 1, is: unclear, isNot: noContext, unknown: true, status: 503},
	},
	{
		name: "deadline in the delay after 429", ctx: deadlineIn(matrixInDelay), meet: says429,
		want: matrixWant{met: 1, is: []error{svc.ErrRateLimited}, isNot: both(noContext, noUnknown), status: 429},
		once: matrixWant{met: 1, is: []error{svc.ErrRateLimited}, isNot: both(noContext, noUnknown), status: 429},
	},
	{
		name: "deadline in the delay after a lost answer", ctx: deadlineIn(matrixInDelay), meet: drops,
		want: matrixWant{met: 1, is: []error{io.EOF}, isNot: both(noContext, noUnknown), effect: 1},
		once: matrixWant{met: 1, is: both(unclear, []error{io.EOF}), isNot: noContext, unknown: true, effect: 1},
	},
	{
		name: "deadline sooner than Retry-After", ctx: deadlineIn(2 * time.Second), meet: matrixRetryAfter(429, func() string { return "3" }),
		want: matrixWant{met: 1, is: []error{svc.ErrRateLimited}, isNot: both(noContext, noUnknown), status: 429},
		once: matrixWant{met: 1, is: []error{svc.ErrRateLimited}, isNot: both(noContext, noUnknown), status: 429},
	},
	{
		name: "cancelled in a long Retry-After", ctx: cancelAfter(time.Second), meet: matrixRetryAfter(429, func() string { return "3" }),
		took: time.Second, onceTook: time.Second,
		want: matrixWant{met: 1, is: both(isCanceled, []error{svc.ErrRateLimited}), isNot: noUnknown, status: 429},
		once: matrixWant{met: 1, is: both(isCanceled, []error{svc.ErrRateLimited}), isNot: noUnknown, status: 429},
	},
}

// A call ends at the moment when its context ends. It ends earlier if the next attempt
// would come after the deadline.
func TestMatrixContext(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			for j := range matrixEnds {
				end := &matrixEnds[j]
				t.Run(end.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newMatrixCell(t, op)
						c.meet = func(_ int, req *http.Request) (*http.Response, error) { return end.meet(c, req) }
						want, took := end.want, end.took
						if op.class == matrixCreate {
							want, took = end.once, end.onceTook
						}
						if op.class == matrixPut && end.promised {
							want = matrixWant{met: 1, ok: true, effect: 1} // an upload needs nothing of the rest of the response
						}
						if op.effect == nil {
							want.effect = 0
						}
						ctx, cancel := end.ctx(t.Context())
						defer cancel()
						start := time.Now()
						value, err := op.run(ctx, c)
						elapsed := time.Since(start)
						c.check(want, value, err)
						require.Equal(t, took, elapsed)
					})
				})
			}
		})
	}
}

// If the service asks for a delay of an hour, the call ends at once, and the error has
// that delay.
func TestMatrixRetryAfterIsTold(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMatrixCell(t, op)
				c.meet = func(_ int, req *http.Request) (*http.Response, error) {
					return matrixRetryAfter(429, func() string { return "3600" })(c, req)
				}
				_, err := op.run(t.Context(), c)
				var failure *svc.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, time.Hour, failure.RetryAfter)
			})
		})
	}
}

// Storage returns the signature of the presigned URL as its request ID. The signature
// must not be visible.
func TestMatrixSecretRequestID(t *testing.T) {
	for i := range matrixOps {
		op := &matrixOps[i]
		if !op.transfer() {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMatrixCell(t, op)
				c.meet = func(_ int, req *http.Request) (*http.Response, error) {
					matrixSend(req)
					resp := c.answer(req, 403, "text/plain", "")
					resp.Header.Set("X-Request-Id", req.URL.Query().Get("X-Amz-Signature"))
					return resp, nil
				}
				value, err := op.run(t.Context(), c)
				c.check(matrixWant{met: 1, status: 403}, value, err)
			})
		})
	}
}
