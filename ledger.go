package svc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/svc/internal/rules"
	"example.com/svc/ledger"
)

// WithLedger makes the client record each create in store before it is sent, and its outcome
// afterwards: see [Ledger]. The client also adds the mark " [svc:INTENT]" to the description
// of each new endpoint, unless [WithoutLedgerMark] is set. All programs that use one account
// should share one store. Nil, the default: no ledger.
func WithLedger(store ledger.Store) Option {
	return func(c *config) error { c.ledger = store; return nil }
}

// WithoutLedgerMark leaves the description of a new endpoint as it is. By default, a client
// with a ledger adds the mark " [svc:INTENT]" to it, where INTENT is the Intent of the
// entry. [Ledger.Adopt] and [Ledger.Reap] recognize the endpoint by its mark.
func WithoutLedgerMark() Option {
	return func(c *config) error { c.unmarked = true; return nil }
}

// Ledger shows which endpoints may be running, from the records of [WithLedger].
// You get it from [Client.Ledger]. Without WithLedger every method returns [ErrNoLedger].
//
// The service has no call that lists endpoints. The client therefore records a create
// before it sends the request, and the outcome after it. If the first record cannot be
// written, nothing is sent. An entry can be in doubt, for example because its process was
// killed: see [ledger.Entry.InDoubt]. To settle it, look for its mark or its name in the
// service's console. Then call Adopt with the ID that you found, or Forget if you found
// none. Adopt an endpoint before you delete it.
//
// Each method reads its entry again, by Key and Intent, before it changes anything.
// Calls of [Client.Do] are not recorded.
type Ledger struct {
	client  *Client
	journal *ledger.Journal // nil: the client has no ledger
	marks   bool            // add the mark to the description of a new endpoint
	log     *slog.Logger
}

// Entries returns all entries: first the open entries from old to new, then the other entries
// from old to new. With an error it returns the entries that it could read.
func (l *Ledger) Entries(ctx context.Context) ([]ledger.Entry, error) {
	entries, _, err := l.read(ctx, "")
	return entries, err
}

// seen returns what the rules of the ledger need of a record.
func seen(s *InferenceService) ledger.Endpoint {
	return ledger.Endpoint{Name: s.Name, Description: s.Description, Deleted: s.IsDeleted}
}

// AdoptOptions sets up [Ledger.Adopt]. Nil stands for the zero value.
type AdoptOptions struct {
	// Unmarked accepts an endpoint whose description holds no mark, for example because of
	// WithoutLedgerMark. False: Adopt of such an endpoint returns [ErrLedgerMark]. An endpoint
	// with the mark of another entry is never accepted.
	Unmarked bool
}

// Adopt records id as the ID of the endpoint of an entry that is in doubt or forgotten. The
// endpoint must exist, have the name of the entry and carry its mark. No other entry may have
// this ID. If the endpoint carries the mark, the entry may also be intended and not yet in
// doubt, since the mark proves that its create made the endpoint. Adopt returns the record of
// the endpoint.
//
// GET /v1/inference-service/{service_id}
func (l *Ledger) Adopt(ctx context.Context, e ledger.Entry, id string, opts *AdoptOptions) (*InferenceService, error) {
	const op = "adopt"
	entries, _, err := l.read(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, other := range entries {
		if id != "" && other.ServiceID == id && other.Intent != e.Intent {
			return nil, l.fail(op, e, fmt.Errorf("an entry under the key %s has the ID %s already; an ID can be in one entry only", other.Key, id))
		}
	}
	s, response, err := l.client.InferenceServices.read(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	err = l.journal.Change(ctx, op, e, func(now ledger.Entry) (ledger.Record, error) {
		r := ledger.Record{Event: ledger.Created, ServiceID: id, Adopted: true, TokenCheck: response.TokenCheck(e.Intent)}
		return r, now.MayAdopt(l.client.base.String(), seen(s), opts != nil && opts.Unmarked, ledger.WallClock())
	})
	if err != nil {
		return nil, err
	}
	return s, l.journal.Change(ctx, op, e, func(now ledger.Entry) (ledger.Record, error) { // the endpoint may have been scaled while the ledger did not have its ID
		r := ledger.Record{Event: ledger.Scaled, Instances: int(s.ResourceMetadata.TargetInstanceNumber)}
		return r.OnlyIf(r.Instances > now.Instances)
	})
}

// Forget records that somebody looked for the endpoint of an entry and that it does not exist.
// If that is wrong, you pay twice: the endpoint is running, and the next Deploy with this key
// creates another endpoint.
//
// The entry must be in doubt, and belong to the base URL of this client. One minute must have passed since its SettleBy, by the local
// clock and by the service's clock. Forget reads the service's clock from the Date header of a
// list of flavors.
//
// GET /v1/inference-service/flavor
func (l *Ledger) Forget(ctx context.Context, e ledger.Entry) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	var response Response
	if _, err := l.client.Flavors.List(ctx, WithResponse(&response)); err != nil {
		return err
	}
	return l.journal.Change(ctx, "forget", e, func(now ledger.Entry) (ledger.Record, error) {
		return ledger.Record{Event: ledger.Forgotten}, now.MayForget(l.client.base.String(), ledger.WallClock(), date(&response))
	})
}

// Extend sets the end of the lease of an open entry, to a later or an earlier time. A zero end
// means that there is no lease: Reap then never deletes the endpoint.
func (l *Ledger) Extend(ctx context.Context, e ledger.Entry, end time.Time) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	return l.journal.Change(ctx, "extend", e, func(now ledger.Entry) (ledger.Record, error) {
		if !now.Open() {
			return ledger.Record{}, fmt.Errorf("the entry is not open: its state is %q", now.State)
		}
		return ledger.Record{Event: ledger.Extended, LeaseEnd: end.Round(0).UTC()}, nil
	})
}

