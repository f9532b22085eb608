package svc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
	"example.com/svc/ledger"
)

// createLinger is how long to wait for the response to a create after ctx has ended.
const createLinger = 10 * time.Second

// DeployOptions controls [InferenceServiceClient.Deploy]. If nil, the defaults are used.
type DeployOptions struct {
	WaitOptions

	// DeleteOnFailure deletes the endpoint if it does not become available, whatever the
	// reason: even when ctx ends, or when one of the functions in these options panics. The
	// cleanup has a separate context, limited to 30 s. If false, the endpoint is not deleted.
	DeleteOnFailure bool

	// OnFailure decides in place of DeleteOnFailure: if it returns true, the endpoint is
	// deleted. It is called before the cleanup, with the error that Deploy would return
	// without a cleanup. If one of the functions in these options panics, OnFailure is not
	// called, and the endpoint is deleted. If nil, DeleteOnFailure decides.
	OnFailure func(*DeployError) bool

	// OnCreate is called with the new record before the wait begins: store the ID there. If it
	// returns an error, Deploy fails with a [DeployError] that wraps this error. If the
	// response to the create was cut off, the record may hold only the ID. If nil, nothing is
	// called.
	OnCreate func(*InferenceService) error

	// CreateOptions apply to the create call only, after RequestOptions.
	CreateOptions []RequestOption

	// Key is the name of the endpoint in the ledger: 1 to 64 characters of a-z, 0-9, _ and -.
	// At most one endpoint at a time exists under a key. A second Deploy with the same key and
	// the same request creates nothing: it waits for the endpoint of the first Deploy, even if
	// that runs in another process. The second Deploy calls OnCreate with a record that holds
	// only the ID. It deletes the endpoint only if OnFailure returns true; DeleteOnFailure has
	// no effect there. If empty, the key is random, so every Deploy creates an endpoint. A key
	// without [WithLedger] is an [ErrNoLedger].
	Key string

	// Lease is how long the endpoint may exist, counted from its create by the service's clock.
	// The first [Ledger.Reap] after that time deletes the endpoint. If nobody calls Reap, Lease
	// has no effect. If Deploy continues with an existing endpoint, the lease counts from the
	// create of that endpoint, so it may be over already: then the next Reap deletes the endpoint,
	// although Deploy has succeeded, unless [Ledger.Extend] gives it more time. Such a Deploy can give the endpoint a
	// lease or lengthen it, but not shorten it. If zero, a new endpoint has no lease, and an
	// existing one keeps its lease. A lease without [WithLedger] is an [ErrNoLedger].
	Lease time.Duration

	// PickFlavor returns the ID of the flavor to create the endpoint with. It is called only before a
	// create, and not if Key has an endpoint already, which may have any flavor. If the service refuses
	// the create with a 4xx status that may be about the flavor, PickFlavor is called again, with all
	// flavors refused so far. All 4xx statuses may be about the flavor, except 401, 407, 408, 411, 413,
	// 414, 415, 417, 421, 425, 426, 428, 429 and 431. If PickFlavor returns an error, or one of the refused
	// flavors, Deploy fails. Its error lists the refused flavors with their reasons. The request must have no FlavorID. If nil, the
	// FlavorID of the request is used.
	PickFlavor func(ctx context.Context, refused []RefusedFlavor) (flavorID string, err error)

	use func(context.Context, *InferenceService) error // the function of Use
}

// A RefusedFlavor is a flavor with which the service refused to create an endpoint.
type RefusedFlavor struct {
	FlavorID string // ID of the flavor
	Err      error  // why the create was refused: an [Error] with a 4xx status
}

