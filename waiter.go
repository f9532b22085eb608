package svc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/poll"
)

const (
	// maxHistory is how many changes of the status a WaitError keeps. It keeps the latest.
	maxHistory = 64
	// maxJunk is how many polls in a row may get a response that is not the service's own,
	// such as an HTML page of a proxy. One more ends the wait.
	maxJunk = 5
)

// waiter is a wait for a record of any kind.
type waiter[T any] struct {
	opts   *WaitOptions // the defaults are filled in
	client *Client
	// poll reads the record once. deleted means that the deletion is proven: by IsDeleted of the
	// record, or by err, which is then a "not found".
	poll     func(context.Context) (record *T, deleted bool, err error)
	status   func(*T) string
	probe    func(context.Context) error // must succeed before the wait succeeds; nil: no probe
	deletion bool                        // the wait ends with success when the record is deleted
	patient  bool                        // the wait tolerates any status except 401 and 403, and any number of junk responses
	slots    chan struct{}               // shared by many waits: each poll needs a free slot; nil: no limit
	unfit    error                       // why the wait cannot begin; nil: it can
	start    time.Time
	last     *T   // the record that was read last
	changed  bool // the latest poll read a status that differs from the one that was read before
	junk     int  // number of polls in a row that got a response that is not the service's own
	outcome  WaitError
}

// run polls until the given function returns true, or until an error or ctx ends the wait.
func (w *waiter[T]) run(ctx context.Context, until func(*T) (bool, error)) (*T, error) {
	if w.unfit != nil {
		return nil, w.failed(w.unfit)
	}
	pace := poll.New(ctx, w.opts.MinInterval, w.opts.MaxInterval)
	for {
		record, deleted, err := w.limited(ctx)
		if err != nil && !deleted && ctx.Err() != nil {
			return w.last, w.failed(cause.Of(ctx))
		}
		if deleted && w.deletion {
			err = nil
		}
		w.note(record, err)
		done, end := w.judge(record, deleted, err, until)
		if done && w.probe != nil {
			if err = w.probe(ctx); err != nil {
				w.outcome.LastErr, done = err, false
				if cause.Has[*permanentError](err) {
					end = err
				}
			}
		}
		if done || end != nil {
			w.tell(record, err, 0)
			if done {
				return record, nil
			}
			return w.last, w.failed(end)
		}
		next, another := pace.Next(w.limits(err))
		told := next
		if !another {
			told = 0
		}
		w.tell(record, err, told)
		if err := pace.Sleep(next); err != nil {
			return w.last, w.failed(err)
		}
	}
}

// judge decides whether a poll ends the wait. done: the wait ends with success. end: the
// error that the wait ends with.
func (w *waiter[T]) judge(record *T, deleted bool, err error, until func(*T) (bool, error)) (done bool, end error) {
	switch {
	case deleted && w.deletion:
		return true, nil
	case err == nil:
		return until(record)
	case deleted || !w.passing(err):
		return false, err
	}
	return false, nil
}

// limited polls once, as soon as there is a free slot.
func (w *waiter[T]) limited(ctx context.Context) (*T, bool, error) {
	if w.slots != nil {
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-ctx.Done():
			return nil, false, cause.Of(ctx)
		}
	}
	return w.poll(ctx)
}

func (w *waiter[T]) note(record *T, err error) {
	o := &w.outcome
	o.Polls++
	o.LastErr, w.changed = err, false
	if record == nil {
		return
	}
	w.last, w.junk = record, 0
	status := w.status(record)
	if n := len(o.History); n > 0 && o.History[n-1].Status == status {
		return
	}
	w.changed = true
	o.History = append(o.History, StatusChange{status, time.Now()})
	if len(o.History) > maxHistory {
		o.History = append(o.History[:0], o.History[1:]...)
	}
}

func (w *waiter[T]) tell(record *T, err error, next time.Duration) {
	if w.opts.OnPoll == nil {
		return
	}
	p := Poll{ID: w.outcome.ID, Changed: w.changed, Err: err, Number: w.outcome.Polls, Elapsed: time.Since(w.start), Next: next}
	if record == nil && err == nil { // a wait for a deletion succeeded
		p.Status, p.Changed = w.outcome.Want, true
	}
	if record != nil {
		p.Status = w.status(record)
		p.Service, _ = any(record).(*InferenceService)
	}
	w.opts.OnPoll(p)
}

// failed makes the error of the wait, without secrets.
func (w *waiter[T]) failed(err error) error {
	e := w.outcome
	e.Err, e.Elapsed = w.client.safe(err), time.Since(w.start)
	if e.LastErr == err { //nolint:errorlint // the very same value
		e.LastErr = nil
	}
	clean := w.client.caller.Redactor().String
	e.ID = clean(e.ID)
	if w.last == nil {
		return &e
	}
	e.last = fmt.Sprintf("last status %q", apierr.Label(w.status(w.last), clean))
	if e.Last, _ = any(w.last).(*InferenceService); e.Last != nil {
		if info := infoText(e.Last.StatusInfo); info != "" {
			e.last += fmt.Sprintf(", %q", apierr.Excerpt("text/plain", []byte(info), clean))
		}
	}
	return &e
}

// infoText returns the contents of status_info if it is a JSON string, and its JSON text if
// it is anything else.
func infoText(info json.RawMessage) string {
	var text string
	if json.Unmarshal(info, &text) == nil { // a string, or null, which leaves text empty
		return text
	}
	return string(info)
}

// limits returns the shortest and the longest delay before the next poll; 0: no limit. The
// service may ask for a longer delay. If only one more "not found" is needed to prove that
// the record is deleted, the delay is fixed.
func (w *waiter[T]) limits(err error) (atLeast, atMost time.Duration) {
	if a, ok := errors.AsType[*absence](err); ok && !a.provable.IsZero() {
		in := max(time.Until(a.provable), shortest)
		return in, in
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return min(e.RetryAfter, max(w.opts.MaxInterval, w.client.caller.MaxDelay())), 0
	}
	return 0, 0
}

// passing reports whether the wait continues after an error of a poll, because the next poll
// may succeed.
func (w *waiter[T]) passing(err error) bool {
	if a, ok := errors.AsType[*absence](err); ok {
		return a.doubt == nil || w.passing(a.doubt)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		switch s := e.StatusCode; {
		case httpcall.Transient(s), s == 408, s == 425, s >= 520:
			return true
		case e.foreign != "":
			return w.junkPasses()
		case s == 409 && w.deletion: // the endpoint is being changed, so it cannot be deleted yet
			return true
		case s == 404 || s == 410:
			return w.patient || time.Since(w.start) < w.opts.NotFoundGrace
		}
		return w.patient && !errors.Is(err, ErrUnauthorized) && !errors.Is(err, ErrForbidden)
	}
	if lost, ok := errors.AsType[*TransportError](err); ok {
		return lost.Attempts > 0 && !httpcall.Hopeless(lost.Err)
	}
	return cause.Has[*DecodeError](err) && w.junkPasses()
}

func (w *waiter[T]) junkPasses() bool {
	w.junk++
	return w.patient || w.junk <= maxJunk
}

// Permanent marks an error that another poll would not change: for example, a probe found
// the wrong version of the image. If [WaitOptions.Probe] returns such an error, the wait ends
// at once. The [WaitError] wraps err. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
