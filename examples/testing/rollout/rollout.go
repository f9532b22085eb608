// Package rollout is a deploy script as a small package, and its test file shows
// how to test such a script on the fake of package svctest: twenty minutes of
// deployment in virtual time, an outage while it waits, and a create whose answer
// is lost. To run the tests:
//
//	go test -v ./examples/testing/...
package rollout

import (
	"context"
	"errors"
	"fmt"

	"example.com/svc"
)

// State is what a rollout must not forget: the service has no list in which an
// endpoint could be found again.
type State struct {
	Serving string // id of the endpoint in use; empty before the first rollout
	Next    string // id of its successor, while there is one
	Pending string // name of an endpoint that was asked for and whose id is not known
}

// Store keeps the state: in a file, a database, a secret of a cluster.
type Store interface {
	Load() (State, error)
	Save(State) error
}

// ErrUnsettled says that an earlier rollout left something behind that somebody
// has to look at before the next one.
var ErrUnsettled = errors.New("rollout: an earlier rollout is not settled")

// Replace deploys an endpoint and, once it is available, deletes the one that
// was in use. On failure the old one stays in use, and the new one is deleted. If
// it is not known whether there is a new one, its name stays in the store as
// Pending, and nothing is deployed until somebody has found out: see [Settle].
func Replace(ctx context.Context, client *svc.Client, store Store, req svc.CreateInferenceServiceRequest) error {
	state, err := store.Load()
	if err != nil {
		return err
	}
	if state.Pending != "" || state.Next != "" {
		return fmt.Errorf("%w: look for %q%q", ErrUnsettled, state.Pending, state.Next)
	}
	state.Pending = req.Name // before the create: the program may die at any point after it
	if err := store.Save(state); err != nil {
		return err
	}

	service, err := client.InferenceServices.Deploy(ctx, req, &svc.DeployOptions{
		DeleteOnFailure: true,
		OnCreate: func(s *svc.InferenceService) error { // an endpoint that nobody will remember is not to be
			state.Pending, state.Next = "", s.ServiceID
			return store.Save(state)
		},
	})
	if err != nil {
		return errors.Join(err, giveUp(store, state, err))
	}

	old := state.Serving
	if err := store.Save(State{Serving: service.ServiceID}); err != nil {
		return fmt.Errorf("%s is available, and %s still runs: %w", service.ServiceID, old, err)
	}
	if old == "" {
		return nil
	}
	if err := client.InferenceServices.Delete(ctx, old); err != nil && !errors.Is(err, svc.ErrNotFound) {
		return fmt.Errorf("%s is available, but %s still runs: %w", service.ServiceID, old, err)
	}
	return nil
}

// giveUp stores what a failed deployment has left behind.
func giveUp(store Store, state State, err error) error {
	failure, created := errors.AsType[*svc.DeployError](err)
	if created && failure.Cleanup == svc.CleanupDeleted || !created && !errors.Is(err, svc.ErrOutcomeUnknown) {
		state.Pending, state.Next = "", "" // there is no new endpoint, or not any more
	}
	return store.Save(state)
}

// Settle ends what [ErrUnsettled] is about, after somebody has looked. The id is
// that of the endpoint that the earlier rollout left behind, which is deleted;
// empty if there turned out to be none.
func Settle(ctx context.Context, client *svc.Client, store Store, id string) error {
	state, err := store.Load()
	if err != nil {
		return err
	}
	if id != "" {
		if err := client.InferenceServices.Delete(ctx, id); err != nil && !errors.Is(err, svc.ErrNotFound) {
			return err
		}
	}
	return store.Save(State{Serving: state.Serving})
}
