package svctest

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault describes what goes wrong with a request. Set it up with [Server.Fault]. The zero
// Fault lets one request pass. Use it before a fault that applies to a later request.
type Fault struct {
	// Status and Body are sent in place of the response of the service. Body is
	// sent as it is. Status 0 means 200 if there is a Body. If neither is set, the
	// response of the service is sent.
	Status int
	Body   string
	// Header is added to the response, whether the fault or the service makes the
	// response. A nil value removes a header that is otherwise set, such as Date.
	// If Status or Body is set and Header has no Content-Type, the fault chooses the
	// Content-Type by the beginning of Body. A status below 300 with an empty Body
	// gets no Content-Type.
	Header http.Header
	// RetryAfter is the value of the Retry-After header: seconds or an HTTP date.
	// If it is empty, the fault sets no such header.
	RetryAfter string

	// Delay is how long the server waits before the request takes effect, or before
	// it sends Status and Body. With AfterEffect or DropAfter, Delay is the time
	// between the effect and the response, or between the effect and the cut. If the
	// caller gives up during the delay, the request ends and nothing more happens.
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
	// Dead makes the connection go dead at the point where DropBefore, DropAfter, TruncateBody
	// or TruncateAfter would cut it. If none of these four is set, the connection goes dead
	// before the request takes effect, or after it took effect if AfterEffect is set. A dead
	// connection stays open, but transfers no bytes in either direction. Other connections
	// work. In memory, the request hangs until its caller gives up.
	Dead bool

	// TruncateBody announces the length of the whole body, sends half of it and
	// cuts the connection.
	TruncateBody bool
	// TruncateAfter is the number of bytes of the body that are sent before the
	// connection is cut. The length of the whole body is announced. Zero means no
	// cut. A negative value means a cut right after the headers.
	TruncateAfter int64

	// ReadBytes is the number of bytes of an upload that are read before Status is
	// sent or the connection is cut. Zero means no bytes, or all bytes if there is a
	// Delay. The body of a JSON request is always read to its end first.
	ReadBytes int64
	// Rate limits uploads and downloads to this many bytes a second. Zero means no
	// limit.
	Rate int64

	// ID limits the fault to requests whose path holds this ID, such as "svc-1".
	// Requests for other IDs pass it by. If ID is empty, the fault applies to all of them.
	ID string
	// Times is the number of requests that the fault applies to. Zero means one
	// request, a negative value means all requests.
	Times int
	// For is how long the fault lasts, from the call of [Server.Fault] on, by the
	// clock of the server. During that time the fault applies to every request, and
	// Times is ignored. If For is zero, the fault lasts until Times is used up.
	For time.Duration
}

// ServiceUnavailable responds to n requests with 503 in place of the service.
// (The status of an endpoint that cannot serve is [StatusUnavailable].)
func ServiceUnavailable(n int) Fault {
	return Fault{Status: http.StatusServiceUnavailable, Body: `{"code":"unavailable","message":"try again later"}`, Times: n}
}

// Outage responds to every request with 503 for the duration d. A create during the
// outage fails with an unknown outcome, as with the real service. If the create has to
// succeed, set up the outage for "GET" only, or start it later with [time.AfterFunc].
func Outage(d time.Duration) Fault {
	f := ServiceUnavailable(0)
	f.For = d
	return f
}

// RateLimited responds to one request with 429 and this Retry-After header. If
// retryAfter is empty, the header is not sent.
func RateLimited(retryAfter string) Fault {
	return Fault{Status: http.StatusTooManyRequests, Body: `{"code":"rate_limited","message":"too many requests"}`, RetryAfter: retryAfter}
}

// GatewayErrorAfterEffect responds to one request with 502 and a gateway's HTML page,
// after the service has carried out the request.
func GatewayErrorAfterEffect() Fault {
	return Fault{Status: http.StatusBadGateway, Body: "<html><body><h1>502 Bad Gateway</h1></body></html>", AfterEffect: true}
}

// AcceptedWithoutEffect responds to one request with 202 and an empty body, and does nothing.
// For "DELETE" this means that an accepted deletion has no effect: the endpoint keeps running
// and is billed.
func AcceptedWithoutEffect() Fault { return Fault{Status: http.StatusAccepted} }

