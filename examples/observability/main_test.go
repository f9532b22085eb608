package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/svc"
	"example.com/svc/svctest"
)

// inBubble gives a test virtual time and a service in which a deployment takes
// twenty minutes.
func inBubble(t *testing.T, test func(t *testing.T, srv *svctest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
		t.Cleanup(srv.Close)
		test(t, srv)
	})
}

// secrets lists what must not be seen: the token, and the signature and the whole
// query of each presigned link that was used.
func secrets(t *testing.T, srv *svctest.Server) []string {
	t.Helper()
	all := []string{srv.Token()}
	for _, r := range srv.Requests() {
		if signature := r.Query.Get("X-Amz-Signature"); signature != "" {
			all = append(all, signature, r.RawQuery)
		}
	}
	require.GreaterOrEqual(t, len(all), 3, "no presigned link was used")
	return all
}

func debugLog(w io.Writer) *slog.Logger {
	return slog.New(withTraceID{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

// lockedBuffer is written to by two exporters at once, as os.Stdout is.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestNoSecretIsExported searches all that comes out, of a run that goes well and
// of one in which storage is out of order.
func TestNoSecretIsExported(t *testing.T) {
	for name, faults := range map[string][]svctest.Fault{
		"success": nil,
		"failure": {svctest.DropBeforeEffect(), {Status: 503, Times: 2}, {Status: 403, Body: "<Error><Code>AccessDenied</Code></Error>", Times: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *svctest.Server) {
				var out, log lockedBuffer
				srv.Fault("PUT", svctest.RouteStorage, faults...)
				err := run(t.Context(), srv, &out, debugLog(&log))
				require.Equal(t, faults != nil, err != nil, "%v", err)

				require.Regexp(t, `"url\.full",[^}]*/storage/`, out.String(), "storage is not in the traces at all")
				require.Contains(t, out.String(), "http.client.request.duration", "no metrics")
				require.Contains(t, out.String(), "svc.attempt", "no events")
				require.Contains(t, log.String(), "svc: exchange")
				require.NotContains(t, out.String()+log.String(), "X-Amz-", "a query, in whatever encoding")
				for _, secret := range secrets(t, srv) {
					require.NotContains(t, out.String(), secret)
					require.NotContains(t, log.String(), secret)
				}
			})
		})
	}
}

// TestNoSecretIsExportedOnTheNetwork does it with the pools of the library, and
// with what net/http says of a broken connection.
func TestNoSecretIsExportedOnTheNetwork(t *testing.T) {
	srv := svctest.NewServer()
	defer srv.Close()
	srv.Fault("*", svctest.RouteStorage, svctest.DropBeforeEffect(), svctest.Fault{}, svctest.Fault{TruncateAfter: 1})
	var out, log lockedBuffer
	spans, err := stdouttrace.New(stdouttrace.WithWriter(&out))
	require.NoError(t, err)
	tel := newTelemetry(spans, sdkmetric.NewManualReader())
	client, err := svc.NewClient(srv.URL(), append(tel.options(debugLog(&log)), svc.WithToken(srv.Token()))...)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	require.NoError(t, tel.span(t.Context(), "file", func(ctx context.Context) error { return file(ctx, client) }))
	require.Zero(t, srv.PendingFaults())
	require.Equal(t, 4, strings.Count(out.String(), "/storage/"), "each transfer was tried twice")
	for _, secret := range append(secrets(t, srv), "X-Amz-") {
		require.NotContains(t, out.String()+log.String(), secret)
	}
}

// series makes a text of the labels of a metric's series.
func series(set attribute.Set) string {
	var values []string
	for _, key := range []attribute.Key{"http.request.method", "http.route", "http.response.status_code"} {
		v, _ := set.Value(key)
		values = append(values, v.String())
	}
	return strings.Join(values, " ")
}

func TestRoutesAreLabels(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		reader := sdkmetric.NewManualReader()
		tel := newTelemetry(tracetest.NewInMemoryExporter(), reader)
		srv.Fault("GET", svctest.RouteFlavors, svctest.ServiceUnavailable(1))
		quiet := slog.New(slog.DiscardHandler)
		client := srv.Client(tel.options(quiet)...)
		require.NoError(t, deploy(t.Context(), client, quiet))
		require.NoError(t, file(t.Context(), client))

		var data metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &data))
		counts := map[string]uint64{}
		for _, scope := range data.ScopeMetrics {
			for _, m := range scope.Metrics {
				h, ok := m.Data.(metricdata.Histogram[float64])
				if !ok || m.Name != "http.client.request.duration" {
					continue
				}
				for _, p := range h.DataPoints {
					counts[series(p.Attributes)] += p.Count
					for _, kv := range p.Attributes.ToSlice() {
						require.NotRegexp(t, "svc-1|file-1", kv.Value.String(), "an id is a label: %s", kv.Key)
					}
				}
			}
		}
		polls := "GET " + svctest.RouteEndpoint + " 200"
		require.Greater(t, counts[polls], uint64(50), "twenty minutes of looks, in one series")
		delete(counts, polls)
		require.Equal(t, map[string]uint64{
			"GET " + svctest.RouteFlavors + " 503":     1,
			"GET " + svctest.RouteFlavors + " 200":     1,
			"POST " + svctest.RouteEndpoints + " 200":  1,
			"DELETE " + svctest.RouteEndpoint + " 200": 1,
			"POST " + svctest.RouteFiles + " 200":      1,
			"GET " + svctest.RouteFileLink + " 200":    1,
			"DELETE " + svctest.RouteFile + " 200":     1,
			"PUT {presigned_url} 200":                  1,
			"GET {presigned_url} 200":                  1,
		}, counts)
	})
}

