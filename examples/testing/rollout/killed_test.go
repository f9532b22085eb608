package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/examples/testing/rollout"
	"example.com/svc/svctest"
)

var errKilled = errors.New("killed")

// process is a run of the program that is killed at some step. A step is a moment
// before or after something that the rest of the world sees: a request takes effect,
// the state is saved. From then on nothing is sent and nothing is saved.
type process struct {
	next  http.RoundTripper
	store *memory
	left  int                // steps until it is killed
	dead  context.CancelFunc // ends the goroutine of a killed process
}

// step returns an error if the process does not live any more.
func (p *process) step() error {
	p.left--
	if p.left < 0 {
		p.dead()
		return errKilled
	}
	return nil
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	resp, err := p.next.RoundTrip(r)
	if killed := p.step(); killed != nil {
		return nil, killed
	}
	return resp, err
}

func (p *process) Load() (rollout.State, error) { return p.store.Load() }

func (p *process) Save(s rollout.State) error {
	if err := p.step(); err != nil {
		return err
	}
	return errors.Join(p.store.Save(s), p.step())
}

// runAndKill replaces the endpoint in a process that is killed after some steps. It
// returns false if the process ended before.
func runAndKill(t *testing.T, srv *svctest.Server, store *memory, steps int) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &process{next: srv.HTTPClient().Transport, store: store, left: steps, dead: cancel}
	client, err := svc.NewClient(srv.URL(), svc.WithToken(srv.Token()), svc.WithHTTPClient(&http.Client{Transport: p}))
	require.NoError(t, err)
	err = rollout.Replace(ctx, client, p, request)
	if p.left < 0 {
		return true
	}
	require.NoError(t, err)
	return false
}

// requireKnown fails if an endpoint is billed that cannot be found with the state.
func requireKnown(t *testing.T, srv *svctest.Server, s rollout.State) {
	t.Helper()
	for _, e := range srv.Endpoints() {
		if e.Billed && e.ID != s.Serving && e.ID != s.Next && e.ID != s.Old {
			require.Equal(t, s.Pending, e.Name, "%s is billed and in no store: %+v", e.ID, s)
		}
	}
}

// settle does what a person does about [rollout.ErrUnsettled].
func settle(t *testing.T, srv *svctest.Server, store *memory) {
	t.Helper()
	var found string
	for _, e := range srv.Endpoints() {
		if !e.Deleted && e.Name == store.state.Pending {
			found = e.ID
		}
	}
	require.NoError(t, rollout.Settle(t.Context(), srv.Client(), store, found))
}

// TestC27_KilledAtAnyStep: wherever the program is killed, the store leads to all
// that is billed, and the next run ends with one endpoint.
func TestC27_KilledAtAnyStep(t *testing.T) {
	steps := 0
	for killed := true; killed; steps++ {
		t.Run(fmt.Sprint("after step ", steps), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
				killed = runAndKill(t, srv, store, steps)
				requireKnown(t, srv, store.state)

				err := rollout.Replace(t.Context(), srv.Client(), store, request)
				if errors.Is(err, rollout.ErrUnsettled) {
					settle(t, srv, store)
					err = rollout.Replace(t.Context(), srv.Client(), store, request)
				}
				require.NoError(t, err)
				require.Equal(t, 1, srv.RunningInstances())
				e, _ := srv.Endpoint(store.state.Serving)
				require.Equal(t, rollout.State{Serving: e.ID}, store.state)
				require.True(t, e.Billed)
			}, svctest.WithDeployTime(5*time.Second), svctest.WithDeleteTime(3*time.Second))
		})
	}
	require.Greater(t, steps, 20, "the program was not killed often enough")
}

// TestC27_OldStaysInTheStoreUntilItIsDeleted: also when the service accepts a delete
// and forgets it, takes its time, or refuses.
func TestC27_OldStaysInTheStoreUntilItIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))
		require.Equal(t, rollout.State{Serving: "svc-2"}, store.state)
		require.Equal(t, 1, srv.RunningInstances(), "the deletion was waited for")

		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 403, Times: -1})
		err := rollout.Replace(t.Context(), srv.Client(), store, request)
		require.ErrorIs(t, err, svc.ErrForbidden)
		require.ErrorContains(t, err, "svc-3 is in use, but svc-2 may still be running")
		require.Equal(t, rollout.State{Serving: "svc-3", Old: "svc-2"}, store.state)

		err = rollout.Replace(t.Context(), srv.Client(), store, request)
		require.ErrorIs(t, err, svc.ErrForbidden, "the old one first")
		require.Equal(t, rollout.State{Serving: "svc-3", Old: "svc-2"}, store.state)

		srv.ClearFaults()
		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))
		require.Equal(t, rollout.State{Serving: "svc-4"}, store.state)
		require.Equal(t, 1, srv.RunningInstances())
	}, svctest.WithDeleteTime(time.Minute))
}

// TestC27_SettleForgetsNoKnownID: the next endpoint is deleted also if nobody names it.
func TestC27_SettleForgetsNoKnownID(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		store.state.Next = srv.AddEndpoint(svctest.Endpoint{Name: "demo-2", FlavorID: "flavor-1", Instances: 1})
		require.NoError(t, rollout.Settle(t.Context(), srv.Client(), store, ""))
		require.Equal(t, rollout.State{Serving: "svc-1"}, store.state)
		require.Equal(t, 1, srv.RunningInstances())

		store.state.Pending = "demo-1"
		require.ErrorContains(t, rollout.Settle(t.Context(), srv.Client(), store, "svc-1"), "svc-1 is in use")
		require.Equal(t, 1, srv.RunningInstances())
	})
}
