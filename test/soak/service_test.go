package soak_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// traits say how the service of one conversation behaves. With the zero value, the
// service does everything at once and without errors.
type traits struct {
	calm bool // no faults and no failures

	trouble float64 // share of the exchanges with a fault
	slow    float64 // share of the exchanges that take seconds

	unreadable time.Duration // how long a new ID gets "not found"
	deploying  time.Duration // time from the creation to "available"
	scaling    time.Duration // time from an update to "available" or "stopped"
	failing    float64       // share of the changes that end as "unavailable"
	deleting   time.Duration // time from an accepted delete to the deletion
	deaf       float64       // share of the deletes and updates that are accepted without effect
	stranger   float64       // share of the creates whose response has somebody else's record
	refusing   float64       // share of the exchanges that a gateway refuses in JSON

	lag   time.Duration // reads show a state that is this old
	flips bool          // only every second read is that old

	outageFrom, outageTo time.Duration // between these times, every path gets "not found"
	outageBody           string

	dates      int    // form of created_at and updated_at, see dateForms
	never      string // value of deleted_at for an endpoint that is not deleted
	letters    int    // letter case and white space of statuses
	naming     int    // letter case and white space of names
	odd        bool   // informational fields have other JSON types than documented
	ghost      int    // how a deleted record is shown, see ghosts
	missing    int    // body of "not found", see missingBodies
	touch      bool   // a change of the status changes updated_at
	sameIsNone bool   // an update to the same number has no effect
	bare       bool   // responses to updates have no record
	flavors    int    // contents of the flavor list, see flavorLists
	busy       bool   // a second delete gets 409 while the first one is running
	uuids      bool   // IDs are UUIDs; every second record writes its ID in upper case

	field
	beyond
}

// beyond are troubles that a client cannot detect, as far as is known. They are used only
// if SVC_SOAK_BEYOND is set. The counts of violations then show the damage that these
// troubles would do.
type beyond struct {
	flickers bool // while a new ID is not readable, half of the reads find it
	flaps    bool // during the outage, the service works in every second second
	erases   bool // after an effect, the response may be a 429, or an HTML page with 403 or 404
}

const (
	ghost404 = iota
	ghost410
	ghostRecord
	ghostRecordThen404
	ghosts
)

var (
	missingBodies = []string{`{"message":"service not found"}`, `{"detail":"Not Found"}`, `{"error":{"code":"not_found","message":"no such service"}}`, ``, `{}`, `not found`}
	outageBodies  = []string{`{"message":"no Route matched with those values"}`, `404 page not found`, `{"message":"invalid key"}`, `<html><title>404 Not Found</title></html>`, ``}
	nevers        = []string{`null`, `null`, `null`, `"1970-01-01 00:00:00"`, `"9999-12-31 23:59:59"`, `""`, `"0001-01-01T00:00:00Z"`, `0`}
	flavorLists   = []string{`{"flavor_list":[{"flavor_id":"gpu","available_num":8}]}`, `{"flavor_list":[]}`, `403`, `{"data":[]}`, `500`}
)

// dateForms are the formats of times. The formats from wholeSeconds on have no fraction,
// and those from noDates on contain no time.
var dateForms = []func(time.Time) string{
	func(t time.Time) string { return strconv.Quote(t.Format(time.RFC3339Nano)) },
	func(t time.Time) string { return strconv.Quote(t.Format("2006-01-02T15:04:05.000000")) },
	func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) },
	func(t time.Time) string { return strconv.Quote(t.Format("2006-01-02 15:04:05")) },
	func(t time.Time) string { return strconv.Quote(t.Add(8 * time.Hour).Format("2006-01-02 15:04:05")) },
	func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) },
	func(time.Time) string { return `"just now"` },
	func(time.Time) string { return `null` },
}

const (
	wholeSeconds = 3
	noDates      = 6
)

// drawTraits chooses the traits at random. One service in eight is calm.
func drawTraits(d *rand.Rand) traits {
	seconds := func(most float64) time.Duration { return time.Duration(d.Float64() * most * float64(time.Second)) }
	share := func(choices ...float64) float64 { return choices[d.IntN(len(choices))] }
	often := func(p float64) bool { return d.Float64() < p }
	t := traits{
		deploying: seconds(share(0, 5, 20, 90)), scaling: seconds(share(0, 5, 20, 60)),
		naming: d.IntN(3), letters: max(0, d.IntN(6)-2), ghost: d.IntN(ghosts), missing: d.IntN(len(missingBodies)),
		touch: often(0.5), sameIsNone: often(0.5), dates: d.IntN(noDates), never: nevers[0],
	}
	t.echoes = often(0.1)
	if often(0.125) {
		t.calm = true
		return t
	}
	t.trouble, t.slow = share(0, 0, 0.05, 0.2, 0.5, 0.8), share(0, 0, 0.05, 0.3)
	if often(0.5) {
		t.unreadable = seconds(20)
	}
	t.failing, t.deaf, t.stranger = share(0, 0, 0.2, 1), share(0, 0, 0, 0.3, 1), share(0, 0, 0, 0, 0.3)
	if often(0.5) {
		t.deleting = seconds(share(2, 10, 60))
	}
	if often(0.4) {
		t.lag, t.flips = seconds(10), often(0.5)
	}
	if often(0.3) {
		t.outageFrom = seconds(90)
		t.outageTo = t.outageFrom + seconds(share(2, 30, 1000))
		t.outageBody = outageBodies[d.IntN(len(outageBodies))]
	}
	t.dates, t.never = d.IntN(len(dateForms)), nevers[d.IntN(len(nevers))]
	t.odd, t.bare, t.busy = often(0.2), often(0.2), often(0.2)
	t.refusing = share(0, 0, 0, 0, 0.1, 0.3)
	if often(0.2) {
		t.flavors = d.IntN(len(flavorLists))
	}
	t.uuids = often(0.2)
	t.drawField(d)
	if os.Getenv("SVC_SOAK_BEYOND") != "" {
		t.beyond = [...]beyond{{flickers: true}, {flaps: true}, {erases: true}}[d.IntN(3)]
	}
	return t
}

