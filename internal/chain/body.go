package chain

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// maxReplays is how often net/http may begin anew within one attempt. It does so
// by itself when a connection fails in certain ways, without a limit of its own.
const maxReplays = 3

var (
	errReplays = fmt.Errorf("the connection failed %d times within one attempt", maxReplays)
	errNoWay   = errors.New("the connection failed, and the request must not be sent twice")
)

// attach gives the request its body, from the start. The timer, if there is one,
// stands while the source is read.
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
			return &gated{body, body, g, timer, call.Idle}, nil
		}
		req.Body, err = req.GetBody()
	case len(call.Body) > 0:
		req.ContentLength = int64(len(call.Body))
		open := func() (io.ReadCloser, error) {
			return &gated{Reader: bytes.NewReader(call.Body), gate: g}, nil
		}
		if req.Body, _ = open(); call.Once != nil {
			call.Once(x, req, g, open)
		} else {
			req.GetBody = open
		}
	case call.Source != nil:
		req.Body = http.NoBody // announced as a length of 0
	case call.Once != nil:
		call.Once(x, req, g, nil)
	}
	return err
}

// OnceFunc is what [Once] is.
type OnceFunc func(x *exchange, req *http.Request, g *gate, open func() (io.ReadCloser, error))

// Once is for a call that must not be repeated when it may have taken effect.
//
// Over HTTP/1 it lets net/http begin anew when nothing was written, because the
// connection had been closed while it was idle: the body is not read before the
// headers are out. Over HTTP/2 net/http would repeat what a server may have carried
// out, so there is no second body there: see turnedDown. Nor is there one for
// anybody when the first has been read.
func Once(x *exchange, req *http.Request, g *gate, open func() (io.ReadCloser, error)) {
	if open == nil {
		headersOnce(req, g)
		return
	}
	if !x.chain.http1.Load() {
		return // there is no connection yet, or it speaks HTTP/2
	}
	req.GetBody = func() (io.ReadCloser, error) {
		if !g.untouched() {
			return nil, errNoWay
		}
		return open()
	}
}

// headersOnce does the same for a request without a body, which net/http repeats
// without asking: its headers are what counts as read, and over HTTP/2 nothing
// goes out after them.
func headersOnce(req *http.Request, g *gate) {
	var http2, out atomic.Bool
	ctx, cancel := context.WithCancelCause(req.Context())
	trace := httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if http2.Load() && out.Load() {
				cancel(errNoWay)
			}
			http2.Store(speaks2(info.Conn))
		},
		WroteHeaders: func() {
			out.Store(true)
			g.open()
		},
	}
	*req = *req.WithContext(httptrace.WithClientTrace(ctx, &trace))
}

func speaks2(c net.Conn) bool {
	s, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	return ok && s.ConnectionState().NegotiatedProtocol == "h2"
}

// gate stands between a request body and the connection. It knows whether the
// body was ever read, and once sealed lets no byte through any more.
type gate struct{ state atomic.Int32 }

const (
	gateRead   = 1
	gateSealed = 2
)

// seal closes the gate and reports whether that was in time: nobody has read.
func (g *gate) seal() bool {
	return g.state.CompareAndSwap(0, gateSealed) || g.state.Load() == gateSealed
}

// untouched reports whether nobody has read, and somebody still may.
func (g *gate) untouched() bool { return g.state.Load() == 0 }

func (g *gate) open() bool {
	return g.state.CompareAndSwap(0, gateRead) || g.state.Load() == gateRead
}

// gated is a request body behind a gate. Its clock, if it has one, stands while
// the source is read.
type gated struct {
	io.Reader
	io.Closer
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
	return b.Reader.Read(p)
}

func (b *gated) Close() error {
	if b.Closer != nil {
		return b.Closer.Close()
	}
	return nil
}
