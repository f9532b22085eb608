package svctest

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// exchange is the state of one request while it is served.
type exchange struct {
	r     *http.Request
	path  string // as it was sent: escaped, without the query
	rec   *Request
	route *route // nil for an unknown path
	param string // the ID or key in the path, unescaped
	rest  string // the path after the route, for routes that accept longer paths
	fault *Fault
	pause func() // waits for the delay of a fault; called before the request takes effect
}

// call is the part of a request that an operation needs.
type call struct {
	user  string // the owner of the token
	id    string
	body  jsonObject // empty unless the operation has a body
	query url.Values
	now   time.Time
}

func (s *Server) apiHandler() http.Handler {
	return s.handler(func(r *route) bool { return r.template != RouteStorage || !s.cfg.separateStorage }, s.cfg.basePath)
}

func (s *Server) storageHandler() http.Handler {
	return s.handler(func(r *route) bool { return r.template == RouteStorage }, "")
}

// handler returns a handler for the routes for which the function has returns true. All
// routes except RouteStorage are below the path base.
func (s *Server) handler(has func(*route) bool, base string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		x := &exchange{r: r, path: path, pause: func() {}}
		inner, ok := strings.CutPrefix(path, base)
		if strings.HasPrefix(path, "/storage/") {
			inner, ok = path, true
		}
		x.route, x.param, x.rest = match(inner)
		if added := s.addedRoute(r, base); added != nil {
			x.route, x.param, x.rest = added, "", ""
		}
		if x.route != nil && (!ok || !has(x.route)) {
			x.route = nil
		}
		if s.cfg.cache.TTL > 0 && r.Method == http.MethodGet && x.route != nil && x.route.serve == nil {
			s.throughCache(w, x)
		} else {
			s.serve(w, x)
		}
	})
}

func (s *Server) serve(w http.ResponseWriter, x *exchange) {
	s.begin(x)
	w.Header().Set("X-Request-Id", x.rec.RequestID)
	status := &statusWriter{w, s, x.rec, false}
	defer status.note(0) // after a panic too, which cuts the connection
	w = status
	var serve func(http.ResponseWriter)
	if x.route != nil && x.route.serve != nil {
		serve = func(w http.ResponseWriter) { x.route.serve(s, w, x) }
	} else {
		serve = s.readAll(x)
	}
	if x.fault == nil {
		serve(w)
	} else {
		s.apply(x.fault, w, x, serve)
	}
	status.note(http.StatusOK) // as net/http does if nothing was written
}

// begin records the request and selects its fault.
func (s *Server) begin(x *exchange) {
	r := x.r
	x.rec = &Request{
		Time: s.now(), Method: r.Method, Host: r.Host, Path: x.path, RawQuery: r.URL.RawQuery,
		Header: r.Header, ContentLength: r.ContentLength, TransferEncoding: slices.Clone(r.TransferEncoding),
	}
	if x.route != nil {
		x.rec.Route = x.route.template
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder.add(x.rec)
	x.rec.RequestID = fmt.Sprintf("req-%d", s.recorder.total)
	x.fault = s.takeFault(r.Method, x.rec.Route, x.param)
	r.Body = &recordedBody{r.Body, s, x.rec}
}

// maxBody is the largest size of a JSON request in bytes.
const maxBody = 1 << 20

// readAll reads the body of a JSON request before anything else happens. This order is needed
// because net/http does not detect that the caller has disconnected until the body was read.
// readAll returns the function that carries out the request and writes the response.
func (s *Server) readAll(x *exchange) func(http.ResponseWriter) {
	body, err := io.ReadAll(io.LimitReader(x.r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has left
	}
	return func(w http.ResponseWriter) {
		x.pause()
		a := s.operate(x, body)
		s.sleep(x, a.delay)
		s.write(w, a, x.rec.RequestID)
	}
}

// operate checks a request against the contract and carries out the request.
func (s *Server) operate(x *exchange, body []byte) response {
	r := x.r
	if x.route == nil {
		return failure(http.StatusNotFound, "unknown_route", "there is no route for %s %s", r.Method, x.rec.Path)
	}
	user := s.account(r.Header)
	if !x.route.public && user == "" {
		a := failure(http.StatusUnauthorized, "unauthorized", "the Authorization header must hold the bearer token")
		a.header = map[string]string{"Www-Authenticate": "Bearer"}
		return a
	}
	if x.route.jobs && s.cfg.jobsRetired != 0 {
		return failure(s.cfg.jobsRetired, "retired", "the generation jobs have moved to another API")
	}
	op, ok := x.route.methods[r.Method]
	if !ok {
		a := failure(http.StatusMethodNotAllowed, "method_not_allowed", "%s allows %s", x.route.template, x.route.allowed())
		a.header = map[string]string{"Allow": x.route.allowed()}
		return a
	}
	c := &call{user: user, id: x.param}
	var err error
	if c.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return failure(http.StatusBadRequest, "invalid_query", "the query cannot be parsed")
	}
	for key := range c.query {
		if !slices.Contains(op.query, key) {
			return failure(http.StatusBadRequest, "invalid_query", "%s has no parameter %q", x.route.template, key)
		}
	}
	if a := checkBody(r, op, body); a.code != "" {
		return a
	}
	if op.body {
		var a response
		if c.body, a = parseJSON(body); a.code != "" {
			return a
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.now()
	return op.run(s, c)
}

// account returns the owner of the token in h, or "" if h holds no valid token.
func (s *Server) account(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return ""
	}
	return s.cfg.owners[token]
}

func checkBody(r *http.Request, op operation, body []byte) response {
	switch contentType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case !op.body && len(body) > 0:
		return failure(http.StatusBadRequest, "unexpected_body", "a %s request to this path must not have a body", r.Method)
	case !op.body:
	case contentType != "application/json":
		return failure(http.StatusUnsupportedMediaType, "unsupported_media_type", "the Content-Type must be application/json")
	case r.Header.Get("Content-Encoding") != "":
		return failure(http.StatusUnsupportedMediaType, "unsupported_media_type", "the request must not have a Content-Encoding")
	case len(body) > maxBody:
		return failure(http.StatusRequestEntityTooLarge, "too_large", "the body exceeds %d bytes", maxBody)
	}
	return response{}
}

// recordedBody records what is read from a request body.
type recordedBody struct {
	io.ReadCloser
	s   *Server
	rec *Request
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.s.readBody(b.rec, p[:n])
	}
	return n, err
}

// statusWriter records the status of the response.
type statusWriter struct {
	http.ResponseWriter
	s     *Server
	rec   *Request
	noted bool
}

func (w *statusWriter) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// note records the status, which is 0 for a request that ends without a response.
func (w *statusWriter) note(status int) {
	if w.noted {
		return
	}
	w.noted = true
	if _, ok := w.Header()["Date"]; !ok {
		w.Header()["Date"] = w.s.date()
	}
	if request := w.s.noteStatus(w.rec, status); request != nil {
		w.s.cfg.hook(*request)
	}
}

// date returns the Date header of a response that is sent now.
func (s *Server) date() []string {
	if s.cfg.noDate {
		return nil
	}
	return []string{s.now().UTC().Format(http.TimeFormat)}
}

// Unwrap lets http.ResponseController flush the response.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
