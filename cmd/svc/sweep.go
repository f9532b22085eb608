package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

// sweepView is the result of a sweep.
type sweepView struct {
	outcome
	DryRun    bool        `json:"dry_run"`
	Entries   []swept     `json:"entries"`   // the entries whose lease is over, and those whose state is damaged
	Elsewhere []entryView `json:"elsewhere"` // open entries at other addresses: this sweep cannot delete them

	off time.Duration // how far the clock of this machine is ahead of the service's
}

// swept is an entry whose lease is over.
type swept struct {
	entryView
	Deleted bool   `json:"deleted"` // the endpoint is deleted, also if another command did it
	Kept    bool   `json:"kept"`    // the lease was extended during this sweep, which has deleted nothing
	Error   string `json:"error"`   // why it is not known to be deleted; empty if it is, would be, or is kept

	hidden   bool // the service does not find it with this token
	unmarked bool // it lacks the mark of the entry: no sweep deletes it
}

func emptySweep() view { return &sweepView{Entries: []swept{}, Elsewhere: []entryView{}} }

func (v *sweepView) table() table {
	t := table{header: []string{"KEY", "NAME", "ID", "INSTANCES", "AGE", "LEASE", "RESULT"}}
	for _, e := range v.Entries {
		result := "deleted"
		switch {
		case e.Error != "":
			result = "NOT deleted: " + e.Error
		case e.State == string(ledger.Forgotten):
			result = "forgotten by another command"
		case e.Kept:
			result = "kept: its lease was extended"
		case !e.Deleted:
			result = "would be deleted"
		}
		r := e.row(v.off)
		t.rows = append(t.rows, []string{e.Key, dash(e.Name), dash(e.ServiceID), r[4], r[5], r[7], result})
	}
	return t
}

func (v *sweepView) names() (ids []string) {
	for _, e := range v.Entries {
		if e.ServiceID != "" && e.Error == "" && !e.Kept {
			ids = append(ids, e.ServiceID)
		}
	}
	return ids
}

// sweeping is a run of sweep.
type sweeping struct {
	tool   *tool
	dryRun bool
	tell   func(id string, err error) // says why an endpoint is not known to be deleted

	left   atomic.Pointer[[]string] // the advice of its end; nil before that
	proofs sync.Map                 // records of deletions, by their intent
	said   sync.Map                 // IDs of the endpoints about which the sweep has said what it waits for
}

func (t *tool) sweepCommand() *command {
	c := &command{
		Command: &cobra.Command{
			Use: "sweep", Short: "delete the endpoints whose lease is over",
			Long: `Deletes the endpoints whose lease is over, and waits until they are deleted. Run it every few
minutes from one place: nothing else enforces a lease. It deletes endpoints at its own address
only, and names open entries at other addresses, with --quiet too: the exit code is not about them.

It also goes on with each deletion that was accepted and is not proved. An endpoint whose lease is
extended before a delete of it is sent is kept.

It checks the token, also if no lease is over. If the service does not accept it, the sweep ends with
10, or with 6 if the ledger has no open entry.`,
			Example: "  svc sweep --dry-run",
		},
		client: needsClient, ledger: readsLedger, stake: changes, empty: emptySweep,
	}
	s := &sweeping{tool: t, tell: t.tellFailures()}
	c.Flags().BoolVar(&s.dryRun, "dry-run", false, "only say what would be deleted")
	c.left = func(facts) []string {
		if lines := s.left.Load(); lines != nil {
			return *lines
		}
		return []string{t.leftBySweep() + " To try again: " + t.cmd("sweep")}
	}
	c.onRecord, c.onCall = s.onRecord, s.onCall
	c.listed = func(records []ledger.Record) []ledger.Record {
		if s.dryRun {
			return withMarks(records)
		}
		return records
	}
	c.run = func(ctx context.Context, _ []string) (view, error) { return s.run(ctx) }
	return c
}

func (s *sweeping) onRecord(r ledger.Record) {
	if r.Event == ledger.Deleted {
		s.proofs.Store(r.Intent, r)
		s.tool.talk.say("%s of the key %s is deleted", printable(r.ServiceID), r.Key)
	}
}

