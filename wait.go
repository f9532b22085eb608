package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
)

// WaitOptions controls a wait. A zero field selects its default, and nil options select all
// defaults. Only ctx limits how long a wait takes: pass a ctx with a deadline.
type WaitOptions struct {
	// MinInterval is the time between the first two polls. Each further interval is a quarter
	// longer, up to MaxInterval. If zero or less, MinInterval is 1 s and MaxInterval is 15 s. If
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
	// any other endpoint it begins with the wait. If zero, it is 30 s. If negative, there is
	// no grace. A wait for a job has a grace only if NotFoundGrace is set.
	NotFoundGrace time.Duration

	// OnPoll is called after every poll, from the goroutine that waits. WaitUntilAllAvailable makes these
	// calls one at a time, but not from the goroutine of its loop: data that OnPoll and the
	// loop share needs a lock. If nil, nothing is called.
	OnPoll func(Poll)

	// Probe is called when the status is available: it checks that the endpoint really responds
	// at its URL. If Probe returns an error, the wait continues, unless the error is marked by
	// [Permanent]. The ctx of Probe is limited to 30 s. Without [WithInferenceURL] a wait with
	// a Probe fails at once with [ErrNoInferenceURL]. Package [example.com/svc/probe] has
	// probes for a path and for a model. If nil, there is no probe.
	Probe func(ctx context.Context, url string) error

	// RequestOptions are applied to every call that the wait makes, with two exceptions:
	// [WithBodyField] has an effect only in calls with a body, and [WithMaxAttempts] has no
	// effect in polls.
	RequestOptions []RequestOption
}

// A Poll describes one poll of a wait. [WaitOptions.OnPoll] receives it.
type Poll struct {
	ID      string            // ID of the record
	Status  string            // status of the record; empty if the poll did not read it; "deleted" at the end of a wait for a deletion
	Service *InferenceService // the record; nil if the poll did not read it, and in a wait for a job
	Changed bool              // the status is new: it differs from the one that the wait read before
	Err     error             // why the poll, its delete or Probe failed; nil if none of them failed
	Number  int               // number of the poll; 1 for the first
	Elapsed time.Duration     // time since the start of the wait
	Next    time.Duration     // time until the next poll; if 0, this was the last poll
}

// A StatusChange records a status, and when a wait read it first.
type StatusChange struct {
	Status string    // the status as the service wrote it
	At     time.Time // time of the poll, by the local clock
}

// A WaitError records why a wait ended without success. An inference service may still be
// running and billed. A WaitError matches [ErrNotFound] only if the endpoint is deleted or its
// ID is unknown, by the rule of [InferenceServiceClient.WaitUntilDeleted].
type WaitError struct {
	ID      string            // ID of the record
	Want    string            // what the wait was for, such as "available"
	Last    *InferenceService // the record that was read last; nil if it was never read, and for a job
	History []StatusChange    // the changes of the status, oldest first; only the latest 64
	Polls   int               // number of polls
	Elapsed time.Duration     // time from the start of the wait to its end
	LastErr error             // why the last poll failed; nil if it succeeded, or if Err is the same error; errors.Is and errors.As do not inspect it
	Err     error             // why the wait ended: ErrUnavailable, a context error, an Error, …

	subject string // what the wait was for if there is no ID; empty means a record
	last    string // text with the status and status_info of Last, without secrets; if empty, the text uses History
}

