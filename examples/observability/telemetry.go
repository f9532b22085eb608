package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/codes"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svcotel"
)

// telemetry holds what exports traces and metrics. It is not global, so that each test can
// have its own.
type telemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	scrapes http.Handler // serves the metrics to Prometheus
}

// newTelemetry exports spans and metrics to out as JSON, and metrics to Prometheus as well. Two
// goroutines may write to out at once.
func newTelemetry(out io.Writer) (*telemetry, error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out), stdouttrace.WithPrettyPrint())
	if err != nil {
		return nil, err
	}
	numbers, err := stdoutmetric.New(stdoutmetric.WithWriter(out), stdoutmetric.WithPrettyPrint())
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	scraped, err := promexporter.New(promexporter.WithRegisterer(registry), promexporter.WithoutScopeInfo(), promexporter.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	return &telemetry{
		traces:  sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), // in a service: WithBatcher
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(numbers)), sdkmetric.WithReader(scraped)),
		scrapes: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}, nil
}

func (t *telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// options connects a client to the telemetry, to a logger and to a ledger.
func (t *telemetry) options(logger *slog.Logger, store ledger.Store) []svc.Option {
	return []svc.Option{
		svc.WithLogger(logger), svc.WithLedger(store),
		svcotel.Instrument(svcotel.WithTracerProvider(t.traces), svcotel.WithMeterProvider(t.metrics), svcotel.WithLedger(store)),
	}
}

// span runs f in a span, whose children are the spans of the calls in it. Errors of svc are safe
// to record: they hold neither a token nor the query of a presigned URL.
func (t *telemetry) span(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, span := t.traces.Tracer("observability").Start(ctx, name)
	defer span.End()
	err := f(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// withTraceID is a log handler that adds the ID of the trace to each line.
type withTraceID struct{ slog.Handler }

func (h withTraceID) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h withTraceID) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withTraceID{h.Handler.WithAttrs(attrs)}
}

func (h withTraceID) WithGroup(name string) slog.Handler {
	return withTraceID{h.Handler.WithGroup(name)}
}
