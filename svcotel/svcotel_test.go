package svcotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svcotel"
	"example.com/svc/svctest"
)

// recorder keeps all spans and metrics of a test.
type recorder struct {
	spans   *tracetest.InMemoryExporter
	reader  *sdkmetric.ManualReader
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

func newRecorder() *recorder {
	r := &recorder{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	r.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	r.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	return r
}

func (r *recorder) option(opts ...svcotel.Option) svc.Option {
	return svcotel.Instrument(append([]svcotel.Option{svcotel.WithTracerProvider(r.traces), svcotel.WithMeterProvider(r.metrics)}, opts...)...)
}

// attributes returns attributes as text.
func attributes(all []attribute.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, kv := range all {
		texts[string(kv.Key)] = kv.Value.String()
	}
	return texts
}

// series returns the series of a metric by their labels, without those of the server. The series
// of a histogram is its count.
func (r *recorder) series(t *testing.T, name string) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(t.Context(), &data))
	values := map[string]int64{}
	add := func(set attribute.Set, n int64) {
		var labels []string
		for _, kv := range set.ToSlice() {
			if !strings.HasPrefix(string(kv.Key), "server.") {
				labels = append(labels, kv.Value.String())
			}
			require.NotRegexp(t, "svc-1|file-1", kv.Value.String(), "an ID is a label")
		}
		values[strings.Join(labels, " ")] += n
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, int64(p.Count))
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			}
		}
	}
	return values
}

// inBubble gives a test virtual time and a service in which a deployment takes twenty minutes.
func inBubble(t *testing.T, test func(t *testing.T, srv *svctest.Server, r *recorder), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(append([]svctest.Option{svctest.WithDeployTime(20 * time.Minute)}, opts...)...)
		defer srv.Close()
		test(t, srv, newRecorder())
	})
}

func TestACallIsASpanAndItsExchangesAreItsChildren(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		id := srv.AddFile("a", "fine-tune", nil)
		srv.Fault("GET", svctest.RouteFile, svctest.ServiceUnavailable(1), svctest.DropBeforeEffect(), svctest.Fault{Delay: 90 * time.Second})
		ctx, outer := r.traces.Tracer("test").Start(t.Context(), "outer")
		began := time.Now()
		_, err := srv.Client(r.option()).Files.Get(ctx, id)
		require.NoError(t, err)
		took := time.Since(began)
		outer.End()

		spans := r.spans.GetSpans()
		require.Len(t, spans, 6)
		call := spans[4]
		require.Equal(t, "GET /v1/files/{file_id}", call.Name)
		require.Equal(t, trace.SpanKindInternal, call.SpanKind)
		require.Equal(t, outer.SpanContext().SpanID(), call.Parent.SpanID())
		require.Equal(t, map[string]string{
			"http.request.method": "GET", "url.template": "/v1/files/{file_id}", "svc.id": "file-1", "svc.attempts": "4", "svc.outcome": "done",
		}, attributes(call.Attributes))
		require.Equal(t, took, call.EndTime.Sub(call.StartTime))
		require.Equal(t, codes.Unset, call.Status.Code)
		for i, want := range []struct{ status, failed, text string }{
			{"503", "503", ""}, {"", "connection", "connection reset by peer"}, {"", "timeout", "30s"}, {"200", "", ""},
		} {
			s := spans[i]
			require.Equal(t, "GET /v1/files/{file_id}", s.Name)
			require.Equal(t, trace.SpanKindClient, s.SpanKind)
			require.Equal(t, call.SpanContext.SpanID(), s.Parent.SpanID())
			attrs := attributes(s.Attributes)
			expected := map[string]string{
				"http.request.method": "GET", "url.template": "/v1/files/{file_id}", "server.address": "svc.test", "server.port": "443", "svc.id": "file-1",
			}
			for key, value := range map[string]string{"http.response.status_code": want.status, "error.type": want.failed} {
				if value != "" {
					expected[key] = value
				}
			}
			if i > 0 {
				expected["http.request.resend_count"] = fmt.Sprint(i)
			}
			if want.status != "" {
				expected["svc.request_id"] = attrs["svc.request_id"]
				require.Regexp(t, `^req-\d$`, attrs["svc.request_id"])
			}
			require.Equal(t, expected, attrs)
			require.Equal(t, want.failed != "", s.Status.Code == codes.Error)
			require.Contains(t, s.Status.Description, want.text)
		}
		require.Equal(t, 30*time.Second, spans[2].EndTime.Sub(spans[2].StartTime))
	})
}

