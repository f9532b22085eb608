package svc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"example.com/svc/internal/poll"
	"example.com/svc/internal/rules"
	"example.com/svc/ledger"
)

// WithLedger makes the client record each create in store before it is sent, and its outcome
// afterwards: see [Ledger]. The client also puts the mark "[svc:INTENT] " before the description
// of each new endpoint, unless [WithoutLedgerMark] is set. All programs that use one account
// should share one store. A nil store is an error. Without this option there is no ledger.
func WithLedger(store ledger.Store) Option {
	return func(c *config) error {
		if c.ledger = store; store == nil {
			return errors.New("svc: WithLedger: the store is nil; omit the option for a client without a ledger")
		}
		return nil
	}
}

// WithoutLedgerMark leaves the description of a new endpoint as it is. By default, a client
// with a ledger puts the mark "[svc:INTENT] " before it, where INTENT is the Intent of the
// entry. [Ledger.Adopt] and [Ledger.Reap] recognize the endpoint by its mark.
func WithoutLedgerMark() Option {
	return func(c *config) error { c.unmarked = true; return nil }
}

// Ledger shows which endpoints may be running, from the records of [WithLedger]. Use it
// through [Client.Ledger]. Without WithLedger every method returns [ErrNoLedger].
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
	journal *ledger.Journal            // if nil, the client has no ledger
	marks   bool                       // add the mark to the description of a new endpoint
	latest  atomic.Pointer[dateSample] // the latest Date of the service; nil if there is none yet
}

// Entries returns all entries: first the open entries from old to new, then the other entries
// from old to new. With an error it returns the entries that it could read. If the times of an
// entry are in the future, its Doubt is set.
func (l *Ledger) Entries(ctx context.Context) ([]ledger.Entry, error) {
	entries, _, err := l.read(ctx, "")
	return entries, err
}

// Entry returns the open entry of a key: its endpoint may be running. Without an open entry it
// returns nil. If the key has several open entries, the error is [ErrKeyInUse].
func (l *Ledger) Entry(ctx context.Context, key string) (*ledger.Entry, error) {
	entries, _, err := l.read(ctx, key)
	entries = slices.DeleteFunc(entries, func(e ledger.Entry) bool { return !e.Open() })
	switch n := len(entries); {
	case err != nil, n == 0:
		return nil, err
	case n > 1:
		return nil, l.fail("read", entries[0], fmt.Errorf("%w: %d open entries", ErrKeyInUse, n))
	}
	return &entries[0], nil
}

// seen converts a record for the rules of the ledger.
func seen(s *InferenceService) ledger.Endpoint {
	return ledger.Endpoint{
		ID: s.ServiceID, Name: s.Name, Description: s.Description, Instances: int(s.ResourceMetadata.TargetInstanceNumber),
		Deleted: s.IsDeleted, CreatedAt: s.CreatedAt.Time,
	}
}

