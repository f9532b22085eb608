package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// withoutLease reports whether the endpoint of the key exists and has no lease.
func (d *deployment) withoutLease() bool {
	return d.earlier != nil && d.earlier.State == ledger.Created && d.earlier.LeaseEnd.IsZero() && deleteAccepted(*d.earlier).IsZero()
}

// giveLease gives the endpoint of the key, if it has no lease, the one of --lease, counted from now. Deploy would
// count it from the create, so that it could be over at once. An endpoint that takes its place gets its lease from
// Deploy. It returns an error if the lease cannot be set: whoever asks for one relies on it.
func (d *deployment) giveLease(ctx context.Context) error {
	if !d.withoutLease() || d.spec.lease == 0 || d.keyFits() != nil {
		return nil
	}
	t, e, lease := d.tool, *d.earlier, (*days)(&d.spec.lease)
	d.leaseTold = e.Intent
	if err := t.client.Ledger.Extend(ctx, e, time.Now().Add(d.spec.lease)); err != nil {
		return fmt.Errorf("the lease of %s could not be set: %w", printable(e.ServiceID), err)
	}
	t.talk.say("the endpoint of the key %s had no lease: it ends in %v now", e.Key, lease)
	return nil
}

// tellLease says when the lease of an endpoint that exists ends, if that is not what --lease asks for. dry is true for
// a dry run, before Deploy could lengthen the lease.
func (d *deployment) tellLease(e ledger.Entry, dry bool) {
	t, id, lease, verb := d.tool, printable(e.ServiceID), (*days)(&d.spec.lease), "still ends"
	if end := e.ServiceTime.Add(d.spec.lease); dry && e.Lease > 1 && d.spec.lease > 0 && end.After(e.LeaseEnd) {
		e.LeaseEnd, verb = end, "would then end"
	} else if d.earlier == nil || d.earlier.Intent != e.Intent || !d.earlier.LeaseEnd.Equal(e.LeaseEnd) {
		verb = "now ends"
	}
	switch left := e.LeaseEnd.Sub(t.now()); {
	case d.leaseTold == e.Intent, !deleteAccepted(e).IsZero(): // it is said
	case dry && e.LeaseEnd.IsZero() && d.spec.lease > 0:
		t.talk.say("it has no lease: the command would set one that ends in %v", lease)
	case e.LeaseEnd.IsZero():
	case left < 0 && e.Adopted: // its record tells whether a sweep deletes it: see lookAgain
	case left < 0:
		t.warnOfOver(e)
	case d.spec.lease > 0:
		why := ""
		if e.LeaseEnd.After(e.ServiceTime.Add(d.spec.lease)) {
			why = ", and does not shorten a lease"
		}
		t.talk.say("the lease of %s %s in %s: --lease counts from the create of the endpoint%s. To set another end: %s",
			id, verb, short(left), why, t.cmd("extend %s %v", e.Key, lease))
	case d.spec.flags.Changed("lease"):
		t.talk.say("the lease of %s still ends in %s: --lease 0 does not end it. To end it: %s", id, short(left), t.cmd("extend %s 0", e.Key))
	}
}

// warnOfOver warns, once, if the lease of an entry is over.
func (t *tool) warnOfOver(e ledger.Entry) {
	over := t.now().Sub(e.LeaseEnd)
	if e.State != ledger.Created || e.LeaseEnd.IsZero() || over <= 0 || !deleteAccepted(e).IsZero() || !t.first("lease "+e.Intent) {
		return
	}
	if s := t.facts().Seen; e.Adopted && s != nil && isUnmarked(s) {
		return // no sweep deletes it
	}
	t.talk.warn("the lease of %s is over since %s: the next \"svc sweep\" deletes it. To keep it: %s", printable(e.ServiceID), short(over), t.cmd("extend %s 8h", e.Key))
}

// isUnmarked reports whether the description of an endpoint has no mark of a ledger.
func isUnmarked(s *svc.InferenceService) bool {
	mark, _ := ledger.FindMark(s.Description)
	return mark == ""
}

// tellNewLease warns if the lease of the endpoint that this command has created is not the one that was asked for, or
// if it has none although the endpoint in whose place it is had one.
func (d *deployment) tellNewLease(ctx context.Context, id string) {
	t, lease := d.tool, (*days)(&d.spec.lease)
	if d.spec.lease == 0 {
		if d.losesLease() {
			t.talk.warn("%s had a lease, which has ended with it, and %s has none: a new endpoint gets one from --lease only. To set one: %s",
				printable(d.before.ServiceID), printable(id), t.cmd("extend %s 8h", d.before.Key))
		}
		return
	}
	switch e := t.entryNow(ctx); {
	case e.State != ledger.Created: // the ledger has failed, which is said
	case e.Lease == 0:
		t.talk.warn("%s has no lease yet. To set it: %s", printable(id), t.cmd("extend %s %v", e.Key, lease))
	case e.ServiceTime.IsZero():
		t.talk.warn("the lease of %s cannot be enforced, since the response to the create had no Date. To set one that can: %s", printable(id), t.cmd("extend %s %v", e.Key, lease))
	}
}

