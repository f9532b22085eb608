package svc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/poll"
	"example.com/svc/ledger"
)

// A claim records one create: its intent before it is sent, and its outcome. Without a ledger it
// records nothing.
type claim struct {
	ledger  *Ledger
	key     string
	lease   time.Duration      // 0: no lease
	request ledger.Request     // the body of the create
	intent  ledger.Record      // the record of the intent; its Seq is 0 until the record is stored
	earlier *ledger.Entry      // the entry that the key has already; then nothing may be sent; nil: none
	cancel  context.CancelFunc // ends the context of the create
}

// open records the intent of a prepared create, as soon as its key is free, and adds the mark to its
// body. An empty key stands for a random one. The create must be sent with the context that open
// returns, and not at all if the claim has an earlier entry.
func (l *Ledger) open(ctx context.Context, k *call, key string, lease time.Duration) (*claim, context.Context, error) {
	c := &claim{ledger: l, key: cmp.Or(key, strings.ToLower(rand.Text())), lease: lease}
	if l.journal == nil {
		return c, ctx, c.prepare(ctx, k)
	}
	var err error
	if c.request, err = parse(k); err == nil {
		err = c.take(ctx, k)
	}
	if err != nil || c.earlier != nil {
		return c, ctx, l.notSent(ctx, k, err)
	}
	k.Before = c.before
	ctx, c.cancel = untilSettleBy(ctx, c.intent.SettleBy)
	return c, ctx, nil
}

// parse reads the body of a prepared call.
func parse(k *call) (ledger.Request, error) {
	r, err := ledger.ParseRequest(k.Body)
	if err != nil {
		return r, invalid("body", err.Error())
	}
	return r, nil
}

// prepare chooses the flavor, makes the record of the intent, and marks the body of the create. The
// hash of the request does not include a flavor that is chosen here.
func (c *claim) prepare(ctx context.Context, k *call) error {
	if k.pick != nil {
		if err := k.pick(ctx); err != nil {
			return err
		}
	}
	if c.ledger.journal == nil {
		return nil
	}
	final, err := parse(k)
	if err != nil {
		return err
	}
	c.intent = c.request.Record(c.key, rand.Text(), c.ledger.client.base.String())
	c.intent.FlavorID = final.FlavorID
	if !c.ledger.marks {
		return nil
	}
	if k.Body, err = final.Marked(c.intent.Intent); err != nil {
		return invalid("description", err.Error())
	}
	return nil
}

// take records the intent when the key is free. If the key has an endpoint of the same request, it
// sets earlier. If another create under the key is under way, it waits for the outcome.
func (c *claim) take(ctx context.Context, k *call) error {
	l := c.ledger
	w := outcomeWait{pace: poll.New(ctx, 50*time.Millisecond, time.Second), clock: func() time.Time { return time.Time{} }}
	for {
		entries, last, err := l.read(ctx, c.key)
		switch {
		case err == nil:
		case w.entry.Key != "" && ctx.Err() != nil:
			return c.doubt(w.entry, cause.Of(ctx))
		default:
			return err
		}
		verdict, e, why := ledger.Judge(entries, l.client.base.String(), c.request, w.clock())
		switch verdict {
		case ledger.Free:
			if done, err := c.tryRecord(ctx, k, last+1); done || err != nil {
				return err
			}
		case ledger.Wait:
			if err := c.await(ctx, &w, e); err != nil {
				return err
			}
		case ledger.InDoubt:
			return c.doubt(e, fmt.Errorf("look for %s in the console of the service at %s, then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", cmp.Or(e.ServiceID, "it"), e.BaseURL))
		case ledger.InUse:
			return l.fail("deploy", e, fmt.Errorf("%w: %s", ErrKeyInUse, why))
		default:
			return c.resume(ctx, e)
		}
	}
}

// outcomeWait is the wait for the outcome of another create under the key.
type outcomeWait struct {
	entry ledger.Entry // the entry whose outcome is waited for; its Key is empty before the wait
	pace  *poll.Pacer
	clock func() time.Time
}

