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
	"testing"
	"testing/iotest"
	"time"

	"example.com/svc"
	"example.com/svc/internal/errno"
)

// Reply describes what happens to one request: it gets a response, or the connection fails.
type Reply struct {
	Status int               // 0 means 200 if Err is nil
	Header map[string]string // added to Content-Type: application/json, and may replace it
	Body   string
	After  time.Duration // time before the response or Err; with [Ages] the service never responds
	Err    error         // without a Status: returned in place of a response; with a Status: returned after the body
	Unsent bool          // the request body is not read before Err is returned
	Stall  bool          // after the body, nothing comes until the request is cancelled
	Cut    bool          // the connection is lost after half of the body
}

// Seen is a request that arrived.
type Seen struct {
	Method string
	Path   string // escaped, with the query
	Host   string
	Header http.Header
	Body   string
	At     time.Duration // time from the creation of the script to the arrival of the request
	When   time.Time     // time of arrival
}

// Script is a transport that plays a service: it gives each request the next reply. It
// works inside a synctest bubble. The test fails if a request finds no reply, or if
// replies are left at the end.
type Script struct {
	t     testing.TB
	start time.Time
	loop  bool

	mu       sync.Mutex
	Replies  []Reply
	Requests []Seen
}

// Play returns a Script that uses each of the replies once, in this order.
func Play(t testing.TB, replies ...Reply) *Script {
	s := &Script{t: t, start: time.Now(), Replies: replies}
	t.Cleanup(func() {
		if left := len(s.Replies); left > 0 && !t.Failed() {
			t.Errorf("%d replies of the script were not used; it received %d requests", left, len(s.Requests))
		}
	})
	return s
}

// Loop returns a Script that responds to every request with r.
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

// answer waits for r.After. Then it returns the response or the error of r.
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

// pause waits for d. If the request is cancelled before that, pause returns the error of
// its context.
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

// respond returns a JSON response.
func respond(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// next records a request and returns its reply.
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
		s.t.Errorf("the script has no reply for this request: %s %s", e.Method, e.Path)
		return r, errors.New("the script has no more replies")
	}
	return r, nil
}

// Seen returns the requests so far.
func (s *Script) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.Requests...)
}

// Gaps returns the times between the requests.
func (s *Script) Gaps() (gaps []time.Duration) {
	all := s.Seen()
	for i := 1; i < len(all); i++ {
		gaps = append(gaps, all[i].At-all[i-1].At)
	}
	return gaps
}

// Client returns a client that sends its requests to the script.
func (s *Script) Client(opts ...svc.Option) *svc.Client {
	s.t.Helper()
	return ClientOn(s.t, s, opts...)
}

// RedirectTo returns a redirect to the address to, with this status code.
func RedirectTo(code int, to string) Reply {
	return Reply{Status: code, Header: map[string]string{"Location": to}}
}

// Errors of a connection, and replies with such errors.
var (
	ErrReset   = &net.OpError{Op: "read", Net: "tcp", Err: errno.ConnReset}
	ErrRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errno.ConnRefused}

	Refused  = Reply{Err: ErrRefused, Unsent: true}                                    // the connection is refused
	Lost     = Reply{Err: ErrReset}                                                    // the connection is lost after the request was sent
	CutShort = Reply{Status: 200, Body: `{"service_id":"sv`, Err: io.ErrUnexpectedEOF} // the connection is lost in the body of a 200
)

// Status returns an error response with this status code and a JSON message.
func Status(code int) Reply { return Reply{Status: code, Body: `{"message":"no luck"}`} }

// Fails returns an error response whose JSON message contains the status. The header
// arguments are pairs of a name and a value.
func Fails(status int, header ...string) Reply {
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return Reply{Status: status, Header: h, Body: fmt.Sprintf(`{"message":"scripted %d"}`, status)}
}

// Times returns n copies of r.
func Times(n int, r Reply) []Reply { return slices.Repeat([]Reply{r}, n) }

// ByMethod is a transport that plays a service, with a list of replies for each HTTP
// method. Each request gets the next reply of its method. The last reply is used for all
// later requests. If a method has no replies, the response is 500. The flavor list is
// always empty; requests for it use no reply and are not recorded.
type ByMethod struct {
	Get, Put, Post, Delete []Reply

	mu   sync.Mutex
	Seen []Seen // with Method, When, and Path (unescaped, without the query) only
}

// RoundTrip returns the next reply of the method.
func (s *ByMethod) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/flavor") { // a wait reads the list to prove that an endpoint is deleted
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

// Requests returns the requests with this method so far.
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

// Gaps returns the times between the GET requests.
func (s *ByMethod) Gaps() []time.Duration {
	polls := s.Requests("GET")
	gaps := make([]time.Duration, max(len(polls)-1, 0))
	for i := range gaps {
		gaps[i] = polls[i+1].When.Sub(polls[i].When)
	}
	return gaps
}

// Services returns a client that sends its requests to s, and returns its InferenceServices.
func (s *ByMethod) Services(t testing.TB, opts ...svc.Option) *svc.InferenceServiceClient {
	t.Helper()
	return ClientOn(t, s, opts...).InferenceServices
}
