package svc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/chain"
	"example.com/svc/internal/jsonx"
	"example.com/svc/internal/redact"
)

// DefaultTimeout is how long one attempt of an API call may take, unless
// [WithTimeout] says otherwise.
const DefaultTimeout = 30 * time.Second

// Option sets up a client in [NewClient]. A later option wins over an earlier
// one of the same kind.
type Option func(*config) error

type config struct {
	http      chain.Config
	token     func() string // of WithToken; a function, so that no dump of the client shows it
	inference *string
	product   string
	insecure  bool
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

// WithTokenSource sets a function that is asked for the token before every
// attempt of a call: for tokens that are rotated. It must be safe for concurrent
// use, and should keep the token until it is due: nothing is cached here. Its
// error ends the call before anything is sent. The call also ends when ctx does:
// a source that takes no notice of that is left to itself.
func WithTokenSource(src func(ctx context.Context) (string, error)) Option {
	return func(c *config) error {
		if src == nil {
			return errors.New("svc: WithTokenSource: the function is nil")
		}
		c.token, c.http.Token = nil, src
		return nil
	}
}

// WithInferenceURL sets the base of the addresses at which running endpoints are
// reached; /inference-api/v1/inference_service/{service_id} comes behind it. It is
// needed only for [InferenceServiceClient.URL] and [WaitOptions.Probe].
func WithInferenceURL(u string) Option {
	return func(c *config) error { c.inference = &u; return nil }
}

// WithHTTPClient makes the SDK use the transport of hc: proxies and TLS settings
// go in there. It is read at every request and never
// modified. Without a transport in it, the SDK's own pool is used. A transport
// that records addresses belongs into [WithTransportWrapper] instead: here it
// would see, and record, the queries of presigned links. Its Jar is
// used for API calls; its Timeout limits an attempt of an API call when it is
// shorter than [WithTimeout], and never a transfer. Its CheckRedirect is not
// used: where a call may be redirected is this package's business. Nil: as without
// this option.
//
// A transport that is no [http.Transport], a mock for example, is not trusted to
// have sent nothing when it fails: a create through it is never repeated after an
// error, except one of the dialer or of a certificate.
func WithHTTPClient(hc *http.Client) Option {
	return func(c *config) error { c.http.Client = hc; return nil }
}

// WithTransportWrapper puts an instrumented transport, for traces or metrics,
// around the one that the SDK uses: wrap gets that one and returns its own. What
// it wraps sees every exchange, transfers included, but no query of an address:
// instruments tend to record addresses, and the query of a presigned link is a
// key. [RouteFromContext] tells it the route. It must not replace the context of
// a request by an unrelated one. Headers of answers it sees as they come: that of a
// redirect holds an address with its query.
func WithTransportWrapper(wrap func(http.RoundTripper) http.RoundTripper) Option {
	return func(c *config) error { c.http.Wrap = wrap; return nil }
}

// RouteFromContext is the route of the call that a request with this context
// belongs to, such as "/v1/files/{file_id}", or "{presigned_url}" for a transfer:
// for transports that name spans and label metrics. Empty for a request that is not the SDK's.
func RouteFromContext(ctx context.Context) string { return chain.Route(ctx) }

// RetryPolicy says how often a call is tried and how long the delays between
// are. A delay is drawn evenly between MinDelay and a bound that is twice as long at
// first and doubles from attempt to attempt up to MaxDelay. What is retried at all does not depend on
// it; the package comment has the table.
type RetryPolicy struct {
	MaxAttempts int           // including the first; 0: 5; 1: no retries
	MinDelay    time.Duration // 0: 500 ms
	MaxDelay    time.Duration // 0: 30 s, or MinDelay if that is longer; also the longest Retry-After that is waited for
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 5
	}
	if p.MinDelay == 0 {
		p.MinDelay = 500 * time.Millisecond
		if p.MaxDelay != 0 {
			p.MinDelay = min(p.MinDelay, p.MaxDelay)
		}
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(30*time.Second, p.MinDelay)
	}
	return p
}

// WithRetry sets the retry policy.
func WithRetry(p RetryPolicy) Option {
	return func(c *config) error {
		p := p.withDefaults()
		if p.MaxAttempts < 1 || p.MinDelay < 0 || p.MaxDelay < p.MinDelay {
			return errors.New("svc: WithRetry: the numbers must not be negative, nor MaxDelay below MinDelay")
		}
		c.http.Retry = chain.Policy(p)
		return nil
	}
}

