package rules

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is what really is the case, while a client observes an endpoint. It knows who hides the
// endpoint from the client, and since when.
type world struct {
	now     time.Duration // since the endpoint was created
	exists  bool
	ignored bool             // a delete was accepted and had no effect
	hidden  [2]time.Duration // since when a gateway (0) or a router (1) hides the endpoint, plus 1; 0: it does not
	outage  bool             // no path of the service can be reached
	over    bool             // the outage is over; there is no second one before the service shows the endpoint
	dates   int
	cached  int // number of the "not found" that a cache has; 0: none
	kept    int // number of the flavor list that a cache has; 0: none
}

// state is a world with what the client has made of it.
type state struct {
	world
	Evidence
}

var walkStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *state) at() time.Time { return walkStart.Add(s.now) }

func (s *state) see(sight Sight) { s.Evidence = s.After(Observation{Sight: sight, At: s.at()}) }

// miss is a "not found" with a Date of its own, which a cache keeps.
func (s *state) miss(class Class, known bool) {
	s.dates++
	s.cached = s.dates
	s.copy(class, known, s.dates)
}

func (s *state) copy(class Class, known bool, date int) {
	o := Observation{Sight: Missing, At: s.at(), Class: class, Known: known}
	o.Date = strconv.Itoa(date)
	s.Evidence = s.After(o)
}

// hides lets a gateway or a router hide the endpoint, for less than most in a row.
func (s *state) hides(who int, most, mostAfterDelete time.Duration) bool {
	if s.ignored {
		most = mostAfterDelete // the price of the shorter times: see proofs
	}
	if s.hidden[who] == 0 {
		s.hidden[who] = s.now + 1
	}
	return s.now-(s.hidden[who]-1) < most
}

// event is what may happen in one step. It returns false if it cannot happen.
type event struct {
	name string
	do   func(*state) bool
}

var events = []event{
	{"the service responds", func(s *state) bool {
		if s.exists {
			s.hidden = [2]time.Duration{}
			s.see(Shown)
		} else {
			s.miss(Service, true)
		}
		return true
	}},
	{"the record is cut off", func(s *state) bool {
		s.hidden = [2]time.Duration{}
		s.see(Unclear)
		return s.exists
	}},
	{"the service cannot read a new endpoint yet", func(s *state) bool {
		s.miss(Service, true)
		return !s.Read && s.now < Grace
	}},
	{"a gateway hides the path, in JSON", func(s *state) bool {
		possible := s.hides(0, 10*time.Second, 3*time.Second)
		s.miss(Service, true)
		return possible
	}},
	{"a router hides the path, in plain text", func(s *state) bool {
		possible := s.hides(1, time.Minute, 25*time.Second)
		s.miss(Intermediary, true)
		return possible
	}},
	{"another account's token", func(s *state) bool { s.miss(Service, false); return true }},
	{"a cache repeats a response", func(s *state) bool {
		s.copy(Service, true, s.cached)
		return s.cached > 0
	}},
	{"a server error", func(s *state) bool { s.see(Odd); return true }},
	{"the flavor list", func(s *state) bool { s.see(Listed); return true }},
	{"a delete", func(s *state) bool {
		done := s.exists
		s.exists = false
		s.see(Accepted)
		return done
	}},
	{"a delete without effect", func(s *state) bool {
		done := s.exists && !s.ignored
		s.ignored = true
		s.see(Accepted)
		return done
	}},
	{"somebody else deletes it", func(s *state) bool {
		done := s.exists
		s.exists = false
		return done
	}},
}

// outages are the events while no path of the service may be reachable, for any time. What hides
// the endpoint then hides the flavor list too, but a cache may have a list.
var outages = []event{
	{"the service responds", func(s *state) bool {
		s.outage, s.over, s.hidden = false, false, [2]time.Duration{}
		s.see(Shown)
		return true
	}},
	{"the flavor list", func(s *state) bool {
		s.dates++
		s.kept = s.dates
		s.show(s.kept)
		return !s.outage
	}},
	{"a cache repeats the flavor list", func(s *state) bool {
		s.show(s.kept)
		return s.kept > 0
	}},
	{"an outage of all paths, in JSON", func(s *state) bool {
		s.outage = true
		s.miss(Service, true)
		return !s.over
	}},
	{"an outage of all paths, in plain text", func(s *state) bool {
		s.outage = true
		s.hides(1, 0, 0) // a page after it is the same in the eyes of a client
		s.miss(Intermediary, true)
		return !s.over
	}},
	{"a page of a proxy, after the outage", func(s *state) bool {
		s.outage, s.over = false, true
		possible := s.hides(1, time.Minute, 25*time.Second)
		s.miss(Intermediary, true)
		return possible
	}},
	{"a delete without effect", func(s *state) bool {
		s.ignored = true
		s.see(Accepted)
		return !s.outage
	}},
}

