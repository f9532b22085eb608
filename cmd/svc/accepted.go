package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// deleteSettles is how long after an accepted delete the endpoint counts as one that is being deleted, whatever its lease.
const deleteSettles = 5 * time.Minute

// markDelete records in the ledger that the service has accepted a delete of an endpoint, before anything else is
// done: the lease of its entry is over then. So a program that is killed loses nothing, and the next sweep goes on.
func (t *tool) markDelete(ctx context.Context, id string, date time.Time) {
	if t.journal == nil {
		return
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	e, err := t.journal.Owner(ctx, id)
	if err != nil || e == nil {
		return // the delete takes effect without the ledger too
	}
	err = t.journal.Change(ctx, "extend", *e, func(now ledger.Entry) (ledger.Record, error) {
		if now.State != ledger.Created || time.Since(deleteAccepted(now)) < time.Minute {
			return ledger.Record{}, nil
		}
		if end := now.LeaseEnd.Add(-1); !now.LeaseEnd.IsZero() && end.Before(date) {
			date = end // a sweep that goes on with it must not take it for a longer lease
		}
		return ledger.Record{Event: ledger.Extended, Lease: 1, ServiceTime: date.UTC()}, nil
	})
	if err == nil {
		t.note(func(*facts) { t.marked[id] = true })
	}
}

// isMark reports whether a record is one of markDelete.
func isMark(r ledger.Record) bool { return r.Event == ledger.Extended && r.Lease == 1 }

// deleteAccepted returns when the service has accepted a delete of the endpoint of an entry whose deletion is not
// proved, and zero if the endpoint is not being deleted. A later lease counts only after deleteSettles.
func deleteAccepted(e ledger.Entry) (at time.Time) {
	if e.State != ledger.Created {
		return at
	}
	for _, r := range e.Records {
		switch {
		case r.Event == ledger.Created: // perhaps of another endpoint: an adoption was undone
			at = time.Time{}
		case isMark(r):
			at = r.At
		}
	}
	if e.Lease != 1 && time.Since(at) >= deleteSettles {
		return time.Time{}
	}
	return at
}

// unmarked returns an entry without the records of markDelete: it has the lease from before the delete.
func unmarked(e ledger.Entry) ledger.Entry {
	kept := slices.DeleteFunc(slices.Clone(e.Records), isMark)
	if entries, _ := ledger.Fold(kept); len(kept) < len(e.Records) && len(entries) == 1 { // the numbers of the records have gaps
		return entries[0]
	}
	return e
}

// dates is a transport that keeps the Date of the latest response to a delete, and how far the clock of this machine is
// ahead of the service's.
type dates struct {
	next http.RoundTripper
	tool *tool
}

// RoundTrip implements [http.RoundTripper].
func (d dates) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	date, undated := http.ParseTime(resp.Header.Get("Date"))
	if r.Method == http.MethodDelete {
		d.tool.deletedAt.Store(&date) // zero: the lease counts from the create, and is over too
	}
	if undated == nil && resp.Header.Get("Age") == "" { // else a cache has sent it
		d.tool.ahead.Store(int64(time.Since(date)))
	}
	return resp, nil
}

// now returns the time by the service's clock, by which leases end, if that of this machine is wrong by more than a minute.
// Before the first response it returns the time of this machine.
func (t *tool) now() time.Time { return time.Now().Add(-t.off()) }

// off returns how far the clock of this machine is ahead of the service's, or 0 for a minute or less.
func (t *tool) off() time.Duration {
	if off := time.Duration(t.ahead.Load()); off.Abs() > time.Minute {
		return off
	}
	return 0
}

// tellMarked says of the endpoints whose delete was accepted, and that are open in the ledger, that a sweep goes on.
func (t *tool) tellMarked(ctx context.Context, ids ...string) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	entries, _ := t.client.Ledger.Entries(ctx)
	for _, e := range entries {
		if slices.Contains(ids, e.ServiceID) && !t.elsewhere(e) && !deleteAccepted(e).IsZero() {
			t.talk.say("the service has accepted the delete of %s: its lease is over now, so that \"svc sweep\" goes on", printable(e.ServiceID))
		}
	}
}

// markedIDs returns the IDs of the endpoints that markDelete has marked.
func (t *tool) markedIDs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.marked))
}

// deletingText says since when an endpoint is being deleted.
func deletingText(e ledger.Entry) string {
	return fmt.Sprintf("the service has accepted a delete of %s, %s ago, and its deletion is not proved", printable(e.ServiceID), short(time.Since(deleteAccepted(e))))
}

// warnOfDelete warns if the endpoint of an entry is being deleted.
func (t *tool) warnOfDelete(e ledger.Entry) {
	if !deleteAccepted(e).IsZero() {
		t.talk.warn("%s: it may be deleted at any time", deletingText(e))
	}
}

// deletingError is returned for an endpoint that is being deleted, by a command that is of use only if it is kept.
type deletingError struct{ text string }

func (e deletingError) Error() string { return e.text }

// mayKeep returns an error if the service has accepted a delete of an endpoint in the last minutes. After
// that, it warns.
func (t *tool) mayKeep(e ledger.Entry) error {
	at := deleteAccepted(e)
	if until := at.Add(deleteSettles); !at.IsZero() && time.Now().Before(until) {
		return deletingError{fmt.Sprintf("%s: neither a lease nor instances keep it. If it still runs at %s, this command works then", deletingText(e), clock(until))}
	}
	t.warnOfDelete(e)
	return nil
}

// awaitDeletion waits until the endpoint of the key is deleted, if the service has accepted a delete of it: then
// another one is created.
func (d *deployment) awaitDeletion(ctx context.Context) error {
	t := d.tool
	if d.earlier == nil || deleteAccepted(*d.earlier).IsZero() {
		return nil
	}
	e := *d.earlier
	t.note(func(f *facts) { f.Deleting = true })
	t.talk.say("%s: waiting until it is deleted, to create another one", deletingText(e))
	t.talk.setDeleting(true)
	defer t.talk.setDeleting(false)
	err := t.untilDeleted(ctx, e, t.client.InferenceServices.WaitUntilDeleted)
	if err != nil && !isNotFound(err) { // if it is not found, Deploy finds out whether it is deleted
		return err
	}
	if err == nil {
		d.earlier = nil
		t.note(func(f *facts) { f.ID, f.Running = "", false })
	}
	t.note(func(f *facts) { f.Deleting = false })
	return nil
}

// A deletionWait waits until an endpoint is deleted.
type deletionWait func(ctx context.Context, id string, opts *svc.WaitOptions) error
