package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/examples/testing/rollout"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

var errKilled = errors.New("killed")

// process is a run of the program that is killed at some step. A step is a moment
// before or after something that the rest of the world sees: a request takes effect,
// a record is stored. After the kill nothing is sent and nothing is stored.
type process struct {
	ledger.Store
	next http.RoundTripper
	left atomic.Int64       // number of steps before the kill; negative: killed
	dead context.CancelFunc // ends the goroutine of a killed process
}

// step counts a step. It returns an error if the process is killed, now or earlier.
func (p *process) step() error {
	if p.left.Add(-1) < 0 {
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

func (p *process) Append(ctx context.Context, r ledger.Record) error {
	if err := p.step(); err != nil {
		return err
	}
	return errors.Join(p.Store.Append(ctx, r), p.step())
}

// runAndKill deploys release 2 in a process that is killed after some steps. It returns
// false if the process ended before the kill.
func (w *world) runAndKill(t *testing.T, steps int) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &process{Store: w.store, next: w.HTTPClient().Transport, dead: cancel}
	p.left.Store(int64(steps))
	client := w.Client(svc.WithLedger(p), svc.WithHTTPClient(&http.Client{Transport: p}))
	_, err := rollout.Replace(ctx, client, app, 2, request)
	if p.left.Load() < 0 {
		return true
	}
	require.NoError(t, err)
	return false
}

// requireKnown fails if an endpoint is billed that cannot be found with the ledger, by its
// ID or by its mark.
func (w *world) requireKnown(t *testing.T) {
	t.Helper()
	entries, err := w.client().Ledger.Entries(t.Context())
	require.NoError(t, err)
	for _, s := range w.Endpoints() {
		known := !s.Billed
		for _, e := range entries {
			known = known || e.Open() && (e.ServiceID == s.ID || e.ServiceID == "" && strings.Contains(s.Description, e.Intent))
		}
		require.True(t, known, "%s is billed, and not in the ledger: %+v", s.ID, entries)
	}
}

// TestKilledAtAnyStep_C27: wherever the program is killed, the ledger knows every endpoint
// that is billed, and the next run ends with one endpoint, created once.
func TestKilledAtAnyStep_C27(t *testing.T) {
	steps := 0
	for killed := true; killed; steps++ {
		t.Run(fmt.Sprint("after step ", steps), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				killed = w.runAndKill(t, steps)
				w.requireKnown(t)

				err := w.replace(t.Context(), 2)
				if errors.Is(err, svc.ErrOutcomeUnknown) {
					w.settle(t)
					err = w.replace(t.Context(), 2)
				}
				require.NoError(t, err)
				w.inUse(t, "svc-2")
				require.Len(t, w.Endpoints(), 2, "nothing was created twice")
			}, svctest.WithDeployTime(5*time.Second), svctest.WithDeleteTime(3*time.Second))
		})
	}
	require.Greater(t, steps, 20, "the program was not killed often enough")
}

// TestOldStaysInTheLedgerUntilItIsDeleted_C27: the old endpoint stays in the ledger even if the
// service accepts a delete without effect, deletes slowly, or refuses the delete.
func TestOldStaysInTheLedgerUntilItIsDeleted_C27(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Fault("DELETE", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
		require.NoError(t, w.replace(t.Context(), 2))
		w.inUse(t, "svc-2") // the deletion was waited for

		w.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 403, Times: -1})
		for range 2 {
			err := w.replace(t.Context(), 3)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "403 Forbidden")
			require.ErrorContains(t, err, "svc-3 is available, but the rollout is not complete: svc-2 may still be running")
			require.Equal(t, []string{"svc-2", "svc-3"}, w.billed())
			require.Equal(t, []string{"svc-2", "svc-3"}, w.open(t))
		}

		w.ClearFaults()
		require.NoError(t, w.replace(t.Context(), 3))
		w.inUse(t, "svc-3")
	}, svctest.WithDeleteTime(time.Minute))
}

// TestLeaseOfAKilledRollout: if nobody repeats a killed rollout, Reap deletes the endpoint that
// it created.
func TestLeaseOfAKilledRollout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.True(t, w.runAndKill(t, 10))
		require.Equal(t, []string{"svc-1", "svc-2"}, w.billed())
		time.Sleep(3 * time.Hour)
		reaped, err := w.client().Ledger.Reap(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, reaped, 1)
		w.inUse(t, "svc-1")
	})
}
