package rules

import (
	"slices"
	"time"
)

// Grace is how long a new record may be unreadable.
const Grace = 30 * time.Second

// A Sight is the result of one request about an endpoint.
type Sight int

// The sights of an endpoint. A request without a response shows nothing.
const (
	Shown    Sight = iota // a read returned the record
	Flagged               // a read returned the record, with is_deleted
	Missing               // a read got "not found"
	Odd                   // a read got another response, with an error status
	Unclear               // a read got a 2xx response without the record, or with a part of it
	Listed                // a request for the flavor list got the list, or a 403 of the service
	Accepted              // the service accepted a delete
)

// Observation is a sight with its details. The other fields are used only for Missing and
// Listed.
type Observation struct {
	Sight Sight
	At    time.Time // Missing: when the request was made; it may have waited before it was sent
	Came  time.Time // Missing: when the response came; zero means at once
	Class Class     // Missing: class of the response
	Known bool      // Missing: the ID was read or created with the token that was sent
	Origin
}

// Origin distinguishes a fresh response from a cached copy.
type Origin struct {
	RequestID string // request ID in the header; empty if there was none
	Inner     string // request ID in the body, which a cache does not replace; empty if there was none
	Date      string // the Date header; empty if it had none
	Aged      bool   // the Age header is above 0
}

// copyOf reports whether a response repeats an earlier one. Two polls are more than a second
// apart, so they do not share a Date.
func (o Origin) copyOf(before Origin) bool {
	for _, pair := range [][2]string{{o.RequestID, before.RequestID}, {o.Inner, before.Inner}, {o.Date, before.Date}} {
		if pair[0] != "" && pair[0] == pair[1] {
			return true
		}
	}
	return o.Aged
}

// unshared returns o without the request IDs that a response about another path has as well. They
// come from the request, as the ID of a trace does, so they show no copy.
func (o Origin) unshared(other Origin) Origin {
	if o.RequestID == other.RequestID {
		o.RequestID = ""
	}
	if o.Inner == other.Inner {
		o.Inner = ""
	}
	return o
}

// Evidence holds the results of the requests about one endpoint. It is a value: After returns
// a new one.
type Evidence struct {
	Readable time.Time // a "not found" counts from this time on if the record was never read
	Read     bool      // the record was read, so Readable does not matter
	Verdict  Verdict   // the conclusion from all observations; After sets it

	flagged  bool
	early    bool      // the latest "not found" came before Readable
	copied   bool      // the latest "not found" repeats an earlier one, unless the flavor list has its request ID as well
	accepted bool      // the service accepted a delete
	seen     [4]Origin // origins of the latest "not found" responses
	next     int       // index in seen of the next one
	list     Origin    // origin of the latest flavor list
	listed   bool      // the flavor list was read after the latest "not found"
	runs     [len(proofs)]run
}

// proofs are the ways to prove a deletion by "not found". A run of "not found" responses of one
// class is a proof if it has at least least responses over a time of at least span, and the flavor
// list was read between its last one and the "not found" before that, of any class. A gateway may
// send a "not found" in JSON for some seconds, and a router in plain text for longer. Less time is
// needed after a delete that the service accepted: then a proof is wrong only if that delete had no
// effect as well.
var proofs = [...]struct {
	known bool  // only responses to a token for which the ID is known; if false, to one for which it is not, which proves only that the ID is unknown
	class Class // Intermediary: any other response interrupts the run
	late  bool  // only responses after a delete that the service accepted
	least int
	span  time.Duration
}{
	{true, Service, false, 2, 10 * time.Second},
	{true, Service, true, 2, 3 * time.Second},
	{true, Intermediary, false, 3, time.Minute},
	{true, Intermediary, true, 3, 25 * time.Second},
	{false, Service, false, 2, 10 * time.Second},
	{false, Service, true, 2, 3 * time.Second},
	{false, Intermediary, false, 3, time.Minute},
	{false, Intermediary, true, 3, 25 * time.Second},
}

// Silence is the time without a response after which a run is interrupted: two outages would
// otherwise look like one, for example if the process was suspended or a cache responded.
const Silence = 30 * time.Second

