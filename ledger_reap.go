package svc

import (
	"context"
	"errors"
	"slices"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
	"example.com/svc/internal/rules"
	"example.com/svc/ledger"
)

// ReapOptions controls [Ledger.Reap]. If nil, the zero value is used.
type ReapOptions struct {
	DryRun bool // if true, Reap checks everything and deletes nothing
}

// Reaped is the result of [Ledger.Reap] for one overdue entry.
type Reaped struct {
	Entry ledger.Entry // the entry as it was before Reap
	// Err is why the endpoint is not known to be deleted. It is nil if the endpoint is deleted,
	// or with DryRun if it would be.
	Err error
}

// Reap deletes the endpoints whose lease has ended. Nothing else enforces a lease: run Reap
// regularly, in any process that shares the store.
//
// Reap considers the open entries of this client's base URL whose lease has ended by the service's
// clock, which it reads from the Date header of a response. It first sends a delete for each of them,
// eight at a time, and then waits until they are deleted, for up to two minutes each. The record of
// the endpoint must have the name of the entry, and must not carry the mark of another entry. An
// adopted endpoint must carry the mark of its entry. If the state of an entry is Intended or Unknown,
// its Err is [ErrOutcomeUnknown]: use Adopt or Forget. If the response to the create, or to the read
// by Reap, has no Date header, the endpoint is not deleted, and Err is set. Reap also returns the
// open entries that have a Doubt.
//
// The error joins the Err of all entries, the error of reading the ledger, and, if leases could not
// be checked, why the service's time is not known. An entry whose lease turns out not to have ended,
// such as in the second in which it ends, is left for the next Reap.
//
// GET /v1/inference-service/flavor, GET and perhaps DELETE /v1/inference-service/{service_id}
func (l *Ledger) Reap(ctx context.Context, opts *ReapOptions) ([]Reaped, error) {
	entries, _, err := l.read(ctx, "")
	var all []*reaping
	entries, untimed := l.overdue(ctx, entries)
	for _, e := range entries {
		all = append(all, &reaping{ledger: l, entry: e, dryRun: orZero(opts).DryRun, failures: rules.Failures{Task: rules.Reaping}})
	}
	atOnce(ctx, all, (*reaping).begin)
	atOnce(ctx, all, (*reaping).finish)
	all = slices.DeleteFunc(all, func(r *reaping) bool { return r.entry.Doubt == "" && errors.Is(r.err, ledger.ErrEarly) })
	errs := []error{err, l.fail("reap", ledger.Entry{}, untimed)}
	var reaped []Reaped
	for _, r := range all {
		reaped = append(reaped, Reaped{r.entry, r.err})
		errs = append(errs, r.err)
		if e := r.entry; r.err != nil {
			l.client.warn(ctx, "svc: an entry of the ledger could not be settled", r.err, "key", e.Key, "intent", e.Intent, "name", e.Name, "id", e.ServiceID)
		}
	}
	return reaped, errors.Join(errs...)
}

// overdue returns the entries for Reap. It requests the service's time only if an open entry has a
// lease. If the service's time or the start of a lease is not known, the local clock decides what is
// reported, but not what is deleted: see [ledger.Entry.MayReap]. The error is why some leases could
// not be checked.
func (l *Ledger) overdue(ctx context.Context, entries []ledger.Entry) (due []ledger.Entry, unjudged error) {
	base, local := l.client.base.String(), ledger.WallClock()
	entries = slices.DeleteFunc(entries, func(e ledger.Entry) bool { return !e.Open() || e.BaseURL != base })
	clock, err := func() time.Time { return local }, error(nil)
	if slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Lease > 0 }) {
		clock, err = l.clock(ctx)
	}
	for _, e := range entries {
		now := clock()
		if now.IsZero() || e.ServiceTime.IsZero() && local.After(now) {
			now = local
		}
		if e.Doubt != "" || e.Overdue(base, now) {
			due = append(due, e)
		} else if e.Lease > 0 { // what is due is read, and that response has a Date too
			unjudged = err
		}
	}
	return due, unjudged
}

