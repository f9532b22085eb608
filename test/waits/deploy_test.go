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

func TestDeploy(t *testing.T) {
	for name, opts := range map[string]*svc.DeployOptions{"no options": nil, "zero": {}, "cleanup": {DeleteOnFailure: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
				start := time.Now()
				service, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, opts)
				require.NoError(t, err)
				require.Equal(t, "svc-1", service.ServiceID)
				require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
				require.InDelta(t, 20*time.Minute, time.Since(start), float64(18*time.Second))
				require.Equal(t, 2, srv.RunningInstances())
				require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
				require.Zero(t, srv.RequestCount("DELETE", svctest.RouteAny))
			})
		})
	}
}

func TestDeployHandsOverTheRecordFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		var created *svc.InferenceService
		var answer svc.Response
		_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
			OnCreate: func(s *svc.InferenceService) error {
				require.Zero(t, srv.RequestCount("GET", svctest.RouteAny), "OnCreate must be called before the first poll")
				created = s
				return nil
			},
			CreateOptions: []svc.RequestOption{svc.WithResponse(&answer), svc.WithHeader("X-Team", "search")},
		})
		require.NoError(t, err)
		require.Equal(t, "svc-1", created.ServiceID)
		require.Equal(t, svc.InferenceServiceStatusInitializing, created.Status)
		require.Equal(t, 200, answer.StatusCode)
		require.Equal(t, "search", srv.Requests()[0].Header.Get("X-Team"))
	})
}

// If nothing was created, the error does not mention an endpoint.
func TestDeployThatCreatesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		fault svctest.Fault
		req   svc.CreateInferenceServiceRequest
		want  error
	}{
		"refused":      {svctest.Fault{Status: 403}, testkit.Demo, svc.ErrForbidden},
		"out of stock": {svctest.Fault{}, svc.CreateInferenceServiceRequest{Name: "x", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 1e6}}, svc.ErrConflict},
		"invalid":      {svctest.Fault{}, svc.CreateInferenceServiceRequest{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				srv.Fault("POST", svctest.RouteEndpoints, tt.fault)
				service, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), tt.req, &svc.DeployOptions{DeleteOnFailure: true})
				require.Nil(t, service)
				require.Error(t, err)
				require.NotErrorAs(t, err, new(*svc.DeployError))
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
				} else {
					require.ErrorAs(t, err, new(*svc.ValidationError))
				}
				require.Empty(t, srv.Endpoints())
				require.Zero(t, srv.RequestCount("DELETE", svctest.RouteAny))
			})
		})
	}
}

// failuresOfDeploy are the ways in which a deployment fails after its create. Each
// function prepares the service and returns the ctx for Deploy.
var failuresOfDeploy = map[string]struct {
	want  error
	setUp func(*testing.T, *svctest.Server) context.Context
}{
	"the wait times out": {context.DeadlineExceeded, func(t *testing.T, _ *svctest.Server) context.Context {
		return testkit.Within(t, 5*time.Minute)
	}},
	"the context is cancelled": {context.Canceled, func(t *testing.T, _ *svctest.Server) context.Context {
		return testkit.CancelAfter(t, 3*time.Minute, nil)
	}},
	"it becomes unavailable": {svc.ErrUnavailable, func(t *testing.T, srv *svctest.Server) context.Context {
		time.AfterFunc(2*time.Minute, func() { srv.SetStatus("svc-1", svctest.StatusUnavailable) })
		return testkit.Within(t, time.Hour)
	}},
	"it is stopped": {svc.ErrStopped, func(t *testing.T, srv *svctest.Server) context.Context {
		time.AfterFunc(2*time.Minute, func() { srv.SetStatus("svc-1", svctest.StatusStopped) })
		return testkit.Within(t, time.Hour)
	}},
	"polling gets 401": {svc.ErrUnauthorized, func(t *testing.T, srv *svctest.Server) context.Context {
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Times: 3}, svctest.Fault{Status: 401, Times: -1})
		return testkit.Within(t, time.Hour)
	}},
}

