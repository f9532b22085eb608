package svctest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestBillIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(10 * time.Minute))
		require.Zero(t, srv.Bill().Total)
		require.Empty(t, srv.Bill().ByEndpoint)

		first := create(t, srv) // two instances
		require.Equal(t, map[string]time.Duration{first: 0}, srv.Bill().ByEndpoint)
		time.Sleep(time.Minute)
		require.Equal(t, 2*time.Minute, srv.Bill().Total, "billed while it initializes")
		scale(t, srv, first, "3")
		time.Sleep(20*time.Minute + time.Nanosecond)
		require.Equal(t, 62*time.Minute+3*time.Nanosecond, srv.Bill().Total)
		scale(t, srv, first, "0")
		time.Sleep(time.Hour)
		require.Equal(t, 62*time.Minute+3*time.Nanosecond, srv.Bill().Total, "stopped")
		scale(t, srv, first, "1")
		second := create(t, srv)
		time.Sleep(time.Minute)
		send(t, srv, "DELETE", "/v1/inference-service/"+first, "")
		time.Sleep(time.Hour)
		require.Equal(t, svctest.Bill{
			Total: 185*time.Minute + 3*time.Nanosecond,
			ByEndpoint: map[string]time.Duration{
				first: 63*time.Minute + 3*time.Nanosecond, second: 122 * time.Minute,
			},
		}, srv.Bill())
	})
}

func TestBillEndsWhereADeletionTakesEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeleteTime(5*time.Minute), svctest.WithCreateVisibilityDelay(time.Minute))
		id := create(t, srv)
		path := "/v1/inference-service/" + id
		require.Equal(t, 404, send(t, srv, "DELETE", path, "").Status, "not visible yet, so not deleted")
		time.Sleep(time.Minute)
		require.Equal(t, 200, send(t, srv, "DELETE", path, "").Status)
		time.Sleep(time.Minute)
		require.Equal(t, 4*time.Minute, srv.Bill().Total)
		require.Equal(t, 2, srv.RunningInstances())
		require.Equal(t, 200, send(t, srv, "DELETE", path, "").Status, "a second delete puts nothing off")
		time.Sleep(time.Hour)
		require.Equal(t, 12*time.Minute, srv.Bill().Total)
		srv.SetStatus(id, svctest.StatusAvailable)
		require.Equal(t, 12*time.Minute, srv.Bill().Total)
	})
}

// The bill also follows statuses that a test sets. Only "stopped" costs nothing.
func TestBillFollowsStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(time.Hour))
		id := srv.AddEndpoint(svctest.Endpoint{Name: "seeded", Instances: 1})
		require.Equal(t, time.Now(), srv.Endpoints()[0].CreatedAt)
		steps := []struct {
			set  func()
			want time.Duration
		}{
			{func() {}, time.Minute},
			{func() { srv.SetStatus(id, svctest.StatusUnavailable) }, 2 * time.Minute},
			{func() { srv.SetStatus(id, svctest.StatusStopped) }, 2 * time.Minute},
			{func() { srv.SetStatus(id, "") }, 3 * time.Minute},
			{func() { srv.ScriptStatus(id, svctest.StatusStopped, svctest.StatusAvailable) }, 3 * time.Minute},
			{func() { require.Equal(t, "stopped", status(t, srv, id)) }, 4 * time.Minute},
		}
		for i, step := range steps {
			step.set()
			time.Sleep(time.Minute)
			require.Equal(t, step.want, srv.Bill().Total, "step %d", i)
		}
	})
}

// watchedTest is a testing.TB that records failures and cleanups.
type watchedTest struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (w *watchedTest) Helper()          {}
func (w *watchedTest) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }
func (w *watchedTest) Errorf(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *watchedTest) end() []string {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
	return w.failures
}

func TestNoLeaks(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(t *testing.T, w *watchedTest, srv *svctest.Server)
		want []string
	}{
		"nothing created": {func(*testing.T, *watchedTest, *svctest.Server) {}, nil},
		"left running": {func(t *testing.T, _ *watchedTest, srv *svctest.Server) {
			create(t, srv)
			srv.SetStatus(create(t, srv), svctest.StatusUnavailable)
		}, []string{`svctest: endpoints still run and are billed: ` +
			`svc-1 ("demo", initializing, instances: 2), svc-2 ("demo", unavailable, instances: 2)`}},
		"deleted by a later cleanup": {func(t *testing.T, w *watchedTest, srv *svctest.Server) {
			id := create(t, srv)
			w.Cleanup(func() { send(t, srv, "DELETE", "/v1/inference-service/"+id, "") })
		}, nil},
		"deletion accepted": {func(t *testing.T, _ *watchedTest, srv *svctest.Server) {
			send(t, srv, "DELETE", "/v1/inference-service/"+create(t, srv), "")
		}, nil},
		"deletion without effect": {func(t *testing.T, _ *watchedTest, srv *svctest.Server) {
			srv.Fault("DELETE", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
			require.Equal(t, 202, send(t, srv, "DELETE", "/v1/inference-service/"+create(t, srv), "").Status)
		}, []string{`svctest: endpoints still run and are billed: svc-1 ("demo", initializing, instances: 2)`}},
		"stopped": {func(t *testing.T, _ *watchedTest, srv *svctest.Server) {
			scale(t, srv, create(t, srv), "0")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithDeleteTime(time.Hour))
			w := &watchedTest{TB: t}
			svctest.NoLeaks(w, srv)
			test.run(t, w, srv)
			require.Equal(t, test.want, w.end())
		})
	}
}

func TestNoLeaksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeleteTime(time.Hour))
		svctest.NoLeaks(t, srv)
		id := create(t, srv)
		t.Cleanup(func() { require.NoError(t, srv.Client().InferenceServices.Delete(context.Background(), id)) })
	})
}