// run is a series of "not found" responses that was not interrupted.
type run struct {
	n           int
	first, came time.Time // when the first and the latest response came
	last        time.Time // when the latest request was made
	between     bool      // the flavor list was read between the latest response and the "not found" before it, of any class
}

func (r run) add(o Observation, between bool) run {
	came := slices.MaxFunc([]time.Time{o.At, o.Came}, time.Time.Compare)
	silent := max(came.Sub(r.came), came.Round(0).Sub(r.came.Round(0))) // a suspended process has a monotonic clock that stops
	if r.n == 0 || silent > Silence {
		r = run{first: came}
	}
	r.last, r.came, r.between = o.At, came, between
	r.n++
	return r
}

// A Verdict is the conclusion from the evidence.
type Verdict int

// The verdicts on an endpoint.
const (
	Unproven Verdict = iota // it may exist
	Unknown                 // it is not found with this token: it is deleted, or the ID is wrong or of another account
	Deleted                 // it is deleted
)

// After returns the evidence with one more observation, and with the verdict on all of them.
func (e Evidence) After(o Observation) Evidence {
	switch o.Sight {
	case Shown: // voids every "not found" before it
		e.Read, e.runs = true, [len(proofs)]run{}
	case Flagged:
		e.Read, e.flagged = true, true
	case Accepted: // what is deleted may have existed until then
		e.accepted, e.runs = true, [len(proofs)]run{}
	case Listed:
		if !o.unshared(e.seen[(e.next+len(e.seen)-1)%len(e.seen)]).copyOf(e.list) { // a copy proves nothing about the time since its original
			e.listed = true
		}
		e.list = o.Origin
	case Odd:
		e = e.interrupted(Intermediary)
	case Unclear: // may have been the record
		e.runs = [len(proofs)]run{}
	case Missing:
		e = e.missing(o)
	}
	e.Verdict = Unproven
	for i, p := range proofs {
		switch r := e.runs[i]; {
		case !r.between, r.n < p.least, r.last.Sub(r.first) < p.span:
		case p.known:
			e.Verdict = Deleted
		default:
			e.Verdict = max(e.Verdict, Unknown)
		}
	}
	if e.flagged {
		e.Verdict = Deleted
	}
	return e
}

func (e Evidence) missing(o Observation) Evidence {
	e.copied = slices.ContainsFunc(e.seen[:], o.unshared(e.list).copyOf)
	e.seen[e.next], e.next = o.Origin, (e.next+1)%len(e.seen)
	e.early = !e.Read && o.At.Before(e.Readable)
	if e.copied || e.early {
		return e
	}
	if o.Class == Service {
		e = e.interrupted(Intermediary)
	}
	for i, p := range proofs {
		switch {
		case p.class != o.Class, p.known != o.Known, p.late && !e.accepted:
		default:
			e.runs[i] = e.runs[i].add(o, e.listed)
		}
	}
	e.listed = false // an outage of all paths may begin at any time, so an older list proves nothing
	return e
}

// interrupted ends the runs of a class.
func (e Evidence) interrupted(class Class) Evidence {
	for i, p := range proofs {
		if p.class == class {
			e.runs[i] = run{}
		}
	}
	return e
}

// WantsList reports whether the flavor list must be read before the evidence can become a
// proof.
func (e Evidence) WantsList() bool {
	return !e.listed && (e.copied || slices.ContainsFunc(e.runs[:], func(r run) bool { return r.n > 0 }))
}

// Due returns the time from which one more "not found" can be a proof, or counts for the first
// time; zero if more is missing than that.
func (e Evidence) Due() (at time.Time) {
	if e.early {
		at = e.Readable
	}
	for i, p := range proofs {
		r := e.runs[i]
		if !e.listed || r.n+1 < p.least {
			continue
		}
		if by := r.first.Add(p.span); at.IsZero() || by.Before(at) {
			at = by
		}
	}
	return at
}

// Accepted reports whether the service has accepted a delete.
func (e Evidence) Accepted() bool { return e.accepted }