func (s *sweeping) onCall(call svc.Call) {
	switch {
	case s.tool.sweeping == nil, call.ID == "", errors.Is(call.Err, errExtended):
	case call.Err == nil && call.Method == http.MethodDelete:
		s.once(call.ID, "deleting %s")
	case call.Err == nil, isNotFound(call.Err) && (s.dryRun || s.tool.endpoint(call.ID).accepted): // no failure of a deletion
	case isNotFound(call.Err):
		s.once(call.ID, "%s is not found, and this sweep has not deleted it: checking that it is deleted (up to a minute)")
	default:
		s.tell(call.ID, call.Err)
	}
}

// once says what the sweep waits for, once for each endpoint.
func (s *sweeping) once(id, format string) {
	if _, told := s.said.LoadOrStore(id, true); !told {
		s.tool.talk.say(format, printable(id))
	}
}

func (s *sweeping) run(ctx context.Context) (view, error) {
	t, v := s.tool, emptySweep().(*sweepView)
	t.talk.setDeleting(true)
	v.DryRun = s.dryRun
	entries, err := t.showMarks(ctx)
	if err != nil { // afterSweep would wait for it once more
		return v, err
	}
	t.note(func(*facts) { t.partial = func() view { return t.unfinished(entries, &s.proofs, s.dryRun) } })
	if err := t.refused(ctx); err != nil {
		return v, t.afterSweep(ctx, v, err)
	}
	t.warnOfAccount(ctx, entries)
	t.sweeping = map[string]time.Time{}
	for _, e := range entries {
		t.sweeping[e.Intent] = e.LeaseEnd
	}
	reaped, err := t.client.Ledger.Reap(ctx, &svc.ReapOptions{DryRun: s.dryRun})
	reaped, kept, err := t.settledSince(ctx, reaped, err)
	for _, r := range reaped {
		if kept[r.Entry.Intent] {
			v.Entries = append(v.Entries, t.keptEntry(r.Entry))
			continue
		}
		v.Entries = append(v.Entries, t.sweptEntry(r, s.dryRun, s.tell, isDamaged(err, r.Entry.Key)))
	}
	t.addDamaged(v, t.damagedEntries(ctx, entries, err))
	var failed []entryView
	for _, e := range v.Entries {
		if e.Error != "" {
			failed = append(failed, e.entryView)
		}
	}
	t.noteUnsettled(failed...)
	lines := t.left(v, err, entries)
	s.left.Store(&lines)
	t.note(func(f *facts) {
		f.Left = slices.ContainsFunc(v.Entries, func(e swept) bool { return e.Error != "" && e.State != damagedState })
	})
	return v, t.afterSweep(ctx, v, err)
}

// addDamaged adds the entries whose first record cannot be read. Neither their address nor their lease is certain.
func (t *tool) addDamaged(v *sweepView, damaged []entryView) {
	for _, e := range damaged {
		if !e.Open {
			continue
		}
		lease := "not known"
		if e.LeaseEnd != "" {
			lease = "until " + e.LeaseEnd + " or later"
		}
		text := fmt.Sprintf("the records of the key %s are damaged, so no sweep deletes its endpoint (ID %s, lease %s)", e.Key, dash(printable(e.ServiceID)), lease)
		t.talk.say("%s", text)
		v.Entries = append(v.Entries, swept{entryView: e, Error: text})
	}
}

func (t *tool) leftBySweep() string {
	return "Endpoints whose lease is over may still be running and billed. To see them: " + t.cmd("ls") + "."
}

