package rules

import (
	"net/http"
	"slices"
	"time"
)

// Failure is why a poll or a delete failed, reduced to what the rules need.
type Failure struct {
	Class       Class
	Status      int  // 0 if no response
	Hopeless    bool // Transport: the certificate was not accepted, or a retry would fail in the same way
	Undecodable bool // a 2xx response that is not what the service promises
	Final       bool // the caller or the client says that no retry can help: no token, Permanent, an invalid request
}

// Task is what a failure may end.
type Task int

// The tasks. A cleanup, a removal and a reaping must not give up easily: what they leave behind
// is billed.
const (
	Wait    Task = iota // a wait for a state
	Removal             // a DeleteAndWait, which the caller started
	Reaping             // the removal of an endpoint whose lease is over
	Cleanup             // the removal of an endpoint after a failure
)

// EndsUnknown reports whether a task ends when the endpoint is not found with this token. A
// cleanup knows that its endpoint was created, so it goes on.
func (t Task) EndsUnknown() bool { return t != Cleanup }

// Endurance is what a task has endured in a row. It is a value: After returns a new one. With a
// Task only, nothing was endured since the latest success.
type Endurance struct {
	Task    Task
	junk    int       // responses in a row that were not the service's own, or could not be decoded
	refused time.Time // since when the service has refused the request; zero if it does not
}

const (
	maxJunk = 5                // junk responses in a row that end a wait
	confirm = 10 * time.Second // a refusal ends a task only if it is still there after this time
)

// After returns the endurance after a failure, and whether the task goes on. contact says that
// the client has had a response of the service before. A "not found" does not count as a failure: the rules of
// evidence decide what it means.
func (e Endurance) After(f Failure, contact bool, now time.Time) (_ Endurance, goesOn bool) {
	stubborn := e.Task >= Reaping || e.Task == Removal && contact
	switch {
	case f.Final:
		return e, false
	case NotFound(f.Status):
		return Endurance{Task: e.Task}, true
	case f.Class == Local, f.Class == Transport && f.Hopeless:
		return e, stubborn || contact
	case f.Class == Transport, passing(f.Status):
		return e, true
	case f.Class == Intermediary, f.Undecodable:
		if e.junk++; f.Class == Service { // it has accepted the request, so a refusal is over
			e.refused = time.Time{}
		}
		return e, stubborn || contact || e.junk < maxJunk
	case stubborn && mayPass(f.Status):
		return e, true
	}
	if e.refused.IsZero() {
		e.refused = now
	}
	return e, contact && now.Sub(e.refused) < confirm // a gateway may send a refusal in JSON too, for a moment
}

// passing reports whether a status says that the same request may succeed later.
func passing(status int) bool {
	return status >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status)
}

// mayPass reports whether a refusal may be over soon: the token is renewed, or a deletion is
// under way.
func mayPass(status int) bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusLocked}, status)
}

// Overslept reports whether the process was suspended, so that its latest poll is too old for a
// verdict. silent is the time for which nothing happened, although a poll was due after
// interval.
func Overslept(interval, silent time.Duration) bool { return silent > max(2*interval, time.Second) }
