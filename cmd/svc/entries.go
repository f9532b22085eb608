package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc/ledger"
)

// entryView is an entry of the ledger in a document.
type entryView struct {
	Key         string   `json:"key"`
	Intent      string   `json:"intent"`   // the description of the endpoint holds [svc:INTENT]
	State       string   `json:"state"`    // intended, created, unknown, refused, forgotten, deleted; damaged: the first record of the create cannot be read, and what can be shows no end
	Open        bool     `json:"open"`     // the endpoint may be running and billed
	InDoubt     bool     `json:"in_doubt"` // no process will record the outcome of the create: the state is unknown, or still intended at forget_from
	Doubt       string   `json:"doubt"`    // why the times of the entry cannot be right; empty if they can
	Name        string   `json:"name"`
	ServiceID   string   `json:"service_id"` // empty if not known
	FlavorID    string   `json:"flavor_id"`
	Instances   *int     `json:"instances" jsonschema:"nullable"`         // what was asked for last; null if not known, as of a damaged entry
	CreatedWith *int     `json:"created_instances" jsonschema:"nullable"` // what the create asked for; null if not known
	Seconds     *float64 `json:"instance_seconds" jsonschema:"nullable"`  // instances times the longest time that they may have run; null if not known
	RequestedAt string   `json:"requested_at"`                            // times are RFC 3339; empty if there is none
	CreatedAt   string   `json:"created_at"`
	DeletedAt   string   `json:"deleted_at"`
	LeaseEnd    string   `json:"lease_end"` // of the lease that counts: it ends when the service accepts a delete, and at the latest with the endpoint
	Adopted     bool     `json:"adopted"`
	BaseURL     string   `json:"base_url"`
	DeleteFrom  string   `json:"delete_accepted_at"` // the service has accepted a delete then, whose deletion is not proved; else empty
	ForgetFrom  string   `json:"forget_from"`        // "svc forget" works from then on, if no ID is known; else empty

	entry ledger.Entry
}

func newEntryView(e ledger.Entry) entryView {
	now, forgetFrom, deleteFrom := time.Now(), "", stamp(deleteAccepted(e))
	e = counted(e)
	if e.State == ledger.Intended || e.State == ledger.Unknown {
		forgetFrom = stamp(e.SettleBy.Add(ledger.SettleMargin))
	}
	seconds := e.InstanceTime(now).Round(time.Second).Seconds()
	return entryView{
		e.Key, e.Intent, string(e.State), e.Open(), e.InDoubt(now), e.Doubt, e.Name, e.ServiceID, e.FlavorID, &e.Instances, &e.Records[0].Instances,
		&seconds, stamp(e.RequestedAt), stamp(e.CreatedAt), stamp(e.DeletedAt), stamp(e.LeaseEnd),
		e.Adopted, e.BaseURL, deleteFrom, forgetFrom, e,
	}
}

// subject names the endpoint of an entry in a sentence, and whether its lease is over.
func (e *entryView) subject(now time.Time) string {
	what := cmp.Or(printable(e.ServiceID), "an endpoint whose ID is not known,") + " of the key " + e.Key
	if leaseEnded(e.entry, now) {
		what += ", whose lease is over,"
	}
	return what
}

// leaseEnded reports whether an entry has a lease that has ended at the given time.
func leaseEnded(e ledger.Entry, now time.Time) bool {
	return !e.LeaseEnd.IsZero() && now.After(e.LeaseEnd)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// row returns the row of an entry. Its lease is by the service's clock, which is off behind that of this machine.
func (e *entryView) row(off time.Duration) []string {
	state, lease, now := e.State, "-", time.Now()
	if e.InDoubt {
		state += ", in doubt"
	}
	if e.DeleteFrom != "" {
		state += ", being deleted"
	}
	switch end := e.entry.LeaseEnd.Add(off); {
	case e.LeaseEnd == "":
	case now.Before(end):
		lease = "in " + short(end.Sub(now))
	default:
		lease = "over since " + short(now.Sub(end))
	}
	age, instances, ran := "-", "-", "-"
	if e.Instances != nil {
		instances = fmt.Sprint(*e.Instances)
	}
	if e.Seconds != nil {
		ran = short(time.Duration(*e.Seconds) * time.Second)
	}
	if !e.entry.RequestedAt.IsZero() {
		age = short(now.Sub(e.entry.RequestedAt))
	}
	return []string{
		e.Key, state, dash(e.Name), dash(e.ServiceID), instances, age, ran, lease, host(e.BaseURL),
	}
}

var entryHeader = []string{"KEY", "STATE", "NAME", "ID", "INSTANCES", "AGE", "TIME", "LEASE", "ADDRESS"}

func host(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return dash(address)
	}
	return u.Host + u.Path
}

