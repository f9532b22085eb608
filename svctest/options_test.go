package svctest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestStatusInfoIsSentAsJSON_D33(t *testing.T) {
	srv := svctest.NewInMemory()
	create(t, srv)
	for info, want := range map[string]string{
		"image not found":    `"status_info":"image not found"`,
		`{"reason":"evict"}`: `"status_info":{"reason":"evict"}`,
		`"quoted"`:           `"status_info":"quoted"`,
		"null":               `"status_info":null`,
		"":                   `"status_info":""`,
		`{"cut":`:            `"status_info":"{\"cut\":"`,
	} {
		srv.SetStatusInfo("svc-1", info)
		require.Contains(t, send(t, srv, "GET", endpointPath, "").Body, want)
	}
}

func TestCreateTimeDelaysOnlyTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateTime(18 * time.Second))
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			if s, _ := srv.Endpoint("svc-1"); s.Status != "available" {
				t.Errorf("after a second the endpoint is %s", s.Status)
			}
		}()
		create(t, srv)
		require.Equal(t, 18*time.Second, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL()+"/v1/inference-service", strings.NewReader(createBody))
		require.NoError(t, err)
		req.Header = http.Header{"Authorization": {"Bearer " + srv.Token()}, "Content-Type": {"application/json"}}
		_, err = do(t, srv, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, srv.Endpoints(), 2, "it exists, although the caller gave up")
	})
}

func TestImagePullError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute), svctest.WithImagePullError("registry.example/app:1"))
		create(t, srv)
		send(t, srv, "POST", "/v1/inference-service", `{"name":"other"}`)
		r := send(t, srv, "GET", endpointPath, "")
		require.Equal(t, "initializing", r.JSON()["status"])
		require.Nil(t, r.JSON()["status_info"])
		time.Sleep(time.Minute)
		r = send(t, srv, "GET", endpointPath, "")
		require.Equal(t, "unavailable", r.JSON()["status"])
		require.Contains(t, r.JSON()["status_info"], "registry.example/app:1 cannot be pulled")
		require.Equal(t, "available", status(t, srv, "svc-2"))
		require.Equal(t, 2+1, srv.RunningInstances(), "it is billed")
	})
	every := svctest.NewInMemory(svctest.WithDeployTime(0), svctest.WithImagePullError())
	require.Equal(t, "unavailable", status(t, every, create(t, every)))
}

func TestNamesAreRewritten(t *testing.T) {
	srv := svctest.NewInMemory(svctest.WithNameRewrite(func(name string) string {
		return strings.ReplaceAll(strings.ToLower(name), " ", "-")
	}))
	r := send(t, srv, "POST", "/v1/inference-service", `{"name":"My App"}`)
	require.Equal(t, "my-app", r.JSON()["name"])
	require.Equal(t, "my-app", srv.Endpoints()[0].Name)
}

func TestClockOffset(t *testing.T) {
	for _, offset := range []time.Duration{26 * time.Hour, -26 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithClockOffset(offset), svctest.WithDeployTime(time.Minute))
			time.Sleep(time.Hour)
			created := time.Now().Add(offset).UTC()
			r := send(t, srv, "POST", "/v1/inference-service", createBody)
			require.Equal(t, created.Format(http.TimeFormat), r.Header.Get("Date"))
			require.Equal(t, created.Format(time.DateTime), r.JSON()["created_at"])
			require.Equal(t, created, srv.Endpoints()[0].CreatedAt.UTC())
			srv.Fault("GET", svctest.RouteEndpoint, svctest.Outage(30*time.Second))
			require.Equal(t, "Service Unavailable", status(t, srv, "svc-1"))
			time.Sleep(30 * time.Second)
			require.Equal(t, "initializing", status(t, srv, "svc-1"))
			time.Sleep(30 * time.Second)
			require.Equal(t, "available", status(t, srv, "svc-1"))
			require.Equal(t, 2*time.Minute, srv.Bill().Total)
			id := srv.AddFile("a", "fine-tune", []byte("x"))
			require.Equal(t, "x", storage(t, srv, "GET", fileLink(t, srv, id), "").Body)
		})
	}
}

func TestWithoutDate(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		require.NotContains(t, send(t, srv, "GET", "/v1/files", "").Header, "Date")
		srv.Fault("*", svctest.RouteAny, svctest.RouterNotFound())
		require.NotContains(t, send(t, srv, "GET", "/v1/files", "").Header, "Date")
	}, svctest.WithoutDate())
}

func TestRouterNotFoundForOneEndpointAndATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		create(t, srv)
		create(t, srv)
		text, kong, page := svctest.RouterNotFound(), svctest.RouterNotFoundJSON(), svctest.ProxyPage(404)
		text.ID, text.For = "svc-2", time.Minute
		kong.Times = 2
		srv.Fault("*", svctest.RouteEndpoint, text, kong, page)
		get := func(id string) reply { return send(t, srv, "GET", "/v1/inference-service/"+id, "") }
		for _, want := range []struct{ id, contentType, body string }{
			{"svc-2", "text/plain; charset=utf-8", "404 page not found\n"},
			{"svc-1", "application/json", `{"message":"no Route matched with those values"}`},
			{"svc-1", "application/json", `{"message":"no Route matched with those values"}`},
			{"svc-2", "text/plain; charset=utf-8", "404 page not found\n"},
		} {
			r := get(want.id)
			require.Equal(t, 404, r.Status)
			require.Equal(t, want.contentType, r.Header.Get("Content-Type"))
			require.Equal(t, want.body, r.Body)
		}
		time.Sleep(time.Minute)
		require.Contains(t, get("svc-2").Body, "<title>404 Not Found")
		require.Equal(t, 200, get("svc-1").Status)
	})
}
