package svc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
	"example.com/svc/ledger"
)

// Cleanup records whether a failed [InferenceServiceClient.Deploy] or [FileClient.Upload] deleted
// the endpoint or file record that it had created.
type Cleanup string

const (
	// CleanupNone means that nothing was deleted, since no cleanup was asked for. The endpoint or file
	// record may exist.
	CleanupNone Cleanup = ""
	// CleanupDeleted means that the endpoint is known to be deleted, or that the service confirmed
	// the delete of the file record.
	CleanupDeleted Cleanup = "deleted"
	// CleanupAccepted means that the service accepted the delete, but the endpoint is not known to
	// be deleted.
	CleanupAccepted Cleanup = "accepted"
	// CleanupFailed means that no delete was accepted. The endpoint or file record may still exist.
	CleanupFailed Cleanup = "failed"
)

// cleanupLimit is how long the cleanup after a failure may take.
const cleanupLimit = 30 * time.Second

// failed runs the cleanup if the options ask for one, and returns the error of the deployment.
func (d *deployment) failed(ctx context.Context, err error) error {
	e := &DeployError{ServiceID: d.id, Service: d.record, Resumed: d.resumed, Err: err}
	if d.deleted() {
		e.Cleanup = CleanupDeleted
	}
	remove := d.opts.DeleteOnFailure && !d.resumed // the call that created it may still use it
	if d.opts.OnFailure != nil {
		remove = d.opts.OnFailure(e)
	}
	if remove { // also if the wait has proved the deletion: if that is wrong, the delete ends the bill
		e.Cleanup, e.CleanupErr = d.cleanUp(ctx)
	}
	d.client.client.Ledger.deleted(ctx, d.observer)
	return e
}

// rescue must be deferred. If one of the caller's functions has panicked or ended the goroutine, it
// calls OnCreate, unless that was called before, and deletes the endpoint if the options ask for a
// cleanup.
func (d *deployment) rescue(ctx context.Context) {
	if d.over || d.resumed { // if an earlier call has created the endpoint, that call may still use it
		return
	}
	r := &d.call.Result
	status := max(r.StatusCode, r.Broken)
	created, told := status/100 == 2, d.id != ""
	switch {
	case told:
		created = true
	case created, r.Acted: // if the create was refused, the response may show the ID of somebody else's endpoint
		d.id, d.shown = d.client.client.salvageID(services, status, r.Body), jsonfield.Salvage(r.Body, "name")
	}
	if d.id == "" {
		return
	}
	d.client.client.endpoints.Create(d.id, d.call.known(created, d.shown))
	if created && (d.opts.DeleteOnFailure || d.opts.OnFailure != nil) {
		defer func() { // if cleanUp panics too, for example in an attempt hook, a single delete is sent
			if !d.over && rules.Renamed(d.call.name(), d.shown) {
				ctx, cancel := d.cleanupContext(ctx)
				defer cancel()
				_ = d.client.Delete(ctx, d.id, append(polling(d.opts.RequestOptions), urgent)...)
			}
		}()
		defer func() { // deferred, so that it runs even if OnCreate panics
			_, _ = d.cleanUp(ctx)
			d.over = true
		}()
	}
	if !told && d.opts.OnCreate != nil {
		_ = d.opts.OnCreate(&InferenceService{ServiceID: d.id})
	}
}

// givenName returns the name of the endpoint: the name in the response to the create if it can
// be a form of the requested name, and otherwise the requested name.
func (d *deployment) givenName() string {
	if rules.Renamed(d.call.name(), d.shown) {
		return d.shown
	}
	return d.call.name()
}

// cleanUp deletes the endpoint and waits for the deletion, even when ctx has ended. It reports
// the outcome.
func (d *deployment) cleanUp(ctx context.Context) (state Cleanup, err error) {
	start := time.Now()
	limited, cancel := d.cleanupContext(ctx)
	defer cancel()
	o := d.opts.withDefaults() // a copy; the next line removes the caller's functions from it
	o.MinInterval, o.MaxInterval, o.OnPoll, o.Probe = 500*time.Millisecond, 2*time.Second, nil, nil
	r, w := d.client.removal(d.id, o, rules.Cleanup)
	r.name, r.marks, r.limit = d.call.name(), d.call.Marks, cleanupLimit/3
	r.unsure = r.name != ""
	if d.observer != nil {
		r.evidence, r.missed, r.gone = d.observer.evidence, d.observer.missed, d.observer.gone
		d.record = cmp.Or(d.record, d.observer.last) // a Probe or a hook has panicked
	}
	d.observer = r.observer
	seen := cmp.Or(d.record, &InferenceService{ServiceID: d.id, Name: d.shown})
	state = CleanupDeleted
	if err = r.check(seen); err == nil {
		_, err = w.run(limited, isDeleted)
	}
	if err != nil {
		state = CleanupFailed
		if r.evidence.Accepted() {
			state = CleanupAccepted
		}
		d.client.client.warn(ctx, "svc: a cleanup did not prove that the endpoint is deleted", err,
			"id", d.client.client.clean(d.id), "name", d.client.client.clean(d.givenName()), "key", d.opts.Key, "cleanup", string(state))
	}
	d.client.client.waited(ctx, WaitEnd{ID: d.id, Want: "deleted", Cleanup: true, Elapsed: time.Since(start), Err: err})
	return state, err
}

