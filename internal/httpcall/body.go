package httpcall

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// maxReplays is how often net/http may repeat a request within one attempt. net/http itself
// has no limit when a connection fails in certain ways.
const maxReplays = 3

var errReplays = fmt.Errorf("the connection failed more than %d times within one attempt", maxReplays)

// attach gives the request its body, from the start. The timer, if there is one,
// stops while the source is read.
//
// A request that must not be repeated gets a body that cannot be read again, even if the body
// is empty. Otherwise net/http might repeat the request.
func (x *exchange) attach(req *http.Request, g *gate, timer *time.Timer) (err error) {
	call := x.call
	switch {
	case call.Source != nil && call.Length > 0:
		req.ContentLength = call.Length
		replays := 0
		req.GetBody = func() (io.ReadCloser, error) {
			if replays++; replays > maxReplays {
				return nil, errReplays
			}
			body, err := call.Source()
			if err != nil {
				return nil, err
			}
			return &gated{body, g, timer, call.Idle}, nil
		}
		req.Body, err = req.GetBody()
	case call.Source != nil:
		req.Body = http.NoBody // net/http then sends "Content-Length: 0"
	case call.Once || len(call.Body) > 0:
		req.ContentLength = int64(len(call.Body))
		open := func() (io.ReadCloser, error) {
			return &gated{ReadCloser: io.NopCloser(bytes.NewReader(call.Body)), gate: g}, nil
		}
		if req.Body, _ = open(); !call.Once {
			req.GetBody = open
		}
	}
	return err
}

// gate stands between a request body and the connection. It knows whether the body was ever
// read. After the gate is sealed, nothing can be read any more.
type gate struct{ state atomic.Int32 }

const (
	gateRead   = 1
	gateSealed = 2
)

// seal closes the gate, and reports whether nothing was read before that.
func (g *gate) seal() bool {
	return g.state.CompareAndSwap(0, gateSealed) || g.state.Load() == gateSealed
}

func (g *gate) open() bool {
	return g.state.CompareAndSwap(0, gateRead) || g.state.Load() == gateRead
}

// gated is a request body that can be read until its gate is sealed. Its timer, if there is
// one, stops while the source is read.
type gated struct {
	io.ReadCloser
	gate  *gate
	timer *time.Timer
	idle  time.Duration
}

func (b *gated) Read(p []byte) (int, error) {
	if !b.gate.open() {
		return 0, errSealed
	}
	if b.timer != nil {
		b.timer.Stop()
		defer b.timer.Reset(b.idle)
	}
	return b.ReadCloser.Read(p)
}

// judge says what a failed attempt means for the service. It seals the body first. If the body
// was read, it may have been sent, whatever the error says, since a transport may have tried
// twice. The exception is an HTTP/2 server that refused the request.
func (x *exchange) judge(a attempt, g *gate) outcome {
	unread := g.seal()
	switch {
	case a.broken != 0: // a part of a response arrived
		return lost
	case unread && x.proof(): // a mock may report a lost response without reading the body, net/http does not
		return notSent
	case unread && neverSent(a.err):
		return notSent
	case x.direct() && x.caller.wrapped == nil && errors.Is(a.err, errRefused):
		return notSent
	}
	return lost
}

// proof reports whether a body that was not read is proof that nothing was sent.
func (x *exchange) proof() bool {
	hasBody := len(x.call.Body) > 0 || x.call.Source != nil && x.call.Length > 0
	return x.direct() && (x.call.Once || hasBody)
}

// direct reports whether requests are sent by net/http itself.
func (x *exchange) direct() bool {
	_, ok := x.caller.base(x.call).(*http.Transport)
	return ok
}