func (s *state) show(date int) {
	s.Evidence = s.After(Observation{Sight: Listed, Origin: Origin{Date: strconv.Itoa(date)}})
}

// pauses are the times between two steps.
var pauses = []time.Duration{0, time.Second, 3 * time.Second, 11 * time.Second, 31 * time.Second}

// walked is a sequence of steps: the index of the pause and the index of the event.
type walked struct {
	events []event
	steps  [][2]int
}

func (w walked) String() string {
	var b strings.Builder
	for _, step := range w.steps {
		fmt.Fprintf(&b, "%v later: %s\n", pauses[step[0]], w.events[step[1]].name)
	}
	return b.String()
}

// walk explores all sequences of events up to a length, each with all pauses, and calls check
// for every state. A state that was reached before is not explored again. states is the number of
// sequences with the full length, and of states before it.
func walk(events []event, depth int, check func(state, walked)) (states int) {
	seed := maphash.MakeSeed()
	seen := make(map[uint64]bool)
	path := walked{events: events}
	var step func(s state, left int)
	step = func(s state, left int) {
		type key struct {
			state
			left int
		}
		if left == 0 { // to check it costs less than to find out whether it was reached before
			check(s, path)
			states++
			return
		}
		h := maphash.Comparable(seed, key{s, left})
		if seen[h] {
			return
		}
		seen[h] = true
		check(s, path)
		var next state
		for i, pause := range pauses {
			for j, e := range events {
				next = s
				next.now += pause
				if !e.do(&next) {
					continue
				}
				path.steps = append(path.steps, [2]int{i, j})
				step(next, left-1)
				path.steps = path.steps[:len(path.steps)-1]
			}
		}
	}
	step(state{world{exists: true}, Evidence{Readable: walkStart.Add(Grace)}}, depth)
	return states + len(seen)
}

func TestNoSequenceProvesTheDeletionOfARunningEndpoint(t *testing.T) {
	depth := 5
	if testing.Short() {
		depth = 4
	}
	for name, events := range map[string][]event{"one path": events, "all paths": outages} {
		start := time.Now()
		states := walk(events, depth, func(s state, path walked) {
			if s.Verdict == Deleted && s.exists {
				require.FailNow(t, "a running endpoint counts as deleted", path.String())
			}
		})
		t.Logf("%s: %d states in %v", name, states, time.Since(start))
	}
}

// If the endpoint is deleted and the service responds, the deletion is proven in the end, after
// whatever happened before.
func TestEverySequenceEndsInAProof(t *testing.T) {
	walk(events, 3, func(s state, path walked) {
		s.exists = false
		begin := s.now
		for s.Verdict != Deleted {
			s.now += time.Second
			s.miss(Service, true)
			if s.WantsList() {
				s.see(Listed)
			}
			if s.now-begin > Grace+12*time.Second {
				require.FailNow(t, "the deletion is not proven", path.String())
			}
		}
	})
}

// The times after which a deletion is proven, from the first poll.
func TestTimeOfAProof(t *testing.T) {
	for name, c := range map[string]struct {
		accepted, read, known bool
		class                 Class
		want                  time.Duration
		verdict               Verdict
	}{
		"JSON, after an accepted delete":       {true, true, true, Service, 3 * time.Second, Deleted},
		"JSON, without a delete":               {false, true, true, Service, 10 * time.Second, Deleted},
		"JSON, never read":                     {false, false, true, Service, 40 * time.Second, Deleted},
		"plain text, after an accepted delete": {true, true, true, Intermediary, 25 * time.Second, Deleted},
		"plain text, without a delete":         {false, true, true, Intermediary, time.Minute, Deleted},
		"JSON, with another token":             {false, true, false, Service, 10 * time.Second, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := state{world{}, Evidence{Read: c.read, Readable: walkStart.Add(Grace)}}
			if c.accepted {
				s.see(Accepted)
			}
			for s.Verdict == Unproven && s.now < 2*time.Minute {
				s.miss(c.class, c.known)
				if s.WantsList() {
					s.see(Listed)
				}
				s.now += time.Second
			}
			require.Equal(t, c.verdict, s.Verdict)
			require.Equal(t, c.want, s.now-time.Second)
		})
	}
}

// An outage hides all paths. So a list that was answered before the outage began does not show that
// the "not found" of the outage are about the endpoint.
func TestListIsAnsweredBetweenTheLastTwoNotFound(t *testing.T) {
	for _, class := range []Class{Service, Intermediary} {
		s := state{world{}, Evidence{Read: true}}
		s.miss(class, true)
		s.see(Listed)
		for s.now < 2*time.Minute {
			s.now += time.Second
			s.miss(class, true)
			require.True(t, s.WantsList())
		}
		require.Equal(t, Unproven, s.Verdict)
		s.see(Listed)
		require.Equal(t, Unproven, s.Verdict)
		s.now += time.Second
		s.miss(class, true)
		require.Equal(t, Deleted, s.Verdict)
	}
}

