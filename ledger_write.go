package svc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/poll"
)

// claim records one create: its intent before it is sent, and its outcome.
type claim struct {
	ledger *Ledger
	key    string
	lease  time.Duration      // 0: no lease
	intent LedgerRecord       // the record of the intent; its Seq is 0 until the record is stored
	cancel context.CancelFunc // ends the context of the create
}

// claim returns nil if the client has no store. An empty key stands for a random one.
func (l *Ledger) claim(key string, lease time.Duration) *claim {
	if l.store == nil {
		return nil
	}
	return &claim{ledger: l, key: cmp.Or(key, strings.ToLower(rand.Text())), lease: lease}
}

// resumedError ends a create whose key already has an endpoint.
type resumedError struct{ id string }

func (e *resumedError) Error() string { return "svc: the key has the endpoint " + e.id }

// begin records the intent of a create with this body, as soon as the key is free. It
// returns the context and the body that the create is sent with.
func (c *claim) begin(ctx context.Context, body []byte) (context.Context, []byte, error) {
	l := c.ledger
	fields, want, err := readBody(body, 1)
	if err != nil {
		return nil, nil, err
	}
	want.Key, want.Intent, want.BaseURL = c.key, rand.Text(), l.client.base.String()
	want.RequestHash = requestHash(want.Intent, fields)
	if l.marks {
		if body, err = addMark(fields, want.Intent); err != nil {
			return nil, nil, err
		}
	}
	pace := poll.New(ctx, 50*time.Millisecond, time.Second)
	for waiting := (LedgerEntry{}); c.intent.Seq == 0 && err == nil; {
		entries, last, unread := l.read(ctx, c.key)
		verdict, e, why := judgeKey(entries, &want, fields, wallClock())
		switch {
		case unread != nil && waiting.Key != "" && ctx.Err() != nil:
			err = c.doubt(waiting, cause.Of(ctx))
		case unread != nil:
			err = unread
		case verdict == ledgerFree:
			want.Seq = last + 1
			err = c.record(ctx, &want)
		case verdict == ledgerWait:
			if waiting.Key == "" && l.log != nil {
				l.log.InfoContext(ctx, "svc: waiting for the outcome of another create under the key", "key", e.Key, "until", e.SettleBy.Add(ledgerMargin))
			}
			waiting = e
			next, _ := pace.Next(0, 0)
			if ended := pace.Sleep(next); ended != nil {
				err = c.doubt(e, fmt.Errorf("waiting for its outcome: %w", ended))
			}
		case verdict == ledgerDoubt:
			err = c.doubt(e, fmt.Errorf("look for %s in the console of the service at %s, then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", cmp.Or(e.ServiceID, "it"), e.BaseURL))
		case verdict == ledgerInUse:
			err = l.fail("deploy", e, fmt.Errorf("%w: %s", ErrKeyInUse, why))
		default:
			err = c.resume(ctx, e)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, c.cancel = untilSettleBy(ctx, c.intent.SettleBy)
	return ctx, body, nil
}

var errSettleBy = &httpcall.TimeoutError{After: ledgerSettle}

// settleContext ends at SettleBy. Its error is then errSettleBy, since context.DeadlineExceeded
// would say that a deadline of the caller has passed.
type settleContext struct{ context.Context }

func untilSettleBy(ctx context.Context, by time.Time) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && !deadline.Round(0).After(by) {
		return ctx, func() {}
	}
	ctx, cancel := context.WithDeadlineCause(ctx, by, errSettleBy)
	return settleContext{ctx}, cancel
}

func (c settleContext) Err() error {
	if err := c.Context.Err(); err == nil || !errors.Is(context.Cause(c.Context), errSettleBy) {
		return err
	}
	return errSettleBy
}

// record writes the record of the intent. If its Seq is taken, it writes nothing and returns nil.
func (c *claim) record(ctx context.Context, want *LedgerRecord) error {
	deadline, _ := ctx.Deadline()
	want.At = wallClock()
	want.SettleBy = settleBy(want.At, deadline)
	if c.lease > 0 {
		want.LeaseEnd = want.At.Add(c.lease)
	}
	err := c.ledger.add(ctx, *want)
	switch {
	case err == nil:
		c.intent = *want
	case !errors.Is(err, fs.ErrExist): // the record may be stored although Append failed
		_ = c.ledger.put(ctx, LedgerRecord{Key: want.Key, Seq: want.Seq, Intent: want.Intent, Event: LedgerRefused}, 1)
		return c.ledger.fail("append intended", LedgerEntry{Key: want.Key, Intent: want.Intent}, err)
	}
	return nil
}

// doubt says that nothing was sent because an earlier create may have made an endpoint.
func (c *claim) doubt(e LedgerEntry, err error) error {
	return &OutcomeUnknownError{
		Method: http.MethodPost, Route: services, Name: e.Name, ID: e.ServiceID, Err: c.ledger.client.safe(err),
		Key: e.Key, Intent: e.Intent, earlier: true,
	}
}

// resume ends the create with a resumedError, since an entry of the key has an endpoint. If
// the new lease ends later than the recorded one, resume records the later end.
func (c *claim) resume(ctx context.Context, e LedgerEntry) error {
	err := c.ledger.change(ctx, "extend", e, func(now LedgerEntry) (LedgerRecord, error) {
		end := now.RequestedAt.Add(c.lease)
		return LedgerRecord{Event: LedgerExtended, LeaseEnd: end}.onlyIf(now.Open() && !now.LeaseEnd.IsZero() && end.After(now.LeaseEnd))
	})
	if err != nil {
		return err
	}
	c.ledger.client.recent.add(e.ServiceID) // the endpoint may not be readable yet
	return &resumedError{e.ServiceID}
}

// before is called right before each attempt. It uses the wall clock, which continues while
// the process is suspended.
func (c *claim) before() error {
	if !maySend(c.intent.SettleBy, wallClock()) {
		return errors.New("svc: the create was not sent: its time limit in the ledger has passed, by the wall clock (the process may have been suspended)")
	}
	return nil
}

// settle records the outcome of the create. If that fails, it adds a LedgerError to the
// error of the create.
func (c *claim) settle(ctx context.Context, s *InferenceService, err error) error {
	if c.intent.Seq == 0 {
		return err
	}
	c.cancel()
	r := LedgerRecord{Key: c.intent.Key, Seq: c.intent.Seq + 1, Intent: c.intent.Intent, Event: LedgerRefused}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok {
		r.Event, r.ServiceID = LedgerUnknown, unknown.ID
		if unknown.created() {
			r.Event = LedgerCreated
		}
		unknown.Key, unknown.Intent = r.Key, r.Intent
	} else if err == nil {
		r.Event, r.ServiceID = LedgerCreated, s.ServiceID
	}
	behind := c.ledger.put(ctx, r, 3)
	if behind == nil {
		c.ledger.known.Store(r.ServiceID, LedgerRecord{Key: r.Key})
	} else {
		c.ledger.known.Store(r.ServiceID, r)
	}
	return cause.Join(err, behind)
}

// outcome judges a create that ended by a panic, from what the Result of the call says.
func outcome[T any](c *Client, k *call) (*T, error) {
	if !k.Result.Acted && k.Result.StatusCode == 0 {
		return nil, errors.New("svc: nothing was sent")
	}
	return result[T](c, k, k.Result)
}

// scale records a change of the number of instances: a higher number before the change is
// sent, and a lower one after the change has succeeded. The caller must call ended with the
// error of the change. If another call has recorded a lower number meanwhile, ended records
// the higher number again, since nobody knows which change the service made last.
func (l *Ledger) scale(ctx context.Context, id string, body []byte) (ended func(error), err error) {
	ended = func(error) {}
	if l.store == nil {
		return ended, nil
	}
	_, want, err := readBody(body, -1)
	if err != nil || want.Instances < 0 {
		return ended, err
	}
	reading, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	e, err := l.owner(reading, id)
	if err != nil { // a change that does not raise the bill is sent even if the ledger cannot be read
		now, unread := l.client.InferenceServices.Get(ctx, id)
		if unread == nil && want.Instances <= int(now.ResourceMetadata.TargetInstanceNumber) {
			err = nil
		}
	}
	if err != nil || e == nil {
		return ended, err
	}
	raises := want.Instances > e.Instances
	record := func(ctx context.Context) error {
		return l.change(ctx, "append scaled", *e, func(now LedgerEntry) (LedgerRecord, error) {
			need := now.Instances < want.Instances
			if !raises { // another call may have recorded another number, which then stays
				need = now.Instances == e.Instances && now.Instances != want.Instances
			}
			return LedgerRecord{Event: LedgerScaled, Instances: want.Instances}.onlyIf(need)
		})
	}
	if raises {
		if err := record(ctx); err != nil {
			return ended, err
		}
	}
	return func(failed error) {
		if raises || failed == nil {
			l.afterwards(ctx, record)
		}
	}, nil
}

// deleted writes to the ledger that the endpoint with this ID is deleted. s is what the service
// returned for the ID, with IsDeleted. If s is nil, the service did not find the ID any more.
func (l *Ledger) deleted(ctx context.Context, id string, s *InferenceService) {
	if l.store == nil {
		return
	}
	l.afterwards(ctx, func(ctx context.Context) error {
		e, err := l.owner(ctx, id)
		if e == nil || s != nil && s.Name != "" && !sameText(s.Name, e.Name) { // s is the record of another endpoint
			return err
		}
		next := e.Records[len(e.Records)-1].Seq + 1
		return l.put(ctx, LedgerRecord{Key: e.Key, Seq: next, Intent: e.Intent, Event: LedgerDeleted, ServiceID: id}, 1)
	})
}

// afterwards records what has already happened, even if ctx has ended. An error is only
// logged.
func (l *Ledger) afterwards(ctx context.Context, record func(context.Context) error) {
	ctx, cancel := settling(ctx)
	defer cancel()
	if err := record(ctx); err != nil && l.log != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "svc: the ledger could not be updated", slog.String("error", err.Error()))
	}
}

