package svctest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/svctest"
)

const endpointPath = "/v1/inference-service/svc-1"

func TestFaultsRespondInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		create(t, srv)
		srv.Fault("GET", svctest.RouteEndpoint,
			svctest.ServiceUnavailable(2),
			svctest.Fault{},
			svctest.RateLimited("7"),
			svctest.Fault{Status: 404},
			svctest.Fault{Status: 403, Body: "<html>no</html>"},
			svctest.Fault{Body: "<Error/>"},
			svctest.Fault{Body: "[1]"},
			svctest.Fault{Body: "plain", Header: http.Header{"content-type": {"text/odd"}}},
			svctest.Fault{Header: http.Header{"X-Extra": {"1"}}})
		require.Equal(t, 11-1, srv.PendingFaults())
		for _, want := range []struct {
			status                        int
			contentType, body, retryAfter string
		}{
			{503, "application/json", `{"code":"unavailable","message":"try again later"}`, ""},
			{503, "application/json", `{"code":"unavailable","message":"try again later"}`, ""},
			{200, "application/json", "", ""},
			{429, "application/json", `{"code":"rate_limited","message":"too many requests"}`, "7"},
			{404, "text/plain; charset=utf-8", "", ""},
			{403, "text/html; charset=utf-8", "<html>no</html>", ""},
			{200, "application/xml", "<Error/>", ""},
			{200, "application/json", "[1]", ""},
			{200, "text/odd", "plain", ""},
		} {
			r := send(t, srv, "GET", endpointPath, "")
			require.Equal(t, want.status, r.Status)
			require.Equal(t, want.contentType, r.Header.Get("Content-Type"))
			require.Equal(t, want.retryAfter, r.Header.Get("Retry-After"))
			require.NotEmpty(t, r.Header.Get("X-Request-Id"))
			if want.status != 200 || want.body != "" {
				require.Equal(t, want.body, r.Body)
			}
		}
		r := send(t, srv, "GET", endpointPath, "")
		require.Equal(t, "1", r.Header.Get("X-Extra"))
		require.Equal(t, "svc-1", r.JSON()["service_id"])
		require.Zero(t, srv.PendingFaults())
		require.Equal(t, "initializing", status(t, srv, "svc-1"))
	}, svctest.WithDeployTime(time.Hour))
}

func TestFaultsMatchMethodAndRoute(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 500})
		srv.Fault("*", svctest.RouteAny, svctest.Fault{Status: 502, Times: -1})
		require.Equal(t, 502, send(t, srv, "GET", endpointPath, "").Status)
		require.Equal(t, 500, send(t, srv, "PUT", endpointPath, "{}").Status)
		require.Equal(t, 502, send(t, srv, "PUT", endpointPath, "{}").Status)
		require.Equal(t, 502, send(t, srv, "GET", "/nowhere", "").Status)
		require.Zero(t, srv.PendingFaults(), "the one for ever does not count")
		srv.ClearFaults()
		require.Equal(t, 404, send(t, srv, "GET", "/nowhere", "").Status)

		require.Panics(t, func() { srv.Fault("GET", "/v1/inference-service/{id}", svctest.Fault{}) })
		require.Panics(t, func() { srv.Fault("PATCH", svctest.RouteEndpoint, svctest.Fault{}) })
	})
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		defer srv.Close()
		srv.Fault("GET", svctest.RouteFlavors, svctest.Outage(10*time.Minute), svctest.Fault{Status: 418})
		srv.Fault("*", svctest.RouteAny, svctest.Fault{Status: 502, For: time.Minute, Times: 1})
		require.Equal(t, 1, srv.PendingFaults(), "what lasts for a time does not count")
		flavors := func() int { return send(t, srv, "GET", "/v1/inference-service/flavor", "").Status }
		for range 3 {
			require.Equal(t, 503, flavors())
			require.Equal(t, 502, send(t, srv, "GET", "/v1/files", "").Status)
		}
		time.Sleep(time.Minute)
		require.Equal(t, 200, send(t, srv, "GET", "/v1/files", "").Status)
		time.Sleep(9*time.Minute - 1)
		require.Equal(t, 503, flavors())
		time.Sleep(1)
		require.Equal(t, 418, flavors(), "what was queued behind it comes next")
		require.Equal(t, 200, flavors())
		require.Zero(t, srv.PendingFaults())
	})
}

// A wait outlasts an outage of the service.
func TestOutageDuringAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(5 * time.Minute))
		defer srv.Close()
		srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		start := time.Now()
		srv.Fault("*", svctest.RouteAny, svctest.Outage(20*time.Minute))
		s, err := srv.Client().InferenceServices.WaitUntilAvailable(t.Context(), "svc-1", nil)
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, s.Status)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Minute)
		require.Less(t, time.Since(start), 25*time.Minute)
	})
}

// lost checks that err is the error of a lost connection.
func lost(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errno.ConnReset), "%v", err)
}

func TestFaultsBeforeAndAfterTheEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		post := func() (reply, error) { return trySend(t, srv, "POST", "/v1/inference-service", `{"name":"x"}`) }
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropBeforeEffect(), svctest.Fault{Status: 500})
		_, err := post()
		lost(t, err)
		r, err := post()
		require.NoError(t, err)
		require.Equal(t, 500, r.Status)
		require.Empty(t, srv.Endpoints())

		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect(), svctest.GatewayErrorAfterEffect(),
			svctest.Fault{AfterEffect: true, Header: http.Header{"X-Real": {"yes"}}})
		_, err = post()
		lost(t, err)
		require.Len(t, srv.Endpoints(), 1)
		r, err = post()
		require.NoError(t, err)
		require.Equal(t, 502, r.Status)
		require.Contains(t, r.Body, "502 Bad Gateway")
		require.Len(t, srv.Endpoints(), 2)
		r, err = post()
		require.NoError(t, err)
		require.Equal(t, "yes", r.Header.Get("X-Real"))
		require.Equal(t, "svc-3", r.JSON()["service_id"])

		var statuses []int
		for _, r := range srv.Requests() {
			statuses = append(statuses, r.Status)
		}
		require.Equal(t, []int{0, 500, 0, 502, 200}, statuses)
	})
}

func TestLostConnectionInMemoryIsANetError(t *testing.T) {
	srv := svctest.NewInMemory()
	srv.Fault("GET", svctest.RouteFlavors, svctest.DropBeforeEffect())
	_, err := trySend(t, srv, "GET", "/v1/inference-service/flavor", "")
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "read", op.Op)
	require.ErrorIs(t, err, errno.ConnReset)
}

func TestTruncatedBody(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		create(t, srv)
		whole := send(t, srv, "GET", endpointPath, "")
		size := len(whole.Body)
		for name, tt := range map[string]struct {
			fault svctest.Fault
			want  string
		}{
			"half":            {svctest.Fault{TruncateBody: true}, whole.Body[:size/2]},
			"after ten bytes": {svctest.Fault{TruncateAfter: 10}, whole.Body[:10]},
			"after headers":   {svctest.Fault{TruncateAfter: -1}, ""},
			"own response":    {svctest.Fault{Body: "0123456789", TruncateBody: true}, "01234"},
			"after effect":    {svctest.Fault{AfterEffect: true, TruncateAfter: 3}, whole.Body[:3]},
		} {
			srv.Fault("GET", svctest.RouteEndpoint, tt.fault)
			r, err := trySend(t, srv, "GET", endpointPath, "")
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
			require.Equal(t, tt.want, r.Body, name)
			require.Greater(t, r.Header.Get("Content-Length"), "1", name)
		}
	}, svctest.WithDeployTime(time.Hour))
}

func TestDelayRunsOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(time.Minute), svctest.Fault{Delay: time.Hour, AfterEffect: true},
			svctest.Fault{Delay: time.Second, DropBefore: true}, svctest.Fault{Delay: 2 * time.Second, Status: 504})
		post := func() error {
			_, err := trySend(t, srv, "POST", "/v1/inference-service", `{"name":"x"}`)
			return err
		}
		start := time.Now()
		during := func(d time.Duration, want int) {
			time.Sleep(d)
			if got := len(srv.Endpoints()); got != want {
				t.Errorf("%d endpoints after %s, want %d", got, time.Since(start), want)
			}
		}
		go during(time.Minute-1, 0)
		require.NoError(t, post())
		require.Equal(t, time.Minute, time.Since(start))
		require.Len(t, srv.Endpoints(), 1)
		go during(time.Second, 2)
		require.NoError(t, post())
		require.Equal(t, time.Minute+time.Hour, time.Since(start))
		require.Error(t, post())
		require.NoError(t, post())
		require.Equal(t, time.Minute+time.Hour+3*time.Second, time.Since(start))
	})
}

func TestCancelEndsADelayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // synctest fails the test if a handler still runs at its end
		srv := svctest.NewInMemory()
		srv.Fault("*", svctest.RouteAny, svctest.Fault{Delay: time.Hour, Times: -1})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "DELETE", srv.URL()+endpointPath, nil)
		require.NoError(t, err)
		start := time.Now()
		_, err = do(t, srv, req)
		require.ErrorContains(t, err, "enough")
		require.Equal(t, time.Minute, time.Since(start))

		client := srv.HTTPClient()
		client.Timeout = time.Second
		_, err = client.Get(srv.URL())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}

func TestLoopbackDelayEndsWhenTheCallerLeavesOrTheServerCloses(t *testing.T) {
	srv := svctest.NewServer()
	create(t, srv)
	srv.Fault("*", svctest.RouteAny, svctest.Fault{Delay: time.Hour, Times: -1})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "DELETE", srv.URL()+endpointPath, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+srv.Token())
	failed := make(chan error)
	for _, r := range []*http.Request{req, req.WithContext(t.Context())} {
		go func() {
			_, err := do(t, srv, r)
			failed <- err
		}()
	}
	require.Eventually(t, func() bool { return srv.RequestCount("DELETE", svctest.RouteEndpoint) == 2 }, 20*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	srv.Close() // returns after all handlers have ended
	lost(t, <-failed)
	e, _ := srv.Endpoint("svc-1")
	require.False(t, e.Deleted)
}
