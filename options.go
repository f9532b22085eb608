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
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/redact"
	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
)

// DefaultTimeout is how long one attempt of an API call may take, unless [WithTimeout] is
// used.
const DefaultTimeout = 30 * time.Second

// Option configures a client in [NewClient]. If two options set the same thing, the later
// option takes effect. But all functions of [WithAttemptHook], [WithCallHook],
// [WithCallContext], [WithWaitHook] and [WithTransportWrapper] are called.
type Option func(*config) error

type config struct {
	http      httpcall.Config
	hasToken  bool
	inference *string
	product   string
	insecure  bool
	header    http.Header // headers of WithDefaultHeader
	hooks     hooks
	ledger    ledger.Store // store of the ledger; nil if there is no ledger
	unmarked  bool         // WithoutLedgerMark was given
	log       *slog.Logger
}

// WithToken sets the API token. Every API call sends it, except [FileClient.ListPublic].
// White space around the token and a leading "Bearer " are removed. It is an error if the
// token is then empty, is in quotes, looks like an example or a masked copy of a token, or
// holds a space, a control character or a character that is not ASCII.
func WithToken(token string) Option {
	return func(c *config) error {
		t, err := cleanToken(token)
		if err != nil {
			return err
		}
		c.http.Token, c.http.Source, c.hasToken = func() string { return t }, nil, true
		return nil
	}
}

// WithTokenSource sets a function that returns the token, for example for tokens that are
// rotated. It is called before every attempt of a call. It must be safe for concurrent use,
// and must return when its ctx ends: its time counts toward the limit of the attempt
// ([WithTimeout]). The client does not cache the token, so the function should cache it. If
// the function fails, the attempt is not sent, and the call ends.
//
// If the service does not accept the token (401), the function is called again. If it then
// returns a different token, the call makes one more attempt with the new token.
func WithTokenSource(src func(ctx context.Context) (string, error)) Option {
	return func(c *config) error {
		if src == nil {
			return errors.New("svc: WithTokenSource: the function is nil")
		}
		c.http.Token, c.http.Source, c.hasToken = nil, src, true
		return nil
	}
}

// WithInferenceURL sets the base URL of running endpoints. The client appends
// /inference-api/v1/inference_service/{service_id}. Only [InferenceServiceClient.URL] and
// [WaitOptions.Probe] need it.
func WithInferenceURL(u string) Option {
	return func(c *config) error { c.inference = &u; return nil }
}

// WithHTTPClient makes the client use the Transport of hc, for example for proxies and TLS
// settings. If the Transport or hc is nil, the client uses its own transports. It reads hc at
// every request and never modifies it. For a transport that records URLs, use
// [WithTransportWrapper] instead: here it would see the queries of presigned URLs. The Jar of hc
// is used for API calls that send the token. The Timeout of hc limits an attempt of an API call if
// it is shorter than [WithTimeout]; it never limits a transfer. The CheckRedirect of hc is not
// used.
//
// Your transport should detect dead connections, as the client's own transports do: set
// IdleConnTimeout to 9 s, and in [http.Transport.HTTP2] SendPingTimeout to 13 s and PingTimeout to
// 10 s. Without pings, a dead connection is used until an attempt times out. With shorter
// intervals, some servers close a connection during a slow create.
//
// The Read of a response body must return when the context of the request ends, as in net/http.
// Otherwise a call waits until the Read returns.
//
// Only an [http.Transport] can prove that a failed create was not sent. With any other transport,
// such as a mock, a create is not repeated after an error. The exceptions are errors before the
// connection was ready, such as a DNS or certificate error.
//
// The transport must not repeat requests by itself, since it would create twice: use [WithRetry]
// instead. The transport of go-retryablehttp is refused. Others cannot be recognized.
func WithHTTPClient(hc *http.Client) Option {
	return func(c *config) error {
		if _, repeats := orZero(hc).Transport.(*retryablehttp.RoundTripper); repeats {
			return errors.New("svc: WithHTTPClient: the client repeats requests by itself, so it could create an endpoint twice: use the HTTPClient of the retryablehttp.Client, and WithRetry")
		}
		c.http.Client = hc
		return nil
	}
}

// WithTransportWrapper puts your transport, for traces or metrics, around the transport of the
// client: wrap gets the client's transport and returns yours. Your transport sees every HTTP
// exchange, including those of transfers. It sees the URLs without their queries, since the
// query of a presigned URL is a secret that must not be recorded. It sees the headers of
// responses unchanged, so the Location of a redirect still has its query. [RouteFromContext]
// returns the route of a request. Your transport may derive a new context from the context of a
// request, but must not replace it by an unrelated context. A later WithTransportWrapper wraps
// the transport of an earlier one.
func WithTransportWrapper(wrap func(http.RoundTripper) http.RoundTripper) Option {
	return func(c *config) error {
		switch inner := c.http.Wrap; {
		case wrap == nil:
		case inner == nil:
			c.http.Wrap = wrap
		default:
			c.http.Wrap = func(rt http.RoundTripper) http.RoundTripper { return wrap(inner(rt)) }
		}
		return nil
	}
}

