package svctest_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestRequestsAreRecordedAsTheyArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		time.Sleep(time.Second)
		send(t, srv, "POST", "/v1/inference-service", `{"name":"x"}`, "X-Extra", "1")
		send(t, srv, "GET", "/v1/inference-service/a%2Fb%20c", "")
		send(t, srv, "GET", "/v1/svc-video-job?page=2&page_size=5", "")
		send(t, srv, "GET", "/nowhere", "")
		requests := srv.Requests()
		require.Len(t, requests, 4)
		require.Equal(t, svctest.Request{
			RequestID: "req-1", Time: time.Now(), Method: "POST", Host: "svc.test",
			Path: "/v1/inference-service", Route: svctest.RouteEndpoints,
			Header: http.Header{
				"Authorization": {"Bearer " + svctest.DefaultToken}, "Content-Type": {"application/json"},
				"X-Extra": {"1"}, "Content-Length": {"12"}, "User-Agent": {"Go-http-client/1.1"},
			},
			Query: map[string][]string{}, ContentLength: 12, Body: []byte(`{"name":"x"}`), BodySize: 12, Status: 200,
		}, requests[0])
		require.Equal(t, "/v1/inference-service/a%2Fb%20c", requests[1].Path)
		require.Equal(t, svctest.RouteEndpoint, requests[1].Route)
		require.Equal(t, "5", requests[2].Query.Get("page_size"))
		require.Equal(t, "page=2&page_size=5", requests[2].RawQuery)
		require.Empty(t, requests[3].Route)
		require.Equal(t, http.StatusNotFound, requests[3].Status)

		requests[0].Header.Set("X-Extra", "changed")
		requests[0].Body[0] = '!'
		require.Equal(t, "1", srv.Requests()[0].Header.Get("X-Extra"), "a copy")
		require.Equal(t, `{"name":"x"}`, string(srv.Requests()[0].Body))

		require.Equal(t, 1, srv.RequestCount("GET", svctest.RouteEndpoint))
		require.Equal(t, 3, srv.RequestCount("GET", svctest.RouteAny))
		require.Equal(t, 4, srv.RequestCount("*", svctest.RouteAny))
		require.Zero(t, srv.RequestCount("DELETE", svctest.RouteEndpoint))
		require.Panics(t, func() { srv.RequestCount("GET", "/v1/file") })
		require.Panics(t, func() { srv.RequestCount("POST", svctest.RouteEndpoint) })

		srv.ResetRequests()
		require.Empty(t, srv.Requests())
		require.Zero(t, srv.RequestCount("*", svctest.RouteAny))
		require.Equal(t, "req-5", send(t, srv, "GET", "/nowhere", "").Header.Get("X-Request-Id"))
	})
}

func TestRecordLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		for range 5 {
			send(t, srv, "POST", "/v1/files", `{"file_name":"x"}`)
		}
		var ids []string
		for _, r := range srv.Requests() {
			ids = append(ids, r.RequestID)
			require.Equal(t, `{"fi`, string(r.Body))
			require.EqualValues(t, 17, r.BodySize)
		}
		require.Equal(t, []string{"req-3", "req-4", "req-5"}, ids)
		require.Equal(t, 5, srv.RequestCount("POST", svctest.RouteFiles))
	}, svctest.WithRecordLimit(3, 4))
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		send(t, srv, "GET", "/v1/files", "")
		require.Empty(t, srv.Requests())
		require.Equal(t, 1, srv.RequestCount("GET", svctest.RouteFiles))
	}, svctest.WithRecordLimit(0, 0))
}

func TestConcurrentUse(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Fault("GET", svctest.RouteFlavors, svctest.ServiceUnavailable(5))
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				r, err := trySend(t, srv, "POST", "/v1/inference-service", `{"name":"x"}`)
				if err != nil || r.Status != http.StatusOK {
					t.Error(r, err)
					return
				}
				id := r.JSON()["service_id"].(string)
				for _, request := range [][3]string{
					{"GET", "/v1/inference-service/" + id, ""},
					{"PUT", "/v1/inference-service/" + id, `{"resource_metadata":{"target_instance_number":2}}`},
					{"GET", "/v1/inference-service/flavor", ""},
					{"DELETE", "/v1/inference-service/" + id, ""},
				} {
					if _, err := trySend(t, srv, request[0], request[1], request[2]); err != nil {
						t.Error(err)
					}
				}
				srv.Requests()
				srv.Endpoints()
				srv.RunningInstances()
			})
		}
		wg.Wait()
		require.Zero(t, srv.RunningInstances())
		require.Zero(t, srv.PendingFaults())
		seen := map[string]bool{}
		for _, e := range srv.Endpoints() {
			seen[e.ID] = true
			require.True(t, strings.HasPrefix(e.ID, "svc-"))
		}
		require.Len(t, seen, 16)
	})
}

func TestRequestHookIsCalledOnceForEachRequestBeforeItsResponse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, path string
		fault              *svctest.Fault
		status             int
	}{
		{"success", "GET", "/v1/inference-service/svc-1?token=secret", nil, 400},
		{"not found", "GET", "/v1/inference-service/svc-9", nil, 404},
		{"unknown path", "GET", "/nowhere", nil, 404},
		{"nothing written by the handler", "GET", "/silent", nil, 200},
		{"fault", "POST", "/v1/inference-service", new(svctest.ServiceUnavailable(1)), 503},
		{"lost before the effect", "POST", "/v1/inference-service", new(svctest.DropBeforeEffect()), 0},
		{"lost after the effect", "POST", "/v1/inference-service", new(svctest.DropAfterEffect()), 0},
		{"cut off", "POST", "/v1/inference-service", &svctest.Fault{TruncateBody: true}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var srv *svctest.Server
			var got []svctest.Request
			seen := make(chan int, 10) // what the hook saw of the state of the service
			srv = svctest.NewServer(svctest.WithRequestHook(func(r svctest.Request) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, r)
				seen <- len(srv.Endpoints())
			}))
			defer srv.Close()
			srv.Handle("GET /silent", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if tt.fault != nil {
				srv.Fault(tt.method, svctest.RouteEndpoints, *tt.fault)
			}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL()+tt.path, strings.NewReader(""))
			require.NoError(t, err)
			if tt.method == "POST" {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(`{"name":"x"}`)), 12
				req.Header.Set("Content-Type", "application/json")
			}
			req.Header.Set("Authorization", "Bearer "+srv.Token())
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				require.Equal(t, tt.status, resp.StatusCode)
				resp.Body.Close()
			}
			require.Equal(t, tt.status == 0, err != nil)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, got, 1)
			path, query, _ := strings.Cut(tt.path, "?")
			require.Equal(t, []any{tt.method, path, query, tt.status}, []any{got[0].Method, got[0].Path, got[0].RawQuery, got[0].Status})
			require.Equal(t, got[0].Status, srv.Requests()[0].Status)
			require.Equal(t, len(srv.Endpoints()), <-seen, "the effect comes before the hook")
		})
	}
}