func TestTraces(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		spans := tracetest.NewInMemoryExporter()
		tel := newTelemetry(spans, sdkmetric.NewManualReader())
		var log bytes.Buffer
		client := srv.Client(tel.options(debugLog(&log))...)
		require.NoError(t, tel.span(t.Context(), "file", func(ctx context.Context) error { return file(ctx, client) }))
		errOf := tel.span(t.Context(), "missing", func(ctx context.Context) error {
			_, err := client.Files.Get(ctx, "file-9")
			return err
		})
		require.ErrorIs(t, errOf, svc.ErrNotFound)

		all := spans.GetSpans()
		i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == "file" })
		require.GreaterOrEqual(t, i, 0)
		whole := all[i]
		require.Len(t, whole.Events, 5) // register, PUT, link, GET, delete
		require.Equal(t, "svc.attempt", whole.Events[0].Name)
		require.Contains(t, whole.Events[0].Attributes, attribute.String("route", svctest.RouteFiles))
		require.Contains(t, whole.Events[0].Attributes, attribute.String("request_id", "req-1"))

		var requests []string
		for _, s := range all {
			if s.Parent.SpanID() == whole.SpanContext.SpanID() {
				requests = append(requests, s.Name)
			}
		}
		require.Equal(t, []string{
			"POST " + svctest.RouteFiles, "PUT {presigned_url}",
			"GET " + svctest.RouteFileLink, "GET {presigned_url}", "DELETE " + svctest.RouteFile,
		}, requests, "each request is a span within, and its route is the name")
		last := all[len(all)-1]
		require.Equal(t, "missing", last.Name)
		require.Contains(t, last.Status.Description, "404")

		for line := range strings.Lines(log.String()) {
			var v map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &v))
			require.NotEmpty(t, v["trace_id"], line)
		}
		require.Contains(t, log.String(), whole.SpanContext.TraceID().String())
		for _, r := range srv.Requests() {
			require.Empty(t, r.Header.Get("Traceparent"), "our trace ids go to nobody")
		}
	})
}