func TestFailedDeployKeepsTheID_B29(t *testing.T) {
	for name, tt := range failuresOfDeploy {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				ctx := tt.setUp(t, srv)
				service, err := srv.Client().InferenceServices.Deploy(ctx, testkit.Demo, nil)
				require.ErrorIs(t, err, tt.want)
				for _, other := range failuresOfDeploy {
					require.Equal(t, errors.Is(tt.want, other.want), errors.Is(err, other.want), "%v", other.want)
				}
				e := testkit.ErrorAs[*svc.DeployError](t, err)
				require.Equal(t, "svc-1", e.ServiceID)
				require.Equal(t, "svc-1", service.ServiceID)
				require.Same(t, service, e.Service)
				require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
				require.NoError(t, e.CleanupErr)
				require.Equal(t, "svc-1", testkit.ErrorAs[*svc.WaitError](t, e.Err).ID)
				require.ErrorContains(t, err, "svc: deploying svc-1: ")
				require.ErrorContains(t, err, "the endpoint may still be running and billed: if you do not want it, call DeleteAndWait")
				require.Zero(t, srv.RequestCount("DELETE", svctest.RouteAny), "no cleanup was asked for")
				require.Len(t, srv.Endpoints(), 1)
				require.False(t, srv.Endpoints()[0].Deleted)
			})
		})
	}
}

func TestDeployDeletesOnFailure(t *testing.T) {
	for name, tt := range failuresOfDeploy {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				ctx := tt.setUp(t, srv)
				service, err := srv.Client().InferenceServices.Deploy(ctx, testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.ErrorIs(t, err, tt.want)
				e := testkit.ErrorAs[*svc.DeployError](t, err)
				require.Equal(t, "svc-1", e.ServiceID)
				require.Equal(t, "svc-1", service.ServiceID)
				if errors.Is(tt.want, svc.ErrUnauthorized) { // the polls of the cleanup are refused as well
					require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
					require.ErrorContains(t, err, "; the cleanup sent a delete, which was accepted, but could not confirm the deletion (context deadline exceeded: the cleanup did not end within 30s")
					require.ErrorContains(t, err, "the last poll failed: 401")
				} else {
					require.Equal(t, svc.CleanupDeleted, e.Cleanup)
					require.NoError(t, e.CleanupErr)
					require.ErrorContains(t, err, "; the endpoint is deleted now")
				}
				require.True(t, srv.Endpoints()[0].Deleted)
				require.Zero(t, srv.RunningInstances())
				require.Equal(t, 1, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
		})
	}
}

// If a 2xx response to a create is broken but contains the ID, Deploy continues with this
// ID.
func TestDeployContinuesWithTheIDOfABrokenResponse(t *testing.T) {
	for name, fault := range map[string]svctest.Fault{
		"cut":        {TruncateBody: true},
		"wrong type": {AfterEffect: true, Body: `{"service_id":"svc-1","status":["demo"]}`},
		"two":        {AfterEffect: true, Body: `{"service_id":"svc-1"}{}`},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fails %v", name, fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := svctest.NewInMemory()
					if fails {
						srv = svctest.NewInMemory(svctest.WithStatusPath("unavailable"))
					}
					srv.Fault("POST", svctest.RouteEndpoints, fault)
					told := svc.InferenceService{}
					service, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
						DeleteOnFailure: true,
						OnCreate:        func(s *svc.InferenceService) error { told = *s; return nil },
					})
					require.Equal(t, svc.InferenceService{ServiceID: "svc-1"}, told, "only the ID is known at that time")
					require.Equal(t, "svc-1", service.ServiceID)
					require.Equal(t, "demo", service.Name)
					require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
					require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
					require.Equal(t, fails, srv.Endpoints()[0].Deleted)
					if !fails {
						require.NoError(t, err)
						require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
						return
					}
					require.ErrorIs(t, err, svc.ErrUnavailable)
					require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
				})
			})
		}
	}
}

