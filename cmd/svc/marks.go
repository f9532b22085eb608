package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	if err != nil { // the delete takes effect without the ledger too
		t.unrecorded(id, accepted, err)
	}
	if err != nil || e == nil {
		return
	}
	err = t.journal.Change(ctx, "extend", *e, func(now ledger.Entry) (ledger.Record, error) {
		if now.State != ledger.Created || now.Lease == 1 && time.Since(deleteAccepted(now)) < time.Minute {
			return ledger.Record{}, nil
		}
		if end := counted(now).LeaseEnd; !end.IsZero() && end.Before(date) {
			date = end.Add(-1) // a sweep that goes on with it must not take it for a longer lease
		}
		return ledger.Record{Event: ledger.Extended, Lease: 1, ServiceTime: date.UTC()}, nil
	})
	if err != nil {
		t.unrecorded(id, accepted, err)
		return
	}
	t.noteEndpoint(id, func(e *endpoint) { e.marked = true })
}

// claimSettles is how long after the claim of a sweep no lease keeps the endpoint: a delete is sent by then, or it never is.
const claimSettles = time.Minute

// claimLease is the lease of a claim, which nobody sets.
const claimLease = 2 * time.Nanosecond

// errExtended is returned for an endpoint whose lease was extended after the sweep began.
var errExtended = errors.New("the lease was extended")