var errCleanup = fmt.Errorf("the cleanup did not end within %v", cleanupLimit)

// cleanupContext sets one time limit for all cleanups together: after a cleanup that panics,
// the next one has only the time that is left. The end of ctx does not matter.
func (d *deployment) cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.cleanupEnd.IsZero() {
		d.cleanupEnd = time.Now().Add(cleanupLimit)
	}
	return context.WithDeadlineCause(context.WithoutCancel(ctx), d.cleanupEnd, errCleanup)
}

// removal deletes an endpoint and polls it until it is deleted.
type removal struct {
	*observer
	name     string        // name that the record must have; empty means any name
	marks    []string      // one of them is in the description if this call has created the endpoint, whatever its name
	unsure   bool          // name is the requested one, and the ID is from a broken response without a name; the record may belong to another account
	limit    time.Duration // limit for each request, including its delays
	interval time.Duration // longest time between two polls
	there    bool          // the latest read returned the record
	polled   time.Time     // when the latest poll ended
}

// removal prepares the removal of an endpoint, and the wait for it, which run starts. Its requests do
// not wait for the rate limiter.
func (c *InferenceServiceClient) removal(id string, o *WaitOptions, task rules.Task) (*removal, *waiter[InferenceService]) {
	w := c.wait(id, "deleted", o, false)
	r := &removal{observer: w.by, interval: o.MaxInterval, limit: math.MaxInt64}
	r.opts, w.poll, w.deletion, w.failures.Task = append(r.opts, urgent), r.poll, true, task
	return r, w
}

// poll sends a delete and then reads the record. After an accepted delete it sends another one
// only if the record could still be read, or if the process was suspended. If this client has
// never read the record, poll reads it before the delete as well: "not found" proves a deletion
// sooner if the record was read before. As long as the name of the record is not known, poll sends no
// delete.
func (r *removal) poll(ctx context.Context) (*InferenceService, rules.Verdict, error) {
	var before *InferenceService // the record before the delete
	if r.unsure || !r.evidence.Read && !r.evidence.Accepted() {
		s, verdict, err := r.read(ctx)
		switch {
		case err != nil && r.unsure:
			return s, rules.Unproven, err
		case orZero(s).IsDeleted, cause.Has[*permanentError](err):
			return s, verdict, err
		}
		before = s
	}
	failed := r.delete(ctx)
	if failed != nil && failureOf(failed).Class == rules.Local { // it was not sent, and comes before another read
		return before, rules.Unproven, failed
	}
	if r.evidence.Verdict == rules.Deleted { // an accepted delete would have voided the proof
		return before, rules.Deleted, nil
	}
	s, verdict, err := r.read(ctx)
	if failed != nil && verdict != rules.Deleted { // what keeps the service from deleting it matters more
		return cmp.Or(s, before), rules.Unproven, failed
	}
	if s == nil && verdict == rules.Unproven {
		s = before
	}
	return s, verdict, err
}

// read reads the record. If the record has another name, the error is permanent.
func (r *removal) read(ctx context.Context) (*InferenceService, rules.Verdict, error) {
	limit := r.limit
	if !r.unsure && !r.evidence.Accepted() { // the read must leave time for a delete
		limit /= 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, verdict, err := r.observer.poll(ctx)
	r.there, r.polled = err == nil, time.Now()
	if err == nil {
		if err := r.check(s); err != nil {
			return nil, rules.Unproven, err
		}
	}
	return s, verdict, err
}

// delete sends a delete, unless the service has accepted one that may still take effect. It does
// not wait for the rate limiter. It is a single attempt, since Delete takes a "not found" after a
// failed attempt for success. The error is why the service has accepted no delete; "not found" is
// not an error.
func (r *removal) delete(ctx context.Context) error {
	suspended, accepted := rules.WasSuspended(r.interval, time.Since(r.polled)), r.evidence.Accepted()
	if accepted && !r.there && !suspended {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	err := r.client.Delete(ctx, r.id, r.opts...)
	switch {
	case err == nil:
		r.note(rules.Observation{Sight: rules.Accepted})
	case accepted, notFound(err):
		return nil
	}
	return err
}

// check returns a permanent error if the name of a record is not that of the endpoint, since the
// record may then be of another endpoint. A service may change the case and the white space of a
// name, and may derive another name from the requested one, which check stores. A record with the mark
// of the ledger entry may have any name.
func (r *removal) check(s *InferenceService) error {
	mark, _ := ledger.FindMark(s.Description)
	switch {
	case r.name == "", s.Name == "":
		return nil
	case same.Text(s.Name, r.name), r.unsure && rules.Renamed(r.name, s.Name), slices.Contains(r.marks, mark):
		r.name, r.unsure = s.Name, false
		return nil
	}
	c := r.client.client
	return Permanent(fmt.Errorf("svc: the name in the record of %s is %q, but this endpoint was created with the name %q: it was not deleted, since it may be somebody else's endpoint", c.clean(s.ServiceID), c.clean(s.Name), c.clean(r.name)))
}
