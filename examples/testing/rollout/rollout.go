// Package rollout is a deploy script as a small package. It keeps no state: the ledger of
// the client (see [svc.WithLedger]) knows what may be running. Its test files show how to
// test such a script on the fake of package svctest: twenty minutes of deployment in
// virtual time, an outage during the wait, a create whose response is lost, and a
// process that is killed at any step. To run the tests:
//
//	go test -v ./examples/testing/...
package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// lease is the time that a rollout may take until its new endpoint is in use. If the rollout
// was killed and nobody repeats it, [svc.Ledger.Reap] deletes the endpoint after that time.
const lease = 2 * time.Hour

// removal is how long one old endpoint may take until it is deleted. A service that refuses the
// delete may accept it later, so without a limit DeleteAndWait would go on as long as ctx.
const removal = 10 * time.Minute

// Replace deploys a release of app. When the new endpoint is available, Replace deletes the endpoints
// of all other releases, and waits until they are deleted. The client needs a ledger.
// Only one rollout of an app may run at a time. The new endpoint has the number of instances of req, also
// if the old ones were scaled.
//
// If the deployment fails, the old endpoint stays in use and the new one is deleted. If
// only the deletion of an old endpoint fails, Replace returns the new one and the error.
// Repeat the same call after an error or a kill, at any point: it continues with
// the endpoint that it finds in the ledger.
//
// After an [svc.ErrOutcomeUnknown] somebody has to look for the endpoint first, and to
// settle the entry with [svc.Ledger.Adopt] or [svc.Ledger.Forget].
func Replace(ctx context.Context, client *svc.Client, app string, release int, req svc.CreateInferenceServiceRequest) (*svc.InferenceService, error) {
	service, err := client.InferenceServices.Deploy(ctx, req, &svc.DeployOptions{
		Key:       fmt.Sprintf("%s_%d", app, release),
		Lease:     lease,
		OnFailure: func(*svc.DeployError) bool { return true }, // also deletes an endpoint that an earlier call created
	})
	if err != nil {
		return nil, err
	}
	if err := retire(ctx, client, app, service.ServiceID); err != nil {
		return service, fmt.Errorf("%s is available, but the rollout is not complete: %w", service.ServiceID, err)
	}
	return service, nil
}

// Remove deletes all endpoints of app, and waits until they are deleted.
func Remove(ctx context.Context, client *svc.Client, app string) error {
	return retire(ctx, client, app, "")
}

// retire ends the lease of the endpoint in use, and deletes all other endpoints of app.
func retire(ctx context.Context, client *svc.Client, app, inUse string) error {
	entries, err := client.Ledger.Entries(ctx)
	if err != nil {
		return err
	}
	var old []ledger.Entry
	for _, e := range entries {
		switch i := strings.LastIndex(e.Key, "_"); {
		case !e.Open() || i < 0 || e.Key[:i] != app:
		case e.ServiceID != inUse || inUse == "":
			old = append(old, e)
		case !e.LeaseEnd.IsZero(): // remove the lease before an old endpoint is deleted
			if err := client.Ledger.Extend(ctx, e, time.Time{}); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, e := range old {
		if e.State != ledger.Created {
			errs = append(errs, fmt.Errorf("key %s: %w", e.Key, svc.ErrOutcomeUnknown))
		} else if err := remove(ctx, client, e.ServiceID); err != nil {
			errs = append(errs, fmt.Errorf("%s may still be running: %w", e.ServiceID, err))
		}
	}
	return errors.Join(errs...)
}

func remove(ctx context.Context, client *svc.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removal)
	defer cancel()
	return client.InferenceServices.DeleteAndWait(ctx, id, nil)
}
