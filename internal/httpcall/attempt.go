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

// RoundTrip makes one HTTP exchange of a call. It is the transport below the retries and the
// redirects. It sends a copy of the request, since a connection may still be using the request
// of the previous attempt.
func (c *Caller) RoundTrip(shell *http.Request) (*http.Response, error) {
	x := exchangeOf(shell.Context())
	x.tell() // after a redirect: reports the exchange that led here
	hop := shell.Response != nil
	x.again = false
	err := c.admit(x, shell.URL, shell.Header)
	if err != nil && !hop { // no attempt is made: the result of the previous attempt stays
		x.last, x.local = interrupted(err, x.last), true
		return nil, x.last
	}
	x.StatusCode, x.Broken, x.Header, x.Body, x.Cut, x.Stream, x.RetryAfter = 0, 0, nil, nil, false, nil, 0
	x.last, x.local = err, err != nil
	if err != nil {
		return nil, err
	}
	if !hop {
		x.Attempts++
	}
	var gate gate
	x.dials.Store(0)
	acted := x.Acted
	x.Sent, x.Acted = true, acted || x.call.Once // assumed until the attempt has been judged, since a transport may panic
	start := time.Now()
	resp, err := c.exchange(x, shell, &gate)
	if x.unsent = false; err != nil {
		x.last = err
		x.local = x.call.Source != nil && cause.Has[*LocalError](err) // the body of the upload could not be read
		x.unsent = x.Broken == 0 && x.judgeUnsent(err, &gate)
		x.Lost = x.Lost || !x.unsent
	} else {
		x.Lost = x.Lost || x.StatusCode == http.StatusBadGateway || x.StatusCode == http.StatusGatewayTimeout
		acted = acted || mayHaveActed(x.StatusCode)
	}
	x.Acted = acted || x.Lost
	if len(c.cfg.Hooks) > 0 {
		x.report = &Attempt{
			Call: x.number, Method: shell.Method, Route: x.call.Route, ID: x.call.ID, Host: shell.URL.Host, Number: x.Attempts,
			StatusCode: x.StatusCode, Err: x.last, Start: start, Duration: time.Since(start),
		}
	}
	return resp, err
}

// mayHaveActed reports whether a request with this response may have taken effect.
func mayHaveActed(status int) bool {
	return status == http.StatusRequestTimeout || // some gateways send a 408 after the service has acted
		status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported
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
// the service.
func (c *Caller) admit(x *exchange, to *url.URL, header http.Header) error {
	if x.ctx.Err() != nil {
		return cause.Of(x.ctx)
	}
	if err := c.await(x); err != nil {
		return err
	}
	x.deadline = time.Now().Add(c.timeout(x.call).After)
	delete(header, "Authorization") // net/http sets it if a redirect leads to a URL that holds a user name, such as https://user@host
	if x.call.Auth && SameOrigin(to, c.cfg.Origin) {
		token, err := c.askToken(x, x.deadline)
		if err != nil {
			return err
		}
		x.token = func() string { return token }
		header["Authorization"] = []string{"Bearer " + token}
	}
	if x.ctx.Err() != nil || x.call.Before == nil {
		return cause.Of(x.ctx)
	}
	return x.call.Before()
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
	late := &TimeoutError{After: c.timeout(x.call).After, Missing: "token"}
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
func (c *Caller) timeout(call *Call) *TimeoutError {
	late := c.late
	if hc := c.cfg.Client; hc != nil && hc.Timeout > 0 && hc.Timeout < late.After {
		late = &TimeoutError{After: hc.Timeout}
	}
	if call.Timeout > 0 && call.Timeout < late.After {
		late = &TimeoutError{After: call.Timeout}
	}
	return late
}

// exchange sends the request and reads the response, up to a limit. The body of a
// successful transfer is not read: the response becomes the Stream of the Result.
func (c *Caller) exchange(x *exchange, shell *http.Request, g *gate) (*http.Response, error) {
	ctx, stop, timer := c.limit(shell.Context(), x, g)
	req := shell.WithContext(ctx)
	if err := x.attach(req, g, timer); err != nil {
		stop()
		return nil, &LocalError{"opening the body", err}
	}
	via := c.base(x.call)
	if c.wrapped != nil {
		via = c.wrapped
		req = req.WithContext(context.WithValue(ctx, addressKey{}, req.URL))
		hidden := *req.URL // tools for traces and metrics store the URL, and the query of a presigned URL is a secret
		hidden.RawQuery, hidden.ForceQuery = "", false
		req.URL = &hidden
	}
	resp, err := via.RoundTrip(req)
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err != nil {
		err = reason(ctx, x, err)
		stop() // only after reason has read ctx, since stop ends ctx
		return nil, err
	}
	if resp.Body == nil { // only a transport that is not of net/http leaves it nil
		resp.Body = http.NoBody
	}
	x.StatusCode, x.Header, x.RetryAfter = resp.StatusCode, resp.Header, retryAfter(resp.Header)
	if resp.StatusCode < 200 { // 101: the body is the connection itself, and may never end
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	success := resp.StatusCode >= 200 && resp.StatusCode < 300
	if success && x.call.Transfer {
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
		if !x.call.Once { // all of the response to a create is kept, since any part may hold the ID
			x.Body = bytes.Clone(x.Body[:min(len(x.Body), maxErrorBody)])
		}
		return nil, reason(ctx, x, err)
	}
	return resp, nil
}

// limit sets the time limit of an attempt. When the caller's context ends, the attempt stops
// at once. The exception is a call with a Linger whose request may have been sent: the attempt
// then waits for the response for that time.
func (c *Caller) limit(ctx context.Context, x *exchange, g *gate) (context.Context, func(), *time.Timer) {
	call := x.call
	if call.Transfer {
		return watch(ctx, call.Idle)
	}
	late := c.timeout(call)
	if call.Linger <= 0 {
		ctx, cancel := context.WithDeadlineCause(ctx, x.deadline, late)
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
	limited, done := context.WithDeadlineCause(base, x.deadline, late)
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
