package svc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/svc/internal/httpcall"
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
	// Ledger shows which endpoints may be running. Never nil; without [WithLedger] its
	// calls are an [ErrNoLedger].
	Ledger *Ledger

	base      base
	caller    *httpcall.Caller
	hasToken  bool
	inference string      // base of the addresses at which endpoints are reached; empty: not known
	header    http.Header // of every call
	recent    *recent
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
	cfg := config{http: httpcall.Config{Timeout: DefaultTimeout}}
	cfg.http.Retry = httpcall.Policy(RetryPolicy{}.withDefaults())
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
		return nil, errors.New("svc: base URL: must not end in /v1: every call adds that itself")
	}
	inference := ""
	if cfg.inference != nil {
		u, err := parseBase("inference URL", *cfg.inference, true)
		if err != nil {
			return nil, err
		}
		inference = u.String()
	}
	c := &Client{recent: &recent{at: map[string]time.Time{}, read: map[string]bool{}}, base: b, inference: inference, header: cfg.header, hasToken: cfg.http.Token != nil}
	cfg.finish(&b.URL)
	c.caller = httpcall.New(cfg.http)
	c.Flavors = &FlavorClient{c}
	c.InferenceServices = &InferenceServiceClient{c}
	c.Files = &FileClient{c}
	c.VideoJobs = &VideoJobClient{jobClient{c, videoJobs, videoJob}}
	c.ImageJobs = &ImageJobClient{jobClient{c, imageJobs, imageJob}}
	c.Ledger = &Ledger{client: c, store: cfg.ledger, marks: !cfg.unmarked, log: cfg.log}
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

// CloseIdleConnections closes the connections that no call is using, for tests that look
// for leftover goroutines. A program that ends does not need it. It does not close those of
// a transport that was given to [WithHTTPClient].
func (c *Client) CloseIdleConnections() { c.caller.CloseIdle() }

// String names the service that the client talks to.
func (c *Client) String() string { return "svc client of " + c.base.String() }

// Do calls an operation that this package does not know. The path is relative
// to the base URL and starts with a slash. Escape the IDs in it with [url.PathEscape], and
// give a query with [WithQuery]. The body is sent as JSON
// (a [json.RawMessage] unchanged), nil for none. A successful response is decoded
// into out, unless that is nil; a *[json.RawMessage] takes it unchanged.
//
// GET, HEAD, PUT, DELETE and OPTIONS are retried as repeatable, like those of the methods.
// Any other method is retried only while the request certainly did not take effect; after
// that the error is an [OutcomeUnknownError]. If the response to a DELETE is lost and the
// repeated one gets "not found", it has succeeded, and out stays unchanged.
func (c *Client) Do(ctx context.Context, method, path string, body, out any, opts ...RequestOption) error {
	k := newCall(strings.ToUpper(method), c.caller.Redactor().String(path), "", body)
	var p problems
	plain, problem := rawPath(path)
	k.path, k.escaped = cmp.Or(plain, path), path
	p.add(!headerName(k.Method), "method", "is not valid")
	p.add(problem != "", "path", problem)
	k = k.checked(p)
	switch k.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
	default:
		k.Once = true
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

// base is a base URL: paths are appended to it.
type base struct {
	url.URL // its path has no trailing slash
}

// parseBase checks a base URL. Its errors never show the text: somebody may have given a
// secret in its place.
func parseBase(what, text string, insecure bool) (base, error) {
	fail := func(problem string) (base, error) { return base{}, errors.New("svc: " + what + ": " + problem) }
	text = strings.TrimSpace(text)
	if text == "" {
		return fail("is empty")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fail("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fail("must be an absolute URL that starts with https:// or http://")
	case u.User != nil:
		return fail("must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery:
		return fail("must not have a query")
	case strings.Contains(text, "#"):
		return fail("must not have a fragment")
	case u.Scheme == "http" && !insecure && !loopback(u.Hostname()):
		return fail("plain http would show the token to everyone on the way: use https, or WithInsecureHTTP if you mean it")
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	for i, segment := range strings.Split(prefix, "/") {
		if plain, _ := url.PathUnescape(segment); i > 0 && (plain == "" || plain == "." || plain == "..") {
			return fail(`its path must not have empty segments, "." or ".."`)
		}
	}
	b := base{url.URL{Scheme: u.Scheme, Host: httpcall.Host(u)}} // one spelling, since the ledger compares base URLs
	b.Path, _ = url.PathUnescape(prefix)
	if b.EscapedPath() != prefix {
		b.RawPath = prefix
	}
	return b, nil
}

func loopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
