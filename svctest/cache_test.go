package svctest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestCacheServesAStaleResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCache(svctest.Cache{TTL: time.Minute}))
		require.Equal(t, 404, send(t, srv, "GET", endpointPath, "").Status)
		create(t, srv)
		time.Sleep(59 * time.Second)
		stale := send(t, srv, "GET", endpointPath, "")
		require.Equal(t, 404, stale.Status)
		require.Equal(t, "59", stale.Header.Get("Age"))
		require.Equal(t, "req-1", stale.Header.Get("X-Request-Id"))
		require.Equal(t, "Sat, 01 Jan 2000 00:00:00 GMT", stale.Header.Get("Date"))
		require.Equal(t, 1, srv.RequestCount("GET", svctest.RouteEndpoint), "the service did not see it")
		require.Equal(t, 401, send(t, srv, "GET", endpointPath, "", "Authorization", "").Status, "by token")

		fresh := send(t, srv, "GET", endpointPath, "", "Cache-Control", "no-cache")
		require.Equal(t, 200, fresh.Status)
		require.Empty(t, fresh.Header.Get("Age"))
		require.Equal(t, 200, send(t, srv, "DELETE", endpointPath, "").Status)
		stale = send(t, srv, "GET", endpointPath, "")
		require.Equal(t, fresh.Body, stale.Body, "the response that was stored last, also after the delete")
		time.Sleep(time.Minute)
		require.Equal(t, 404, send(t, srv, "GET", endpointPath, "").Status)
	})
}

func TestCacheMayIgnoreNoCacheAndHideAge(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		create(t, srv)
		srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(1))
		require.Equal(t, 503, send(t, srv, "GET", endpointPath, "").Status, "not stored")
		first := send(t, srv, "GET", endpointPath, "")
		require.Equal(t, 200, send(t, srv, "DELETE", endpointPath, "").Status)
		stale := send(t, srv, "GET", endpointPath, "", "Cache-Control", "no-cache")
		require.Equal(t, first.Body, stale.Body)
		require.Equal(t, first.Header, stale.Header)
		require.NotContains(t, stale.Header, "Age")
	}, svctest.WithCache(svctest.Cache{TTL: time.Hour, IgnoreNoCache: true, HideAge: true}))
}
