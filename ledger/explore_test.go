package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An exhaustive exploration of the ledger's rules. The model has two processes that
// deploy under one key, a reaper whose clock may be wrong, an operator who forgets and
// adopts, crashes at any step, and a service that loses requests and responses. Every
// order of their steps is tried.

const (
	tick       = 4 * time.Minute // chosen so that SettleBy, and the minute after it, fall between two ticks
	lastTick   = 3
	mostIntent = 4
)

// line is a record of the key. history is a journal, which is all records of the key, with the entries that
// the ledger's own function computes from them. Equal journals have the same number, which a world holds.
type (
	line    struct{ event, intent, at uint8 }
	history struct {
		lines   []line
		entries []Entry
		longer  map[line]int32 // the journals with one record more
	}
)

const mostLines = 12

var lineEvents = []Event{Intended, Created, Refused, Unknown, Forgotten, Deleted}

// What became of an intent's request at the service.
const (
	neverSent uint8 = iota
	underWay
	turnedDown // the service certainly created nothing
	exists
	endpointDeleted
)

// The next step of a process that deploys.
const (
	atRead uint8 = iota
	atClaim
	atSend
	atResponse
	atSettle
	done
)

type deployer struct {
	at, intent, outcome uint8
	seq                 int8  // the Seq of the record that it will append
	checked             bool  // it has checked that the attempt may be sent
	resumed             int8  // intent of the endpoint that Deploy returned; -1: none
	since               uint8 // one more than the tick at which it began to wait for another create; 0: it does not
}

func (d *deployer) order() (n int) {
	for _, v := range [...]int{int(d.at), int(d.intent), int(d.outcome), int(d.seq), d.times(), int(d.resumed) + 1, int(d.since)} {
		n = n<<4 | v
	}
	return n
}

func (d *deployer) times() int {
	if d.checked {
		return 1
	}
	return 0
}

type world struct {
	now           uint8
	journal       int32
	deployers     [2]deployer
	reaperAt      uint8
	reaperIntent  uint8
	sent          [mostIntent]uint8
	intents       uint8 // number of intents
	crashes       uint8 // crashes, forgets and late: how many more may happen
	forgets, late uint8
	forgot        bool // Forget was called for a request that had, or might still get, an effect
}

type explorer struct {
	t        *testing.T
	skew     time.Duration // error of the clocks of all processes
	noDate   bool          // the service does not tell its time
	watched  bool          // the creators do not know the service's time, so an operator watches an entry from its start
	journals []history     // the first one is empty
	allowed  map[question]bool
	judged   map[question]judgement
	seen     map[world]struct{}
	queue    []world
	reached  map[string]int

	verdicts [5]int
	found    [mostIntent]Endpoint // the record that an operator sees in the service's console, for each intent
}

// question holds what the result of a rule depends on. The rules are pure functions: many states ask the
// same, and only the first one calls the rule.
type (
	question struct {
		rule, intent, now, since uint8
		deleted                  bool // the endpoint of the intent is deleted
		journal                  int32
	}
	judgement struct {
		verdict Verdict
		intent  uint8 // of the entry that decided
	}
)

// The rules of a question.
const (
	toDeploy uint8 = iota
	toForget
	toAdopt
)

func moment(t uint8) time.Time { return noon.Add(time.Duration(t) * tick) }
func intentName(i uint8) string {
	return string(rune('A'+i)) + intentA[1:]
}
func (x *explorer) id(i uint8) string { return "svc-" + string('0'+rune(i)) }

var explored = Request{Name: "n", Instances: 1, fields: map[string]any{"name": "n"}}

// extended returns the journal with one record more.
func (x *explorer) extended(from int32, l line) int32 {
	before := x.journals[from]
	if n, ok := before.longer[l]; ok {
		return n
	}
	j := history{append(slices.Clone(before.lines), l), nil, make(map[line]int32)}
	var records []Record
	for i, l := range j.lines {
		r := Record{Key: "k", Seq: int64(i + 1), Intent: intentName(l.intent), Event: lineEvents[l.event], At: moment(l.at).Add(x.skew)}
		switch r.Event {
		case Intended:
			r.Name, r.Instances, r.RequestHash = "n", 1, explored.hash(r.Intent, explored.FlavorID)
			r.SettleBy, r.Lease = r.At.Add(SettleLimit), 6*time.Minute
			r.ServiceTime = x.told(l.at)
		case Unknown:
			r.ServiceTime = x.told(l.at)
		case Created:
			r.ServiceID, r.ServiceTime = x.id(l.intent), x.date(moment(l.at))
		case Deleted:
			r.ServiceID = x.id(l.intent)
		}
		records = append(records, r)
	}
	var err error
	if j.entries, err = Fold(records); err != nil {
		x.t.Fatalf("%v: %+v", err, records)
	}
	n := int32(len(x.journals))
	x.journals, before.longer[l] = append(x.journals, j), n
	return n
}

