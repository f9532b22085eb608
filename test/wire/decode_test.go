package wire_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/testkit"
)

func TestTimestamps_B35(t *testing.T) {
	utc := func(ns int) time.Time { return time.Date(2024, 5, 1, 10, 20, 30, ns, time.UTC) }
	for text, want := range map[string]time.Time{
		`"2024-05-01 10:20:30"`:              utc(0),
		`"2024-05-01T10:20:30"`:              utc(0),
		`"2024-05-01T10:20:30.123456"`:       utc(123456000),
		`"2024-05-01T10:20:30Z"`:             utc(0),
		`"2024-05-01T18:20:30+08:00"`:        utc(0),
		`"2024-05-01 10:20:30.123456+00:00"`: utc(123456000),
		`1714558830`:                         utc(0),
		`""`:                                 {},
		`null`:                               {},
		`"soon"`:                             {},
	} {
		s, err := testkit.GetEndpoint(t, `{"created_at":`+text+`,"deleted_at":`+text+`,"service_id":"svc-1","name":"n"}`)
		require.NoError(t, err, text)
		require.Equal(t, "n", s.Name)
		require.True(t, want.Equal(s.CreatedAt.Time), "%s: %v", text, s.CreatedAt)
		require.Equal(t, want.IsZero(), s.DeletedAt.IsZero())
		require.Zero(t, s.UpdatedAt)
		if text == `"soon"` {
			require.Equal(t, "soon", s.CreatedAt.Raw())
		}
		b, err := json.Marshal(s)
		require.NoError(t, err)
		require.NotContains(t, string(b), "0001")
	}
	s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","created_at":1e400}`)
	require.NoError(t, err)
	require.Equal(t, "1e400", s.CreatedAt.Raw())
}

func TestNullAndMissing_B36(t *testing.T) {
	for _, body := range []string{
		`{"service_id":"svc-1"}`,
		`{"service_id":"svc-1","status_info":null,"resource_metadata":null,"billing_metadata":null,"endpoint_metadata":null,"deploy_metadata":null,"deleted_at":null,"is_deleted":null,"name":null}`,
		`{"service_id":"svc-1","resource_metadata":{},"billing_metadata":{},"deploy_metadata":{"port":null,"gpu_num":null}}`,
		`{"service_id":"svc-1","brand_new":[{"a":1}],"resource_metadata":{"scale_policy":null,"new":1}}`,
	} {
		s, err := testkit.GetEndpoint(t, body)
		require.NoError(t, err)
		require.Zero(t, s.ResourceMetadata.TargetInstanceNumber)
		require.False(t, s.IsDeleted)
		_, err = json.Marshal(s)
		require.NoError(t, err)
	}
	for _, body := range []string{`{"flavor_list":null}`, `{"flavor_list":[]}`} {
		flavors, err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, flavors)
	}
	flavors, err := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"flavor_list":[{"flavor_id":"f","meta_info":null,"billing":null}]}`}).Client().Flavors.List(t.Context())
	require.NoError(t, err)
	require.Len(t, flavors, 1)
	require.True(t, flavors[0].Billing.Price(svc.CurrencyUSD).IsZero())
	require.Empty(t, flavors[0].MetaInfo.CUDA)
}

func TestNumbersAsText_B37(t *testing.T) {
	for _, form := range []string{`2`, `"2"`, `2.0`, `"2.0"`, `2e0`} {
		s, err := testkit.GetEndpoint(t, fmt.Sprintf(`{"service_id":"svc-1","resource_metadata":{"target_instance_number":%[1]s},"deploy_metadata":{"port":%[1]s,"gpu_num":%[1]s}}`, form))
		require.NoError(t, err, form)
		require.EqualValues(t, 2, s.ResourceMetadata.TargetInstanceNumber)
		require.EqualValues(t, 2, s.DeployMetadata.Port)
		require.EqualValues(t, 2, s.DeployMetadata.GPUNum)
		flavors, err := testkit.Play(t, testkit.Reply{Status: 200, Body: fmt.Sprintf(`{"flavor_list":[{"available_num":%[1]s,"node_max_gpu":%[1]s,"billing":{"usd_price_unit":%[1]s}}]}`, form)}).Client().Flavors.List(t.Context())
		require.NoError(t, err, form)
		require.EqualValues(t, 2, flavors[0].AvailableNum)
		require.InDelta(t, 2, flavors[0].Billing.USDPriceUnit.Float64(), 0)
	}
	for body, field := range map[string]string{
		`{"service_id":"svc-1","resource_metadata":{"target_instance_number":"two"}}`: "resource_metadata.target_instance_number",
		`{"service_id":"svc-1","deploy_metadata":{"gpu_num":1.5}}`:                    "deploy_metadata.gpu_num",
		`{"service_id":"svc-1","deploy_metadata":{"port":true}}`:                      "deploy_metadata.port",
		`{"service_id":7}`:                                "service_id",
		`{"service_id":"svc-1","is_deleted":""}`:          "is_deleted",
		`{"flavor_list":[{},{},{"available_num":"two"}]}`: "flavor_list[2].available_num",
		`{"flavor_list":{}}`:                              "flavor_list",
		`{"service_id":"svc-1","deploy_metadata":[]}`:     "deploy_metadata",
	} {
		var err error
		if client := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client(); strings.HasPrefix(body, `{"flavor`) {
			_, err = client.Flavors.List(t.Context())
		} else {
			_, err = client.InferenceServices.Get(t.Context(), "svc-1")
		}
		e := testkit.ErrorAs[*svc.DecodeError](t, err)
		require.Equal(t, field, e.Field, body)
		require.ErrorContains(t, err, ": "+field+": ")
	}
	s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","deploy_metadata":{"port":""}}`)
	require.NoError(t, err)
	require.Zero(t, s.DeployMetadata.Port)
}

