package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/same"
)

// WaitOptions sets up a wait. A zero field selects its default. Nil options select all
// defaults. Only ctx limits how long a wait takes.
type WaitOptions struct {
	// MinInterval is the time between the first two polls. Each further interval is a quarter
	// longer, up to MaxInterval. Zero or less: 1 s for MinInterval, 15 s for MaxInterval. If
	// only one of the two is set, the default of the other is adapted, so that MinInterval is
	// not above MaxInterval. Each interval varies at random, so that many waits do not poll at
	// the same moment: it is up to a fifth shorter or a tenth longer.
	//
	// If a response has a Retry-After, the next poll comes no earlier than that time. The
	// limit for this delay is MaxInterval, or the MaxDelay of [RetryPolicy] if that is longer.
	// A poll is a single attempt: instead of a retry there is the next poll. So the other
	// fields of [RetryPolicy] do not apply to polls.
	MinInterval, MaxInterval time.Duration

	// NotFoundGrace is how long "not found" means "not readable yet", as long as this client
	// has never read the record. The time begins when this client created the endpoint. For
	// any other endpoint it begins with the wait. Zero: 30 s for an endpoint that this client
	// created, and 30 s in a wait for a deletion; no grace in any other wait. Negative: no
	// grace.
	NotFoundGrace time.Duration

	// OnPoll is called after every poll, from the goroutine that waits. WaitAll makes these
	// calls one at a time, but not from the goroutine of its loop: data that OnPoll and the
	// loop share needs a lock. Nil: no call.
	OnPoll func(Poll)

	// Probe is called when the status is available: it checks that the endpoint really
	// responds at its URL. An error of Probe means "not yet", and the wait continues. An error
	// made by [Permanent] ends the wait. The ctx of Probe is limited to 30 s. Without
	// [WithInferenceURL] a wait with a Probe fails at once with [ErrNoInferenceURL]. Nil: no
	// probe.
	Probe func(ctx context.Context, url string) error

	// RequestOptions are applied to every call that the wait makes, with two exceptions:
	// [WithBodyField] has an effect only in calls with a body, and [WithMaxAttempts] has no
	// effect in polls.
	RequestOptions []RequestOption
}

// Poll describes one poll of a wait to [WaitOptions.OnPoll].
type Poll struct {
	ID      string            // ID of the record
	Status  string            // status of the record; empty if the poll did not read it; "deleted" at the end of a wait for a deletion
	Service *InferenceService // the record; nil if the poll did not read it, and in a wait for a job
	Changed bool              // the status is new: it differs from the one that the wait read before
	Err     error             // why the poll, its delete or Probe failed; nil: none of them failed
	Number  int               // number of the poll; 1 for the first
	Elapsed time.Duration     // time since the start of the wait
	Next    time.Duration     // time until the next poll; 0: this was the last poll
}

// StatusChange is a status, and when a wait read it first.
type StatusChange struct {
	Status string    // the status as the service wrote it
	At     time.Time // time of the poll, by the local clock
}

// WaitError says why a wait ended without success. An inference service may still be
// running and billed.
type WaitError struct {
	ID      string            // ID of the record
	Want    string            // what the wait was for, such as "available"
	Last    *InferenceService // the record that was read last; nil if it was never read, and for a job
	History []StatusChange    // the changes of the status, oldest first; only the latest 64
	Polls   int               // number of polls
	Elapsed time.Duration     // time from the start of the wait to its end
	LastErr error             // why the last poll failed; nil if it succeeded, or if Err is the same error
	Err     error             // why the wait ended: ErrUnavailable, the end of ctx, an Error, …

	last string // text with the status and status_info of Last, without secrets; empty: the text uses History
}

// Error says why the wait ended, and what the last poll saw, in one line.
func (e *WaitError) Error() string {
	return apierr.Line(fmt.Sprintf("svc: waiting for %s to be %s: %s", cmp.Or(e.ID, "a record"), e.Want, e.detail()))
}

func (e *WaitError) detail() string {
	last := "no status"
	if n := len(e.History); n > 0 {
		last = fmt.Sprintf("last status %q", e.History[n-1].Status)
	}
	polls := "polls"
	if e.Polls == 1 {
		polls = "poll"
	}
	text := fmt.Sprintf("%s; %s after %d %s in %v", detail(e.Err), cmp.Or(e.last, last), e.Polls, polls, e.Elapsed.Round(time.Millisecond))
	if e.LastErr != nil {
		text += "; the last poll failed: " + detail(e.LastErr)
	}
	return text
}

// Unwrap returns Err and LastErr.
func (e *WaitError) Unwrap() []error {
	if e.LastErr != nil {
		return []error{e.Err, e.LastErr}
	}
	return []error{e.Err}
}

