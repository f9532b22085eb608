package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

const (
	cleanupLimit = 30 * time.Second // for the delete after a failure
	createLinger = 10 * time.Second // for the response to a create whose ctx has ended
)

// DeployOptions sets up [InferenceServiceClient.Deploy]. Nil: the zero value.
type DeployOptions struct {
	WaitOptions

	// DeleteOnFailure deletes the endpoint if it does not become available, whatever the
	// reason: also when ctx ends, or when one of the functions in these options panics. The
	// cleanup has a separate context, limited to 30 s. False: the endpoint stays.
	DeleteOnFailure bool

	// OnFailure decides in place of DeleteOnFailure: true deletes the endpoint. It is called
	// before the cleanup, with the error that Deploy would end with. If one of the functions
	// in these options panics, it is not called, and the endpoint is deleted. Nil:
	// DeleteOnFailure decides.
	OnFailure func(*DeployError) bool

	// OnCreate is called with the new record before the wait begins: store the ID there. Its
	// error ends Deploy as a failure. If the response to the create was cut off, the record
	// may hold only the ID. Nil: none.
	OnCreate func(*InferenceService) error

	// CreateOptions apply to the create call only, after RequestOptions.
	CreateOptions []RequestOption

	// Key is the name of the endpoint in the ledger: 1 to 64 characters of a-z, 0-9, _ and -.
	// At most one endpoint at a time is created under a key. A second Deploy with the key and
	// the same request creates nothing: it waits for the endpoint of the first one, also in
	// another process. It calls OnCreate with the ID alone, and it deletes the endpoint only
	// if OnFailure says so; DeleteOnFailure has no effect. Empty: a random key, so every
	// Deploy creates an endpoint. A key without [WithLedger] is an [ErrNoLedger].
	Key string

	// Lease has no effect unless [Ledger.Reap] is called: Reap deletes the endpoint when
	// this time has passed since the create was requested. In a Deploy that continues with an
	// existing endpoint it counts from that create, so it may be over already, and it can only
	// lengthen the lease. 0: no lease. A lease without [WithLedger] is an [ErrNoLedger].
	Lease time.Duration
}

// DeployError says that an endpoint was created and is not available, or that Use could not
// delete it. Cleanup says whether it was deleted.
type DeployError struct {
	ServiceID  string            // of the created endpoint; never empty
	Service    *InferenceService // the record as read last; nil when only the ID is known
	Resumed    bool              // this call did not create the endpoint: the ledger had it under the key
	Cleanup    Cleanup           // CleanupDeleted: the endpoint is deleted; any other: it may still be running and billed
	CleanupErr error             // why the cleanup could not delete the endpoint; nil: it did, or there was none; not for errors.Is and errors.As
	Err        error             // why the endpoint is not available: a WaitError, or the error of OnCreate; from Use the error of its function, nil if that succeeded

	use bool // the error is from Use, after its function
}

// Error says what happened, what may be running, and what to do about it.
func (e *DeployError) Error() string {
	text := "svc: deploying " + cmp.Or(e.ServiceID, "an endpoint")
	if e.use {
		text = "svc: using " + e.ServiceID
	}
	if e.Resumed {
		text += ", which an earlier call with the same key created"
	}
	if e.Err != nil {
		text += ": " + detail(e.Err)
	} else if e.use {
		text += ": the function succeeded"
	}
	if e.Cleanup == CleanupDeleted {
		text += "; the endpoint was deleted"
		if e.Resumed {
			text += ", so its key in the ledger is free again: the next Deploy with that key creates an endpoint"
		}
		return apierr.Line(text)
	}
	text += "; the endpoint may still be running and billed"
	switch {
	case e.Cleanup == CleanupAccepted:
		text += ": the delete was accepted, but the endpoint is not known to be deleted"
	case e.CleanupErr != nil:
		text += ": deleting it failed"
	}
	if e.CleanupErr != nil {
		text += ": " + detail(e.CleanupErr)
	}
	if !cause.Has[*permanentError](e.CleanupErr) {
		text += "; if it is not wanted, call DeleteAndWait"
	}
	return apierr.Line(text)
}

// Unwrap returns the reason.
func (e *DeployError) Unwrap() error { return e.Err }