// TestNotFoundThatProvesADeletionIsNoError deploys and deletes. No span and no metric of that has
// an error.
func TestNotFoundThatProvesADeletionIsNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		client := srv.Client(r.option())
		service, err := client.InferenceServices.Deploy(t.Context(), testkit.Demo, nil)
		require.NoError(t, err)
		require.NoError(t, client.InferenceServices.DeleteAndWait(t.Context(), service.ServiceID, nil))
		missing := 0
		for _, s := range r.spans.GetSpans() {
			require.Equal(t, codes.Unset, s.Status.Code, s.Name)
			require.NotContains(t, attributes(s.Attributes), "error.type")
			require.NotEqual(t, "failed", attributes(s.Attributes)["svc.outcome"])
			if attributes(s.Attributes)["http.response.status_code"] == "404" {
				missing++
			}
		}
		require.GreaterOrEqual(t, missing, 2)
		durations := r.series(t, "http.client.request.duration")
		require.EqualValues(t, missing, durations["GET 404 "+svctest.RouteEndpoint], "%v", durations)
		require.Greater(t, durations["GET 200 "+svctest.RouteEndpoint], int64(50), "twenty minutes of polls, in one series")

		_, err = client.InferenceServices.Get(t.Context(), service.ServiceID)
		require.ErrorIs(t, err, svc.ErrNotFound)
		spans := r.spans.GetSpans()
		for _, s := range spans[len(spans)-2:] { // outside of a wait it is one
			require.Equal(t, codes.Error, s.Status.Code)
			require.Equal(t, "404", attributes(s.Attributes)["error.type"])
		}
	})
}

func TestCreatesAreCountedByOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		client := srv.Client(r.option())
		require.Equal(t, map[string]int64{"created": 0, "refused": 0, "unknown": 0}, r.series(t, "svc.creates"), "a rate needs a first sample")
		for _, fault := range []svctest.Fault{{}, {Status: 422, Body: `{"message":"no"}`}, svctest.DropAfterEffect(), {Status: 422, Body: `{"message":"no"}`}, svctest.DropBeforeEffect(), {}} {
			srv.Fault("POST", svctest.RouteEndpoints, fault)
			_, _ = client.InferenceServices.Create(t.Context(), testkit.Demo)
		}
		_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{})
		require.Error(t, err)
		require.Equal(t, map[string]int64{"created": 2, "refused": 3, "unknown": 2}, r.series(t, "svc.creates"))
		unknown := 0
		for _, s := range r.spans.GetSpans() {
			if attributes(s.Attributes)["svc.outcome"] == "unknown" {
				unknown++
				require.Equal(t, "outcome_unknown", attributes(s.Attributes)["error.type"])
				require.Equal(t, codes.Error, s.Status.Code)
			}
		}
		require.Equal(t, 2, unknown)
	}, svctest.WithFlavors(svctest.Flavor{ID: "flavor-1", Stock: 100}))
}

