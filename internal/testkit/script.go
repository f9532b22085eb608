package testkit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"example.com/svc"
)

// Reply is one scripted exchange: an answer, or what becomes of it.
type Reply struct {
	Status int               // 0: 200
	Header map[string]string // beside Content-Type: application/json, which it may replace
	Body   string
	After  time.Duration // how long the service takes; [Ages]: it never answers
	Err    error         // comes in place of the answer, or after its body when there is a status
	Unsent bool          // Err comes before anything of the request is read
	Stall  bool          // the body is followed by silence
	Cut    bool          // half of the body comes, then the connection is lost
}

// Seen is a request that arrived.
type Seen struct {
	Method string
	Path   string // escaped, with the query
	Host   string
	Header http.Header
	Body   string
	At     time.Duration // since the script was made
	When   time.Time
}

// Script is a transport that plays a service. It works inside a synctest bubble.
// A request beyond the script fails the test, and so does a reply left over.
type Script struct {
	t     testing.TB
	start time.Time
	loop  bool

	mu       sync.Mutex
	Replies  []Reply
	Requests []Seen
}

// Play answers with the replies in turn.
func Play(t testing.TB, replies ...Reply) *Script {
	s := &Script{t: t, start: time.Now(), Replies: replies}
	t.Cleanup(func() {
		if left := len(s.Replies); left > 0 && !t.Failed() {
			t.Errorf("%d replies left over after %d requests", left, len(s.Requests))
		}
	})
	return s
}

// Loop answers everything with r.
func Loop(t testing.TB, r Reply) *Script {
	return &Script{t: t, start: time.Now(), Replies: []Reply{r}, loop: true}
}

// RoundTrip plays the next reply.
func (s *Script) RoundTrip(req *http.Request) (*http.Response, error) {
	r, err := s.next(req)
	if err != nil {
		return nil, err
	}
	return r.answer(req)
}

// answer is what a client gets: after its time, a response or an error.
func (r Reply) answer(req *http.Request) (*http.Response, error) {
	if err := pause(req, r.After); err != nil {
		return nil, err
	}
	if r.Status == 0 && r.Err != nil {
		return nil, r.Err
	}
	resp := respond(req, cmp.Or(r.Status, 200), []byte(r.Body))
	for key, value := range r.Header {
		resp.Header.Set(key, value)
	}
	body := io.Reader(strings.NewReader(r.Body))
	switch {
	case r.Cut:
		body = io.MultiReader(strings.NewReader(r.Body[:len(r.Body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	case r.Stall:
		resp.ContentLength = -1
		body = io.MultiReader(body, ReadFunc(func([]byte) (int, error) {
			<-req.Context().Done()
			return 0, req.Context().Err()
		}))
	case r.Err != nil:
		resp.ContentLength = -1
		body = io.MultiReader(body, iotest.ErrReader(r.Err))
	}
	resp.Body = io.NopCloser(body)
	return resp, nil
}

// pause lasts for d, or until the request is cancelled.
func pause(req *http.Request, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// respond is a response in JSON.
func respond(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// next notes a request and picks its reply.
func (s *Script) next(req *http.Request) (Reply, error) {
	s.mu.Lock()
	r, known := Reply{}, len(s.Replies) > 0
	if known {
		r = s.Replies[0]
		if !s.loop {
			s.Replies = s.Replies[1:]
		}
	}
	s.mu.Unlock()
	e := Seen{
		Method: req.Method, Path: req.URL.RequestURI(), Host: req.URL.Host,
		Header: req.Header.Clone(), At: time.Since(s.start), When: time.Now(),
	}
	if req.Body != nil && !r.Unsent {
		b, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return r, err
		}
		e.Body = string(b)
	}
	s.mu.Lock()
	s.Requests = append(s.Requests, e)
	s.mu.Unlock()
	if !known {
		s.t.Errorf("a request beyond the script: %s %s", e.Method, e.Path)
		return r, errors.New("the script is at its end")
	}
	return r, nil
}

// Seen returns the requests so far.
func (s *Script) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.Requests...)
}

// Gaps are the times between the requests.
func (s *Script) Gaps() (gaps []time.Duration) {
	all := s.Seen()
	for i := 1; i < len(all); i++ {
		gaps = append(gaps, all[i].At-all[i-1].At)
	}
	return gaps
}

// Client makes a client of the script.
func (s *Script) Client(opts ...svc.Option) *svc.Client {
	s.t.Helper()
	return ClientOn(s.t, s, opts...)
}

// RedirectTo leads to another address.
func RedirectTo(code int, to string) Reply {
	return Reply{Status: code, Header: map[string]string{"Location": to}}
}

// What may become of a connection.
var (
	ErrReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	ErrRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

	Refused  = Reply{Err: ErrRefused, Unsent: true}
	Lost     = Reply{Err: ErrReset}
	CutShort = Reply{Status: 200, Body: `{"service_id":"sv`, Err: io.ErrUnexpectedEOF}
)

// Status is a failure with a message in JSON.
func Status(code int) Reply { return Reply{Status: code, Body: `{"message":"no luck"}`} }

// Fails is a failure whose message tells its status, with headers in pairs.
func Fails(status int, header ...string) Reply {
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return Reply{Status: status, Header: h, Body: fmt.Sprintf(`{"message":"scripted %d"}`, status)}
}

// Times is n times the same reply.
func Times(n int, r Reply) []Reply { return slices.Repeat([]Reply{r}, n) }

// ByMethod is an in-memory service that answers the requests of each method in
// the order of its replies, and all that follow with the last one. A method
// without replies is answered 500.
type ByMethod struct {
	Get, Put, Post, Delete []Reply

	mu   sync.Mutex
	Seen []Seen
}

// RoundTrip plays the next reply to that method.
func (s *ByMethod) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/flavor") { // asked in between, for the proof of an absence
		return Reply{Body: `{"flavor_list":[]}`}.answer(req)
	}
	r := s.next(req)
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	if strings.HasPrefix(r.Body, "<") {
		r.Header = map[string]string{"Content-Type": "text/html"}
	}
	return r.answer(req)
}

func (s *ByMethod) next(req *http.Request) Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Seen = append(s.Seen, Seen{Method: req.Method, Path: req.URL.Path, When: time.Now()})
	replies := map[string]*[]Reply{"GET": &s.Get, "PUT": &s.Put, "POST": &s.Post, "DELETE": &s.Delete}[req.Method]
	if len(*replies) == 0 {
		return Fails(500)
	}
	r := (*replies)[0]
	if len(*replies) > 1 {
		*replies = (*replies)[1:]
	}
	return r
}

// Requests are those seen so far with this method.
func (s *ByMethod) Requests(method string) (list []Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.Seen {
		if r.Method == method {
			list = append(list, r)
		}
	}
	return list
}

// Gaps are the times between the GETs.
func (s *ByMethod) Gaps() []time.Duration {
	polls := s.Requests("GET")
	gaps := make([]time.Duration, max(len(polls)-1, 0))
	for i := range gaps {
		gaps[i] = polls[i+1].When.Sub(polls[i].When)
	}
	return gaps
}

// Services makes a client of the script.
func (s *ByMethod) Services(t testing.TB, opts ...svc.Option) *svc.InferenceServiceClient {
	t.Helper()
	return ClientOn(t, s, opts...).InferenceServices
}
