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
	"example.com/svc/internal/rules"
	"example.com/svc/ledger"
)

// A claim records one create: its intent before it is sent, and its outcome afterwards.
type claim struct {
	ledger  *Ledger
	intent  ledger.Record      // the record of the intent; its Seq is 0 if nothing was recorded
	earlier *ledger.Entry      // open entry of the key, in place of which nothing may be sent; nil if there is none
	cancel  context.CancelFunc // ends the context of the create
}

var errSettleBy = cause.Alone{Err: &httpcall.TimeoutError{After: ledger.SettleLimit}}

// open waits until the key is free, records the intent of a prepared create, and adds the mark to
// its body. An empty key means a random one. If the key has an endpoint of the same request, open
// sets earlier. Otherwise the create must be sent with the context that open returns.
func (l *Ledger) open(ctx context.Context, k *call, key string, lease time.Duration) (*claim, context.Context, error) {
	c := &claim{ledger: l}
	key = cmp.Or(key, strings.ToLower(rand.Text()))
	want, err := ledger.ParseRequest(k.Body)
	if err != nil {
		return c, ctx, invalid("body", err.Error())
	}
	for claimed := false; !claimed; {
		verdict, e, last, err := l.journal.Await(ctx, key, lease, want, l.awaited)
		switch {
		case verdict == ledger.InDoubt:
			return c, ctx, l.inDoubt(e, err)
		case err != nil:
			return c, ctx, l.notSent(ctx, k, err)
		case verdict == ledger.Resume:
			l.client.endpoints.Create(e.ServiceID, nil) // the endpoint may not be readable yet
			c.earlier, k.done = &e, true
			return c, ctx, nil
		case c.intent.Intent == "":
			if err := k.pick(ctx); err != nil {
				return c, ctx, err
			}
			if c.intent, k.Body, err = want.Intend(key, l.client.base.String(), k.Body, l.marks); err != nil {
				return c, ctx, invalid("description", err.Error())
			}
		}
		k.Marks = []string{c.intent.Intent, idField[services]}
		c.intent.Seq, c.intent.Lease, c.intent.ServiceTime = last+1, lease, l.serviceTime()
		if claimed, err = l.journal.Claim(ctx, &c.intent); err != nil {
			return c, ctx, l.notSent(ctx, k, err)
		}
	}
	k.Before = func() error { // by the wall clock, which continues while the process is suspended
		if ledger.WallClock().Before(c.intent.SettleBy) {
			return nil
		}
		return errors.New("svc: the create was not sent: its time limit in the ledger has passed, by the wall clock (the process may have been suspended)")
	}
	ctx, c.cancel = context.WithDeadlineCause(ctx, c.intent.At.Add(ledger.SettleLimit), errSettleBy)
	return c, ctx, nil
}

// inDoubt returns the error of a create that was not sent, since the create of entry e may have
// taken effect.
func (l *Ledger) inDoubt(e ledger.Entry, err error) error {
	return &OutcomeUnknownError{
		RequestInfo: RequestInfo{Method: http.MethodPost, Route: services, ID: e.ServiceID}, Name: e.Name, Err: l.client.safe(err),
		Key: e.Key, Intent: e.Intent, earlier: true,
	}
}

// awaited logs that a create waits for the create of an entry. It returns the service's clock.
func (l *Ledger) awaited(ctx context.Context, e ledger.Entry) func() time.Time {
	clock, _ := l.clock(ctx)
	l.client.log.InfoContext(ctx, "svc: waiting for the outcome of another create under the key",
		"key", e.Key, "at_most", e.SettlesIn(clock()))
	return clock
}

// close records the outcome of the create. It must be deferred, with the results of the create. If
// both are nil, a caller-supplied function has panicked or ended the goroutine, and the Result of
// the call determines the outcome. If the ledger cannot record the outcome, close adds a
// ledger.Error to err.
func (c *claim) close(ctx context.Context, k *call, s **InferenceService, err *error) {
	c.cancel()
	if panicked := *s == nil && *err == nil; panicked && (k.Result.Acted || k.Result.StatusCode != 0) {
		made := new(InferenceService)
		if *err = c.ledger.client.verdict(k, made); *err == nil {
			*s = made
		}
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

// explainMark adds to an error about a description that the ledger has added a mark to it.
func (l *Ledger) explainMark(err error) error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok, l.journal == nil, !l.marks, e.StatusCode/100 != 4, !bytes.Contains(bytes.ToLower(e.Body), []byte("description")):
		return err
	}
	return fmt.Errorf("%w; the ledger added its mark of %d characters to the description: see WithoutLedgerMark", err, ledger.MarkLength)
}