// entriesView lists entries of the ledger.
type entriesView struct {
	outcome
	Entries []entryView `json:"entries"`

	off time.Duration // how far the clock of this machine is ahead of the service's; 0 if not known
}

func (v *entriesView) table() table {
	t := table{header: entryHeader}
	for i := range v.Entries {
		t.rows = append(t.rows, v.Entries[i].row(v.off))
	}
	return t
}

func (v *entriesView) names() (ids []string) {
	for _, e := range v.Entries {
		if e.ServiceID != "" {
			ids = append(ids, e.ServiceID)
		}
	}
	return ids
}

const lsHelp = `Lists the entries of the ledger whose endpoint may be running, with --all also the others. It
reads only the ledger: no address and no token is needed.

An entry whose STATE is unknown or intended has a create without a known outcome (exit code 4). If
it is intended, the create is under way, or its process was killed. It is in doubt if no process will
record the outcome: if it is unknown, or still intended six minutes after its create began. To settle
it, look for its endpoint where the service shows what your account runs: by its name, or by
[svc:INTENT] in its description (-o json shows the intent). If it is there: svc adopt KEY ID. If it is
not: svc forget KEY. Both work for an entry that is intended, too.

An entry is being deleted if the service has accepted a delete, and the deletion is not proved: "svc
sweep" goes on with it. Only "svc extend" keeps the endpoint, later than five minutes after the delete.

An entry is damaged if the first record of its create cannot be read. What the others tell is shown (-:
not known), and the exit code is 9. Its endpoint may be running, and no sweep deletes it: "svc delete ID"
does.

An entry with 0 instances is listed too, and counts as one that may be running: the ledger does not
know what was changed elsewhere. "svc get ID" asks the service.

An entry belongs to the ADDRESS of its create, and commands with KEY and another SVC_BASE_URL do not
touch its endpoint. Each name of a host is an address of its own, such as localhost and 127.0.0.1.

TIME is the number of instances times the longest time that they may have run. LEASE is by the clock
of this machine. An endpoint that was adopted without the mark is not deleted by a sweep when its lease
is over.`

func (t *tool) lsCommand() *command {
	var all, open bool
	c := &command{
		Command: &cobra.Command{Use: "ls", Short: "list what may be running, from the ledger", Long: lsHelp, Example: "  svc ls\n  svc ls --key chat\n  svc ls --all -o json"},
		client:  wantsClient, ledger: readsLedger, stake: reads, empty: func() view { return &entriesView{Entries: []entryView{}} },
		apart: [][]string{{"all", "open"}},
	}
	c.Flags().Var(new(once), "key", "only entries of this key ("+keyRule+"), which may have none; may_be_running in a document is about it alone")
	c.Flags().BoolVar(&open, "open", true, "only entries whose endpoint may be running; --open=false: only the others, which have ended")
	c.Flags().BoolVar(&all, "all", false, "all entries, whether their endpoint may be running or not")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		entries, err := t.client.Ledger.Entries(ctx)
		entries = t.ofKey(entries)
		shown := t.damagedEntries(ctx, entries, err)
		for _, e := range entries {
			shown = append(shown, newEntryView(e))
		}
		v, hidden := &entriesView{Entries: []entryView{}}, func(e entryView) bool { return !all && e.Open != open }
		v.Entries = append(v.Entries, slices.DeleteFunc(shown, hidden)...)
		if others := t.openElsewhere(entries); others > 0 {
			t.talk.say("open at other addresses than %s: %d. Commands reach them only with the address of the entry (ADDRESS): --base-url, or SVC_BASE_URL", t.address, others)
		}
		t.note(func(f *facts) { f.Running = anyOpen(entries, err) })
		if len(v.Entries) == 0 && err == nil {
			t.talk.say("%s", t.nothingListed(len(entries), open))
		}
		return v, err
	}
	return c
}