// RouteFromContext returns the route of a call of this package, such as "/v1/files/{file_id}", or
// "{presigned_url}" for a transfer. For [Client.Do] it is the whole path, with its IDs. ctx is
// the context of a request that the call made. RouteFromContext is meant for transports that
// name spans and label metrics. If this package did not make the request, the result is empty.
func RouteFromContext(ctx context.Context) string { return httpcall.Route(ctx) }

// RetryPolicy controls how many attempts a call makes and how long the delays between them are.
// Each delay is random, between MinDelay and a bound. The bound is twice MinDelay at first,
// and doubles with each attempt up to MaxDelay. The policy does not decide which failures
// are retried: see the table in the package comment.
type RetryPolicy struct {
	MaxAttempts int           // number of attempts, including the first; 0 means 5 attempts; 1 means no retries
	MinDelay    time.Duration // shortest delay; 0 means 500 ms, or MaxDelay if that is set and shorter
	MaxDelay    time.Duration // longest delay, and longest Retry-After that is respected; 0 means 30 s, or MinDelay if that is longer

	// Budget limits the retries of all calls of the client together, so that many callers do
	// not overload a service that is down. A retry takes 1 from the budget, or 2 after a
	// timeout. It takes nothing after a request that is known not to have been sent. A call
	// that succeeds gives back what its last retry took, but at least 0.2. An empty budget is
	// full again after 10 minutes. If the budget is used up, a call is not retried, and the
	// field NoBudget of its error is true. Uploads and downloads have a second budget of the
	// same size. 0 means a budget of 100. A negative value means no limit.
	Budget int
}

// WithRetry sets the retry policy.
func WithRetry(p RetryPolicy) Option {
	return func(c *config) error {
		if c.http.Retry = httpcall.Policy(p).WithDefaults(); !c.http.Retry.Valid() {
			return errors.New("svc: WithRetry: MaxAttempts and the delays must not be negative, and MaxDelay must not be less than MinDelay")
		}
		return nil
	}
}

// WithTimeout limits the time of one attempt of an API call, from the call of the token source to the
// last byte of the response. 0 means [DefaultTimeout]. The timeout does not limit a call as a whole:
// only ctx does. It does not limit uploads and downloads.
func WithTimeout(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return errors.New("svc: WithTimeout: the duration is negative")
		}
		c.http.Timeout = cmp.Or(d, DefaultTimeout)
		return nil
	}
}

// RateLimiter delays attempts. A [golang.org/x/time/rate.Limiter] is a RateLimiter.
type RateLimiter interface {
	// Wait returns nil as soon as one more attempt may be sent. It may take as long as ctx
	// allows. If it returns an error, the attempt is not sent, and the call ends. If a
	// [golang.org/x/time/rate.Limiter] refuses because the deadline of ctx is too near, the
	// error of the call matches [context.DeadlineExceeded].
	Wait(ctx context.Context) error
}

// WithRateLimiter makes every attempt of every call wait for l before it is sent. If l is nil, there
// is no rate limit. These requests do not wait, since they lower the bill: those of a cleanup, of
// DeleteAndWait and of [Ledger.Reap], a scale to 0 instances, and with a ledger a scale to fewer. The
// ledger does not wait either when it reads the service's time.
func WithRateLimiter(l RateLimiter) Option {
	return func(c *config) error { c.http.Limiter = l; return nil }
}

// WithDefaultHeader sets a header of every API call. It is not sent to storage. [WithHeader] of
// a single call replaces it. If WithHeader would refuse the header, [NewClient] returns an
// error.
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

// WithUserAgent puts a product, such as "mytool/1.2", before the name of this package
// in the User-Agent header.
func WithUserAgent(product string) Option {
	return func(c *config) error {
		if c.product = strings.TrimSpace(product); !valid.HeaderValue(c.product) {
			return errors.New("svc: WithUserAgent: the product has a character that a header cannot hold")
		}
		return nil
	}
}

// WithInsecureHTTP allows a base URL with plain http to a host that is not this
// machine. Everyone on the network can then read the token.
func WithInsecureHTTP() Option {
	return func(c *config) error { c.insecure = true; return nil }
}

