package chain

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/errbody"
)

// RoundTrip makes one HTTP exchange of a call. It is the transport below the
// retries and the redirects; the request that it gets is a shell, from which a
// fresh one is made, since the last one may still be in a connection's hands.
func (c *Chain) RoundTrip(shell *http.Request) (*http.Response, error) {
	x := shell.Context().(*exchange)
	if shell.Response == nil { // not a redirect's next hop
		x.Attempts++
	}
	x.again = false

	// A retry leaves the headers of the attempt before it alone: they may still be
	// in a connection's hands.
	header := shell.Header
	if x.Attempts > 1 || shell.Response != nil {
		header = maps.Clone(header)
	}
	err := c.admit(x, shell.URL, header)
	if err != nil && shell.Response == nil { // no attempt: what came before stays in hand
		x.Attempts--
		if x.last != nil {
			err = &interrupted{err, x.last}
		}
		x.last, x.local = err, true
		return nil, err
	}
	x.StatusCode, x.Broken, x.Header, x.Body, x.Cut, x.Stream, x.RetryAfter = 0, 0, nil, nil, false, nil, 0
	x.last, x.local = err, err != nil
	if err != nil {
		return nil, err
	}
	var gate gate
	x.dials.Store(0)
	start := time.Now()
	resp, err := c.exchange(x, shell, header, &gate)
	if err != nil {
		x.last = err
		x.local = x.call.Source != nil && cause.Has[*LocalError](err) // its source failed
		x.Lost = x.Lost || x.Broken != 0 || !x.unsent(err, &gate)
	} else {
		x.Lost = x.Lost || x.StatusCode == http.StatusBadGateway || x.StatusCode == http.StatusGatewayTimeout
		x.Acted = x.Acted || x.StatusCode >= 500 && x.StatusCode != http.StatusNotImplemented && x.StatusCode != http.StatusHTTPVersionNotSupported
	}
	x.Acted = x.Acted || x.Lost
	c.report(x, shell, start)
	return resp, err
}

// admit waits for the rate limiter and puts the token on, if the request goes
// where the token belongs.
func (c *Chain) admit(x *exchange, to *url.URL, header http.Header) error {
	if err := x.Err(); err != nil {
		return cause.Of(x.Context)
	}
	if c.cfg.Limiter != nil {
		if err := heed(x.Context, func() error { return c.cfg.Limiter.Wait(x.Context) }); err != nil {
			return x.refusal("rate limiter", err)
		}
	}
	if !x.call.Auth {
		delete(header, "Authorization") // of a user in the address that a redirect leads to
		return nil
	}
	if jar := c.jar(x.call); jar != nil {
		delete(header, "Cookie") // of the attempt before
		carrier := http.Request{Header: header}
		for _, cookie := range jar.Cookies(to) {
			carrier.AddCookie(cookie)
		}
	}
	if !SameOrigin(to, c.cfg.Origin) {
		delete(header, "Authorization")
		return nil
	}
	if c.cfg.Bearer != nil {
		header["Authorization"] = c.cfg.Bearer()
		return nil
	}
	var token string
	err := heed(x.Context, func() (err error) {
		token, err = c.cfg.Token(x.Context)
		return err
	})
	if err != nil {
		return x.refusal("token source", err)
	}
	header["Authorization"] = []string{"Bearer " + token}
	return nil
}

// refusal is why an attempt is not made: ctx has ended, or else err.
func (x *exchange) refusal(doing string, err error) error {
	if x.Err() != nil {
		return cause.Of(x.Context)
	}
	return &LocalError{doing, err}
}

