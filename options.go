package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/redact"
)

// DefaultTimeout is how long one attempt of an API call may take, unless
// [WithTimeout] says otherwise.
const DefaultTimeout = 30 * time.Second

// Option sets up a client in [NewClient]. A later option wins over an earlier
// one of the same kind.
type Option func(*config) error

type config struct {
	http      httpcall.Config
	token     func() string // of WithToken; a function, so that no dump of the client shows it
	inference *string
	product   string
	insecure  bool
	header    http.Header // of every call
	hook      func(context.Context, httpcall.Attempt)
	logger    func(context.Context, httpcall.Attempt)
	ledger    LedgerStore // nil: none
	unmarked  bool        // of WithoutLedgerMark
	log       *slog.Logger
}

// WithToken sets the API token that every call but the public file list sends.
// White space around it and a leading "Bearer " are dropped. An empty token, and
// one with inner spaces, control or non-ASCII characters, is an error.
func WithToken(token string) Option {
	return func(c *config) error {
		t, err := cleanToken(token)
		if err != nil {
			return err
		}
		c.token = func() string { return t }
		c.http.Token = func(context.Context) (string, error) { return t, nil }
		return nil
	}
}

// WithTokenSource sets a function that is called for the token before every attempt of a
// call: for tokens that are rotated. It must be safe for concurrent use, and must return
// when its ctx ends. The SDK does not cache the token, so the function should. Its error
// ends the call before anything is sent.
//
// When the service does not accept a token (401), the function is called again. If it
// returns another token, the attempt is repeated once with that.
func WithTokenSource(src func(ctx context.Context) (string, error)) Option {
	return func(c *config) error {
		if src == nil {
			return errors.New("svc: WithTokenSource: the function is nil")
		}
		c.token, c.http.Token = nil, src
		return nil
	}
}

// WithInferenceURL sets the base URL of running endpoints. The SDK appends
// /inference-api/v1/inference_service/{service_id}. Only [InferenceServiceClient.URL] and
// [WaitOptions.Probe] need it.
func WithInferenceURL(u string) Option {
	return func(c *config) error { c.inference = &u; return nil }
}

// WithHTTPClient makes the SDK use the transport of hc, for proxies and TLS settings. It
// is read at every request and never modified. Without a transport in it, the SDK's own
// pool is used. Give a transport that records addresses to [WithTransportWrapper]
// instead: here it would see the queries of presigned URLs. The Jar of hc is used for API
// calls. Its Timeout limits an attempt of an API call if it is shorter than [WithTimeout],
// and never a transfer. Its CheckRedirect is not used. Nil: as without this option.
//
// A transport of your own should find dead connections, as the SDK's own does: set
// [http.Transport.HTTP2] with a SendPingTimeout and a PingTimeout of some seconds, and
// IdleConnTimeout. Otherwise a connection that went silent is used until an attempt times out.
//
// Only an [http.Transport] is trusted to have sent nothing when it fails. Through any other
// transport, a mock for example, a create is never repeated after an error, except one of
// the dialer or of a certificate.
func WithHTTPClient(hc *http.Client) Option {
	return func(c *config) error { c.http.Client = hc; return nil }
}

// WithTransportWrapper puts an instrumented transport, for traces or metrics, around the
// transport of the SDK: wrap gets that one and returns its own. The wrapper sees every
// exchange, also those of transfers, but no query of an address: instruments tend to record
// addresses, and the query of a presigned URL is a secret. It sees the headers of responses
// unchanged, so the Location of a redirect holds an address with its query.
// [RouteFromContext] tells it the route. It must not replace the context of a request by an
// unrelated one.
func WithTransportWrapper(wrap func(http.RoundTripper) http.RoundTripper) Option {
	return func(c *config) error { c.http.Wrap = wrap; return nil }
}

// RouteFromContext returns the route of the call that a request belongs to, from the context
// of the request: "/v1/files/{file_id}", or "{presigned_url}" for a transfer. It is meant for
// transports that name spans and label metrics. Empty for a request that is not the SDK's.
func RouteFromContext(ctx context.Context) string { return httpcall.Route(ctx) }

