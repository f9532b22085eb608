package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

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

// secrets lists what must not appear in any output: the token, and the signature and the whole
// query of each presigned URL that was used.
func secrets(t *testing.T, srv *svctest.Server) []string {
	t.Helper()
	all := []string{srv.Token()}
	for _, r := range srv.Requests() {
		if signature := r.Query.Get("X-Amz-Signature"); signature != "" {
			all = append(all, signature, r.RawQuery)
		}
	}
	require.GreaterOrEqual(t, len(all), 3, "no presigned URL was used")
	return all
}

func debugLog(w io.Writer) *slog.Logger {
	return slog.New(withTraceID{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

// lockedBuffer can be written to by two exporters at once, as os.Stdout can.
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

// TestNoSecretIsExported searches all output of a run that succeeds, and of one in
// which storage fails.
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

				require.Contains(t, out.String(), `"PUT {presigned_url}"`, "the upload is not in the traces")
				require.Contains(t, out.String(), "http.client.request.duration", "no metrics")
				require.Contains(t, log.String(), "svc: exchange")
				require.NotContains(t, out.String()+log.String(), "X-Amz-", "a query, in any encoding")
				for _, secret := range secrets(t, srv) {
					require.NotContains(t, out.String(), secret)
					require.NotContains(t, log.String(), secret)
				}
			})
		})
	}
}

// TestNoSecretIsExportedOnTheNetwork does the same with the library's own connections, and
// with the errors of net/http about a broken connection.
func TestNoSecretIsExportedOnTheNetwork(t *testing.T) {
	srv := svctest.NewServer()
	defer srv.Close()
	srv.Fault("*", svctest.RouteStorage, svctest.DropBeforeEffect(), svctest.Fault{}, svctest.Fault{TruncateAfter: 1})
	var out, log lockedBuffer
	spans, err := stdouttrace.New(stdouttrace.WithWriter(&out))
	require.NoError(t, err)
	tel, err := newTelemetry(spans, sdkmetric.NewManualReader())
	require.NoError(t, err)
	client, err := svc.NewClient(srv.URL(), append(tel.options(debugLog(&log)), svc.WithToken(srv.Token()))...)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	require.NoError(t, tel.span(t.Context(), "file", func(ctx context.Context) error { return file(ctx, client) }))
	require.Zero(t, srv.PendingFaults())
	require.Equal(t, 4, strings.Count(out.String(), ` {presigned_url}"`), "each transfer was tried twice")
	for _, secret := range append(secrets(t, srv), "X-Amz-") {
		require.NotContains(t, out.String()+log.String(), secret)
	}
}

// attributes are the attributes of a span or of a series, as text.
func attributes(all []attribute.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, kv := range all {
		texts[string(kv.Key)] = kv.Value.String()
	}
	return texts
}

// series returns the counts of the duration histogram, by labels.
func series(t *testing.T, reader *sdkmetric.ManualReader) map[string]uint64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	counts := map[string]uint64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.Equal(t, "http.client.request.duration", m.Name)
			require.Equal(t, "s", m.Unit)
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				labels := attributes(p.Attributes.ToSlice())
				counts[strings.Join(strings.Fields(strings.Join([]string{
					labels["http.request.method"], labels["url.template"], labels["http.response.status_code"], labels["error.type"],
				}, " ")), " ")] += p.Count
				require.NotEmpty(t, labels["server.address"])
				require.NotEmpty(t, labels["server.port"])
				require.NotContains(t, labels, "http.route", "it is for servers")
				for key, value := range labels {
					require.NotRegexp(t, "svc-1|file-1", value, "an ID is a label: %s", key)
				}
			}
		}
	}
	return counts
}

