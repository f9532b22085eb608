package svc

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"example.com/svc/internal/apart"
	"example.com/svc/internal/errbody"
)

// WaitOptions sets up a wait. Nil stands for the zero value, and that for the
// defaults. How long a wait may take is up to its ctx alone.
type WaitOptions struct {
	// MinInterval is the time from the first look to the second; each one after it
	// is longer by half, up to MaxInterval. Zero or less stands for 1 s and 15 s; if
	// only one of them is set, the other adapts to it. Each is then varied by a
	// fifth either way, so that many waits do not look in step. After an answer with
	// a Retry-After, the next look comes no sooner than that, up to the MaxDelay of
	// [RetryPolicy].
	//
	// A look is one attempt: the wait itself is what tries again, and the rest of
	// [RetryPolicy] does not apply.
	MinInterval, MaxInterval time.Duration

	// NotFoundGrace is how long after the start of the wait "not found" counts
	// as "not there yet": a new record may not be readable at once. Zero: 30 s in
	// Deploy, else none. Negative: none.
	NotFoundGrace time.Duration

	// OnPoll is called after every look, from the goroutine that waits. WaitAll makes
	// one call at a time, but not in the goroutine of its loop: what the two share
	// needs a lock.
	OnPoll func(Poll)

	// Probe is asked, once the service says available, whether the endpoint
	// really answers at its url. An error means "not yet", and the wait goes on.
	// Its ctx is limited to 30 s. It needs WithInferenceURL.
	Probe func(ctx context.Context, url string) error
}

// Poll describes one look of a wait to [WaitOptions.OnPoll].
type Poll struct {
	ID      string            // of what is waited for
	Status  string            // empty when the look failed; "deleted" when that was waited for
	Service *InferenceService // the record; nil when the look failed, and in a wait for a job
	Job     *Job              // likewise for a job
	Changed bool              // the status is another than that of the last look that succeeded
	Err     error             // why the look failed, or what the probe said; the wait goes on
	Number  int               // 1 for the first
	Elapsed time.Duration     // since the start of the wait
	Next    time.Duration     // until the next look; 0: there is none
}

// StatusChange is a status and when a wait saw it first.
type StatusChange struct {
	Status string
	At     time.Time
}

// WaitError says why a wait ended without what it waited for. An inference
// service may still be running, and billed.
type WaitError struct {
	ID      string            // of what was waited for
	Want    string            // "available"
	Last    *InferenceService // the record as seen last; nil if it was never read, and for a job
	LastJob *Job              // likewise for a job
	History []StatusChange    // at most the latest 64
	Polls   int
	Elapsed time.Duration
	LastErr error // of the last look, if that failed
	Err     error // why the wait ended: ErrUnavailable, the end of ctx, an Error, …

	// What the ID, and the last record's status and status_info, may show in a text.
	name, status, info string
}

// Error tells the story of the wait in one line.
func (e *WaitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "svc: waiting for %s to be %s: %s (", orElse(orElse(e.name, e.ID), "a record"), e.Want, detail(e.Err))
	switch n := len(e.History); {
	case e.status != "":
		fmt.Fprintf(&b, "last status %q", e.status)
	case n > 0:
		fmt.Fprintf(&b, "last status %q", errbody.Excerpt("text/plain", []byte(e.History[n-1].Status)))
	default:
		b.WriteString("never read")
	}
	if e.info != "" {
		fmt.Fprintf(&b, ", %q", e.info)
	}
	polls := "polls"
	if e.Polls == 1 {
		polls = "poll"
	}
	fmt.Fprintf(&b, "; %d %s in %v)", e.Polls, polls, e.Elapsed.Round(time.Millisecond))
	if e.LastErr != nil {
		b.WriteString("; the last look failed: " + detail(e.LastErr))
	}
	return errbody.Line(b.String())
}

// Unwrap gives the reason, and the last look's error. To ask for the reason
// alone, ask Err.
func (e *WaitError) Unwrap() []error {
	if e.LastErr != nil {
		return []error{e.Err, e.LastErr}
	}
	return []error{e.Err}
}

