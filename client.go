package svc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/svc/internal/chain"
	"example.com/svc/internal/errbody"
	"example.com/svc/internal/jsonx"
)

// Version is the version of this package, as its User-Agent names it.
const Version = "0.1.0"

// Client is the entry to the service: one field for each group of resources. It
// holds the base URL and the token, is safe for concurrent use, and shares one
// pool of connections among all its calls. Make one with [NewClient] and keep it.
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

	base      base
	chain     *chain.Chain
	hasToken  bool
	inference string // base of the addresses at which endpoints are reached; empty: not known
}

// NewClient makes a client of the service at baseURL, an absolute http or https
// URL. A path in it is kept as a prefix of every call, and a trailing slash does
// not matter. Nothing is sent. The URL and all options are checked; an error
// does not repeat them, since what was mixed up may be a secret.
//
// Plain http is refused unless the host is this machine's loopback or
// [WithInsecureHTTP] is given: the token would be readable on the way.
//
// Without [WithToken] or [WithTokenSource] only the public file list works, and
// every other call is an [ErrNoToken].
func NewClient(baseURL string, opts ...Option) (*Client, error) {
	cfg := config{http: chain.Config{Timeout: DefaultTimeout}}
	cfg.http.Retry = chain.Policy(RetryPolicy{}.withDefaults())
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
	inference := ""
	if cfg.inference != nil {
		u, err := parseBase("inference URL", *cfg.inference, true)
		if err != nil {
			return nil, err
		}
		inference = u.String()
	}
	c := &Client{base: b, inference: inference, hasToken: cfg.http.Token != nil}
	cfg.finish(&b.URL)
	c.chain = chain.New(cfg.http)
	c.Flavors = &FlavorClient{c}
	c.InferenceServices = &InferenceServiceClient{c}
	c.Files = &FileClient{c}
	c.VideoJobs = &VideoJobClient{jobClient{c, videoJobs, videoJob}}
	c.ImageJobs = &ImageJobClient{jobClient{c, imageJobs, imageJob}}
	return c, nil
}

// NewClientFromEnv is [NewClient] with the base URL of SVC_BASE_URL, the token
// of SVC_API_TOKEN and, if that is set, the address of endpoints of
// SVC_INFERENCE_URL. Options win over the environment. A missing base URL is an
// error, and so is a missing token when no option brings one.
func NewClientFromEnv(opts ...Option) (*Client, error) {
	baseURL := os.Getenv("SVC_BASE_URL")
	if strings.TrimSpace(baseURL) == "" {
		return nil, errors.New("svc: SVC_BASE_URL is not set: it holds the base URL of the service")
	}
	var env []Option
	if u := os.Getenv("SVC_INFERENCE_URL"); u != "" {
		env = append(env, WithInferenceURL(u))
	}
	return NewClient(baseURL, append(append(env, opts...), tokenFromEnv)...)
}

// CloseIdleConnections closes the connections that no call is using. It does
// nothing to the client of [WithHTTPClient] when that has a transport of its
// own. A program that ends does not need it.
func (c *Client) CloseIdleConnections() { c.chain.CloseIdle() }

// String names the service that the client talks to.
func (c *Client) String() string { return "svc client of " + c.base.String() }

// Do calls an operation that this package does not know. The path is relative
// to the base URL and starts with a slash; what it holds of ids is escaped by
// the caller, and a query is given with [WithQuery]. The body is sent as JSON
// (a [json.RawMessage] as it is), nil for none. A successful answer is decoded
// into out, unless that is nil; a *[json.RawMessage] takes it as it is.
//
// Like the methods of the resources, it retries GET, HEAD, PUT, DELETE and
// OPTIONS as repeatable, and any other method only while the request certainly
// did not take effect: after that the error is an [OutcomeUnknownError]. A DELETE
// that finds nothing after a lost answer has succeeded, and leaves out as it is.
func (c *Client) Do(ctx context.Context, method, path string, body, out any, opts ...RequestOption) error {
	k := call{method: strings.ToUpper(method), route: c.chain.Redactor().String(path), body: body}
	var p problems
	p.add(!headerName(k.method), "method", "is not one")
	var problem string
	k.path, k.escaped, problem = rawPath(path)
	p.add(problem != "", "path", problem)
	k = k.checked(p)
	switch k.method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
	default:
		k = k.atMostOnce()
	}
	r, err := c.send(ctx, &k, opts)
	if err != nil || out == nil || !r.OK() {
		return err
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = bytes.Clone(r.Body)
		return nil
	}
	return c.decode(&k, r, out)
}

// call is what a method asks for.
type call struct {
	method        string
	route         string // with {…} where the id goes
	id            string
	hasID         bool
	path, escaped string // of Do, whose route is a path already
	query         url.Values
	body          any
	err           error // what is wrong with the request

	// unknown and once make a create of the call: it is never repeated when it may
	// have taken effect, and unknown is the error then. Functions, so that a program
	// that creates nothing need not have them in it.
	unknown func(*Client, call, *chain.Result, error) error
	once    chain.OnceFunc
	name    string // of what is created
	public  bool   // needs no token and sends none
	linger  time.Duration
}

func get(route string) call { return call{method: http.MethodGet, route: route} }
func getID(route, id string) call {
	return call{method: http.MethodGet, route: route, id: id, hasID: true}
}
func deleteID(route, id string) call {
	return call{method: http.MethodDelete, route: route, id: id, hasID: true}
}
func putID(route, id string, b any) call {
	return call{method: http.MethodPut, route: route, id: id, hasID: true, body: b}
}

// create is a POST that makes a record of the given name.
func create(route, name string, body any) call {
	return call{method: http.MethodPost, route: route, body: body, name: name}.atMostOnce()
}

