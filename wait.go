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
)

// WaitOptions sets up a wait. Nil stands for the zero value, and that for the
// defaults. Only ctx limits how long a wait takes.
type WaitOptions struct {
	// MinInterval is the time between the first two polls. Each interval after it is a
	// quarter longer, up to MaxInterval. Zero or less: 1 s and 15 s. If only one of them is
	// set, the other one adapts to it. So that many waits do not poll at the same moment,
	// each interval varies: it is up to a fifth shorter or a tenth longer. After a response
	// with a Retry-After the next poll is no earlier than that says, up to the MaxDelay of
	// [RetryPolicy].
	//
	// A poll is a single attempt: the next poll takes the place of a retry. So the rest of
	// [RetryPolicy] does not apply to polls.
	MinInterval, MaxInterval time.Duration

	// NotFoundGrace is how long "not found" counts as "not readable yet", while this client
	// has never read the record. It begins when this client created the endpoint. For any
	// other endpoint it begins with the wait. Zero: 30 s for an endpoint that this client
	// created, and in waits for a deletion; otherwise none. Negative: none.
	NotFoundGrace time.Duration

	// OnPoll is called after every poll, from the goroutine that waits. WaitAll calls it
	// from other goroutines than that of its loop, one call at a time: data that both use
	// needs a lock. Nil: none.
	OnPoll func(Poll)

	// Probe is called when the service says available: it checks that the endpoint really
	// responds at its URL. An error means "not yet", and the wait continues. An error made by
	// [Permanent] ends it. Its ctx is limited to 30 s. Without [WithInferenceURL] a wait with
	// a Probe fails at once with [ErrNoInferenceURL]. Nil: none.
	Probe func(ctx context.Context, url string) error

	// RequestOptions are applied to every call that the wait makes, with two exceptions:
	// [WithBodyField] only to calls with a body, and [WithMaxAttempts] not to polls.
	RequestOptions []RequestOption
}

// Poll describes one poll of a wait to [WaitOptions.OnPoll].
type Poll struct {
	ID      string            // of the record
	Status  string            // of the record; empty when the poll did not read it; "deleted" at the end of a wait for a deletion
	Service *InferenceService // the record; nil when the poll did not read it, and in a wait for a job
	Changed bool              // the status differs from that of the last poll that succeeded
	Err     error             // why the poll, its delete or Probe failed; nil: none of them did
	Number  int               // 1 for the first poll
	Elapsed time.Duration     // since the start of the wait
	Next    time.Duration     // until the next poll; 0: this was the last one
}

// StatusChange is a status and when a wait saw it first.
type StatusChange struct {
	Status string    // as the service wrote it
	At     time.Time // by the local clock
}

// WaitError says why a wait ended without success. An inference service may still be
// running and billed.
type WaitError struct {
	ID      string            // of the record
	Want    string            // what was waited for: "available"
	Last    *InferenceService // the record as read last; nil if it was never read, and for a job
	History []StatusChange    // in order; at most the latest 64
	Polls   int               // how often the record was asked for
	Elapsed time.Duration     // from the start of the wait to its end
	LastErr error             // of the last poll; nil if that succeeded, or if Err holds it already
	Err     error             // why the wait ended: ErrUnavailable, the end of ctx, an Error, …

	last string // status and status_info of the last record, without secrets; empty: see History
}

// Error says why the wait ended, and what the last poll saw, in one line.
func (e *WaitError) Error() string {
	last := "never read"
	if n := len(e.History); n > 0 {
		last = fmt.Sprintf("last status %q", e.History[n-1].Status)
	}
	polls := "polls"
	if e.Polls == 1 {
		polls = "poll"
	}
	text := fmt.Sprintf("svc: waiting for %s to be %s: %s (%s; %d %s in %v)", cmp.Or(e.ID, "a record"), e.Want,
		detail(e.Err), cmp.Or(e.last, last), e.Polls, polls, e.Elapsed.Round(time.Millisecond))
	if e.LastErr != nil {
		text += "; the last poll failed: " + detail(e.LastErr)
	}
	return apierr.Line(text)
}

// Unwrap returns the reason and the error of the last poll. For the reason alone use Err.
func (e *WaitError) Unwrap() []error {
	if e.LastErr != nil {
		return []error{e.Err, e.LastErr}
	}
	return []error{e.Err}
}

// WaitUntilAvailable waits until an endpoint is available. It ends at once, with
// a [WaitError], when the status is unavailable ([ErrUnavailable]) or stopped
// ([ErrStopped]), on a 401 or 403 of the service and on any other error that will not
// pass by itself. It ends with [ErrNotFound] when the endpoint is deleted, by the
// rule of [InferenceServiceClient.WaitUntilDeleted].
//
// Until ctx ends the wait tolerates lost connections, attempts that time out, and the
// statuses 408, 425, 429, 500, 502, 503, 504 and 520 or more. It tolerates "not found" for
// [WaitOptions.NotFoundGrace], and up to 5 responses in a row that are not the service's
// own, such as an HTML page of a proxy. A status that this package does not know means "not
// yet". The last record is returned along with an error.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) WaitUntilAvailable(ctx context.Context, id string, opts *WaitOptions) (*InferenceService, error) {
	return c.wait(id, "available", opts.withDefaults(), true).run(ctx, untilAvailable)
}