var errDeleted = fmt.Errorf("%w: the record says that it is deleted", ErrNotFound)

// WaitUntilAvailable waits until an endpoint is available. It ends at once, with
// a [WaitError], when the status is unavailable ([ErrUnavailable]) or stopped
// ([ErrStopped]) or the record deleted ([ErrNotFound]), on a 401 or 403 and on
// any other error that will not pass by itself. What may pass is lived through
// until ctx ends: lost connections and attempts that take too long; 408, 425, 429,
// 500, 502, 503, 504 and 520 or more; "not found" for [WaitOptions.NotFoundGrace];
// and up to 5 answers in a row that are no record, such as a proxy's page, also
// one with a 404. A status that this package does not know means "not yet". The last
// record is returned along with an error.
//
// Right after a create, set NotFoundGrace, or use Deploy: a new id may not be
// readable yet.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) WaitUntilAvailable(ctx context.Context, id string, opts *WaitOptions) (*InferenceService, error) {
	return c.wait(id, "available", opts.withDefaults(0), true).run(ctx, settle(untilAvailable))
}

// WaitUntilDeleted waits until an endpoint is gone: the service does not find it
// any more, or its record says that it is deleted. It deletes nothing. An endpoint
// that was just created may not be readable yet: until [WaitOptions.NotFoundGrace]
// is over, "not found" counts only if the wait has read the record before. A 404
// with a page of markup is a proxy's, and never counts.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) WaitUntilDeleted(ctx context.Context, id string, opts *WaitOptions) error {
	w := c.wait(id, "deleted", opts.withDefaults(0), false)
	_, err := w.run(ctx, func(s *InferenceService, err error) (bool, error) {
		switch {
		case notFound(err) && (w.last != nil || time.Since(w.start) >= w.opts.NotFoundGrace):
			return true, nil
		case err != nil:
			return false, err
		}
		return s.IsDeleted, nil
	})
	return err
}

// Wait waits until the function says true of the record, or ends with its error
// inside a [WaitError]. Nothing else in the record ends it; that it is not found
// does, after [WaitOptions.NotFoundGrace], as do the errors that end
// [InferenceServiceClient.WaitUntilAvailable]. Use it for conditions of your own;
// [WaitOptions.Probe] is not asked.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) Wait(ctx context.Context, id string, until func(*InferenceService) (bool, error), opts *WaitOptions) (*InferenceService, error) {
	w := c.wait(id, "as asked", opts.withDefaults(0), false)
	if until == nil {
		w.unfit = &ValidationError{Fields: []FieldError{{"until", "is nil"}}}
	}
	return w.run(ctx, settle(until))
}

// ScaleAndWait sets the number of instances and waits until the record shows
// that number with the status available; for 0 instances, stopped will do. A
// record that still shows the state from before is not believed. An error of the
// change itself is the one of [InferenceServiceClient.Update], with no record;
// after that it is a [WaitError], with the last record.
//
// PUT, then GET /v1/inference-service/{service_id}
func (c *InferenceServiceClient) ScaleAndWait(ctx context.Context, id string, instances int, opts *WaitOptions) (*InferenceService, error) {
	o := opts.withDefaults(0)
	if instances == 0 {
		o.Probe = nil // nothing is left that could answer
	}
	if o.Probe != nil {
		if _, err := c.URL(id); err != nil {
			return nil, err // better now than with the change made
		}
	}
	s, err := c.Scale(ctx, id, instances)
	if err != nil {
		return s, err
	}
	want := fmt.Sprintf("available with %d instances", instances)
	return c.wait(id, want, o, true).run(ctx, settle(func(s *InferenceService) (bool, error) {
		switch {
		case s.deleted(): // no more to be scaled
		case int64(s.ResourceMetadata.TargetInstanceNumber) != int64(instances):
			return false, nil
		case instances == 0 && s.Status == InferenceServiceStatusStopped:
			return true, nil
		}
		return untilAvailable(s)
	}))
}