// finish completes the configuration after all options were applied.
func (c *config) finish(origin *url.URL) {
	c.http.Origin = origin
	c.http.UserAgent = strings.TrimSpace(fmt.Sprintf("%s svc-go/%s (%s; %s/%s)", c.product, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	if c.log != nil {
		c.http.Hooks = append(c.http.Hooks, httpcall.LogTo(c.log))
	}
	red := redact.New()
	if c.http.Token != nil {
		red = redact.New(c.http.Token())
	}
	c.http.Redact = red
	if src := c.http.Source; src != nil {
		c.http.Source = func(ctx context.Context) (string, error) {
			t, err := src(ctx)
			t, problem := cleanToken(t)
			red.Add(t) // even if err is set, since it may quote the token
			return t, cmp.Or(err, problem)
		}
	}
}

// cleanToken returns the token in text, even if it is not valid. The error does not show it.
func cleanToken(text string) (string, error) {
	token, problem := valid.Token(text)
	switch {
	case token == "":
		return "", fmt.Errorf("%w: the token is empty", ErrNoToken)
	case problem != "":
		return token, errors.New("svc: the token " + problem)
	}
	return token, nil
}

// tokenFromEnv is an Option that sets the token of SVC_API_TOKEN. It must come after all other
// options, since it does nothing if one of them has set a token.
func tokenFromEnv(c *config) error {
	if c.hasToken {
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

// RequestOption changes one call. Every method that makes a single call takes RequestOptions
// as its last arguments. Methods that make several calls have option structs instead.
type RequestOption func(*request)

type request struct {
	header   http.Header
	query    url.Values
	fields   []jsonfield.Field
	attempts int
	urgent   bool // skip the rate limiter: see [urgent]
	wait     bool // see [polling]
	response *Response
	problems problems
}

// has reports whether an option sets the body field at path. If path is empty, has reports
// whether an option sets any body field.
func (r *request) has(path string) bool {
	return slices.ContainsFunc(r.fields, func(f jsonfield.Field) bool { return path == "" || f.Path == path })
}

// WithHeader sets a header of the request. It replaces the value that the client would send. It
// is an error for Authorization, Cookie, Idempotency-Key, and headers that the transport sets.
func WithHeader(key, value string) RequestOption {
	return func(r *request) {
		name := http.CanonicalHeaderKey(key)
		switch name {
		case "Authorization", "Cookie":
			r.problems.add(true, "header "+name, "cannot be set here: the token belongs in WithToken, cookies in the Jar of WithHTTPClient")
			return
		case "Idempotency-Key", "X-Idempotency-Key":
			r.problems.add(true, "header "+name, "cannot be set: net/http would repeat a create with it, and the service does not support it")
			return
		case "Content-Length", "Transfer-Encoding", "Connection", "Host", "Trailer", "Te", "Upgrade", "Accept-Encoding", "Expect":
			r.problems.add(true, "header "+name, "cannot be set: the HTTP transport sets it")
			return
		}
		r.problems.add(!valid.HeaderName(key), "header name", "is not valid") // the error does not show the name, since it may be a secret
		r.problems.add(!valid.HeaderValue(value), "header "+name, "has a value that cannot be sent")
		if r.header == nil {
			r.header = make(http.Header)
		}
		r.header[name] = []string{value}
	}
}

// WithQuery sets a query parameter. It replaces the value that the client would send.
func WithQuery(key, value string) RequestOption {
	return func(r *request) {
		if r.query == nil {
			r.query = make(url.Values)
		}
		r.query[key] = []string{value}
	}
}

// WithBodyField sets a field of the JSON body, for fields that the request type does not have.
// "config.new_option" is the field new_option of the object config. If the body has no such
// object, it is created. The value is encoded as JSON. If the call cannot have a body, such as
// a Get, WithBodyField is an error.
func WithBodyField(path string, value any) RequestOption {
	return func(r *request) { r.fields = append(r.fields, jsonfield.Field{Path: path, Value: value}) }
}

// WithMaxAttempts sets the number of attempts of this call, instead of the MaxAttempts of
// [RetryPolicy]. 1 means no retries. A number below 1 is an error.
func WithMaxAttempts(n int) RequestOption {
	return func(r *request) {
		r.problems.add(n < 1, "WithMaxAttempts", "must be 1 or more")
		r.attempts = n
	}
}

// WithResponse stores the response in dst as it was received, even if the call fails.
func WithResponse(dst *Response) RequestOption {
	return func(r *request) { r.response = dst }
}

// polling adapts the options of a call for the requests of a wait or cleanup: one attempt, no
// body fields, and no cached response.
func polling(opts []RequestOption) []RequestOption {
	return append(slices.Clip(opts), WithHeader("Cache-Control", "no-cache"), func(r *request) { r.fields, r.attempts, r.wait = nil, 1, true })
}

// urgent makes a call skip the rate limiter, since it lowers the bill.
func urgent(r *request) { r.urgent = true }