// left returns what to do about the endpoints that a sweep has left. Another sweep does not help for all.
// err is what failed; nil if nothing did.
func (t *tool) left(v *sweepView, err error, entries []ledger.Entry) (lines []string) {
	if err == nil {
		return []string{"No endpoint whose lease is over was left. Others may be running and billed. To see them: " + t.cmd("ls")}
	}
	again := len(v.Entries) == 0
	for _, e := range v.Entries {
		switch {
		case e.Error == "":
		case isDamaged(err, e.Key):
			lines = append(lines, t.damaged(err, e.Key, entries)...)
		case e.ServiceID == "" || e.State != string(ledger.Created):
			lines = append(lines, fmt.Sprintf("No sweep settles the key %s: %s", e.Key, t.settle(e.entry)))
		case e.hidden:
			lines = append(lines, fmt.Sprintf("%s of the key %s: sweep with the token of the account that created it. If it does not exist: %s", printable(e.ServiceID), e.Key, t.cmd("forget %s --other-token", e.Key)))
		case e.unmarked:
			lines = append(lines, fmt.Sprintf("%s of the key %s was adopted without the mark, so no sweep deletes it. If it is yours: %s. If it is not: %s", printable(e.ServiceID), e.Key, t.cmd("delete %s", printable(e.ServiceID)), t.cmd("adopt %s --undo", e.Key)))
		default:
			again = true
		}
	}
	if again {
		return append(lines, t.leftBySweep()+" To try again: "+t.cmd("sweep"))
	}
	return append(lines, t.leftBySweep())
}

// settledSince replaces the entries, which are as they were before the sweep, by what the ledger has now. An entry
// that another command has settled meanwhile is no failure of this one. Neither is one whose lease was extended before a
// delete was sent: kept has its intent.
func (t *tool) settledSince(ctx context.Context, reaped []svc.Reaped, err error) (now []svc.Reaped, kept map[string]bool, left error) {
	entries := t.entriesBriefly(context.WithoutCancel(ctx)) // afterSweep reports a failure
	var settled []error
	kept = map[string]bool{}
	for i, r := range reaped {
		now := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Intent == r.Entry.Intent })
		if now < 0 {
			continue
		}
		e := entries[now]
		if r.Err != nil && !t.endpoint(e.ServiceID).tried && extended(r.Entry, e) {
			kept[e.Intent] = true
		}
		if reaped[i].Entry = e; r.Err != nil && (kept[e.Intent] || !e.Open()) {
			reaped[i].Err = nil
			settled = append(settled, r.Err)
		}
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(settled) > 0 {
		err = errors.Join(slices.DeleteFunc(slices.Clone(all.Unwrap()), func(e error) bool { return slices.Contains(settled, e) })...)
	}
	return reaped, kept, err
}

// extended reports whether the lease of an entry was over before, and is not now.
func extended(before, now ledger.Entry) bool {
	return before.Lease > 0 && now.State == ledger.Created && deleteAccepted(now).IsZero() && (now.Lease == 0 || now.LeaseEnd.After(before.LeaseEnd))
}

func (t *tool) keptEntry(e ledger.Entry) swept {
	t.talk.say("%s of the key %s is kept: its lease was extended", printable(e.ServiceID), e.Key)
	return swept{entryView: newEntryView(e), Kept: true}
}

// unfinished returns what a sweep that is given up knows: the entries whose lease was over at its beginning, and which of them it has deleted.
func (t *tool) unfinished(entries []ledger.Entry, proofs *sync.Map, dryRun bool) view {
	v := emptySweep().(*sweepView)
	v.DryRun = dryRun
	for _, e := range entries {
		switch {
		case t.elsewhere(e):
			if e.Open() {
				v.Elsewhere = append(v.Elsewhere, newEntryView(e))
			}
		case e.Doubt != "" && e.Open(), e.Overdue(e.BaseURL, t.now()):
			known := swept{entryView: newEntryView(e), Error: "not known to be deleted when the program was ended"}
			if r, ok := proofs.Load(e.Intent); ok {
				now, _ := ledger.Fold(append(slices.Clone(e.Records), r.(ledger.Record))) // it may not hold the records since then: it has ended
				known = swept{entryView: newEntryView(now[0]), Deleted: true}
			}
			v.Entries = append(v.Entries, known)
		}
	}
	return v
}

