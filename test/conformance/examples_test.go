package conformance

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// example is one example of the API description.
type example struct {
	operation, name string
	status          int
	contentType     string
	body            []byte
}

// examples returns the examples of all operations. A response without content counts as
// an example with an empty body. Examples of requests have status 0.
func examples(t *testing.T, doc *openapi3.T) (list []example) {
	add := func(id string, status int, contents openapi3.Content) {
		if len(contents) == 0 {
			list = append(list, example{id, "empty", status, "", nil})
		}
		for contentType, media := range contents {
			all := map[string]any{}
			if media.Example != nil {
				all["only"] = media.Example
			}
			for name, e := range media.Examples {
				all[name] = e.Value.Value
			}
			require.True(t, len(all) > 0 || contentType == "*/*", "%s: no example", id)
			for name, value := range all {
				body, err := json.Marshal(value)
				require.NoError(t, err)
				if contentType != "application/json" {
					body = []byte(value.(string))
				}
				list = append(list, example{id, name, status, contentType, body})
			}
		}
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody != nil {
				add(op.OperationID, 0, op.RequestBody.Value.Content)
			}
			for code, r := range op.Responses.Map() {
				status, err := strconv.Atoi(code)
				if err != nil {
					status = http.StatusTeapot // "default" stands for any failure
				}
				add(op.OperationID, status, r.Value.Content)
			}
		}
	}
	return list
}

// serve returns a client of a service that sends e as every response.
func serve(t *testing.T, e example) *svc.Client {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "req-header")
		if e.contentType != "" {
			w.Header().Set("Content-Type", e.contentType)
		}
		w.WriteHeader(e.status)
		_, _ = w.Write(e.body)
	}))
	t.Cleanup(srv.Close)
	client, err := svc.NewClient(srv.URL, svc.WithToken("t"), svc.WithHTTPClient(srv.Client()), svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, err)
	return client
}

// calls has, for each operation, the client call that sends it, with the IDs of the
// examples.
var calls = map[string]func(context.Context, *svc.Client) (any, error){
	"listFlavors": func(ctx context.Context, c *svc.Client) (any, error) { return c.Flavors.List(ctx) },
	"createInferenceService": func(ctx context.Context, c *svc.Client) (any, error) {
		return c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "n"})
	},
	"getInferenceService": func(ctx context.Context, c *svc.Client) (any, error) { return c.InferenceServices.Get(ctx, "svc-7") },
	"updateInferenceService": func(ctx context.Context, c *svc.Client) (any, error) {
		return c.InferenceServices.Scale(ctx, "svc-7", 2)
	},
	"deleteInferenceService": func(ctx context.Context, c *svc.Client) (any, error) {
		return nil, c.InferenceServices.Delete(ctx, "svc-7")
	},
	"createVideoJob": func(ctx context.Context, c *svc.Client) (any, error) {
		return c.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p"}})
	},
	"getVideoJob":    func(ctx context.Context, c *svc.Client) (any, error) { return c.VideoJobs.Get(ctx, "job-21") },
	"listVideoJobs":  func(ctx context.Context, c *svc.Client) (any, error) { return c.VideoJobs.List(ctx, nil) },
	"deleteVideoJob": func(ctx context.Context, c *svc.Client) (any, error) { return nil, c.VideoJobs.Delete(ctx, "job-21") },
	"createImageJob": func(ctx context.Context, c *svc.Client) (any, error) {
		return c.ImageJobs.Create(ctx, svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p"}})
	},
	"getImageJob":     func(ctx context.Context, c *svc.Client) (any, error) { return c.ImageJobs.Get(ctx, "job-22") },
	"listImageJobs":   func(ctx context.Context, c *svc.Client) (any, error) { return c.ImageJobs.List(ctx, nil) },
	"deleteImageJob":  func(ctx context.Context, c *svc.Client) (any, error) { return nil, c.ImageJobs.Delete(ctx, "job-22") },
	"listPublicFiles": func(ctx context.Context, c *svc.Client) (any, error) { return c.Files.ListPublic(ctx) },
	"registerFile": func(ctx context.Context, c *svc.Client) (any, error) {
		return c.Files.Register(ctx, svc.RegisterFileRequest{FileName: "f"})
	},
	"listFiles":           func(ctx context.Context, c *svc.Client) (any, error) { return c.Files.List(ctx) },
	"getFile":             func(ctx context.Context, c *svc.Client) (any, error) { return c.Files.Get(ctx, "file-11") },
	"deleteFile":          func(ctx context.Context, c *svc.Client) (any, error) { return nil, c.Files.Delete(ctx, "file-11") },
	"getFilePresignedUrl": func(ctx context.Context, c *svc.Client) (any, error) { return c.Files.PresignedURL(ctx, "file-11") },
}

// Each example of a successful response decodes into the right values, and encodes to the
// same JSON again.
func TestExamplesOfResponses(t *testing.T) {
	checked := map[string]bool{}
	for _, e := range examples(t, load(t)) {
		if e.status == 0 || e.status >= 400 {
			continue
		}
		t.Run(e.operation+"/"+strconv.Itoa(e.status)+"/"+e.name, func(t *testing.T) {
			got, err := calls[e.operation](t.Context(), serve(t, e))
			require.NoError(t, err)
			if got == nil {
				return // a delete has no value
			}
			want, ok := values[e.operation+"/"+e.name]
			require.True(t, ok, "the table of values lacks this example")
			checked[e.operation+"/"+e.name] = true
			want(t, got)
			require.Equal(t, normal(t, e.body), normal(t, encoded(t, e.operation, got)))
		})
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(values)), slices.Collect(maps.Keys(checked)), "the table of values has examples that do not exist")
}