// A DeployError records that an endpoint was created but is not available, or that Use could
// not delete its endpoint. Cleanup reports whether the endpoint was deleted.
type DeployError struct {
	ServiceID string            // ID of the endpoint; never empty
	Service   *InferenceService // the record that was read last; nil if only the ID is known
	Resumed   bool              // an earlier call with the same key created the endpoint
	Cleanup   Cleanup           // CleanupDeleted: the endpoint is deleted; any other: it may still be running and billed
	// CleanupErr is why the cleanup could not confirm the deletion. It is nil if the endpoint
	// was deleted, or if there was no cleanup. errors.Is and errors.As do not inspect
	// CleanupErr.
	CleanupErr error
	// Err is why the endpoint is not available, such as a WaitError or the error returned by
	// OnCreate. After Use it is the error returned by the function, or nil.
	Err error

	use bool // Use returned the error, after it had called its function
}

// Error returns what happened, what may be running, and what to do about it, in one line.
func (e *DeployError) Error() string {
	text := "svc: deploying " + cmp.Or(e.ServiceID, "an endpoint")
	if e.use {
		text = "svc: using " + e.ServiceID
	}
	if e.Resumed {
		text += ", which an earlier call with the same key created"
	}
	if text += reason(e.Err); e.Err == nil && e.use {
		text += ": the function succeeded"
	}
	if e.Cleanup == CleanupDeleted {
		text += "; the endpoint is deleted now"
		if e.Resumed {
			text += ", so its key in the ledger is free again: the next Deploy with that key creates an endpoint"
		}
		return apierr.Line(text)
	}
	switch {
	case e.Cleanup == CleanupAccepted:
		text += "; the cleanup sent a delete, which was accepted, but could not confirm the deletion"
	case e.CleanupErr != nil:
		text += "; the cleanup could not delete the endpoint"
	}
	if e.CleanupErr != nil {
		text += " (" + detail(e.CleanupErr) + ")"
	}
	text += "; the endpoint may still be running and billed"
	if !cause.Has[*permanentError](e.CleanupErr) {
		text += ": if you do not want it, call DeleteAndWait, with a valid token of its account"
	}
	return apierr.Line(text)
}

// Unwrap returns Err.
func (e *DeployError) Unwrap() error { return e.Err }

// Deploy creates an endpoint and waits until it is available.
//
// If the create fails, Deploy returns the error of [InferenceServiceClient.Create]. If it
// succeeds and the endpoint does not become available, the error is a [DeployError]. It always
// holds the ID, and whether the endpoint is deleted. Along with an error, Deploy returns the last
// record that it read. A request for 0 instances is a [ValidationError], since the endpoint would
// never become available.
//
// Deploy does more than Create to learn the ID, since the service has no call that lists
// endpoints. If ctx ends before the response to the create arrives, Deploy waits for it for
// up to 10 s more. If a 2xx response is cut off but shows the ID, Deploy continues with it.
//
// The cleanup after a failure does what [InferenceServiceClient.DeleteAndWait] does, for up to 30
// s. So Deploy may return up to 40 s after the end of ctx. If the ledger does not respond, each
// record adds up to 5 s. The cleanup does not delete an endpoint whose name is not the requested
// one, since it may belong to somebody else, unless its description has the mark of the ledger.
//
// With [WithLedger], the create is recorded as in Create. If the ledger cannot record the
// new endpoint, Deploy fails with a [DeployError], as after an error of OnCreate. With
// [DeployOptions.Key], the entries of the key decide what Deploy does:
//   - An endpoint of the same request exists: Deploy waits until it is available. If it turns out
//     to be deleted, Deploy creates another one, and calls OnCreate again.
//   - An endpoint of another request exists: the error is [ErrKeyInUse].
//   - A create under the key is in doubt: the error is an [OutcomeUnknownError].
//   - A create under the key has no outcome yet (it is under way, or its process was killed):
//     Deploy reads the ledger until there is one, for up to 6 minutes, without calling OnPoll.
//
// POST /v1/inference-service, then GET and perhaps DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Deploy(ctx context.Context, req CreateInferenceServiceRequest, opts *DeployOptions) (*InferenceService, error) {
	d := &deployment{client: c, opts: orZero(opts)}
	if d.opts.Probe != nil {
		if _, err := c.URL("probe"); err != nil {
			return nil, err // before anything is created
		}
	}
	if (d.opts.Key != "" || d.opts.Lease != 0) && c.client.Ledger.journal == nil {
		return nil, ErrNoLedger
	}
	defer d.rescue(ctx)
	for again := false; ; again = true {
		err := d.create(ctx, req)
		for d.refusedFlavor(err) {
			err = d.create(ctx, req) // with the next flavor
		}
		if err == nil {
			w := c.wait(d.id, "available", d.opts.withDefaults(), true)
			d.observer, w.later = w.by, true
			_, err = w.run(ctx, untilAvailable)
			d.record = cmp.Or(d.observer.last, d.record)
		}
		switch {
		case err == nil && d.opts.use != nil:
			err = d.used(ctx)
		case err == nil, d.id == "":
		case d.resumed && !again && ctx.Err() == nil && d.deleted(): // the key is free now
			c.client.Ledger.deleted(ctx, d.observer)
			*d = deployment{client: c, opts: d.opts}
			continue
		default:
			err = d.failed(ctx, err)
		}
		d.over = true
		return d.record, err
	}
}

