package waits_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// proxys404 is the body of a 404 that does not come from the service.
const proxys404 = "\n<html><head><title>404 Not Found</title></head><body>nginx</body></html>"

// goneStory makes a deployment fail and be cleaned up. The polls after the delete get the
// given faults. It returns the error, and how long the cleanup took.
func goneStory(t *testing.T, srv *svctest.Server, polls ...svctest.Fault) (*svc.DeployError, time.Duration) {
	t.Helper()
	var start time.Time
	_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
		OnFailure: func(*svc.DeployError) bool {
			start = time.Now()
			srv.Fault("GET", svctest.RouteEndpoint, polls...)
			return true
		},
	})
	require.ErrorIs(t, err, svc.ErrUnavailable)
	return testkit.ErrorAs[*svc.DeployError](t, err), time.Since(start)
}

func goneServer(opts ...svctest.Option) *svctest.Server {
	return svctest.NewInMemory(append(opts, svctest.WithDeployTime(time.Minute), svctest.WithStatusPath("initializing", "unavailable"))...)
}

// goneTroubles are temporary faults of a poll.
var goneTroubles = map[string]svctest.Fault{
	"503":              {Status: 503},
	"lost":             {DropAfter: true},
	"cut":              {TruncateBody: true},
	"a proxy's page":   {Body: "<html>please log in</html>"},
	"another's record": {Body: `{"service_id":"svc-2","status":"available"}`},
	"nothing":          {Status: 204},
}

// An accepted delete is no proof of the deletion. The cleanup polls until a poll shows
// the deletion. It does not send another delete as long as no poll has a result.
func TestDeletedIsWhatAPollShows(t *testing.T) {
	for name, trouble := range goneTroubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer()
				trouble.Times = 3
				e, took := goneStory(t, srv, trouble)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.NoError(t, e.CleanupErr)
				require.LessOrEqual(t, took, 9*time.Second)
				require.Equal(t, 1, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
		})
	}
	t.Run("Retry-After", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e, took := goneStory(t, goneServer(), svctest.RateLimited("12"))
			require.Equal(t, svc.CleanupDeleted, e.Cleanup)
			require.GreaterOrEqual(t, took, 12*time.Second)
		})
	})
	t.Run("the record says so", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			record := svctest.Fault{Body: testkit.EndpointJSON("unavailable", 2, `"is_deleted":true`)}
			e, took := goneStory(t, goneServer(), svctest.ServiceUnavailable(1), record)
			require.Equal(t, svc.CleanupDeleted, e.Cleanup)
			require.LessOrEqual(t, took, time.Second)
		})
	})
}

// If no poll of a cleanup has a result, the endpoint is not reported as deleted.
func TestNotDeletedWithoutAPoll(t *testing.T) {
	const accepted = "; the cleanup sent a delete, which was accepted, but could not confirm the deletion ("
	for name, trouble := range goneTroubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer(svctest.WithDeleteTime(time.Hour))
				trouble.Times = -1
				e, took := goneStory(t, srv, trouble)
				require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
				require.Equal(t, 2, srv.RunningInstances())
				require.ErrorContains(t, e, accepted)
				require.ErrorContains(t, e, "may still be running and billed: if you do not want it, call DeleteAndWait")
				require.Error(t, e.CleanupErr)
				require.Equal(t, svc.CleanupAccepted, e.Cleanup)
				require.NotContains(t, e.Error(), "could not delete", "the delete did not fail")
				require.GreaterOrEqual(t, took, 29*time.Second)
				require.LessOrEqual(t, took, 30*time.Second)
				require.Equal(t, 1, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
		})
	}
	for status, at := range map[int]time.Duration{401: 30 * time.Second, 403: 30 * time.Second, 400: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) { // a token may be renewed, but a bad request stays bad
			srv := goneServer(svctest.WithDeleteTime(time.Hour))
			e, took := goneStory(t, srv, svctest.ServiceUnavailable(1), svctest.Fault{Status: status, Times: -1})
			require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
			require.InDelta(t, at.Seconds(), took.Seconds(), 3)
			require.ErrorContains(t, e.CleanupErr, fmt.Sprint(status))
			require.ErrorContains(t, e, accepted)
		})
	}
}

