package svc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/poll"
	"example.com/svc/internal/rules"
)

// maxHistory is the maximum number of status changes that a WaitError keeps, the latest ones.
const maxHistory = 64

// latePollLimit is the time limit for the poll that a wait makes after its deadline if the
// process was suspended.
const latePollLimit = 10 * time.Second

// waiter is a wait for a record of any kind.
type waiter[T any] struct {
	opts   *WaitOptions // the defaults are filled in
	client *Client
	// poll reads the record once. If the verdict is Deleted, err is nil or a "not found".
	poll     func(context.Context) (record *T, verdict rules.Verdict, err error)
	by       *observer // collects the evidence of the polls; nil if the record is not an endpoint
	later    bool      // the caller may send a delete, and records a deletion in the ledger after that
	status   func(*T) string
	probe    func(context.Context) error // must succeed before the wait succeeds; nil means no probe
	deletion bool                        // the wait ends with success when the record is deleted
	unfit    error                       // why the wait cannot begin; nil if it can
	start    time.Time
	began    time.Time // when the latest poll began
	failures rules.Failures
	last     *T // the record that was read last
	outcome  WaitError
}

// polled is the result of one poll of a wait.
type polled[T any] struct {
	record  *T
	changed bool          // the status differs from the one that was read before
	err     error         // why the poll or the probe failed
	done    bool          // the wait ends with success
	end     error         // why the wait ends without success; nil if it does not
	next    time.Duration // time until the next poll; if 0, this was the last poll
}

// run polls until the given function returns true, or until an error or ctx ends the wait. It
// returns the record that was read last.
func (w *waiter[T]) run(ctx context.Context, until func(*T) (bool, error)) (*T, error) {
	if w.unfit != nil {
		return nil, w.failed(w.unfit)
	}
	pace := poll.Pacer{Lowest: w.opts.MinInterval, Highest: w.opts.MaxInterval}
	for {
		w.began = time.Now()
		p := w.once(ctx, until)
		switch {
		case p.done, p.end != nil:
			w.tell(p)
			return w.last, w.over(ctx, p.end)
		case p.err != nil && ctx.Err() != nil:
			deadline, _ := ctx.Deadline()
			late := min(time.Since(deadline), time.Since(w.start)) // a create may have outlasted ctx before the wait began
			return w.again(ctx, until, rules.WasSuspended(0, late))
		}
		var atLeast, atMost time.Duration
		if p.err != nil {
			atLeast, atMost = w.limits(p.err)
		}
		next, another := pace.Next(ctx, time.Since(w.began), atLeast, atMost)
		if another {
			p.next = next
		}
		polled := time.Now()
		w.tell(p)
		if poll.Sleep(ctx, next) != nil {
			return w.again(ctx, until, rules.WasSuspended(next, time.Since(polled)))
		}
	}
}

// again ends a wait whose ctx has ended. If the process was suspended until after the deadline, the
// latest poll is too old for a verdict, so again polls once more.
func (w *waiter[T]) again(ctx context.Context, until func(*T) (bool, error), suspended bool) (*T, error) {
	why := cause.Of(ctx)
	if suspended && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), latePollLimit)
		defer cancel()
		p := w.once(late, until)
		w.tell(p)
		if p.done || p.end != nil {
			why = p.end
		}
	}
	return w.last, w.over(ctx, why)
}

// over records a deletion in the ledger, and reports the end of the wait, except for a cleanup, whose
// caller reports it. It returns the error of the wait, or nil if why is nil.
func (w *waiter[T]) over(ctx context.Context, why error) error {
	if !w.later {
		w.client.Ledger.deleted(ctx, w.by)
	}
	if why != nil {
		why = w.failed(why)
	}
	if w.failures.Task != rules.Cleanup {
		w.client.waited(ctx, WaitEnd{ID: w.outcome.ID, Want: w.outcome.Want, Elapsed: time.Since(w.start), Err: why})
	}
	return why
}

// once polls once, stores what it has read, and decides whether the wait ends.
func (w *waiter[T]) once(ctx context.Context, until func(*T) (bool, error)) (p polled[T]) {
	var verdict rules.Verdict
	p.record, verdict, p.err = w.poll(ctx)
	deleted := verdict == rules.Deleted
	switch {
	case deleted && w.deletion:
		p.done, p.err = true, nil
	case !deleted && p.err != nil && ctx.Err() != nil:
		return p
	}
	w.note(&p)
	switch {
	case p.done:
	case p.err == nil:
		w.failures = rules.Failures{Task: w.failures.Task}
		if p.done, p.end = until(p.record); deleted && !p.done && p.end == nil {
			p.end = errDeleted
		}
	case deleted:
		p.end = p.err
	case verdict == rules.Unknown && w.failures.Task.EndsUnknown():
		text := ": not found with this token; it is deleted, its ID is mistyped, or it is of another account"
		p.end = &explained{detail(p.err) + text, []error{p.err}}
	case w.by == nil && notFound(p.err) && time.Since(w.start) >= w.opts.NotFoundGrace: // only endpoints need evidence
		p.end = p.err
	case !w.client.continues(&w.failures, p.err):
		p.end = p.err
	}
	if p.done && w.probe != nil {
		p.err = w.probe(ctx)
		p.done, w.outcome.LastErr = p.err == nil, p.err
		if cause.Has[*permanentError](p.err) {
			p.end = p.err
		}
	}
	return p
}