// Error returns why the wait ended, and what the last poll read, in one line.
func (e *WaitError) Error() string {
	return apierr.Line(fmt.Sprintf("svc: waiting for %s to be %s: %s", cmp.Or(e.ID, e.subject, "a record"), e.Want, e.detail()))
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
	if rules.RefusesToken(failureOf(e.LastErr).Status) {
		text += "; check the token"
	}
	return text
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// WaitUntilAvailable waits until an endpoint is available. It ends with a [WaitError] when the
// status is unavailable ([ErrUnavailable]) or stopped ([ErrStopped]), and with [ErrNotFound]
// when the endpoint is deleted or unknown, by the rule of
// [InferenceServiceClient.WaitUntilDeleted]. An unknown status means "not yet". Along with an
// error, it returns the last record that it read.
//
// Which failed polls end the wait depends on whether this client has had contact with the
// service: a response of the service with a status below 500, other than 401 and 403.
//   - Lost connections, attempts that time out, and 408, 425, 429 and 5xx never end it.
//   - A failure of the token source or of the rate limiter, a certificate that is not accepted,
//     and five responses in a row that are not the service's own or cannot be decoded end it
//     before contact, but not afterwards.
//   - Any other 4xx ends it: before contact at once, afterwards if it is still there 10 s
//     later, since gateways send such responses too.
//
// GET /v1/inference-service/{service_id} repeatedly, and GET /v1/inference-service/flavor
func (c *InferenceServiceClient) WaitUntilAvailable(ctx context.Context, id string, opts *WaitOptions) (*InferenceService, error) {
	return c.wait(id, "available", opts.withDefaults(), true).run(ctx, untilAvailable)
}

// WaitUntilDeleted waits until an endpoint is deleted. It deletes nothing. It returns nil only
// if the deletion is proven. A record with is_deleted proves it. "Not found" (404 or 410)
// proves it only if all of the following hold:
//   - The ID is known: this client has read or created the endpoint with the token that it sends
//     now, or the ledger records that it was created with this token.
//   - There were at least two "not found" in JSON, 10 s apart (3 s after a delete that the
//     service accepted). Or all responses for 60 s (25 s after an accepted delete), at least
//     three, were "not found" in another form, such as those of routers without a backend.
//   - Less than 30 s lie between two of them.
//   - The service responded to a request for the flavor list in between, with the list or a 403.
//   - No response is the copy of an earlier one, by its Age, Date or request ID. A request ID
//     that the flavor list has as well does not count.
//   - No read has returned the record since, or a 2xx response without it: such a read voids
//     every earlier "not found".
//
// A record that this client has never read may not be readable yet. For such a record, "not
// found" is ignored until [WaitOptions.NotFoundGrace] is over.
//
// If the ID is not known, the same responses end the wait with an error that matches
// [ErrNotFound]: the endpoint is deleted, its ID is mistyped, or it belongs to another account.
// For all other errors, see [InferenceServiceClient.WaitUntilAvailable].
//
// GET /v1/inference-service/{service_id} repeatedly, and GET /v1/inference-service/flavor
func (c *InferenceServiceClient) WaitUntilDeleted(ctx context.Context, id string, opts *WaitOptions) error {
	w := c.wait(id, "deleted", opts.withDefaults(), false)
	w.deletion = true
	_, err := w.run(ctx, isDeleted)
	return err
}

// DeleteAndWait deletes an endpoint and waits until it is deleted, by the rule of
// [InferenceServiceClient.WaitUntilDeleted]. A nil error means that the endpoint is deleted, and no
// longer billed. Any other error is a [WaitError]. For an unknown ID, it matches [ErrNotFound].
//
// If this client has never read the record, DeleteAndWait reads it before it sends the delete. It
// repeats the delete until the service accepts it, and as long as a read still returns the record.
// After contact with the service, only a 4xx other than 401, 403, 404, 409, 410 and 423 ends it
// before ctx does: even a refused token does not end it. So pass a ctx with a deadline. LastErr of
// the error is then why the last poll failed.
//
// DELETE and GET /v1/inference-service/{service_id} repeatedly, and GET
// /v1/inference-service/flavor
func (c *InferenceServiceClient) DeleteAndWait(ctx context.Context, id string, opts *WaitOptions) error {
	_, w := c.removal(id, opts.withDefaults(), rules.Removal)
	_, err := w.run(ctx, isDeleted)
	return err
}

func isDeleted(s *InferenceService) (bool, error) { return s.IsDeleted, nil }

// Wait waits until the function returns true for the record. If the function returns an error,
// the wait ends with a [WaitError] that holds this error. If it returns false for a record
// that is deleted, the wait ends with [ErrNotFound]. Failed polls end the wait by the rules of
// [InferenceServiceClient.WaitUntilAvailable]. If [WaitOptions.Probe] is set, the error is a
// [ValidationError]: call the probe in the function.
//
// GET /v1/inference-service/{service_id} repeatedly, and GET /v1/inference-service/flavor
func (c *InferenceServiceClient) Wait(ctx context.Context, id string, until func(*InferenceService) (bool, error), opts *WaitOptions) (*InferenceService, error) {
	o := opts.withDefaults()
	var p problems
	p.add(until == nil, "until", "is nil")
	p.add(o.Probe != nil, "Probe", "is not called by Wait: call it in the function")
	w := c.wait(id, "in the awaited state", o, false)
	w.unfit = p.err()
	return w.run(ctx, until)
}

// ScaleAndWait sets the number of instances and waits until the record shows that number with
// the status available. For 0 instances, it also accepts the status stopped. It ignores
// records from before the update: for 30 s after the update, those whose updated_at is older
// than the updated_at in the response to the update. A 2xx response to the update starts the
// wait even if it holds no record, unless it is an HTML page.
//
// If the update fails, ScaleAndWait returns the error of [InferenceServiceClient.Update] and
// no record. If the wait fails, the error is a [WaitError], and the last record is returned.
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
	w := c.wait(id, fmt.Sprintf("available with %d instances", instances), o, true)
	return w.run(ctx, func(s *InferenceService) (bool, error) {
		switch {
		case s.IsDeleted: // untilAvailable returns the error
		case s.before(updated) && w.began.Sub(w.start) < rules.Grace:
			return false, nil
		case int64(s.ResourceMetadata.TargetInstanceNumber) != int64(instances):
			return false, nil
		case instances == 0 && same.Text(s.Status, InferenceServiceStatusStopped):
			return true, nil
		}
		return untilAvailable(s)
	})
}

