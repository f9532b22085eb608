package svc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/errbody"
	"example.com/svc/internal/poll"
)

const (
	deployGrace  = 30 * time.Second // for a new id to become readable
	cleanUpLimit = 30 * time.Second // for the delete after a failure
	createLinger = 10 * time.Second // for the answer to a create whose ctx has ended
)

// DeployOptions sets up [InferenceServiceClient.Deploy]. Nil stands for the zero
// value.
type DeployOptions struct {
	WaitOptions

	// DeleteOnFailure deletes what was created when it does not become
	// available, whatever the reason: also when ctx ends, or when one of the
	// functions in these options panics. The delete has a context of its own,
	// limited to 30 s.
	DeleteOnFailure bool

	// DeleteIf decides in the place of DeleteOnFailure, if it is set, by the error
	// that Deploy would end with. After a panic of one of the functions here it is
	// not asked, and what was created is deleted.
	DeleteIf func(error) bool

	// OnCreate is called with the new record before the wait begins: the moment to
	// write the id down. If it returns an error, Deploy ends with it as a failure.
	// When the answer to the create broke off behind the id, the record holds
	// nothing but that.
	OnCreate func(*InferenceService) error

	// OnCleanUp is called before the delete after a failure, which may take up to
	// 30 s.
	OnCleanUp func(id string)

	// CreateOptions go with the create call.
	CreateOptions []RequestOption
}

// DeployError says that an endpoint was created and is not available. What
// became of the instance is in Gone.
type DeployError struct {
	ServiceID  string            // never empty
	Service    *InferenceService // the record as seen last; nil when only the id is known
	Gone       bool              // true: it was deleted, and the record was seen to be gone; false: it may still be running and billed
	Accepted   bool              // a delete was accepted; if Gone is false all the same, wait with WaitUntilDeleted before deleting again
	CleanUpErr error             // why Gone is false after a delete: see Deploy; errors.Is and errors.As do not look into it
	Err        error             // why it is not available: a WaitError, or the error of OnCreate
}

// Error says what happened, what may be running, and what to do about it.
func (e *DeployError) Error() string {
	text := fmt.Sprintf("svc: deploying %s: %s", e.ServiceID, detail(e.Err))
	if e.Gone {
		return errbody.Line(text + "; the instance was deleted")
	}
	text += "; the instance may still be running and billed: "
	if e.Accepted && e.CleanUpErr != nil {
		return errbody.Line(text + detail(e.CleanUpErr) + "; wait until " + e.ServiceID + " is deleted, and delete it again if it stays")
	}
	text += "delete " + e.ServiceID + " if it is not wanted"
	if e.CleanUpErr != nil {
		text += "; deleting it failed: " + detail(e.CleanUpErr)
	}
	return errbody.Line(text)
}

// Unwrap gives the reason.
func (e *DeployError) Unwrap() error { return e.Err }

// Deploy creates an endpoint and waits until it is available.
//
// An error before anything was created is the one of
// [InferenceServiceClient.Create]; after that it is a [DeployError], which
// always holds the id and says whether the instance is gone. The last record is
// returned along with an error.
//
// Deploy does more than Create to keep the id, since the service has no call that
// would find it again. When ctx ends while the create is on its way, its answer is
// awaited up to 10 s more. When an answer of success breaks off, but shows the id,
// Deploy goes on with that. And a new id that is not found is taken for not
// readable yet, for [WaitOptions.NotFoundGrace].
//
// A delete after a failure is repeated for up to 30 s while it fails, or while the
// record shows that it had no effect. An answer to it proves nothing, since deleting
// may take its time: Gone is true when a look finds no record any more, or one that
// says that it is deleted. When there is no such look within the 30 s, or none is
// allowed (401, 403), then Accepted says whether the delete was accepted, and
// CleanUpErr what the looks said.
//
// So Deploy may return up to 40 s after the end of ctx: 10 s for the answer to the
// create, and 30 s for a clean-up.
//
// POST /v1/inference-service, then GET and perhaps DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Deploy(ctx context.Context, req CreateInferenceServiceRequest, opts *DeployOptions) (*InferenceService, error) {
	var o DeployOptions
	if opts != nil {
		o = *opts
	}
	if o.Probe != nil {
		if _, err := c.URL("probe"); err != nil {
			return nil, err // better now than with an instance running
		}
	}
	k := create(services, req.Name, &req).checked(req.problems())
	k.linger = createLinger
	s, err := do[InferenceService](ctx, c.client, k, o.CreateOptions)
	d := deployment{client: c, record: s}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok && unknown.created() {
		s, err = &InferenceService{ServiceID: unknown.ID}, nil // the wait reads the rest
	}
	if err != nil {
		return nil, err
	}
	d.id = s.ServiceID

	over := false
	defer func() {
		if !over && (o.DeleteOnFailure || o.DeleteIf != nil) { // a panic in one of the caller's functions
			_, _ = d.cleanUp(ctx)
		}
	}()
	if o.OnCreate != nil {
		err = c.client.safe(o.OnCreate(s))
	}
	if err == nil {
		err = d.wait(ctx, &o.WaitOptions)
	}
	var failure *DeployError
	remove := false
	if err != nil {
		failure = &DeployError{ServiceID: d.id, Service: d.record, Err: err}
		remove = o.DeleteOnFailure
		if o.DeleteIf != nil {
			remove = o.DeleteIf(failure)
		}
		if remove && o.OnCleanUp != nil {
			o.OnCleanUp(failure.ServiceID)
		}
	}
	over = true
	if failure == nil {
		return d.record, nil
	}
	if remove {
		failure.Gone, failure.CleanUpErr = d.cleanUp(ctx)
		failure.Accepted = d.accepted
	}
	return d.record, failure
}

