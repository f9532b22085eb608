package svc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/svc/internal/httpcall"
)

// WithLogger logs every HTTP exchange to l: at level info if a retry follows, otherwise at
// level debug. A line holds the route, but no presigned URL, no body and no secret. A Deploy
// that waits for another create under its key is logged at level info. Three things are logged
// at level warn: a call whose outcome is not known ([OutcomeUnknownError]), a cleanup that did not
// prove that the endpoint is deleted, and a failure to update the ledger, unless a call returns
// it. If l is nil, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error { c.log = l; return nil }
}

// Attempt describes one HTTP exchange. The function of [WithAttemptHook] receives it.
type Attempt struct {
	Call       uint64        // number of the call that the exchange belongs to; each call of a client has its own number
	Method     string        // "GET"
	Route      string        // "/v1/files/{file_id}", or "{presigned_url}" for a transfer; for [Client.Do] the whole path, with its IDs
	ID         string        // ID in the path, the value of the parameter of Route, without secrets; empty if there is none
	Host       string        // host that the request was sent to
	Number     int           // number of the attempt, 1 for the first of a call; all exchanges of a redirect have the same number
	StatusCode int           // status of the response; 0 if there was no complete response: see Err
	RequestID  string        // request ID that the service sent in a response header; empty if there was none
	Err        error         // why there was no complete response, without secrets; nil if there was a complete response
	Start      time.Time     // time when the request was handed to the transport
	Duration   time.Duration // time from Start to the end of the response; for a successful download, to the end of the response headers
	Retry      bool          // the call makes another attempt, unless ctx ends first
	Delay      time.Duration // delay before the next attempt; if 0, there is no delay, or no next attempt
}

// WithAttemptHook calls f after each HTTP exchange, for metrics and traces. f receives the ctx
// of the call, and runs in its goroutine. Retry is false for the last exchange of a call. It
// is also false for a redirect that is followed; the next exchange then has the same Number.
// If f is nil, nothing is called.
func WithAttemptHook(f func(context.Context, Attempt)) Option {
	return func(c *config) error {
		if f != nil {
			c.http.Hooks = append(c.http.Hooks, func(ctx context.Context, a httpcall.Attempt) { f(ctx, Attempt(a)) })
		}
		return nil
	}
}

// CallOutcome is the known effect of a [Call].
type CallOutcome string

const (
	CallDone    CallOutcome = "done"    // the call succeeded
	CallFailed  CallOutcome = "failed"  // the call failed, and a create had no effect
	CallUnknown CallOutcome = "unknown" // a create may or may not have taken effect: Err is an [OutcomeUnknownError]
)

// Call describes one call of a method, with all its attempts. The function of [WithCallHook]
// receives it.
type Call struct {
	Method   string        // "GET"
	Route    string        // "/v1/files/{file_id}", or "{presigned_url}" for a transfer; for [Client.Do] the whole path, with its IDs
	ID       string        // ID in the path, or of the file record of a transfer, without secrets; empty if there is none
	Attempts int           // number of attempts that were sent; 0 if nothing was sent
	Duration time.Duration // time from the beginning of the call to its end, with all delays
	Err      error         // error that the call returned, without secrets; nil if there was none
	Outcome  CallOutcome   // what is known about the effect of the call
	Wait     bool          // the call is a part of a wait or of a cleanup, where "not found" and other failures are expected
}

// WithCallHook calls f at the end of each API call and of each upload or download, for metrics.
// A method that makes several calls, such as a Deploy, reports each of them. f receives the ctx
// of the call, and runs in its goroutine. It must be safe for concurrent use. A create that is not
// sent, since the key has an endpoint of the same request, is done after 0 attempts. A call that a
// panic ends is not reported. If f is nil, nothing is called.
func WithCallHook(f func(context.Context, Call)) Option {
	return func(c *config) error {
		if f != nil {
			c.hooks.end = append(c.hooks.end, f)
		}
		return nil
	}
}

// WithCallContext calls f at the beginning of each call that [WithCallHook] reports, for traces.
// The context that f returns must be derived from the ctx that f gets. It becomes the ctx of the
// call: hooks receive it, and the contexts of the requests are derived from it. Only the fields
// Method, Route, ID and Wait of the Call are set. If f is nil, nothing is called.
func WithCallContext(f func(context.Context, Call) context.Context) Option {
	return func(c *config) error {
		if f != nil {
			c.hooks.begin = append(c.hooks.begin, f)
		}
		return nil
	}
}

// A WaitEnd describes a wait that has ended. The function of [WithWaitHook] receives it.
type WaitEnd struct {
	ID      string        // ID of the record, without secrets; empty if the wait was for a flavor
	Want    string        // what the wait was for, as in a [WaitError]: "available", "deleted", …
	Cleanup bool          // the wait was the cleanup of a Deploy or Use
	Elapsed time.Duration // time from the start of the wait to its end
	Err     error         // why the wait ended without success, without secrets; of a cleanup, why nothing proved the deletion; nil if it succeeded
}

// WithWaitHook calls f at the end of each wait and of each cleanup, for metrics. f receives the
// ctx of the wait, and runs in its goroutine. It must be safe for concurrent use. A wait that a
// panic ends, or that could not begin, is not reported. If f is nil, nothing is called.
func WithWaitHook(f func(context.Context, WaitEnd)) Option {
	return func(c *config) error {
		if f != nil {
			c.hooks.wait = append(c.hooks.wait, f)
		}
		return nil
	}
}

// waited reports the end of a wait.
func (c *Client) waited(ctx context.Context, end WaitEnd) {
	end.ID = c.clean(end.ID)
	for _, f := range c.hooks.wait {
		f(ctx, end)
	}
}

// hooks holds the caller's functions.
type hooks struct {
	begin []func(context.Context, Call) context.Context // set by WithCallContext
	end   []func(context.Context, Call)                 // set by WithCallHook
	wait  []func(context.Context, WaitEnd)              // set by WithWaitHook
}

// begin returns the context of a call.
func (c *Client) begin(ctx context.Context, k *call) context.Context {
	for _, f := range c.hooks.begin {
		ctx = f(ctx, Call{Method: k.Method, Route: k.Route, ID: c.clean(k.ID), Wait: k.opts.wait})
	}
	return ctx
}

// report reports a call that has ended with *err. It is meant to be deferred. It does nothing
// for a call that a panic ended.
func (c *Client) report(ctx context.Context, k *call, err *error) {
	outcome := CallFailed
	unknown, isUnknown := errors.AsType[*OutcomeUnknownError](*err)
	switch {
	case isUnknown && k.Once: // the writer of a download may return any error
		outcome = CallUnknown
		c.warn(ctx, "svc: the outcome of a call is not known", *err,
			"name", unknown.Name, "key", unknown.Key, "intent", unknown.Intent, "id", unknown.ID, "request_id", unknown.RequestID)
	case k.done:
		outcome = CallDone
	case *err == nil:
		return
	}
	for _, f := range c.hooks.end {
		f(ctx, Call{
			Method: k.Method, Route: k.Route, ID: c.clean(k.ID), Attempts: k.Result.Attempts, Duration: time.Since(k.start),
			Err: *err, Outcome: outcome, Wait: k.opts.wait,
		})
	}
}

// warn logs err at level warn, with the name and value pairs whose value is not empty.
func (c *Client) warn(ctx context.Context, message string, err error, pairs ...string) {
	attrs := append(httpcall.Texts(pairs...), slog.String("error", err.Error()))
	c.log.LogAttrs(ctx, slog.LevelWarn, message, attrs...)
}