// await waits until the ledger should be read again. At the first call it only begins the wait.
func (c *claim) await(ctx context.Context, w *outcomeWait, e ledger.Entry) error {
	began := w.entry.Key != ""
	w.entry = e
	if !began {
		w.clock = c.ledger.clock(ctx)
		c.ledger.inform(ctx, "svc: waiting for the outcome of another create under the key", e, w.clock())
		return nil
	}
	next, _ := w.pace.Next(0, 0)
	if ended := w.pace.Sleep(next); ended != nil {
		return c.doubt(e, fmt.Errorf("waiting for its outcome: %w", ended))
	}
	return nil
}

// tryRecord records the intent with this Seq. done is false if another process was first.
func (c *claim) tryRecord(ctx context.Context, k *call, seq int64) (done bool, err error) {
	if c.intent.Intent == "" {
		if err := c.prepare(ctx, k); err != nil {
			return false, err
		}
	}
	return c.record(ctx, seq)
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

// record writes the record of the intent. If its Seq is taken, it writes nothing, and stored is
// false.
func (c *claim) record(ctx context.Context, seq int64) (stored bool, err error) {
	deadline, _ := ctx.Deadline()
	want := c.intent
	want.Seq, want.At = seq, ledger.WallClock()
	want.SettleBy, want.ServiceTime = ledger.SettleBy(want.At, deadline), c.ledger.serviceTime()
	want.Lease = c.lease
	if stored, err = c.ledger.journal.Claim(ctx, want); stored {
		c.intent = want
	}
	return stored, err
}

// doubt says that nothing was sent because an earlier create may have made an endpoint.
func (c *claim) doubt(e ledger.Entry, err error) error {
	return &OutcomeUnknownError{
		RequestInfo: RequestInfo{Method: http.MethodPost, Route: services, ID: e.ServiceID}, Name: e.Name, Err: c.ledger.client.safe(err),
		Key: e.Key, Intent: e.Intent, earlier: true,
	}
}

// resume sets earlier to the entry that has an endpoint. If that has no lease, or one that ends
// sooner, resume records the lease of this create.
func (c *claim) resume(ctx context.Context, e ledger.Entry) error {
	err := c.ledger.journal.Change(ctx, "extend", e, func(now ledger.Entry) (ledger.Record, error) {
		return now.Lengthen(c.lease).OnlyIf(now.Open())
	})
	if err != nil {
		return err
	}
	c.ledger.client.endpoints.Create(e.ServiceID, nil) // the endpoint may not be readable yet
	c.earlier = &e
	return nil
}

// before is called right before each attempt. It uses the wall clock, which continues while
// the process is suspended.
func (c *claim) before() error {
	if !ledger.MaySend(c.intent.SettleBy, ledger.WallClock()) {
		return errors.New("svc: the create was not sent: its time limit in the ledger has passed, by the wall clock (the process may have been suspended)")
	}
	return nil
}

// close records the outcome of the create. It must be deferred, with the results of the create: if
// both are nil, a function of the caller has panicked or ended the goroutine, and the Result of the
// call tells the outcome. If the ledger cannot record it, close adds a ledger.Error to err.
func (c *claim) close(ctx context.Context, k *call, s **InferenceService, err *error) {
	if c.intent.Seq == 0 {
		return
	}
	c.cancel()
	if panicked := *s == nil && *err == nil; panicked && (k.Result.Acted || k.Result.StatusCode != 0) {
		*s, *err = result[InferenceService](c.ledger.client, k, k.Result)
	}
	r := ledger.Record{Key: c.intent.Key, Seq: c.intent.Seq + 1, Intent: c.intent.Intent, Event: ledger.Refused}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](*err); ok {
		r.Event, r.ServiceID, r.ServiceTime = ledger.Unknown, unknown.ID, c.ledger.serviceTime()
		if unknown.created() {
			r.Event = ledger.Created
		}
		unknown.Key, unknown.Intent = r.Key, r.Intent
	} else if *s != nil {
		r.Event, r.ServiceID = ledger.Created, (*s).ServiceID
		if r.Name = (*s).Name; r.Name == c.intent.Name {
			r.Name = ""
		}
	}
	if r.Event == ledger.Created {
		r.ServiceTime = dateOf(k.Result.Header)
		if k.known(true, r.Name) != nil {
			r.TokenCheck = k.Result.TokenCheck(r.Intent)
		}
	}
	*err = cause.Join(*err, c.ledger.journal.Settle(ctx, r, 3))
}

