package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
)

// An outcome says what an attempt means for the service.
type outcome int

const (
	answered outcome = iota // there is a complete response
	notSent                 // the service certainly did not process the request
	lost                    // there is no complete response, and the request may have been processed
)

// An attempt is what came of one HTTP exchange.
type attempt struct {
	outcome outcome
	resp    *http.Response // for the redirects and the retries; its body was read, except that of a transfer; nil: there is err
	err     error          // why there is no complete response; nil: there is one
	local   bool           // err arose in this process: no request was sent, or the body of an upload could not be read

	status, broken int // the status of a complete response; the status of a 2xx response that was cut off
	header         http.Header
	body           []byte
	cut            bool
	retryAfter     time.Duration
}

// RoundTrip makes one HTTP exchange of a call. It is the transport below the retries and the
// redirects. It sends a copy of the request, since a connection may still be using the request
// of the previous attempt.
func (c *Caller) RoundTrip(shell *http.Request) (*http.Response, error) {
	x := exchangeOf(shell.Context())
	x.tell() // after a redirect: reports the exchange that led here
	x.again = false
	redirected := shell.Response != nil
	deadline, err := c.admit(x, shell.URL, shell.Header)
	if err != nil {
		return nil, x.refuse(err, redirected)
	}
	acted := x.begin(redirected)
	start := time.Now()
	a := c.exchange(x, shell, deadline)
	x.fold(a, acted)
	if len(c.cfg.Hooks) > 0 {
		x.report = &Attempt{
			Call: x.number, Method: shell.Method, Route: x.call.Route, ID: x.call.ID, Host: shell.URL.Host, Number: x.Attempts,
			StatusCode: a.status, Err: a.err, Start: start, Duration: time.Since(start),
		}
	}
	return a.resp, a.err
}

// refuse notes that a request is not sent, and returns why. The result of the attempt before it
// stays. But if a redirect led to the request, that attempt has no result.
func (x *exchange) refuse(err error, redirected bool) error {
	if redirected {
		x.fold(attempt{}, x.Acted)
	} else {
		err = interrupted(err, x.latest.err)
	}
	x.latest.err, x.latest.local = err, true
	return err
}

// begin notes that a request is handed to the transport. Until its attempt is folded, the Result
// assumes the worst, since a transport may panic. begin returns whether an attempt before this
// one may have taken effect.
func (x *exchange) begin(redirected bool) (acted bool) {
	acted = x.Acted
	x.fold(attempt{}, acted || x.call.Once)
	x.Sent = true
	if !redirected {
		x.Attempts++
	}
	x.dials.Store(0)
	return acted
}

// fold makes an attempt the latest one of its call. acted says whether an attempt before it may
// have taken effect.
func (x *exchange) fold(a attempt, acted bool) {
	x.latest = a
	x.StatusCode, x.Broken, x.Header, x.Body, x.Cut, x.RetryAfter = a.status, a.broken, a.header, a.body, a.cut, a.retryAfter
	x.Stream = nil
	if x.call.Transfer && a.status/100 == 2 {
		x.Stream = a.resp
	}
	switch a.outcome {
	case answered:
		x.Acted = acted || mayHaveActed(a.status)
		switch a.status {
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			x.Lost = true
		}
	case notSent:
		x.Acted = acted
	case lost:
		x.Acted, x.Lost = true, true
	}
}

