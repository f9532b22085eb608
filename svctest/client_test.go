package svctest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

func TestClientInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(20*time.Minute), svctest.WithCreateVisibilityDelay(10*time.Second))
		srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(3))
		start := time.Now()
		service, err := srv.Client().InferenceServices.Deploy(t.Context(), svc.CreateInferenceServiceRequest{
			Name:             "demo",
			ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
		}, nil)
		require.NoError(t, err)
		require.Equal(t, "svc-1", service.ServiceID)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Minute)
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
		require.Equal(t, 2, srv.RunningInstances())
	})
}

func TestClientTakesOptions(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		flavors, err := srv.Client().Flavors.List(t.Context())
		require.NoError(t, err)
		require.Len(t, flavors, 3)
		_, err = srv.Client(svc.WithToken("another")).Flavors.List(t.Context())
		require.ErrorIs(t, err, svc.ErrUnauthorized)
		require.Panics(t, func() { srv.Client(svc.WithToken("")) })
	})
}