// A process may be suspended, or wait before it sends a request. What it did not see may have been a
// response of the service.
func TestOnlyWhatWasSeenCountsAsOneOutage(t *testing.T) {
	at := func(d time.Duration) time.Time { return walkStart.Add(d) }
	miss := func(e Evidence, made, came time.Duration) Evidence {
		e = e.After(Observation{Sight: Missing, Class: Intermediary, Known: true, At: at(made), Came: at(came)})
		return e.After(Observation{Sight: Listed})
	}
	suspended := miss(miss(miss(Evidence{Read: true}, 0, 0), 64*time.Second, 64*time.Second), 65*time.Second, 65*time.Second)
	require.Equal(t, Unproven, suspended.Verdict, "two outages")
	copies := Evidence{Read: true}
	for _, now := range []time.Duration{0, 64 * time.Second} { // what a cache sent in between proves nothing
		copies = copies.After(Observation{Sight: Missing, Class: Service, Known: true, At: at(now)}).After(Observation{Sight: Listed})
	}
	require.Equal(t, Unproven, copies.Verdict, "a copy, and an outage of all paths")
	delayed := miss(miss(miss(Evidence{Read: true}, 0, 55*time.Second), 57*time.Second, 57*time.Second), 65*time.Second, 65*time.Second)
	require.Equal(t, Unproven, delayed.Verdict, "the first request was sent late")
	e := Evidence{Read: true}
	for now := time.Duration(0); now <= time.Minute; now += 15 * time.Second {
		require.Equal(t, Unproven, e.Verdict)
		e = miss(e, now, now)
	}
	require.Equal(t, Deleted, e.Verdict)
}

func TestNextPollThatCanProve(t *testing.T) {
	e := Evidence{Read: true}
	at := func(d time.Duration) time.Time { return walkStart.Add(d) }
	require.Zero(t, e.Due())
	e = e.After(Observation{Sight: Missing, At: at(0), Known: true})
	require.True(t, e.WantsList())
	require.Zero(t, e.Due(), "the flavor list is missing")
	e = e.After(Observation{Sight: Listed, At: at(0)})
	require.False(t, e.WantsList())
	require.Equal(t, at(10*time.Second), e.Due())
	require.Equal(t, Deleted, e.After(Observation{Sight: Flagged}).Verdict, "is_deleted decides at once")
	for name, o := range map[string]Origin{"Age": {Aged: true}, "Date": {Date: "d"}, "request ID": {RequestID: "r"}, "request ID in the body": {Inner: "r"}} {
		first := Observation{Sight: Missing, At: at(0), Known: true, Origin: Origin{Date: o.Date, RequestID: o.RequestID, Inner: o.Inner}}
		again := Observation{Sight: Missing, At: at(time.Hour), Known: true, Origin: o}
		copied := Evidence{Read: true}.After(first).After(Observation{Sight: Listed, At: at(1)}).After(again)
		require.Equal(t, Unproven, copied.Verdict, "a copy, by its %s", name)
	}
}

// A request ID that the flavor list has as well comes from the request, so it shows no copy. One
// that only the "not found" share does.
func TestSharedRequestIDShowsNoCopy(t *testing.T) {
	for _, shared := range []Origin{{RequestID: "r"}, {Inner: "r"}} {
		for _, list := range []Origin{shared, {}} {
			e := Evidence{Readable: walkStart.Add(Grace)}
			for _, seconds := range []float64{0, 2, 40, 42, 54} { // the first two come too early
				e = e.After(Observation{Sight: Missing, At: walkStart.Add(time.Duration(seconds * float64(time.Second))), Known: true, Origin: shared})
				if e.WantsList() {
					e = e.After(Observation{Sight: Listed, Origin: list})
				}
			}
			require.Equal(t, list == shared, e.Verdict == Deleted)
		}
	}
}

// A router that hides a path sends nothing else. So any other response in between shows that more than
// one thing has responded.
func TestAnotherResponseInterruptsPlainText(t *testing.T) {
	for _, odd := range []bool{true, false} {
		e := Evidence{Read: true}
		for now := time.Duration(0); now <= 80*time.Second; now += 20 * time.Second {
			e = e.After(Observation{Sight: Missing, Class: Intermediary, At: walkStart.Add(now), Known: true}).After(Observation{Sight: Listed})
			if odd {
				e = e.After(Observation{Sight: Odd})
			}
		}
		require.Equal(t, odd, e.Verdict == Unproven)
	}
}
