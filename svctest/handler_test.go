package svctest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

const endpointsPath = "/v1/inference-service"

// refusals are requests that the contract does not allow, and a few requests that
// look wrong but are allowed.
var refusals = map[string]struct {
	method, path, body string
	header             []string
	status             int
	code, message      string
}{
	"no token":          {"GET", endpointPath, "", []string{"Authorization", ""}, 401, "unauthorized", "bearer token"},
	"wrong token":       {"GET", endpointPath, "", []string{"Authorization", "Bearer nope"}, 401, "unauthorized", "bearer token"},
	"token twice":       {"GET", endpointPath, "", []string{"Authorization", "Bearer Bearer " + svctest.DefaultToken}, 401, "unauthorized", ""},
	"unknown path":      {"GET", "/v1/nothing", "", nil, 404, "unknown_route", "GET /v1/nothing"},
	"slash at the end":  {"GET", endpointPath + "/", "", nil, 404, "unknown_route", ""},
	"empty id":          {"GET", endpointsPath + "/", "", nil, 404, "unknown_route", ""},
	"doubled slash":     {"GET", "/" + endpointPath, "", nil, 404, "unknown_route", ""},
	"dot segment":       {"GET", endpointsPath + "/x/../svc-1", "", nil, 404, "unknown_route", ""},
	"unknown id":        {"GET", endpointsPath + "/svc-77", "", nil, 404, "not_found", "no such endpoint"},
	"escaped id":        {"GET", endpointsPath + "/svc%2D1", "", nil, 200, "", ""},
	"escaped slash":     {"GET", endpointsPath + "/svc-1%2F", "", nil, 404, "not_found", ""},
	"wrong method":      {"PATCH", endpointPath, "", nil, 405, "method_not_allowed", "DELETE, GET, PUT"},
	"delete all":        {"DELETE", endpointsPath, "", nil, 405, "method_not_allowed", "allows POST"},
	"delete flavors":    {"DELETE", endpointsPath + "/flavor", "", nil, 405, "method_not_allowed", ""},
	"query":             {"GET", endpointPath + "?verbose=1", "", nil, 400, "invalid_query", `"verbose"`},
	"broken query":      {"GET", endpointPath + "?a=%zz", "", nil, 400, "invalid_query", ""},
	"body of a GET":     {"GET", endpointPath, "{}", nil, 400, "unexpected_body", ""},
	"body of a DELETE":  {"DELETE", endpointPath, "{}", nil, 400, "unexpected_body", ""},
	"no content type":   {"POST", endpointsPath, `{"name":"x"}`, []string{"Content-Type", ""}, 415, "unsupported_media_type", ""},
	"text":              {"POST", endpointsPath, `{"name":"x"}`, []string{"Content-Type", "text/json"}, 415, "unsupported_media_type", ""},
	"zipped":            {"POST", endpointsPath, `{"name":"x"}`, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type", ""},
	"charset":           {"POST", endpointsPath, `{"name":"x"}`, []string{"Content-Type", "application/json; charset=utf-8"}, 200, "", ""},
	"huge":              {"POST", endpointsPath, `"` + strings.Repeat("x", 1<<20) + `"`, nil, 413, "too_large", ""},
	"malformed":         {"POST", endpointsPath, `{"name":`, nil, 400, "malformed_json", ""},
	"two values":        {"POST", endpointsPath, `{"name":"x"}{}`, nil, 400, "malformed_json", ""},
	"no object":         {"POST", endpointsPath, `[]`, nil, 422, "invalid_request", "must be a JSON object"},
	"null":              {"POST", endpointsPath, `null`, nil, 422, "invalid_request", "must be a JSON object"},
	"no name":           {"POST", endpointsPath, `{}`, nil, 422, "invalid_request", "name is required"},
	"empty name":        {"POST", endpointsPath, `{"name":""}`, nil, 422, "invalid_request", "name must not be empty"},
	"null name":         {"POST", endpointsPath, `{"name":null}`, nil, 422, "invalid_request", "name must be a string"},
	"wrong case":        {"POST", endpointsPath, `{"Name":"x"}`, nil, 422, "invalid_request", "Name is not a field"},
	"misspelt":          {"POST", endpointsPath, `{"name":"x","deploy_metadata":{"imageurl":""}}`, nil, 422, "invalid_request", "deploy_metadata.imageurl is not a field"},
	"fraction":          {"POST", endpointsPath, `{"name":"x","deploy_metadata":{"port":1.5}}`, nil, 422, "invalid_request", "deploy_metadata.port must be an integer"},
	"whole float":       {"POST", endpointsPath, `{"name":"x","deploy_metadata":{"port":80.0}}`, nil, 200, "", ""},
	"port":              {"POST", endpointsPath, `{"name":"x","deploy_metadata":{"port":65536}}`, nil, 422, "invalid_request", "port"},
	"negative":          {"POST", endpointsPath, `{"name":"x","resource_metadata":{"target_instance_number":-1}}`, nil, 422, "invalid_request", "must be from 0 to 2147483648"},
	"text in a create":  {"POST", endpointsPath, `{"name":"x","resource_metadata":{"target_instance_number":"1"}}`, nil, 422, "invalid_request", "integer"},
	"unknown flavor":    {"POST", endpointsPath, `{"name":"x","resource_metadata":{"flavor_id":"x"}}`, nil, 422, "invalid_request", "not a flavor"},
	"too many GPUs":     {"POST", endpointsPath, `{"name":"x","resource_metadata":{"flavor_id":"flavor-1"},"deploy_metadata":{"gpu_num":9}}`, nil, 422, "invalid_request", "8 GPUs"},
	"not an object":     {"POST", endpointsPath, `{"name":"x","resource_metadata":[]}`, nil, 422, "invalid_request", "resource_metadata must be an object"},
	"sold out":          {"POST", endpointsPath, `{"name":"x","resource_metadata":{"flavor_id":"flavor-3"}}`, nil, 409, "out_of_stock", ""},
	"empty update":      {"PUT", endpointPath, `{}`, nil, 422, "invalid_request", "resource_metadata is required"},
	"update of nothing": {"PUT", endpointPath, `{"resource_metadata":{}}`, nil, 422, "invalid_request", "resource_metadata.target_instance_number is required"},
	"update with words": {"PUT", endpointPath, `{"resource_metadata":{"target_instance_number":"two"}}`, nil, 422, "invalid_request", "digits"},
	"update with more":  {"PUT", endpointPath, `{"name":"y","resource_metadata":{"target_instance_number":1}}`, nil, 422, "invalid_request", "name is not a field"},
}

func TestRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		for name, tt := range refusals {
			r := send(t, srv, tt.method, tt.path, tt.body, tt.header...)
			require.Equal(t, tt.status, r.Status, "%s: %s", name, r.Body)
			require.NotEmpty(t, r.Header.Get("X-Request-Id"), name)
			if tt.code == "" {
				continue
			}
			require.Equal(t, "application/json", r.Header.Get("Content-Type"), name)
			body := r.JSON()
			require.Equal(t, tt.code, body["code"], name)
			require.Contains(t, body["message"], tt.message, name)
			require.Equal(t, r.Header.Get("X-Request-Id"), body["request_id"], name)
			if tt.status == 405 {
				require.Contains(t, r.Header.Get("Allow"), "T", name)
			}
		}
		require.Len(t, srv.Endpoints(), 3, "a refused request changes nothing")
	})
}