func TestC31_MetricsHaveTheLabelsOfClients(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		reader := sdkmetric.NewManualReader()
		tel, err := newTelemetry(tracetest.NewInMemoryExporter(), reader)
		require.NoError(t, err)
		srv.Fault("GET", svctest.RouteFlavors, svctest.ServiceUnavailable(1))
		srv.Fault("GET", svctest.RouteFileLink, svctest.DropBeforeEffect())
		quiet := slog.New(slog.DiscardHandler)
		client := srv.Client(tel.options(quiet)...)
		require.NoError(t, deploy(t.Context(), client, quiet))
		require.NoError(t, file(t.Context(), client))

		counts := series(t, reader)
		polls := "GET " + svctest.RouteEndpoint + " 200"
		require.Greater(t, counts[polls], uint64(50), "twenty minutes of polls, in one series")
		delete(counts, polls)
		require.Equal(t, map[string]uint64{
			"GET " + svctest.RouteFlavors + " 503 503":     1,
			"GET " + svctest.RouteFlavors + " 200":         2, // one for the proof that the endpoint is deleted
			"POST " + svctest.RouteEndpoints + " 200":      1,
			"DELETE " + svctest.RouteEndpoint + " 200":     1,
			"GET " + svctest.RouteEndpoint + " 404 404":    2,
			"POST " + svctest.RouteFiles + " 200":          1,
			"GET " + svctest.RouteFileLink + " connection": 1,
			"GET " + svctest.RouteFileLink + " 200":        1,
			"DELETE " + svctest.RouteFile + " 200":         1,
			"PUT {presigned_url} 200":                      1,
			"GET {presigned_url} 200":                      1,
		}, counts)
	})
}

func TestC31_SpansHaveTheAttributesOfClients(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		spans := tracetest.NewInMemoryExporter()
		tel, err := newTelemetry(spans, sdkmetric.NewManualReader())
		require.NoError(t, err)
		id := srv.AddFile("a", "fine-tune", nil)
		srv.Fault("GET", svctest.RouteFile, svctest.ServiceUnavailable(1), svctest.DropBeforeEffect(), svctest.Fault{Delay: 90 * time.Second})
		_, err = srv.Client(tel.options(slog.New(slog.DiscardHandler))...).Files.Get(t.Context(), id)
		require.NoError(t, err)

		var got []map[string]string
		for _, s := range spans.GetSpans() {
			require.Equal(t, "GET "+svctest.RouteFile, s.Name)
			require.Equal(t, trace.SpanKindClient, s.SpanKind)
			require.Equal(t, s.Status.Code == codes.Error, len(got) < 3)
			all := attributes(s.Attributes)
			for key, want := range map[string]string{
				"http.request.method": "GET", "url.template": svctest.RouteFile, "server.port": "443", "svc.id": id,
			} {
				require.Equal(t, want, all[key], key)
			}
			require.NotEmpty(t, all["server.address"])
			got = append(got, map[string]string{
				"resend": all["http.request.resend_count"], "status": all["http.response.status_code"],
				"error": all["error.type"], "request ID": all["svc.request_id"],
			})
			require.False(t, s.EndTime.Before(s.StartTime))
		}
		require.Equal(t, []map[string]string{
			{"resend": "", "status": "503", "error": "503", "request ID": "req-1"},
			{"resend": "1", "status": "", "error": "connection", "request ID": ""},
			{"resend": "2", "status": "", "error": "timeout", "request ID": ""},
			{"resend": "3", "status": "200", "error": "", "request ID": "req-4"},
		}, got)
	})
}

func TestErrorType(t *testing.T) {
	for want, err := range map[string]error{
		"":           nil,
		"canceled":   context.Canceled,
		"timeout":    context.DeadlineExceeded,
		"connection": &net.OpError{Op: "dial", Err: errors.New("refused")},
		"_OTHER":     errors.New("something else"),
	} {
		require.Equal(t, want, errorType(svc.Attempt{Err: err}))
	}
	host, port := server("[::1]:8080")
	require.Equal(t, "::1 8080", fmt.Sprint(host, " ", port))
}

func TestTraces(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		spans := tracetest.NewInMemoryExporter()
		tel, err := newTelemetry(spans, sdkmetric.NewManualReader())
		require.NoError(t, err)
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
		var requests []string
		for _, s := range all {
			if s.Parent.SpanID() == whole.SpanContext.SpanID() {
				requests = append(requests, s.Name)
			}
		}
		require.Equal(t, []string{
			"POST " + svctest.RouteFiles, "PUT {presigned_url}",
			"GET " + svctest.RouteFileLink, "GET {presigned_url}", "DELETE " + svctest.RouteFile,
		}, requests, "each request is a child, and its route is the name")
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
			require.Empty(t, r.Header.Get("Traceparent"), "the IDs of traces are sent to nobody")
		}
	})
}