func TestNotWhatWasPromised_B38(t *testing.T) {
	html := map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Request-Id": "req-5"}
	page := "<html><head><title>Just a moment</title></head><body><p>Please\nwait</p></body></html>"
	for _, code := range []int{403, 404, 501} {
		err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: code, Body: page, Header: html}).Client())
		e := testkit.ErrorAs[*svc.Error](t, err)
		require.Equal(t, code, e.StatusCode)
		require.Equal(t, html["Content-Type"], e.Header.Get("Content-Type"))
		require.Equal(t, page, string(e.Body))
		require.ErrorContains(t, err, "Just a moment")
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "invalid character")
	}
	for body, excerpt := range map[string]string{
		page:                       "Just a moment",
		testkit.ServiceJSON + page: "svc-1",
		testkit.ServiceJSON + testkit.ServiceJSON: "svc-1",
		"":                             "",
		" \n":                          "",
		"null":                         "",
		"[]":                           "[]",
		`"ok"`:                         "ok",
		"{}":                           "",
		`{"error":"no such thing"}`:    "",
		`{"service_id":""}`:            "",
		`{"service_id":"another"}`:     "",
		`{"service_id":"svc-1",`:       "svc-1",
		"\x1f\x8b\x08\x00\x00\xff\xff": "binary data",
	} {
		for _, op := range []testkit.Operation{testkit.OpGet, testkit.OpUpdate} {
			s := testkit.Play(t, testkit.Reply{Status: 200, Body: body, Header: html})
			err := op.Do(t.Context(), s.Client())
			e := testkit.ErrorAs[*svc.DecodeError](t, err)
			require.Equal(t, 200, e.StatusCode)
			require.Equal(t, html["Content-Type"], e.ContentType)
			require.Equal(t, "req-5", e.RequestID)
			require.Contains(t, e.Excerpt, excerpt)
			require.ErrorContains(t, err, "200, text/html; charset=utf-8")
			require.LessOrEqual(t, len(err.Error()), 1024)
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.NotErrorIs(t, err, io.EOF)
		}
	}
	s, err := testkit.GetEndpoint(t, "\xef\xbb\xbf"+testkit.ServiceJSON+"\r\n")
	require.NoError(t, err)
	require.Equal(t, "svc-1", s.ServiceID)
}