// encoded returns got as the JSON of the response from which it was decoded.
func encoded(t *testing.T, operation string, got any) []byte {
	switch {
	case operation == "listFlavors":
		got = map[string]any{"flavor_list": got}
	case operation == "getFilePresignedUrl":
		got = map[string]any{"presigned_url": got}
	}
	b, err := json.Marshal(got)
	require.NoError(t, err)
	return b
}

// normal decodes JSON and removes differences that have no meaning: null equals an absent
// field, outputs may be {} or [], a time may have any form, and the query of a presigned
// URL is dropped.
func normal(t *testing.T, b []byte) any {
	var v any
	require.NoError(t, json.Unmarshal(b, &v))
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for key, member := range v {
				switch text, isText := member.(string); {
				case member == nil:
					delete(v, key)
				case key == "outputs" && len(asObject(member)) == 0 && asList(member) == nil:
					v[key] = []any{}
				case strings.HasSuffix(key, "_at"):
					var at svc.Time
					b, err := json.Marshal(member)
					require.NoError(t, err)
					require.NoError(t, json.Unmarshal(b, &at))
					v[key] = at.UTC().String()
				case isText && strings.Contains(text, "?"):
					v[key], _, _ = strings.Cut(text, "?")
				default:
					v[key] = walk(member)
				}
			}
		}
		return v
	}
	return walk(v)
}

func asObject(v any) map[string]any { m, _ := v.(map[string]any); return m }
func asList(v any) []any            { l, _ := v.([]any); return l }

// The error for an example of a failure has the code, the message and the request ID of
// the example.
func TestExamplesOfFailures(t *testing.T) {
	type facts struct{ Code, Message, RequestID string }
	want := map[string]facts{
		"flat":    {"not_found", "there is no such endpoint", "req-header"},
		"nested":  {"4001", "the port is missing", "req-header"},
		"text":    {"", "something went wrong", "req-header"},
		"list":    {"", "first problem", "req-header"},
		"nothing": {"", "{}", "req-header"},              // no message was found, so the body's beginning is used
		"only":    {"", "502 Bad Gateway", "req-header"}, // the text of the HTML page
	}
	seen := map[string]bool{}
	for _, e := range examples(t, load(t)) {
		if e.status < 400 {
			continue
		}
		t.Run(e.operation+"/"+e.name, func(t *testing.T) {
			_, err := calls[e.operation](t.Context(), serve(t, e))
			var failure *svc.Error
			require.ErrorAs(t, err, &failure)
			require.Equal(t, http.StatusTeapot, failure.StatusCode)
			method, path, _ := strings.Cut(operations[e.operation], " ")
			require.Equal(t, method+" "+path, failure.Method+" "+failure.Route)
			got := facts{failure.Code, failure.Message, failure.RequestID}
			if e.name == "list" || e.name == "only" {
				require.Contains(t, got.Message, want[e.name].Message)
				got.Message = want[e.name].Message
			}
			require.Equal(t, want[e.name], got)
			require.Equal(t, string(e.body), string(failure.Body))
			seen[e.name] = true
		})
	}
	require.Len(t, seen, len(want))
}

// Each example of a request can be written with the types of the client. The client then
// sends it exactly as in the description.
func TestExamplesOfRequests(t *testing.T) {
	n := 0
	for _, e := range examples(t, load(t)) {
		if e.status != 0 {
			continue
		}
		n++
		t.Run(e.operation+"/"+e.name, func(t *testing.T) {
			var sent []byte
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent, _ = io.ReadAll(r.Body) }))
			defer srv.Close()
			c, err := svc.NewClient(srv.URL, svc.WithToken("t"), svc.WithHTTPClient(srv.Client()))
			require.NoError(t, err)
			switch e.operation { // the responses are empty, so the errors are ignored
			case "createInferenceService":
				_, _ = c.InferenceServices.Create(t.Context(), decode[svc.CreateInferenceServiceRequest](t, e.body))
			case "updateInferenceService":
				if e.name == "number" { // the client always sends the number as text
					e.body = []byte(`{"resource_metadata":{"target_instance_number":"3"}}`)
				}
				_, _ = c.InferenceServices.Update(t.Context(), "svc-7", decode[svc.UpdateInferenceServiceRequest](t, e.body))
			case "registerFile":
				_, _ = c.Files.Register(t.Context(), decode[svc.RegisterFileRequest](t, e.body))
			case "createVideoJob":
				_, _ = c.VideoJobs.Create(t.Context(), decode[svc.CreateVideoJobRequest](t, e.body))
			case "createImageJob":
				_, _ = c.ImageJobs.Create(t.Context(), decode[svc.CreateImageJobRequest](t, e.body))
			}
			require.JSONEq(t, string(e.body), string(sent))
		})
	}
	require.Equal(t, 10, n)
}

func decode[T any](t *testing.T, b []byte) (v T) {
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}