// Deploy creates an endpoint and waits until it is available.
//
// If nothing was created, the error is that of [InferenceServiceClient.Create]. Afterwards
// it is a [DeployError], which always holds the ID and says whether the endpoint is deleted.
// The last record is returned along with an error. A request for 0 instances is a
// [ValidationError], since it would never become available.
//
// Deploy does more than Create to keep the ID, since the service has no call that
// finds it again. When ctx ends while the create is on its way, Deploy waits for the
// response up to 10 s more. When a 2xx response is cut off, but shows the ID,
// Deploy continues with that ID.
//
// The cleanup after a failure does what [InferenceServiceClient.DeleteAndWait] does, for up
// to 30 s, so Deploy may return up to 40 s after the end of ctx; with a ledger that does not
// respond, up to 5 s later still. It does not delete an
// endpoint whose record has another name than the request: that endpoint may be somebody
// else's.
//
// With [WithLedger], the create is recorded as in Create. If the ledger fails after the
// create, Deploy ends as after an error of OnCreate. With [DeployOptions.Key], Deploy waits
// for the endpoint that the key has already. It sends nothing, and its error is an
// [OutcomeUnknownError], while a create under the key is in doubt. Likewise it is an
// [ErrKeyInUse] if the endpoint of the key is of another request. If another Deploy with the
// key is creating at the moment, or was killed while it was, Deploy reads the ledger until
// that create has an outcome: for up to 6 minutes, without calls of OnPoll.
//
// POST /v1/inference-service, then GET and perhaps DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Deploy(ctx context.Context, req CreateInferenceServiceRequest, opts *DeployOptions) (*InferenceService, error) {
	d := &deployment{client: c, opts: orZero(opts)}
	err := d.run(ctx, req)
	return d.record, err
}

// deployment is a Deploy under way.
type deployment struct {
	client     *InferenceServiceClient
	opts       DeployOptions
	name       string            // that was sent
	id         string            // of what was created; empty: nothing is known of it
	record     *InferenceService // as read last; nil when only the ID is known
	shown      string            // the name in a broken response to the create
	told       bool              // OnCreate was called
	over       bool              // a panic from now on leaves nothing to clean up
	result     httpcall.Result   // of the create call
	cleanupEnd time.Time         // of all cleanups together; zero: none has begun
	resumed    bool              // the endpoint is that of an earlier create
	deleted    bool              // the wait has proven that somebody else deleted the endpoint
	behind     *LedgerError      // why the ledger could not record the created endpoint
}

func (d *deployment) run(ctx context.Context, req CreateInferenceServiceRequest) error {
	if d.opts.Probe != nil {
		if _, err := d.client.URL("probe"); err != nil {
			return err // before anything is created
		}
	}
	if (d.opts.Key != "" || d.opts.Lease != 0) && d.client.client.Ledger.store == nil {
		return ErrNoLedger
	}
	defer d.rescue(ctx)
	err := d.create(ctx, req)
	if err == nil {
		if err = d.wait(ctx); err != nil {
			err = d.failed(ctx, err)
		}
	}
	d.over = true
	return err
}

// create creates the endpoint and learns its ID.
func (d *deployment) create(ctx context.Context, req CreateInferenceServiceRequest) error {
	opts := append(slices.Clip(d.opts.RequestOptions), d.opts.CreateOptions...)
	p := req.problems()
	p.add(req.ResourceMetadata.TargetInstanceNumber == 0 && !options(opts).has(instanceField),
		instanceField, "is 0: an endpoint without instances never becomes available")
	if d.opts.Key != "" {
		checkKey(&p, d.opts.Key)
	}
	p.add(d.opts.Lease < 0, "Lease", "must not be negative")
	k := create(services, &req).checked(p)
	k.Linger, k.Result, k.sent = createLinger, &d.result, &d.name
	s, err := d.client.create(ctx, k, d.client.client.Ledger.claim(d.opts.Key, d.opts.Lease), opts)
	d.behind, _ = errors.AsType[*LedgerError](err)
	if earlier, ok := errors.AsType[*resumedError](err); ok {
		d.id, d.resumed = earlier.id, true
		return nil
	}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok && unknown.created() {
		d.id, d.shown = unknown.ID, salvageText(unknown.Body, "name") // the wait reads the rest
	} else if s != nil {
		d.id, d.record, d.shown = s.ServiceID, s, s.Name
	} else {
		return err
	}
	return nil
}