func TestWaitsAndCleanupsAreMeasured(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		client := srv.Client(r.option())
		require.Equal(t, map[string]int64{"deleted": 0, "unproven": 0}, r.series(t, "svc.cleanups"))
		deploy := func(ctx context.Context) string {
			s, err := client.InferenceServices.Deploy(ctx, testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
			if err != nil {
				return ""
			}
			return s.ServiceID
		}
		id := deploy(t.Context())
		_, err := client.InferenceServices.ScaleAndWait(t.Context(), id, 1, nil)
		require.NoError(t, err)
		require.NoError(t, client.InferenceServices.DeleteAndWait(t.Context(), id, nil))
		_, err = client.Flavors.WaitForStock(t.Context(), svc.FlavorQuery{}, nil)
		require.NoError(t, err)
		require.Empty(t, deploy(testkit.Within(t, time.Minute)))
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Outage(time.Hour))
		require.Empty(t, deploy(testkit.Within(t, time.Minute)))
		srv.ClearFaults()
		failing := deploy(t.Context())
		srv.SetStatus(failing, "unavailable")
		_, err = client.InferenceServices.WaitUntilAvailable(t.Context(), failing, nil)
		require.ErrorIs(t, err, svc.ErrUnavailable)
		_, err = client.InferenceServices.WaitUntilAvailable(t.Context(), "svc-99", &svc.WaitOptions{NotFoundGrace: -1})
		require.ErrorIs(t, err, svc.ErrNotFound)
		_, err = client.InferenceServices.Wait(t.Context(), failing, func(*svc.InferenceService) (bool, error) { return true, nil }, nil)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{
			"done available": 2, "done scaled": 1, "done deleted": 1, "done stock": 1, "done condition": 1, "done cleanup": 1,
			"timeout failed available": 2, "timeout failed cleanup": 1, "unavailable failed available": 1, "not_found failed available": 1,
		}, r.series(t, "svc.wait.duration"))
		require.Equal(t, map[string]int64{"deleted": 1, "unproven": 1}, r.series(t, "svc.cleanups"))
	})
}

// transfers uploads a file and reads it back.
func transfers(ctx context.Context, client *svc.Client) error {
	result, err := client.Files.Upload(ctx, svc.UploadRequest{FileName: "data.jsonl", Purpose: svc.FilePurposeFineTune, Body: strings.NewReader(strings.Repeat("x", 1000))})
	if err != nil {
		return err
	}
	_, err = client.Files.Download(ctx, result.FileID, io.Discard, nil)
	return errors.Join(err, client.Files.Delete(ctx, result.FileID))
}

func TestTraceparentIsSentToTheAPIOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 503})
		require.NoError(t, transfers(t.Context(), srv.Client(r.option())))
		exchanges := map[string]bool{}
		for _, s := range r.spans.GetSpans() {
			if s.SpanKind == trace.SpanKindClient {
				exchanges[s.SpanContext.TraceID().String()+"-"+s.SpanContext.SpanID().String()] = true
			}
		}
		api, store := 0, 0
		for _, req := range srv.Requests() {
			parent := req.Header.Get("Traceparent")
			if req.Route == svctest.RouteStorage {
				store++
				require.Empty(t, parent)
				require.NotContains(t, req.Header, "Tracestate")
				continue
			}
			api++
			require.True(t, exchanges[strings.TrimSuffix(strings.TrimPrefix(parent, "00-"), "-01")], "%q is the parent of no exchange", parent)
		}
		require.Equal(t, 3, store)
		require.Equal(t, 3, api)
	}, svctest.WithSeparateStorage())
}

// TestHooksOfOtherOptionsRunAsWell puts the options of a program before and after Instrument.
func TestHooksOfOtherOptionsRunAsWell(t *testing.T) {
	for _, first := range []bool{true, false} {
		inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
			var got []string
			note := func(name string) { got = append(got, name) }
			own := []svc.Option{
				svc.WithAttemptHook(func(context.Context, svc.Attempt) { note("attempt") }),
				svc.WithCallHook(func(context.Context, svc.Call) { note("call") }),
				svc.WithCallContext(func(ctx context.Context, _ svc.Call) context.Context { note("begin"); return ctx }),
				svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper {
					return testkit.RoundTripFunc(func(req *http.Request) (*http.Response, error) { note("transport"); return next.RoundTrip(req) })
				}),
			}
			options := append([]svc.Option{r.option()}, own...)
			if first {
				options = append(own, r.option())
			}
			_, err := srv.Client(options...).Flavors.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"begin", "transport", "attempt", "call"}, got)
			require.Len(t, r.spans.GetSpans(), 2)
		})
	}
}

func TestOneOptionServesManyClients(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		option := r.option()
		for range 2 {
			_, err := srv.Client(option).Flavors.List(t.Context())
			require.NoError(t, err)
		}
		require.Len(t, r.spans.GetSpans(), 4)
		require.Equal(t, map[string]int64{"GET 200 " + svctest.RouteFlavors: 2}, r.series(t, "http.client.request.duration"))
	})
}

