package rules

import (
	"net/http"
	"slices"
	"time"
)

// Failure describes a failed poll or delete.
type Failure struct {
	Class       Class
	Status      int  // status of the response; 0 if there was none
	Persistent  bool // Transport: the certificate was not accepted, or a retry would get the same error
	Undecodable bool // a 2xx response that is not the documented one
	Final       bool // no retry can help: there is no token, the error is Permanent, or the request is invalid
}

// A Task is an operation that failures may end.
type Task int

// The tasks. A cleanup, a removal and a reaping tolerate more failures than a wait, since an
// endpoint that they do not delete is billed.
const (
	Wait    Task = iota // a wait for a state
	Removal             // a DeleteAndWait, which the caller started
	Reaping             // the removal of an endpoint whose lease is over
	Cleanup             // the removal of an endpoint after a failure
)

// EndsUnknown reports whether a task ends when the endpoint is not found with this token. A
// cleanup continues, since its endpoint was created.
func (t Task) EndsUnknown() bool { return t != Cleanup }

// Failures holds the failures of a task since its latest success. The zero value of the other
// fields means that there are none. It is a value: After returns a new one.
type Failures struct {
	Task    Task
	foreign int       // responses in a row that were not the service's own, or could not be decoded
	refused time.Time // when the service began to refuse the request; zero if it does not
	latest  time.Time // when the service refused the request for the last time
}

const (
	maxForeign = 5                // foreign responses in a row that end a wait
	confirm    = 10 * time.Second // a refusal ends a task only if it is still there after this time
)

// After returns the failures with f added, and whether the task continues. contact reports whether the
// client has had a response of the service before. A "not found" is not a failure: see Evidence.
func (s Failures) After(f Failure, contact bool, now time.Time) (_ Failures, continues bool) {
	other := s // for a failure that is not a refusal
	if now.Sub(s.latest) > Silence {
		other.refused = time.Time{}
	}
	mustFinish := s.Task >= Reaping || s.Task == Removal && contact
	switch {
	case f.Final:
		return s, false
	case NotFound(f.Status):
		return Failures{Task: s.Task}, true
	case f.Class == Local, f.Class == Transport && f.Persistent:
		return other, mustFinish || contact
	case f.Class == Transport, passing(f.Status):
		return other, true
	case f.Class == Intermediary, f.Undecodable:
		if other.foreign++; f.Class == Service { // it has accepted the request, so a refusal is over
			other.refused = time.Time{}
		}
		return other, mustFinish || contact || other.foreign < maxForeign
	case mustFinish && slices.Contains(mayEnd, f.Status):
		return s, true
	}
	if s.refused.IsZero() {
		s.refused = now
	}
	s.latest = now
	return s, contact && now.Sub(s.refused) < confirm // a gateway may send a refusal in JSON too, for a moment
}

// passing reports whether the same request may succeed later, after this status.
func passing(status int) bool {
	return status >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status)
}

// mayEnd are the refusals that may end soon, because the token is renewed or a deletion is under way.
var mayEnd = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusLocked}

// WasSuspended reports whether the process was suspended, so that its latest poll is too old for a
// verdict. silent is the time since the latest poll, and interval the time after which the next
// one was due.
func WasSuspended(interval, silent time.Duration) bool { return silent > max(2*interval, time.Second) }
