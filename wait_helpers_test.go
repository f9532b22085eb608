package svc_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/svc"
)

// wtIs shows the endpoint svc-1 with this status and one instance.
func wtIs(status string) reply { return reply{body: wtRecord(status, 1)} }

// wtCode is a failure with a message in JSON.
func wtCode(status int, header ...string) reply {
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return reply{status: status, header: h, body: fmt.Sprintf(`{"message":"scripted %d"}`, status)}
}

// wtTimes is n times the same answer.
func wtTimes(n int, step reply) []reply {
	steps := make([]reply, n)
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

// byMethod is an in-memory service that answers the requests of each method in
// the order of its replies, and all that follow with the last one. A method
// without replies is answered 500.
type byMethod struct {
	get, put, post, delete []reply

	mu   sync.Mutex
	seen []seen
}

func (s *byMethod) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/flavor") { // asked in between, for the proof of an absence
		return reply{body: `{"flavor_list":[]}`}.answer(req)
	}
	r := s.next(req)
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	if strings.HasPrefix(r.body, "<") {
		r.header = map[string]string{"Content-Type": "text/html"}
	}
	return r.answer(req)
}

func (s *byMethod) next(req *http.Request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen{Method: req.Method, Path: req.URL.Path, When: time.Now()})
	replies := map[string]*[]reply{"GET": &s.get, "PUT": &s.put, "POST": &s.post, "DELETE": &s.delete}[req.Method]
	if len(*replies) == 0 {
		return wtCode(500)
	}
	r := (*replies)[0]
	if len(*replies) > 1 {
		*replies = (*replies)[1:]
	}
	return r
}

// requests are those seen so far with this method.
func (s *byMethod) requests(method string) (list []seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if r.Method == method {
			list = append(list, r)
		}
	}
	return list
}

// gaps are the times between the GETs.
func (s *byMethod) gaps() []time.Duration {
	looks := s.requests("GET")
	gaps := make([]time.Duration, max(len(looks)-1, 0))
	for i := range gaps {
		gaps[i] = looks[i+1].When.Sub(looks[i].When)
	}
	return gaps
}

func (s *byMethod) services(t testing.TB, opts ...svc.Option) *svc.InferenceServiceClient {
	t.Helper()
	return clientOn(t, s, opts...).InferenceServices
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
