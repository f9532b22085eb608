package svctest

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault describes what goes wrong with a request. Set it up with [Server.Fault].
// The zero Fault lets one request pass, so that a later fault in the queue meets
// the request after it.
type Fault struct {
	// Status and Body are sent in place of the response of the service. Body is
	// sent as it is. Status 0 means 200 if there is a Body. With neither, the
	// response of the service is sent.
	Status int
	Body   string
	// Header is added to the response, also to that of the service. A nil value
	// leaves out a header that is otherwise set, such as Date. Without a
	// Content-Type in it, one is chosen by the first byte of Body; a success with
	// an empty Body has none.
	Header http.Header
	// RetryAfter is the value of the Retry-After header: seconds or an HTTP date.
	// Empty means no such header.
	RetryAfter string

	// Delay is how long the request is held before it takes effect. With
	// AfterEffect or DropAfter, it is the time between the effect and the response.
	// If the caller gives up during the delay, the request ends there and nothing
	// more happens.
	Delay time.Duration

	// AfterEffect lets the request take effect before Status and Body are sent, as
	// when a gateway loses the response to a create.
	AfterEffect bool
	// DropBefore cuts the connection before the request takes effect. No response
	// is sent.
	DropBefore bool
	// DropAfter cuts the connection after the request took effect. No response is
	// sent.
	DropAfter bool
	// Dead makes the connection go dead at the point where DropBefore, DropAfter,
	// TruncateBody or TruncateAfter would cut it. Without any of these, that point
	// is before the request takes effect, or with AfterEffect after it did. A dead
	// connection stays open and moves no byte in either direction. Other
	// connections work. In memory, the request hangs until its caller gives up.
	Dead bool

	// TruncateBody announces the length of the whole body, sends half of it and
	// cuts the connection.
	TruncateBody bool
	// TruncateAfter is the number of bytes of the body that are sent before the
	// connection is cut. The length of the whole body is announced. Zero means no
	// cut, a negative value a cut right after the headers.
	TruncateAfter int64

	// ReadBytes is the number of bytes of a request body that are read before
	// Status is sent or the connection is cut. Zero means none of the body of an
	// upload, or all of it if there is a Delay.
	ReadBytes int64
	// Rate limits uploads and downloads to this many bytes a second. Zero means no
	// limit.
	Rate int64

	// Times is how many requests the fault meets. Zero means one, a negative value
	// means all.
	Times int
	// For is how long the fault lasts, from the call of [Server.Fault] on, by the
	// clock of the server. During that time it meets every request, and Times is
	// ignored. Zero means that it lasts until Times is used up.
	For time.Duration
}

// ServiceUnavailable responds to n requests with 503 in place of the service.
// (The status of an endpoint that cannot serve is [StatusUnavailable].)
func ServiceUnavailable(n int) Fault {
	return Fault{Status: http.StatusServiceUnavailable, Body: `{"code":"unavailable","message":"try again later"}`, Times: n}
}

// Outage responds to every request with 503 for the duration d. A create that
// meets it fails with an unknown outcome, as with the real service. To spare
// creates, set it up for "GET" only, or start it later from a [time.AfterFunc].
func Outage(d time.Duration) Fault {
	f := ServiceUnavailable(0)
	f.For = d
	return f
}

// RateLimited responds to one request with 429 and this Retry-After header. An
// empty retryAfter leaves the header out.
func RateLimited(retryAfter string) Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: `{"code":"rate_limited","message":"too many requests"}`, RetryAfter: retryAfter}
}

// GatewayErrorAfterEffect responds to one request with a gateway's HTML page and
// 502, after the service has carried the request out.
func GatewayErrorAfterEffect() Fault {
	return Fault{Status: http.StatusBadGateway, Body: "<html><body><h1>502 Bad Gateway</h1></body></html>", AfterEffect: true}
}

// AcceptedWithoutEffect responds to one request with 202 and an empty body, and
// does nothing. On "DELETE" it is a deletion that the service accepts and
// forgets: the endpoint keeps running and is billed.
func AcceptedWithoutEffect() Fault { return Fault{Status: http.StatusAccepted} }

