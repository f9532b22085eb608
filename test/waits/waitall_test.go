package waits_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// addEndpoints adds n endpoints that stay "initializing" until a test changes them.
func addEndpoints(srv *svctest.Server, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = srv.AddEndpoint(svctest.Endpoint{Instances: 1, Status: svctest.StatusInitializing})
	}
	return ids
}

func TestWaitAllYieldsEachAsItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ids := addEndpoints(srv, 4)
		at := map[string]time.Duration{ids[0]: 30 * time.Minute, ids[1]: 10 * time.Minute, ids[2]: 20 * time.Minute}
		become := map[string]string{ids[0]: svctest.StatusAvailable, ids[1]: svctest.StatusUnavailable, ids[2]: svctest.StatusAvailable}
		for id, after := range at {
			time.AfterFunc(after, func() { srv.SetStatus(id, become[id]) })
		}
		start := time.Now()
		var order []string
		for service, err := range srv.Client().InferenceServices.WaitUntilAllAvailable(testkit.Within(t, time.Hour), append(ids, "svc-99"), nil) {
			if service == nil { // the endpoint was never found
				e := testkit.ErrorAs[*svc.WaitError](t, err)
				require.Equal(t, "svc-99", e.ID)
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.InDelta(t, 41, time.Since(start).Seconds(), 8, "30 s of grace, then 10 s of proof")
				order = append(order, e.ID)
				continue
			}
			order = append(order, service.ServiceID)
			if after, settles := at[service.ServiceID]; settles {
				require.InDelta(t, after, time.Since(start), float64(18*time.Second), "each endpoint must be yielded when its wait ends")
			}
			switch service.ServiceID {
			case ids[1]:
				require.ErrorIs(t, err, svc.ErrUnavailable)
				require.Equal(t, ids[1], testkit.ErrorAs[*svc.WaitError](t, err).ID)
				require.Same(t, service, testkit.ErrorAs[*svc.WaitError](t, err).Last)
			case ids[3]:
				require.ErrorIs(t, err, context.DeadlineExceeded)
			default:
				require.NoError(t, err, "one failed endpoint must not end the other waits")
				require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
			}
		}
		require.Equal(t, []string{"svc-99", ids[1], ids[2], ids[0], ids[3]}, order)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestWaitAllLeavesNothingBehind(t *testing.T) {
	for name, leave := range map[string]func(iter.Seq2[*svc.InferenceService, error]){
		"break": func(loop iter.Seq2[*svc.InferenceService, error]) {
			for range loop {
				break
			}
		},
		"panic": func(loop iter.Seq2[*svc.InferenceService, error]) {
			defer func() { _ = recover() }()
			for range loop {
				panic("out")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // synctest fails the test if a goroutine is left
				srv := svctest.NewInMemory()
				ids := addEndpoints(srv, 100)
				srv.SetStatus(ids[7], svctest.StatusAvailable)
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: 5 * time.Second, Times: -1}) // so that polls are in flight
				start := time.Now()
				leave(srv.Client().InferenceServices.WaitUntilAllAvailable(testkit.Within(t, time.Hour), ids, nil))
				require.LessOrEqual(t, time.Since(start), 10*time.Second)
				require.Zero(t, time.Since(start)%(5*time.Second), "leaving the loop must take no time")
				synctest.Wait() // every request that was sent has arrived
				asked := srv.RequestCount("GET", svctest.RouteEndpoint)
				time.Sleep(time.Hour)
				require.Equal(t, asked, srv.RequestCount("GET", svctest.RouteEndpoint))
			})
		})
	}
}

func TestWaitAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ids := addEndpoints(srv, 200)
		stop := errors.New("enough")
		start := time.Now()
		seen := map[string]bool{}
		for last, err := range srv.Client().InferenceServices.WaitUntilAllAvailable(testkit.CancelAfter(t, time.Minute, stop), ids, nil) {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, stop)
			require.NotNil(t, last)
			seen[testkit.ErrorAs[*svc.WaitError](t, err).ID] = true
		}
		require.Len(t, seen, len(ids), "every endpoint must be yielded")
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// crowd counts how many requests are in flight at the same time.
type crowd struct {
	http.RoundTripper
	now, most atomic.Int32
}

func (c *crowd) RoundTrip(req *http.Request) (*http.Response, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	return c.RoundTripper.RoundTrip(req)
}

func TestWaitAllLimitsItsPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ids := addEndpoints(srv, 500)
		for _, id := range ids {
			srv.ScriptStatus(id, svctest.StatusInitializing, svctest.StatusAvailable)
		}
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: 2 * time.Second, Times: -1})
		crowd := &crowd{RoundTripper: srv.HTTPClient().Transport}
		client := srv.Client(svc.WithHTTPClient(&http.Client{Transport: crowd}))
		start := time.Now()
		n := 0
		for _, err := range client.InferenceServices.WaitUntilAllAvailable(testkit.Within(t, time.Hour), ids, nil) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, len(ids), n)
		require.EqualValues(t, 64, crowd.most.Load())
		require.InDelta(t, 34*time.Second, time.Since(start), float64(2*time.Second)) // 16 rounds of 64 polls, 2 s each
	})
}

func TestWaitAllTakesTheListAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		services := srv.Client().InferenceServices
		for range services.WaitUntilAllAvailable(testkit.Within(t, time.Hour), nil, nil) {
			t.Fatal("nothing may be yielded")
		}
		var good, invalid int
		all := services.WaitUntilAllAvailable(testkit.Within(t, time.Hour), []string{id, "", id, "a/b", " ", id}, nil)
		for range 2 { // the sequence can be used twice
			good, invalid = 0, 0
			for service, err := range all {
				if err == nil {
					require.Equal(t, id, service.ServiceID)
					good++
					continue
				}
				require.ErrorAs(t, err, new(*svc.ValidationError))
				require.Contains(t, []string{"", "a/b", " "}, testkit.ErrorAs[*svc.WaitError](t, err).ID)
				invalid++
			}
		}
		require.Equal(t, 3, good, "an id that is there three times is yielded three times")
		require.Equal(t, 3, invalid)
		for _, r := range srv.Requests() {
			require.Equal(t, "/v1/inference-service/"+id, r.Path)
		}
	})
}

// A callback may block: the simulated time continues.
func TestWaitAllMakesOneOnPollCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ids := addEndpoints(srv, 40)
		for _, id := range ids {
			srv.ScriptStatus(id, svctest.StatusInitializing, svctest.StatusAvailable)
		}
		var inside atomic.Int32
		polls := map[string]int{} // not guarded by a mutex, so that the race detector finds concurrent calls
		opts := &svc.WaitOptions{OnPoll: func(p svc.Poll) {
			if inside.Add(1) != 1 {
				t.Error("two calls at a time")
			}
			time.Sleep(20 * time.Millisecond)
			polls[p.ID]++
			inside.Add(-1)
		}}
		for _, err := range srv.Client().InferenceServices.WaitUntilAllAvailable(testkit.Within(t, time.Hour), ids, opts) {
			require.NoError(t, err)
		}
		require.Len(t, polls, 40)
		for _, id := range ids {
			require.Equal(t, 2, polls[id])
		}
	})
}

// A wait does not change its options, so many waits may share them.
func TestWaitOptionsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(10 * time.Second))
		opts := &svc.WaitOptions{MaxInterval: time.Second, Probe: askEndpoint(srv)}
		var waits sync.WaitGroup
		for range 20 {
			waits.Go(func() {
				services := srv.Client().InferenceServices
				service, err := services.Deploy(testkit.Within(t, time.Hour), svc.CreateInferenceServiceRequest{
					Name: "x", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1},
				}, &svc.DeployOptions{WaitOptions: *opts})
				if err == nil {
					_, err = services.WaitUntilAvailable(testkit.Within(t, time.Hour), service.ServiceID, opts)
				}
				if err == nil {
					_, err = services.ScaleAndWait(testkit.Within(t, time.Hour), service.ServiceID, 0, opts)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		waits.Wait()
		require.NotNil(t, opts.Probe)
		opts.Probe = nil
		require.Equal(t, &svc.WaitOptions{MaxInterval: time.Second}, opts)
	})
}

// Every error of WaitUntilAllAvailable has the ID of its endpoint. Otherwise the caller could not tell
// to which endpoint it belongs.
func TestWaitAllErrorsNameTheirEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ids := addEndpoints(srv, 10)
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 401, Times: -1})
		named := map[string]bool{}
		for service, err := range srv.Client().InferenceServices.WaitUntilAllAvailable(testkit.Within(t, time.Hour), ids, nil) {
			require.Nil(t, service)
			require.ErrorIs(t, err, svc.ErrUnauthorized)
			id := testkit.ErrorAs[*svc.WaitError](t, err).ID
			require.ErrorContains(t, err, fmt.Sprintf("waiting for %s to be", id))
			named[id] = true
		}
		require.Len(t, named, 10)
		require.Positive(t, srv.RequestCount("GET", svctest.RouteEndpoint))
	})
}