const damagedState = "damaged"

// damagedEntries returns what the ledger still tells of the creates whose first record cannot be read, so that they are no
// entries. err is that of reading the entries. For a key without an open entry, there is one with the key alone if a damaged
// record may be that of another create.
func (t *tool) damagedEntries(ctx context.Context, entries []ledger.Entry, err error) (views []entryView) {
	unread := map[string]int{} // by key: how many records cannot be read
	for _, e := range damages(err) {
		if t.flags.key == "" || t.flags.key == e.Key {
			n := unread[e.Key]
			if e.Intent == "" { // else the record can be read, and does not fit the others
				n++
			}
			unread[e.Key] = n
		}
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	for _, key := range slices.Sorted(maps.Keys(unread)) {
		open := len(openUnder(entries, key)) > 0
		for _, e := range t.withoutBegin(ctx, key, entries) {
			views, open = append(views, damagedView(e)), open || e.Open()
			unread[key]--
		}
		if !open && unread[key] > 0 {
			views = append(views, damagedView(begun(ledger.Record{Key: key})))
		}
	}
	return views
}

// withoutBegin returns the creates of a key that have records, but no entry.
func (t *tool) withoutBegin(ctx context.Context, key string, entries []ledger.Entry) (found []ledger.Entry) {
	records, _ := t.store.List(ctx, key)
	of := map[string][]ledger.Record{}
	var intents []string
	for _, r := range records {
		if r.Event == ledger.Pruned {
			clear(of)
			intents = nil
		} else if of[r.Intent] = append(of[r.Intent], r); len(of[r.Intent]) == 1 {
			intents = append(intents, r.Intent)
		}
	}
	for _, intent := range intents {
		if !slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Intent == intent }) {
			found = append(found, begun(of[intent]...))
		}
	}
	return found
}

// begun returns the entry of records, with one in place of the first one, which cannot be read.
func begun(records ...ledger.Record) ledger.Entry {
	first := records[0]
	first.Event, first.Lease, first.LeaseEnd, first.ServiceID = ledger.Intended, 0, time.Time{}, ""
	if records[0].Event == "" {
		records = nil
	}
	entries, _ := ledger.Fold(append([]ledger.Record{first}, records...)) // the numbers of the records have gaps
	return entries[0]
}

// damagedView returns the view of an entry without its first record, which has the number of instances.
func damagedView(e ledger.Entry) entryView {
	v := newEntryView(e)
	v.CreatedWith, v.Seconds = nil, nil
	if !slices.ContainsFunc(e.Records, func(r ledger.Record) bool { return r.Event == ledger.Scaled }) {
		v.Instances = nil
	}
	if e.Open() {
		v.State, v.InDoubt, v.ForgetFrom = damagedState, true, ""
	}
	return v
}

// openElsewhere returns how many open entries are at other addresses; 0 if this one is not known.
func (t *tool) openElsewhere(entries []ledger.Entry) (n int) {
	for _, e := range entries {
		if e.Open() && t.address != "" && t.elsewhere(e) {
			n++
		}
	}
	return n
}

// ofKey returns the entries of --key, or all of them if it was not given.
func (t *tool) ofKey(entries []ledger.Entry) []ledger.Entry {
	key := t.flags.key
	return slices.DeleteFunc(entries, func(e ledger.Entry) bool { return key != "" && e.Key != key })
}

// nothingListed says that the ledger has no open entry, or none that has ended, and how many others it has. A ledger without
// any may be new, or have lost them.
func (t *tool) nothingListed(others int, open bool) string {
	of := ""
	if t.flags.key != "" {
		of = " of the key " + t.flags.key
	}
	switch {
	case others == 0:
		return fmt.Sprintf("no entries%s in %s", of, t.place.shown)
	case !open:
		return fmt.Sprintf("no entries%s in %s have ended (open: %d, see svc ls)", of, t.place.shown, others)
	}
	return fmt.Sprintf("no open entries%s in %s: as far as this ledger knows, nothing is running (ended: %d, see --all)", of, t.place.shown, others)
}
