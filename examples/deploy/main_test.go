package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// TestRestartContinuesWithTheEndpoint: a restart creates nothing, the lease is extended while the
// program runs, and after that the endpoint is deleted.
func TestRestartContinuesWithTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(2 * time.Minute))
		defer srv.Close()
		store := ledger.Memory()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			require.NoError(t, serve(ctx, srv.Client(svc.WithLedger(store)), "image", lease/3))
			cancel()
		}
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
		require.Equal(t, 1, srv.RunningInstances())

		time.Sleep(lease + time.Minute)
		_, err := srv.Client(svc.WithLedger(store)).Ledger.Reap(t.Context(), nil)
		require.NoError(t, err)
		require.Zero(t, srv.RunningInstances())
	})
}

// TestInterruptedDeploymentIsDeleted: nothing is left when the program is stopped too early.
func TestInterruptedDeploymentIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
		defer srv.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Error(t, serve(ctx, srv.Client(svc.WithLedger(ledger.Memory())), "image", lease/3))
		require.Zero(t, srv.RunningInstances())
	})
}