func TestTokenIsNeverEchoed(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		require.Equal(t, "s3cret", srv.Token())
		for _, r := range []reply{
			send(t, srv, "GET", "/v1/s3cret", ""),
			send(t, srv, "GET", endpointPath+"?s3cret=1", ""),
			send(t, srv, "POST", "/v1/inference-service", `{"s3cret":1}`),
		} {
			require.GreaterOrEqual(t, r.Status, 400)
			require.NotContains(t, r.Body, "s3cret")
			require.Contains(t, r.Body, "[token]")
		}
	}, svctest.WithToken("s3cret"))
}

func TestBasePath(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		require.True(t, strings.HasSuffix(srv.URL(), "/api/svc"), srv.URL())
		id := create(t, srv)
		require.Equal(t, "initializing", status(t, srv, id))
		require.Equal(t, "/api/svc/v1/inference-service/svc-1", srv.Requests()[1].Path)
		req, err := http.NewRequestWithContext(t.Context(), "GET", strings.TrimSuffix(srv.URL(), "/api/svc")+endpointPath, nil)
		require.NoError(t, err)
		r, err := do(t, srv, req)
		require.NoError(t, err)
		require.Equal(t, "unknown_route", r.JSON()["code"])
	}, svctest.WithBasePath("/api/svc/"), svctest.WithDeployTime(time.Hour))
}
