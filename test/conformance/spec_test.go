package conformance

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

func init() { // for error responses that are not JSON
	for _, contentType := range []string{"text/html", "text/plain"} {
		openapi3filter.RegisterBodyDecoder(contentType, openapi3filter.PlainBodyDecoder)
	}
}

// operations has all operations of the service, by operationId.
var operations = map[string]string{
	"listFlavors":            "GET /v1/inference-service/flavor",
	"createInferenceService": "POST /v1/inference-service",
	"getInferenceService":    "GET /v1/inference-service/{service_id}",
	"updateInferenceService": "PUT /v1/inference-service/{service_id}",
	"deleteInferenceService": "DELETE /v1/inference-service/{service_id}",
	"createVideoJob":         "POST /v1/svc-video-job",
	"getVideoJob":            "GET /v1/svc-video-job/{job_id}",
	"listVideoJobs":          "GET /v1/svc-video-job",
	"deleteVideoJob":         "DELETE /v1/svc-video-job/{job_id}",
	"createImageJob":         "POST /v1/svc-image-job",
	"getImageJob":            "GET /v1/svc-image-job/{job_id}",
	"listImageJobs":          "GET /v1/svc-image-job",
	"deleteImageJob":         "DELETE /v1/svc-image-job/{job_id}",
	"listPublicFiles":        "GET /v1/public-files",
	"registerFile":           "POST /v1/files",
	"listFiles":              "GET /v1/files",
	"getFile":                "GET /v1/files/{file_id}",
	"deleteFile":             "DELETE /v1/files/{file_id}",
	"getFilePresignedUrl":    "GET /v1/files/{file_id}/presigned_url",
}

// load reads the API description.
func load(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../api/openapi.yaml")
	require.NoError(t, err)
	return doc
}

// router returns a router for the operations of doc, relative to the base URL.
func router(t testing.TB, doc *openapi3.T, base string) routers.Router {
	t.Helper()
	doc.Servers = openapi3.Servers{{URL: base}}
	r, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return r
}

func TestDescriptionIsValid(t *testing.T) {
	doc := load(t)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableSchemaPatternValidation()))

	got := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			got[op.OperationID] = method + " " + path
			legacy := strings.Contains(path, "-job")
			require.Equal(t, legacy, op.Deprecated, "%s: whether it is deprecated", op.OperationID)
			require.NotNil(t, op.Responses.Default(), "%s: a failure", op.OperationID)
			require.NotEmpty(t, op.Summary, op.OperationID)
		}
	}
	require.Equal(t, operations, got)
}

// The description must be strict: a description that allows everything would make the
// other tests useless. So each of these requests must be rejected.
func TestDescriptionIsStrict(t *testing.T) {
	for name, tt := range map[string]struct{ method, path, body, want string }{
		"unknown field":        {"POST", "/v1/inference-service", `{"name":"a","nmae":"b"}`, "nmae"},
		"unknown inner field":  {"POST", "/v1/inference-service", `{"name":"a","deploy_metadata":{"ports":1}}`, "ports"},
		"no name":              {"POST", "/v1/inference-service", `{}`, "name"},
		"text for a number":    {"POST", "/v1/inference-service", `{"name":"a","deploy_metadata":{"port":"8000"}}`, "port"},
		"text that is no size": {"PUT", "/v1/inference-service/x", `{"resource_metadata":{"target_instance_number":"two"}}`, "target_instance_number"},
		"other job type":       {"POST", "/v1/svc-image-job", `{"job_type":"text2video","config":{"prompt":"x"}}`, "job_type"},
		"setting of videos":    {"POST", "/v1/svc-image-job", `{"job_type":"text2image","config":{"prompt":"x","settings":{"duration":4}}}`, "duration"},
		"body of a GET":        {"GET", "/v1/files", `{}`, "body"},
		"no body":              {"POST", "/v1/files", ``, "body"},
		"parameter":            {"GET", "/v1/svc-video-job?page=first", ``, "page"},
		"unknown parameter":    {"GET", "/v1/svc-video-job?size=1", ``, "size"},
	} {
		t.Run(name, func(t *testing.T) {
			const base = "https://svc.test"
			v := &validator{router: router(t, load(t), base), token: "t"}
			req, err := http.NewRequest(tt.method, base+tt.path, strings.NewReader(tt.body))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer t")
			if tt.body != "" {
				req.Header.Set("Content-Type", "application/json")
			}
			_, err = v.request(req, []byte(tt.body))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// optional lists the response fields that may be absent.
var optional = []string{"order_id", "update_at"}

// closeRecords makes the description of responses as strict as possible: a record has
// every field that is described, and no other. The fake must conform to this. Whether the
// real service does is unknown.
func closeRecords(doc *openapi3.T) {
	seen := map[*openapi3.Schema]bool{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				if media := r.Value.Content["application/json"]; media != nil && status != "default" {
					closeSchema(media.Schema, seen)
				}
			}
		}
	}
}

func closeSchema(ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool) {
	if ref == nil || seen[ref.Value] {
		return
	}
	s := ref.Value
	seen[s] = true
	closeSchema(s.Items, seen)
	for _, alternative := range s.OneOf {
		closeSchema(alternative, seen)
	}
	if len(s.Properties) == 0 {
		return
	}
	s.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
	s.Required = nil
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(optional, name) {
			s.Required = append(s.Required, name)
		}
		closeSchema(s.Properties[name], seen)
	}
}
