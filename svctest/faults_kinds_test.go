package svctest_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

func TestAcceptedWithoutEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
		id := create(t, srv)
		r := send(t, srv, "DELETE", endpointPath, "")
		require.Equal(t, http.StatusAccepted, r.Status)
		require.Empty(t, r.Body+r.Header.Get("Content-Type"))
		require.Equal(t, "available", status(t, srv, id))
		require.Equal(t, 2, srv.RunningInstances())
		require.Equal(t, http.StatusOK, send(t, srv, "DELETE", endpointPath, "").Status)
		require.Zero(t, srv.RunningInstances())
	}, svctest.WithDeployTime(0))
}

func TestEmptyAfterEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := create(t, srv)
		for i, status := range []int{http.StatusAccepted, http.StatusNoContent} {
			srv.Fault("PUT", svctest.RouteEndpoint, svctest.EmptyAfterEffect(status))
			r := scale(t, srv, id, []string{"3", "4"}[i])
			require.Equal(t, status, r.Status)
			require.Empty(t, r.Body)
			e, _ := srv.Endpoint(id)
			require.Equal(t, 3+i, e.Instances)
		}
		srv.Fault("PUT", svctest.RouteEndpoint, svctest.EmptyAfterEffect(http.StatusNoContent))
		req, err := http.NewRequestWithContext(t.Context(), "PUT", srv.URL()+endpointPath, nil)
		require.NoError(t, err)
		resp, err := srv.HTTPClient().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Zero(t, resp.ContentLength)
	})
}

func TestProxyPage(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		create(t, srv)
		for status, title := range map[int]string{
			http.StatusNotFound: "404 Not Found", http.StatusBadGateway: "502 Bad Gateway", http.StatusOK: "200 OK",
		} {
			srv.Fault("DELETE", svctest.RouteEndpoint, svctest.ProxyPage(status))
			r := send(t, srv, "DELETE", endpointPath, "")
			require.Equal(t, status, r.Status)
			require.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
			require.Contains(t, r.Body, "<title>"+title+"</title>")
		}
		require.Equal(t, 2, srv.RunningInstances())
	})
}

// A 404 page of a proxy does not prove that the endpoint was deleted.
func TestProxyPageIsNoProofOfADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := create(t, srv)
		srv.Fault("*", svctest.RouteEndpoint, svctest.ProxyPage(http.StatusNotFound))
		require.Error(t, srv.Client().InferenceServices.Delete(t.Context(), id))
		require.Equal(t, 2, srv.RunningInstances())
	})
}

func TestRedirect(t *testing.T) {
	other := svctest.NewServer()
	defer other.Close()
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Redirect(http.StatusTemporaryRedirect, other.URL()+endpointPath))
		create(t, srv)
		r := send(t, srv, "DELETE", endpointPath, "")
		require.Equal(t, http.StatusTemporaryRedirect, r.Status)
		require.Equal(t, other.URL()+endpointPath, r.Header.Get("Location"))
		require.Empty(t, r.Body)
		require.Equal(t, 2, srv.RunningInstances())
	})
}

// timed sends a request and gives up after d. The bool that it returns is true if the
// request was sent on a connection that was used before.
func timed(t *testing.T, srv *svctest.Server, d time.Duration, method, url, body string) (reply, bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	reused := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+srv.Token())
	if strings.Contains(url, "?") {
		req.Header.Del("Authorization")
	} else if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	r, err := do(t, srv, req)
	return r, reused, err
}

func TestDeadConnection(t *testing.T) {
	srv := svctest.NewServer()
	defer srv.Close()
	url := srv.URL() + "/v1/files"
	_, _, err := timed(t, srv, time.Minute, "GET", url, "")
	require.NoError(t, err)
	srv.Fault("*", svctest.RouteFiles, svctest.DeadConnection(), svctest.Fault{Dead: true, AfterEffect: true, Status: 500}, svctest.Fault{DropAfter: true, Dead: true})

	_, reused, err := timed(t, srv, 500*time.Millisecond, "GET", url, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, reused, "a connection in use goes dead")
	for i := range 2 {
		_, _, err = timed(t, srv, 500*time.Millisecond, "POST", url, `{}`)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Eventually(t, func() bool { return len(srv.Files()) == i+1 }, time.Minute, time.Millisecond, "after the effect")
	}
	_, reused, err = timed(t, srv, time.Minute, "GET", url, "")
	require.NoError(t, err)
	require.False(t, reused, "a new connection works")
}

func TestDeadConnectionInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("*", svctest.RouteFiles, svctest.DeadConnection(), svctest.Fault{Dead: true, AfterEffect: true})
		for want := range 2 {
			start := time.Now()
			_, _, err := timed(t, srv, time.Hour, "POST", srv.URL()+"/v1/files", `{}`)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Hour, time.Since(start))
			synctest.Wait()
			require.Len(t, srv.Files(), want)
		}
		require.Equal(t, http.StatusOK, send(t, srv, "GET", "/v1/files", "").Status)
	})
}