// wait tells the caller of the endpoint and waits until it is available.
func (d *deployment) wait(ctx context.Context) error {
	err := d.client.client.safe(d.tell())
	if d.behind != nil {
		err = cause.Join(d.behind, err)
	}
	if err != nil {
		return err
	}
	w := d.client.wait(d.id, "available", d.opts.withDefaults(), true)
	poll := w.poll
	w.poll = func(ctx context.Context) (*InferenceService, bool, error) {
		s, deleted, err := poll(ctx)
		d.deleted = deleted && (s == nil || s.Name == "" || sameText(s.Name, d.name))
		return s, deleted, err
	}
	last, err := w.run(ctx, untilAvailable)
	if last != nil {
		d.record = last
	}
	return err
}

// tell calls OnCreate, once.
func (d *deployment) tell() error {
	if d.told || d.opts.OnCreate == nil {
		return nil
	}
	d.told = true
	if d.record == nil {
		return d.opts.OnCreate(&InferenceService{ServiceID: d.id})
	}
	return d.opts.OnCreate(d.record)
}

// failed makes the error of a deployment, after the cleanup if one was asked for.
func (d *deployment) failed(ctx context.Context, err error) error {
	e := &DeployError{ServiceID: d.id, Service: d.record, Resumed: d.resumed, Err: err}
	if d.deleted {
		e.Cleanup = CleanupDeleted
	}
	remove := d.opts.DeleteOnFailure && !d.resumed // whoever created it may use it
	if d.opts.OnFailure != nil {
		remove = d.opts.OnFailure(e)
	}
	if remove && !d.deleted {
		e.Cleanup, e.CleanupErr = d.cleanUp(ctx)
	}
	d.over = true
	return e
}

// rescue does its work only if one of the caller's functions has panicked or ended the
// goroutine. It calls OnCreate with the ID, if that was not called yet, and deletes the
// endpoint if a cleanup was asked for.
func (d *deployment) rescue(ctx context.Context) {
	if d.over || d.resumed {
		return
	}
	status := max(d.result.StatusCode, d.result.Broken)
	created := d.id != "" || status >= 200 && status < 300
	if d.id == "" && (created || d.result.Acted) { // a refusal may name the endpoint of somebody else
		d.id, d.shown = d.client.client.salvageID(services, status, d.result.Body), salvageText(d.result.Body, "name")
	}
	if d.id == "" {
		return
	}
	d.client.client.recent.add(d.id)
	if created && (d.opts.DeleteOnFailure || d.opts.OnFailure != nil) {
		defer func() { // the cleanup may panic too, if an attempt hook panics in each exchange
			if !d.over && sameText(d.shown, d.name) {
				ctx, cancel := d.cleanupContext(ctx)
				defer cancel()
				_ = d.client.Delete(ctx, d.id, asRead(d.opts.RequestOptions)...)
			}
		}()
		defer func() { // also if OnCreate panics
			_, _ = d.cleanUp(ctx)
			d.over = true
		}()
	}
	_ = d.tell()
}

// cleanUp deletes the endpoint, also when ctx has ended.
func (d *deployment) cleanUp(ctx context.Context) (Cleanup, error) {
	ctx, cancel := d.cleanupContext(ctx)
	defer cancel()
	o := d.opts.withDefaults() // without the caller's functions
	o.MinInterval, o.MaxInterval, o.OnPoll, o.Probe = 500*time.Millisecond, 2*time.Second, nil, nil
	r := &removal{observer: d.client.observe(d.id, o, newIDGrace), name: d.name, limit: cleanupLimit / 3}
	r.named = d.record != nil || d.shown != ""
	if seen := cmp.Or(d.record, &InferenceService{ServiceID: d.id, Name: d.shown}); r.foreign(seen) {
		return CleanupFailed, r.otherName(seen)
	}
	w := d.client.untilDeleted(d.id, o, r.poll)
	w.patient = true
	_, err := w.run(ctx, isDeleted)
	switch {
	case err == nil:
		return CleanupDeleted, nil
	case r.accepted:
		return CleanupAccepted, err
	}
	return CleanupFailed, err
}

// cleanupContext limits all cleanups together: one that panics does not give the next one
// more time.
func (d *deployment) cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.cleanupEnd.IsZero() {
		d.cleanupEnd = time.Now().Add(cleanupLimit)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), d.cleanupEnd)
}