// before reports whether the updated_at of a record is earlier than the updated_at of another
// record. If one of the two times has no fraction of a second, only whole seconds are
// compared.
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

// maxPolls is the maximum number of polls that WaitUntilAllAvailable runs at the same time.
const maxPolls = 64

// WaitUntilAllAvailable waits for many endpoints at the same time. The wait for each endpoint
// follows the rules of [InferenceServiceClient.WaitUntilAvailable]. WaitUntilAllAvailable yields
// an endpoint when the wait for it ends: either its record, or its last record and a [WaitError]
// that holds the ID. Leaving the loop ends all waits. At most 64 polls run at the same time. An ID that is
// given twice is yielded twice. If OnPoll or Probe panics, or ends its goroutine, so does the loop. Do not use
// [WithResponse] here: all polls would write to the same Response.
func (c *InferenceServiceClient) WaitUntilAllAvailable(ctx context.Context, ids []string, opts *WaitOptions) iter.Seq2[*InferenceService, error] {
	return func(yield func(*InferenceService, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		results, left := make(chan func() (*InferenceService, error), len(ids)), len(ids)
		defer func() {
			for cancel(); left > 0; left-- {
				<-results
			}
		}()
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
		for _, id := range ids {
			cause.Start(func() (*InferenceService, error) {
				w := c.wait(id, "available", o, true)
				polled := w.poll
				w.poll = func(ctx context.Context) (*InferenceService, rules.Verdict, error) { // as soon as there is a free slot
					select {
					case slots <- struct{}{}:
						defer func() { <-slots }()
						return polled(ctx)
					case <-ctx.Done():
						return nil, rules.Unproven, cause.Of(ctx)
					}
				}
				return w.run(ctx, untilAvailable)
			}, results)
		}
		for more := left > 0; more; {
			left--
			more = yield((<-results)()) && left > 0
		}
	}
}

var errDeleted = fmt.Errorf("%w: the record is marked as deleted", ErrNotFound)

// untilAvailable reports whether an endpoint is available. It returns an error if the status
// ends the wait.
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
	by := &observer{client: c, id: id, opts: polling(o.RequestOptions)}
	by.evidence.Read = !c.client.endpoints.ReadAt(id).IsZero()
	if o.NotFoundGrace >= 0 {
		born := cmp.Or(c.client.endpoints.CreatedAt(id), time.Now()) // another process may have created it; no clock but ours decides
		by.evidence.Readable = born.Add(cmp.Or(o.NotFoundGrace, rules.Grace))
	}
	w := &waiter[InferenceService]{
		opts: o, start: time.Now(), outcome: WaitError{ID: id, Want: want},
		poll: by.poll, by: by,
		status: func(s *InferenceService) string { return string(s.Status) },
		client: c.client,
	}
	if !probe || o.Probe == nil {
		return w
	}
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
	return w
}

// shortest is the minimum interval between polls.
const shortest = time.Millisecond

func (o *WaitOptions) withDefaults() *WaitOptions {
	w := orZero(o)
	if w.MaxInterval <= 0 {
		w.MaxInterval = max(15*time.Second, w.MinInterval)
	}
	if w.MinInterval <= 0 {
		w.MinInterval = min(time.Second, w.MaxInterval)
	}
	w.MinInterval = max(w.MinInterval, shortest)
	w.MaxInterval = max(w.MaxInterval, w.MinInterval)
	return &w
}