// A download or upload can stall in the middle, and the client gives up.
func TestDeadConnectionInATransfer(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddFile("a.txt", "fine-tune", []byte("0123456789"))
		link := fileLink(t, srv, id)
		srv.Fault("GET", svctest.RouteStorage, svctest.Fault{TruncateAfter: 4, Dead: true}, svctest.Fault{TruncateBody: true, Dead: true})
		for _, want := range []string{"0123", "01234"} {
			r, _, err := timed(t, srv, 500*time.Millisecond, "GET", link, "")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, want, r.Body)
		}
		srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{ReadBytes: 1, Dead: true})
		_, _, err := timed(t, srv, 500*time.Millisecond, "PUT", link, strings.Repeat("x", 8<<20))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r := storage(t, srv, "GET", link, "")
		require.Equal(t, "0123456789", r.Body)
	})
}

// A server with dead connections closes at once, and callers that wait on such a
// connection get an error.
func TestCloseEndsDeadConnections(t *testing.T) {
	srv := svctest.NewServer()
	srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Dead: true, Times: 2})
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := trySend(t, srv, "GET", "/v1/files", "") //nolint:testifylint // it fails only for a request that cannot be made
			failed <- err
		}()
	}
	require.Eventually(t, func() bool { return srv.RequestCount("GET", svctest.RouteFiles) == 2 }, time.Minute, time.Millisecond)
	srv.Close()
	lost(t, <-failed)
	lost(t, <-failed)
}

// The two delays of an endpoint work together: at first its ID is unknown, and its
// deletion takes effect later.
func TestSlowToAppearAndSlowToBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute),
			svctest.WithCreateVisibilityDelay(10*time.Second), svctest.WithDeleteTime(30*time.Second))
		svctest.NoLeaks(t, srv)
		id := create(t, srv)
		require.Equal(t, "Not Found", status(t, srv, id))
		require.Equal(t, http.StatusNotFound, send(t, srv, "DELETE", endpointPath, "").Status)
		time.Sleep(10*time.Second - 1)
		require.Equal(t, http.StatusNotFound, scale(t, srv, id, "1").Status)
		time.Sleep(1)
		require.Equal(t, "initializing", status(t, srv, id))
		require.Equal(t, http.StatusOK, send(t, srv, "DELETE", endpointPath, "").Status)
		time.Sleep(30*time.Second - 1)
		require.Equal(t, "initializing", status(t, srv, id))
		require.Equal(t, 2, srv.RunningInstances())
		time.Sleep(1)
		require.Equal(t, "Not Found", status(t, srv, id))
		require.Equal(t, 80*time.Second, srv.Bill().Total)
	})
}

// A program that deploys and deletes leaves nothing behind on a service where a new
// endpoint appears late and a deletion takes effect late.
func TestClientOnASlowService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute),
			svctest.WithCreateVisibilityDelay(10*time.Second), svctest.WithDeleteTime(30*time.Second))
		svctest.NoLeaks(t, srv)
		services := srv.Client().InferenceServices
		service, err := services.Deploy(t.Context(), svc.CreateInferenceServiceRequest{
			Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
		}, nil)
		require.NoError(t, err)
		require.NoError(t, services.DeleteAndWait(t.Context(), service.ServiceID, nil))
		require.Zero(t, srv.RunningInstances())
		require.Less(t, srv.Bill().Total, 2*(time.Minute+15*time.Second+30*time.Second))
	})
}

func TestUpdatedAtChangesOnEveryUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(10 * time.Second))
		id := create(t, srv)
		updatedAt := func() any { return send(t, srv, "GET", endpointPath, "").JSON()["updated_at"] }
		require.Equal(t, "2000-01-01 00:00:00", updatedAt())
		time.Sleep(time.Minute)
		require.Equal(t, "2000-01-01 00:00:10", updatedAt(), "it became available")
		for i, step := range []struct{ instances, want, later string }{
			{"3", "2000-01-01 00:01:00", "2000-01-01 00:01:10"},
			{"3", "2000-01-01 00:02:00", "2000-01-01 00:02:00"}, // same number: only updated_at changes
			{"0", "2000-01-01 00:03:00", "2000-01-01 00:03:00"},
			{"0", "2000-01-01 00:04:00", "2000-01-01 00:04:00"},
			{"1", "2000-01-01 00:05:00", "2000-01-01 00:05:10"},
		} {
			require.Equal(t, step.want, scale(t, srv, id, step.instances).JSON()["updated_at"], "step %d", i)
			require.Equal(t, step.want, updatedAt(), "step %d", i)
			time.Sleep(time.Minute)
			require.Equal(t, step.later, updatedAt(), "step %d", i)
		}
		e, _ := srv.Endpoint(id)
		require.Equal(t, time.Date(2000, 1, 1, 0, 5, 10, 0, time.UTC), e.UpdatedAt.UTC())
	})
}