// RetryPolicy says how often a call is tried and how long the delays between attempts
// are. A delay is random, between MinDelay and a bound that is twice MinDelay at first and
// doubles from attempt to attempt up to MaxDelay. What is retried at all does not depend on
// the policy; the package comment has the table.
type RetryPolicy struct {
	MaxAttempts int           // including the first; 0: 5; 1: no retries
	MinDelay    time.Duration // 0: 500 ms
	MaxDelay    time.Duration // 0: 30 s, or MinDelay if that is longer; also the longest Retry-After that is respected

	// Budget limits the retries of all calls of the client together, so that many callers
	// do not overload a service that is down. A retry takes 1 from the budget. After a
	// timeout it takes 2, and after a request that was certainly not sent nothing. A retry
	// that leads to success gives back what it took. A success without a retry gives back
	// 0.2. An empty budget is full again after 10 minutes. When it is used up, a call ends
	// with its failed attempt, and the error says so (NoBudget). Uploads and downloads have a
	// second budget of the same size. 0: 100. Negative: no limit.
	Budget int
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 5)
	if p.MinDelay == 0 {
		p.MinDelay = 500 * time.Millisecond
		if p.MaxDelay != 0 {
			p.MinDelay = min(p.MinDelay, p.MaxDelay)
		}
	}
	p.MaxDelay = cmp.Or(p.MaxDelay, max(30*time.Second, p.MinDelay))
	p.Budget = cmp.Or(p.Budget, 100)
	return p
}

// WithRetry sets the retry policy.
func WithRetry(p RetryPolicy) Option {
	return func(c *config) error {
		p := p.withDefaults()
		if p.MaxAttempts < 1 || p.MinDelay < 0 || p.MaxDelay < p.MinDelay {
			return errors.New("svc: WithRetry: attempts and delays must not be negative, nor MaxDelay below MinDelay")
		}
		c.http.Retry = httpcall.Policy(p)
		return nil
	}
}

// WithTimeout limits one attempt of an API call, from the connection to the last
// byte of the response. The default is [DefaultTimeout], which 0 stands for. It
// never limits an upload or a download, and the call as a whole is limited by
// its ctx alone.
func WithTimeout(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return errors.New("svc: WithTimeout: the duration is negative")
		}
		if d == 0 {
			d = DefaultTimeout
		}
		c.http.Timeout = d
		return nil
	}
}

// RateLimiter holds calls back. [golang.org/x/time/rate.Limiter] is one.
type RateLimiter interface {
	// Wait returns when one more attempt may be made, or with an error, which
	// ends the call before anything is sent.
	Wait(ctx context.Context) error
}

// WithRateLimiter makes every attempt of every call wait for l before it is sent. Nil: no
// limit.
func WithRateLimiter(l RateLimiter) Option {
	return func(c *config) error { c.http.Limiter = l; return nil }
}

// WithLogger logs every exchange at level debug, and at level info if a retry follows. A
// line holds the route, and no address, body or secret. What could not be recorded in the
// ledger is logged at level warn, unless an error says so. A Deploy that waits for another
// create under its key logs that at level info. Nil, the default, logs nothing.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		c.logger, c.log = nil, l
		if l == nil {
			return nil
		}
		c.logger = func(ctx context.Context, a httpcall.Attempt) {
			level, text := slog.LevelDebug, "svc: exchange"
			attrs := []slog.Attr{
				slog.String("method", a.Method), slog.String("route", a.Route), slog.Uint64("call", a.Call), slog.Int("attempt", a.Number),
				slog.Int("status", a.StatusCode), slog.Duration("duration", a.Duration),
			}
			if a.ID != "" {
				attrs = append(attrs, slog.String("id", a.ID))
			}
			if a.RequestID != "" {
				attrs = append(attrs, slog.String("request_id", a.RequestID))
			}
			if a.Err != nil {
				attrs = append(attrs, slog.String("error", a.Err.Error()))
			}
			if a.Retry {
				level, text = slog.LevelInfo, "svc: trying again"
				attrs = append(attrs, slog.Duration("delay", a.Delay))
			}
			l.LogAttrs(ctx, level, text, attrs...)
		}
		return nil
	}
}

