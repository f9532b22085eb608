package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"example.com/svc/internal/cause"
)

// A flight is one request in progress: its time limit, and the gate between its body and the
// connection. The gate records whether the body was read. Once it is sealed, the body can no
// longer be read.
type flight struct {
	x    *exchange
	ctx  context.Context //nolint:containedctx // the context of the request, which lives as long as the flight
	stop func()          // ends ctx
	idle *time.Timer     // ends ctx when no byte has moved for Call.Idle; nil if there is no such limit
	gate atomic.Int32
}

const (
	gateRead   = 1
	gateSealed = 2
)

// limit sets the time limit. A transfer ends when no byte has moved for a time; the limit is
// suspended while the caller's reader or writer is called. Any other request ends at the
// deadline. When the caller's context ends, the request ends at once. The exception is a call
// with a Linger whose request may have been sent: it then waits for the response for that time.
func (f *flight) limit(parent context.Context, deadline time.Time) {
	x, call := f.x, f.x.call
	switch {
	case call.Transfer:
		ctx, cancel := context.WithCancelCause(parent)
		f.ctx, f.stop = ctx, func() { cancel(nil) }
		if call.Idle > 0 {
			f.idle = time.AfterFunc(call.Idle, func() { cancel(&TimeoutError{After: call.Idle, Idle: true}) })
			f.stop = func() { f.idle.Stop(); cancel(nil) }
		}
	case call.Linger <= 0:
		f.ctx, f.stop = context.WithDeadlineCause(parent, deadline, x.late)
	default:
		base, cancel := context.WithCancel(context.WithoutCancel(parent))
		release := context.AfterFunc(parent, func() {
			if x.proof && f.seal() {
				cancel()
				return
			}
			timer := time.AfterFunc(call.Linger, cancel)
			context.AfterFunc(base, func() { timer.Stop() })
		})
		ctx, done := context.WithDeadlineCause(base, deadline, x.late)
		f.ctx, f.stop = ctx, func() { release(); done(); cancel() }
	}
}

// maxReplays is the maximum number of times that net/http may repeat a request within one
// attempt. net/http itself has no limit when a connection fails in certain ways.
const maxReplays = 3

var errReplays = fmt.Errorf("the connection failed more than %d times within one attempt", maxReplays)

// attach gives the request its body, from the start.
//
// A request that must not be repeated gets a body that cannot be read again, even if the body
// is empty. Otherwise net/http might repeat the request.
func (f *flight) attach(req *http.Request) (err error) {
	call := f.x.call
	size := max(call.Length, int64(len(call.Body)))
	if size == 0 && !call.Once {
		if call.Source != nil {
			req.Body = http.NoBody // net/http then sends "Content-Length: 0"
		}
		return nil
	}
	open := call.Source
	if open == nil {
		open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(call.Body)), nil }
	}
	replays := 0
	get := func() (io.ReadCloser, error) {
		if replays++; replays > maxReplays {
			return nil, errReplays
		}
		body, err := open()
		if err != nil {
			return nil, &LocalError{"opening the body", err}
		}
		return &gated{body, f}, nil
	}
	req.ContentLength = size
	if req.Body, err = get(); !call.Once {
		req.GetBody = get
	}
	return err
}

// gated is a request body that can be read until the gate of its flight is sealed. The idle limit
// is suspended while the source is read.
type gated struct {
	io.ReadCloser
	f *flight
}

func (b *gated) Read(p []byte) (int, error) {
	if !b.f.gate.CompareAndSwap(0, gateRead) && b.f.gate.Load() == gateSealed {
		return 0, errSealed
	}
	if b.f.idle != nil {
		b.f.idle.Stop()
		defer b.f.idle.Reset(b.f.x.call.Idle)
	}
	return b.ReadCloser.Read(p)
}

// seal closes the gate, and reports whether nothing was read before that.
func (f *flight) seal() bool {
	return f.gate.CompareAndSwap(0, gateSealed) || f.gate.Load() == gateSealed
}

// failed ends a flight without a response, and returns the outcome. It seals the body first. If
// the body was read, it may have been sent, whatever the error is, since a transport may have
// tried twice. The exception is an HTTP/2 server that refused the request.
func (f *flight) failed(err error) attempt {
	x, unread := f.x, f.seal()
	a := attempt{err: f.reason(err), outcome: lost}
	f.stop() // only after reason has read ctx, since stop ends ctx
	switch {
	case unread && x.proof: // a mock may report a lost response without reading the body, net/http does not
		a.outcome = notSent
	case unread && neverSent(a.err):
		a.outcome = notSent
	case x.Direct && x.caller.wrapped == nil && errors.Is(a.err, errRefused):
		a.outcome = notSent
	}
	a.local = cause.Has[*LocalError](a.err)
	return a
}

// reason returns why a flight failed: why its context ended, or else err without the URL of
// the request.
func (f *flight) reason(err error) error {
	if f.x.ctx.Err() != nil {
		return cause.Of(f.x.ctx)
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	if local, ok := errors.AsType[*LocalError](err); ok {
		return local
	}
	if wrapped, ok := err.(*url.Error); ok { //nolint:errorlint // only the outermost
		err = wrapped.Err
	}
	if f.x.Direct {
		return explained(err)
	}
	return err
}

// stream is the body of a download's response. The idle limit applies only during a Read.
type stream struct {
	io.ReadCloser
	f *flight
}

func (b *stream) Read(p []byte) (int, error) {
	if b.f.idle != nil {
		b.f.idle.Reset(b.f.x.call.Idle)
		defer b.f.idle.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.f.reason(err)
	}
	return n, err
}

func (b *stream) Close() error {
	err := b.ReadCloser.Close()
	b.f.stop()
	return err
}
