// Package httpcall carries out one call over HTTP: rate limit, token, attempts with time
// limits, retries, redirects, bounded responses, and a report of every exchange. It knows
// nothing of resources. It returns facts, and its callers decide what they mean for a record.
package httpcall

import (
	"context"
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

// maxErrorBody is how much of a failed call's body is kept.
const maxErrorBody = 64 << 10

// Config is what all calls of one client share. Nothing in it changes after
// [New].
type Config struct {
	Client    *http.Client                              // the caller's, or nil; never modified
	Wrap      func(http.RoundTripper) http.RoundTripper // around the transport, for instruments; nil: none
	Origin    *url.URL                                  // where the token may go
	Token     func(ctx context.Context) (string, error) // nil: no token; a function, so that no dump shows it
	Renews    bool                                      // Token may give another token when it is asked again
	Limiter   interface{ Wait(context.Context) error }  // asked before every attempt; nil: none
	Retry     Policy
	Timeout   time.Duration // one attempt of an API call
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

// Call is one operation, however many attempts it takes.
type Call struct {
	Method string
	Route  string // the path with its parameters by name, for texts
	ID     string // in the path, for texts
	URL    *url.URL
	Header http.Header // owned by the call from here on

	Auth   bool         // send the token
	Once   bool         // never repeat it when an earlier attempt may have taken effect
	Before func() error // called right before each attempt is handed to the transport; its error ends the call; nil: none

	Body   []byte                        // what an API call sends
	Source func() (io.ReadCloser, error) // what a transfer sends; opened anew for every attempt
	Length int64                         // of Source

	Transfer bool             // no limit on an attempt's time, and redirects as for media and storage
	Idle     time.Duration    // of a transfer: longest time without a byte in either direction; 0: no limit
	Redact   *redact.Redactor // of a transfer: knows the secrets of its link too; nil: that of the Caller
	Hop      func(*url.URL)   // of a transfer: told where a redirect leads to; nil: no need

	MaxAttempts int           // 0: as the policy says
	Linger      time.Duration // how long a response is awaited after ctx has ended, when the request was sent

	Result *Result // filled in place, so that it can be read after a panic; nil: Do makes one
}

// Result is what is known of a call. While the call runs, Result assumes the worst case, for
// example that an attempt took effect. So it is also right if a panic ends the call.
type Result struct {
	StatusCode int // 0: no (whole) response, Fail says why
	Broken     int // the status of a successful response that was cut off
	Header     http.Header
	Body       []byte
	Cut        bool           // Body is only the beginning
	Stream     *http.Response // a transfer's successful response, its body unread

	Attempts   int
	RetryAfter time.Duration // what the last response asked for
	NoBudget   bool          // the retry budget refused another attempt
	Fail       error         // why there is no (whole) response

	// Sent says that an attempt was handed to the transport.
	Sent bool
	// Acted says that an attempt may have taken effect at the service although
	// its response did not say so: lost, cut off, or a server error.
	Acted bool
	// Lost says that an attempt's response was lost: the connection failed, or a
	// gateway says that it got none.
	Lost bool
}

// OK reports whether the service said that the call succeeded.
func (r *Result) OK() bool { return r.Fail == nil && r.StatusCode >= 200 && r.StatusCode < 300 }

// Encoding says that the body still has a Content-Encoding, which was not asked for; empty:
// it has none.
func (r *Result) Encoding() string {
	if e := strings.TrimSpace(r.Header.Get("Content-Encoding")); e != "" && len(r.Body) > 0 && !strings.EqualFold(e, "identity") {
		return fmt.Sprintf("the body has the Content-Encoding %q, which was not asked for", e)
	}
	return ""
}

// Caller sends calls. It is safe for concurrent use.
type Caller struct {
	cfg     Config
	own     map[bool]*http.Transport // for API calls; true: for transfers
	wrapped http.RoundTripper        // around all transports, for instruments; nil: there are none
	budgets map[bool]*budget         // likewise: an outage of storage does not use up that of API calls
	late    *TimeoutError            // what an attempt that takes too long ends with
	calls   atomic.Uint64
}

// New makes a Caller.
func New(cfg Config) *Caller {
	c := &Caller{cfg: cfg, late: &TimeoutError{After: cfg.Timeout}, own: map[bool]*http.Transport{false: newTransport(), true: newTransferTransport()}}
	c.budgets = map[bool]*budget{false: newBudget(cfg.Retry.Budget), true: newBudget(cfg.Retry.Budget)}
	if cfg.Wrap != nil {
		c.wrapped = cfg.Wrap(restore{c})
	}
	return c
}

// CloseIdle closes the connections that no call is using.
func (c *Caller) CloseIdle() {
	for _, t := range c.own {
		t.CloseIdleConnections()
	}
}

// Redactor is that of the Config.
func (c *Caller) Redactor() *redact.Redactor { return c.cfg.Redact }

// exchange is one call under way. The contexts of its requests lead to it.
type exchange struct {
	*Result
	ctx    context.Context //nolint:containedctx // the caller's: it lives as long as the call
	caller *Caller
	call   *Call
	number uint64
	client http.Client   // follows redirects, with the Jar of the caller's client
	last   error         // of the latest attempt, when it has no response
	local  bool          // last came from this side, before anything was sent
	unsent bool          // last certainly came before anything was sent
	again  bool          // there is to be another attempt, and it has not begun
	delay  time.Duration // before it
	taken  float64       // from the retry budget, for the latest retry
	report *Attempt      // of the latest exchange, not told yet
	dials  atomic.Int32  // of the attempt under way

	token   func() string // that was sent last; a function, so that no dump shows it
	renewed bool          // the call was repeated with another token
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// Route is the route of the call that a request with this context belongs to.
func Route(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.call.Route
	}
	return ""
}

// Do carries out a call and says how it went.
func (c *Caller) Do(ctx context.Context, call *Call) *Result {
	if call.Redact == nil {
		call.Redact = c.cfg.Redact
	}
	if call.Result == nil {
		call.Result = new(Result)
	}
	x := &exchange{Result: call.Result, ctx: ctx, caller: c, call: call, number: c.calls.Add(1)}
	if c.cfg.UserAgent != "" && call.Header["User-Agent"] == nil {
		call.Header["User-Agent"] = []string{c.cfg.UserAgent}
	}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, exchangeKey{}, x), call.Method, "", nil)
	if err == nil {
		req.URL, req.Host, req.Header = call.URL, call.URL.Host, call.Header
		x.client = http.Client{Transport: c, CheckRedirect: checkRedirect}
		if c.cfg.Client != nil && call.Auth {
			x.client.Jar = c.cfg.Client.Jar
		}
		retry := retryablehttp.Client{
			HTTPClient: &x.client, CheckRetry: checkRetry, ErrorHandler: retryablehttp.PassthroughErrorHandler,
			RetryMax: math.MaxInt, // the number of attempts is up to the policy
			PrepareRetry: func(req *http.Request) error {
				req.Header = req.Header.Clone() // a connection may still be using those of the attempt before
				req.Header.Del("Cookie")        // the Jar adds them to each attempt
				return nil
			},
			Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return x.delay },
		}
		_, err = retry.Do(&retryablehttp.Request{Request: req}) //nolint:bodyclose // bodies are closed in RoundTrip, or returned as Stream
	}
	switch {
	case x.again: // ctx ended before the next attempt; the last response is kept
		x.Fail = interrupted(cause.Of(ctx), x.last)
	case x.local && x.StatusCode != 0: // the next attempt was refused on this side; likewise
		x.Fail = x.last
	case x.last != nil:
		x.StatusCode, x.Stream, x.Fail = 0, nil, x.last // Header and Body hold what came before the cut
	case x.StatusCode == 0 && err != nil:
		x.Fail = err
	}
	x.Fail = call.Redact.Error(x.Fail)
	if x.OK() {
		c.budgets[call.Transfer].refund(x.taken)
	}
	return x.Result
}
