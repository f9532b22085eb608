package ledger_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// One call raises the number of instances while another call lowers it. The raise may
// take effect last, so the ledger keeps the higher number.
func TestOverlappingScales(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client().InferenceServices
		s, err := c.Deploy(w.Context(), request("n"), nil)
		require.NoError(w, err)
		w.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Slow(5*time.Second))
		var raise sync.WaitGroup
		raise.Go(func() { _, _ = c.Scale(w.Context(), s.ServiceID, 3) })
		time.Sleep(time.Second)
		_, err = c.Scale(w.Context(), s.ServiceID, 2)
		require.NoError(w, err)
		raise.Wait()
		require.Equal(w, 3, w.srv.RunningInstances())
		require.Equal(w, 3, w.one().Instances)
	})
}

// A raise that certainly had no effect is taken back, as if it had not been, and any other one stays: the
// number in the ledger and the instance time are never too low.
func TestARefusedScaleIsTakenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		fault svctest.Fault
		want  int
	}{
		"conflict":            {svctest.Fault{Status: 409, Times: -1}, 1},
		"wrong token":         {svctest.Fault{Status: 401, Times: -1}, 1},
		"rate limit":          {svctest.RateLimited("3600"), 1},
		"page of a proxy":     {svctest.Fault{Status: 403, Body: "<html>", Times: -1}, 5},
		"server error":        {svctest.Fault{Status: 500, Times: -1}, 5},
		"lost, then conflict": {svctest.DropAfterEffect(), 5},
		"redirect":            {svctest.Fault{Status: 303, Times: -1}, 5},
		"unreadable":          {svctest.Fault{Status: 200, Body: "7", Times: -1}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client().InferenceServices
				s, err := c.Deploy(w.Context(), request("n"), nil)
				require.NoError(w, err)
				tt.fault.Delay = 10 * time.Second
				w.srv.Fault("PUT", svctest.RouteEndpoint, tt.fault)
				w.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 409})
				_, err = c.Scale(w.Context(), s.ServiceID, 5)
				require.Error(w, err)
				require.Equal(w, tt.want, w.one().Instances)
				time.Sleep(time.Minute)
				require.Equal(w, tt.want == 1, w.one().InstanceTime(time.Now()) == time.Since(w.one().RequestedAt), "one instance for the whole time")
				require.GreaterOrEqual(w, w.one().Instances, w.srv.RunningInstances())
				w.srv.ClearFaults()
				_, err = c.Scale(w.Context(), s.ServiceID, 3)
				require.NoError(w, err)
				require.Equal(w, 3, w.one().Instances)
			})
		})
	}
}

// A change that another process makes during a raise that is refused stays in the ledger.
func TestARefusedScaleTakesNothingElseBack(t *testing.T) {
	for name, second := range map[string]int{"lower": 2, "to zero": 0, "higher": 7} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client().InferenceServices
				s, err := c.Deploy(w.Context(), request("n"), nil)
				require.NoError(w, err)
				w.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 409, Delay: 5 * time.Second})
				var raise sync.WaitGroup
				raise.Go(func() { _, err = c.Scale(w.Context(), s.ServiceID, 5) })
				time.Sleep(time.Second)
				_, other := c.Scale(w.Context(), s.ServiceID, second)
				require.NoError(w, other)
				raise.Wait()
				require.ErrorIs(w, err, svc.ErrConflict)
				require.Equal(w, second, w.srv.RunningInstances())
				require.Equal(w, second, w.one().Instances)
			})
		})
	}
}

// A store that panics, or ends its goroutine, ends the call before a raise is sent, which would not be recorded.
func TestAScaleWhoseStorePanicsIsNotSent(t *testing.T) {
	for name, stop := range map[string]func(){"panic": func() { panic("mine") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), nil)
				require.NoError(w, err)
				c := w.srv.Client(svc.WithLedger(stopping{w.store, stop}))
				require.True(w, quits(func() { _, _ = c.InferenceServices.Scale(w.Context(), s.ServiceID, 5) }))
				require.Equal(w, 1, w.srv.RunningInstances())
				require.True(w, quits(func() { _, _ = c.InferenceServices.Scale(w.Context(), s.ServiceID, 0) }))
				require.Zero(w, w.srv.RunningInstances(), "what lowers the bill is sent first")
			})
		})
	}
}

// stopping is a store whose List calls a function that panics, for example.
type stopping struct {
	ledger.Store
	stop func()
}