// note stores what a poll has read.
func (w *waiter[T]) note(p *polled[T]) {
	o := &w.outcome
	o.Polls++
	if o.LastErr = p.err; p.record == nil {
		return
	}
	w.last = p.record
	status := w.status(p.record)
	if n := len(o.History); n == 0 || o.History[n-1].Status != status {
		p.changed = true
		o.History = append(o.History[max(n+1-maxHistory, 0):], StatusChange{status, time.Now()})
	}
}

// continues records a failure, and reports whether the task continues.
func (c *Client) continues(e *rules.Failures, err error) (continues bool) {
	f, contacts := failureOf(err), c.contacts.Load()
	if rules.Contact(f.Class, f.Status) {
		contacts-- // the failure itself
	}
	*e, continues = e.After(f, contacts > 0, time.Now())
	return continues
}

// failureOf describes the error of a call for the rules.
func failureOf(err error) rules.Failure {
	switch {
	case errors.Is(err, ErrNoToken) && !cause.Has[*httpcall.LocalError](err), cause.Has[*permanentError](err), cause.Has[*ValidationError](err):
		return rules.Failure{Final: true}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return rules.Failure{Class: e.class, Status: e.StatusCode}
	}
	if e, ok := errors.AsType[*DecodeError](err); ok {
		return rules.Failure{Class: e.class, Status: e.StatusCode, Undecodable: true}
	}
	if errors.Is(err, httpcall.ErrTooLarge) {
		return rules.Failure{Class: rules.Intermediary, Undecodable: true}
	}
	e, ok := errors.AsType[*TransportError](err)
	switch {
	case !ok, e.Attempts == 0, cause.Has[*httpcall.LocalError](err):
		return rules.Failure{Class: rules.Local}
	}
	return rules.Failure{Class: rules.Transport, Persistent: httpcall.Persistent(e.Err)}
}

func (w *waiter[T]) tell(p polled[T]) {
	if w.opts.OnPoll == nil {
		return
	}
	told := Poll{ID: w.outcome.ID, Changed: p.changed, Err: p.err, Number: w.outcome.Polls, Elapsed: time.Since(w.start), Next: p.next}
	switch {
	case p.record != nil:
		told.Status = w.status(p.record)
		told.Service, _ = any(p.record).(*InferenceService)
	case p.err == nil: // a wait for a deletion succeeded
		told.Status, told.Changed = w.outcome.Want, true
	}
	w.opts.OnPoll(told)
}

// failed returns the error of the wait, without secrets.
func (w *waiter[T]) failed(err error) error {
	e := w.outcome
	e.Err, e.Elapsed = w.client.safe(err), time.Since(w.start)
	if why, ok := err.(*explained); e.LastErr == err || ok && e.LastErr == why.errs[0] { //nolint:errorlint // the very same value
		e.LastErr = nil
	}
	e.ID = w.client.clean(e.ID)
	if w.last == nil {
		return &e
	}
	e.last = fmt.Sprintf("last status %q", apierr.Label(w.status(w.last), w.client.clean))
	if e.Last, _ = any(w.last).(*InferenceService); e.Last != nil {
		var info string // the contents of a JSON string, or other JSON as it is
		if json.Unmarshal(e.Last.StatusInfo, &info) != nil {
			info = string(e.Last.StatusInfo)
		}
		if info != "" {
			e.last += fmt.Sprintf(", %q", apierr.Excerpt("text/plain", []byte(info), w.client.clean))
		}
	}
	return &e
}

// limits returns the minimum and maximum delay after a failed poll; 0 means no limit. Retry-After
// may require a longer delay. If the next "not found" can prove a deletion, the next poll comes as
// soon as it can, and always before the proof is interrupted.
func (w *waiter[T]) limits(err error) (atLeast, atMost time.Duration) {
	if w.by != nil && rules.NotFound(failureOf(err).Status) {
		return 0, min(cmp.Or(max(time.Until(w.by.evidence.Due()), 0), rules.Silence), rules.Silence/2)
	}
	e, _ := errors.AsType[*Error](err)
	return min(orZero(e).RetryAfter, max(w.opts.MaxInterval, w.client.caller.MaxDelay())), 0
}

// Permanent marks an error that further polls would not change. For example, a probe found the
// wrong version of the image. If [WaitOptions.Probe] returns such an error, the wait ends at
// once. The [WaitError] wraps err. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
