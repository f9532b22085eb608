package waits_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// cancelledDeploy calls Deploy with DeleteOnFailure, and cancels ctx after the first
// poll. It returns the error, and how long the cleanup took.
func cancelledDeploy(t *testing.T, c *svc.InferenceServiceClient) (*svc.DeployError, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var cancelled time.Time
	_, err := c.Deploy(ctx, testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true, WaitOptions: svc.WaitOptions{OnPoll: func(svc.Poll) {
		cancelled = time.Now()
		cancel()
	}}})
	require.ErrorIs(t, err, context.Canceled, "the error still has the reason for the cleanup")
	require.ErrorIs(t, testkit.ErrorAs[*svc.WaitError](t, err).Err, context.Canceled)
	require.ErrorContains(t, err, "svc-1")
	return testkit.ErrorAs[*svc.DeployError](t, err), time.Since(cancelled)
}

func TestCleanupOutlivesTheContext_B30(t *testing.T) {
	for name, tt := range map[string]struct {
		faults  []svctest.Fault // faults of the DELETE
		within  time.Duration
		deletes int
	}{
		"at once":           {nil, 4 * time.Second, 1},
		"503 twice":         {[]svctest.Fault{svctest.ServiceUnavailable(2)}, 7 * time.Second, 3},
		"429":               {[]svctest.Fault{svctest.RateLimited("5")}, 10 * time.Second, 2},
		"lost before":       {[]svctest.Fault{svctest.DropBeforeEffect()}, 5 * time.Second, 2},
		"500 for a while":   {[]svctest.Fault{{Status: 500, Times: 6}}, 29 * time.Second, 7},
		"slow":              {[]svctest.Fault{svctest.Slow(8 * time.Second)}, 12 * time.Second, 1},
		"slower":            {[]svctest.Fault{svctest.Slow(20 * time.Second)}, 16 * time.Second, 2},
		"a proxy's page":    {[]svctest.Fault{{Body: "<html>please log in</html>"}}, 5 * time.Second, 2},
		"refused, then not": {[]svctest.Fault{{Status: 409, Times: 2}}, 7 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				srv.Fault("DELETE", svctest.RouteEndpoint, tt.faults...)
				e, took := cancelledDeploy(t, srv.Client().InferenceServices)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.NoError(t, e.CleanupErr)
				require.Zero(t, srv.RunningInstances())
				require.LessOrEqual(t, took, tt.within)
				require.Equal(t, tt.deletes, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
		})
	}
}

func TestCleanupRespectsRetryAfter_B30(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.RateLimited("12"))
		e, took := cancelledDeploy(t, srv.Client().InferenceServices)
		require.Equal(t, svc.CleanupDeleted, e.Cleanup)
		require.GreaterOrEqual(t, took, 12*time.Second)
		require.Equal(t, 2, srv.RequestCount("DELETE", svctest.RouteEndpoint))
	})
}

func TestCleanupThatNeverSucceeds_B30(t *testing.T) {
	for name, tt := range map[string]struct {
		fault    svctest.Fault
		status   int // status in the reported error; 0: there was no response
		from, to time.Duration
	}{
		"503":          {svctest.Fault{Status: 503, Times: -1}, 503, 29 * time.Second, 30 * time.Second},
		"429, an hour": {svctest.Fault{Status: 429, RetryAfter: "3600", Times: -1}, 429, 29 * time.Second, 30 * time.Second},
		"lost":         {svctest.Fault{DropBefore: true, Times: -1}, 0, 29 * time.Second, 30 * time.Second},
		"silence":      {svctest.Fault{Delay: time.Hour, Times: -1}, 0, 30 * time.Second, 30 * time.Second},
		"405":          {svctest.Fault{Status: 405, Times: -1}, 405, 10 * time.Second, 13 * time.Second},
		"401":          {svctest.Fault{Status: 401, Times: -1}, 401, 29 * time.Second, 30 * time.Second},
		"403":          {svctest.Fault{Status: 403, Times: -1}, 403, 29 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				srv.Fault("DELETE", svctest.RouteEndpoint, tt.fault)
				e, took := cancelledDeploy(t, srv.Client().InferenceServices)
				require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
				require.Error(t, e.CleanupErr)
				require.GreaterOrEqual(t, took, tt.from)
				require.LessOrEqual(t, took, tt.to)
				require.NotErrorIs(t, e, e.CleanupErr, "the error of the cleanup is not the reason of the failure")
				require.ErrorContains(t, e, "; the cleanup could not delete the endpoint (")
				var answer *svc.Error
				last := testkit.ErrorAs[*svc.WaitError](t, e.CleanupErr)
				require.Equal(t, tt.status != 0, errors.As(errors.Join(last, last.LastErr), &answer))
				if tt.status != 0 {
					require.Equal(t, tt.status, answer.StatusCode)
				}
				require.Equal(t, 2, srv.RunningInstances())
				synctest.Wait() // every request that was sent has arrived
				asked := srv.RequestCount("*", svctest.RouteAny)
				time.Sleep(time.Hour)
				require.Equal(t, asked, srv.RequestCount("*", svctest.RouteAny))
			})
		})
	}
}