// endpoint is an endpoint with its whole history.
type endpoint struct {
	id, name string
	by       *call  // the call that created it; nil: it belongs to somebody else
	foreign  bool   // it belongs to the account of the foreign token
	about    string // its description
	created  time.Time
	readable time.Time
	changes  []change  // sorted by time
	deleted  time.Time // zero: never; may be in the future
}

// change is a create or an update, and what it leads to.
type change struct {
	at        time.Time
	instances int
	settled   time.Time // when the status changes from "initializing" to becomes
	becomes   string
}

// state is the state of an endpoint at one moment.
type state struct {
	status    string
	instances int
	updated   time.Time
	deleted   bool
}

// at returns the true state at time t.
func (e *endpoint) at(t time.Time, touch bool) state {
	c := e.changes[0]
	for _, next := range e.changes[1:] {
		if next.at.After(t) {
			break
		}
		c = next
	}
	s := state{status: "initializing", instances: c.instances, updated: c.at}
	if !t.Before(c.settled) {
		s.status = c.becomes
		if touch {
			s.updated = c.settled
		}
	}
	s.deleted = !e.deleted.IsZero() && !t.Before(e.deleted)
	if s.deleted {
		s.updated = e.deleted
	}
	return s
}

// world is the service of one conversation. It has the true state.
type world struct {
	traits
	seed  uint64
	dice  *rand.Rand
	start time.Time

	mu        sync.Mutex
	endpoints []*endpoint // sorted by creation
	later     []deed      // scheduled actions, sorted by time
	call      *call       // the current call
	reads     int
	writes    int                  // number of records written
	stored    map[string]*exchange // the contents of the cache
	reached   map[string]bool      // the latest read of this ID reached the router only
}

// deed is an action that happens at a certain time.
type deed struct {
	at time.Time
	do func()
}

func newWorld(seed uint64, d *rand.Rand) *world {
	w := &world{traits: drawTraits(d), seed: seed, dice: d, start: time.Now(), stored: map[string]*exchange{}, reached: map[string]bool{}}
	for i := range 2 { // these belong to somebody else and have existed for long
		e := w.add(fmt.Sprintf("neighbour-%d", i), 1+i)
		e.created = w.start.Add(-time.Hour)
		e.readable = e.created
		e.changes = []change{{at: e.created, instances: 1 + i, settled: e.created, becomes: "available"}}
	}
	return w
}

// add creates an endpoint now.
func (w *world) add(name string, instances int) *endpoint {
	now := time.Now()
	e := &endpoint{
		id: fmt.Sprintf("id-%x-%d", w.seed, len(w.endpoints)), name: name, created: now, readable: now.Add(w.unreadable),
		changes: []change{w.change(now, instances, w.deploying)},
	}
	if w.uuids {
		e.id = fmt.Sprintf("%08x-abcd-4bcd-8bcd-%012x", uint32(w.seed), len(w.endpoints))
	}
	w.endpoints = append(w.endpoints, e)
	return e
}

func (w *world) change(now time.Time, instances int, takes time.Duration) change {
	c := change{at: now, instances: instances, settled: now.Add(takes), becomes: "available"}
	switch {
	case w.dice.Float64() < w.failing:
		c.becomes = "unavailable"
	case instances == 0:
		c.becomes = "stopped"
	}
	return c
}

// remove deletes an endpoint after the given time, unless it is deleted earlier.
func (w *world) remove(e *endpoint, after time.Duration) {
	if at := time.Now().Add(after); e.deleted.IsZero() || at.Before(e.deleted) {
		e.deleted = at
	}
}

func (w *world) find(id string) *endpoint {
	for _, e := range w.endpoints {
		if same(e.id, id) {
			return e
		}
	}
	return nil
}

// schedule adds do to the actions that advance runs after the given time.
func (w *world) schedule(after time.Duration, do func()) {
	w.later = append(w.later, deed{time.Now().Add(after), do})
	slices.SortStableFunc(w.later, func(a, b deed) int { return a.at.Compare(b.at) })
}

