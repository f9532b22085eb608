// Package rollout is a deploy script as a small package. Its test file shows how to
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

	"example.com/svc"
)

// State is what a rollout must not forget: the service has no call that lists
// endpoints. An ID leaves the state only when its endpoint was seen to be deleted.
type State struct {
	Serving string // ID of the endpoint in use; empty before the first rollout
	Pending string // name of an endpoint whose create was sent; empty once its ID is known
	Next    string // ID of the next endpoint while it is not available yet
	Old     string // ID of an endpoint that is no longer used and not yet seen to be deleted
}

// Store keeps the state in a file, a database, or a secret of a cluster.
type Store interface {
	Load() (State, error)
	// Save replaces the whole state at once, or returns an error.
	Save(State) error
}

// ErrUnsettled says that an earlier rollout was killed or failed, and that an
// endpoint of it may be running and billed: see [Settle].
var ErrUnsettled = errors.New("rollout: an earlier rollout is not settled")

// Replace deploys an endpoint. Once that is available, Replace deletes the endpoint
// that was in use before, and waits until it is deleted.
//
// If the deployment fails, the old endpoint stays in use and the new one is deleted.
// If the deletion of the old one fails, the new one is in use, and the next call
// deletes the old one first. What may be running stays in the store, so the program
// can be killed at any point.
func Replace(ctx context.Context, client *svc.Client, store Store, req svc.CreateInferenceServiceRequest) error {
	state, err := store.Load()
	if err != nil {
		return err
	}
	if state.Pending != "" || state.Next != "" {
		return fmt.Errorf("%w: look for %q%q", ErrUnsettled, state.Pending, state.Next)
	}
	if err := retire(ctx, client, store, &state); err != nil {
		return err
	}

	state.Pending = req.Name // stored before the create is sent
	if err := store.Save(state); err != nil {
		return err
	}
	service, err := client.InferenceServices.Deploy(ctx, req, &svc.DeployOptions{
		DeleteOnFailure: true,
		OnCreate: func(s *svc.InferenceService) error { // with an error, Deploy deletes the endpoint
			state.Pending, state.Next = "", s.ServiceID
			return store.Save(state)
		},
	})
	if err != nil {
		return errors.Join(err, giveUp(store, state, err))
	}

	state = State{Serving: service.ServiceID, Old: state.Serving}
	if err := store.Save(state); err != nil {
		return fmt.Errorf("%s is available, but that is not stored; %q still runs: %w", service.ServiceID, state.Old, err)
	}
	return retire(ctx, client, store, &state)
}

// retire deletes the endpoint that is no longer used. Its ID leaves the store after that.
func retire(ctx context.Context, client *svc.Client, store Store, state *State) error {
	if state.Old == "" {
		return nil
	}
	if err := client.InferenceServices.DeleteAndWait(ctx, state.Old, nil); err != nil {
		return fmt.Errorf("%s is in use, but %s may still be running: %w", state.Serving, state.Old, err)
	}
	state.Old = ""
	return store.Save(*state)
}

// giveUp stores what a failed deployment has left running.
func giveUp(store Store, state State, err error) error {
	failure, created := errors.AsType[*svc.DeployError](err)
	switch {
	case created && failure.Cleanup != svc.CleanupDeleted:
		state.Pending, state.Next = "", failure.ServiceID
	case created, !errors.Is(err, svc.ErrOutcomeUnknown):
		state.Pending, state.Next = "", "" // there is no new endpoint
	}
	return store.Save(state)
}

// Settle ends what [ErrUnsettled] is about: it deletes what the earlier rollout has
// left, and waits until that is deleted. If only a name is known (Pending), somebody
// has to look for it first, where the service shows what the account runs. Pass the ID
// that was found, or an empty one if there is no such endpoint.
func Settle(ctx context.Context, client *svc.Client, store Store, id string) error {
	state, err := store.Load()
	if err != nil {
		return err
	}
	if id != "" && id == state.Serving {
		return fmt.Errorf("rollout: %s is in use, and not what the earlier rollout left", id)
	}
	for _, left := range []string{id, state.Next} {
		if left == "" {
			continue
		}
		if err := client.InferenceServices.DeleteAndWait(ctx, left, nil); err != nil {
			return fmt.Errorf("%s may still be running: %w", left, err)
		}
	}
	state.Pending, state.Next = "", ""
	return store.Save(state)
}
