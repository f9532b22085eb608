package svctest

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Request is a request that the service received, with the status of its response.
type Request struct {
	// RequestID is the X-Request-Id of the response.
	RequestID string
	// Time is the time at which the request arrived.
	Time time.Time
	// Method is the HTTP method. Host is the value of the Host header.
	Method, Host string
	// Path is the path as it was sent: escaped, without the query.
	Path string
	// Route is the Route constant that the path matched, such as [RouteEndpoint]. It
	// is empty for an unknown path.
	Route string
	// RawQuery is the query as it was sent. Query holds the parameters of the query.
	RawQuery string
	Query    url.Values
	// Header holds the headers. Transfer-Encoding is not one of them.
	Header http.Header
	// ContentLength is the announced length of the body in bytes, or -1 if none was
	// announced.
	ContentLength int64
	// TransferEncoding is "chunked" for a body without an announced length.
	TransferEncoding []string
	// Body is the part of the body that was read, up to the limit of
	// [WithRecordLimit].
	Body []byte
	// BodySize is the number of bytes of the body that were read.
	BodySize int64
	// Status is the status of the response. It is zero until the response is sent. It
	// stays zero if the connection is cut before that.
	Status int
}

// recorder keeps the latest requests in a ring buffer, and counts all requests.
type recorder struct {
	limit  int
	ring   []*Request
	next   int               // index of the oldest request after the ring is full; 0 before
	counts map[[2]string]int // number of requests, by method and route
	total  int               // number of all requests; never reset, since request IDs are made from it
}

func (rec *recorder) add(r *Request) {
	rec.total++
	rec.counts[[2]string{r.Method, r.Route}]++
	switch {
	case rec.limit == 0:
	case len(rec.ring) < rec.limit:
		rec.ring = append(rec.ring, r)
	default:
		rec.ring[rec.next] = r
		rec.next = (rec.next + 1) % rec.limit
	}
}

// Requests lists the requests since the start, or since the last call of
// [Server.ResetRequests], in the order in which they arrived. It also lists requests that
// took no effect. [WithRecordLimit] sets how many requests are kept.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := &s.recorder
	list := make([]Request, 0, len(rec.ring))
	for _, r := range append(rec.ring[rec.next:len(rec.ring):len(rec.ring)], rec.ring[:rec.next]...) {
		list = append(list, r.clone())
	}
	return list
}

// clone returns a copy that nothing changes. The caller must hold s.mu.
func (r *Request) clone() Request {
	c := *r
	c.Header = r.Header.Clone()
	c.Body = slices.Clone(r.Body)
	c.Query, _ = url.ParseQuery(r.RawQuery)
	return c
}

// noteStatus sets the status of r, and returns a copy of r if there is a hook.
func (s *Server) noteStatus(r *Request, status int) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Status = status
	if s.cfg.hook == nil {
		return nil
	}
	c := r.clone()
	return &c
}

// RequestCount counts the requests with this method and this route since the start, or
// since the last call of [Server.ResetRequests]. "*" means any method, and [RouteAny]
// means any route. RequestCount panics if there is no such route or method.
func (s *Server) RequestCount(method, route string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkRoute(method, route)
	n := 0
	for key, count := range s.recorder.counts {
		if matches(method, key[0]) && matches(route, key[1]) {
			n += count
		}
	}
	return n
}

func matches(pattern, s string) bool { return pattern == "*" || pattern == s }

// ResetRequests empties the list of requests and sets the counts to zero. It does not
// reset the request IDs: the next request gets the next number.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder.ring, s.recorder.next = nil, 0
	clear(s.recorder.counts)
}

// readBody adds p, a part of the request body that was just read, to the record r.
func (s *Server) readBody(r *Request, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.BodySize += int64(len(p))
	if room := s.cfg.recordBodyLength - len(r.Body); room > 0 && s.cfg.recordLimit > 0 {
		r.Body = append(r.Body, p[:min(room, len(p))]...)
	}
}
