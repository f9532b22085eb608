package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// tellMarked says of the endpoints whose delete was accepted, and that are open in the ledger, that a sweep goes on.
func (t *tool) tellMarked(ctx context.Context, ids ...string) {
	if len(ids) == 0 {
		return
	}
	for _, e := range t.entriesBriefly(context.WithoutCancel(ctx)) {
		if slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, e.ServiceID) }) && !t.elsewhere(e) && !deleteAccepted(e).IsZero() {
			t.talk.say("the service has accepted the delete of %s: its lease is over now, so that \"svc sweep\" goes on", printable(e.ServiceID))
		}
	}
}

// claimedText says since when an endpoint is claimed.
func claimedText(e ledger.Entry) string {
	return fmt.Sprintf("a sweep has begun to delete %s, %s ago, since its lease was over", printable(e.ServiceID), short(time.Since(claimed(e))))
}

// deletingText says since when an endpoint is being deleted.
func deletingText(e ledger.Entry) string {
	return fmt.Sprintf("the service has accepted a delete of %s, %s ago, and its deletion is not proved", printable(e.ServiceID), short(time.Since(deleteAccepted(e))))
}

// warnOfDelete warns, once, if the endpoint of an entry is being deleted. What keeps it is a lease that is set after deleteSettles,
// and nothing else.
func (t *tool) warnOfDelete(e ledger.Entry) {
	at, when := deleteAccepted(e), ""
	switch {
	case at.IsZero() && !isClaimed(e) || !t.first("deleting "+e.Intent):
		return
	case at.IsZero():
		t.talk.warn("%s: it may be deleted at any time", claimedText(e))
		return
	}
	if until := at.Add(deleteSettles); time.Now().Before(until) {
		when = ", if it still runs at " + clock(until)
	}
	t.talk.warn("%s: it may be deleted at any time. To keep it%s: %s", deletingText(e), when, t.cmd("extend %s 8h", e.Key))
}

// deletingError is returned for an endpoint that is being deleted, by a command that is of use only if it is kept.
type deletingError struct{ text string }

func (e deletingError) Error() string { return e.text }

// mayKeep returns an error if the service has accepted a delete of an endpoint in the last minutes.
func (t *tool) mayKeep(e ledger.Entry) error {
	at := deleteAccepted(e)
	if until := at.Add(deleteSettles); !at.IsZero() && time.Now().Before(until) {
		return deletingError{fmt.Sprintf("%s: neither a lease nor instances keep it. If it still runs at %s, this command works then. Only a lease keeps it: %s", deletingText(e), clock(until), t.cmd("extend %s 8h", e.Key))}
	}
	if isClaimed(e) {
		return deletingError{fmt.Sprintf("%s: neither a lease nor instances keep it. If it still runs at %s, this command works then", claimedText(e), clock(claimed(e).Add(claimSettles)))}
	}
	return nil
}

// entryNow returns the entry of the endpoint of the command as it is now, or zero if it is not known.
func (t *tool) entryNow(ctx context.Context) (found ledger.Entry) {
	f := t.facts()
	key := cmp.Or(f.Entry, f.Key)
	if t.journal == nil || key == "" {
		return found
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	entries, _, _ := t.journal.Read(ctx, key) // the open ones first
	for _, e := range slices.Backward(entries) {
		if strings.EqualFold(e.ServiceID, f.ID) && !t.elsewhere(e) {
			found = e
		}
	}
	return found
}

// lookAgain reads the entry of the endpoint once more at the end of a command that has succeeded. Another command may have
// deleted the endpoint meanwhile, or its lease may have ended.
func (t *tool) lookAgain(ctx context.Context, s success) error {
	f := t.facts()
	if s == silent || f.ID == "" {
		return nil
	}
	e := t.latest(ctx)
	switch {
	case !f.Running:
		return nil
	case s == isThere:
		t.warnOfDelete(e)
		return nil
	}
	return t.keeps(e)
}

// latest returns what entryNow does, and notes for the document whether the service has accepted a delete.
func (t *tool) latest(ctx context.Context) ledger.Entry {
	e := t.entryNow(ctx)
	if e.ServiceID != "" {
		t.note(func(f *facts) { f.DeleteFrom = deleteAccepted(e) })
	}
	return e
}

// keeps returns an error if the endpoint of an entry is deleted, or is being deleted, and warns if its lease is over.
func (t *tool) keeps(e ledger.Entry) error {
	if e.State == ledger.Deleted {
		return fmt.Errorf("%s: %w", printable(e.ServiceID), svc.ErrNotFound)
	}
	err := t.mayKeep(e)
	if err == nil {
		t.warnOfOver(e)
	}
	return err
}

// lose returns an error if another command has deleted the endpoint of a deployment that has succeeded, or is deleting it.
func (d *deployment) lose(e ledger.Entry) error {
	if d.lost = d.tool.keeps(e); isA[deletingError](d.lost) {
		d.tool.note(func(f *facts) { f.Deleting = true })
		d.lost = soonDeleted(e)
	}
	return d.lost
}

// soonDeleted returns the error for an endpoint that is being deleted, by a command that creates another one next time.
func soonDeleted(e ledger.Entry) error {
	text := claimedText(e)
	if !deleteAccepted(e).IsZero() {
		text = deletingText(e)
	}
	return deletingError{text + ": it may be deleted at any time"}
}

// condemned reports whether the endpoint of an earlier command, with which Deploy has gone on, is deleted or is being deleted by
// another command. e is its entry. Then it prepares another Deploy.
func (d *deployment) condemned(ctx context.Context, e ledger.Entry) bool {
	t := d.tool
	f := t.facts()
	deleted := e.State == ledger.Deleted
	if !f.Resumed || f.Deleted || d.failed != nil || ctx.Err() != nil || !deleted && deleteAccepted(e).IsZero() && !isClaimed(e) {
		return false
	}
	d.earlier, d.before, d.goesOnWith, d.checking, d.instancesTold, d.opts.Lease = &e, new(unmarked(e)), nil, false, false, d.spec.lease
	t.note(func(f *facts) { f.Resumed, f.Seen = false, nil })
	if deleted {
		d.earlier = nil
		t.note(func(f *facts) { f.ID, f.Running = "", false })
	}
	return true
}

// awaitClaim waits until it is known whether a sweep deletes the endpoint of the key, if one has begun to.
func (d *deployment) awaitClaim(ctx context.Context) error {
	t := d.tool
	for d.earlier != nil && isClaimed(*d.earlier) && deleteAccepted(*d.earlier).IsZero() {
		if e := *d.earlier; t.first("claimed " + e.Intent) {
			t.talk.say("%s: waiting until it is known whether that takes effect, until %s at the latest", claimedText(e), clock(claimed(e).Add(claimSettles)))
		}
		t.note(func(f *facts) { f.Deleting = true })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		t.note(func(f *facts) { f.ID = "" })
		if err := d.readKey(ctx); err != nil {
			return err
		}
		t.note(func(f *facts) { f.Deleting = false })
	}
	return nil
}

// awaitDeletion waits until the endpoint of the key is deleted, if the service has accepted a delete of it: then
// another one is created.
func (d *deployment) awaitDeletion(ctx context.Context) error {
	t := d.tool
	if err := d.awaitClaim(ctx); err != nil {
		return err
	}
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
