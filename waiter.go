package svc

import (
	"context"
	"errors"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/chain"
	"example.com/svc/internal/errbody"
	"example.com/svc/internal/poll"
)

const (
	// maxHistory is how many changes of status a WaitError keeps: the latest.
	maxHistory = 64
	// maxJunk is how many looks in a row may be answered with something else than
	// a record before a wait takes it for the truth.
	maxJunk = 5
)

// waiter is one wait under way, for a record of any kind.
type waiter[T any] struct {
	opts    *WaitOptions // with defaults
	get     func(context.Context) (*T, error)
	status  func(*T) string
	client  *Client
	probe   func(context.Context) error // asked when the wait would be over; nil: none
	looks   chan struct{}               // shared by many waits, to limit their looks; nil: no limit
	unfit   error                       // why the wait cannot even begin
	start   time.Time
	last    *T
	changed bool // the latest look saw another status than the one before
	junk    int  // looks in a row that were answered with something else than a record
	outcome WaitError
}

// judge says of a look's result whether the wait is over.
type judge[T any] func(record *T, err error) (done bool, end error)

// settle makes a judge of one that sees records only.
func settle[T any](until func(*T) (bool, error)) judge[T] {
	return func(record *T, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		return until(record)
	}
}

// run looks until the judge is satisfied, an error ends the wait, or ctx does.
func (w *waiter[T]) run(ctx context.Context, judge judge[T]) (*T, error) {
	if w.unfit != nil {
		return nil, w.failed(w.unfit)
	}
	pace := poll.New(ctx, w.opts.MinInterval, w.opts.MaxInterval)
	for {
		record, err := w.look(ctx)
		if err != nil && ctx.Err() != nil {
			return w.last, w.failed(cause.Of(ctx))
		}
		w.note(record, err)
		done, end := judge(record, err)
		if done && w.probe != nil {
			if err = w.probe(ctx); err != nil {
				w.outcome.LastErr, done = err, false
			}
		}
		if done {
			w.tell(record, nil, 0)
			return record, nil
		}
		if end != nil && (err == nil || !w.passing(end)) {
			w.tell(record, err, 0)
			return w.last, w.failed(end)
		}
		next, another := pace.Next(w.askedDelay(err))
		if another {
			w.tell(record, err, next)
		} else {
			w.tell(record, err, 0)
		}
		if err := pace.Sleep(next); err != nil {
			return w.last, w.failed(err)
		}
	}
}

// look reads the record once: the wait itself is what tries again.
func (w *waiter[T]) look(ctx context.Context) (*T, error) {
	if w.looks != nil {
		select {
		case w.looks <- struct{}{}:
			defer func() { <-w.looks }()
		case <-ctx.Done():
			return nil, cause.Of(ctx)
		}
	}
	return w.get(ctx)
}

func (w *waiter[T]) note(record *T, err error) {
	o := &w.outcome
	o.Polls++
	o.LastErr, w.changed = err, false
	if err != nil {
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
	if record == nil && err == nil { // what was waited for is that there is none
		p.Status, p.Changed = w.outcome.Want, true
	}
	if record != nil {
		p.Status = w.status(record)
		p.Service, _ = any(record).(*InferenceService)
		p.Job, _ = any(record).(*Job)
	}
	w.opts.OnPoll(p)
}

func (w *waiter[T]) failed(err error) error {
	e := w.outcome
	e.Err, e.Elapsed = err, time.Since(w.start)
	if e.LastErr == err { //nolint:errorlint // the very same value
		e.LastErr = nil
	}
	if w.last != nil {
		e.Last, _ = any(w.last).(*InferenceService)
		e.LastJob, _ = any(w.last).(*Job)
	}
	clean := w.client.chain.Redactor().String
	e.Err, e.name = w.client.safe(e.Err), clean(e.ID)
	if w.last != nil {
		e.status = errbody.ExcerptScrubbed("text/plain", []byte(w.status(w.last)), clean)
	}
	if e.Last != nil && e.Last.StatusInfo != nil && *e.Last.StatusInfo != "" {
		e.info = errbody.ExcerptScrubbed("text/plain", []byte(*e.Last.StatusInfo), clean)
	}
	return &e
}

// askedDelay is the delay that the service asked for, as far as it is heeded.
func (w *waiter[T]) askedDelay(err error) time.Duration {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return 0
	}
	return min(e.RetryAfter, max(w.opts.MaxInterval, w.client.chain.MaxDelay()))
}

// passing reports whether an error of a look may pass by itself.
func (w *waiter[T]) passing(err error) bool {
	if answer, ok := errors.AsType[*Error](err); ok {
		s, missing := answer.StatusCode, errors.Is(err, ErrNotFound)
		switch {
		case chain.Transient(s), s == 408, s == 425, s >= 520, missing && time.Since(w.start) < w.opts.NotFoundGrace:
			return true
		case missing && !notFound(err):
			return w.junkPasses()
		}
		return false
	}
	if lost, ok := errors.AsType[*TransportError](err); ok {
		return lost.Attempts > 0 && !chain.Hopeless(lost.Err)
	}
	return cause.Has[*DecodeError](err) && w.junkPasses()
}

// junkPasses takes a proxy's page for a matter of a moment, but not for ever.
func (w *waiter[T]) junkPasses() bool {
	w.junk++
	return w.junk <= maxJunk
}