// WaitUntilDeleted waits until an endpoint is deleted. It deletes nothing. An endpoint
// counts as deleted in two cases:
//   - its record says so (is_deleted);
//   - two polls, at least 1 s apart, got "not found", and between them the service itself
//     answered a request for the flavor list: with the list, or with a 403 in JSON.
//
// An endpoint that this client has never read may not be readable yet. For it, "not found"
// does not count until [WaitOptions.NotFoundGrace] is over. So with the default, the wait
// takes about 30 s if the endpoint was deleted before this client could read it.
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
// deleted, and no longer billed. Any other end is a [WaitError].
//
// It reads the record first: if this client has read a record, it can prove its absence
// sooner. It repeats the delete while that fails or shows no effect.
//
// DELETE and GET /v1/inference-service/{service_id}, again and again, and GET
// /v1/inference-service/flavor
func (c *InferenceServiceClient) DeleteAndWait(ctx context.Context, id string, opts *WaitOptions) error {
	o := opts.withDefaults()
	r := &removal{observer: c.observe(id, o, newIDGrace)}
	_, err := c.untilDeleted(id, o, r.poll).run(ctx, isDeleted)
	return err
}

// untilDeleted makes a wait for a deletion.
func (c *InferenceServiceClient) untilDeleted(id string, o *WaitOptions, poll func(context.Context) (*InferenceService, bool, error)) *waiter[InferenceService] {
	w := c.wait(id, "deleted", o, false)
	w.poll, w.deletion = poll, true
	return w
}

func isDeleted(s *InferenceService) (bool, error) { return s.IsDeleted, nil }

// Wait waits for a condition of your own: until the function returns true for the record.
// An error of the function ends the wait, as a [WaitError]. Failed polls are tolerated, or
// end the wait, as in [InferenceServiceClient.WaitUntilAvailable]. [WaitOptions.Probe] is
// not called.
//
// GET /v1/inference-service/{service_id}, again and again
func (c *InferenceServiceClient) Wait(ctx context.Context, id string, until func(*InferenceService) (bool, error), opts *WaitOptions) (*InferenceService, error) {
	w := c.wait(id, "as asked", opts.withDefaults(), false)
	if until == nil {
		w.unfit = &ValidationError{Fields: []FieldError{{"until", "is nil"}}}
	}
	return w.run(ctx, until)
}

// ScaleAndWait sets the number of instances and waits until the record shows that number
// with the status available. For 0 instances, stopped counts too. A record from before the
// change does not count: for 30 s after the update, its updated_at must not be older than
// that of the update's own response. Any 2xx response to the update starts the wait, also
// one without a record.
//
// If the update fails, the error is that of [InferenceServiceClient.Update], and there is no
// record. After that the error is a [WaitError], and the last record is returned.
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
		case s.IsDeleted: // an error
		case s.before(updated) && time.Since(done) < newIDGrace:
			return false, nil
		case int64(s.ResourceMetadata.TargetInstanceNumber) != int64(instances):
			return false, nil
		case instances == 0 && sameText(s.Status, InferenceServiceStatusStopped):
			return true, nil
		}
		return untilAvailable(s)
	})
}

// before reports whether a record is older than another by its updated_at. If one of them
// has no fraction of a second, whole seconds are compared.
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

// maxPolls is how many polls WaitAll has under way at once.
const maxPolls = 64

// WaitAll waits for many endpoints at once, for each as
// [InferenceServiceClient.WaitUntilAvailable] does. It yields each endpoint when its wait
// ends: the record, or the last record and a [WaitError], which holds the ID. Leaving the
// loop ends all waits. At most 64 polls are under way at a time. An ID that is given twice
// is yielded twice.
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
			one := make(chan struct{}, 1) // not a mutex, which would stop the clock of a synctest bubble
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
				r := settled{err: w.failed(errGoroutine)} // stays if a function of the caller ends the goroutine
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

var errGoroutine = errors.New("svc: OnPoll, Probe or another function ended the goroutine of the wait")

var errDeleted = fmt.Errorf("%w: the record says that it is deleted", ErrNotFound)

// untilAvailable judges a record for a wait that wants it available.
func untilAvailable(s *InferenceService) (bool, error) {
	switch {
	case s.IsDeleted:
		return false, errDeleted
	case sameText(s.Status, InferenceServiceStatusAvailable):
		return true, nil
	case sameText(s.Status, InferenceServiceStatusUnavailable):
		return false, ErrUnavailable
	case sameText(s.Status, InferenceServiceStatusStopped):
		return false, ErrStopped
	}
	return false, nil
}

// wait makes a wait for an endpoint. The Probe of the options counts only if probe is set.
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

// observe makes the observer of an endpoint. grace is the NotFoundGrace of an endpoint that
// this client did not create, unless the options set one.
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

// shortest is the shortest interval, whatever the options say.
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