func TestEmptyBodies_B40(t *testing.T) {
	zipped := map[string]string{"Content-Encoding": "gzip", "Content-Type": ""}
	for _, r := range []testkit.Reply{
		{Status: 200}, {Status: 204}, {Status: 202}, {Status: 200, Body: "{}"}, {Status: 200, Body: "deleted"},
		{Status: 204, Header: zipped}, {Status: 200, Body: "null"},
	} {
		require.NoError(t, testkit.OpDelete.Do(t.Context(), testkit.Play(t, r).Client()))
	}
	// An HTML page does not come from the service, so the record may not be deleted.
	err := testkit.OpDelete.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: "\n<html>log in</html>"}).Client())
	require.Contains(t, testkit.ErrorAs[*svc.DecodeError](t, err).Excerpt, "log in")
	for _, code := range []int{404, 501} {
		for _, op := range testkit.Operations {
			err := op.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: code, Header: map[string]string{"Content-Type": ""}}).Client())
			require.Equal(t, code, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
			require.NotErrorIs(t, err, io.EOF)
			require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Contains(t, err.Error(), fmt.Sprintf("svc: %s %s: %d %s", op.Method, testkit.ErrorAs[*svc.Error](t, err).Route, code, http.StatusText(code)))
		}
	}
	_, err = testkit.GetEndpoint(t, "")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestBigNumbers_B41(t *testing.T) {
	const free = `{"a":9007199254740993,"b":[12345678901234567890],"c":0.1,"d":1e-7}`
	s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","billing_metadata":`+free+`,"endpoint_metadata":`+free+`,"resource_metadata":{"target_instance_number":9223372036854775807,"scale_policy":`+free+`}}`)
	require.NoError(t, err)
	require.Equal(t, free, string(s.BillingMetadata))
	require.Equal(t, free, string(s.EndpointMetadata))
	require.Equal(t, free, string(s.ResourceMetadata.ScalePolicy))
	require.EqualValues(t, 1<<63-1, s.ResourceMetadata.TargetInstanceNumber)
	again, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(again), `"billing_metadata":`+free)
	for text, want := range map[string]string{"0.1": "0.1", "0.0000001": "0.0000001", "3": "3", "1e-7": "0.0000001", "3.0": "3.0"} {
		flavors, err := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"flavor_list":[{"billing":{"usd_price_unit":` + text + `}}]}`}).Client().Flavors.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, flavors[0].Billing.USDPriceUnit.String())
	}
}

// Some gateways send an error in a 2xx response. It must not be read as an empty list, or
// as the deletion of a record.
func TestErrorInA2xxResponse(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *svc.Client) error{
		"flavors": func(ctx context.Context, c *svc.Client) error { _, err := c.Flavors.List(ctx); return err },
		"find": func(ctx context.Context, c *svc.Client) error {
			_, err := c.Flavors.Find(ctx, svc.FlavorQuery{})
			return err
		},
		"jobs": func(ctx context.Context, c *svc.Client) error { _, err := c.VideoJobs.List(ctx, nil); return err },
		"all jobs": func(ctx context.Context, c *svc.Client) error {
			for _, err := range c.ImageJobs.All(ctx, nil) {
				return err
			}
			return nil
		},
		"endpoint": func(ctx context.Context, c *svc.Client) error { return c.InferenceServices.Delete(ctx, "svc-1") },
		"job":      func(ctx context.Context, c *svc.Client) error { return c.VideoJobs.Delete(ctx, "job-1") },
		"file":     func(ctx context.Context, c *svc.Client) error { return c.Files.Delete(ctx, "file-1") },
	}
	for body, fails := range map[string]bool{
		`{"error":{"message":"upstream timed out"}}`:  true,
		`{"error":"upstream timed out"}`:              true,
		`{"Errors":["upstream timed out"],"data":{}}`: true,
		` {"error":{"message":"upstream timed out"}}`: true,
		"\ufeff" + `{"error":1}`:                      true,
		`{"error":true}`:                              true,
		`{}`:                                          false,
		`{"error":null}`:                              false,
		`{"error":""}`:                                false,
		`{"error":false,"errors":[]}`:                 false,
		`{"error":{},"message":"deleted"}`:            false,
		`{"result":{"error":"nested"}}`:               false,
	} {
		for name, call := range calls {
			err := call(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client())
			if !fails && (name == "endpoint" || name == "job" || name == "file") {
				require.NoError(t, err, "%s %s", name, body)
				continue
			}
			// A list without its documented field is an error as well.
			require.Regexp(t, "the response holds an error|missing from the response", testkit.ErrorAs[*svc.DecodeError](t, err).Error(), name)
		}
	}
	// If the record is there beside the error, it counts.
	const aside = `,"error":{"message":"one zone did not answer"}}`
	flavors, err := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"flavor_list":[{"flavor_id":"f"}]` + aside}).Client().Flavors.List(t.Context())
	require.NoError(t, err)
	require.Len(t, flavors, 1)
	s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1"`+aside)
	require.NoError(t, err)
	require.Equal(t, "svc-1", s.ServiceID)
}