func (k call) atMostOnce() call {
	k.unknown, k.once = (*Client).unknown, chain.Once
	return k
}

// checked is the call unless something is wrong with the request.
func (k call) checked(p problems) call {
	k.err = p.err()
	return k
}

// do makes a call and decodes the record that it promises.
func do[T any](ctx context.Context, c *Client, k call, opts []RequestOption) (*T, error) {
	r, err := c.send(ctx, &k, opts)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := c.decode(&k, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// doList makes a call whose answer is an array of records.
func doList[T any, P record[T]](ctx context.Context, c *Client, k call, opts []RequestOption) ([]T, error) {
	list, err := do[records[T, P]](ctx, c, k, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// doDelete makes a call whose answer may hold anything, except an error or a page
// for people, which is a proxy's: the record may still be there.
func doDelete(ctx context.Context, c *Client, k call, opts []RequestOption) error {
	r, err := c.send(ctx, &k, opts)
	if err != nil || !r.OK() {
		return err
	}
	switch {
	case isPage(r.Body):
		return c.notPromised(&k, r, "", errors.New("a page of markup, as proxies send"))
	case denies(jsonx.TrimBOM(r.Body)):
		return c.notPromised(&k, r, "", errDenied)
	}
	return nil
}

// send checks a call, carries it out, and makes an error of everything but success.
// Without one the answer is OK, or the 404 of a delete that is done already: its body
// is that of an error, and no record.
func (c *Client) send(ctx context.Context, k *call, opts []RequestOption) (*chain.Result, error) {
	req := options(opts)
	if req.response != nil {
		*req.response = Response{} // what an earlier call left
	}
	for _, f := range req.fields { // what is created has the name that is sent
		if name, ok := f.value.(string); ok && k.name != "" && (f.path == "name" || f.path == "file_name") {
			k.name = name
		}
	}
	u, pathErr := c.base.join(k, req.query)
	body, bodyErr := k.encode(req.fields, c.chain.Redactor().String)
	if err := allProblems(k.err, pathErr, bodyErr, req.problems.err()); err != nil {
		return nil, err
	}
	if !k.public && !c.hasToken {
		return nil, &TransportError{Method: k.method, Route: k.route, Err: ErrNoToken}
	}
	header := make(http.Header, 4+len(req.header))
	header["Accept"] = acceptJSON
	if body != nil {
		header["Content-Type"] = contentJSON
	}
	for key, values := range req.header {
		header[key] = values
	}
	r := c.chain.Do(ctx, &chain.Call{
		Method: k.method, Route: k.route, URL: u, Header: header, Auth: !k.public,
		Once: k.once, Body: body, MaxAttempts: req.attempts, Linger: k.linger,
	})
	if req.response != nil {
		*req.response = Response{
			StatusCode: r.StatusCode, Header: r.Header, RequestID: errbody.RequestID(r.Header, c.chain.Redactor().String),
			Attempts: r.Attempts, Body: kept(r),
		}
	}
	return r, c.verdict(k, r)
}

// kept is the body of an answer as callers get to see it: that of a failed call
// is bounded.
func kept(r *chain.Result) []byte {
	if r.OK() {
		return r.Body
	}
	return r.Body[:min(len(r.Body), maxKept)]
}

// maxKept is how much of a failed call's answer is kept.
const maxKept = 64 << 10

// options collects what the caller of a method wants otherwise.
func options(opts []RequestOption) *request {
	if len(opts) == 0 {
		return &noOptions
	}
	r := new(request)
	for _, opt := range opts {
		if opt != nil {
			opt(r)
		}
	}
	return r
}

var (
	noOptions   request // never written to
	acceptJSON  = []string{"application/json"}
	contentJSON = []string{"application/json"}
)

// verdict turns what happened to a call into its error, nil for success.
func (c *Client) verdict(k *call, r *chain.Result) error {
	switch {
	case r.OK():
		return nil
	case r.Fail == nil:
		e := c.newError(k, r)
		// A redirect after a create can mean "done, look there", and what is no
		// status at all means nothing. 307 and 308 ask for the same again.
		odd := e.StatusCode < 400 && e.StatusCode != http.StatusTemporaryRedirect && e.StatusCode != http.StatusPermanentRedirect
		if k.unknown != nil && (r.Acted || odd) {
			return k.unknown(c, *k, r, e)
		}
		if k.method == http.MethodDelete && r.Lost && notFound(e) {
			return nil // an attempt before this one did it, and its answer was lost
		}
		return e
	}
	e := &TransportError{Method: k.method, Route: k.route, Attempts: r.Attempts, Err: r.Fail}
	if r.StatusCode != 0 {
		e.Last = c.newError(k, r)
	}
	if k.unknown != nil && r.Acted {
		return k.unknown(c, *k, r, e)
	}
	return e
}

// unknown says that a create may or may not have taken effect.
func (c *Client) unknown(k call, r *chain.Result, cause error) error {
	body, _ := c.chain.Redactor().Cut(r.Body, maxKept, r.Cut)
	status := max(r.StatusCode, r.Broken)
	return &OutcomeUnknownError{
		Method: k.method, Route: k.route, Name: k.name, ID: c.salvageID(k.route, status, r.Body),
		RequestID:  errbody.RequestID(r.Header, c.chain.Redactor().String),
		StatusCode: status, Body: body, Err: cause,
	}
}

// salvageID finds the id of what a create made, unless it holds a secret. A field
// that is just called id may be that of an error, if the answer is one.
func (c *Client) salvageID(route string, status int, answer []byte) string {
	id := salvageID(route, answer)
	if c.chain.Redactor().String(id) != id || idField[route] == "id" && (status < 200 || status > 299) {
		return ""
	}
	return id
}
