package svc_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

const testToken = "tok-0123456789-SECRET"

// ages is longer than any test waits.
const ages = 1000 * time.Hour

// reply is one scripted exchange: an answer, or what becomes of it.
type reply struct {
	status int               // 0: 200
	header map[string]string // beside Content-Type: application/json, which it may replace
	body   string
	after  time.Duration // how long the service takes; [ages]: it never answers
	err    error         // comes in place of the answer, or after its body when there is a status
	unsent bool          // err comes before anything of the request is read
	stall  bool          // the body is followed by silence
	cut    bool          // half of the body comes, then the connection is lost
}

// seen is a request that arrived.
type seen struct {
	Method string
	Path   string // escaped, with the query
	Host   string
	Header http.Header
	Body   string
	At     time.Duration // since the script was made
	When   time.Time
}

// script is a transport that plays a service. It works inside a synctest bubble.
// A request beyond the script fails the test, and so does a reply left over.
type script struct {
	t     testing.TB
	start time.Time
	loop  bool

	mu       sync.Mutex
	replies  []reply
	requests []seen
}

// play answers with the replies in turn.
func play(t testing.TB, replies ...reply) *script {
	s := &script{t: t, start: time.Now(), replies: replies}
	t.Cleanup(func() {
		if left := len(s.replies); left > 0 && !t.Failed() {
			t.Errorf("%d replies left over after %d requests", left, len(s.requests))
		}
	})
	return s
}

// loop answers everything with r.
func loop(t testing.TB, r reply) *script {
	return &script{t: t, start: time.Now(), replies: []reply{r}, loop: true}
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	r, err := s.next(req)
	if err != nil {
		return nil, err
	}
	return r.answer(req)
}

// answer is what a client gets: after its time, a response or an error.
func (r reply) answer(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if r.after > 0 {
		timer := time.NewTimer(r.after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.status == 0 && r.err != nil {
		return nil, r.err
	}
	resp := &http.Response{
		StatusCode: cmp.Or(r.status, 200), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(r.body)),
	}
	for key, value := range r.header {
		resp.Header.Set(key, value)
	}
	body := io.Reader(strings.NewReader(r.body))
	switch {
	case r.cut:
		body = io.MultiReader(strings.NewReader(r.body[:len(r.body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	case r.stall:
		resp.ContentLength = -1
		body = io.MultiReader(body, readFunc(func([]byte) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))
	case r.err != nil:
		resp.ContentLength = -1
		body = io.MultiReader(body, iotest.ErrReader(r.err))
	}
	resp.Body = io.NopCloser(body)
	return resp, nil
}

// next notes a request and picks its reply.
func (s *script) next(req *http.Request) (reply, error) {
	s.mu.Lock()
	r, known := reply{}, len(s.replies) > 0
	if known {
		r = s.replies[0]
		if !s.loop {
			s.replies = s.replies[1:]
		}
	}
	s.mu.Unlock()
	e := seen{
		Method: req.Method, Path: req.URL.RequestURI(), Host: req.URL.Host,
		Header: req.Header.Clone(), At: time.Since(s.start), When: time.Now(),
	}
	if req.Body != nil && !r.unsent {
		b, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return r, err
		}
		e.Body = string(b)
	}
	s.mu.Lock()
	s.requests = append(s.requests, e)
	s.mu.Unlock()
	if !known {
		s.t.Errorf("a request beyond the script: %s %s", e.Method, e.Path)
		return r, errors.New("the script is at its end")
	}
	return r, nil
}

// seen returns the requests so far.
func (s *script) seen() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.requests...)
}

// gaps are the times between the requests.
func (s *script) gaps() (gaps []time.Duration) {
	all := s.seen()
	for i := 1; i < len(all); i++ {
		gaps = append(gaps, all[i].At-all[i-1].At)
	}
	return gaps
}

// client makes a client of the script.
func (s *script) client(opts ...svc.Option) *svc.Client {
	s.t.Helper()
	return clientOn(s.t, s, opts...)
}

// clientOn makes a client of https://api.test on a transport.
func clientOn(t testing.TB, rt http.RoundTripper, opts ...svc.Option) *svc.Client {
	t.Helper()
	return clientAt(t, "https://api.test", append([]svc.Option{svc.WithHTTPClient(&http.Client{Transport: rt})}, opts...)...)
}

// clientAt makes a client with a token, whose connections end with the test.
func clientAt(t testing.TB, baseURL string, opts ...svc.Option) *svc.Client {
	t.Helper()
	client, err := svc.NewClient(baseURL, append([]svc.Option{svc.WithToken(testToken)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// tries is a retry policy with delays that are always the same.
func tries(attempts int, delay time.Duration) svc.Option {
	return svc.WithRetry(svc.RetryPolicy{MaxAttempts: attempts, MinDelay: delay, MaxDelay: delay})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// errorAs requires an error of a type in err's tree.
func errorAs[T error](t testing.TB, err error) T {
	t.Helper()
	e, ok := errors.AsType[T](err)
	require.Truef(t, ok, "want a %T in the tree of: %v", e, err)
	return e
}

// noGoroutineLeft checks at the end of the test that it leaves none behind.
func noGoroutineLeft(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(3 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 64<<10)
				t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// operation is one of the calls, for what they have in common.
type operation struct {
	name   string
	method string
	path   string
	ok     reply // that makes it succeed
	do     func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error
}

var (
	opGet = operation{"get", "GET", "/v1/inference-service/svc-1", reply{status: 200, body: serviceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Get(ctx, "svc-1", opts...)
			return err
		}}
	opUpdate = operation{"update", "PUT", "/v1/inference-service/svc-1", reply{status: 200, body: serviceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Scale(ctx, "svc-1", 2, opts...)
			return err
		}}
	opDelete = operation{"delete", "DELETE", "/v1/inference-service/svc-1", reply{status: 200},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			return c.InferenceServices.Delete(ctx, "svc-1", opts...)
		}}
	opCreate = operation{"create", "POST", "/v1/inference-service", reply{status: 201, body: serviceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "demo"}, opts...)
			return err
		}}
	operations = []operation{opGet, opUpdate, opDelete, opCreate}
)
