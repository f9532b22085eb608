package conformance

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// exchange sends a request and returns the status of the response.
func exchange(t *testing.T, w *world, method, path, body string, header ...string) int {
	t.Helper()
	req, err := http.NewRequest(method, w.srv.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	if body == "" {
		req.Body = nil
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+w.srv.Token())
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	resp, err := w.hc.Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

// wrongBodies are JSON bodies that the description does not allow, by operation.
var wrongBodies = map[string][]string{
	"createInferenceService": {`{}`, `{"name":""}`, `{"name":1}`, `{"name":"x","more":1}`, `{"name":"x","resource_metadata":{"flavor_id":"none"}}`, `{"name":"x","deploy_metadata":{"port":70000}}`},
	"createVideoJob":         {`{}`, `{"job_type":"text2image","config":{"prompt":"x"}}`, `{"job_type":"text2video","config":{}}`, `{"job_type":"text2video","config":{"prompt":"x","settings":{"seed":"1"}}}`},
	"createImageJob":         {`{}`, `{"job_type":"text2image","config":{"prompt":"x","gen_mode":"standard"}}`},
	"registerFile":           {`{"file_name":1}`, `{"name":"x"}`},
}

// The fake refuses every invalid request with a failure that the description allows.
func TestFailures(t *testing.T) {
	doc := load(t)
	closeRecords(doc)
	v := &validator{router: router(t, doc, "https://svc.test/api/svc"), wrongOnPurpose: true}
	w := newWorld(t, v)

	for id, route := range operations {
		method, path, _ := strings.Cut(route, " ")
		unknown := strings.NewReplacer("{service_id}", "none", "{job_id}", "none", "{file_id}", "none").Replace(path)
		good := ""
		switch {
		case id == "updateInferenceService":
			good = `{"resource_metadata":{"target_instance_number":"1"}}`
		case method == "POST":
			good = `{"name":"x"}`
		}
		if unknown != path {
			require.Equal(t, 404, exchange(t, w, method, unknown, good), id)
		}
		if id != "listPublicFiles" {
			require.Equal(t, 401, exchange(t, w, method, unknown, good, "Authorization", ""), id)
			require.Equal(t, 401, exchange(t, w, method, unknown, good, "Authorization", "Bearer wrong"), id)
		}
		require.Equal(t, 400, exchange(t, w, method, unknown+"?x=1", good), id)
		if good != "" {
			require.Equal(t, 400, exchange(t, w, method, unknown, "{"), id)
			require.Equal(t, 415, exchange(t, w, method, unknown, good, "Content-Type", "text/plain"), id)
			require.Equal(t, 415, exchange(t, w, method, unknown, good, "Content-Encoding", "gzip"), id)
			require.Equal(t, 413, exchange(t, w, method, unknown, `"`+strings.Repeat("x", 1<<20)+`"`), id)
		} else {
			require.Equal(t, 400, exchange(t, w, method, unknown, "{}"), id)
		}
	}
	for id, bodies := range wrongBodies {
		method, path, _ := strings.Cut(operations[id], " ")
		for _, body := range bodies {
			require.Equal(t, 422, exchange(t, w, method, path, body), body)
		}
	}
	require.Equal(t, 409, exchange(t, w, "POST", "/v1/inference-service", `{"name":"x","resource_metadata":{"flavor_id":"flavor-1","target_instance_number":99}}`))
	require.Equal(t, 409, exchange(t, w, "PUT", "/v1/inference-service/"+w.endpoint, `{"resource_metadata":{"target_instance_number":99}}`))
	require.Equal(t, 400, exchange(t, w, "GET", "/v1/svc-video-job?page=0", ""))
	require.Equal(t, 405, exchange(t, w, "PATCH", "/v1/files", ""))
	require.Equal(t, 405, exchange(t, w, "DELETE", "/v1/inference-service", ""))
	require.Equal(t, 404, exchange(t, w, "GET", "/v2/files", ""))
	require.Equal(t, 404, exchange(t, w, "GET", "/v1/files/", ""))

	seen := slices.Collect(maps.Keys(v.refused))
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(operations)), ""), seen)
	require.Empty(t, v.covered, "nothing should have succeeded")
}

// Responses from svctest faults are described as well, because a real gateway may send
// them.
func TestQueuedFailures(t *testing.T) {
	doc := load(t)
	for name, fault := range map[string]svctest.Fault{
		"unavailable": svctest.ServiceUnavailable(1),
		"limited":     svctest.RateLimited("3"),
		"gateway":     {Status: 502, Body: "<html><body>bad gateway</body></html>"},
		"proxy":       svctest.ProxyPage(404),
		"text":        {Status: 500, Body: "oops"},
		"empty":       {Status: 404, Header: http.Header{"Content-Type": {"text/plain"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, route := range operations {
				method, path, _ := strings.Cut(route, " ")
				v := &validator{router: router(t, doc, "https://svc.test/api/svc"), wrongOnPurpose: true, queued: true}
				w := newWorld(t, v)
				w.srv.Fault(method, path, fault)
				require.Equal(t, fault.Status, exchange(t, w, method, path, ""))
			}
		})
	}
}

// After the job API is retired, its operations fail as the description says.
func TestRetiredJobs(t *testing.T) {
	doc := load(t)
	for _, status := range []int{404, 410} {
		v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
		w := newWorld(t, v, svctest.WithJobsRetired(status))
		for _, err := range []error{
			second(w.VideoJobs.Create(w.ctx, fullVideo)),
			second(w.VideoJobs.Get(w.ctx, w.video)),
			second(w.VideoJobs.List(w.ctx, nil)),
			w.VideoJobs.Delete(w.ctx, w.video),
			second(w.ImageJobs.Create(w.ctx, fullImage)),
			second(w.ImageJobs.Get(w.ctx, w.image)),
			second(w.ImageJobs.List(w.ctx, page)),
			w.ImageJobs.Delete(w.ctx, w.image),
		} {
			require.ErrorIs(t, err, svc.ErrRetired)
		}
		require.Len(t, v.refused, 8)
	}
}
