package rollout_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/examples/testing/rollout"
	"example.com/svc/svctest"
)

// memory is a Store for tests. It cannot save a next endpoint with the ID in refuse.
type memory struct {
	state  rollout.State
	refuse string
}

var errDiskFull = errors.New("disk full")

func (m *memory) Load() (rollout.State, error) { return m.state, nil }

func (m *memory) Save(s rollout.State) error {
	if m.refuse != "" && s.Next == m.refuse {
		return errDiskFull
	}
	m.state = s
	return nil
}

var request = svc.CreateInferenceServiceRequest{
	Name:             "demo-2",
	ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1},
	DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:2", Port: 8000, GPUNum: 1},
}

// inBubble runs a test in virtual time, with a service on which the endpoint
// svc-1 is in use and a deployment takes twenty minutes.
func inBubble(t *testing.T, test func(t *testing.T, srv *svctest.Server, store *memory), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(append([]svctest.Option{svctest.WithDeployTime(20 * time.Minute)}, opts...)...)
		t.Cleanup(srv.Close)
		old := srv.AddEndpoint(svctest.Endpoint{Name: "demo-1", FlavorID: "flavor-1", Instances: 1})
		test(t, srv, &memory{state: rollout.State{Serving: old}})
	})
}

func TestReplaceAfterTwentyMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		start := time.Now()
		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))

		require.GreaterOrEqual(t, time.Since(start), 20*time.Minute) // none of which this test took
		require.Equal(t, rollout.State{Serving: "svc-2"}, store.state)
		require.Equal(t, 1, srv.RunningInstances())
		next, _ := srv.Endpoint("svc-2")
		require.Equal(t, "registry.example/app:2", next.ImageURL)
		require.Equal(t, svctest.StatusAvailable, next.Status)
	})
}

func TestReplaceToleratesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		time.AfterFunc(5*time.Minute, func() {
			srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(20), svctest.DropBeforeEffect(), svctest.RateLimited("10"))
		})
		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))

		require.Zero(t, srv.PendingFaults(), "the outage took place")
		require.Equal(t, rollout.State{Serving: "svc-2"}, store.state)
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
	})
}

// TestReplaceWithHalfAResponse: it is enough if the ID is in that half.
func TestReplaceWithHalfAResponse(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{TruncateBody: true})
		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))
		require.Equal(t, rollout.State{Serving: "svc-2"}, store.state)
		require.Equal(t, 1, srv.RunningInstances())
	})
}

// TestAmbiguousCreate: the create took effect, and its response was lost. The script
// must not create again, and must not forget the name.
func TestAmbiguousCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		err := rollout.Replace(t.Context(), srv.Client(), store, request)
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, rollout.State{Serving: "svc-1", Pending: "demo-2"}, store.state)
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
		require.Zero(t, srv.RequestCount("DELETE", svctest.RouteAny), "the old endpoint keeps running")

		// Whoever runs the script again is stopped before anything is sent.
		srv.ResetRequests()
		err = rollout.Replace(t.Context(), srv.Client(), store, request)
		require.ErrorIs(t, err, rollout.ErrUnsettled)
		require.ErrorContains(t, err, "demo-2")
		require.Zero(t, srv.RequestCount("*", svctest.RouteAny))

		// Somebody looks at the console of the service, and finds the endpoint there.
		var found string
		for _, e := range srv.Endpoints() {
			if e.Name == store.state.Pending {
				found = e.ID
			}
		}
		require.Equal(t, "svc-2", found)
		require.NoError(t, rollout.Settle(t.Context(), srv.Client(), store, found))
		require.Equal(t, 1, srv.RunningInstances(), "only the endpoint in use is billed")

		require.NoError(t, rollout.Replace(t.Context(), srv.Client(), store, request))
		require.Equal(t, rollout.State{Serving: "svc-3"}, store.state)
		require.Equal(t, 1, srv.RunningInstances())
	})
}

func TestFailuresKeepTheOldEndpoint(t *testing.T) {
	unavailable := svctest.WithStatusPath(svctest.StatusInitializing, svctest.StatusUnavailable)
	tests := map[string]struct {
		fake    []svctest.Option
		prepare func(*svctest.Server, *memory)
		limit   time.Duration
		want    error
		next    string // ID of the endpoint that is left running
	}{
		"the new one is unavailable": {fake: []svctest.Option{unavailable}, want: svc.ErrUnavailable},
		"it takes too long":          {limit: 10 * time.Minute, want: context.DeadlineExceeded},
		"its ID cannot be stored":    {prepare: func(_ *svctest.Server, m *memory) { m.refuse = "svc-2" }, want: errDiskFull},
		"the create is refused": {
			prepare: func(srv *svctest.Server, _ *memory) {
				srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409})
			},
			want: svc.ErrConflict,
		},
		"it cannot be deleted": {
			fake: []svctest.Option{unavailable},
			prepare: func(srv *svctest.Server, _ *memory) {
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 403, Times: -1})
			},
			want: svc.ErrUnavailable, next: "svc-2",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *svctest.Server, store *memory) {
				if tt.prepare != nil {
					tt.prepare(srv, store)
				}
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				err := rollout.Replace(ctx, srv.Client(), store, request)
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, rollout.State{Serving: "svc-1", Next: tt.next}, store.state)
				old, _ := srv.Endpoint("svc-1")
				require.True(t, old.Billed)
				if tt.next == "" {
					require.Equal(t, 1, srv.RunningInstances())
				}
			}, tt.fake...)
		})
	}
}
