package svc_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// wtStep is one answer of a scripted service.
type wtStep struct {
	status int // 0: 200
	body   string
	header http.Header
	delay  time.Duration // before the answer
	drop   bool          // no answer: the connection is lost
	cut    bool          // half of the body comes, then the connection is lost
}

// wtIs shows the endpoint svc-1 with this status and one instance.
func wtIs(status string) wtStep { return wtStep{body: wtRecord(status, 1)} }

// wtCode is a failure with a message in JSON.
func wtCode(status int, header ...string) wtStep {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return wtStep{status: status, header: h, body: fmt.Sprintf(`{"message":"scripted %d"}`, status)}
}

// wtTimes is n times the same answer.
func wtTimes(n int, step wtStep) []wtStep {
	steps := make([]wtStep, n)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

// wtRecord is the record of svc-1; fields are added at its end.
func wtRecord(status string, instances int, fields ...string) string {
	return fmt.Sprintf(`{"service_id":"svc-1","name":"demo","status":%q,"resource_metadata":{"target_instance_number":%d}%s}`,
		status, instances, strings.Join(append([]string{""}, fields...), ","))
}

// wtSeen is a request that has arrived.
type wtSeen struct {
	method, path string
	at           time.Time
}

// wtScript is an in-memory service that answers the requests of each method in
// the order of its steps, and all that follow with the last one. A method
// without steps is answered 500.
type wtScript struct {
	get, put, post, delete []wtStep

	mu   sync.Mutex
	seen []wtSeen
}

func (s *wtScript) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/flavor") { // asked in between, for the proof of an absence
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"flavor_list":[]}`)), Request: req}, nil
	}
	step := s.next(req)
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	if step.delay > 0 {
		timer := time.NewTimer(step.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if step.drop {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	header := step.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	if strings.HasPrefix(step.body, "<") {
		header.Set("Content-Type", "text/html")
	}
	var body io.Reader = strings.NewReader(step.body)
	if step.cut {
		body = io.MultiReader(strings.NewReader(step.body[:len(step.body)/2]), wtCutOff{})
	}
	return &http.Response{
		StatusCode: cmp.Or(step.status, 200), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		ContentLength: int64(len(step.body)), Body: io.NopCloser(body), Request: req,
	}, nil
}

func (s *wtScript) next(req *http.Request) wtStep {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, wtSeen{req.Method, req.URL.Path, time.Now()})
	steps := map[string]*[]wtStep{"GET": &s.get, "PUT": &s.put, "POST": &s.post, "DELETE": &s.delete}[req.Method]
	if len(*steps) == 0 {
		return wtCode(500)
	}
	step := (*steps)[0]
	if len(*steps) > 1 {
		*steps = (*steps)[1:]
	}
	return step
}

// requests are those seen so far with this method.
func (s *wtScript) requests(method string) []wtSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []wtSeen
	for _, r := range s.seen {
		if r.method == method {
			list = append(list, r)
		}
	}
	return list
}

// gaps are the times between the GETs.
func (s *wtScript) gaps() []time.Duration {
	looks := s.requests("GET")
	gaps := make([]time.Duration, max(len(looks)-1, 0))
	for i := range gaps {
		gaps[i] = looks[i+1].at.Sub(looks[i].at)
	}
	return gaps
}

const wtToken = "wt-token-0123456789"

func (s *wtScript) services(t testing.TB, opts ...svc.Option) *svc.InferenceServiceClient {
	t.Helper()
	opts = append([]svc.Option{svc.WithToken(wtToken), svc.WithHTTPClient(&http.Client{Transport: s})}, opts...)
	client, err := svc.NewClient("https://api.test", opts...)
	require.NoError(t, err)
	return client.InferenceServices
}

// wtCutOff is where a connection ends.
type wtCutOff struct{}

func (wtCutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// wtWaitError finds the WaitError in err, which has to be there.
func wtWaitError(t testing.TB, err error) *svc.WaitError {
	t.Helper()
	var e *svc.WaitError
	require.ErrorAs(t, err, &e)
	return e
}

// wtDeployError finds the DeployError in err, which has to be there.
func wtDeployError(t testing.TB, err error) *svc.DeployError {
	t.Helper()
	var e *svc.DeployError
	require.ErrorAs(t, err, &e)
	return e
}

// wtWithin gives a context that ends after d.
func wtWithin(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// wtCancelAfter gives a context that is cancelled after d, with this cause.
func wtCancelAfter(t testing.TB, d time.Duration, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(d, func() { cancel(cause) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

// wtEvery makes all intervals between looks about d.
func wtEvery(d time.Duration) *svc.WaitOptions {
	return &svc.WaitOptions{MinInterval: d, MaxInterval: d}
}

// wtDemo is a request for two instances.
var wtDemo = svc.CreateInferenceServiceRequest{
	Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
}
