package ledger_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// A record with another name proves nothing about the endpoint of a ledger entry.
func TestForeignRecordIsNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{
			Times: 2, Body: `{"service_id":"svc-1","name":"other","is_deleted":true,"status":"available"}`,
		})
		client := srv.Client(svc.WithLedger(ledger.Memory()))
		request := svc.CreateInferenceServiceRequest{Name: "x", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}}
		_, err := client.InferenceServices.Deploy(t.Context(), request, &svc.DeployOptions{DeleteOnFailure: true, Key: "k"})
		require.ErrorContains(t, err, "may still be running and billed")
		entries, err := client.Ledger.Entries(t.Context())
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.True(t, entries[0].Open(), "the endpoint still runs")
	})
}

// If ctx ended before the create, the error has the cause of ctx.
func TestCauseBeforeACreate(t *testing.T) {
	stop := errors.New("operator said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	srv := svctest.NewInMemory()
	client := srv.Client(svc.WithLedger(ledger.Memory()))
	request := svc.CreateInferenceServiceRequest{Name: "x", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}}
	_, err := client.InferenceServices.Deploy(ctx, request, &svc.DeployOptions{Key: "k"})
	require.ErrorIs(t, err, stop)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "nothing was sent")
}

// A delete that the service accepts voids a proof by "not found" before it: if a gateway has lost only the route of
// reads, the endpoint existed until then. So the ledger records no deletion before the last delete.
func TestNoDeletionIsRecordedBeforeTheLastDelete(t *testing.T) {
	lost := svctest.Fault{Status: 404, Body: `{"code":"not_found","message":"no such service"}`, Times: -1}
	tasks := map[string]func(context.Context, *svctest.Server, *svc.Client) error{
		"the cleanup of Deploy": func(ctx context.Context, srv *svctest.Server, client *svc.Client) error {
			_, err := client.InferenceServices.Deploy(ctx, testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true, Key: "k"})
			require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
			return nil
		},
		"DeleteAndWait": func(ctx context.Context, srv *svctest.Server, client *svc.Client) error {
			created, err := client.InferenceServices.Deploy(ctx, testkit.Demo, &svc.DeployOptions{Key: "k", OnCreate: func(*svc.InferenceService) error { return errors.New("stop") }})
			require.ErrorContains(t, err, "stop")
			srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 503, For: 10 * time.Second}) // until the proof is complete
			return client.InferenceServices.DeleteAndWait(ctx, created.ServiceID, &svc.WaitOptions{NotFoundGrace: -1})
		},
	}
	for name, task := range tasks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, store := svctest.NewInMemory(svctest.WithDeployTime(time.Hour)), ledger.Memory()
				srv.Fault("GET", svctest.RouteEndpoint, lost)
				var client *svc.Client
				accepted := 0
				client = srv.Client(svc.WithLedger(store), svc.WithAttemptHook(func(ctx context.Context, a svc.Attempt) {
					if a.Method == "DELETE" && a.StatusCode/100 == 2 {
						accepted++
						entries, err := client.Ledger.Entries(ctx)
						require.NoError(t, err)
						require.True(t, entries[0].Open(), "recorded as deleted before the delete")
					}
				}))
				require.NoError(t, task(t.Context(), srv, client))
				require.Equal(t, 1, accepted)
				entries, err := client.Ledger.Entries(t.Context())
				require.NoError(t, err)
				require.False(t, entries[0].Open())
				require.Zero(t, srv.RunningInstances())
			})
		})
	}
}

// away is a store that cannot be read for a while.
type away struct {
	ledger.Store
	until time.Time
}

func (a *away) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if time.Now().Before(a.until) {
		return nil, errDisk
	}
	return a.Store.List(ctx, key)
}

// A ledger that cannot be read for a moment, when a wait first needs to know whose endpoint it is, is asked again: "not
// found" would otherwise prove nothing, as for the token of another account.
func TestLedgerThatIsAwayForAMomentIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, store := svctest.NewInMemory(), ledger.Memory()
		created, err := srv.Client(svc.WithLedger(store)).InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{Key: "k"})
		require.NoError(t, err)
		srv.Delete(created.ServiceID)
		client := srv.Client(svc.WithLedger(&away{store, time.Now().Add(8 * time.Second)}))
		require.NoError(t, client.InferenceServices.WaitUntilDeleted(t.Context(), created.ServiceID, &svc.WaitOptions{NotFoundGrace: -1}))
		entries, err := client.Ledger.Entries(t.Context())
		require.NoError(t, err)
		require.False(t, entries[0].Open())
	})
}
