package wire_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// reads has a call for each kind of response that holds records.
var reads = map[string]func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error){
	"flavors": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.Flavors.List(ctx, opts...)
	},
	"create": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.InferenceServices.Create(ctx, testkit.Demo, opts...)
	},
	"endpoint": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.InferenceServices.Get(ctx, "svc-1", opts...)
	},
	"scale": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.InferenceServices.Scale(ctx, "svc-1", 1, opts...)
	},
	"video": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.VideoJobs.Get(ctx, "job-1", opts...)
	},
	"videos": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.VideoJobs.List(ctx, nil, opts...)
	},
	"images": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.ImageJobs.List(ctx, nil, opts...)
	},
	"file": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.Files.Get(ctx, "file-1", opts...)
	},
	"files": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.Files.List(ctx, opts...)
	},
	"public files": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		return c.Files.ListPublic(ctx, opts...)
	},
	"any": func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) (any, error) {
		var out any
		err := c.Do(ctx, "GET", "/v1/inference-service/flavor", nil, &out, opts...)
		return out, err
	},
}

// numbersIn returns the begin and the end of each number in a JSON text.
func numbersIn(t *testing.T, text string) (spans [][2]int) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for dec.InputOffset() < int64(len(text)) {
		token, err := dec.Token()
		require.NoError(t, err)
		if n, ok := token.(json.Number); ok {
			end := int(dec.InputOffset())
			spans = append(spans, [2]int{end - len(n), end})
		}
	}
	return spans
}

// Python writes NaN and Infinity, which JSON does not have. In place of any number they read as null.
func TestNotANumberReadsAsNull_D04(t *testing.T) {
	const name = `NaN, "Infinity", \-Infinity\`
	srv := svctest.NewInMemory()
	srv.AddEndpoint(svctest.Endpoint{Name: name, Description: "NaN", Instances: 1})
	srv.SetField("svc-1", "billing_metadata.cost", 1.5)
	srv.AddVideoJobs(2)
	srv.AddImageJobs(2)
	srv.AddFile(name, "fine-tune", nil)
	srv.AddPublicFile(svctest.PublicFile{Name: name})
	for read, call := range reads {
		var sent svc.Response
		_, err := call(t.Context(), srv.Client(), svc.WithResponse(&sent))
		require.NoError(t, err, read)
		body := string(sent.Body)
		numbers := numbersIn(t, body)
		require.NotEmpty(t, numbers, read)
		for _, span := range numbers {
			with := func(value string) (any, error) {
				return call(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: body[:span[0]] + value + body[span[1]:]}).Client())
			}
			want, err := with("null")
			require.NoError(t, err, "%s: %s", read, body[:span[1]])
			for _, value := range []string{"NaN", "Infinity", "-Infinity"} {
				got, err := with(value)
				require.NoError(t, err, "%s: %s", read, body[:span[0]]+value)
				require.Equal(t, want, got)
			}
		}
	}
	e, err := testkit.GetEndpoint(t, `{"name":"-Infinity \\\"NaN\\","billing_metadata":{"load":NaN},"service_id":"svc-1"}`)
	require.NoError(t, err)
	require.Equal(t, `-Infinity \"NaN\`, e.Name)
	require.JSONEq(t, `{"load":null}`, string(e.BillingMetadata))
}

// The ID of a new endpoint is found behind a NaN too, and so is the message of an error.
func TestNotANumberHidesNothing_D04(t *testing.T) {
	err := testkit.OpCreate.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: `{"load":NaN,"service_id":"svc-7","name":"de`}).Client())
	require.Equal(t, "svc-7", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
	err = testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 409, Body: `{"load":-Infinity,"message":"NaN is busy"}`}).Client())
	require.Equal(t, "NaN is busy", testkit.ErrorAs[*svc.Error](t, err).Message)
	err = testkit.OpDelete.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: `{"load":NaN,"success":false}`}).Client())
	require.ErrorContains(t, err, "holds an error")
	_, err = testkit.GetEndpoint(t, `{"service_id":"svc-1","load":NaNs}`)
	require.ErrorAs(t, err, new(*svc.DecodeError))
}