// WaitUntilAvailable waits until an endpoint is available. It ends at once, with
// a [WaitError], when the status is unavailable ([ErrUnavailable]) or stopped
// ([ErrStopped]), on a 401 or 403 of the service, and on any other error that a further poll
// cannot cure. It ends with [ErrNotFound] when the endpoint is deleted, by the rule of
// [InferenceServiceClient.WaitUntilDeleted].
//
// Until ctx ends, the wait tolerates lost connections, attempts that time out, and responses
// with 408, 425, 429, 500, 502, 503, 504, 520 or above. It tolerates "not found" for
// [WaitOptions.NotFoundGrace]. It also tolerates up to 5 responses in a row that are not the
// service's own, such as an HTML page of a proxy. A status of the endpoint that this package
// does not know means "not yet". Along with an error, it returns the last record that it read.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) WaitUntilAvailable(ctx context.Context, id string, opts *WaitOptions) (*InferenceService, error) {
	return c.wait(id, "available", opts.withDefaults(), true).run(ctx, untilAvailable)
}

// WaitUntilDeleted waits until an endpoint is deleted. It deletes nothing. An endpoint
// counts as deleted in two cases:
//   - its record has is_deleted set to true;
//   - two polls, at least 1 s apart, got "not found", and a request for the flavor list between
//     them got the list, or a 403 in JSON. This proves that the service itself responds: a
//     proxy or gateway can send a "not found" for any path.
//
// An endpoint that this client has never read may not be readable yet. For such an endpoint,
// "not found" does not count until [WaitOptions.NotFoundGrace] is over. So with the default,
// the wait takes about 30 s if the endpoint was deleted before this client could read it.
//
// GET /v1/inference-service/{service_id}, again and again, and GET
// /v1/inference-service/flavor
func (c *InferenceServiceClient) WaitUntilDeleted(ctx context.Context, id string, opts *WaitOptions) error {
	o := opts.withDefaults()
	_, err := c.untilDeleted(id, o, c.observe(id, o, newIDGrace).poll).run(ctx, isDeleted)
	return err
}

// DeleteAndWait deletes an endpoint and waits until it is deleted, by the rule of
// [InferenceServiceClient.WaitUntilDeleted]. A nil error means that the endpoint is
// deleted, and no longer billed. Any other error is a [WaitError].
//
// If this client has never read the record, DeleteAndWait reads it before it sends the
// delete: "not found" proves a deletion sooner if the record was read before. DeleteAndWait
// repeats the delete as long as the delete fails or has no visible effect.
//
// DELETE and GET /v1/inference-service/{service_id}, again and again, and GET
// /v1/inference-service/flavor
func (c *InferenceServiceClient) DeleteAndWait(ctx context.Context, id string, opts *WaitOptions) error {
	o := opts.withDefaults()
	r := &removal{observer: c.observe(id, o, newIDGrace)}
	_, err := c.untilDeleted(id, o, r.poll).run(ctx, isDeleted)
	return err
}

// untilDeleted prepares a wait for a deletion, which run starts.
func (c *InferenceServiceClient) untilDeleted(id string, o *WaitOptions, poll func(context.Context) (*InferenceService, bool, error)) *waiter[InferenceService] {
	w := c.wait(id, "deleted", o, false)
	w.poll, w.deletion = poll, true
	return w
}

func isDeleted(s *InferenceService) (bool, error) { return s.IsDeleted, nil }

// Wait waits for a condition of your own: until the function returns true for the record.
// If the function returns an error, the wait ends with a [WaitError] that holds this error.
// Failed polls are tolerated or end the wait by the rules of
// [InferenceServiceClient.WaitUntilAvailable]. [WaitOptions.Probe] is not called.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) Wait(ctx context.Context, id string, until func(*InferenceService) (bool, error), opts *WaitOptions) (*InferenceService, error) {
	w := c.wait(id, "in the awaited state", opts.withDefaults(), false)
	if until == nil {
		w.unfit = &ValidationError{Fields: []FieldError{{"until", "is nil"}}}
	}
	return w.run(ctx, until)
}

// ScaleAndWait sets the number of instances and waits until the record shows that number
// with the status available. For 0 instances, it also accepts the status stopped. A record
// from before the update does not count: for 30 s after the update, a record is ignored if
// its updated_at is older than the updated_at in the response to the update. A 2xx response
// to the update starts the wait even if it holds no record, unless it is an HTML page.
//
// If the update fails, the error is that of [InferenceServiceClient.Update], and there is no
// record. If the wait fails, the error is a [WaitError], and the last record is returned.
//
// PUT, then GET /v1/inference-service/{service_id}
func (c *InferenceServiceClient) ScaleAndWait(ctx context.Context, id string, instances int, opts *WaitOptions) (*InferenceService, error) {
	o := opts.withDefaults()
	if instances == 0 {
		o.Probe = nil // nothing is left to probe
	}
	if o.Probe != nil {
		if _, err := c.URL(id); err != nil {
			return nil, err // before the change is made
		}
	}
	updated, err := c.Scale(ctx, id, instances, o.RequestOptions...)
	if odd, ok := errors.AsType[*DecodeError](err); ok && odd.foreign == "" {
		updated, err = &InferenceService{}, nil
	}
	if err != nil {
		return nil, err
	}
	done := time.Now()
	want := fmt.Sprintf("available with %d instances", instances)
	w := c.wait(id, want, o, true)
	return w.run(ctx, func(s *InferenceService) (bool, error) {
		switch {
		case s.IsDeleted: // untilAvailable returns the error
		case s.before(updated) && time.Since(done) < newIDGrace:
			return false, nil
		case int64(s.ResourceMetadata.TargetInstanceNumber) != int64(instances):
			return false, nil
		case instances == 0 && same.Text(s.Status, InferenceServiceStatusStopped):
			return true, nil
		}
		return untilAvailable(s)
	})
}