// endlessly returns a handler whose response body never ends.
func endlessly(status int, start string) http.HandlerFunc {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, start)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func TestEndlessBodies_B22(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		status  int
	}{
		"500": {endlessly(500, ""), 500},
		"404": {endlessly(404, `{"message":"`), 404},
		"200": {endlessly(200, `{"name":"`), 0},
		"announced": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "209715200")
			endlessly(404, "")(w, r)
		}, 404},
		"announced success": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "209715200")
			endlessly(200, "")(w, r)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tt.handler)
			defer srv.Close()
			client := testkit.ClientAt(t, srv.URL)
			before := heap()
			var resp svc.Response
			err := testkit.OpGet.Do(t.Context(), client, svc.WithMaxAttempts(1), svc.WithResponse(&resp))
			require.Less(t, heap(), before+(1<<20), "the body must not be kept in memory")
			require.LessOrEqual(t, len(resp.Body), 64<<10)
			require.LessOrEqual(t, len(err.Error()), 4<<10)
			if tt.status == 0 {
				require.ErrorIs(t, err, httpcall.ErrTooLarge)
				return
			}
			e := testkit.ErrorAs[*svc.Error](t, err)
			require.Equal(t, tt.status, e.StatusCode)
			require.Len(t, e.Body, 64<<10)
			require.ErrorContains(t, err, "…")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A response of 32 MiB is accepted. One byte more is an error, which is not retried.
func TestLargestResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 32 << 20
		fits := strings.Repeat("x", most)
		var out json.RawMessage
		require.NoError(t, testkit.Play(t, testkit.Reply{Status: 200, Body: fits}).Client().Do(t.Context(), "GET", "/v2/large", nil, &out))
		require.Len(t, out, most)
		// Reading ends at the limit, with a Content-Length and without one.
		require.ErrorIs(t, testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: fits + " "}).Client()), httpcall.ErrTooLarge)
		err := testkit.OpCreate.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: fits + " ", Err: io.EOF}).Client())
		require.ErrorIs(t, err, httpcall.ErrTooLarge)
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.LessOrEqual(t, len(testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).Body), 64<<10)
		// The ID of the new endpoint is in the part that was read.
		err = testkit.OpCreate.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: `{"service_id":"svc-9","name":"` + fits + `"}`}).Client())
		require.Equal(t, "svc-9", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
	})
}

// Responses may be compressed. A broken compression counts as a broken response.
func TestGzip(t *testing.T) {
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return b.String()
	}
	whole := zip(testkit.ServiceJSON)
	for name, tt := range map[string]struct {
		body   string
		status int
		want   error
	}{
		"record":       {whole, 200, nil},
		"error":        {zip(`{"message":"boom"}`), 404, svc.ErrNotFound},
		"cut":          {whole[:len(whole)-20], 200, io.ErrUnexpectedEOF},
		"not gzip":     {testkit.ServiceJSON, 200, gzip.ErrHeader},
		"bomb":         {strings.Repeat(zip(strings.Repeat(" ", 1<<20)), 33), 200, httpcall.ErrTooLarge},
		"broken error": {"boom", 404, svc.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "gzip" {
					w.WriteHeader(406)
					return
				}
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			err := testkit.OpGet.Do(t.Context(), testkit.ClientAt(t, srv.URL), svc.WithMaxAttempts(1))
			require.ErrorIs(t, err, tt.want)
			if name == "error" {
				require.ErrorContains(t, err, "boom")
			}
			require.Equal(t, tt.want == nil, err == nil)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
}

// The records of a small response can need a hundred times its size in memory. Such a
// response is refused before it is decoded.
func TestManyEmptyRecords_B22(t *testing.T) {
	body := `{"flavor_list":[{}` + strings.Repeat(",{}", 1<<20) + `]}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, testkit.ErrorAs[*svc.DecodeError](t, err), "more JSON objects than")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}
