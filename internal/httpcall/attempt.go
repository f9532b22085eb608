package httpcall

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/valid"
)

// An outcome is the effect that an attempt may have had on the service.
type outcome int

const (
	answered outcome = iota // there is a complete response
	notSent                 // the service did not process the request
	lost                    // there is no complete response, and the request may have been processed
)

// An attempt is the result of one HTTP exchange.
type attempt struct {
	StatusCode int // status of the response; 0 if there was no complete response: see Fail
	Broken     int // the status of a 2xx response that was cut off; 0 if none was
	Header     http.Header
	Body       []byte
	Cut        bool           // Body is only the beginning
	Stream     *http.Response // the successful response of a download; its body was not read yet
	RetryAfter time.Duration  // delay of the Retry-After header; 0 if none

	outcome outcome
	resp    *http.Response // for the redirects and the retries; its body was read, unless it is Stream; nil if err is set
	err     error          // why there is no complete response; nil if there is one
	local   bool           // err arose in this process: no request was sent, or the body of an upload could not be read
}

// RoundTrip performs one HTTP exchange of a call. It is the transport below the retries and
// the redirects. It sends a copy of the request, since a connection may still be using the
// request of the previous attempt. An attempt may have taken effect if its response was lost or is
// inconclusive, or if an earlier attempt may have.
func (c *Caller) RoundTrip(shell *http.Request) (*http.Response, error) {
	x := exchangeOf(shell.Context())
	x.tell() // after a redirect: reports the exchange that led here
	x.again = false
	redirected := shell.Response != nil
	deadline, err := c.admit(x, shell.URL, shell.Header)
	if err != nil {
		return nil, x.refuse(err, redirected)
	}
	acted := x.Acted
	x.attempt, x.Acted = attempt{}, true // the worst case, in case the transport panics
	if !redirected {
		x.Attempts++
	}
	x.dials.Store(0)
	start := time.Now()
	a := x.send(shell, deadline)
	x.attempt, x.Acted = a, acted
	switch a.outcome { // a request that was not sent changes nothing
	case lost:
		x.Acted, x.Lost = true, true
	case answered:
		x.Acted = acted || rules.MayHaveActed(rules.Response{Status: a.StatusCode, ContentType: a.Header.Get("Content-Type"), Body: a.Body, Cut: a.Cut, Marks: x.call.Marks})
		x.Lost = x.Lost || slices.Contains([]int{http.StatusBadGateway, http.StatusGatewayTimeout}, a.StatusCode)
	}
	if len(c.cfg.Hooks) > 0 {
		x.report = &Attempt{
			Call: x.number, Method: shell.Method, Route: x.call.Route, ID: x.call.ID, Host: shell.URL.Host, Number: x.Attempts,
			StatusCode: a.StatusCode, Err: a.err, Start: start, Duration: time.Since(start),
		}
	}
	return a.resp, a.err
}

// admit waits for the rate limiter, and sets the token if the request goes to the origin of
// the service. deadline is when the attempt has to end; it does not hold for a transfer.
func (c *Caller) admit(x *exchange, to *url.URL, header http.Header) (deadline time.Time, err error) {
	if x.ctx.Err() != nil {
		return deadline, cause.Of(x.ctx)
	}
	if c.cfg.Limiter != nil && !x.call.Urgent {
		if err := c.cfg.Limiter.Wait(x.ctx); err != nil {
			return deadline, limited(x.ctx, err)
		}
	}
	deadline = time.Now().Add(x.late.After)
	delete(header, "Authorization") // net/http sets it if a redirect leads to a URL that holds a user name, such as https://user@host
	if x.call.Auth && valid.SameOrigin(to, c.cfg.Origin) {
		sender := c.fixed
		if c.cfg.Source != nil {
			if sender, err = c.askToken(x, deadline); err != nil {
				return deadline, err
			}
		}
		x.Lost = x.Lost && x.sender.token() == sender.token() // the account of another token may have no such record
		x.sender = sender
		header["Authorization"] = []string{"Bearer " + x.sender.token()}
	}
	if x.ctx.Err() != nil || x.call.Before == nil {
		return deadline, cause.Of(x.ctx)
	}
	return deadline, x.call.Before()
}