func TestMetricsHaveTheBucketsOfTheConventions_C31(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		_, err := srv.Client(r.option()).Flavors.List(t.Context())
		require.NoError(t, err)
		var data metricdata.ResourceMetrics
		require.NoError(t, r.reader.Collect(t.Context(), &data))
		for _, m := range data.ScopeMetrics[0].Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name != "svc.wait.duration" {
				require.Equal(t, "http.client.request.duration", m.Name)
				require.Equal(t, "s", m.Unit)
				require.Equal(t, []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}, h.DataPoints[0].Bounds)
			}
		}
	})
}

// TestPathsWithIDsAreNoNames calls Do, whose route is the path. Only a path without an ID may
// become a name and a label.
func TestPathsWithIDsAreNoNames(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		client := srv.Client(r.option())
		id := srv.AddFile("a", "fine-tune", nil)
		require.NoError(t, client.Do(t.Context(), "GET", "/v1/files/"+id, nil, nil))
		require.NoError(t, client.Do(t.Context(), "GET", "/v1/files", nil, nil))
		var names []string
		for _, s := range r.spans.GetSpans() {
			names = append(names, s.Name)
		}
		require.Equal(t, []string{"GET", "GET", "GET /v1/files", "GET /v1/files"}, names)
		require.Equal(t, map[string]int64{"GET 200": 1, "GET 200 /v1/files": 1}, r.series(t, "http.client.request.duration"))
	})
}

// TestNoSecretIsRecorded looks for the token and for the secrets of presigned URLs in all that
// is exported, after calls that succeed and that fail in many ways.
func TestNoSecretIsRecorded(t *testing.T) {
	for name, faults := range map[string][]svctest.Fault{
		"success": nil,
		"status":  {{Status: 403, Body: "<Error><Code>AccessDenied</Code></Error>", Times: -1}},
		"lost":    {{DropBefore: true, Times: -1}},
		"cut off": {{TruncateAfter: 1, Times: -1}}, // the download continues, again and again
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
				client := srv.Client(r.option(), testkit.Tries(2, time.Millisecond))
				srv.Fault("*", svctest.RouteStorage, faults...)
				err := transfers(t.Context(), client)
				require.Equal(t, name == "status" || name == "lost", err != nil, "%v", err)
				srv.Fault("*", svctest.RouteAny, svctest.Fault{Status: 500, Body: `{"message":"token ` + srv.Token() + ` is bad"}`, Times: 2})
				_, err = client.Flavors.List(t.Context())
				require.Error(t, err)

				printed := testkit.NewPrinted()
				for _, s := range r.spans.GetSpans() {
					_, _ = fmt.Fprintf(printed, "%s %v %v %v\n", s.Name, s.Attributes, s.Status, s.Events)
				}
				var data metricdata.ResourceMetrics
				require.NoError(t, r.reader.Collect(t.Context(), &data))
				text, err := json.Marshal(data)
				require.NoError(t, err)
				printed.Write(text)
				secrets := []string{srv.Token()}
				for _, req := range srv.Requests() {
					if signature := req.Query.Get("X-Amz-Signature"); signature != "" {
						secrets = append(secrets, signature, req.RawQuery)
					}
				}
				require.GreaterOrEqual(t, len(secrets), 3, "no presigned URL was used")
				for _, secret := range slices.Compact(secrets) {
					printed.RequireWithout(t, testkit.NeedlesOf(secret))
				}
				require.NotContains(t, printed.String(), "X-Amz-")
				require.Contains(t, printed.String(), "PUT {presigned_url}")
			})
		})
	}
}

// BenchmarkGet measures what the instrumentation costs.
func BenchmarkGet(b *testing.B) {
	body := `{"id":"file-1","file_name":"a","purpose":"fine-tune","created_at":1716544800}`
	rt := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
	})
	r := newRecorder()
	r.traces = sdktrace.NewTracerProvider() // without an exporter
	unsampled := newRecorder()
	unsampled.traces = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for name, opts := range map[string][]svc.Option{"plain": nil, "svcotel": {r.option()}, "svcotel, not sampled": {unsampled.option()}} {
		b.Run(name, func(b *testing.B) {
			client := testkit.ClientOn(b, rt, opts...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Files.Get(b.Context(), "file-1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
