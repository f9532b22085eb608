package waits_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// scarce are two flavors with one instance each, and one that is too dear.
var scarce = svctest.WithFlavors(
	svctest.Flavor{ID: "a", DisplayName: "GPU A", USDPrice: 2, Stock: 1},
	svctest.Flavor{ID: "b", DisplayName: "GPU B", USDPrice: 1, Stock: 1},
	svctest.Flavor{ID: "c", DisplayName: "GPU C", USDPrice: 99, Stock: 8},
)

func price(t *testing.T, text string) svc.Price {
	p, err := svc.ParsePrice(text)
	require.NoError(t, err)
	return p
}

func on(flavor string) svc.CreateInferenceServiceRequest {
	return svc.CreateInferenceServiceRequest{Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: flavor, TargetInstanceNumber: 1}}
}

func TestWaitForStockEndsWhenAFlavorFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(scarce, svctest.WithDeployTime(0))
		defer srv.Close()
		client := srv.Client()
		for _, flavor := range []string{"a", "b"} {
			_, err := client.InferenceServices.Create(t.Context(), on(flavor))
			require.NoError(t, err)
		}
		time.AfterFunc(10*time.Minute, func() { require.NoError(t, client.InferenceServices.Delete(t.Context(), "svc-1")) })
		time.AfterFunc(5*time.Minute, func() { srv.Fault("GET", svctest.RouteFlavors, svctest.Outage(2*time.Minute)) })
		var polls []svc.Poll
		began := time.Now()
		found, err := client.Flavors.WaitForStock(testkit.Within(t, time.Hour), svc.FlavorQuery{MaxPrice: price(t, "5")}, &svc.WaitOptions{
			MaxInterval: 10 * time.Second, OnPoll: func(p svc.Poll) { polls = append(polls, p) },
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "a", found[0].FlavorID)
		require.InDelta(t, 10*time.Minute, time.Since(began), float64(12*time.Second))
		failed := 0
		for _, p := range polls {
			if p.Err != nil {
				failed++
			}
		}
		require.Greater(t, failed, 5, "the outage does not end the wait")
		require.Equal(t, "0 of 2 fitting flavors in stock", polls[0].Status)
		require.Equal(t, "1 of 2 fitting flavors in stock", polls[len(polls)-1].Status)

		found, err = client.Flavors.WaitForStock(t.Context(), svc.FlavorQuery{}, nil)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Equal(t, []string{"a", "c"}, []string{found[0].FlavorID, found[1].FlavorID}, "the cheapest first")
		found, err = client.Flavors.WaitForStock(t.Context(), svc.FlavorQuery{MinAvailable: 2}, nil)
		require.NoError(t, err)
		require.Equal(t, "c", found[0].FlavorID)
	})
}

func TestWaitForStockSaysWhyItEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		q     svc.FlavorQuery
		opts  svc.WaitOptions
		fault svctest.Fault
		want  error
		text  string
	}{
		"no stock":        {svc.FlavorQuery{MinAvailable: 2, MaxPrice: price(t, "5")}, svc.WaitOptions{}, svctest.Fault{}, context.DeadlineExceeded, `svc: waiting for a flavor to be in stock: context deadline exceeded; last status "0 of 2 fitting flavors in stock"`},
		"no such flavor":  {svc.FlavorQuery{Name: "TPU"}, svc.WaitOptions{}, svctest.Fault{}, context.DeadlineExceeded, `last status "0 of 0 fitting flavors in stock"`},
		"another service": {svc.FlavorQuery{}, svc.WaitOptions{}, svctest.Fault{Status: 404, Body: `{"message":"no"}`, Times: -1}, svc.ErrNotFound, "404"},
		"another account": {svc.FlavorQuery{}, svc.WaitOptions{}, svctest.Fault{Status: 403, Body: `{"message":"no"}`, Times: -1}, svc.ErrForbidden, "403"},
		"a wrong query":   {svc.FlavorQuery{MinAvailable: -1}, svc.WaitOptions{}, svctest.Fault{}, nil, "MinAvailable"},
		"a probe":         {svc.FlavorQuery{}, svc.WaitOptions{Probe: func(context.Context, string) error { return nil }}, svctest.Fault{}, nil, "Probe"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(scarce)
				defer srv.Close()
				if tt.fault.Status != 0 {
					srv.Fault("GET", svctest.RouteFlavors, tt.fault)
				}
				found, err := srv.Client().Flavors.WaitForStock(testkit.Within(t, 10*time.Minute), tt.q, &tt.opts)
				require.Nil(t, found)
				require.ErrorContains(t, err, tt.text)
				testkit.ErrorAs[*svc.WaitError](t, err)
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
					return
				}
				testkit.ErrorAs[*svc.ValidationError](t, err)
				require.Empty(t, srv.Requests())
			})
		})
	}
}

// TestWaitHookReportsEachWaitOnce_D31 checks the waits and the cleanups of a story.
func TestWaitHookReportsEachWaitOnce_D31(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(10 * time.Minute))
		defer srv.Close()
		var got []string
		var elapsed []time.Duration
		hook := svc.WithWaitHook(func(_ context.Context, w svc.WaitEnd) {
			outcome := "done"
			if w.Err != nil {
				outcome = "failed"
			}
			got = append(got, fmt.Sprint(w.ID, " ", w.Want, " ", w.Cleanup, " ", outcome))
			elapsed = append(elapsed, w.Elapsed)
		})
		client := srv.Client(hook, svc.WithWaitHook(nil))
		service, err := client.InferenceServices.Deploy(t.Context(), testkit.Demo, nil)
		require.NoError(t, err)
		require.NoError(t, client.InferenceServices.DeleteAndWait(t.Context(), service.ServiceID, nil))
		failing := &svc.DeployOptions{DeleteOnFailure: true}
		_, err = client.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, failing)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Outage(time.Hour))
		_, err = client.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, failing)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, client.InferenceServices.Use(t.Context(), testkit.Demo, nil, func(context.Context, *svc.InferenceService) error {
			srv.ClearFaults()
			return nil
		}))
		_, err = client.InferenceServices.Wait(t.Context(), "svc-4", nil, nil)
		require.Error(t, err)
		_, err = client.InferenceServices.Wait(t.Context(), "svc-3", func(*svc.InferenceService) (bool, error) { return false, errors.New("no") }, nil)
		require.Error(t, err)
		require.Equal(t, []string{
			"svc-1 available false done", "svc-1 deleted false done",
			"svc-2 available false failed", "svc-2 deleted true done",
			"svc-3 available false failed", "svc-3 deleted true failed",
			"svc-4 available false done", "svc-4 deleted true done",
			"svc-3 in the awaited state false failed",
		}, got)
		require.InDelta(t, 10*time.Minute, elapsed[0], float64(20*time.Second))
	})
}
