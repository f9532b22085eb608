package svc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"example.com/svc/internal/apierr"
)

var (
	// ErrNoLedger: the call needs a ledger and the client has none. Nothing was sent.
	// See [WithLedger].
	ErrNoLedger = errors.New("svc: no ledger: set WithLedger")
	// ErrKeyInUse: the ledger has an endpoint of another request, or two endpoints, under
	// the key of a Deploy. Nothing was sent.
	ErrKeyInUse = errors.New("svc: the key is in use")
	// ErrLedgerMark: the description of the endpoint does not hold the mark of the
	// ledger entry, so the endpoint may be somebody else's.
	ErrLedgerMark = errors.New("svc: the endpoint does not carry the mark of this ledger entry")
)

// LedgerStore keeps the records of a ledger. It is a journal: records are added, and never
// changed or removed. Only one of several callers can add a record with a certain Key and
// Seq. A store must be safe for concurrent use, also by several processes if they share it.
// Package ledger has stores, and package ledgertest has a test for stores of your own.
type LedgerStore interface {
	// Append stores r durably before it returns nil. If there is already a record with the same
	// Key and Seq, the error is [fs.ErrExist]. After any other error the record may be stored or
	// not. Append returns an error if ctx has ended.
	Append(ctx context.Context, r LedgerRecord) error
	// List returns the records of key in order of Seq. For an empty key it returns the records
	// of all keys, grouped by key. With an error it returns the records that it could read. An
	// error that is about one key only is a [*LedgerError] with that Key.
	List(ctx context.Context, key string) ([]LedgerRecord, error)
}

// LedgerEvent says what happened when a record was written. Some events change the state of the
// entry, which is then named after the event. Others, such as LedgerScaled, leave it as it is.
type LedgerEvent string

const (
	LedgerIntended  LedgerEvent = "intended"  // a create is about to be sent
	LedgerCreated   LedgerEvent = "created"   // the endpoint exists, and its ID is known
	LedgerRefused   LedgerEvent = "refused"   // the create has failed: certainly no endpoint was created
	LedgerUnknown   LedgerEvent = "unknown"   // the outcome of the create is not known
	LedgerForgotten LedgerEvent = "forgotten" // somebody looked and found no endpoint
	LedgerDeleted   LedgerEvent = "deleted"   // the endpoint was seen to be deleted
	LedgerScaled    LedgerEvent = "scaled"    // the number of instances changed; the state did not
	LedgerExtended  LedgerEvent = "extended"  // the end of the lease changed; the state did not
)

// LedgerRecord is one record of the journal. It holds no token, and nothing of the request
// but these fields. Its JSON form is stable. A comment that begins with events, such as
// "created:", means that only records of these events have the field.
type LedgerRecord struct {
	Key         string      `json:"key"`                    // 1 to 64 characters of a-z, 0-9, _ and -
	Seq         int64       `json:"seq"`                    // number of the record in its key: 1, 2, 3, …
	Intent      string      `json:"intent"`                 // random ID of a create call; all attempts of the call share it
	Event       LedgerEvent `json:"event"`                  // what happened
	At          time.Time   `json:"at"`                     // when the record was made, in UTC, by the clock of the process
	BaseURL     string      `json:"base_url,omitempty"`     // intended: base URL of the service
	Name        string      `json:"name,omitempty"`         // intended: name of the endpoint
	FlavorID    string      `json:"flavor_id,omitempty"`    // intended: flavor of the endpoint
	RequestHash string      `json:"request_hash,omitempty"` // intended: hash of Intent and the request body
	SettleBy    time.Time   `json:"settle_by,omitzero"`     // intended: the create is not sent after this time
	Instances   int         `json:"instances,omitempty"`    // intended, scaled: number of instances
	LeaseEnd    time.Time   `json:"lease_end,omitzero"`     // intended, extended: end of the lease; zero: no lease
	ServiceID   string      `json:"service_id,omitempty"`   // created, deleted: ID of the endpoint; unknown: the same, if the response showed it
	Adopted     bool        `json:"adopted,omitempty"`      // created: the ID is from [Ledger.Adopt]
}

