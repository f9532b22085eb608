package svc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/poll"
	"example.com/svc/internal/same"
	"example.com/svc/ledger"
)

// claim records one create: its intent before it is sent, and its outcome.
type claim struct {
	ledger *Ledger
	key    string
	lease  time.Duration      // 0: no lease
	intent ledger.Record      // the record of the intent; its Seq is 0 until the record is stored
	cancel context.CancelFunc // ends the context of the create
}

// claim returns nil if the client has no store. An empty key stands for a random one.
func (l *Ledger) claim(key string, lease time.Duration) *claim {
	if l.journal == nil {
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
	req, err := ledger.ParseRequest(body)
	if err != nil {
		return nil, nil, &ValidationError{[]FieldError{{"body", err.Error()}}}
	}
	want := req.Record(c.key, rand.Text(), l.client.base.String())
	if l.marks {
		if body, err = req.Marked(want.Intent); err != nil {
			return nil, nil, &ValidationError{[]FieldError{{"description", err.Error()}}}
		}
	}
	pace := poll.New(ctx, 50*time.Millisecond, time.Second)
	for waiting := (ledger.Entry{}); c.intent.Seq == 0 && err == nil; {
		entries, last, unread := l.read(ctx, c.key)
		verdict, e, why := ledger.Judge(entries, want.BaseURL, req, ledger.WallClock())
		switch {
		case unread != nil && waiting.Key != "" && ctx.Err() != nil:
			err = c.doubt(waiting, cause.Of(ctx))
		case unread != nil:
			err = unread
		case verdict == ledger.Free:
			want.Seq = last + 1
			err = c.record(ctx, &want)
		case verdict == ledger.Wait:
			if waiting.Key == "" && l.log != nil {
				l.log.InfoContext(ctx, "svc: waiting for the outcome of another create under the key", "key", e.Key, "until", e.SettleBy.Add(ledger.SettleMargin))
			}
			waiting = e
			next, _ := pace.Next(0, 0)
			if ended := pace.Sleep(next); ended != nil {
				err = c.doubt(e, fmt.Errorf("waiting for its outcome: %w", ended))
			}
		case verdict == ledger.InDoubt:
			err = c.doubt(e, fmt.Errorf("look for %s in the console of the service at %s, then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", cmp.Or(e.ServiceID, "it"), e.BaseURL))
		case verdict == ledger.InUse:
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

var errSettleBy = &httpcall.TimeoutError{After: ledger.SettleLimit}

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
func (c *claim) record(ctx context.Context, want *ledger.Record) error {
	deadline, _ := ctx.Deadline()
	want.At = ledger.WallClock()
	want.SettleBy = ledger.SettleBy(want.At, deadline)
	if c.lease > 0 {
		want.LeaseEnd = want.At.Add(c.lease)
	}
	stored, err := c.ledger.journal.Claim(ctx, *want)
	if stored {
		c.intent = *want
	}
	return err
}

// doubt says that nothing was sent because an earlier create may have made an endpoint.
func (c *claim) doubt(e ledger.Entry, err error) error {
	return &OutcomeUnknownError{
		Method: http.MethodPost, Route: services, Name: e.Name, ID: e.ServiceID, Err: c.ledger.client.safe(err),
		Key: e.Key, Intent: e.Intent, earlier: true,
	}
}

// resume ends the create with a resumedError, since an entry of the key has an endpoint. If
// the new lease ends later than the recorded one, resume records the later end.
func (c *claim) resume(ctx context.Context, e ledger.Entry) error {
	err := c.ledger.journal.Change(ctx, "extend", e, func(now ledger.Entry) (ledger.Record, error) {
		end := now.RequestedAt.Add(c.lease)
		return ledger.Record{Event: ledger.Extended, LeaseEnd: end}.OnlyIf(now.Open() && !now.LeaseEnd.IsZero() && end.After(now.LeaseEnd))
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
	if !ledger.MaySend(c.intent.SettleBy, ledger.WallClock()) {
		return errors.New("svc: the create was not sent: its time limit in the ledger has passed, by the wall clock (the process may have been suspended)")
	}
	return nil
}

// settle records the outcome of the create. If that fails, it adds a ledger.Error to the
// error of the create.
func (c *claim) settle(ctx context.Context, s *InferenceService, err error) error {
	if c.intent.Seq == 0 {
		return err
	}
	c.cancel()
	r := ledger.Record{Key: c.intent.Key, Seq: c.intent.Seq + 1, Intent: c.intent.Intent, Event: ledger.Refused}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok {
		r.Event, r.ServiceID = ledger.Unknown, unknown.ID
		if unknown.created() {
			r.Event = ledger.Created
		}
		unknown.Key, unknown.Intent = r.Key, r.Intent
	} else if err == nil {
		r.Event, r.ServiceID = ledger.Created, s.ServiceID
	}
	behind := c.ledger.journal.Put(ctx, r, 3)
	if behind == nil {
		c.ledger.known.Store(r.ServiceID, ledger.Record{Key: r.Key})
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
	if l.journal == nil {
		return ended, nil
	}
	want, err := ledger.ParseRequest(body)
	if err != nil {
		return ended, &ValidationError{[]FieldError{{"body", err.Error()}}}
	}
	if want.Instances < 0 {
		return ended, nil
	}
	reading, cancel := context.WithTimeout(ctx, ledger.Patience)
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
		return l.journal.Change(ctx, "append scaled", *e, func(now ledger.Entry) (ledger.Record, error) {
			need := now.Instances < want.Instances
			if !raises { // another call may have recorded another number, which then stays
				need = now.Instances == e.Instances && now.Instances != want.Instances
			}
			return ledger.Record{Event: ledger.Scaled, Instances: want.Instances}.OnlyIf(need)
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
	if l.journal == nil {
		return
	}
	l.afterwards(ctx, func(ctx context.Context) error {
		e, err := l.owner(ctx, id)
		if e == nil || s != nil && s.Name != "" && !same.Text(s.Name, e.Name) { // s is the record of another endpoint
			return err
		}
		next := e.Records[len(e.Records)-1].Seq + 1
		return l.journal.Put(ctx, ledger.Record{Key: e.Key, Seq: next, Intent: e.Intent, Event: ledger.Deleted, ServiceID: id}, 1)
	})
}

// afterwards records what has already happened, even if ctx has ended. An error is only
// logged.
func (l *Ledger) afterwards(ctx context.Context, record func(context.Context) error) {
	ctx, cancel := ledger.Afterwards(ctx)
	defer cancel()
	if err := record(ctx); err != nil && l.log != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "svc: the ledger could not be updated", slog.String("error", err.Error()))
	}
}

// owner finds the entry in the state created that has the ID of an endpoint; nil if there is
// none. A created record that could not be written before is written first. If the key of the
// endpoint is not known, an error that is about a single key does not count.
func (l *Ledger) owner(ctx context.Context, id string) (*ledger.Entry, error) {
	v, _ := l.known.Load(id)
	known, _ := v.(ledger.Record)
	if known.Event == ledger.Created {
		if err := l.journal.Put(ctx, known, 1); err != nil {
			return nil, err
		}
	}
	entries, _, err := l.read(ctx, known.Key)
	for i := range entries {
		if e := &entries[i]; e.ServiceID == id && e.State == ledger.Created && e.BaseURL == l.client.base.String() {
			return e, nil
		}
	}
	if e, ok := errors.AsType[*ledger.Error](err); ok && known.Key == "" && e.Key != "" {
		err = nil
	}
	return nil, err
}

// date is the time of the service's clock; zero if the response does not show it.
func date(r *Response) time.Time {
	t, _ := http.ParseTime(r.Header.Get("Date"))
	return t
}

// read returns the entries of a key and its highest Seq, as [ledger.Journal.Read] does.
func (l *Ledger) read(ctx context.Context, key string) (entries []ledger.Entry, last int64, err error) {
	if l.journal == nil {
		return nil, 0, ErrNoLedger
	}
	entries, last, err = l.journal.Read(ctx, key)
	for _, e := range entries {
		if e.BaseURL == l.client.base.String() {
			l.known.Store(e.ServiceID, ledger.Record{Key: e.Key})
		}
	}
	return entries, last, err
}

// fail makes a ledger.Error from err, without secrets: see [ledger.Wrap].
func (l *Ledger) fail(op string, e ledger.Entry, err error) error {
	return ledger.Wrap(op, e, l.client.safe(err))
}