// atOnce calls f for all reapings, at most eight at a time. Each call has the time of reapLimit. If a call panics, atOnce
// panics after all calls.
func atOnce(ctx context.Context, all []*reaping, f func(*reaping, context.Context)) {
	slots := make(chan struct{}, 8)
	calls := make(chan func() (*reaping, error), len(all))
	for _, r := range all {
		slots <- struct{}{}
		cause.Start(func() (*reaping, error) {
			limited, cancel := context.WithTimeout(ctx, reapLimit)
			defer func() { cancel(); <-slots }()
			f(r, limited)
			return r, nil
		}, calls)
	}
	for range all {
		outcome := <-calls
		defer func() { _, _ = outcome() }()
	}
}

// A reaping deletes the endpoint of one entry.
type reaping struct {
	ledger *Ledger
	entry  ledger.Entry
	dryRun bool
	wait   *waiter[InferenceService] // waits for the deletion; nil if there is nothing to wait for, or after an error
	err    error                     // why the endpoint is not known to be deleted

	failures rules.Failures // failures of the reads before the first delete
}

const reapLimit = 2 * time.Minute // how long the delete of one endpoint, and the wait for it, may take

// begin sends the first delete, if the endpoint may be deleted.
func (r *reaping) begin(ctx context.Context) {
	if r.err = r.check(ctx); r.wait != nil {
		_, _, _ = r.wait.poll(ctx) // finish handles an error
		r.ledger.deleted(ctx, r.wait.by)
	}
}

// check decides whether the endpoint may be deleted.
func (r *reaping) check(ctx context.Context) error {
	l, e := r.ledger, r.entry
	switch {
	case e.Doubt != "" && !e.Overdue(l.client.base.String(), ledger.WallClock()):
		return r.fail(errors.New(e.Doubt))
	case e.State != ledger.Created:
		return r.fail(ErrOutcomeUnknown)
	}
	removal, w := l.client.InferenceServices.removal(e.ServiceID, new(WaitOptions).withDefaults(), rules.Reaping)
	removal.name, removal.limit = e.Name, cleanupLimit/3
	k := get(service, e.ServiceID, []RequestOption{urgent})
	s, err := do[InferenceService](ctx, l.client, k)
	if notFound(err) || err == nil && s.IsDeleted {
		w.poll, s, err = removal.read, nil, nil // the wait decides whether the endpoint is certainly deleted
	}
	if err != nil {
		return err
	}
	now, err := r.due(ctx)
	switch {
	case err != nil, now.State == ledger.Deleted:
		return err
	case s != nil:
		err = now.MayReap(dateOf(k.Result.Header), seen(s))
	}
	if err == nil && !r.dryRun {
		r.wait = w
	}
	return r.fail(err)
}

func (r *reaping) fail(err error) error { return r.ledger.fail("reap", r.entry, err) }

// due reads the entry again, since it may have changed after Reap began. The error is permanent if the
// endpoint must no longer be deleted.
func (r *reaping) due(ctx context.Context) (ledger.Entry, error) {
	now, _, err := r.ledger.journal.Entry(ctx, "reap", r.entry)
	switch {
	case err != nil, now.State == ledger.Deleted:
	case now.Lease == 0, now.LeaseEnd.After(r.entry.LeaseEnd), now.ServiceID != r.entry.ServiceID:
		err = r.fail(Permanent(errors.New("the lease was extended, or the entry has another endpoint now")))
	}
	return now, err
}

// finish waits until the endpoint is deleted. If begin could not read the endpoint because of a
// temporary failure, finish tries again. If another process records the deletion, that is sufficient.
// As long as the service has accepted no delete, an extension of the lease ends the wait.
func (r *reaping) finish(ctx context.Context) {
	for r.err != nil && !cause.Has[*ledger.Error](r.err) && r.ledger.client.continues(&r.failures, r.err) {
		if poll.Sleep(ctx, 2*time.Second) != nil {
			return
		}
		r.err = r.check(ctx)
	}
	if r.wait == nil {
		return
	}
	next := r.wait.poll
	r.wait.poll = func(ctx context.Context) (*InferenceService, rules.Verdict, error) {
		switch now, err := r.due(ctx); {
		case now.State == ledger.Deleted:
			return nil, rules.Deleted, nil
		case cause.Has[*permanentError](err) && !r.wait.by.evidence.Accepted():
			return nil, rules.Unproven, err
		}
		return next(ctx)
	}
	_, r.err = r.wait.run(ctx, isDeleted)
}
