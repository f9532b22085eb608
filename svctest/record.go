package svctest

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Request is one request as it arrived.
type Request struct {
	RequestID        string // as in the response's X-Request-Id
	Time             time.Time
	Method           string
	Host             string
	Path             string // as on the request line: escaped, without the query
	Route            string // the template it matched, such as [RouteEndpoint]; empty for an unknown path
	RawQuery         string
	Query            url.Values
	Header           http.Header
	ContentLength    int64    // -1 when not declared
	TransferEncoding []string // "chunked" shows up here, not in Header
	Body             []byte   // what was read of it, up to the limit of [WithRecordLimit]
	BodySize         int64    // how many bytes were read of it
	Status           int      // of the response; zero while there is none, or when the connection was dropped
}

// recorder keeps the latest requests in a ring, and a count of all.
type recorder struct {
	limit  int
	ring   []*Request
	next   int               // where the ring continues once it is full
	counts map[[2]string]int // by method and route
	total  int               // never reset: request IDs count it
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

// Requests lists the requests since the start or [Server.ResetRequests], in
// the order of their arrival, whether or not they took effect. The oldest
// ones are forgotten, see [WithRecordLimit].
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := &s.recorder
	list := make([]Request, 0, len(rec.ring))
	for _, r := range append(rec.ring[rec.next:len(rec.ring):len(rec.ring)], rec.ring[:rec.next]...) {
		c := *r
		c.Header = r.Header.Clone()
		c.Body = slices.Clone(r.Body)
		c.Query, _ = url.ParseQuery(r.RawQuery)
		list = append(list, c)
	}
	return list
}

// RequestCount says how many requests with this method matched this route,
// since the start or [Server.ResetRequests]. "*" stands for any method and
// [RouteAny] for any route. It panics if there is no such route or method.
func (s *Server) RequestCount(method, route string) int {
	checkRoute(method, route)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for key, count := range s.recorder.counts {
		if matches(method, key[0]) && matches(route, key[1]) {
			n += count
		}
	}
	return n
}

func matches(pattern, s string) bool { return pattern == "*" || pattern == s }

// ResetRequests forgets all requests and counts. Request IDs go on.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder.ring, s.recorder.next = nil, 0
	clear(s.recorder.counts)
}

// readBody notes a part of the body that has been read.
func (s *Server) readBody(r *Request, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.BodySize += int64(len(p))
	if room := s.cfg.recordBodyLength - len(r.Body); room > 0 && s.cfg.recordLimit > 0 {
		r.Body = append(r.Body, p[:min(room, len(p))]...)
	}
}
