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
	// maxHistory is how many changes of status a WaitError keeps: the latest.
	maxHistory = 64
	// maxJunk is how many polls in a row may get a response that is not the service's own,
	// such as an HTML page of a proxy.
	maxJunk = 5
)

// waiter is a wait under way, for a record of any kind.
type waiter[T any] struct {
	opts   *WaitOptions // with defaults
	client *Client
	// poll reads the record once. With an error, deleted says that its absence is proven.
	poll     func(context.Context) (record *T, deleted bool, err error)
	status   func(*T) string
	probe    func(context.Context) error // called before the wait succeeds; nil: none
	deletion bool                        // the wait is for the record to be deleted
	patient  bool                        // tolerates every error that may pass, until ctx ends
	slots    chan struct{}               // shared by many waits, to limit their polls; nil: no limit
	unfit    error                       // why the wait cannot begin
	start    time.Time
	last     *T
	changed  bool // the latest poll saw another status than the one before
	junk     int  // polls in a row that got a response that is not the service's own
	outcome  WaitError
}

// run polls until the function returns true, or until an error or ctx ends the wait.
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

// judge says whether a poll ends the wait: done with success, end with an error.
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

// limited polls when there is a slot for it.
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

// infoText is what status_info says: a text, or any other JSON as it is.
func infoText(info json.RawMessage) string {
	var text string
	if json.Unmarshal(info, &text) == nil { // null too
		return text
	}
	return string(info)
}

// limits are the shortest and the longest delay before the next poll. The service may ask
// for a longer delay. Proving an absence needs a poll soon.
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

// passing reports whether the wait tolerates an error of a poll, since it may pass by
// itself.
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
		case s == 409 && w.deletion: // an endpoint that is being changed
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

// Permanent marks an error that another poll would not change, such as a probe that
// finds the wrong version of the image. [WaitOptions.Probe] returns it to end its wait
// at once. The wait's error wraps err. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