// claim records that a sweep is about to send the delete of an endpoint, right before that. So whoever extends the lease
// after it knows that this comes too late. It returns an error, and nothing is sent, if the lease was extended before.
// What lowers the bill does not wait for a ledger that fails.
func (t *tool) claim(ctx context.Context, id string) error {
	if t.sweeping == nil {
		return nil
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	began := ledger.WallClock() // it goes on while the program is suspended
	e, err := t.journal.Owner(ctx, id)
	if err != nil || e == nil {
		return nil
	}
	err = t.journal.Change(ctx, "extend", *e, func(now ledger.Entry) (r ledger.Record, err error) {
		end, begun := t.sweeping[now.Intent]
		switch {
		case now.State != ledger.Created, !deleteAccepted(now).IsZero(), !begun:
		case now.Lease == 0, now.LeaseEnd.After(end):
			return r, errExtended
		case time.Since(claimed(now)) >= claimSettles/4:
			r = ledger.Record{Event: ledger.Extended, Lease: claimLease, ServiceTime: now.LeaseEnd.Add(-claimLease).UTC()} // its end is the same
		}
		return r, nil
	})
	switch late := ledger.WallClock().Sub(began); {
	case late > claimSettles/4:
		return fmt.Errorf("the delete was not sent: this program was suspended for %v", late.Round(time.Second))
	case errors.Is(err, errExtended):
		return err
	}
	return nil
}

func isClaim(r ledger.Record) bool { return r.Event == ledger.Extended && r.Lease == claimLease }

// claimed returns when a sweep was about to send its latest delete of the endpoint of an entry, or zero.
func claimed(e ledger.Entry) (at time.Time) {
	for _, r := range e.Records {
		switch {
		case r.Event == ledger.Created: // perhaps of another endpoint: an adoption was undone
			at = time.Time{}
		case isClaim(r):
			at = r.At
		}
	}
	return at
}

// isClaimed reports whether a sweep is about to delete the endpoint of an entry.
func isClaimed(e ledger.Entry) bool {
	return e.State == ledger.Created && time.Since(claimed(e)) < claimSettles
}

// isMark reports whether a record is one of markDelete.
func isMark(r ledger.Record) bool { return r.Event == ledger.Extended && r.Lease == 1 }

// standing returns the mark of an accepted delete that is in force, or nil if there is none, and the records without the
// marks, the claims of sweeps and the leases that do not count. A mark is in force until a lease is set at least deleteSettles after it.
// A lease that is set before that does not count, whoever sets it.
func standing(records []ledger.Record) (mark *ledger.Record, others []ledger.Record) {
	id := ""
	for i, r := range records {
		switch {
		case isClaim(r):
			continue
		case isMark(r):
			mark = &records[i]
			continue
		case r.Event == ledger.Extended && mark != nil && r.At.Sub(mark.At) < deleteSettles:
			continue
		case r.Event == ledger.Extended, r.Event == ledger.Created && !strings.EqualFold(r.ServiceID, id): // of another endpoint: an adoption was undone
			mark = nil
		}
		if r.Event == ledger.Created {
			id = r.ServiceID
		}
		others = append(others, r)
	}
	return mark, others
}

// deleteAccepted returns when the service has accepted a delete of the endpoint of an entry whose deletion is not
// proved, and zero if the endpoint is not being deleted.
func deleteAccepted(e ledger.Entry) time.Time {
	if mark, _ := standing(e.Records); mark != nil && e.State == ledger.Created {
		return mark.At
	}
	return time.Time{}
}

// unmarked returns an entry without the records of markDelete and claim: it has the lease from before the delete.
func unmarked(e ledger.Entry) ledger.Entry {
	_, records := standing(e.Records)
	return fold(e, records)
}

// counted returns an entry with the end of the lease that counts. A lease is over when the service accepts a delete of
// the endpoint, and at the latest when the endpoint is deleted. Without an endpoint there is none.
func counted(e ledger.Entry) ledger.Entry {
	mark, records := standing(e.Records)
	if mark != nil {
		e = fold(e, append(records, *mark))
	}
	switch {
	case e.Open():
	case e.DeletedAt.IsZero():
		e.LeaseEnd = time.Time{}
	case mark == nil && e.LeaseEnd.After(e.DeletedAt):
		e.LeaseEnd = e.DeletedAt
	}
	return e
}

// fold returns an entry with other records.
func fold(e ledger.Entry, records []ledger.Record) ledger.Entry {
	if entries, _ := ledger.Fold(records); len(entries) == 1 { // the numbers of the records have gaps
		entries[0].Doubt = e.Doubt
		return entries[0]
	}
	return e
}

// hiddenMarks returns, for each entry whose mark is in force and hidden by a later lease, the mark once more.
func hiddenMarks(entries []ledger.Entry) (marks []ledger.Record) {
	for _, e := range entries {
		if mark, _ := standing(e.Records); mark != nil && e.State == ledger.Created && e.Lease != 1 {
			marks = append(marks, *mark)
		}
	}
	return marks
}

// showMarks writes the marks that a later lease hides once more, as they are, since [svc.Ledger.Reap] goes by the latest
// lease. It returns the entries of the ledger after that. The error is only that the ledger does not respond: the sweep itself
// reports any other.
func (t *tool) showMarks(ctx context.Context) ([]ledger.Entry, error) {
	entries, err := t.client.Ledger.Entries(ctx)
	if isA[stalledError](err) {
		return nil, err
	}
	hidden := hiddenMarks(slices.DeleteFunc(slices.Clone(entries), t.elsewhere))
	for _, mark := range hidden {
		_ = t.journal.Change(ctx, "extend", ledger.Entry{Key: mark.Key, Intent: mark.Intent}, func(now ledger.Entry) (r ledger.Record, err error) {
			if again := hiddenMarks([]ledger.Entry{now}); len(again) > 0 {
				r = again[0]
			}
			return r, nil
		})
	}
	if len(hidden) > 0 {
		entries, _ = t.client.Ledger.Entries(ctx)
	}
	return entries, nil
}

// withMarks returns records as they are after showMarks. A dry run writes nothing.
func withMarks(records []ledger.Record) []ledger.Record {
	entries, _ := ledger.Fold(records)
	last := map[string]int64{}
	for _, r := range records {
		last[r.Key] = r.Seq
	}
	for _, mark := range hiddenMarks(entries) {
		last[mark.Key]++
		mark.Seq = last[mark.Key]
		records = append(records, mark)
	}
	slices.SortStableFunc(records, func(a, b ledger.Record) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq)) })
	return records
}