// AdoptOptions controls [Ledger.Adopt]. If nil, the zero value is used.
type AdoptOptions struct {
	// Unmarked accepts an endpoint whose description holds no mark, for example because of
	// WithoutLedgerMark. If false, Adopt of such an endpoint returns [ErrLedgerMark]. An endpoint
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
	if l.journal == nil {
		return nil, ErrNoLedger
	}
	k := get(service, id, nil)
	s, err := do[InferenceService](ctx, l.client, k)
	if err == nil {
		err = l.journal.Adopt(ctx, e, seen(s), orZero(opts).Unmarked, dateOf(k.Result.Header), k.Result.TokenCheck(e.Intent))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// UndoAdopt undoes an Adopt of the wrong endpoint. The entry is in doubt again, with the key in use, and
// nothing is deleted. Adopt the right endpoint afterwards. The mark of the entry proves that an endpoint
// is the right one, so its adoption cannot be undone. If the endpoint is not found, the token must be the
// one that Adopt was called with.
//
// GET /v1/inference-service/{service_id}
func (l *Ledger) UndoAdopt(ctx context.Context, e ledger.Entry) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	endpoint, k := ledger.Endpoint{ID: e.ServiceID}, get(service, e.ServiceID, nil)
	switch s, err := do[InferenceService](ctx, l.client, k); {
	case err == nil:
		endpoint = seen(s)
	case !errors.Is(err, ErrNotFound), k.Result.TokenCheck(e.Intent) != e.TokenCheck:
		return err
	}
	return l.journal.Undo(ctx, e, endpoint)
}

// Forget records that the endpoint of an entry does not exist, after a person has checked that. If
// that is wrong, you pay twice: the endpoint is running, and the next Deploy with this key creates
// another endpoint.
//
// The entry must belong to the base URL of this client. It must be in doubt, and its create must be
// over: six minutes have passed since this client first read the entry, or by the service's clock.
// (The entry must then hold the service's time, from a response before the create.) Forget waits for
// that, and logs that it waits. The create may take effect during the wait: look again, and cancel
// ctx if the endpoint exists. Forget reads the service's clock from the Date header of a list of
// flavors.
//
// Forget also takes an entry in the state Created, if the service does not find its endpoint at this
// moment, or marks it as deleted. It asks only once, so it relies on your check: a gateway may respond
// "not found" for an endpoint that is running, and the token of another account does not find it either.
// Call [InferenceServiceClient.WaitUntilDeleted] first if the deletion has to be proved. That records the
// deletion, and then there is nothing to forget.
//
// GET /v1/inference-service/flavor or /v1/inference-service/{service_id}
func (l *Ledger) Forget(ctx context.Context, e ledger.Entry) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	now, _, err := l.journal.Entry(ctx, "forget", e)
	if err != nil {
		return err
	}
	var gone bool
	clock := func() time.Time { return time.Time{} }
	if now.State != ledger.Created {
		clock, _ = l.clock(ctx)
	} else if gone, err = l.gone(ctx, now.ServiceID); err != nil {
		return err
	}
	for told := false; ; told = true {
		err := l.journal.Forget(ctx, now, gone, clock())
		if !errors.Is(err, ledger.ErrEarly) {
			return err
		}
		if !told {
			l.client.log.InfoContext(ctx, "svc: waiting until the create of a ledger entry is certainly over",
				"key", now.Key, "at_most", now.SettlesIn(clock()))
		}
		if ended := poll.Sleep(ctx, min(now.SettlesIn(clock()), 5*time.Second)); ended != nil {
			return l.fail("forget", now, fmt.Errorf("waiting until its create is over: %w", ended))
		}
		if now, _, err = l.journal.Entry(ctx, "forget", e); err != nil {
			return err
		}
	}
}

// gone reports whether the service itself does not find an endpoint now, or marks it as deleted.
func (l *Ledger) gone(ctx context.Context, id string) (bool, error) {
	k := get(service, id, polling(nil))
	s, err := do[InferenceService](ctx, l.client, k)
	missing, failed := errors.AsType[*Error](err)
	switch {
	case !failed, !rules.NotFound(missing.StatusCode), missing.class != rules.Service, aged(k.Result.Header):
		return orZero(s).IsDeleted, err
	}
	return true, nil
}

// Extend sets the end of the lease of an open entry, to a later or an earlier time by the local
// clock. The ledger records the time from now until then, and counts it from now by the service's
// clock, which Extend reads from the Date header of a list of flavors. A zero end means that there is
// no lease: Reap then never deletes the endpoint.
//
// GET /v1/inference-service/flavor
func (l *Ledger) Extend(ctx context.Context, e ledger.Entry, end time.Time) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	r, err := ledger.Record{Event: ledger.Extended}, error(nil)
	if !end.IsZero() {
		clock, unknown := l.clock(ctx)
		r.ServiceTime, r.Lease, err = clock(), max(time.Until(end), time.Microsecond), unknown // shorter ones are marks of cmd/svc
	}
	return l.journal.Change(ctx, "extend", e, func(now ledger.Entry) (ledger.Record, error) {
		if !now.Open() {
			return r, fmt.Errorf("the entry is not open: its state is %q", now.State)
		}
		return r, l.client.safe(err)
	})
}

// Prune removes the records of all keys whose entries have ended before a time: a large ledger is
// slow to read. It prunes keys without an open entry whose last record is older than that time,
// by the clocks of the processes that wrote the ledger. If the store is not a [ledger.Pruner],
// the error is [errors.ErrUnsupported].
func (l *Ledger) Prune(ctx context.Context, before time.Time) error {
	if l.journal == nil {
		return ErrNoLedger
	}
	return l.journal.Prune(ctx, before)
}
