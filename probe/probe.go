package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"example.com/svc"
	"example.com/svc/internal/apierr"
	"example.com/svc/internal/redact"
)

const (
	maxBody      = 1 << 20 // maximum number of bytes of a response that are read
	maxRefusals  = 3       // number of responses in a row with the status 401 that end the wait
	maxNames     = 5       // maximum number of models that an error names
	maxRedirects = 10
)

// Option configures a probe.
type Option func(*prober)

// WithHTTPClient makes a probe send its requests with hc, for example for a proxy or TLS
// settings. The probe never modifies hc. If hc is nil, the probe uses a client of its own, with
// the proxy that the environment names.
func WithHTTPClient(hc *http.Client) Option {
	return func(p *prober) {
		if hc != nil {
			p.client = *hc
		}
	}
}

// WithHeader sets a header of the requests, such as Authorization for an application with
// an API key. A header that cannot be sent ends the wait.
func WithHeader(key, value string) Option {
	return func(p *prober) {
		switch {
		case !headerName(key) || strings.ContainsFunc(value, isControl):
			p.invalid = "the name or the value of a header cannot be sent" // either may be a secret
		case strings.EqualFold(key, "Host"):
			p.invalid = "the header Host cannot be set"
		}
		p.header.Set(key, value)
		words := strings.Fields(value)
		p.secrets = append(p.secrets, value)
		if len(words) > 1 {
			p.secrets = append(p.secrets, words[len(words)-1]) // the key in "Bearer KEY"
		}
	}
}

// HTTP returns a probe for [svc.WaitOptions] that succeeds if the response to a GET has a 2xx
// status. path is added to the URL of the endpoint. It may have a query. The probe is safe for
// concurrent use, and may serve many waits.
func HTTP(path string, opts ...Option) func(ctx context.Context, url string) error {
	return newProber(path, opts, func(io.Reader) error { return nil }).probe
}

// Model returns a probe for [svc.WaitOptions] that succeeds if the application lists the model
// name at /v1/models, as servers with an API like that of OpenAI do. The name must be exactly
// the one that the application lists. If the list has only other models, the wait ends. If the
// list is empty, the wait continues. See the package comment for servers that list a model
// before it is loaded. The probe is safe for concurrent use, and may serve many waits.
func Model(name string, opts ...Option) func(ctx context.Context, url string) error {
	var p *prober
	p = newProber("/v1/models", opts, func(body io.Reader) error { return p.lists(name, body) })
	if name == "" {
		p.invalid = "the name of the model is empty"
	}
	return p.probe
}

// prober is one probe, which may serve many waits.
type prober struct {
	path    string
	label   string // method and path without the query, for error messages
	client  http.Client
	header  http.Header
	secrets []string // secrets of the headers
	invalid string   // why no request can be sent; empty if it can
	redact  *redact.Redactor
	judge   func(body io.Reader) error // checks a 2xx response

	mu       sync.Mutex
	refusals map[string]int // number of responses in a row with the status 401, by URL of the endpoint
}

func newProber(path string, opts []Option, judge func(io.Reader) error) *prober {
	p := &prober{path: "/" + strings.TrimPrefix(path, "/"), header: http.Header{}, judge: judge, refusals: map[string]int{}}
	p.client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	for _, o := range opts {
		o(p)
	}
	bare, query, _ := strings.Cut(p.path, "?")
	secrets := append(p.secrets, query)
	values, _ := url.ParseQuery(query)
	for _, v := range values {
		secrets = append(secrets, v...)
	}
	p.redact = redact.New(secrets...)
	p.label = "GET " + apierr.Label(bare, p.redact.String)
	after := p.client.CheckRedirect
	p.client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		first := via[0].URL
		if next.URL.Scheme != first.Scheme || next.URL.Host != first.Host || len(via) > maxRedirects {
			return http.ErrUseLastResponse
		}
		if after != nil {
			return after(next, via)
		}
		return nil
	}
	return p
}

// probe is the function for the Probe of [svc.WaitOptions].
func (p *prober) probe(ctx context.Context, base string) error {
	if p.invalid != "" {
		return p.never(p.invalid)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+p.path, nil)
	if err != nil {
		return p.never("the path or the URL of the endpoint is not valid") // err shows the query
	}
	req.Header = p.header.Clone()
	req.Close = true // no connection is left when the wait ends
	resp, err := p.client.Do(req)
	if err != nil {
		return p.failed(err)
	}
	defer resp.Body.Close()
	if p.refused(base, resp.StatusCode) {
		return p.never(fmt.Sprintf("%d responses in a row have the status 401: check the key that the application expects", maxRefusals))
	}
	body := io.LimitReader(resp.Body, maxBody)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return p.judge(body)
	case s >= 300 && s < 400:
		return fmt.Errorf("%s: status %d: a redirect that is not followed", p.label, s)
	}
	start, _ := io.ReadAll(io.LimitReader(body, 4<<10)) // only for the text
	return fmt.Errorf("%s: status %d: %s", p.label, resp.StatusCode, apierr.Excerpt(resp.Header.Get("Content-Type"), start, p.redact.String))
}

// refused records the status of a response, and reports whether too many in a row had the
// status 401.
func (p *prober) refused(base string, status int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.refusals[base] + 1
	if status != http.StatusUnauthorized || n >= maxRefusals {
		delete(p.refusals, base)
		return status == http.StatusUnauthorized
	}
	p.refusals[base] = n
	return false
}

// lists checks that the body is a list of models with this name.
func (p *prober) lists(name string, body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return p.failed(err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || list.Data == nil {
		return fmt.Errorf("%s: the response is not a list of models", p.label)
	}
	var names []string
	for _, model := range list.Data {
		if model.ID == name {
			return nil
		}
		if len(names) < maxNames {
			names = append(names, fmt.Sprintf("%q", apierr.Label(model.ID, p.redact.String)))
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: the list has no models yet", p.label)
	}
	return p.never(fmt.Sprintf("the application does not serve %q; it serves %d models: %s", name, len(list.Data), strings.Join(names, ", ")))
}

// failed returns the error of a request without a complete response. It does not show the URL,
// whose query may be a secret.
func (p *prober) failed(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s: %w", p.label, p.redact.Error(err))
}

// never returns an error that ends the wait.
func (p *prober) never(reason string) error {
	return svc.Permanent(fmt.Errorf("%s: %s", p.label, reason))
}

func headerName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