// date is what the service says at a time; zero: nothing.
func (x *explorer) date(now time.Time) time.Time {
	if x.noDate {
		return time.Time{}
	}
	return now
}

// told is the service's time, as a creator has it from earlier responses at a tick; zero: it has none.
func (x *explorer) told(tick uint8) time.Time {
	if x.watched {
		return time.Time{}
	}
	return x.date(moment(tick))
}

// asked is when an intent was recorded, whatever the clock of its process said.
func (x *explorer) asked(e *Entry) time.Time { return e.RequestedAt.Add(-x.skew) }

// judge returns the verdict on a Deploy of a process that knows each open entry since a tick.
func (x *explorer) judge(j int32, since, now uint8) judgement {
	asked := question{rule: toDeploy, journal: j, since: since, now: now}
	known, ok := x.judged[asked]
	if !ok {
		entries := slices.Clone(x.journals[j].entries)
		for i := range entries {
			entries[i].seenFor = moment(now).Sub(moment(since))
		}
		verdict, e, _ := judge(entries, "", explored, x.date(moment(now)))
		known = judgement{verdict: verdict}
		if e.Intent != "" {
			known.intent = e.Intent[0] - 'A'
		}
		x.judged[asked] = known
	}
	return known
}

// operator reports whether an operator may forget or adopt the entry of an intent.
func (x *explorer) operator(rule uint8, w *world, intent uint8) bool {
	asked := question{rule: rule, journal: w.journal, intent: intent, now: w.now, deleted: w.sent[intent] == endpointDeleted}
	may, ok := x.allowed[asked]
	if !ok {
		e, now := *x.entry(w, intent), moment(w.now)
		if x.watched {
			e.seenFor = now.Sub(x.asked(&e))
		}
		if rule == toForget {
			may = e.mayForget(e.BaseURL, asked.deleted, x.date(now)) == nil
		} else {
			may = e.mayAdopt("", x.found[intent], false, x.date(now)) == nil
		}
		x.allowed[asked] = may
	}
	return may
}

func (x *explorer) entry(w *world, intent uint8) *Entry {
	entries := x.journals[w.journal].entries
	for i := range entries {
		if entries[i].Intent[0] == 'A'+intent {
			return &entries[i]
		}
	}
	return nil
}

// next is the Seq of the next record.
func (x *explorer) next(w *world) int8 { return int8(len(x.journals[w.journal].lines) + 1) }

// put appends a record as a store does. It returns false if the Seq is taken.
func (x *explorer) put(w *world, seq int8, event Event, intent uint8) bool {
	if x.next(w) > seq || seq > mostLines {
		return false
	}
	w.journal = x.extended(w.journal, line{uint8(slices.Index(lineEvents, event)), intent, w.now})
	return true
}

// add adds a state to the queue, if it was not seen before.
func (x *explorer) add(w world, step string) {
	if a, b := &w.deployers[0], &w.deployers[1]; a.order() > b.order() { // the two processes are interchangeable, so their order is normalized
		*a, *b = *b, *a
	}
	if _, ok := x.seen[w]; ok {
		return
	}
	x.seen[w] = struct{}{}
	x.check(&w, step)
	x.queue = append(x.queue, w)
}

// check fails the test if a state breaks a rule that must always hold.
func (x *explorer) check(w *world, step string) {
	billed := 0
	for i := range w.intents {
		e := x.entry(w, i)
		switch w.sent[i] {
		case underWay, exists:
			learned := e != nil && slices.ContainsFunc(e.Records, func(r Record) bool { return r.Event == Created })
			if e == nil || !e.Open() && (learned || !w.forgot || e.State != Forgotten) {
				x.t.Fatalf("%s: an endpoint is billed, but its entry is not open: %+v", step, *w)
			}
			if w.sent[i] == exists {
				billed++
			}
		default:
			if e != nil && e.State == Created && w.sent[i] != endpointDeleted {
				x.t.Fatalf("%s: the ledger has an endpoint that does not exist: %+v", step, *w)
			}
		}
	}
	if billed > 1 && !w.forgot || billed > 2 {
		x.t.Fatalf("%s: %d endpoints under one key: %+v", step, billed, *w)
	}
	for _, d := range w.deployers {
		if d.resumed >= 0 && w.sent[d.resumed] < exists {
			x.t.Fatalf("%s: a process returned an endpoint that does not exist: %+v", step, *w)
		}
	}
	if billed == 2 {
		x.reached["two endpoints after a wrong Forget"]++
	}
}

