package svctest_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestSetFieldExtendsRecords(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.SetField("svc-1", "deploy_metadata.env", map[string]string{"A": "1"})
		srv.SetField("svc-1", "quota.left.now", 9007199254740993)
		srv.SetField("svc-1", "is_deleted", true)
		srv.SetField("flavor-1", "note", "x")
		srv.SetField("file-1", "bytes", nil)
		srv.SetField("job-1", "note", json.RawMessage(`[1.50]`))
		r := send(t, srv, "POST", "/v1/inference-service", createBody)
		require.Contains(t, r.Body, `"env":{"A":"1"}`)
		require.Contains(t, r.Body, `"command":"python serve.py"`)
		require.Contains(t, r.Body, `"quota":{"left":{"now":9007199254740993}}`)
		require.Contains(t, r.Body, `"is_deleted":true`)
		require.NotContains(t, r.Body, `"note"`, "flavor_id is a field of the record, not its ID")
		create(t, srv)
		require.NotContains(t, send(t, srv, "GET", "/v1/inference-service/svc-2", "").Body, "quota")
		require.Contains(t, send(t, srv, "GET", "/v1/inference-service/flavor", "").Body, `"note":"x"`)
		srv.AddFile("a", "fine-tune", nil)
		require.Contains(t, send(t, srv, "GET", "/v1/files", "").Body, `"bytes":null`)
		srv.AddVideoJobs(2)
		require.Contains(t, send(t, srv, "GET", "/v1/svc-video-job", "").Body, `"note":[1.50]`)
		require.NotContains(t, send(t, srv, "GET", "/v1/svc-video-job/job-2", "").Body, "note")
		require.Panics(t, func() { srv.SetField("svc-1", "f", func() {}) })
	})
}

func TestHandleAddsARoute(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Handle("GET /v1/quota/{id}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.PathValue("id") + r.URL.Path))
		}))
		require.Equal(t, "a b/v1/quota/a b", send(t, srv, "GET", "/v1/quota/a%20b", "").Body)
		require.Equal(t, 404, send(t, srv, "POST", "/v1/quota/a", "").Status)
		require.Equal(t, 200, send(t, srv, "GET", "/v1/files", "").Status)
		srv.Fault("GET", "/v1/quota/{id}", svctest.ServiceUnavailable(1))
		require.Equal(t, 503, send(t, srv, "GET", "/v1/quota/a", "").Status)
		require.Equal(t, 2, srv.RequestCount("GET", "/v1/quota/{id}"))
		require.Equal(t, "/v1/quota/{id}", srv.Requests()[0].Route)
		require.Panics(t, func() { srv.Handle("GET /v1/quota/{id}", http.NotFoundHandler()) })
		require.Panics(t, func() { srv.Fault("GET", "/v1/quota", svctest.Fault{}) })

		srv.Handle("/v1/files", http.NotFoundHandler())
		require.Equal(t, 404, send(t, srv, "GET", "/v1/files", "").Status, "takes precedence")
	}, svctest.WithBasePath("/api"), svctest.WithSeparateStorage())
}