// deployment is what is known of an endpoint that was just created.
type deployment struct {
	client *InferenceServiceClient
	id     string
	record *InferenceService // as seen last; nil when only the id is known
	read   bool              // the wait has read the record, or a delete was accepted: there was one

	// Of the clean-up.
	accepted bool // a delete was accepted
	there    bool // the latest look found the record
}

// wait waits until the endpoint is available.
func (d *deployment) wait(ctx context.Context, o *WaitOptions) error {
	w := d.client.wait(d.id, "available", o.withDefaults(deployGrace), true)
	last, err := w.run(ctx, settle(untilAvailable))
	if last != nil {
		d.record, d.read = last, true
	}
	return err
}

// acceptedError says that a delete was accepted, and that the record is not known
// to be gone.
type acceptedError struct{ look error } // nil: the record is still there

func (e *acceptedError) Error() string { return "svc: " + e.detail() }

func (e *acceptedError) detail() string {
	if e.look == nil {
		return "the delete was accepted, but the record is still there"
	}
	return "the delete was accepted, but whether the record is gone could not be seen: " + detail(e.look)
}

func (e *acceptedError) Unwrap() error { return e.look }

// errStillThere: the answer to a delete was none to rely on.
var errStillThere = errors.New("svc: the record is still there")

// cleanUp deletes the endpoint, whatever became of ctx, and looks until it is gone.
func (d *deployment) cleanUp(ctx context.Context) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	pace := poll.New(ctx, 500*time.Millisecond, 5*time.Second)
	for {
		last := d.remove(ctx)
		switch {
		case last == nil:
			return true, nil
		case ctx.Err() == nil || err == nil:
			err = last // the end of the time says less than what came before it
		}
		if errors.Is(last, ErrUnauthorized) || errors.Is(last, ErrForbidden) || cause.Has[*ValidationError](last) {
			return false, err
		}
		var asked time.Duration
		if answer, ok := errors.AsType[*Error](last); ok {
			asked = answer.RetryAfter
		}
		if next, another := pace.Next(asked); !another || pace.Sleep(next) != nil {
			return false, err
		}
	}
}

// remove deletes the endpoint, unless that is done and only a look is due, and looks
// whether it is gone: nil says that it is. No answer to the delete is proof of that,
// since what is accepted may take its time. "Not found" is, if the record has ever
// been readable or a delete was accepted; where none was, it has to come as JSON, since
// a proxy that has lost its way to the service says it in plain text. A record that is still there may mean that
// the delete had no effect, and another does no harm; what cannot be read means
// nothing, and is only looked at again.
func (d *deployment) remove(ctx context.Context) error {
	if !d.accepted || d.there {
		if err := d.delete(ctx); err != nil && !d.accepted {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cleanUpLimit/3) // one that hangs leaves time for another
	defer cancel()
	s, err := d.client.Get(ctx, d.id, WithMaxAttempts(1))
	d.there = err == nil
	switch {
	case d.there && s.IsDeleted, d.read && notFound(err) && (d.accepted || inJSON(err)):
		return nil
	case d.accepted && d.there:
		return &acceptedError{}
	case d.accepted:
		return &acceptedError{err}
	case d.there:
		return errStillThere
	}
	return err
}

// delete sends one delete, and notes whether it was accepted, which an answer that
// holds what the service does not promise does not say. That it finds nothing, where
// there was a record, may be because another has done it: a look can tell.
func (d *deployment) delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpLimit/3)
	defer cancel()
	// One attempt at a time: after a failed one, Delete takes "not found" for success.
	var answer Response
	err := d.client.Delete(ctx, d.id, WithMaxAttempts(1), WithResponse(&answer))
	switch body := string(bytes.TrimSpace(answer.Body)); {
	case err == nil && (body == "" || body == "{}"):
		d.read, d.accepted = true, true
	case d.read && notFound(err):
		return nil
	}
	return err
}