// If a poll shows that the endpoint still exists, the first delete may have had no
// effect, so the cleanup sends another one. The response to this second delete does not
// matter if the polls show the deletion.
func TestCleanupDeletesAgainWhatIsStillThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := goneServer()
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 200, Times: 2}) // an empty response without an effect
		e, _ := goneStory(t, srv)
		require.Equal(t, svc.CleanupDeleted, e.Cleanup)
		require.Zero(t, srv.RunningInstances())
		require.Equal(t, 3, srv.RequestCount("DELETE", svctest.RouteEndpoint))
	})
	for name, again := range map[string]svctest.Fault{
		"conflict": {Status: 409}, "not found": {Status: 404, Body: `{"message":"none"}`}, "refused": {Status: 403}, "slow": {Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer(svctest.WithDeleteTime(20 * time.Second))
				again.Times = -1
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{}, again)
				e, took := goneStory(t, srv)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.Zero(t, srv.RunningInstances())
				require.GreaterOrEqual(t, took, 20*time.Second)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		e, _ := goneStory(t, goneServer(svctest.WithDeleteTime(time.Hour)))
		require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
		require.ErrorContains(t, e, "the cleanup sent a delete, which was accepted, but could not confirm the deletion (context deadline exceeded: the cleanup did not end within 30s; last status ")
	})
	synctest.Test(t, func(t *testing.T) {
		srv := goneServer()
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 404, Times: -1})
		e, _ := goneStory(t, srv)
		require.Equal(t, svc.CleanupFailed, e.Cleanup)
		require.ErrorContains(t, e, "the cleanup could not delete the endpoint (context deadline exceeded: the cleanup did not end within 30s; last status ")
	})
}

// A delete may get "not found" or an unexpected response. Only a poll shows whether it
// took effect. Until then the delete is repeated.
func TestCleanupDoesNotRelyOnAnOddResponse(t *testing.T) {
	for name, odd := range map[string]svctest.Fault{
		"404 as text": {Status: 404, Body: "default backend - 404"}, "200 with a message": {Body: `{"code":500,"message":"failed"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer()
				odd.Times = 3
				srv.Fault("DELETE", svctest.RouteEndpoint, odd)
				e, _ := goneStory(t, srv, svctest.ServiceUnavailable(2))
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.Zero(t, srv.RunningInstances())
				require.Equal(t, 4, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer()
				odd.Times = -1
				srv.Fault("DELETE", svctest.RouteEndpoint, odd)
				e, _ := goneStory(t, srv)
				require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
				require.ErrorContains(t, e, "; the cleanup could not delete the endpoint (")
			})
		})
	}
}

// A proxy that cannot reach the service responds to everything with 404.
func TestAProxysNotFoundIsNoProof(t *testing.T) {
	for name, page := range map[string]string{"page": proxys404, "with a BOM": "\ufeff<!doctype html>", "XML": `<?xml version="1.0"?><Error/>`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer()
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: page, Times: 3})
				e, _ := goneStory(t, srv)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.Zero(t, srv.RunningInstances())
				require.Equal(t, 4, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
			synctest.Test(t, func(t *testing.T) {
				srv := goneServer()
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: page, Times: -1})
				e, _ := goneStory(t, srv, svctest.Fault{Status: 404, Body: page, Times: -1})
				require.NotEqual(t, svc.CleanupDeleted, e.Cleanup)
				require.NotErrorIs(t, e.CleanupErr, svc.ErrNotFound)
				require.ErrorContains(t, e, "the last poll failed: 404")
			})
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				services, id := srv.Client().InferenceServices, srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.ServiceUnavailable(1), svctest.Fault{Status: 404, Body: page})
				require.ErrorIs(t, services.Delete(t.Context(), id), svc.ErrNotFound, "the delete with 503 may have taken effect, but a 404 of a proxy does not prove it")
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: page})
				_, err := services.Get(t.Context(), id)
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.Equal(t, 1, srv.RunningInstances())
			})
		})
	}
}

// A gateway that cannot reach the service may respond to everything with 404, in any
// format. So the cleanup also requests the flavor list.
func TestNotDeletedByNotFoundOfEverything_C03(t *testing.T) {
	for _, fault := range []svctest.Fault{
		{Status: 404, Body: "404 page not found"}, {Status: 404}, {Status: 410},
		{Status: 404, Body: `{"message":"no such API"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := goneServer()
			fault.Times = -1
			srv.Fault("DELETE", svctest.RouteEndpoint, fault)
			srv.Fault("GET", svctest.RouteFlavors, fault)
			e, _ := goneStory(t, srv, fault)
			require.Equal(t, svc.CleanupFailed, e.Cleanup)
			require.Equal(t, 2, srv.RunningInstances())
			require.NotErrorIs(t, e.CleanupErr, svc.ErrNotFound)
			require.ErrorContains(t, e, "this does not prove that the record is deleted")

			srv = goneServer()
			id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
			srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{}, fault)
			srv.Fault("GET", svctest.RouteFlavors, fault)
			err := srv.Client().InferenceServices.WaitUntilDeleted(testkit.Within(t, time.Hour), id, nil)
			require.Error(t, err, "after one read, every path gets not found")
		})
	}
}