// explainMark adds to an error about a description that the mark of the ledger has made it longer.
func (l *Ledger) explainMark(err error) error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok, l.journal == nil, !l.marks:
		return err
	}
	if e.StatusCode/100 != 4 || !bytes.Contains(bytes.ToLower(e.Body), []byte("description")) {
		return err
	}
	return fmt.Errorf("%w; the ledger added its mark of %d characters to the description: see WithoutLedgerMark", err, ledger.MarkLength)
}

// notSent returns the error of a call that the ledger stopped before it was sent. If the ledger
// failed because ctx ended, that is the reason.
func (l *Ledger) notSent(ctx context.Context, k *call, err error) error {
	if cause.Has[*ledger.Error](err) && ctx.Err() != nil {
		return l.client.transportError(k, &httpcall.Result{Fail: fmt.Errorf("%w: nothing was sent", l.client.safe(cause.Of(ctx)))})
	}
	return err
}

// dateOf is the time of the service's clock in the header of a response; zero if it is not there.
func dateOf(h http.Header) time.Time {
	if aged(h) {
		return time.Time{}
	}
	t, _ := http.ParseTime(h.Get("Date"))
	return t
}

// A sighting is the Date of a response, and when its request was sent.
type sighting struct{ date, sent time.Time }

// saw notes the service's time in a response.
func (l *Ledger) saw(header http.Header, sent time.Time) {
	if l.journal == nil {
		return
	}
	if date := dateOf(header); !date.IsZero() {
		l.latest.Store(&sighting{date, sent})
	}
}

// serviceTime returns the service's time by the latest response; zero: not known. It may be too
// late, but not too early: the request was sent before the Date, and the wall clock counts the time
// of a suspended process too.
func (l *Ledger) serviceTime() time.Time {
	s := l.latest.Load()
	if s == nil {
		return time.Time{}
	}
	return s.date.Add(max(time.Since(s.sent), ledger.WallClock().Sub(s.sent.Round(0))))
}

// clock asks the service for its time, with a list of flavors. The function that it returns gives
// that time plus what has passed since, by the monotonic clock; zero if the service did not say it.
func (l *Ledger) clock(ctx context.Context) func() time.Time {
	var response Response
	_, _ = l.client.Flavors.List(ctx, append(polling(nil), urgent, WithResponse(&response))...)
	date, at := dateOf(response.Header), time.Now()
	return func() time.Time {
		if date.IsZero() {
			return date
		}
		return date.Add(time.Since(at))
	}
}

// inform logs that a call waits until the create of an entry is certainly over.
func (l *Ledger) inform(ctx context.Context, text string, e ledger.Entry, date time.Time) {
	if l.log != nil {
		l.log.InfoContext(ctx, text, "key", e.Key, "at_most", e.SettlesIn(date))
	}
}

// read returns the entries of a key and its highest Seq, as [ledger.Journal.Read] does.
func (l *Ledger) read(ctx context.Context, key string) (entries []ledger.Entry, last int64, err error) {
	if l.journal == nil {
		return nil, 0, ErrNoLedger
	}
	return l.journal.Read(ctx, key)
}

// fail makes a ledger.Error from err, without secrets: see [ledger.Wrap].
func (l *Ledger) fail(op string, e ledger.Entry, err error) error {
	return ledger.Wrap(op, e, l.client.safe(err))
}

// vouch lets the rules of evidence know the token with which an endpoint was created, if the
// ledger has it. It waits for the store for [ledger.Patience] at most.
func (l *Ledger) vouch(ctx context.Context, id string) {
	if l.journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ledger.Patience)
	defer cancel()
	if e, _ := l.journal.Owner(ctx, id); e != nil {
		l.client.endpoints.Vouch(id, e.Intent, e.TokenCheck)
	}
}