// deployment is the state of one Deploy or Use.
type deployment struct {
	client     *InferenceServiceClient
	opts       DeployOptions
	call       *call             // the create; its result can be read after a panic
	refused    []RefusedFlavor   // flavors that the service has refused so far
	id         string            // ID of the endpoint; empty if not known; OnCreate is called as soon as it is
	record     *InferenceService // the record that was read last; nil if only the ID is known
	shown      string            // name in the response to the create; empty if it has none
	over       bool              // no caller-supplied function has panicked
	cleanupEnd time.Time         // when all cleanups together must have ended; zero if no cleanup has begun
	resumed    bool              // an earlier call with the same key created the endpoint
	observer   *observer         // observations of the wait, which the cleanup continues; nil before the wait
}

// create creates the endpoint, or finds the existing one of the key, and calls OnCreate. If the
// service refuses the flavor that PickFlavor has returned, create notes that.
func (d *deployment) create(ctx context.Context, req CreateInferenceServiceRequest) error {
	c := d.client.client
	k := newCall(http.MethodPost, services, "", &req, req.problems(), append(slices.Clip(d.opts.RequestOptions), d.opts.CreateOptions...))
	d.check(k, &req)
	d.call, k.Linger = k, createLinger
	if d.opts.PickFlavor != nil {
		k.pick = func(ctx context.Context) (err error) {
			if req.ResourceMetadata.FlavorID, err = d.pick(ctx); err != nil {
				return err
			}
			return k.prepare(c)
		}
	}
	s, earlier, err := d.client.create(ctx, k, d.opts.Key, d.opts.Lease)
	switch unknown, ok := errors.AsType[*OutcomeUnknownError](err); {
	case d.refusedFlavor(err):
		d.refused = append(d.refused, RefusedFlavor{req.ResourceMetadata.FlavorID, err})
		return err
	case earlier != nil:
		d.id, d.resumed = earlier.ServiceID, true
	case ok && unknown.created():
		d.id, d.shown = unknown.ID, jsonfield.Salvage(unknown.Body, "name") // the wait reads the rest of the record
	case s != nil:
		if d.opts.Lease > 0 && dateOf(k.Result.Header).IsZero() {
			c.warn(ctx, "svc: a lease cannot be enforced before Extend gives it an end", errors.New("the response to the create has no Date header"), "key", d.opts.Key, "name", c.clean(s.Name), "id", c.clean(s.ServiceID))
		}
		d.id, d.record, d.shown = s.ServiceID, s, s.Name
	default:
		return err
	}
	var stop error
	if d.opts.OnCreate != nil {
		stop = c.safe(d.opts.OnCreate(cmp.Or(d.record, &InferenceService{ServiceID: d.id})))
	}
	if behind, ok := errors.AsType[*ledger.Error](err); ok { // the ledger could not record the endpoint
		return cause.Join(behind, stop)
	}
	return stop
}