// Right after a create, "not found" does not mean that the endpoint is deleted. The
// endpoint may not be readable yet, and it is billed.
func TestCleanupDoesNotTrustAnEarlyNotFound(t *testing.T) {
	for name, tt := range map[string]struct {
		invisible time.Duration
		faults    []svctest.Fault // faults of the DELETE
		gone      bool
	}{
		"for a moment":              {time.Second, nil, true},
		"for 20 s":                  {20 * time.Second, nil, true},
		"for longer than a cleanup": {time.Minute, nil, false},
		"after a failed attempt":    {10 * time.Second, []svctest.Fault{svctest.ServiceUnavailable(1)}, true},
		"after a lost attempt":      {10 * time.Second, []svctest.Fault{svctest.DropBeforeEffect()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(tt.invisible), svctest.WithDeployTime(time.Hour))
				srv.Fault("DELETE", svctest.RouteEndpoint, tt.faults...)
				e, took := cancelledDeploy(t, srv.Client().InferenceServices)
				require.Equal(t, tt.gone, e.Cleanup == svc.CleanupDeleted)
				require.Equal(t, tt.gone, srv.RunningInstances() == 0, "the reported cleanup must match what is billed")
				require.LessOrEqual(t, took, 30*time.Second)
				if !tt.gone {
					require.NotErrorIs(t, e.CleanupErr, svc.ErrNotFound, "nothing is proven")
					require.ErrorContains(t, e, "may still be running")
				}
			})
		})
	}
}

// Later, or after the endpoint has been read, "not found" means that it is deleted.
// Somebody else may have deleted it, or the response to the delete was lost.
func TestCleanupTakesALateNotFoundForTheEnd(t *testing.T) {
	for name, fault := range map[string]svctest.Fault{
		"deleted by somebody else": {},
		"answer lost":              svctest.DropAfterEffect(),
		"gateway error":            svctest.GatewayErrorAfterEffect(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour), svctest.WithCreateVisibilityDelay(3*time.Second))
				services := srv.Client().InferenceServices
				ctx := testkit.CancelAfter(t, 12*time.Second, nil)
				if fault.DropAfter || fault.AfterEffect {
					srv.Fault("DELETE", svctest.RouteEndpoint, fault)
				} else {
					context.AfterFunc(ctx, func() { _ = services.Delete(context.WithoutCancel(ctx), "svc-1") })
				}
				start := time.Now()
				_, err := services.Deploy(ctx, testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
				require.LessOrEqual(t, time.Since(start), 26*time.Second)
				require.Zero(t, srv.RunningInstances())
			})
		})
	}
}

// A function of the caller may panic. The endpoint must not keep running without anybody
// who knows of it. TestPanics in test/ledger tests all functions of the caller.
func TestDeployCleansUpAfterAPanic(t *testing.T) {
	for _, clean := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory()
			srv.Fault("DELETE", svctest.RouteEndpoint, svctest.ServiceUnavailable(1))
			require.PanicsWithValue(t, "bug of the caller", func() {
				_, _ = srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
					WaitOptions: svc.WaitOptions{OnPoll: func(svc.Poll) { panic("bug of the caller") }}, DeleteOnFailure: clean,
				})
			})
			require.Equal(t, clean, srv.Endpoints()[0].Deleted)
		})
	}
}

// A cleanup after a panic has no error that a caller could read, so it must at least be logged.
func TestCleanupAfterAPanicThatProvedNothingIsLogged_D31(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		srv := svctest.NewInMemory()
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		client := srv.Client(svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		require.Panics(t, func() {
			_, _ = client.InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
				WaitOptions: svc.WaitOptions{OnPoll: func(svc.Poll) { panic("bug of the caller") }}, DeleteOnFailure: true,
			})
		})
		require.Contains(t, log.String(), "a cleanup did not prove that the endpoint is deleted")
		require.Contains(t, log.String(), srv.Endpoints()[0].ID)
	})
}

func TestDeployErrorReadsWell(t *testing.T) {
	refused := &svc.Error{RequestInfo: svc.RequestInfo{Method: "DELETE", Route: "/v1/inference-service/{service_id}"}, StatusCode: http.StatusForbidden, Message: "not yours"}
	waited := &svc.WaitError{ID: "svc-7", Want: "available", Polls: 3, Elapsed: time.Minute, Err: svc.ErrUnavailable}
	for name, tt := range map[string]struct {
		err  *svc.DeployError
		text string
	}{
		"deleted": {&svc.DeployError{ServiceID: "svc-7", Cleanup: svc.CleanupDeleted, Err: waited},
			"svc: deploying svc-7: the inference service is unavailable; no status after 3 polls in 1m0s; the endpoint is deleted now"},
		"not deleted": {&svc.DeployError{ServiceID: "svc-7", Err: errors.New("svc: x")},
			"svc: deploying svc-7: x; the endpoint may still be running and billed: if you do not want it, call DeleteAndWait, with a valid token of its account"},
		"cleanup failed": {&svc.DeployError{ServiceID: "svc-7", Err: svc.ErrStopped, CleanupErr: refused},
			"svc: deploying svc-7: the inference service is stopped; the cleanup could not delete the endpoint (403 Forbidden: not yours); the endpoint may still be running and billed: if you do not want it, call DeleteAndWait, with a valid token of its account"},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, tt.err, tt.text)
			require.ErrorIs(t, tt.err, tt.err.Err)
			require.NotErrorIs(t, tt.err, svc.ErrForbidden, "the error of the cleanup is not the reason of the failure")
		})
	}
}

// The wait has read the name of the endpoint, so the cleanup after a panic need not read it again.
func TestCleanupAfterAPanicUsesWhatTheWaitHasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		name := testkit.Demo.Name
		srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Body: `{"service_id":"svc-1","name":"` + name + `"}`, TruncateAfter: 32, AfterEffect: true})
		require.Panics(t, func() {
			_, _ = srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true, WaitOptions: svc.WaitOptions{
				Probe: func(context.Context, string) error {
					srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 503, Times: -1})
					panic("probe")
				},
			}})
		})
		require.Zero(t, srv.RunningInstances())
	})
}