// losesLease reports whether a new endpoint has no lease although the one in whose place it is had one.
func (d *deployment) losesLease() bool {
	return d.spec.lease == 0 && d.before != nil && d.before.ServiceID != "" && d.before.Lease > 0
}

// withoutItsLease says that in a dry run.
func (d *deployment) withoutItsLease() string {
	if d.losesLease() {
		return ", which would have no lease without --lease"
	}
	return ""
}

// noSweep says that no sweep deletes an endpoint that was adopted without the mark.
const noSweep = "%s was adopted without the mark, so no sweep deletes it, whatever its lease. To delete it: %s"

// warnOfNoSweep warns if the endpoint of an entry is one that no sweep deletes, as far as the service shows that.
func (t *tool) warnOfNoSweep(ctx context.Context, e ledger.Entry) {
	if !e.Adopted {
		return
	}
	s, err := t.client.InferenceServices.Get(ctx, e.ServiceID, svc.WithMaxAttempts(1))
	if err != nil {
		return
	}
	if isUnmarked(s) {
		t.talk.warn(noSweep, printable(e.ServiceID), t.cmd("delete %s", printable(e.ServiceID)))
	}
}

// tellLease says when the lease of an endpoint that was adopted ends: it is that of the create.
func (t *tool) tellLease(e ledger.Entry, s *svc.InferenceService) {
	switch left := e.LeaseEnd.Sub(t.now()); {
	case isUnmarked(s):
		t.talk.warn(noSweep, printable(e.ServiceID), t.cmd("delete %s", printable(e.ServiceID)))
	case e.LeaseEnd.IsZero(), !deleteAccepted(e).IsZero():
	case left < 0:
		t.warnOfOver(e)
	default:
		t.talk.say("the lease of %s ends in %s", printable(e.ServiceID), short(left))
	}
}

// deletedByOther is the error of a command whose endpoint was deleted meanwhile, by another command. why is what the ledger
// knows about that.
type deletedByOther struct {
	error
	why string
}

func (e deletedByOther) Unwrap() error { return e.error }

// whyDeleted adds to the error of a command what the ledger knows about the deletion of its endpoint, if another command
// has deleted it.
func (t *tool) whyDeleted(ctx context.Context, err error) error {
	f := t.facts()
	if err == nil || t.client == nil || f.ID == "" || t.endpoint(f.ID).accepted || len(f.Hidden) > 0 || !f.Deleted && !isNotFound(err) || isA[deletedError](err) {
		return err
	}
	e := unmarked(t.byID(t.entriesBriefly(context.WithoutCancel(ctx)))[strings.ToLower(f.ID)])
	if e.State == ledger.Deleted && isNotFound(err) { // proved by another command, and the service does not find it
		t.note(func(f *facts) { f.Running, f.Deleted = false, true })
	}
	switch {
	case leaseEnded(e, cmp.Or(e.DeletedAt, time.Now()).Add(-t.off())):
		return deletedByOther{err, "its lease was over at " + clock(e.LeaseEnd.Add(t.off())) + ", and \"svc sweep\" deletes such endpoints"}
	case e.State == ledger.Deleted && t.endpoint(e.ServiceID).proved.IsZero():
		return deletedByOther{err, "the ledger has its deletion, by another command, of " + clock(e.DeletedAt)}
	}
	return err
}

// warnOfLoss warns if CMD of "svc run" may have lost the endpoint while it ran.
func (t *tool) warnOfLoss(ctx context.Context) {
	now := t.entryNow(ctx)
	id, lease := printable(now.ServiceID), unmarked(now)
	switch {
	case leaseEnded(lease, cmp.Or(now.DeletedAt, time.Now()).Add(-t.off())):
		t.note(func(f *facts) { f.LeaseOver = true })
		t.talk.warn("the lease of %s was over at %s, while CMD ran, and \"svc sweep\" deletes such endpoints: CMD may have lost it", id, clock(lease.LeaseEnd.Add(t.off())))
	case now.State == ledger.Deleted, !deleteAccepted(now).IsZero():
		t.talk.warn("another command has deleted %s while CMD ran, or has begun to: CMD may have lost it", id)
	}
}