// mayHaveActed reports whether a request with this response may have taken effect.
func mayHaveActed(status int) bool {
	switch status {
	case http.StatusRequestTimeout: // some gateways send a 408 after the service has acted
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// tell reports the latest exchange to the hooks, once it is known whether a retry
// follows.
func (x *exchange) tell() {
	a := x.report
	x.report = nil
	if a == nil {
		return
	}
	red := x.call.Redact
	a.RequestID, a.ID, a.Err = apierr.RequestID(x.Header, red.String), red.String(a.ID), red.Error(a.Err)
	if x.again {
		a.Retry, a.Delay = true, x.delay
	}
	for _, hook := range x.caller.cfg.Hooks {
		hook(x.ctx, *a)
	}
}

// admit waits for the rate limiter, and sets the token if the request goes to the origin of
// the service. deadline is when the attempt has to end; it does not hold for a transfer.
func (c *Caller) admit(x *exchange, to *url.URL, header http.Header) (deadline time.Time, err error) {
	if x.ctx.Err() != nil {
		return deadline, cause.Of(x.ctx)
	}
	if err := c.await(x); err != nil {
		return deadline, err
	}
	deadline = time.Now().Add(c.timeout().After)
	delete(header, "Authorization") // net/http sets it if a redirect leads to a URL that holds a user name, such as https://user@host
	if x.call.Auth && SameOrigin(to, c.cfg.Origin) {
		token, err := c.askToken(x, deadline)
		if err != nil {
			return deadline, err
		}
		x.token, x.checked = c.hidden(token), &c.checked
		header["Authorization"] = []string{"Bearer " + token}
	}
	if x.ctx.Err() != nil || x.call.Before == nil {
		return deadline, cause.Of(x.ctx)
	}
	return deadline, x.call.Before()
}

// hidden returns a function that returns the token. It is mostly the one of the latest check.
func (c *Caller) hidden(token string) func() string {
	if last := c.checked.Load(); last != nil && last.token() == token {
		return last.token
	}
	return func() string { return token }
}

// await waits for the rate limiter. If the limiter refuses because of the deadline of ctx, as
// that of golang.org/x/time/rate does before the deadline, the error is a DeadlineExceeded.
func (c *Caller) await(x *exchange) error {
	if c.cfg.Limiter == nil || x.call.Urgent {
		return nil
	}
	err := c.cfg.Limiter.Wait(x.ctx)
	if err == nil {
		return nil
	}
	if x.ctx.Err() != nil {
		return cause.Of(x.ctx)
	}
	if strings.Contains(err.Error(), "would exceed context deadline") {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return &LocalError{"rate limiter", err}
}

// askToken asks the token source. If it has not answered by the deadline, the error is a
// TimeoutError: the source must not take longer than an attempt may.
func (c *Caller) askToken(x *exchange, deadline time.Time) (string, error) {
	if !c.cfg.Renews { // the token is at hand
		return c.cfg.Token(x.ctx)
	}
	late := &TimeoutError{After: c.timeout().After, Missing: "token"}
	ctx, cancel := context.WithDeadlineCause(x.ctx, deadline, late)
	defer cancel()
	token, err := c.cfg.Token(ctx)
	switch {
	case err == nil:
		return token, nil
	case x.ctx.Err() != nil:
		return "", cause.Of(x.ctx)
	case ctx.Err() != nil:
		err = late
	}
	return "", &LocalError{"token source", err}
}

// timeout returns the error of an attempt of an API call that takes too long.
func (c *Caller) timeout() *TimeoutError {
	late := c.late
	if hc := c.cfg.Client; hc != nil && hc.Timeout > 0 && hc.Timeout < late.After {
		late = &TimeoutError{After: hc.Timeout}
	}
	return late
}

// exchange sends the request, reads the response, and judges what came of it.
func (c *Caller) exchange(x *exchange, shell *http.Request, deadline time.Time) attempt {
	var g gate
	a := c.send(x, shell, deadline, &g)
	if a.err != nil {
		a.outcome = x.judge(a, &g)
		a.local = x.call.Source != nil && cause.Has[*LocalError](a.err)
	}
	return a
}

// send sends the request and reads the response, up to a limit. The body of a successful
// transfer is not read.
func (c *Caller) send(x *exchange, shell *http.Request, deadline time.Time, g *gate) attempt {
	ctx, stop, timer := c.limit(shell.Context(), x, deadline, g)
	req := shell.WithContext(ctx)
	if err := x.attach(req, g, timer); err != nil {
		stop()
		return attempt{err: &LocalError{"opening the body", err}}
	}
	resp, err := c.hand(x, req)
	if err != nil {
		err = reason(ctx, x, err)
		stop() // only after reason has read ctx, since stop ends ctx
		return attempt{err: err}
	}
	a := attempt{resp: resp, status: resp.StatusCode, header: resp.Header, retryAfter: retryAfter(resp.Header)}
	success := resp.StatusCode/100 == 2
	if success && x.call.Transfer {
		if timer != nil {
			timer.Stop()
		}
		resp.Body = &stream{resp.Body, x, ctx, stop, timer, x.call.Idle}
		return a
	}
	defer stop()
	a.body, a.cut, err = read(req.Method, resp, success)
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	if err == nil || !success {
		return a
	}
	a.resp, a.err, a.status, a.broken = nil, reason(ctx, x, err), 0, resp.StatusCode
	if !x.call.Once { // all of the response to a create is kept, since any part may hold the ID
		a.body = bytes.Clone(a.body[:min(len(a.body), maxErrorBody)])
	}
	return a
}

// hand gives the request to the transport, through the instruments if there are any.
func (c *Caller) hand(x *exchange, req *http.Request) (*http.Response, error) {
	via := c.base(x.call)
	if c.wrapped != nil {
		via = c.wrapped
		req = req.WithContext(context.WithValue(req.Context(), addressKey{}, req.URL))
		hidden := *req.URL // tools for traces and metrics store the URL, and the query of a presigned URL is a secret
		hidden.RawQuery, hidden.ForceQuery = "", false
		req.URL = &hidden
	}
	resp, err := via.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errNoResponse
	case resp.Body == nil: // only a transport that is not of net/http leaves it nil
		resp.Body = http.NoBody
	case resp.StatusCode < 200: // 101: the body is the connection itself, and may never end
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, nil
}

// limit sets the time limit of an attempt. When the caller's context ends, the attempt stops
// at once. The exception is a call with a Linger whose request may have been sent: the attempt
// then waits for the response for that time.
func (c *Caller) limit(ctx context.Context, x *exchange, deadline time.Time, g *gate) (context.Context, func(), *time.Timer) {
	call := x.call
	if call.Transfer {
		return watch(ctx, call.Idle)
	}
	late := c.timeout()
	if call.Linger <= 0 {
		ctx, cancel := context.WithDeadlineCause(ctx, deadline, late)
		return ctx, cancel, nil
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() {
		if x.proof() && g.seal() {
			cancel(nil)
			return
		}
		timer := time.AfterFunc(call.Linger, func() { cancel(nil) })
		context.AfterFunc(base, func() { timer.Stop() })
	})
	limited, done := context.WithDeadlineCause(base, deadline, late)
	return limited, func() { release(); done(); cancel(nil) }, nil
}

// reason returns why an attempt failed: the reason for which its context ended, otherwise err
// without the address of the request.
func reason(ctx context.Context, x *exchange, err error) error {
	if x.ctx.Err() != nil {
		return cause.Of(x.ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if local, ok := errors.AsType[*LocalError](err); ok {
		return local
	}
	if wrapped, ok := err.(*url.Error); ok { //nolint:errorlint // only the outermost
		err = wrapped.Err
	}
	if x.direct() {
		return explained(err)
	}
	return err
}

func (c *Caller) base(call *Call) http.RoundTripper {
	if hc := c.cfg.Client; hc != nil && hc.Transport != nil {
		return hc.Transport
	}
	return c.own[call.Transfer]
}

// read reads the body of a response. The body of a successful response must be whole and
// within [MaxResponse]. Of any other body, the beginning is enough.
func read(method string, resp *http.Response, success bool) (body []byte, cut bool, err error) {
	if method == http.MethodHead || resp.Body == http.NoBody {
		return nil, false, nil
	}
	limit := int64(maxErrorBody)
	if success {
		limit = MaxResponse
	}
	const trusted = 1 << 20 // a buffer of the announced length is made only up to this length
	if n := resp.ContentLength; n > 0 && n <= min(limit, trusted) {
		body = make([]byte, n)
		got, err := io.ReadFull(resp.Body, body)
		return body[:got], err != nil, err
	} else if success && n > limit {
		return nil, true, ErrTooLarge
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if cut = int64(len(body)) > limit; cut {
		body = body[:limit]
		if err = nil; success {
			err = ErrTooLarge
		}
	}
	return body, cut || err != nil, err
}
