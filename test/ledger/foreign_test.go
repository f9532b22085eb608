package ledger_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
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
