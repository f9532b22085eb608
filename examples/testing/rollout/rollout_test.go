package rollout_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/examples/testing/rollout"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

const app = "demo"

// request is what all releases deploy.
var request = svc.CreateInferenceServiceRequest{
	Name:             "demo-2",
	ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1},
	DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:2", Port: 8000, GPUNum: 1},
}

// world is a service on which a deployment takes twenty minutes, and a ledger.
type world struct {
	*svctest.Server
	store ledger.Store
}

// client returns a new client: each run of the script is a new process.
func (w *world) client() *svc.Client { return w.Client(svc.WithLedger(w.store)) }

func (w *world) replace(ctx context.Context, release int) error {
	_, err := rollout.Replace(ctx, w.client(), app, release, request)
	return err
}

// inUse fails unless exactly this endpoint is billed, and the ledger says the same.
func (w *world) inUse(t *testing.T, id string) {
	t.Helper()
	require.Equal(t, []string{id}, w.billed())
	require.Equal(t, []string{id}, w.open(t))
}

func (w *world) billed() (ids []string) {
	for _, e := range w.Endpoints() {
		if e.Billed {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// open lists the IDs of the endpoints that may be running according to the ledger. The ID of an
// entry in doubt is "".
func (w *world) open(t *testing.T) (ids []string) {
	t.Helper()
	entries, err := w.client().Ledger.Entries(t.Context())
	require.NoError(t, err)
	for _, e := range entries {
		if e.Open() {
			ids = append(ids, e.ServiceID)
		}
	}
	return ids
}

// settle settles all entries in doubt, as a person would: it looks for the mark of each entry
// in the descriptions of the endpoints that the service has.
func (w *world) settle(t *testing.T) {
	t.Helper()
	all := w.client().Ledger
	entries, err := all.Entries(t.Context())
	require.NoError(t, err)
	for _, e := range entries {
		if !e.Open() || e.State == ledger.Created {
			continue
		}
		time.Sleep(time.Until(e.SettleBy.Add(2 * time.Minute)))
		there := slices.IndexFunc(w.Endpoints(), func(s svctest.Endpoint) bool { return strings.Contains(s.Description, e.Intent) && !s.Deleted })
		if there < 0 {
			require.NoError(t, all.Forget(t.Context(), e))
			continue
		}
		_, err := all.Adopt(t.Context(), e, w.Endpoints()[there].ID, nil)
		require.NoError(t, err)
	}
}

// inBubble runs a test in virtual time, with release 1 in use as svc-1. At the end it
// removes all endpoints that the ledger knows. Then nothing may be running.
func inBubble(t *testing.T, test func(t *testing.T, w *world), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{svctest.NewInMemory(append([]svctest.Option{svctest.WithDeployTime(20 * time.Minute)}, opts...)...), ledger.Memory()}
		t.Cleanup(w.Close)
		svctest.NoLeaks(t, w.Server)
		require.NoError(t, w.replace(t.Context(), 1))
		w.ResetRequests()
		test(t, w)
		w.ClearFaults()
		w.settle(t)
		require.NoError(t, rollout.Remove(t.Context(), w.client(), app))
	})
}

func TestReplaceAfterTwentyMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		service, err := rollout.Replace(t.Context(), w.client(), app, 2, request)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Minute) // of virtual time
		require.Equal(t, "svc-2", service.ServiceID)
		w.inUse(t, "svc-2")
		next, _ := w.Endpoint("svc-2")
		require.Equal(t, "registry.example/app:2", next.ImageURL)
		require.Equal(t, svctest.StatusAvailable, next.Status)

		require.NoError(t, w.replace(t.Context(), 2), "it may be repeated")
		w.inUse(t, "svc-2")

		time.Sleep(24 * time.Hour)
		reaped, err := w.client().Ledger.Reap(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, reaped, "what is in use has no lease")
	})
}

// TestReplaceToleratesFailures: a rollout tolerates an outage, and a response to the create that
// is cut off after the ID.
func TestReplaceToleratesFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("POST", svctest.RouteEndpoints, svctest.Fault{TruncateBody: true})
		time.AfterFunc(5*time.Minute, func() {
			w.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(20), svctest.DropBeforeEffect(), svctest.RateLimited("10"))
		})
		require.NoError(t, w.replace(t.Context(), 2))
		require.Zero(t, w.PendingFaults(), "the outage took place")
		require.Equal(t, 1, w.RequestCount("POST", svctest.RouteEndpoints))
		w.inUse(t, "svc-2")
	})
}

// TestAmbiguousCreate: the create took effect, and its response was lost. The script
// must not create again.
func TestAmbiguousCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		require.ErrorIs(t, w.replace(t.Context(), 2), svc.ErrOutcomeUnknown)
		require.Equal(t, []string{"svc-1", "svc-2"}, w.billed(), "the old endpoint keeps running")

		// If the script is run again, it fails before it sends anything.
		w.ResetRequests()
		require.ErrorIs(t, w.replace(t.Context(), 2), svc.ErrOutcomeUnknown)
		require.Zero(t, w.RequestCount("*", svctest.RouteAny))

		w.settle(t)
		require.NoError(t, w.replace(t.Context(), 2))
		w.inUse(t, "svc-2")
		require.Zero(t, w.RequestCount("POST", svctest.RouteEndpoints))
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		require.ErrorIs(t, w.replace(t.Context(), 2), svc.ErrOutcomeUnknown)
		err := w.replace(t.Context(), 3)
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown, "a later release does not hide it")
		require.ErrorContains(t, err, "svc-3 is available, but")
		require.Equal(t, []string{"svc-2", "svc-3"}, w.billed())
	})
}

// fullDisk cannot store that an endpoint was created.
type fullDisk struct{ ledger.Store }

var errDiskFull = errors.New("disk full")

func (d fullDisk) Append(ctx context.Context, r ledger.Record) error {
	if r.Event == ledger.Created {
		return errDiskFull
	}
	return d.Store.Append(ctx, r)
}

func TestFailuresKeepTheOldEndpoint(t *testing.T) {
	unavailable := func(w *world) {
		time.AfterFunc(time.Minute, func() { w.SetStatus("svc-2", svctest.StatusUnavailable) })
	}
	tests := map[string]struct {
		prepare func(*world)
		limit   time.Duration
		want    error
		left    bool // the new endpoint is left running
	}{
		"the new one is unavailable": {prepare: unavailable, want: svc.ErrUnavailable},
		"it takes too long":          {limit: 10 * time.Minute, want: context.DeadlineExceeded},
		"its ID cannot be stored":    {prepare: func(w *world) { w.store = fullDisk{w.store} }, want: errDiskFull},
		"the create is refused": {
			prepare: func(w *world) { w.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409}) },
			want:    svc.ErrConflict,
		},
		"it cannot be deleted": {
			prepare: func(w *world) {
				unavailable(w)
				w.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 403, Times: -1})
			},
			want: svc.ErrUnavailable, left: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				store := w.store
				if tt.prepare != nil {
					tt.prepare(w)
				}
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				require.ErrorIs(t, w.replace(ctx, 2), tt.want)
				w.store = store
				if !tt.left {
					require.Equal(t, []string{"svc-1"}, w.billed())
					return
				}
				require.Equal(t, []string{"svc-1", "svc-2"}, w.billed())
				require.Equal(t, []string{"svc-1", "svc-2"}, w.open(t))
				w.ClearFaults()
				require.ErrorIs(t, w.replace(t.Context(), 2), tt.want, "it is still unavailable, and is deleted now")
				w.inUse(t, "svc-1")
			})
		})
	}
}
