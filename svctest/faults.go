package svctest

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is what goes wrong with a request. Queue it with [Server.Fault]. The
// zero Fault lets one request pass, which makes room in a queue.
type Fault struct {
	// Status and Body response in place of the service, literally: an empty Body
	// is an empty body. A Body alone is a 200. Without either, the real response
	// is sent.
	Status int
	Body   string
	// Header is added to the response, also to the real one. Without a
	// Content-Type, one is chosen by the first byte of Body; a success with an
	// empty Body has none.
	Header http.Header
	// RetryAfter is the Retry-After header: seconds or an HTTP date.
	RetryAfter string

	// Delay passes before the request takes effect, or with AfterEffect and
	// DropAfter between the effect and the response. It ends when the caller gives
	// up, and then nothing more happens.
	Delay time.Duration

	// AfterEffect lets the request take effect before Status and Body are sent,
	// as when a gateway loses the response to a create.
	AfterEffect bool
	// DropBefore cuts the connection before the request takes effect, DropAfter
	// when it has, both without a response.
	DropBefore, DropAfter bool

	// Dead makes the connection go dead where DropBefore, DropAfter, TruncateBody
	// or TruncateAfter would cut it; without any of these, before the request takes
	// effect, or with AfterEffect when it has. A dead connection stays open and
	// moves no byte in either direction. Other connections work. In memory, the
	// request waits until its caller gives up.
	Dead bool

	// TruncateBody announces the whole response, sends half of its body and cuts
	// the connection. TruncateAfter does so after this many bytes, or right
	// after the headers if it is negative.
	TruncateBody  bool
	TruncateAfter int64

	// ReadBytes is for uploads: read only so much of the body, then response with
	// Status or drop the connection.
	ReadBytes int64
	// Rate limits uploads and downloads to this many bytes a second. Zero: no limit.
	Rate int64

	// Times is how many requests the fault meets: zero means one, a negative
	// value all of them.
	Times int
	// For is how long the fault lasts, from the moment at which it is queued, on
	// the clock of the server. Until then it meets every request, whatever Times
	// says. Zero: it lasts until Times is used up.
	For time.Duration
}

// ServiceUnavailable answers the next n requests with 503 in place of the service.
// (The status of an endpoint that cannot serve is [StatusUnavailable].)
func ServiceUnavailable(n int) Fault {
	return Fault{Status: http.StatusServiceUnavailable, Body: `{"code":"unavailable","message":"try again later"}`, Times: n}
}

// Outage answers every request with 503 for as long as d. One that meets a create
// leaves its outcome unknown to the client, as the real thing would: queue it for
// "GET" only, or begin it later, from a [time.AfterFunc].
func Outage(d time.Duration) Fault {
	f := ServiceUnavailable(0)
	f.For = d
	return f
}

// RateLimited answers one request with 429 and this Retry-After, unless it is empty.
func RateLimited(retryAfter string) Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: `{"code":"rate_limited","message":"too many requests"}`, RetryAfter: retryAfter}
}

// GatewayErrorAfterEffect answers one request with a gateway's HTML 502 after
// the service has carried it out.
func GatewayErrorAfterEffect() Fault {
	return Fault{Status: http.StatusBadGateway, Body: "<html><body><h1>502 Bad Gateway</h1></body></html>", AfterEffect: true}
}

// AcceptedWithoutEffect answers one request with 202 and an empty body, and
// does nothing. On "DELETE" it is a deletion that the service accepts and
// forgets: the endpoint stays, and is billed.
func AcceptedWithoutEffect() Fault { return Fault{Status: http.StatusAccepted} }

// DropBeforeEffect cuts the connection of one request before it takes effect. The
// client cannot tell that from [DropAfterEffect]: a create is of unknown outcome
// either way. What certainly was not sent is what a closed server refuses.
func DropBeforeEffect() Fault { return Fault{DropBefore: true} }

// DropAfterEffect cuts the connection of one request after it took effect, so
// that the caller cannot know whether it did.
func DropAfterEffect() Fault { return Fault{DropAfter: true} }

// EmptyAfterEffect carries out one request, and answers with this status and an
// empty body, such as 202 or 204 to an update. It does so too where the service
// would have refused the request.
func EmptyAfterEffect(status int) Fault { return Fault{Status: status, AfterEffect: true} }

// ProxyPage answers one request with the HTML page that a proxy in front of the
// service sends with this status. The request does not reach the service.
func ProxyPage(status int) Fault {
	title := strconv.Itoa(status) + " " + http.StatusText(status)
	return Fault{Status: status, Body: "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" +
		title + "</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"}
}

// Redirect answers one request with this status, such as 307, and a Location
// header that may name another host. The request does not reach the service.
func Redirect(status int, location string) Fault {
	return Fault{Status: status, Header: http.Header{"Location": {location}}}
}

// DeadConnection lets the connection of one request go dead before the request
// takes effect: no byte moves on it any more, while new connections work. See
// the field Dead of [Fault] for more ways to use it.
func DeadConnection() Fault { return Fault{DropBefore: true, Dead: true} }

// Slow holds one request back for d.
func Slow(d time.Duration) Fault { return Fault{Delay: d} }

type queuedFault struct {
	method, route string
	fault         Fault
	left          int       // negative: for ever
	until         time.Time // zero: as left says
}