// LedgerEntry combines all records of one create call. A key gets many entries
// over time. At most one of them is open, unless somebody was wrong to call Forget.
type LedgerEntry struct {
	Key         string         // the key of the Deploy; random for a Create and for a Deploy without one
	Intent      string         // random ID of the create call; the mark in the description of the endpoint holds it
	BaseURL     string         // the service that the create was meant for
	Name        string         // name of the endpoint, as requested
	FlavorID    string         // flavor of the endpoint, as requested
	ServiceID   string         // ID of the endpoint; empty: not known
	State       LedgerEvent    // last event that changed the state; never LedgerScaled or LedgerExtended
	Instances   int            // number of instances that this package asked for, or more
	Adopted     bool           // ServiceID is from [Ledger.Adopt]
	RequestedAt time.Time      // when the create was about to be sent
	SettleBy    time.Time      // the create was not sent after this time: 5 min after RequestedAt, or the deadline of its ctx if that is earlier
	CreatedAt   time.Time      // when the ID was recorded; zero: it was not
	DeletedAt   time.Time      // when the endpoint was seen to be deleted; zero: it was not
	LeaseEnd    time.Time      // when [Ledger.Reap] may delete the endpoint; zero: never
	Records     []LedgerRecord // all records of the entry, in order of Seq
}

// Open reports whether the endpoint may exist and be billed: the state is intended,
// unknown or created.
func (e LedgerEntry) Open() bool {
	return e.State == LedgerIntended || e.State == LedgerUnknown || e.State == LedgerCreated
}

// LedgerError says that the ledger could not be read or written, or why it does not allow
// the call.
type LedgerError struct {
	Op        string // what was attempted: "list", "append created", "adopt", "reap" …
	Key       string // key of the entry; empty: the error is about the whole ledger
	Intent    string // Intent of the entry; empty: the error is about the whole key
	ServiceID string // ID of the endpoint; empty: not known, or there is no endpoint
	Err       error  // the store's error, or why the ledger does not allow the call
}

// Error names the operation, the key, the endpoint and the cause.
func (e *LedgerError) Error() string {
	text := "svc: ledger: " + e.Op
	if e.Key != "" {
		text += ", key " + e.Key
	}
	if e.ServiceID != "" {
		text += ", endpoint " + e.ServiceID
	}
	if e.Err != nil {
		text += ": " + detail(e.Err)
	}
	return apierr.Line(text)
}

// Unwrap gives the cause.
func (e *LedgerError) Unwrap() error { return e.Err }