// Attempt describes one HTTP exchange to the function of [WithAttemptHook].
type Attempt struct {
	Call       uint64        // number of the call that the exchange belongs to, unique in its client
	Method     string        // "GET"
	Route      string        // "/v1/files/{file_id}", or "{presigned_url}" for a transfer: fit for a label of a metric
	ID         string        // of the record, as it stood in the path; empty for a call without one
	Host       string        // that the request was sent to
	Number     int           // 1 for a call's first attempt; the hops of a redirect share a number
	StatusCode int           // 0: there was no whole response, and Err says why
	RequestID  string        // the service's, from the response's header; may be empty
	Err        error         // without addresses and secrets; nil: there was a response
	Start      time.Time     // when the request was handed to the transport
	Duration   time.Duration // from sending to the end of the response; of a download, to the end of its headers
	Retry      bool          // the call will be tried again, unless ctx ends
	Delay      time.Duration // before the next attempt; 0: none
}

// WithAttemptHook calls f after each HTTP exchange, with the ctx of the call,
// from the goroutine that made it: for metrics and traces. The last exchange of a call is
// the one without Retry that no redirect follows. Nil: none.
func WithAttemptHook(f func(context.Context, Attempt)) Option {
	return func(c *config) error {
		c.hook = nil
		if f != nil {
			c.hook = func(ctx context.Context, a httpcall.Attempt) { f(ctx, Attempt(a)) }
		}
		return nil
	}
}

// WithDefaultHeader sets a header of every call of the API. [WithHeader] of a single
// call wins over it. It is not sent to storage. The same headers are refused as by WithHeader.
func WithDefaultHeader(key, value string) Option {
	return func(c *config) error {
		var r request
		WithHeader(key, value)(&r)
		if err := r.problems.err(); err != nil {
			return fmt.Errorf("svc: WithDefaultHeader: %s", strings.TrimPrefix(detail(err), "not sent: "))
		}
		if c.header == nil {
			c.header = make(http.Header)
		}
		maps.Copy(c.header, r.header)
		return nil
	}
}

// WithUserAgent puts a product, such as "mytool/1.2", before the SDK's own name
// in the User-Agent header.
func WithUserAgent(product string) Option {
	return func(c *config) error {
		product := strings.TrimSpace(product)
		if !headerValue(product) {
			return errors.New("svc: WithUserAgent: not a header value")
		}
		c.product = product
		return nil
	}
}

// WithInsecureHTTP allows a base URL with plain http to a host that is not this
// machine. The token then goes over the network in the clear.
func WithInsecureHTTP() Option {
	return func(c *config) error { c.insecure = true; return nil }
}

