// Package chain carries one call over HTTP: rate limit, token, attempts with
// their time limits, retries, redirects, bounded answers, and the report of
// every exchange. It knows nothing of resources; it hands back facts, and what
// they mean for a record is decided above it.
package chain

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/redact"
)

// MaxAnswer is the largest answer of an API call that is read.
const MaxAnswer = 32 << 20

// maxErrorBody is how much of a failed call's body is kept.
const maxErrorBody = 64 << 10

// Limiter is asked before every attempt.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Config is what all calls of one client share. Nothing in it changes after
// [New].
type Config struct {
	Client    *http.Client                              // the caller's, or nil; never modified
	Wrap      func(http.RoundTripper) http.RoundTripper // around the transport, for instruments; nil: none
	Origin    *url.URL                                  // where the token may go
	Token     func(ctx context.Context) (string, error) // nil: no token
	Bearer    func() []string                           // the Authorization header of a token that never changes; nil: ask Token
	Limiter   Limiter
	Retry     Policy
	Timeout   time.Duration // one attempt of an API call
	UserAgent string
	Log       func(context.Context, Attempt)                // of each exchange; functions, so that a program that
	LogRetry  func(context.Context, Attempt, time.Duration) // does not log need not have a logging package in it
	Hook      func(context.Context, Attempt)
	Redact    *redact.Redactor
}

// Attempt reports one HTTP exchange.
type Attempt struct {
	Method     string
	Route      string
	Host       string
	Number     int
	StatusCode int
	RequestID  string
	Err        error
	Start      time.Time
	Duration   time.Duration
}

// Call is one operation, however many attempts it takes.
type Call struct {
	Method string
	Route  string // the path with its parameters by name, for people
	URL    *url.URL
	Header http.Header // owned by the call from here on

	Auth bool // send the token
	// Once is [Once] for a call that is not to be repeated when an earlier attempt may
	// have taken effect; nil for others. A function, so that a program without such
	// calls need not have it in it.
	Once OnceFunc

	Body   []byte                        // what an API call sends
	Source func() (io.ReadCloser, error) // what a transfer sends; opened anew for every attempt
	Length int64                         // of Source

	// Transfer is [Transfer] for a transfer, which has no limit on an attempt's
	// time, and redirects as for media and storage; nil for a call of the API. A
	// function, so that a program without transfers need not have it in it.
	Transfer func() *http.Transport
	Idle     time.Duration    // of a transfer: longest time without a byte in either direction; 0: no limit
	Redact   *redact.Redactor // of a transfer: knows the secrets of its link; nil: there are none
	Hop      func(*url.URL)   // of a transfer: told where a redirect leads to; nil: no need

	MaxAttempts int           // 0: as the policy says
	Linger      time.Duration // how long an answer is awaited after ctx has ended, when the request is out
}

// Result is what is known when a call is over.
type Result struct {
	StatusCode int // 0: no (whole) answer, Fail says why
	Broken     int // the status of a successful answer that broke off
	Header     http.Header
	Body       []byte
	Cut        bool           // the failed call's body went on
	Stream     *http.Response // a transfer's successful answer, its body unread

	Attempts   int
	RetryAfter time.Duration // what the last answer asked for
	Fail       error         // why there is no (whole) answer

	// Acted says that an attempt may have taken effect at the service although
	// its answer did not say so: lost, cut, or a server error.
	Acted bool
	// Lost says that an attempt's answer was lost: the connection failed, or a
	// gateway says that it got none.
	Lost bool
}

// OK reports whether the service said that the call succeeded.
func (r *Result) OK() bool { return r.Fail == nil && r.StatusCode >= 200 && r.StatusCode < 300 }

// Chain sends calls. It is safe for concurrent use.
type Chain struct {
	cfg      Config
	own      *http.Transport                // for API calls
	transfer atomic.Pointer[http.Transport] // likewise, for presigned links, from the first one on
	wrapped  http.RoundTripper              // around both, and the caller's; nil if there are no instruments
	http     *http.Client
	late     *TimeoutError // what an attempt that takes too long ends with
	budgets  [2]budget     // of calls, and of transfers: storage that is down holds no call up
	http1    atomic.Bool   // the API last answered over HTTP/1
}

