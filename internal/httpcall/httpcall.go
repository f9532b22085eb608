// Package httpcall carries out one call over HTTP: rate limit, token, attempts with time
// limits, retries, redirects, bounded responses, and a report of every exchange. It is
// independent of resources: its callers decide what a result means for a record.
package httpcall

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/redact"
)

// MaxResponse is the largest response of an API call that is read.
const MaxResponse = 32 << 20

// maxErrorBody is the maximum number of bytes of an error response's body that are kept.
const maxErrorBody = 64 << 10

// Config holds the settings that all calls of a client share. It must not change after [New].
type Config struct {
	Client    *http.Client                              // the client that the caller set; never modified; nil if none
	Wrap      func(http.RoundTripper) http.RoundTripper // wraps the transport, for example for tracing; if nil, it is not wrapped
	Origin    *url.URL                                  // the token is sent to this origin only
	Token     func() string                             // returns a token that never changes; a function, so that a dump of Config does not show it; nil if there is none
	Source    func(ctx context.Context) (string, error) // returns the token of an attempt, in place of Token; may block; nil if there is none
	Limiter   interface{ Wait(context.Context) error }  // its Wait is called before every request; nil means no rate limit
	Retry     Policy
	Timeout   time.Duration // limit for one attempt of an API call
	UserAgent string
	Hooks     []func(context.Context, Attempt) // called after each exchange
	Redact    *redact.Redactor
}

// Attempt reports one HTTP exchange.
type Attempt struct {
	Call       uint64
	Method     string
	Route      string
	ID         string
	Host       string
	Number     int
	StatusCode int
	RequestID  string
	Err        error
	Start      time.Time
	Duration   time.Duration
	Retry      bool
	Delay      time.Duration
}

// Call is one operation with all its attempts.
type Call struct {
	Method string
	Route  string // the path with its parameters by name, for errors and hooks
	ID     string // the ID in the path, for errors and hooks; empty if none
	URL    *url.URL
	Header http.Header // Do changes it, so the caller must no longer use it

	Auth   bool         // send the token
	Once   bool         // do not repeat the call if an earlier attempt may have taken effect
	Marks  []string     // texts that all are in a response only if it shows the record that a create has made; nil if not known
	Before func() error // called right before each request is handed to the transport; its error ends the call; if nil, nothing is called

	Body   []byte                        // the request body of an API call
	Source func() (io.ReadCloser, error) // opens the request body of a transfer; called once for each attempt
	Length int64                         // number of bytes of Source

	Transfer bool             // an attempt has no time limit, and redirects to other origins are followed
	Idle     time.Duration    // transfers: longest time in which no byte moves in either direction; 0 means no limit
	Redact   *redact.Redactor // transfers: removes the secrets of the presigned URL as well; if nil, the Redactor of the Caller is used
	Hop      func(*url.URL)   // transfers: called with the address that a redirect leads to; if nil, nothing is called

	MaxAttempts int           // maximum number of attempts; 0 means that of the policy
	Urgent      bool          // do not wait for the rate limiter
	Linger      time.Duration // how long to wait for the response to a request that was sent before ctx ended

	Result Result // Do writes to it, so that the caller can read it after a panic
}

// Result is what is known about a call. While the call runs, Result assumes the worst case, for
// example that an attempt took effect. So it is also right if a panic ends the call.
type Result struct {
	attempt // the latest one

	Attempts int
	NoBudget bool    // the retry budget refused another attempt
	Fail     error   // why there is no complete response, or why the call ended before its next attempt
	sender   *sender // identifies the token that was sent last; nil if none was sent

	// Direct reports that the requests are sent by net/http itself.
	Direct bool
	// Acted reports that an attempt may have taken effect at the service although no response
	// confirmed it: the response was lost or cut off, or was a 408 or a server error.
	Acted bool
	// Lost reports that the response to an attempt with the same token was lost or cut off: the
	// connection failed, or a gateway reported (502, 504) that it got no response.
	Lost bool
}

// OK reports whether there is a complete response with a 2xx status.
func (r *Result) OK() bool { return r.Fail == nil && r.StatusCode/100 == 2 }

// A sender is a token that was sent.
type sender struct {
	token func() string // a function, so that a dump does not show the token
	last  atomic.Pointer[tokenCheck]
}

// tokenCheck is a result of TokenCheck. The latest one is cached, since most calls need the same.
type tokenCheck struct{ msg, sum string }

// TokenCheck returns the first 8 hex digits of HMAC-SHA-256 over msg. The key is the token that
// was sent last. If no token was sent, TokenCheck returns "".
func (r *Result) TokenCheck(msg string) string {
	if r.sender == nil {
		return ""
	}
	if c := r.sender.last.Load(); c != nil && c.msg == msg {
		return c.sum
	}
	mac := hmac.New(sha256.New, []byte(r.sender.token()))
	mac.Write([]byte(msg))
	sum := hex.EncodeToString(mac.Sum(nil)[:4])
	r.sender.last.Store(&tokenCheck{msg, sum})
	return sum
}