// removal deletes an endpoint and observes it until it is deleted.
type removal struct {
	observer *observer
	name     string        // that its record must have; empty: any
	limit    time.Duration // of each exchange, so that one that hangs leaves time for another; 0: none

	named    bool // a response has shown the record: with that name, or without any
	accepted bool // a delete was accepted
	there    bool // the latest poll read the record
}

// poll deletes the endpoint and reads its record. It does not repeat a delete that was
// accepted, unless the record was read after it. If the record was never read, poll reads it
// before the delete too, since the absence of a record that was read is proven sooner. As long
// as no response has shown the name, it deletes nothing: the endpoint may be somebody else's.
func (r *removal) poll(ctx context.Context) (*InferenceService, bool, error) {
	var before *InferenceService // as read before the delete
	unnamed := r.name != "" && !r.named
	if unnamed || !r.observer.seen() && !r.accepted {
		s, deleted, err := r.read(ctx)
		if deleted || err == nil && s.IsDeleted || err != nil && (unnamed || cause.Has[*permanentError](err)) {
			return s, deleted, err
		}
		before, r.named = s, true
	}
	if !r.accepted || r.there {
		if err := r.delete(ctx); err != nil && !r.accepted && !notFound(err) {
			return before, false, err
		}
	}
	s, deleted, err := r.read(ctx)
	if err != nil && !deleted {
		s = before
	}
	return s, deleted, err
}

// read reads the record. One with another name is a permanent error.
func (r *removal) read(ctx context.Context) (*InferenceService, bool, error) {
	ctx, cancel := r.limited(ctx)
	defer cancel()
	s, deleted, err := r.observer.poll(ctx)
	r.there = err == nil
	if err == nil && r.foreign(s) {
		return nil, false, r.otherName(s)
	}
	return s, deleted, err
}

// delete sends one delete, and notes whether it was accepted.
func (r *removal) delete(ctx context.Context) error {
	ctx, cancel := r.limited(ctx)
	defer cancel()
	// One attempt: after a failed one, Delete may take "not found" for success.
	err := r.observer.client.Delete(ctx, r.observer.id, asRead(r.observer.opts)...)
	r.accepted = r.accepted || err == nil
	return err
}

func (r *removal) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.limit)
}

// foreign reports whether a record is that of another endpoint than the one that was
// asked for. A service may change letter case and white space of a name.
func (r *removal) foreign(s *InferenceService) bool {
	return r.name != "" && s.Name != "" && !sameText(s.Name, r.name)
}

func (r *removal) otherName(s *InferenceService) error {
	clean := r.observer.client.client.caller.Redactor().String
	return Permanent(fmt.Errorf("svc: the name in the record of %s is %q, but the request had %q: it may be somebody else's endpoint, so it was not deleted; find out whose it is", clean(s.ServiceID), clean(s.Name), clean(r.name)))
}

// Use deploys an endpoint, calls the function with it, and deletes it on every way out:
// when the function returns, when it panics, when ctx ends. DeleteOnFailure and OnFailure
// have no effect.
//
// The error is that of Deploy or of the function. But if the endpoint is not known to be
// deleted after the function, it is a [DeployError] whose Err is the error of the function.
// The cleanup has a separate context, limited to 30 s.
//
// POST /v1/inference-service, then GET and DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Use(ctx context.Context, req CreateInferenceServiceRequest, opts *DeployOptions, use func(context.Context, *InferenceService) error) (err error) {
	if use == nil {
		return &ValidationError{Fields: []FieldError{{"use", "is nil"}}}
	}
	o := orZero(opts)
	if o.Key != "" {
		return &ValidationError{Fields: []FieldError{{"Key", "cannot be used with Use: one user would delete the endpoint of the other"}}}
	}
	o.DeleteOnFailure, o.OnFailure = true, nil
	d := &deployment{client: c, opts: o}
	if err := d.run(ctx, req); err != nil {
		return err
	}
	d.over, d.told, d.shown = false, true, d.record.Name
	defer d.rescue(ctx)
	defer func() {
		state, cleanupErr := d.cleanUp(ctx)
		if d.over = true; state != CleanupDeleted {
			err = &DeployError{ServiceID: d.id, Service: d.record, Cleanup: state, CleanupErr: cleanupErr, Err: err, use: true}
		}
	}()
	return c.client.safe(use(ctx, d.record))
}