// If the delete got an unexpected response, and the endpoint was never readable, the
// endpoint is not reported as deleted.
func TestNotDeletedByAnOddResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := goneServer(svctest.WithCreateVisibilityDelay(10 * time.Minute))
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 200, Body: "Please log in", Times: -1})
		_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, 4*time.Minute), testkit.Demo, &svc.DeployOptions{
			DeleteOnFailure: true, WaitOptions: svc.WaitOptions{NotFoundGrace: 10 * time.Minute},
		})
		require.NotEqual(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.Equal(t, 2, srv.RunningInstances())
	})
}

// A cleanup continues the evidence of the wait before it: a "not found" that the wait has seen counts,
// although this client had read the record before that.
func TestCleanupContinuesTheEvidenceOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
		var failed time.Time
		time.AfterFunc(16*time.Second, func() {
			require.NoError(t, srv.Client().InferenceServices.Delete(t.Context(), srv.Endpoints()[0].ID))
		})
		_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, 25*time.Second), testkit.Demo, &svc.DeployOptions{
			WaitOptions: svc.WaitOptions{MinInterval: 4 * time.Second, MaxInterval: 4 * time.Second},
			OnFailure:   func(*svc.DeployError) bool { failed = time.Now(); return true },
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.LessOrEqual(t, time.Since(failed), 8*time.Second)
	})
}

// A cleanup always sends a delete, also of an endpoint that the service does not find for so long that it counts as
// deleted: if a gateway has lost only the route of reads, the delete still ends the bill.
func TestCleanupDeletesWhatCountsAsDeleted(t *testing.T) {
	for name, notFound := range map[string]svctest.Fault{
		"json":  {Status: 404, Body: `{"code":"not_found","message":"no such service"}`, Times: -1},
		"plain": {Status: 404, Body: "404 page not found\n", Times: -1},
		"html":  {Status: 404, Body: "<html><h1>Not Found</h1></html>", Times: -1},
	} {
		for _, read := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", read ", read), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
					if !read {
						srv.Fault("GET", svctest.RouteEndpoint, notFound)
					}
					lost := func(svc.Poll) {
						if read && srv.PendingFaults() == 0 {
							srv.Fault("GET", svctest.RouteEndpoint, notFound)
						}
					}
					_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true, WaitOptions: svc.WaitOptions{OnPoll: lost}})
					e := testkit.ErrorAs[*svc.DeployError](t, err)
					require.ErrorIs(t, err, svc.ErrNotFound)
					require.Equal(t, svc.CleanupDeleted, e.Cleanup, err)
					require.Positive(t, srv.RequestCount("DELETE", svctest.RouteEndpoint))
					require.Zero(t, srv.RunningInstances())
				})
			})
		}
	}
}

// What is not found counts as deleted also if its delete fails.
func TestCleanupOfWhatIsDeletedElsewhere(t *testing.T) {
	for name, fault := range map[string]*svctest.Fault{"a delete works": nil, "no delete works": {Status: 503, Times: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				if fault != nil {
					srv.Fault("DELETE", svctest.RouteEndpoint, *fault)
				}
				gone := func(svc.Poll) { srv.Delete("svc-1") }
				_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true, WaitOptions: svc.WaitOptions{OnPoll: gone}})
				require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup, err)
				require.Equal(t, 1, srv.RequestCount("DELETE", svctest.RouteEndpoint))
			})
		})
	}
}

// A proof by "not found" stands whatever the delete that follows it takes: a second read soon after it adds nothing.
func TestProofOfADeletionStandsDuringASlowDelete(t *testing.T) {
	for name, fault := range map[string]svctest.Fault{"slow": {Delay: 1500 * time.Millisecond, Times: -1}, "slow, and fails": {Delay: 1500 * time.Millisecond, Status: 503, Times: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				client, began := srv.Client(), time.Now()
				created, err := client.InferenceServices.Create(t.Context(), testkit.Demo)
				require.NoError(t, err)
				srv.Delete(created.ServiceID)
				srv.Fault("DELETE", svctest.RouteEndpoint, fault)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				require.NoError(t, client.InferenceServices.DeleteAndWait(ctx, created.ServiceID, nil))
				require.Less(t, time.Since(began), 2*time.Minute)
			})
		})
	}
}