// settling returns a context for recording what has already happened. The returned context stays
// alive after ctx has ended, for at most ledgerPatience.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), ledgerPatience)
}

// owner finds the entry in the state created that has the ID of an endpoint; nil if there is
// none. A created record that could not be written before is written first. If the key of the
// endpoint is not known, an error that is about a single key does not count.
func (l *Ledger) owner(ctx context.Context, id string) (*LedgerEntry, error) {
	v, _ := l.known.Load(id)
	known, _ := v.(LedgerRecord)
	if known.Event == LedgerCreated {
		if err := l.put(ctx, known, 1); err != nil {
			return nil, err
		}
	}
	entries, _, err := l.read(ctx, known.Key)
	for i := range entries {
		if e := &entries[i]; e.ServiceID == id && e.State == LedgerCreated && e.BaseURL == l.client.base.String() {
			return e, nil
		}
	}
	if e, ok := errors.AsType[*LedgerError](err); ok && known.Key == "" && e.Key != "" {
		err = nil
	}
	return nil, err
}

// date is the time of the service's clock; zero if the response does not show it.
func date(r *Response) time.Time {
	t, _ := http.ParseTime(r.Header.Get("Date"))
	return t
}

// read returns the entries of a key and its highest Seq. For an empty key it returns the
// entries of all keys. With an error it returns the entries that it could read. Each error is
// a LedgerError. An error that is about a single key has that Key.
func (l *Ledger) read(ctx context.Context, key string) (entries []LedgerEntry, last int64, err error) {
	if l.store == nil {
		return nil, 0, ErrNoLedger
	}
	records, err := l.store.List(ctx, key)
	entries, damaged := foldLedger(records)
	slices.SortStableFunc(entries, func(a, b LedgerEntry) int {
		return cmp.Or(b2i(b.Open())-b2i(a.Open()), a.RequestedAt.Compare(b.RequestedAt))
	})
	for _, e := range entries {
		if e.BaseURL == l.client.base.String() {
			l.known.Store(e.ServiceID, LedgerRecord{Key: e.Key})
		}
	}
	if len(records) > 0 {
		last = records[len(records)-1].Seq
	}
	return entries, last, cause.Join(l.fail("list", LedgerEntry{}, err), damaged)
}