// deploy adds every state that the next step of process n can lead to.
func (x *explorer) deploy(w world, n int) {
	d := &w.deployers[n]
	now := moment(w.now)
	switch d.at {
	case atRead:
		since := w.now
		if d.since > 0 {
			since = d.since - 1
		}
		judged := x.judge(w.journal, since, w.now)
		x.verdicts[judged.verdict]++
		switch judged.verdict {
		case Wait:
			if d.since > 0 {
				return
			}
			d.since = w.now + 1
		case Free:
			if w.intents == mostIntent {
				return
			}
			d.at, d.seq, d.since = atClaim, x.next(&w), 0
		case Resume:
			*d = deployer{at: done, resumed: int8(judged.intent)}
		default:
			*d = deployer{at: done, resumed: -1}
		}
		x.add(w, "read")
	case atClaim:
		if w.intents == mostIntent {
			return
		}
		d.intent = w.intents
		if !x.put(&w, d.seq, Intended, d.intent) {
			*d = deployer{at: atRead, resumed: -1}
		} else {
			w.intents++
			d.at = atSend
		}
		x.add(w, "claim")
	case atSend:
		by := x.entry(&w, d.intent).SettleBy
		switch {
		case d.checked: // the request is handed to the transport, perhaps long after the check
			d.checked, d.at, w.sent[d.intent] = false, atResponse, underWay
			if !now.Add(x.skew).Before(by) {
				if w.late == 0 {
					return
				}
				w.late--
				w.forgot = w.forgot || x.entry(&w, d.intent).State == Forgotten
			}
		case now.Add(x.skew).Before(by):
			d.checked = true
		default:
			d.at, d.outcome = atSettle, uint8(slices.Index(lineEvents, Refused))
		}
		x.add(w, "send")
	case atResponse:
		outcomes := []Event{Unknown} // the response is lost or late
		switch w.sent[d.intent] {
		case exists, endpointDeleted:
			outcomes = append(outcomes, Created)
		case turnedDown:
			outcomes = append(outcomes, Refused)
			again := w // a refusal is harmless, so the request may be sent again
			again.deployers[n].at, again.sent[d.intent] = atSend, neverSent
			x.add(again, "retry")
		}
		for _, outcome := range outcomes {
			d.at, d.outcome = atSettle, uint8(slices.Index(lineEvents, outcome))
			x.add(w, "response")
		}
	case atSettle:
		event := lineEvents[d.outcome]
		if !x.put(&w, x.next(&w), event, d.intent) {
			return
		}
		*d = deployer{at: done, resumed: -1}
		x.add(w, "settle")
	}
}

// reap adds every state that the reaper's next step can lead to.
func (x *explorer) reap(w world) {
	now := moment(w.now)
	date := x.date(now)
	believed := date
	if x.noDate {
		believed = now.Add(x.skew)
	}
	switch w.reaperAt {
	case 0:
		for i := range w.intents {
			if e := x.entry(&w, i); e != nil && e.State == Created && e.Overdue("", believed) {
				w.reaperAt, w.reaperIntent = 1, i
				x.add(w, "overdue")
			}
		}
	case 1: // it has read the endpoint; now it reads the entry again
		e := x.entry(&w, w.reaperIntent)
		w.reaperAt = 0
		if e.State == Created && e.Overdue("", believed) && e.MayReap(date, x.found[w.reaperIntent]) == nil {
			w.reaperAt = 2
			x.reached["reaped"]++
		}
		x.add(w, "judge")
	case 2:
		if !now.After(x.entry(&w, w.reaperIntent).LeaseEnd) {
			x.t.Fatalf("deleted before the end of the lease: %+v", w)
		}
		w.reaperAt, w.sent[w.reaperIntent] = 3, endpointDeleted
		x.add(w, "delete")
	case 3:
		if x.put(&w, x.next(&w), Deleted, w.reaperIntent) {
			w.reaperAt = 0
			x.add(w, "deleted")
		}
	}
}