// advance runs the actions that are due.
func (w *world) advance() {
	for len(w.later) > 0 && !w.later[0].at.After(time.Now()) {
		do := w.later[0].do
		w.later = w.later[1:]
		do()
	}
}

// isDeleted returns the truth. An endpoint that never existed was not deleted.
func (w *world) isDeleted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	e := w.find(id)
	return e != nil && e.at(time.Now(), false).deleted
}

// reply is a response of the service itself.
type reply struct {
	status int
	body   string
}

// handle executes a request.
func (w *world) handle(x *exchange) reply {
	w.advance()
	x.handled = time.Now()
	switch {
	case x.method == "GET" && x.id == flavorList:
		return w.listFlavors()
	case x.method == "POST":
		return w.create(x)
	}
	e := w.find(x.id)
	if e == nil || e.foreign != x.foreign || x.handled.Before(e.readable) && !(w.flickers && x.lucky) {
		return w.notFound()
	}
	switch x.method {
	case "GET":
		return w.read(x, e)
	case "PUT":
		return w.update(x, e)
	default:
		return w.delete(x, e)
	}
}

func (w *world) notFound() reply {
	status := 404
	if w.ghost == ghost410 {
		status = 410
	}
	return reply{status, missingBodies[w.missing]}
}

func (w *world) listFlavors() reply {
	switch text := flavorLists[w.flavors]; text {
	case "403":
		return reply{403, `{"message":"not for this key"}`}
	case "500":
		return reply{500, `{"message":"internal error"}`}
	default:
		return reply{200, text}
	}
}

func (w *world) create(x *exchange) reply {
	e := w.add(x.name, x.instances)
	e.by, e.foreign, e.about, x.made = x.call, x.foreign, x.about, e
	return reply{200, w.record(e, e.at(x.handled, w.touch))}
}

func (w *world) read(x *exchange, e *endpoint) reply {
	at := x.handled
	w.reads++
	if !w.flips || w.reads%2 == 0 {
		at = at.Add(-w.lag)
		if at.Before(e.created) {
			at = e.created
		}
	}
	s := e.at(at, w.touch)
	if s.deleted && (w.ghost == ghost404 || w.ghost == ghost410 || w.ghost == ghostRecordThen404 && x.handled.Sub(e.deleted) > 20*time.Second) {
		return w.notFound()
	}
	x.shown = &s
	return reply{200, w.record(e, s)}
}

func (w *world) update(x *exchange, e *endpoint) reply {
	s := e.at(x.handled, w.touch)
	if s.deleted {
		return w.notFound()
	}
	same := w.sameIsNone && s.instances == x.instances
	if !same && w.dice.Float64() >= w.deaf {
		e.changes = append(e.changes, w.change(x.handled, x.instances, w.scaling))
		x.acted = true
	}
	if w.bare {
		return reply{204, ""}
	}
	return reply{200, w.record(e, e.at(x.handled, w.touch))}
}

func (w *world) delete(x *exchange, e *endpoint) reply {
	switch {
	case e.at(x.handled, false).deleted:
		return w.notFound()
	case !e.deleted.IsZero() && w.busy:
		return reply{409, `{"message":"is being deleted"}`}
	case w.dice.Float64() >= w.deaf:
		w.remove(e, w.deleting)
		x.acted = true
	}
	return [...]reply{{200, `{}`}, {204, ``}, {202, `{"message":"accepted"}`}}[w.dice.IntN(3)]
}

// record returns a record as JSON, in the format of this service.
func (w *world) record(e *endpoint, s state) string {
	date := dateForms[w.dates]
	status := s.status
	switch w.letters {
	case 1:
		status = strings.ToUpper(status)
	case 2:
		status = strings.ToUpper(status[:1]) + status[1:] + " "
	}
	name := e.name
	switch w.naming {
	case 1:
		name = strings.ToUpper(name)
	case 2:
		name = " " + name + " "
	case 3:
		name = slug(name)
	}
	deletedAt, isDeleted := w.never, "false"
	if s.deleted {
		deletedAt, isDeleted = date(e.deleted), "true"
	}
	info, kind, description := "null", `"normal"`, strconv.Quote(e.about)
	if w.odd {
		info, kind, description = `{"reason":["out of memory"]}`, `7`, `null`
		isDeleted = cmp.Or(map[string]string{"false": "0"}[isDeleted], isDeleted)
	}
	if w.notANumber {
		kind += `,"load":NaN,"limits":{"most":-Infinity}`
	}
	id := e.id
	if w.writes++; w.uuids && w.writes%2 == 0 {
		id = strings.ToUpper(id)
	}
	return `{"service_id":"` + id + `","name":"` + name + `","description":` + description + `,"status":"` + status +
		`","status_info":` + info + `,"resource_metadata":{"flavor_id":"gpu","scale_type":"manual","target_instance_number":` +
		strconv.Itoa(s.instances) + `,"scale_policy":null},"service_type":` + kind + `,"created_at":` + date(e.created) +
		`,"updated_at":` + date(s.updated) + `,"deleted_at":` + deletedAt + `,"is_deleted":` + isDeleted + `}`
}