func (c *Chain) budget(call *Call) *budget {
	if call.Transfer != nil {
		return &c.budgets[1]
	}
	return &c.budgets[0]
}

// New makes a chain.
func New(cfg Config) *Chain {
	c := &Chain{cfg: cfg, late: &TimeoutError{After: cfg.Timeout}}
	for i := range c.budgets {
		c.budgets[i].tokens = budgetSize
	}
	c.own = newTransport() // used where the caller brings none
	if cfg.Wrap != nil {
		c.wrapped = cfg.Wrap(restore{c})
	}
	c.http = &http.Client{Transport: c, CheckRedirect: checkRedirect}
	return c
}

// CloseIdle closes the connections that no call is using.
func (c *Chain) CloseIdle() {
	c.own.CloseIdleConnections()
	if t := c.transfer.Load(); t != nil {
		t.CloseIdleConnections()
	}
}

// Redactor is the one that the chain was made with.
func (c *Chain) Redactor() *redact.Redactor { return c.cfg.Redact }

// clean takes the secrets out of an error, those of a transfer's link too.
func (c *Chain) clean(call *Call, err error) error {
	if err = c.cfg.Redact.Error(err); call.Redact != nil {
		err = call.Redact.Error(err)
	}
	return err
}

func (c *Chain) cleanText(call *Call, text string) string {
	if text = c.cfg.Redact.String(text); call.Redact != nil {
		text = call.Redact.String(text)
	}
	return text
}

// exchange is one call under way. It is the context of its requests, so that
// the transport and the retry policy find it without a look-up.
type exchange struct {
	context.Context
	Result
	chain *Chain
	call  *Call
	retry retryablehttp.Client
	last  error         // of the latest attempt, when it has no answer
	local bool          // last came from this side, before anything was sent
	again bool          // there is to be another attempt, and it has not begun
	delay time.Duration // before it
	taken int           // from the retry budget, for the latest retry
	dials atomic.Int32  // of the attempt under way
}

// exchangeKey is what an exchange answers to as a context.
type exchangeKey struct{}

func (x *exchange) Value(key any) any {
	if key == (exchangeKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// Route is the route of the call that a request with this context belongs to.
func Route(ctx context.Context) string {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.call.Route
	}
	return ""
}

// Do carries out a call and says how it went.
func (c *Chain) Do(ctx context.Context, call *Call) *Result {
	x := &exchange{Context: ctx, chain: c, call: call}
	x.retry.HTTPClient = c.http
	x.retry.RetryMax = math.MaxInt // the number of attempts is the policy's business
	x.retry.CheckRetry = checkRetry
	x.retry.Backoff = x.backoff
	x.retry.ErrorHandler = retryablehttp.PassthroughErrorHandler
	header := call.Header
	if c.cfg.UserAgent != "" && header["User-Agent"] == nil {
		header["User-Agent"] = []string{c.cfg.UserAgent}
	}
	shell := http.Request{
		Method: call.Method, URL: call.URL, Host: call.URL.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	_, err := x.retry.Do(&retryablehttp.Request{Request: shell.WithContext(x)}) //nolint:bodyclose // bodies are closed in RoundTrip, or handed on as Stream
	switch {
	case x.again: // the sleep before the next attempt ended early; the last answer stays in hand
		x.Fail = &interrupted{cause.Of(ctx), x.last}
	case x.local && x.StatusCode != 0: // the next attempt was not made; likewise
		x.Fail = x.last
	case x.last != nil:
		x.StatusCode, x.Stream, x.Fail = 0, nil, x.last // Header and Body hold what came before the cut
	case x.StatusCode == 0 && err != nil:
		x.Fail = err
	}
	x.Fail = c.clean(call, x.Fail)
	if x.OK() {
		c.budget(call).refund(x.taken)
	}
	return &x.Result
}