// entry reads an entry again, with the highest Seq of its key.
func (l *Ledger) entry(ctx context.Context, op string, e LedgerEntry) (now LedgerEntry, last int64, err error) {
	entries, last, err := l.read(ctx, e.Key)
	if err != nil {
		return e, 0, err
	}
	for _, now := range entries {
		if now.Intent == e.Intent {
			return now, last, nil
		}
	}
	return e, 0, l.fail(op, e, errors.New("there is no such entry"))
}

// change reads an entry again, calls decide with it, and appends the record that decide
// returns. If another record was appended in the meantime, change starts again, so decide has
// seen all records before its own. An empty record is not appended.
func (l *Ledger) change(ctx context.Context, op string, e LedgerEntry, decide func(now LedgerEntry) (LedgerRecord, error)) error {
	for {
		now, last, err := l.entry(ctx, op, e)
		if err != nil {
			return err
		}
		r, err := decide(now)
		if err == nil && r.Event == "" {
			return nil
		}
		if err == nil {
			r.Key, r.Seq, r.Intent, r.At = e.Key, last+1, e.Intent, wallClock()
			err = l.add(ctx, r)
		}
		if !errors.Is(err, fs.ErrExist) {
			return l.fail(op, now, err)
		}
	}
}

// onlyIf is for decide. If r is not needed, it returns the empty record, which change does not
// append.
func (r LedgerRecord) onlyIf(needed bool) (LedgerRecord, error) {
	if !needed {
		r = LedgerRecord{}
	}
	return r, nil
}