// A broken response may contain the ID of something else. Deploy does not take it for the
// ID of the new endpoint.
func TestDeployTakesNoOtherIDForTheEndpoints(t *testing.T) {
	for _, body := range []string{`{"id":"err-1","message":"oops"}`, `{"error":{"id":"svc-9"}}`, `{"job_id":"svc-9"}`, `{"service_id":null,"id":"svc-9"}`} {
		for _, status := range []int{500, 200} {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: status, Body: body, AfterEffect: true})
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.NotErrorAs(t, err, new(*svc.DeployError), body)
				require.Zero(t, srv.RequestCount("*", svctest.RouteEndpoint), "no endpoint may be read or deleted without its ID")
			})
		}
	}
}

// If ctx ends while the create is in flight, Deploy waits for the response, because it
// contains the ID.
func TestDeployAwaitsTheResponseToACreateUnderWay(t *testing.T) {
	for name, clean := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(8*time.Second))
				start, told := time.Now(), ""
				stop := errors.New("stop")
				service, err := srv.Client().InferenceServices.Deploy(testkit.CancelAfter(t, time.Second, stop), testkit.Demo,
					&svc.DeployOptions{DeleteOnFailure: clean, OnCreate: func(s *svc.InferenceService) error { told = s.ServiceID; return nil }})
				require.GreaterOrEqual(t, time.Since(start), 8*time.Second)
				require.LessOrEqual(t, time.Since(start), 12*time.Second)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, stop)
				e := testkit.ErrorAs[*svc.DeployError](t, err)
				require.Equal(t, "svc-1", e.ServiceID)
				require.Equal(t, "svc-1", service.ServiceID)
				require.Equal(t, "svc-1", told)
				require.Equal(t, clean, e.Cleanup == svc.CleanupDeleted)
				require.Equal(t, clean, srv.RunningInstances() == 0)
				require.Equal(t, clean, srv.RequestCount("GET", svctest.RouteAny) > 0, "only the cleanup polls")
			})
		})
	}
}

func TestDeployAwaitsTheResponseNoLongerThanItMust(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   svctest.Fault
		unknown bool // it is unknown whether the create took effect
		after   time.Duration
	}{
		"answered never":      {svctest.Fault{AfterEffect: true, Delay: time.Hour}, true, 11 * time.Second},
		"lost meanwhile":      {svctest.Fault{DropAfter: true, Delay: 4 * time.Second}, true, 4 * time.Second},
		"failed meanwhile":    {svctest.Fault{Status: 503, AfterEffect: true, Delay: 4 * time.Second}, true, 4 * time.Second},
		"refused meanwhile":   {svctest.Fault{Status: 400, Delay: 4 * time.Second}, false, 4 * time.Second},
		"postponed meanwhile": {svctest.Fault{Status: 429, Delay: 4 * time.Second}, false, 4 * time.Second},
		"in a backoff":        {svctest.RateLimited("20"), false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				srv.Fault("POST", svctest.RouteEndpoints, tt.fault)
				start := time.Now()
				_, err := srv.Client().InferenceServices.Deploy(testkit.CancelAfter(t, time.Second, nil), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.Equal(t, tt.after, time.Since(start))
				require.Error(t, err)
				require.Equal(t, tt.unknown, errors.Is(err, svc.ErrOutcomeUnknown))
				require.NotErrorAs(t, err, new(*svc.DeployError), "without an ID there is no DeployError")
				require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
			})
		})
	}
}

// gate is a rate limiter that blocks every call until its ctx ends.
type gate struct{}

func (gate) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestDeployThatWasNotSentEndsAtOnce(t *testing.T) {
	for name, opt := range map[string]svc.Option{
		"rate limiter": svc.WithRateLimiter(gate{}),
		"token source": svc.WithTokenSource(func(ctx context.Context) (string, error) { return "", gate{}.Wait(ctx) }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				start := time.Now()
				_, err := srv.Client(opt).InferenceServices.Deploy(testkit.CancelAfter(t, time.Second, nil), testkit.Demo, nil)
				require.Equal(t, time.Second, time.Since(start))
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.NotErrorAs(t, err, new(*svc.DeployError))
				require.Zero(t, srv.RequestCount("*", svctest.RouteAny))
			})
		})
	}
}