// sweptEntry returns the result of a sweep for an entry, with the reason if the entry could
// not be settled.
func (t *tool) sweptEntry(r svc.Reaped, dryRun bool, tell func(id string, err error), damaged bool) swept {
	deleted := r.Err == nil && (!dryRun || r.Entry.State == ledger.Deleted) && r.Entry.State != ledger.Forgotten
	e := swept{entryView: newEntryView(r.Entry), Deleted: deleted, hidden: isNotFound(r.Err) && t.mayBeOfAnother(r.Entry), unmarked: errors.Is(r.Err, svc.ErrLedgerMark)}
	if deleted && e.Open { // the ledger does not have it yet
		at := t.endpoint(e.ServiceID).proved
		if at.IsZero() {
			at = time.Now()
		}
		e.State, e.Open, e.InDoubt, e.DeletedAt, e.DeleteFrom = string(ledger.Deleted), false, false, stamp(at), ""
	}
	if r.Err == nil {
		return e
	}
	e.Error = plainText(r.Err)
	switch {
	case damaged: // the advice is about it
	case e.ServiceID == "": // no sweep can settle it
		t.talk.say("the outcome of the create of the key %s is not known: look for %q at the provider, then: %s", e.Key, e.Name, t.settle(e.entry))
	case !isA[*svc.WaitError](r.Err): // the calls of a wait are told
		tell(e.ServiceID, r.Err)
	}
	return e
}

// tellFailures returns a function that writes why an endpoint is not known to be deleted, once for each
// endpoint and reason. The sweep may report the same reason as a call.
func (t *tool) tellFailures() func(id string, err error) {
	var mu sync.Mutex
	told := map[string]string{}
	return func(id string, err error) {
		text := plainText(err)
		reason := requestIDs().ReplaceAllString(text, "")
		mu.Lock()
		defer mu.Unlock()
		if told[id] == "" || !strings.Contains(reason, told[id]) {
			told[id] = reason
			t.talk.say("%s is not known to be deleted: %s", printable(id), text)
		}
	}
}

// refused returns an error if the service does not accept the token, also if no lease is over: a sweep that only
// says so when there is something to delete says it too late. It also returns an error if the service has not responded
// when the time is over: the ledger would be blamed for that.
func (t *tool) refused(ctx context.Context) error {
	err := t.reach(ctx, svc.WithMaxAttempts(1))
	if err == nil || kindOf(err).code != exitRefused && ctx.Err() == nil {
		return nil
	}
	return err
}

// warnOfAccount warns of endpoints with a lease that this token does not find, before the lease is over. A sweep with the token of
// another account would report them only then.
func (t *tool) warnOfAccount(ctx context.Context, entries []ledger.Entry) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	later := slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool {
		return e.LeaseEnd.IsZero() || e.Overdue(t.address, t.now())
	})
	if hidden := t.hidden(ctx, later); len(hidden) > 0 {
		t.talk.warn("not found, and created with another token: %s. If that is of another account, only a sweep with its token deletes them when their lease is over. Of those that do not exist: %s",
			strings.Join(hidden, ", "), t.cmd("forget KEY --other-token"))
	}
}

// afterSweep reads the ledger after a sweep. An endpoint may be running as long as an entry is
// open, whatever its lease and its address.
func (t *tool) afterSweep(ctx context.Context, v *sweepView, swept error) error {
	ctx, cancel := briefly(ctx)
	defer cancel()
	entries, err := t.client.Ledger.Entries(ctx)
	for _, e := range entries {
		if !e.Open() {
			continue
		}
		if t.elsewhere(e) {
			v.Elsewhere = append(v.Elsewhere, newEntryView(e))
			t.talk.warn("%s is at another address (%s), where this sweep deletes nothing: %s", v.Elsewhere[len(v.Elsewhere)-1].subject(t.now()), e.BaseURL, t.cmdOf(e, "sweep"))
		}
	}
	v.off = t.off()
	t.note(func(f *facts) { f.Running = anyOpen(entries, err) })
	if swept == nil && err != nil {
		return fmt.Errorf("after the sweep: %w", err)
	}
	return swept
}