// add appends a record at its Seq. If the store says that the Seq is taken, the record may
// still be stored: a network file system repeats the creation of a hard link if the response
// was lost, and then finds that the name exists. So add looks whether the record is listed.
func (l *Ledger) add(ctx context.Context, r LedgerRecord) error {
	err := l.store.Append(ctx, r)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	stored, unread := l.store.List(ctx, r.Key)
	switch {
	case slices.Contains(stored, r):
		return nil
	case unread == nil && !slices.ContainsFunc(stored, func(s LedgerRecord) bool { return s.Seq == r.Seq }):
		return fmt.Errorf("the store says that record %d of the key exists, but does not list it", r.Seq)
	}
	return err
}

// put appends a record at its Seq, or at the next Seq that is free. After an error it tries
// again, up to tries times in all. It has a separate time limit, and continues when ctx ends.
func (l *Ledger) put(ctx context.Context, r LedgerRecord, tries int) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	r.At = wallClock()
	for {
		err := l.add(ctx, r)
		if errors.Is(err, fs.ErrExist) && ctx.Err() == nil {
			r.Seq++
			continue
		}
		if tries--; err == nil || tries == 0 || poll.Sleep(ctx, 100*time.Millisecond) != nil {
			return l.fail("append "+string(r.Event), LedgerEntry{Key: r.Key, Intent: r.Intent, ServiceID: r.ServiceID}, err)
		}
	}
}

// fail makes a LedgerError from err. It returns err itself if err is nil, or if err already holds
// a LedgerError with the ServiceID of e (with any ServiceID if e has none).
func (l *Ledger) fail(op string, e LedgerEntry, err error) error {
	err = l.client.safe(err)
	if known, ok := errors.AsType[*LedgerError](err); err == nil || ok && (e.ServiceID == "" || known.ServiceID == e.ServiceID) {
		return err
	}
	return &LedgerError{Op: op, Key: e.Key, Intent: e.Intent, ServiceID: e.ServiceID, Err: err}
}