// maxLooks is how many looks WaitAll has under way at once.
const maxLooks = 64

// WaitAll waits for many endpoints at once, as [InferenceServiceClient.WaitUntilAvailable]
// does for one, and yields each as it settles: its record, or its error, which is
// a [WaitError] that names it, along with the last record. Leaving the loop ends
// all waits. At most 64 looks are under way at a time. An id that is there twice is
// waited for twice, and no ids yield nothing.
func (c *InferenceServiceClient) WaitAll(ctx context.Context, ids []string, opts *WaitOptions) iter.Seq2[*InferenceService, error] {
	type settled struct {
		service *InferenceService
		end     apart.End // with the error of the wait
	}
	return func(yield func(*InferenceService, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var waits sync.WaitGroup
		defer waits.Wait()
		defer cancel()

		o := opts.withDefaults(0)
		if onPoll := o.OnPoll; onPoll != nil {
			one := make(chan struct{}, 1) // not a mutex, which would stop the clock of a synctest bubble
			o.OnPoll = func(p Poll) {
				one <- struct{}{}
				defer func() { <-one }()
				onPoll(p)
			}
		}
		looks := make(chan struct{}, maxLooks)
		results := make(chan settled, len(ids))
		for _, id := range ids {
			waits.Go(func() {
				w := c.wait(id, "available", o, true)
				w.looks = looks
				var s *InferenceService
				apart.Run(func() (err error) {
					s, err = w.run(ctx, settle(untilAvailable))
					return err
				}, func(e apart.End) { results <- settled{s, e} })
			})
		}
		for range ids {
			r := <-results
			// A panic of a function of the caller's belongs here, like that of any other wait.
			if !yield(r.service, r.end.Here()) {
				return
			}
		}
	}
}

// untilAvailable judges a record for a wait that wants it available.
func untilAvailable(s *InferenceService) (bool, error) {
	switch {
	case s.deleted():
		return false, errDeleted
	case s.Status == InferenceServiceStatusAvailable:
		return true, nil
	case s.Status == InferenceServiceStatusUnavailable:
		return false, ErrUnavailable
	case s.Status == InferenceServiceStatusStopped:
		return false, ErrStopped
	}
	return false, nil
}

// wait makes a wait for an endpoint; with a probe, if there is one and the wait
// is for it to be available.
func (c *InferenceServiceClient) wait(id, want string, o *WaitOptions, probe bool) *waiter[InferenceService] {
	w := &waiter[InferenceService]{
		opts: o, start: time.Now(), outcome: WaitError{ID: id, Want: want},
		get:    func(ctx context.Context) (*InferenceService, error) { return c.Get(ctx, id, WithMaxAttempts(1)) },
		status: func(s *InferenceService) string { return string(s.Status) },
		client: c.client,
	}
	if probe && o.Probe != nil {
		var url string
		url, w.unfit = c.URL(id)
		w.probe = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
			defer cancel()
			if err := o.Probe(ctx, url); err != nil {
				return fmt.Errorf("svc: probe: %w", c.client.safe(err))
			}
			return nil
		}
	}
	return w
}

// shortest is the shortest interval: whatever is asked for, a wait is no storm.
const shortest = time.Millisecond

func (o *WaitOptions) withDefaults(grace time.Duration) *WaitOptions {
	w := new(WaitOptions)
	if o != nil {
		*w = *o
	}
	switch {
	case w.MinInterval <= 0 && w.MaxInterval <= 0:
		w.MinInterval, w.MaxInterval = time.Second, 15*time.Second
	case w.MinInterval <= 0:
		w.MinInterval = min(time.Second, w.MaxInterval)
	case w.MaxInterval <= 0:
		w.MaxInterval = max(15*time.Second, w.MinInterval)
	default:
		w.MaxInterval = max(w.MinInterval, w.MaxInterval)
	}
	w.MinInterval, w.MaxInterval = max(w.MinInterval, shortest), max(w.MaxInterval, shortest)
	if w.NotFoundGrace == 0 {
		w.NotFoundGrace = grace
	}
	return w
}
