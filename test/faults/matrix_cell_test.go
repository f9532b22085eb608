package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// matrixCell is one cell of the matrix: one call to the fake service, with one fault
// between the client and the service.
type matrixCell struct {
	t       *testing.T
	op      *matrixOp
	srv     *svctest.Server
	client  *svc.Client
	timeout time.Duration
	base    string        // base URL in presigned URLs, if it is not the fake's own
	link    svc.SignedURL // presigned URL of file-1
	written bytes.Buffer  // output of a download

	// meet returns the response to the n-th request that the fault applies to.
	meet func(n int, req *http.Request) (*http.Response, error)

	mu      sync.Mutex
	met     []time.Time
	moved   []*http.Request // requests that followed a redirect
	open    int             // number of response bodies that are not closed
	secrets map[string]bool
	log     bytes.Buffer
	reports []svc.Attempt
	calls   []svc.Call
}

// newMatrixCell returns a cell in memory, for use inside synctest.
func newMatrixCell(t *testing.T, op *matrixOp) *matrixCell {
	c := &matrixCell{t: t, op: op, srv: svctest.NewInMemory(svctest.WithToken(matrixToken), svctest.WithJobTime(0)), timeout: matrixTimeout}
	c.seed()
	c.setUp(c.srv.URL(), matrixPolicy, svc.WithHTTPClient(&http.Client{Transport: c}))
	return c
}

func (c *matrixCell) setUp(baseURL string, policy svc.RetryPolicy, opts ...svc.Option) {
	timeout := c.timeout
	if c.op.transfer() {
		timeout = matrixTimeout // a transfer's fault is at storage, so API calls keep the normal timeout
	}
	opts = append(opts, svc.WithToken(matrixToken), svc.WithRetry(policy), svc.WithTimeout(timeout),
		svc.WithLogger(slog.New(slog.NewTextHandler(&matrixLog{c: c}, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reports = append(c.reports, a)
		}),
		svc.WithCallHook(func(_ context.Context, call svc.Call) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, call)
		}))
	var err error
	c.client, err = svc.NewClient(baseURL, opts...)
	require.NoError(c.t, err)
}

type matrixLog struct{ c *matrixCell }

func (l *matrixLog) Write(p []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.log.Write(p)
}

// RoundTrip is the transport of a cell in memory.
func (c *matrixCell) RoundTrip(req *http.Request) (*http.Response, error) {
	if path, ok := strings.CutPrefix(req.URL.Path, "/moved"); ok {
		c.mu.Lock()
		c.moved = append(c.moved, req.Clone(context.Background()))
		c.mu.Unlock()
		req = req.Clone(req.Context())
		req.URL.Path, req.URL.Host, req.Host = path, "svc.test", "svc.test"
		return c.pass(req)
	}
	if !c.op.meets(req) {
		return c.pass(req)
	}
	c.mu.Lock()
	c.met = append(c.met, time.Now())
	n := len(c.met)
	c.mu.Unlock()
	return c.meet(n, req)
}

var matrixSignature = regexp.MustCompile(`X-Amz-Signature=([0-9a-f]+)`)

// pass gets the response of the service, and remembers the signatures of presigned URLs
// in it as secrets.
func (c *matrixCell) pass(req *http.Request) (*http.Response, error) {
	storage := strings.HasPrefix(req.URL.Path, "/storage/")
	resp, err := c.srv.HTTPClient().Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if storage {
		return c.track(resp), nil
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for _, match := range matrixSignature.FindAllSubmatch(b, -1) {
		c.secrets[string(match[1])] = true
	}
	c.mu.Unlock()
	if c.base != "" {
		b = bytes.ReplaceAll(b, []byte(c.srv.URL()), []byte(c.base))
		resp.ContentLength = int64(len(b))
		resp.Header.Del("Content-Length")
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return c.track(resp), nil
}

// here replaces the fake's own base URL in a presigned URL with that of the cell.
func (c *matrixCell) here(link svc.SignedURL) svc.SignedURL {
	if match := matrixSignature.FindStringSubmatch(string(link)); match != nil {
		c.secrets[match[1]] = true
	}
	if c.base == "" {
		return link
	}
	return svc.SignedURL(strings.Replace(string(link), c.srv.URL(), c.base, 1))
}

type matrixBody struct {
	io.ReadCloser
	close func()
}

func (b *matrixBody) Close() error {
	b.close()
	return b.ReadCloser.Close()
}

// track counts the response as open until its body is closed.
func (c *matrixCell) track(resp *http.Response) *http.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	resp.Body = &matrixBody{resp.Body, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
	})}
	return resp
}

// finish checks that no response body was left open.
func (c *matrixCell) finish() {
	c.client.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Zero(c.t, c.open, "responses whose body is not closed")
}

// attempts returns how many attempts the hook reported for the route of the fault.
func (c *matrixCell) attempts() int {
	route, storage := strings.HasPrefix(c.op.at, c.op.at[:strings.Index(c.op.at, " ")]+" /storage/"), 0
	method, _, _ := strings.Cut(c.op.at, " ")
	most := 0
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.reports {
		if toStorage := a.Route == "{presigned_url}"; a.Method == method && toStorage == route {
			storage++
			most = max(most, a.Number)
		}
	}
	if c.op.class == matrixDownload { // a request that resumes a download starts a new count
		return storage - len(c.moved)
	}
	return most
}

// checkSecrets prints the values, errors, hook reports and logs of the call in all
// formats, and checks that no secret of the cell is in them.
func (c *matrixCell) checkSecrets(value any, err error) {
	c.t.Helper()
	p := testkit.NewPrinted()
	add := func(err error) { p.Add(err, testkit.CommonFormats) }
	p.Add(value, testkit.CommonFormats)
	p.AddError(err, add)
	for _, a := range c.reports {
		p.Add(a, testkit.CommonFormats)
		p.AddError(a.Err, add)
	}
	for _, call := range c.calls {
		p.Add(call, testkit.CommonFormats)
		p.AddError(call.Err, add)
	}
	p.Write(c.log.Bytes())
	for secret := range c.secrets {
		p.RequireWithout(c.t, []string{secret, fmt.Sprintf("%x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")})
	}
}

// matrixUnwrap calls visit for err and for every error below it.
func matrixUnwrap(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	if unknown, ok := err.(*svc.OutcomeUnknownError); ok { // has no Unwrap
		matrixUnwrap(unknown.Err, visit)
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			matrixUnwrap(e, visit)
		}
		return
	}
	matrixUnwrap(errors.Unwrap(err), visit)
}