// EmptyAfterEffect carries out one request and responds with this status and an
// empty body, such as 202 or 204 to an update. The status is sent even if the
// service would have refused the request.
func EmptyAfterEffect(status int) Fault { return Fault{Status: status, AfterEffect: true} }

// ProxyPage responds to one request with this status and the HTML page that a
// proxy in front of the service would send. The request does not reach the
// service.
func ProxyPage(status int) Fault {
	title := strconv.Itoa(status) + " " + http.StatusText(status)
	return Fault{Status: status, Body: "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" +
		title + "</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"}
}

// Redirect responds to one request with this status, such as 307, and a Location
// header, which may name another host. The request does not reach the service.
func Redirect(status int, location string) Fault {
	return Fault{Status: status, Header: http.Header{"Location": {location}}}
}

// DropBeforeEffect cuts the connection of one request before it takes effect. A
// client cannot tell this from [DropAfterEffect]: the outcome of a create is
// unknown either way. To test a create that was certainly not sent, close the
// server.
func DropBeforeEffect() Fault { return Fault{DropBefore: true} }

// DropAfterEffect cuts the connection of one request after it took effect. The
// caller cannot know whether it did.
func DropAfterEffect() Fault { return Fault{DropAfter: true} }

// DeadConnection makes the connection of one request go dead before the request
// takes effect: the caller waits until it gives up. New connections work. See the
// field Dead of [Fault] for other points at which a connection can go dead.
func DeadConnection() Fault { return Fault{DropBefore: true, Dead: true} }

// Slow holds one request for d before it takes effect.
func Slow(d time.Duration) Fault { return Fault{Delay: d} }

type queuedFault struct {
	method, route string
	fault         Fault
	left          int       // requests that it still meets; negative means all
	until         time.Time // the end of its For; zero means that only left counts
}

func (q *queuedFault) over(now time.Time) bool { return !q.until.IsZero() && !now.Before(q.until) }

// Fault appends faults to a queue. They meet the requests with this method ("*"
// for any) and this route (one of the Route constants, or [RouteAny]). A request
// meets the first fault in the queue that matches it. A fault leaves the queue
// when its Times or its For is used up. A request that matches no fault is served
// normally. It panics if there is no such route or method.
//
// Over real connections, net/http repeats a GET, PUT or DELETE by itself if a
// reused connection fails before any response. The repetition meets the next
// fault.
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

// PendingFaults is the number of requests that will still get a fault from the queue.
// Faults without a fixed number are not counted: those with For set, and those that meet
// all requests.
func (s *Server) PendingFaults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, q := range s.faults {
		n += max(q.left, 0)
	}
	return n
}

// ClearFaults empties the queue of faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault finds the first fault that matches, and counts this request. It must
// be called with the server locked.
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

// responds says whether f replaces the response of the service.
func (f *Fault) responds() bool { return f.Status != 0 || f.Body != "" }

func (f *Fault) addHeader(h http.Header) {
	for k, v := range f.Header {
		h[http.CanonicalHeaderKey(k)] = v
	}
	if f.RetryAfter != "" {
		h.Set("Retry-After", f.RetryAfter)
	}
}

// write sends the response of the fault.
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

// apply serves x with fault f. effect carries the request out and writes the
// response. It calls x.pause after it has read the request and before anything
// takes effect.
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

// lose ends a request without sending more of a response. It cuts the
// connection, or leaves it dead until the server closes. It does not return.
func (s *Server) lose(x *exchange) {
	if x.fault.Dead {
		left := x.r.Context().Done()
		if conn := connOf(x.r); conn != nil {
			conn.die()
			left = nil // on a dead connection, nobody notices that the caller leaves
		}
		select {
		case <-left:
		case <-s.closing:
		}
	}
	panic(http.ErrAbortHandler)
}

// sleep waits for d. If the caller gives up or the server closes, the request
// ends there.
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