func (q *queuedFault) over(now time.Time) bool { return !q.until.IsZero() && !now.Before(q.until) }

// Fault queues faults for requests with this method ("*" for any) and route
// (a Route constant, or [RouteAny]). Each matching request uses up one turn
// of the fault that was queued first; requests beyond the queue are served
// normally. It panics if there is no such route or method.
//
// Beware of net/http over a real connection: a GET, PUT or DELETE that fails
// on a reused connection before any response is sent once more by the transport
// itself, which uses up the next fault.
func (s *Server) Fault(method, route string, faults ...Fault) {
	checkRoute(method, route)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.Dead && !f.TruncateBody && f.TruncateAfter == 0 {
			f.DropAfter = f.DropAfter || f.AfterEffect
			f.DropBefore = !f.DropAfter
		}
		q := &queuedFault{method: method, route: route, fault: f, left: f.Times}
		if q.left == 0 {
			q.left = 1
		}
		if f.For > 0 {
			q.left, q.until = -1, time.Now().Add(f.For)
		}
		s.faults = append(s.faults, q)
	}
}

// PendingFaults counts the queued faults that no request has used up yet.
// Those that last for a time or for ever are not counted.
func (s *Server) PendingFaults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, q := range s.faults {
		n += max(q.left, 0)
	}
	return n
}

// ClearFaults removes all queued faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault uses up one turn of the first fault that fits. Call it locked.
func (s *Server) takeFault(method, route string) *Fault {
	now := time.Now()
	s.faults = slices.DeleteFunc(s.faults, func(q *queuedFault) bool { return q.over(now) })
	for i, q := range s.faults {
		if !matches(q.method, method) || !matches(q.route, route) {
			continue
		}
		if q.left > 0 {
			q.left--
		}
		if q.left == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return &q.fault
	}
	return nil
}

// answers says whether f has a response of its own.
func (f *Fault) responds() bool { return f.Status != 0 || f.Body != "" }

func (f *Fault) addHeader(h http.Header) {
	for k, v := range f.Header {
		h[http.CanonicalHeaderKey(k)] = v
	}
	if f.RetryAfter != "" {
		h.Set("Retry-After", f.RetryAfter)
	}
}

// write sends the fault's own response.
func (f *Fault) write(w http.ResponseWriter) {
	h := w.Header()
	switch {
	case f.Body == "" && f.Status < http.StatusMultipleChoices: // as the service does
	case strings.HasPrefix(f.Body, "<?xml"), strings.HasPrefix(f.Body, "<Error"):
		h.Set("Content-Type", "application/xml")
	case strings.HasPrefix(f.Body, "<"):
		h.Set("Content-Type", "text/html; charset=utf-8")
	case strings.HasPrefix(f.Body, "{"), strings.HasPrefix(f.Body, "["):
		h.Set("Content-Type", "application/json")
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	f.addHeader(h)
	if h.Get("Content-Length") == "" && f.Status != http.StatusNoContent && f.Status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(f.Body)))
	}
	w.WriteHeader(max(f.Status, http.StatusOK))
	_, _ = io.WriteString(w, f.Body)
}

// apply serves x with the fault in its way. effect does what the request asks
// for and writes the response; it calls x.pause once it has all it needs.
func (s *Server) apply(f *Fault, w http.ResponseWriter, x *exchange, effect func(http.ResponseWriter)) {
	sleep := func() { s.sleep(x, f.Delay) }
	if f.Rate > 0 {
		x.r.Body = &pacedBody{x.r.Body, func(n int) { s.sleep(x, paceOf(n, f.Rate)) }}
	}
	w = &faultyWriter{
		ResponseWriter: w, f: f,
		sleep: func(n int) { s.sleep(x, paceOf(n, f.Rate)) },
		lose:  func() { s.lose(x) },
	}
	switch {
	case f.AfterEffect || f.DropAfter:
		real := newCapture()
		effect(real)
		sleep()
		switch {
		case f.DropAfter:
			s.lose(x)
		case f.responds():
			f.write(w)
		default:
			real.replay(w)
		}
	case f.DropBefore || f.responds():
		switch {
		case f.ReadBytes > 0:
			_, _ = io.CopyN(io.Discard, x.r.Body, f.ReadBytes)
		case f.Delay > 0: // a server sees a caller leave only when the body is read
			_, _ = io.Copy(io.Discard, x.r.Body)
		}
		sleep()
		if f.DropBefore {
			s.lose(x)
		}
		f.write(w)
	default:
		x.pause = sleep
		effect(w)
	}
}

// lose ends a request without more of a response: it cuts the connection, or
// leaves it dead until the server closes. It does not return.
func (s *Server) lose(x *exchange) {
	if x.fault.Dead {
		gone := x.r.Context().Done()
		if conn := connOf(x.r); conn != nil {
			conn.die()
			gone = nil // a caller that hangs up goes unnoticed
		}
		select {
		case <-gone:
		case <-s.closing:
		}
	}
	panic(http.ErrAbortHandler)
}

// sleep waits on the clock. When the caller has gone or the server closes,
// the request ends there.
func (s *Server) sleep(x *exchange, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-s.closing:
		panic(http.ErrAbortHandler)
	}
}

func paceOf(n int, rate int64) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