// others adds the states that come from a step of the service, the operator or the clock,
// or from a crash.
func (x *explorer) others(w world) {
	now := moment(w.now)
	for i := range w.intents {
		e := x.entry(&w, i)
		if w.sent[i] == underWay {
			inTime := now.Before(x.asked(e).Add(SettleLimit+SettleMargin)) || w.forgot
			for _, effect := range []uint8{exists, turnedDown} {
				if next := w; inTime {
					next.sent[i] = effect
					x.add(next, "service")
				}
			}
		}
		if w.forgets > 0 && x.operator(toForget, &w, i) {
			next := w
			next.forgets--
			next.forgot = next.forgot || w.sent[i] == exists || w.sent[i] == underWay || w.late > 0
			if x.put(&next, x.next(&w), Forgotten, i) {
				x.reached["forgotten"]++
				x.add(next, "forget")
			}
		}
		if next := w; w.sent[i] == exists && x.operator(toAdopt, &w, i) && x.put(&next, x.next(&w), Created, i) {
			x.reached["adopted"]++
			x.add(next, "adopt")
		}
	}
	if w.now < lastTick {
		next := w
		next.now++
		x.add(next, "clock")
	}
	if w.crashes == 0 {
		return
	}
	w.crashes--
	for n := range w.deployers {
		next := w
		next.deployers[n] = deployer{resumed: -1} // the process starts again
		x.add(next, "crash")
	}
	if w.reaperAt > 0 {
		w.reaperAt = 0
		x.add(w, "crash")
	}
}

func explore(t *testing.T, x explorer, start world) *explorer {
	x = explorer{t: t, skew: x.skew, noDate: x.noDate, watched: x.watched, journals: []history{{longer: make(map[line]int32)}}, allowed: make(map[question]bool), judged: make(map[question]judgement), seen: make(map[world]struct{}), reached: make(map[string]int)}
	for n := range start.deployers {
		start.deployers[n].resumed = -1
	}
	for i := range x.found {
		x.found[i] = Endpoint{Name: "n", Description: "[svc:" + intentName(uint8(i)) + "]"}
	}
	x.add(start, "start")
	for len(x.queue) > 0 {
		w := x.queue[len(x.queue)-1]
		x.queue = x.queue[:len(x.queue)-1]
		for n := range w.deployers {
			x.deploy(w, n)
		}
		x.reap(w)
		x.others(w)
	}
	t.Logf("%d states, %d journals, %v, verdicts %v", len(x.seen), len(x.journals), x.reached, x.verdicts)
	return &x
}

const mostCrashes = 3

func TestLedgerExplored(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long with the race detector, which finds nothing in pure functions")
	}
	t.Run("crashes", func(t *testing.T) {
		x := explore(t, explorer{}, world{crashes: mostCrashes, forgets: 1})
		require.NotContains(t, x.verdicts, 0)
		for _, what := range []string{"forgotten", "adopted", "reaped", "two endpoints after a wrong Forget"} {
			require.NotZero(t, x.reached[what], what)
		}
	})
	t.Run("a request is sent late", func(t *testing.T) {
		x := explore(t, explorer{}, world{crashes: 1, forgets: 1, late: 1})
		require.NotZero(t, x.reached["two endpoints after a wrong Forget"])
	})
	for _, skew := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint("the clocks of the processes are off by ", skew), func(t *testing.T) {
			x := explore(t, explorer{skew: skew}, world{crashes: 1, forgets: 1})
			require.NotZero(t, x.reached["reaped"], "the service's clock decides")
			require.NotZero(t, x.verdicts[InDoubt], "an intent does not block its key for ever")
			require.Equal(t, skew < 0, x.reached["two endpoints after a wrong Forget"] > 0, "without watching, the later one of SettleBy and the service's time decides")
			x = explore(t, explorer{skew: skew, watched: true}, world{crashes: 1, forgets: 1})
			require.NotZero(t, x.reached["forgotten"], "the monotonic clock decides")
			x = explore(t, explorer{skew: skew, watched: true, noDate: true}, world{crashes: 1, forgets: 1})
			require.Zero(t, x.reached["reaped"], "without the service's clock it is not known that a lease is over")
			require.NotZero(t, x.verdicts[InDoubt], "the monotonic clock decides")
			require.NotZero(t, x.reached["forgotten"])
		})
	}
}