// exchange sends the request and takes the answer in: whole and bounded,
// except that the body of a transfer's success is left to stream.
func (c *Chain) exchange(x *exchange, shell *http.Request, header http.Header, g *gate) (*http.Response, error) {
	ctx, stop, timer := c.limit(x, g)
	req := shell.WithContext(ctx)
	req.Header = header
	if err := x.attach(req, g, timer); err != nil {
		stop()
		return nil, &LocalError{"opening the body", err}
	}
	via := c.base(x.call)
	if c.wrapped != nil {
		via = c.wrapped
		req = req.WithContext(context.WithValue(ctx, addressKey{}, req.URL))
		req.URL = hidden(req.URL)
	}
	resp, err := via.RoundTrip(req)
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err != nil {
		if context.Cause(req.Context()) == errNoWay { //nolint:errorlint // the very same value
			err = errNoWay
		} else {
			err = reason(ctx, x, err)
		}
		stop() // not before: it ends ctx
		return nil, err
	}
	if resp.Body == nil { // a transport made by hand
		resp.Body = http.NoBody
	}
	if jar := c.jar(x.call); jar != nil {
		jar.SetCookies(shell.URL, resp.Cookies())
	}
	if x.call.Auth && c.http1.Load() != (resp.ProtoMajor == 1) {
		c.http1.Store(resp.ProtoMajor == 1)
	}
	x.StatusCode, x.Header, x.RetryAfter = resp.StatusCode, resp.Header, retryAfter(resp.Header)
	if resp.StatusCode < 200 { // 101: the body is the connection itself, which nothing ends
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	success := resp.StatusCode >= 200 && resp.StatusCode < 300
	if success && x.call.Transfer != nil {
		if timer != nil {
			timer.Stop()
		}
		resp.Body = &stream{resp.Body, x, ctx, stop, timer, x.call.Idle}
		x.Stream = resp
		return resp, nil
	}
	defer stop()
	x.Body, x.Cut, err = read(req.Method, resp, success)
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	if err != nil && success {
		x.StatusCode, x.Broken = 0, resp.StatusCode
		if x.call.Once == nil { // of a create, any part may hold the id
			x.Body = bytes.Clone(x.Body[:min(len(x.Body), maxErrorBody)])
		}
		return nil, reason(ctx, x, err)
	}
	return resp, nil
}

// limit puts the attempt's time limit around it. For a call that lingers, the
// end of the caller's context gives a request that is out some time to be
// answered; one that is not is given up at once.
func (c *Chain) limit(x *exchange, g *gate) (context.Context, func(), *time.Timer) {
	call := x.call
	if call.Transfer != nil {
		return watch(x, call.Idle)
	}
	late := c.late
	if hc := c.cfg.Client; hc != nil && hc.Timeout > 0 && hc.Timeout < late.After {
		late = &TimeoutError{After: hc.Timeout}
	}
	if call.Linger <= 0 {
		ctx, cancel := context.WithTimeoutCause(x, late.After, late)
		return ctx, cancel, nil
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(x))
	release := context.AfterFunc(x.Context, func() {
		if x.proof() && g.seal() {
			cancel(nil)
			return
		}
		timer := time.AfterFunc(call.Linger, func() { cancel(nil) })
		context.AfterFunc(base, func() { timer.Stop() })
	})
	ctx, done := context.WithTimeoutCause(base, late.After, late)
	return ctx, func() { release(); done(); cancel(nil) }, nil
}

// reason is why an attempt failed: what ended its context, if that is what it
// was, and else the error with no address in it.
func reason(ctx context.Context, x *exchange, err error) error {
	if x.Context.Err() != nil {
		return cause.Of(x.Context)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if local, ok := errors.AsType[*LocalError](err); ok {
		return local
	}
	if wrapped, ok := err.(*url.Error); ok { //nolint:errorlint // what is around it says more
		return wrapped.Err
	}
	return err
}

// unsent reports whether the failed attempt certainly did not reach the service.
// After it, no byte of the body can go out any more. What has read the body may
// have sent it, whatever the error: a transport may have tried twice. What has not
// read it has not sent it, if it is a transport that is known to send what it
// reads: a mock may say that an answer was lost without having read anything.
func (x *exchange) unsent(err error, g *gate) bool {
	return g.seal() && (x.proof() || unsent(err)) || x.direct() && x.chain.wrapped == nil && turnedDown(err)
}

// proof reports whether a body that was not read is proof that nothing was sent.
func (x *exchange) proof() bool {
	return x.direct() && (len(x.call.Body) > 0 || x.call.Source != nil && x.call.Length > 0)
}

// direct reports whether requests go out by net/http itself.
func (x *exchange) direct() bool {
	_, ok := x.chain.base(x.call).(*http.Transport)
	return ok
}

func (c *Chain) base(call *Call) http.RoundTripper {
	if hc := c.cfg.Client; hc != nil && hc.Transport != nil {
		return hc.Transport
	}
	if call.Transfer != nil {
		if c.transfer.Load() == nil {
			c.transfer.CompareAndSwap(nil, call.Transfer())
		}
		return c.transfer.Load()
	}
	return c.own
}

func (c *Chain) jar(call *Call) http.CookieJar {
	if c.cfg.Client == nil || !call.Auth {
		return nil
	}
	return c.cfg.Client.Jar
}

// report tells the hook and the log of an exchange.
func (c *Chain) report(x *exchange, req *http.Request, start time.Time) {
	if c.cfg.Hook == nil && c.cfg.Log == nil {
		return
	}
	a := Attempt{
		Method: req.Method, Route: x.call.Route, Host: req.URL.Host, Number: x.Attempts,
		StatusCode: x.StatusCode, RequestID: errbody.RequestID(x.Header, func(s string) string { return c.cleanText(x.call, s) }), Err: c.clean(x.call, x.last),
		Start: start, Duration: time.Since(start),
	}
	if c.cfg.Hook != nil {
		c.cfg.Hook(x.Context, a)
	}
	if c.cfg.Log != nil {
		c.cfg.Log(x.Context, a)
	}
}

// read takes in an answer's body. A successful one must be whole and within
// [MaxAnswer]; of a failed one, what can be had of its beginning is enough.
func read(method string, resp *http.Response, success bool) (body []byte, cut bool, err error) {
	if method == http.MethodHead || resp.Body == nil || resp.Body == http.NoBody {
		return nil, false, nil
	}
	limit := int64(maxErrorBody)
	if success {
		limit = MaxAnswer
	}
	if n := resp.ContentLength; n > 0 && n <= min(limit, exact) {
		body = make([]byte, n)
		got, err := io.ReadFull(resp.Body, body)
		return body[:got], err != nil, err
	} else if success && n > limit {
		return nil, true, ErrTooLarge
	}
	body, cut, err = gather(resp.Body, limit)
	if cut && success {
		err = ErrTooLarge
	}
	return body, cut || err != nil, err
}

// SameOrigin reports whether two addresses have scheme, host and port in common.
func SameOrigin(a, b *url.URL) bool {
	return b != nil && strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	default:
		return "80"
	}
}