// WithLedger makes the client record each create in store before it is sent, and its outcome
// afterwards: see [Ledger]. The client also adds the mark " [svc:INTENT]" to the description
// of each new endpoint, unless [WithoutLedgerMark] is set. All programs that use one account
// should share one store. Nil, the default: no ledger.
func WithLedger(store LedgerStore) Option {
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
// killed: see [LedgerEntry.InDoubt]. To settle it, look for its mark or its name in the
// service's console. Then call Adopt with the ID that you found, or Forget if you found
// none. Adopt an endpoint before you delete it.
//
// Each method reads its entry again, by Key and Intent, before it changes anything.
// Calls of [Client.Do] are not recorded.
type Ledger struct {
	client *Client
	store  LedgerStore // nil: the client has no ledger
	marks  bool        // add the mark to the description of a new endpoint
	log    *slog.Logger
	// known maps the ID of an endpoint to a LedgerRecord. Usually the record has only its Key. If
	// a created record could not be written, the whole record is here, to be written later.
	known sync.Map
}

// Entries returns all entries: first the open entries from old to new, then the other entries
// from old to new. With an error it returns the entries that it could read.
func (l *Ledger) Entries(ctx context.Context) ([]LedgerEntry, error) {
	entries, _, err := l.read(ctx, "")
	return entries, err
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
func (l *Ledger) Adopt(ctx context.Context, e LedgerEntry, id string, opts *AdoptOptions) (*InferenceService, error) {
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
	s, err := l.client.InferenceServices.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	err = l.change(ctx, op, e, func(now LedgerEntry) (LedgerRecord, error) {
		r := LedgerRecord{Event: LedgerCreated, ServiceID: id, Adopted: true}
		return r, now.mayAdopt(l.client.base.String(), s, opts != nil && opts.Unmarked, wallClock())
	})
	if err != nil {
		return nil, err
	}
	return s, l.change(ctx, op, e, func(now LedgerEntry) (LedgerRecord, error) { // the endpoint may have been scaled while the ledger did not have its ID
		r := LedgerRecord{Event: LedgerScaled, Instances: int(s.ResourceMetadata.TargetInstanceNumber)}
		return r.onlyIf(r.Instances > now.Instances)
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
func (l *Ledger) Forget(ctx context.Context, e LedgerEntry) error {
	if l.store == nil {
		return ErrNoLedger
	}
	var response Response
	if _, err := l.client.Flavors.List(ctx, WithResponse(&response)); err != nil {
		return err
	}
	return l.change(ctx, "forget", e, func(now LedgerEntry) (LedgerRecord, error) {
		return LedgerRecord{Event: LedgerForgotten}, now.mayForget(l.client.base.String(), wallClock(), date(&response))
	})
}

// Extend sets the end of the lease of an open entry, to a later or an earlier time. A zero end
// means that there is no lease: Reap then never deletes the endpoint.
func (l *Ledger) Extend(ctx context.Context, e LedgerEntry, end time.Time) error {
	return l.change(ctx, "extend", e, func(now LedgerEntry) (LedgerRecord, error) {
		if !now.Open() {
			return LedgerRecord{}, fmt.Errorf("the entry is not open: its state is %q", now.State)
		}
		return LedgerRecord{Event: LedgerExtended, LeaseEnd: end.Round(0).UTC()}, nil
	})
}

// ReapOptions sets up [Ledger.Reap]. Nil stands for the zero value.
type ReapOptions struct {
	DryRun bool // true: Reap checks everything and deletes nothing
}

// Reaped is what [Ledger.Reap] did with one overdue entry.
type Reaped struct {
	Entry LedgerEntry // the entry as it was before Reap
	// Err says why the endpoint is not known to be deleted. Nil: it is deleted, or with
	// DryRun it would be.
	Err error
}

// Reap deletes the endpoints whose lease has ended. Nothing else enforces a lease: run
// Reap regularly, anywhere that shares the store.
//
// Reap takes the open entries of this client's base URL whose LeaseEnd has passed by the
// local clock, one by one, with a minute for each. It deletes an endpoint only if LeaseEnd
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
		if !e.overdue(l.client.base.String(), wallClock()) {
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
func (l *Ledger) reap(ctx context.Context, e LedgerEntry, dryRun bool) error {
	const op = "reap"
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if e.State != LedgerCreated {
		return l.fail(op, e, ErrOutcomeUnknown)
	}
	services, o := l.client.InferenceServices, new(WaitOptions).withDefaults()
	removal := &removal{observer: services.observe(e.ServiceID, o, newIDGrace), name: e.Name, named: true}
	remove := removal.poll
	var response Response
	s, err := services.Get(ctx, e.ServiceID, WithResponse(&response))
	if notFound(err) || err == nil && s.IsDeleted {
		remove, s, err = removal.read, nil, nil // the wait below decides whether the endpoint is certainly deleted
	}
	if err != nil {
		return err
	}
	now, _, err := l.entry(ctx, op, e)
	switch {
	case err != nil || now.State == LedgerDeleted:
		return err
	case !now.overdue(l.client.base.String(), wallClock()):
		err = errors.New("the lease was extended")
	case s != nil:
		err = now.mayReap(date(&response), s)
	}
	if err != nil || dryRun {
		return l.fail(op, e, err)
	}
	_, err = services.untilDeleted(e.ServiceID, o, remove).run(ctx, isDeleted)
	return err
}
