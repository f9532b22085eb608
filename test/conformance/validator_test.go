package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// validator is a transport that checks every request and every response against the
// description. For requests to storage it checks only that they carry no token.
type validator struct {
	t      testing.TB
	base   http.RoundTripper
	router routers.Router
	token  string

	wrongOnPurpose bool // the test sends invalid requests, so only responses are checked
	queued         bool // failures come from faults of svctest

	mu      sync.Mutex
	covered map[string]int      // number of successful exchanges, by operation
	refused map[string][]int    // statuses of failures, by operation; "" for unknown operations
	params  []map[string]string // path parameters of each request
}

func (v *validator) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/storage/") {
		if h := req.Header; h["Authorization"] != nil || h["Cookie"] != nil {
			v.t.Errorf("%s %s: credentials are sent to storage", req.Method, req.URL.Path)
		}
		return v.base.RoundTrip(req)
	}
	var sent []byte
	if req.Body != nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	input, err := v.request(req, sent)
	if err != nil && !v.wrongOnPurpose {
		v.t.Errorf("request %s %s %s: %v", req.Method, req.URL.Path, sent, err)
	}
	req.Body = io.NopCloser(bytes.NewReader(sent))
	resp, err := v.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err := v.response(input, resp, body); err != nil {
		v.t.Errorf("response to %s %s: %d %s: %v", req.Method, req.URL.Path, resp.StatusCode, body, err)
	}
	v.note(input, resp.StatusCode)
	return resp, nil
}

func (v *validator) note(input *openapi3filter.RequestValidationInput, status int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := ""
	if input != nil {
		id = input.Route.Operation.OperationID
		v.params = append(v.params, input.PathParams)
	}
	if status < 300 {
		v.covered[id]++
	} else {
		v.refused[id] = append(v.refused[id], status)
	}
}

// requestHeaders are the only headers that the client may send.
var requestHeaders = []string{"Accept", "Authorization", "Cache-Control", "Content-Type", "User-Agent"}

// request checks a request against the description. It returns nil as input if the
// description has no such operation.
func (v *validator) request(req *http.Request, body []byte) (*openapi3filter.RequestValidationInput, error) {
	route, params, err := v.router.FindRoute(req)
	if err != nil {
		return nil, err
	}
	for name, value := range params {
		if params[name], err = url.PathUnescape(value); err != nil {
			return nil, err
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: true, MultiError: true,
			IncludeResponseStatus: true, AuthenticationFunc: v.authenticate,
		},
	}
	problems := []error{openapi3filter.ValidateRequest(req.Context(), input)}
	op := route.Operation
	if op.Security != nil && len(*op.Security) == 0 && req.Header["Authorization"] != nil {
		problems = append(problems, errors.New("a token is sent where none belongs"))
	}
	for name, values := range req.URL.Query() {
		if op.Parameters.GetByInAndName("query", name) == nil || len(values) != 1 {
			problems = append(problems, fmt.Errorf("the query has %q %d times", name, len(values)))
		}
	}
	for name, values := range req.Header {
		if !slices.Contains(requestHeaders, name) || len(values) != 1 {
			problems = append(problems, fmt.Errorf("the header has %q %d times", name, len(values)))
		}
	}
	if op.RequestBody == nil && (len(body) > 0 || req.Header["Content-Type"] != nil) {
		problems = append(problems, errors.New("there is a body, or a content type without one"))
	}
	return input, errors.Join(problems...)
}

func (v *validator) authenticate(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	if got := in.RequestValidationInput.Request.Header["Authorization"]; !slices.Equal(got, []string{"Bearer " + v.token}) {
		return fmt.Errorf("there are %d Authorization headers, or one with something else than the token", len(got))
	}
	return nil
}

// framing lists response headers that need no description.
var framing = []string{"Allow", "Content-Length", "Content-Type", "Date", "Www-Authenticate"}

// response checks a response against the description: status, headers, content type
// and body.
func (v *validator) response(input *openapi3filter.RequestValidationInput, resp *http.Response, body []byte) error {
	if n := resp.Header.Get("Content-Length"); n != strconv.Itoa(len(body)) {
		return fmt.Errorf("a Content-Length of %q for %d bytes", n, len(body))
	}
	if resp.StatusCode >= 400 && !v.queued {
		if err := sampleFailure(resp, body); err != nil {
			return err
		}
	}
	if input == nil { // the description has no such operation
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
			return errors.New("an unknown operation must be refused")
		}
		return nil
	}
	responses := input.Route.Operation.Responses
	described := responses.Status(resp.StatusCode)
	if described == nil {
		if described = responses.Default(); resp.StatusCode < 400 {
			return errors.New("no such success is described")
		}
	}
	for name := range resp.Header {
		if !slices.Contains(framing, name) && described.Value.Headers[name] == nil {
			return fmt.Errorf("the header %s is not described", name)
		}
	}
	contentType := resp.Header.Get("Content-Type")
	if len(described.Value.Content) == 0 {
		if len(body) > 0 || contentType != "" {
			return errors.New("the body should be empty, and have no type")
		}
	} else if resp.StatusCode < 400 && contentType != "application/json" {
		return fmt.Errorf("content type %q", contentType)
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header, Options: input.Options,
		Body: io.NopCloser(bytes.NewReader(body)),
	})
}

// sampleFailure checks that a failure of the fake has the documented form.
func sampleFailure(resp *http.Response, body []byte) error {
	if contentType := resp.Header.Get("Content-Type"); contentType != "application/json" {
		return fmt.Errorf("content type %q", contentType)
	}
	var fields map[string]string
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, []string{"code", "message", "request_id"}) {
		return fmt.Errorf("a failure with the fields %v", got)
	}
	if fields["code"] == "" || fields["message"] == "" || fields["request_id"] != resp.Header.Get("X-Request-Id") {
		return errors.New("a failure without code or message, or with another request ID than in the header")
	}
	return nil
}