// Encoding returns the Content-Encoding of the body, although none was requested, or "" if it has
// none.
func (r *Result) Encoding() string {
	if e := strings.TrimSpace(r.Header.Get("Content-Encoding")); e != "" && len(r.Body) > 0 && !strings.EqualFold(e, "identity") {
		return fmt.Sprintf("the body has the Content-Encoding %q, which was not asked for", e)
	}
	return ""
}

// Caller sends calls. It is safe for concurrent use.
type Caller struct {
	cfg       Config
	api       lane
	transfers lane
	wrapped   http.RoundTripper // the transport that Config.Wrap returned; nil if there are no instruments
	agent     []string          // the User-Agent header of all requests, so nothing may change it
	late      *TimeoutError     // the error of an attempt that takes too long
	calls     atomic.Uint64
	fixed     *sender // identifies Config.Token; nil if there is none
}

// New returns a Caller.
func New(cfg Config) *Caller {
	c := &Caller{
		cfg: cfg, late: &TimeoutError{After: cfg.Timeout}, agent: []string{cfg.UserAgent},
		api:       lane{newTransport(), newBudget(cfg.Retry.Budget)},
		transfers: lane{newTransferTransport(), newBudget(cfg.Retry.Budget)},
	}
	if cfg.Token != nil {
		c.fixed = &sender{token: cfg.Token}
	}
	if cfg.Wrap != nil {
		c.wrapped = cfg.Wrap(restore{})
	}
	return c
}

// CloseIdle closes the connections that no call is using.
func (c *Caller) CloseIdle() {
	c.api.own.CloseIdleConnections()
	c.transfers.own.CloseIdleConnections()
}

// Redactor returns the Redactor of the Config.
func (c *Caller) Redactor() *redact.Redactor { return c.cfg.Redact }

// exchange is the state of one call under way. The contexts of its requests hold it.
type exchange struct {
	*Result
	ctx    context.Context //nolint:containedctx // the context of the caller, which lives as long as the call
	caller *Caller
	call   *Call
	number uint64
	lane   *lane
	base   http.RoundTripper // sends the requests
	via    http.RoundTripper // base, or the wrapper around it
	proof  bool              // a request whose body was not read was not sent
	late   *TimeoutError     // the error of an attempt that takes too long
	client http.Client       // follows redirects, with the Jar of the caller's client
	again  bool              // another attempt will be made, and has not begun
	delay  time.Duration     // the delay before that attempt
	taken  float64           // tokens that the latest retry took from the budget
	report *Attempt          // report of the latest exchange, not yet passed to the hooks
	dials  atomic.Int32      // connections that the attempt under way has opened

	renewed bool // the call was repeated with another token
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// Route returns the route of the call that a request with this context belongs to.
func Route(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.call.Route
	}
	return ""
}

// Do carries out a call and returns what is known about it.
func (c *Caller) Do(ctx context.Context, call *Call) *Result {
	call.Redact = cmp.Or(call.Redact, c.cfg.Redact)
	lane := &c.api
	if call.Transfer {
		lane = &c.transfers
	}
	x := &exchange{Result: &call.Result, ctx: ctx, caller: c, call: call, number: c.calls.Add(1), lane: lane, base: lane.own, late: c.late}
	x.client = http.Client{Transport: c, CheckRedirect: checkRedirect}
	if hc := c.cfg.Client; hc != nil {
		x.use(hc)
	}
	x.via = x.base
	if c.wrapped != nil {
		x.via = instruments{c.wrapped}
	}
	_, x.Direct = x.base.(*http.Transport)
	x.proof = x.Direct && (call.Once || len(call.Body) > 0 || call.Length > 0)
	if call.Header["User-Agent"] == nil {
		call.Header["User-Agent"] = c.agent
	}
	shell := http.Request{
		Method: call.Method, URL: call.URL, Host: call.URL.Host, Header: call.Header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	retry := retryablehttp.Client{
		HTTPClient: &x.client, CheckRetry: checkRetry, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		RetryMax: math.MaxInt, // checkRetry limits the attempts
		PrepareRetry: func(req *http.Request) error {
			req.Header = req.Header.Clone() // a connection may still be using the header of the previous attempt
			req.Header.Del("Cookie")        // the Jar adds the cookies to each attempt
			return nil
		},
		Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return x.delay },
	}
	req := shell.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	_, err := retry.Do(&retryablehttp.Request{Request: req}) //nolint:bodyclose // bodies are closed in send, or returned as Stream
	switch {
	case x.again: // ctx ended before the next attempt; the last response is kept
		err = interrupted(cause.Of(ctx), x.err)
	case x.err != nil || x.StatusCode != 0: // the error of net/http holds the whole address
		err = x.err
	}
	x.Fail = call.Redact.Error(err)
	if x.OK() {
		x.lane.budget.refund(x.taken)
	}
	return x.Result
}

// use applies the settings of the caller's client. They are read for each call, since they may
// change.
func (x *exchange) use(hc *http.Client) {
	x.base = cmp.Or(hc.Transport, x.base)
	if hc.Timeout > 0 && hc.Timeout < x.late.After {
		x.late = &TimeoutError{After: hc.Timeout}
	}
	if x.call.Auth {
		x.client.Jar = hc.Jar
	}
}