// WithTimeout limits one attempt of an API call, from the connection to the last
// byte of the answer. The default is [DefaultTimeout], which 0 stands for. It
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

// WithRateLimiter makes every attempt of every call wait for l first. Nil: no limit.
func WithRateLimiter(l RateLimiter) Option {
	return func(c *config) error { c.http.Limiter = l; return nil }
}

// WithLogger logs every exchange at level debug and every retry at level info,
// with route names and without addresses, bodies and secrets. Nil, the default,
// is silent.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		c.http.Log, c.http.LogRetry = nil, nil
		if l == nil {
			return nil
		}
		c.http.Log = func(ctx context.Context, a chain.Attempt) {
			attrs := []slog.Attr{
				slog.String("method", a.Method), slog.String("route", a.Route), slog.Int("attempt", a.Number),
				slog.Int("status", a.StatusCode), slog.Duration("duration", a.Duration),
			}
			if a.RequestID != "" {
				attrs = append(attrs, slog.String("request_id", a.RequestID))
			}
			if a.Err != nil {
				attrs = append(attrs, slog.String("error", a.Err.Error()))
			}
			l.LogAttrs(ctx, slog.LevelDebug, "svc: exchange", attrs...)
		}
		c.http.LogRetry = func(ctx context.Context, a chain.Attempt, delay time.Duration) {
			l.LogAttrs(ctx, slog.LevelInfo, "svc: trying again",
				slog.String("method", a.Method), slog.String("route", a.Route),
				slog.Int("attempt", a.Number), slog.Duration("delay", delay))
		}
		return nil
	}
}

// Attempt describes one HTTP exchange to the function of [WithAttemptHook].
type Attempt struct {
	Method     string        // "GET"
	Route      string        // "/v1/files/{file_id}", or "{presigned_url}" for a transfer: fit for a label of a metric
	Host       string        // that the request went to
	Number     int           // 1 for a call's first attempt; the hops of a redirect share a number
	StatusCode int           // 0: there was no whole answer, and Err says why
	RequestID  string        // the service's, from the answer's header
	Err        error         // without addresses and secrets
	Start      time.Time     // when the request was handed to the transport
	Duration   time.Duration // from sending to the end of the answer; of a download, to the end of its headers
}

// WithAttemptHook calls f after each HTTP exchange, with the ctx of the call,
// from the goroutine that made it: for metrics and traces. Nil: none.
func WithAttemptHook(f func(context.Context, Attempt)) Option {
	return func(c *config) error {
		c.http.Hook = nil
		if f != nil {
			c.http.Hook = func(ctx context.Context, a chain.Attempt) { f(ctx, Attempt(a)) }
		}
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

// finish completes the configuration when all options are in.
func (c *config) finish(origin *url.URL) {
	c.http.Origin = origin
	c.http.UserAgent = strings.TrimSpace(fmt.Sprintf("%s svc-go/%s (%s; %s/%s)", c.product, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	switch src := c.http.Token; {
	case c.token != nil:
		c.http.Redact = redact.New(c.token())
		bearer := []string{"Bearer " + c.token()}
		c.http.Bearer = func() []string { return bearer }
	case src != nil:
		red := redact.New()
		c.http.Redact = red
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

// cleanToken takes off what surrounds a token. Its errors do not show the text.
func cleanToken(t string) (string, error) {
	t = strings.TrimSpace(t)
	if len(t) >= 7 && strings.EqualFold(t[:7], "Bearer ") {
		t = strings.TrimSpace(t[7:])
	}
	if t == "" || strings.EqualFold(t, "Bearer") {
		return "", fmt.Errorf("%w: the token is empty", ErrNoToken)
	}
	for i := range len(t) {
		if t[i] <= ' ' || t[i] >= 0x7f {
			return "", errors.New("svc: the token holds a space, a control character or a character that is not ASCII")
		}
	}
	return t, nil
}

// tokenFromEnv comes after all other options: the environment counts only where
// none of them brought a token.
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
	set   func(body []byte, path string, value any) ([]byte, error)
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

// name is the name that is sent for what is created.
func (r *request) name(name string) string {
	for _, f := range r.fields {
		if text, ok := f.value.(string); ok && (f.path == "name" || f.path == "file_name") {
			name = text
		}
	}
	return name
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
		r.problems.add(!headerName(key), "header name", "is not one")
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
	return func(r *request) { r.fields = append(r.fields, bodyField{path, value, jsonx.Set}) }
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
