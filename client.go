package svc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"

	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/known"
	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
)

// Version is the version of this package. It is part of the User-Agent header.
const Version = "0.1.0"

// A Client calls the service. It has one field for each group of resources. It holds the base
// URL and the token, and all its calls share one pool of connections. It is safe for
// concurrent use. Create one Client with [NewClient], and use it for all calls.
type Client struct {
	// Flavors lists the GPU offerings.
	Flavors *FlavorClient
	// InferenceServices manages dedicated endpoints.
	InferenceServices *InferenceServiceClient
	// Files manages file records, and uploads and downloads their contents.
	Files *FileClient
	// VideoJobs generates videos through the legacy job API.
	//
	// Deprecated: the legacy job API is retired; see [VideoJobClient].
	VideoJobs *VideoJobClient
	// ImageJobs generates images through the legacy job API.
	//
	// Deprecated: the legacy job API is retired; see [VideoJobClient].
	ImageJobs *ImageJobClient
	// Ledger shows which endpoints may be running. It is never nil. Without [WithLedger] its
	// methods fail with [ErrNoLedger].
	Ledger *Ledger

	base      valid.Base
	caller    *httpcall.Caller
	hasToken  bool
	inference string             // base URL of running endpoints; empty if not known
	header    func() http.Header // headers that every API call sends; a function, so that printing a Client does not show them
	endpoints *known.Endpoints
	contacts  *atomic.Int64 // number of responses for which rules.Contact is true
	hooks     hooks
	log       *slog.Logger // set by WithLogger; never nil
}

// NewClient creates a client of the service at baseURL, an absolute http or https
// URL. If the URL has a path, the paths of all calls are appended to that path. A trailing
// slash does not matter. NewClient checks the URL and all options, and sends nothing. Its
// errors do not quote the values: a value in the wrong place may be a secret.
//
// A base URL with plain http is an error, since the token would be readable on the
// network. It is allowed for a loopback host, and with [WithInsecureHTTP].
//
// Without [WithToken] or [WithTokenSource] only the list of public files works. All other
// calls fail with [ErrNoToken].
func NewClient(baseURL string, opts ...Option) (*Client, error) {
	cfg := config{http: httpcall.Config{Timeout: DefaultTimeout, Retry: httpcall.Policy{}.WithDefaults()}}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&cfg); err != nil {
			return nil, err
		}
	}
	b, err := parseBase("base URL", baseURL, cfg.insecure)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(strings.ToLower(b.Path), "/v1") {
		return nil, errors.New("svc: base URL: must not end in /v1, since every call adds /v1 itself")
	}
	inference := ""
	if cfg.inference != nil {
		u, err := parseBase("inference URL", *cfg.inference, true)
		if err != nil {
			return nil, err
		}
		inference = u.String()
	}
	c := &Client{endpoints: known.New(), contacts: new(atomic.Int64), base: b, inference: inference, header: func() http.Header { return cfg.header }, hasToken: cfg.hasToken, hooks: cfg.hooks, log: cmp.Or(cfg.log, slog.New(slog.DiscardHandler))}
	cfg.finish(&b.URL)
	c.caller = httpcall.New(cfg.http)
	c.Flavors = &FlavorClient{c}
	c.InferenceServices = &InferenceServiceClient{c}
	c.Files = &FileClient{c}
	c.VideoJobs = &VideoJobClient{jobClient{c, videoJobs, videoJob}}
	c.ImageJobs = &ImageJobClient{jobClient{c, imageJobs, imageJob}}
	c.Ledger = &Ledger{client: c, marks: !cfg.unmarked}
	if cfg.ledger != nil {
		c.Ledger.journal = ledger.NewJournal(cfg.ledger, c.base.String(), c.safe)
	}
	return c, nil
}

// NewClientFromEnv calls [NewClient] with values of the environment. SVC_BASE_URL holds the
// base URL of the service, SVC_API_TOKEN the token, and SVC_INFERENCE_URL the base URL of
// running endpoints (see [WithInferenceURL]). An option takes precedence over a variable of
// the environment. It is an error if SVC_BASE_URL is not set, or if neither SVC_API_TOKEN
// nor an option sets a token.
func NewClientFromEnv(opts ...Option) (*Client, error) {
	baseURL := os.Getenv("SVC_BASE_URL")
	if strings.TrimSpace(baseURL) == "" {
		return nil, errors.New("svc: SVC_BASE_URL is not set: set it to the base URL of the service")
	}
	var env []Option
	if u := os.Getenv("SVC_INFERENCE_URL"); u != "" {
		env = append(env, WithInferenceURL(u))
	}
	return NewClient(baseURL, append(append(env, opts...), tokenFromEnv)...)
}

// CloseIdleConnections closes the connections that no call is using. It is meant for tests
// that look for leftover goroutines; a program that ends does not need to call it. It does
// not close the connections of a transport that was set with [WithHTTPClient].
func (c *Client) CloseIdleConnections() { c.caller.CloseIdle() }

// Do calls an operation that this package does not have a method for. The path is relative
// to the base URL and starts with a slash. Escape the IDs in the path with [url.PathEscape],
// and set a query with [WithQuery]. The body is encoded as JSON; a [json.RawMessage] is sent
// unchanged, and nil means no body. The body of a successful response is decoded into out.
// If out is a *[json.RawMessage], it gets the body unchanged. If out is nil, the body is ignored.
// If out is a nil pointer, or no pointer, the error is a [ValidationError].
//
// Do retries GET, HEAD, PUT, DELETE and OPTIONS like the methods of this package. It retries any
// other method only if the request is known to have had no effect. If the request may have had an
// effect, the error is an [OutcomeUnknownError]. If the response to a DELETE is lost and the
// repeated DELETE gets "not found", Do returns nil and leaves out unchanged. The exception is an
// endpoint that this client created less than 30 s ago.
func (c *Client) Do(ctx context.Context, method, path string, body, out any, opts ...RequestOption) error {
	var p problems
	problem := valid.Path(path)
	p.add(!valid.HeaderName(method), "method", "is not valid")
	p.add(problem != "", "path", problem)
	p.add(out != nil && !reflect.Indirect(reflect.ValueOf(out)).CanSet(), "out", "must be a pointer that is not nil")
	k := newCall(strings.ToUpper(method), c.clean(path), "", body, p, opts)
	if k.path = path; problem != "" {
		k.path = "/" // nothing is sent
	}
	return c.carryOut(ctx, k, out)
}

// parseBase reads and checks a base URL. what names the URL in errors. The errors never show
// text itself: the caller may have passed a secret instead of a URL.
func parseBase(what, text string, insecure bool) (base valid.Base, err error) {
	base, problem := valid.ParseBase(text, insecure)
	if problem != "" {
		err = errors.New("svc: " + what + ": " + problem)
	}
	return base, err
}