// before reports whether the updated_at of a record is earlier than that of another record.
// If one of the two times has no fraction of a second, only whole seconds are compared.
func (s *InferenceService) before(other *InferenceService) bool {
	a, b := s.UpdatedAt.Time, other.UpdatedAt.Time
	if a.IsZero() || b.IsZero() {
		return false
	}
	if a.Nanosecond() == 0 || b.Nanosecond() == 0 {
		a, b = a.Truncate(time.Second), b.Truncate(time.Second)
	}
	return a.Before(b)
}

// maxPolls is how many polls WaitAll runs at the same time.
const maxPolls = 64

// WaitAll waits for many endpoints at the same time. The wait for each endpoint follows the
// rules of [InferenceServiceClient.WaitUntilAvailable]. WaitAll yields an endpoint when the
// wait for it ends: either its record, or its last record and a [WaitError] that holds the
// ID. Leaving the loop ends all waits. At most 64 polls run at the same time. An ID that is
// given twice is yielded twice.
func (c *InferenceServiceClient) WaitAll(ctx context.Context, ids []string, opts *WaitOptions) iter.Seq2[*InferenceService, error] {
	type settled struct {
		service *InferenceService
		err     error
	}
	return func(yield func(*InferenceService, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var waits sync.WaitGroup
		defer waits.Wait()
		defer cancel()

		o := opts.withDefaults()
		if onPoll := o.OnPoll; onPoll != nil {
			one := make(chan struct{}, 1) // a lock; waiting for a sync.Mutex would stop the clock of a synctest bubble
			o.OnPoll = func(p Poll) {
				one <- struct{}{}
				defer func() { <-one }()
				onPoll(p)
			}
		}
		slots := make(chan struct{}, maxPolls)
		results := make(chan settled, len(ids))
		for _, id := range ids {
			waits.Go(func() {
				w := c.wait(id, "available", o, true)
				w.slots = slots
				r := settled{err: w.failed(errGoroutine)} // kept only if a function of the caller ends the goroutine
				defer func() { results <- r }()
				r.service, r.err = w.run(ctx, untilAvailable)
			})
		}
		for range ids {
			if r := <-results; !yield(r.service, r.err) {
				return
			}
		}
	}
}

var errGoroutine = errors.New("svc: OnPoll, Probe or another function of the caller ended the goroutine of the wait (by runtime.Goexit)")

var errDeleted = fmt.Errorf("%w: the record says that it is deleted", ErrNotFound)

// untilAvailable decides whether a record ends a wait for the status available: true ends it
// with success, an error ends it with that error.
func untilAvailable(s *InferenceService) (bool, error) {
	switch {
	case s.IsDeleted:
		return false, errDeleted
	case same.Text(s.Status, InferenceServiceStatusAvailable):
		return true, nil
	case same.Text(s.Status, InferenceServiceStatusUnavailable):
		return false, ErrUnavailable
	case same.Text(s.Status, InferenceServiceStatusStopped):
		return false, ErrStopped
	}
	return false, nil
}

// wait prepares a wait for an endpoint, which run starts. The Probe of the options is called
// only if probe is true.
func (c *InferenceServiceClient) wait(id, want string, o *WaitOptions, probe bool) *waiter[InferenceService] {
	w := &waiter[InferenceService]{
		opts: o, start: time.Now(), outcome: WaitError{ID: id, Want: want},
		poll:   c.observe(id, o, 0).poll,
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

// observe makes the observer of an endpoint. grace is the default of NotFoundGrace for an
// endpoint that this client did not create.
func (c *InferenceServiceClient) observe(id string, o *WaitOptions, grace time.Duration) *observer {
	w := &observer{client: c, id: id, opts: o.RequestOptions}
	if o.NotFoundGrace < 0 {
		return w
	}
	if at := c.client.recent.created(id); !at.IsZero() {
		w.readable = at.Add(cmp.Or(o.NotFoundGrace, newIDGrace))
	} else {
		w.readable = time.Now().Add(cmp.Or(o.NotFoundGrace, grace))
	}
	return w
}

// shortest is the shortest interval. The options cannot set a shorter one.
const shortest = time.Millisecond

func (o *WaitOptions) withDefaults() *WaitOptions {
	w := orZero(o)
	if w.MaxInterval <= 0 {
		w.MaxInterval = 15 * time.Second
	} else if w.MinInterval <= 0 {
		w.MinInterval = min(time.Second, w.MaxInterval)
	}
	if w.MinInterval <= 0 {
		w.MinInterval = time.Second
	}
	w.MinInterval = max(w.MinInterval, shortest)
	w.MaxInterval = max(w.MaxInterval, w.MinInterval)
	return &w
}