func (s stopping) List(ctx context.Context, key string) ([]ledger.Record, error) {
	s.stop()
	return s.Store.List(ctx, key)
}

// The panic of a transport may come after the effect.
func TestAScaleWhoseTransportPanicsIsNotTakenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), nil)
		require.NoError(w, err)
		c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == http.MethodPut {
				panic("after the effect")
			}
			return resp, err
		}))
		require.Panics(w, func() { _, _ = c.InferenceServices.Scale(w.Context(), s.ServiceID, 5) })
		require.Equal(w, 5, w.one().Instances)
	})
}

// Adopt records the instances that the endpoint has, also if it was scaled before.
func TestAdoptTakesTheInstances(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), nil)
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		_, err = c.InferenceServices.Scale(w.Context(), "svc-1", 4)
		require.NoError(w, err)
		_, err = c.Ledger.Adopt(w.Context(), w.one(), "svc-1", nil)
		require.NoError(w, err)
		require.Equal(w, 4, w.one().Instances)
	})
}

// Scaling down does not wait for a store that hangs, because it lowers the bill.
func TestScaleDownDoesNotWait(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), nil)
		require.NoError(w, err)
		w.store = stuck{w.store}
		start := time.Now()
		_, err = w.client().InferenceServices.Scale(w.Context(), s.ServiceID, 0)
		require.NoError(w, err)
		require.LessOrEqual(w, time.Since(start), 15*time.Second)
		require.Zero(w, w.srv.RunningInstances())
	})
}

type stuck struct{ ledger.Store }

func (stuck) List(ctx context.Context, _ string) ([]ledger.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Two services share a store, and each has an endpoint with the same ID.
func TestOneStoreForTwoServices(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.client()
		s, err := first.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "a"})
		require.NoError(w, err)
		other := svctest.NewInMemory(svctest.WithBasePath("/other"), svctest.WithFlavors(svctest.Flavor{ID: "flavor-a", Stock: 9}))
		_, err = other.Client(svc.WithLedger(w.store)).InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "b"})
		require.NoError(w, err)
		_, err = first.Ledger.Entries(w.Context())
		require.NoError(w, err)
		_, err = first.InferenceServices.Scale(w.Context(), s.ServiceID, 3)
		require.NoError(w, err)
		require.NoError(w, first.InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil))
		for _, e := range w.entries() {
			require.Equal(w, e.Key == "a", e.State == ledger.Deleted, e.Key)
			require.Equal(w, map[string]int{"a": 3, "b": 1}[e.Key], e.Instances, e.Key)
		}
	})
}

// A resumed Deploy does not shorten a lease that another process lengthened in the
// meantime.
func TestResumeNeverShortensALease(t *testing.T) {
	inWorld(t, func(w *world) {
		deploy := func(lease time.Duration) error {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: lease})
			return err
		}
		require.NoError(w, deploy(time.Hour))
		plain := w.store
		raced := &racing{Store: plain}
		raced.before = func() { w.store = plain; require.NoError(w, deploy(8*time.Hour)) }
		w.store = raced
		require.NoError(w, deploy(2*time.Hour))
		e := w.one()
		require.Equal(w, 8*time.Hour, e.LeaseEnd.Sub(e.RequestedAt))
	})
}

// A record with is_deleted but another name does not count as a deletion.
func TestReapOfAForeignRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Hour})
		require.NoError(w, err)
		time.Sleep(2 * time.Hour)
		w.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Times: -1, Body: `{"service_id":"svc-1","name":"other","is_deleted":true}`})
		_, err = c.Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "somebody else's")
	})
}

// A refusal may contain the ID of an endpoint. That endpoint does not belong to the
// Deploy and is not deleted, even after a panic.
func TestPanicAfterARefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409, Body: `{"message":"the name is taken","service_id":"` + id + `","name":"n"}`})
		c := w.client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
			if a.Method == "POST" {
				panic("hook")
			}
		}))
		require.True(w, quits(func() {
			_, _ = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{DeleteOnFailure: true})
		}))
		require.Equal(w, 1, w.srv.RunningInstances())
	})
}

// The error of a store shows no token, whatever its type is.
func TestStoreErrorsShowNoToken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = &faulty{Store: w.store, list: &ledger.Error{Op: "list", Err: errors.New("dial: Bearer " + w.srv.Token())}}
		_, err := w.client().Ledger.Entries(w.Context())
		require.ErrorContains(w, err, "REDACTED")
		require.NotContains(w, err.Error(), w.srv.Token())
	})
}