// ReapOptions sets up [Ledger.Reap]. Nil stands for the zero value.
type ReapOptions struct {
	DryRun bool // true: Reap checks everything and deletes nothing
}

// Reaped is what [Ledger.Reap] did with one overdue entry.
type Reaped struct {
	Entry ledger.Entry // the entry as it was before Reap
	// Err says why the endpoint is not known to be deleted. Nil: it is deleted, or with
	// DryRun it would be.
	Err error
}

// Reap deletes the endpoints whose lease has ended. Nothing else enforces a lease: run
// Reap regularly, anywhere that shares the store.
//
// Reap takes the open entries of this client's base URL whose LeaseEnd has passed by the
// local clock, one by one, with two minutes for each. It deletes an endpoint only if LeaseEnd
// has passed by the service's clock as well (the Date header of a Get). The record of the
// endpoint must have the name of the entry, and must not carry the mark of another entry.
// An adopted endpoint must carry the mark of its entry. If the state of an entry is intended
// or unknown, its Err is [ErrOutcomeUnknown]: use Adopt or Forget.
//
// The error joins the Err of all entries and the error of reading the ledger.
//
// GET and perhaps DELETE /v1/inference-service/{service_id}
func (l *Ledger) Reap(ctx context.Context, opts *ReapOptions) ([]Reaped, error) {
	entries, _, err := l.read(ctx, "")
	errs := []error{err}
	var reaped []Reaped
	for _, e := range entries {
		if !e.Overdue(l.client.base.String(), ledger.WallClock()) {
			continue
		}
		err := l.reap(ctx, e, opts != nil && opts.DryRun)
		reaped = append(reaped, Reaped{e, err})
		errs = append(errs, err)
	}
	return reaped, errors.Join(errs...)
}

// reap deletes the endpoint of an overdue entry. It returns nil if the endpoint is deleted. If
// dryRun is true, it deletes nothing, and returns nil if it would delete the endpoint.
func (l *Ledger) reap(ctx context.Context, e ledger.Entry, dryRun bool) error {
	const op = "reap"
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if e.State != ledger.Created {
		return l.fail(op, e, ErrOutcomeUnknown)
	}
	services, o := l.client.InferenceServices, new(WaitOptions).withDefaults()
	removal := &removal{observer: services.observe(e.ServiceID, o), name: e.Name, limit: cleanupLimit / 3, interval: o.MaxInterval}
	remove := removal.poll
	var response Response
	s, err := services.Get(ctx, e.ServiceID, WithResponse(&response))
	if notFound(err) || err == nil && s.IsDeleted {
		remove, s, err = removal.read, nil, nil // the wait below decides whether the endpoint is certainly deleted
	}
	if err != nil {
		return err
	}
	now, _, err := l.journal.Entry(ctx, op, e)
	switch {
	case err != nil || now.State == ledger.Deleted:
		return err
	case !now.Overdue(l.client.base.String(), ledger.WallClock()):
		err = errors.New("the lease was extended")
	case s != nil:
		err = now.MayReap(date(&response), seen(s))
	}
	if err != nil || dryRun {
		return l.fail(op, e, err)
	}
	w := services.untilDeleted(removal.observer, o, remove)
	w.endurance.Task = rules.Reaping
	_, err = w.run(ctx, isDeleted)
	return err
}