// check adds the problems of a Deploy to those of its create.
func (d *deployment) check(k *call, req *CreateInferenceServiceRequest) {
	p, r := &k.problems, &req.ResourceMetadata
	p.add(r.TargetInstanceNumber == 0 && !k.opts.has(instanceField), instanceField, "is 0: an endpoint without instances never becomes available")
	p.add(d.opts.Key != "" && !ledger.ValidKey(d.opts.Key), "Key", "must be 1 to 64 characters of a-z, 0-9, _ and -")
	p.add(d.opts.Lease < 0, "Lease", "must not be negative")
	p.add(d.opts.PickFlavor != nil && r.FlavorID != "", "resource_metadata.flavor_id", "must be empty, since PickFlavor is set")
}

// pick returns the flavor that PickFlavor chooses.
func (d *deployment) pick(ctx context.Context) (string, error) {
	flavor, err := d.opts.PickFlavor(ctx, slices.Clone(d.refused))
	switch {
	case err != nil:
	case flavor == "":
		err = errors.New("svc: PickFlavor returned an empty ID")
	case slices.ContainsFunc(d.refused, func(r RefusedFlavor) bool { return r.FlavorID == flavor }):
		err = fmt.Errorf("svc: PickFlavor returned the flavor %q, which the service has refused", flavor)
	default:
		return flavor, nil
	}
	err = d.client.client.safe(err)
	e := &explained{"no flavor was picked: " + detail(err), []error{err}}
	for _, r := range d.refused {
		e.text += fmt.Sprintf("; flavor %q was refused: %s", r.FlavorID, detail(r.Err))
		e.errs = append(e.errs, r.Err)
	}
	return "", e
}

// refusedFlavor reports whether another flavor may be accepted: the service refused the create with a
// status that may be about the flavor, and the ledger, if there is one, has recorded that nothing was
// created. err is the error of the create.
func (d *deployment) refusedFlavor(err error) bool {
	r := &d.call.Result
	switch {
	case d.opts.PickFlavor == nil, r.Fail != nil, r.Acted, d.call.class != rules.Service, cause.Has[*ledger.Error](err):
		return false
	}
	return rules.AboutFlavor(r.StatusCode)
}

// deleted reports whether the wait has proved that the endpoint was deleted meanwhile.
func (d *deployment) deleted() bool {
	o := orZero(d.observer)
	named := o.gone == "" || same.Text(o.gone, d.givenName()) // another name is of another endpoint
	return named && o.evidence.Verdict == rules.Deleted
}

// Use deploys an endpoint, calls the function with its record, and deletes the endpoint
// afterwards in every case: when the function returns or panics, and when the deployment
// fails. DeleteOnFailure and OnFailure have no effect.
//
// If the deployment fails, Use returns the error of Deploy. Otherwise Use returns the error
// returned by the function, or a [DeployError] that wraps it if the endpoint is not known to
// be deleted. The cleanup has a separate context, limited to 30 s.
//
// POST /v1/inference-service, then GET and DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Use(ctx context.Context, req CreateInferenceServiceRequest, opts *DeployOptions, use func(context.Context, *InferenceService) error) error {
	o := orZero(opts)
	var p problems
	p.add(use == nil, "use", "is nil")
	p.add(o.Key != "", "Key", "cannot be used with Use: two calls with the same key would share one endpoint, and the first call to end would delete it")
	p.add(o.DeleteOnFailure || o.OnFailure != nil, "DeleteOnFailure", "and OnFailure cannot be used with Use, which always deletes the endpoint")
	if err := p.err(); err != nil {
		return err
	}
	o.DeleteOnFailure, o.use = true, use
	_, err := c.Deploy(ctx, req, &o)
	return err
}

// used calls the function of Use, and deletes the endpoint afterwards. After a panic, rescue deletes it.
func (d *deployment) used(ctx context.Context) error {
	d.shown = d.record.Name
	err := d.client.client.safe(d.opts.use(ctx, d.record))
	if state, cleanupErr := d.cleanUp(ctx); state != CleanupDeleted {
		return &DeployError{ServiceID: d.id, Service: d.record, Cleanup: state, CleanupErr: cleanupErr, Err: err, use: true}
	}
	return err
}