// EmptyAfterEffect carries out one request and responds with this status, such as 202
// or 204, and an empty body. The status is sent even if the service refuses the
// request.
func EmptyAfterEffect(status int) Fault { return Fault{Status: status, AfterEffect: true} }

// ProxyPage responds to one request with this status and the HTML page that a
// proxy in front of the service would send. The request does not reach the
// service.
func ProxyPage(status int) Fault {
	title := strconv.Itoa(status) + " " + http.StatusText(status)
	return Fault{Status: status, Body: "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" +
		title + "</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"}
}

// RouterNotFound responds to one request with the plain-text 404 of a router in front of the service
// that has no backend at the moment. Set Times or For to make it last, and ID to limit
// it to one endpoint. The request does not reach the service. Routers also send JSON (see
// [RouterNotFoundJSON]) and HTML (see [ProxyPage]).
func RouterNotFound() Fault {
	return Fault{Status: http.StatusNotFound, Body: "404 page not found\n"}
}

// RouterNotFoundJSON is a [RouterNotFound] in JSON. Its form is the same as that of a response
// of the service.
func RouterNotFoundJSON() Fault {
	return Fault{Status: http.StatusNotFound, Body: `{"message":"no Route matched with those values"}`}
}

// Redirect responds to one request with this status, such as 307, and a Location
// header, which may name another host. The request does not reach the service.
func Redirect(status int, location string) Fault {
	return Fault{Status: status, Header: http.Header{"Location": {location}}}
}

// DropBeforeEffect cuts the connection of one request before it takes effect. A client cannot
// distinguish it from [DropAfterEffect]: the outcome of a create is unknown in both cases. To
// test a create that is known not to have been sent, close the server.
func DropBeforeEffect() Fault { return Fault{DropBefore: true} }

// DropAfterEffect cuts the connection of one request after it took effect. The
// caller cannot know whether the request took effect.
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
	left          int       // number of requests that it still applies to; negative means all
	until         time.Time // when For ends; zero if For is not set
}

func (q *queuedFault) over(now time.Time) bool { return !q.until.IsZero() && !now.Before(q.until) }

// Fault appends faults to a queue. They apply to the requests with this method ("*"
// for any) and this route (one of the Route constants, or [RouteAny]). Only the first
// fault in the queue that matches a request applies to it. A fault leaves the queue
// when its Times or its For is used up. A request that matches no fault is served
// normally. Fault panics if there is no such route or method.
//
// Over real connections, net/http repeats a GET, PUT or DELETE by itself if a
// reused connection fails before any response. The repeated request counts as another
// request: the next fault in the queue applies to it.
func (s *Server) Fault(method, route string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkRoute(method, route)
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
			q.left, q.until = -1, s.now().Add(f.For)
		}
		s.faults = append(s.faults, q)
	}
}

// PendingFaults returns the number of requests that the faults in the queue still apply to. It
// excludes faults without a fixed number of requests: faults with For, and faults whose Times
// is negative.
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

// takeFault returns the first fault that matches a request, and counts the request. The
// caller must hold s.mu.
func (s *Server) takeFault(method, route, id string) *Fault {
	now := s.now()
	s.faults = slices.DeleteFunc(s.faults, func(q *queuedFault) bool { return q.over(now) })
	for i, q := range s.faults {
		if !matches(q.method, method) || !matches(q.route, route) {
			continue
		}
		if q.fault.ID != "" && q.fault.ID != id {
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

// responds reports whether f replaces the response of the service.
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
	case f.Body == "" && f.Status < http.StatusMultipleChoices: // no Content-Type, like the service
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

// apply serves x with fault f. The function effect carries out the request and writes
// the response. effect calls x.pause before the request takes effect.
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
		case f.Delay > 0: // net/http can notice that the caller leaves only after the body was read
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

// lose ends a request without sending more of the response, and does not return. It cuts
// the connection. If the fault has Dead, it first makes the connection dead, and waits
// until the server closes. In memory it waits until the caller gives up.
func (s *Server) lose(x *exchange) {
	if x.fault.Dead {
		left := x.r.Context().Done()
		if conn := connOf(x.r); conn != nil {
			conn.die()
			left = nil // on a dead connection, the server does not notice that the caller leaves
		}
		select {
		case <-left:
		case <-s.closing:
		}
	}
	panic(http.ErrAbortHandler)
}

// sleep waits for d. If the caller gives up or the server closes during that time,
// sleep ends the request and does not return.
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