// limited returns err, the error of a rate limiter. If the limiter refused because of the
// deadline of ctx, as golang.org/x/time/rate does before the deadline, the result wraps
// context.DeadlineExceeded.
func limited(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cause.Of(ctx)
	}
	if strings.Contains(err.Error(), "would exceed context deadline") {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return &LocalError{"rate limiter", err}
}

// askToken calls the token source. If the source has not returned by the deadline, the error
// is a TimeoutError.
func (c *Caller) askToken(x *exchange, deadline time.Time) (*sender, error) {
	ctx, cancel := context.WithDeadline(x.ctx, deadline)
	defer cancel()
	token, err := c.cfg.Source(ctx)
	switch {
	case err == nil:
		return &sender{token: func() string { return token }}, nil
	case x.ctx.Err() != nil:
		return nil, cause.Of(x.ctx)
	case ctx.Err() != nil:
		return nil, &LocalError{"token source", &TimeoutError{After: x.late.After, Missing: "token"}}
	}
	return nil, &LocalError{"token source", err}
}

// refuse records that a request is not sent, and returns why. It keeps the result of the
// previous attempt, unless that attempt was redirected to this request.
func (x *exchange) refuse(err error, redirected bool) error {
	if redirected {
		x.attempt = attempt{}
	} else {
		err = interrupted(err, x.err)
	}
	x.err, x.local = err, true
	return err
}

// send sends the request and reads the response, up to a limit. The body of a successful
// download is not read.
func (x *exchange) send(shell *http.Request, deadline time.Time) attempt {
	f := &flight{x: x}
	f.limit(shell.Context(), deadline)
	req := shell.WithContext(f.ctx)
	err := f.attach(req)
	var resp *http.Response
	if err == nil {
		resp, err = x.via.RoundTrip(req)
	}
	switch {
	case err != nil:
		return f.failed(err)
	case resp == nil:
		return f.failed(errNoResponse)
	case resp.Body == nil: // only a transport that is not of net/http leaves it nil
		resp.Body = http.NoBody
	}
	a := attempt{resp: resp, StatusCode: resp.StatusCode, Header: resp.Header, RetryAfter: retryAfter(resp.Header)}
	whole := resp.StatusCode/100 == 2 // all of the body is needed
	switch {
	case !whole:
	case x.call.Source != nil: // nobody needs the response to an upload, so a slow body is not waited for
		body := resp.Body
		defer time.AfterFunc(100*time.Millisecond, func() {
			f.stop()
			_ = body.Close()
		}).Stop()
		whole = false
	case x.call.Transfer:
		if f.idle != nil {
			f.idle.Stop()
		}
		resp.Body, a.Stream = &stream{resp.Body, f}, resp
		return a
	}
	defer f.stop()
	a.Body, a.Cut, err = read(req.Method, resp, whole)
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	if err == nil || !whole {
		return a
	}
	a.resp, a.err, a.outcome = nil, f.reason(err), lost
	a.StatusCode, a.Broken = 0, resp.StatusCode
	if !x.call.Once { // all of the response to a create is kept, since any part may hold the ID
		a.Body = bytes.Clone(a.Body[:min(len(a.Body), maxErrorBody)])
	}
	return a
}

// read reads the body of a response: the whole body, up to [MaxResponse], or only its beginning.
// The body of a 101 is not read, since it is the connection itself and may never end.
func read(method string, resp *http.Response, whole bool) (body []byte, cut bool, err error) {
	if method == http.MethodHead || resp.StatusCode < 200 || resp.Body == http.NoBody {
		return nil, false, nil
	}
	limit := int64(maxErrorBody)
	if whole {
		limit = MaxResponse
	}
	const trusted = 1 << 20 // a buffer of the announced length is made only up to this length
	if n := resp.ContentLength; n > 0 && n <= min(limit, trusted) {
		body = make([]byte, n)
		got, err := io.ReadFull(resp.Body, body)
		return body[:got], err != nil, err
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if cut = int64(len(body)) > limit; cut {
		body = body[:limit]
		if err = nil; whole {
			err = ErrTooLarge
		}
	}
	return body, cut || err != nil, err
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