// notSent returns the error of a call that the ledger stopped before it was sent. If ctx has
// ended, the error is why ctx ended.
func (l *Ledger) notSent(ctx context.Context, k *call, err error) error {
	if cause.Has[*ledger.Error](err) && ctx.Err() != nil {
		k.Result.Fail = fmt.Errorf("%w: nothing was sent", l.client.safe(cause.Of(ctx)))
		return l.client.transportError(k)
	}
	return err
}

// dateOf returns the service's time from the Date header of a response, or zero if there is none.
func dateOf(h http.Header) (date time.Time) {
	if !aged(h) {
		date, _ = http.ParseTime(h.Get("Date"))
	}
	return date.UTC()
}

// A dateSample is the Date of a response and the time when its request was sent.
type dateSample struct{ date, sent time.Time }

// serviceTime estimates the service's time from the latest response, or returns zero if there is
// none. The estimate may be late but not early: the request was sent before the Date, and the wall
// clock includes the time for which a process was suspended.
func (l *Ledger) serviceTime() time.Time {
	if s := l.latest.Load(); s != nil {
		return s.date.Add(max(time.Since(s.sent), ledger.WallClock().Sub(s.sent.Round(0))))
	}
	return time.Time{}
}

// clock reads the service's time from the response to a list of flavors. The returned function
// adds the time that has passed since, by the monotonic clock. If the time is not known, the
// function returns zero, and the error is the reason.
func (l *Ledger) clock(ctx context.Context) (func() time.Time, error) {
	var response Response
	_, err := l.client.Flavors.List(ctx, append(polling(nil), urgent, WithResponse(&response))...)
	date, at := dateOf(response.Header), time.Now()
	if date.IsZero() {
		err = cmp.Or(err, errors.New("the response has no Date header, or a cache sent it"))
		return func() time.Time { return date }, fmt.Errorf("the service's time is not known: %w", err)
	}
	return func() time.Time { return date.Add(time.Since(at)) }, nil
}

// read returns the entries of a key and its highest Seq, as [ledger.Journal.Read] does.
func (l *Ledger) read(ctx context.Context, key string) (entries []ledger.Entry, last int64, err error) {
	if l.journal == nil {
		return nil, 0, ErrNoLedger
	}
	return l.journal.Read(ctx, key)
}

// fail returns a ledger.Error from err, without secrets: see [ledger.Wrap].
func (l *Ledger) fail(op string, e ledger.Entry, err error) error {
	return ledger.Wrap(op, e, l.client.safe(err))
}

// markKnown marks an ID as known for the token with which the ledger recorded its create. It
// waits for the store for [ledger.Patience] at most.
func (l *Ledger) markKnown(ctx context.Context, id string) error {
	if l.journal == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledger.Patience)
	defer cancel()
	e, err := l.journal.Owner(ctx, id)
	if e != nil {
		l.client.endpoints.MarkKnown(id, e.Intent, e.TokenCheck)
	}
	return err
}

// scale records a prepared change if it raises the number of instances. A change that lowers the
// bill does not wait for the ledger.
func (l *Ledger) scale(ctx context.Context, k *call) (*ledger.Scaling, error) {
	if l.journal == nil {
		return nil, nil
	}
	want, err := ledger.ParseRequest(k.Body)
	if err != nil {
		return nil, invalid("body", err.Error())
	}
	if want.Instances < 0 {
		return nil, nil
	}
	s, lowers, err := l.journal.Scale(ctx, k.ID, want.Instances, func() bool {
		now, err := l.client.InferenceServices.Get(ctx, k.ID, urgent)
		return err == nil && want.Instances <= int(now.ResourceMetadata.TargetInstanceNumber)
	})
	k.Urgent = k.Urgent || lowers
	return s, l.notSent(ctx, k, err)
}

// scaled records the outcome of a change. It must be deferred.
func (l *Ledger) scaled(ctx context.Context, s *ledger.Scaling, k *call, updated **InferenceService) {
	if s != nil {
		status := cmp.Or(k.Result.StatusCode, http.StatusBadRequest) // 0 if nothing was sent
		l.behind(ctx, k.ID, ledger.Scaled, s.Close(ctx, *updated != nil, !k.Result.Acted && status >= http.StatusBadRequest))
	}
}

// deleted records in the ledger that an endpoint is deleted, if the evidence of o proves that. It must
// come after the last delete, which voids the evidence if the service accepts it. o may be nil.
func (l *Ledger) deleted(ctx context.Context, o *observer) {
	if l.journal != nil && orZero(o).evidence.Verdict == rules.Deleted {
		l.behind(ctx, o.id, ledger.Deleted, l.journal.Deleted(ctx, o.id, o.gone))
	}
}

// behind logs that an event of an endpoint could not be recorded.
func (l *Ledger) behind(ctx context.Context, id string, event ledger.Event, err error) {
	if err != nil {
		l.client.warn(ctx, "svc: the ledger could not be updated", err, "id", l.client.clean(id), "event", string(event))
	}
}