// finish completes the configuration after all options were applied.
func (c *config) finish(origin *url.URL) {
	c.http.Origin = origin
	c.http.UserAgent = strings.TrimSpace(fmt.Sprintf("%s svc-go/%s (%s; %s/%s)", c.product, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	for _, hook := range []func(context.Context, httpcall.Attempt){c.hook, c.logger} {
		if hook != nil {
			c.http.Hooks = append(c.http.Hooks, hook)
		}
	}
	src := c.http.Token
	switch {
	case c.token != nil:
		c.http.Redact = redact.New(c.token())
	case src != nil:
		red := redact.New()
		c.http.Redact, c.http.Renews = red, true
		c.http.Token = func(ctx context.Context) (string, error) {
			t, err := src(ctx)
			red.Add(strings.TrimSpace(t)) // an error may quote it
			if err != nil {
				return "", err
			}
			if t, err = cleanToken(t); err != nil {
				return "", err
			}
			red.Add(t)
			return t, nil
		}
	default:
		c.http.Redact = redact.New()
	}
}

// placeholder matches texts that are no token: a text in quotes, the name of a variable,
// <your-token>, changeme, xxxx, tok-***, sk-1...f.
var placeholder = regexp.MustCompile("(?i)^[\"'`]|[\"'`]$|^<.*>$|^\\$\\w+$|^\\$?[{(\\[].*[})\\]]$|^%.*%$" +
	`|\*\*\*|\.\.\.|^x{4,}$|^(svc[-_])?api[-_]?(token|key)$|^(change|replace)[-_]?me$|^placeholder$|^your[a-z_-]*(token|key|secret)[a-z_-]*$`)

// cleanToken trims white space and "Bearer ", and checks the rest. Its errors do not show
// the token.
func cleanToken(t string) (string, error) {
	t = strings.TrimSpace(t)
	if len(t) >= 7 && strings.EqualFold(t[:7], "Bearer ") {
		t = strings.TrimSpace(t[7:])
	}
	switch {
	case t == "" || strings.EqualFold(t, "Bearer"):
		return "", fmt.Errorf("%w: the token is empty", ErrNoToken)
	case placeholder.MatchString(t):
		return "", errors.New("svc: the token is in quotes, or it is an example or a masked copy of a token")
	}
	if strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("svc: the token holds a space, a control character or a character that is not ASCII")
	}
	return t, nil
}

// tokenFromEnv is applied after all other options, and only if none of them set a token.
func tokenFromEnv(c *config) error {
	if c.http.Token != nil {
		return nil
	}
	t := os.Getenv("SVC_API_TOKEN")
	if t == "" {
		return fmt.Errorf("%w: SVC_API_TOKEN is not set", ErrNoToken)
	}
	if err := WithToken(t)(c); err != nil {
		return fmt.Errorf("svc: SVC_API_TOKEN: %w", err)
	}
	return nil
}

// RequestOption changes one call. Every method that makes a single call takes
// them last; those that make several have options of their own.
type RequestOption func(*request)

type bodyField struct {
	path  string
	value any
}

type request struct {
	header   http.Header
	query    url.Values
	fields   []bodyField
	attempts int
	response *Response
	problems problems
}

// has reports whether a field of the body is set by an option; "" stands for any.
func (r *request) has(path string) bool {
	return slices.ContainsFunc(r.fields, func(f bodyField) bool { return path == "" || f.path == path })
}

// WithHeader sets a header of the request. It replaces what the SDK would send;
// for Authorization, Cookie and the headers that frame a message it is an error.
func WithHeader(key, value string) RequestOption {
	return func(r *request) {
		name := http.CanonicalHeaderKey(key)
		switch name {
		case "Authorization", "Cookie":
			r.problems.add(true, "header "+name, "cannot be set here: the token belongs in WithToken, cookies in the Jar of WithHTTPClient")
			return
		case "Idempotency-Key", "X-Idempotency-Key":
			r.problems.add(true, "header "+name, "cannot be set: it makes net/http repeat a create, and the service knows no such key")
			return
		case "Content-Length", "Transfer-Encoding", "Connection", "Host", "Trailer", "Te", "Upgrade", "Accept-Encoding", "Expect":
			r.problems.add(true, "header "+name, "cannot be set: it belongs to the transport")
			return
		}
		r.problems.add(!headerName(key), "header name", "is not valid") // not shown, since it may be a secret
		r.problems.add(!headerValue(value), "header "+name, "has a value that cannot be sent")
		if r.header == nil {
			r.header = make(http.Header)
		}
		r.header[name] = []string{value}
	}
}

// WithQuery sets a parameter of the query.
func WithQuery(key, value string) RequestOption {
	return func(r *request) {
		if r.query == nil {
			r.query = make(url.Values)
		}
		r.query[key] = []string{value}
	}
}

// WithBodyField sets a field of the JSON body that the request type does not
// have: "config.new_option" is the field new_option of the object config, which
// is made if need be. The value is written as JSON. For a call without a body it
// is an error.
func WithBodyField(path string, value any) RequestOption {
	return func(r *request) { r.fields = append(r.fields, bodyField{path, value}) }
}

// WithMaxAttempts sets how often this call is tried, in place of
// [RetryPolicy].MaxAttempts. 1: no retries. Less is an error.
func WithMaxAttempts(n int) RequestOption {
	return func(r *request) {
		r.problems.add(n < 1, "WithMaxAttempts", "must be 1 or more")
		r.attempts = n
	}
}

// WithResponse fills dst with what was received, also when the call fails.
func WithResponse(dst *Response) RequestOption {
	return func(r *request) { r.response = dst }
}

// asRead makes the options of a call those of a poll: one attempt, and no body.
func asRead(opts []RequestOption) []RequestOption {
	return append(slices.Clip(opts), func(r *request) { r.fields, r.attempts = nil, 1 })
}
