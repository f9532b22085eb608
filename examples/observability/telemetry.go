package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
)

// telemetry is where traces and metrics go. Nothing of it is global, so that a
// test can have its own.
type telemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

func newTelemetry(spans sdktrace.SpanExporter, numbers sdkmetric.Reader) *telemetry {
	return &telemetry{
		traces:  sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), // in a service: WithBatcher
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithReader(numbers)),
	}
}

func (t *telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// options connects a client to the telemetry.
func (t *telemetry) options(logger *slog.Logger) []svc.Option {
	return []svc.Option{
		svc.WithTransportWrapper(t.wrap),
		svc.WithAttemptHook(attempt),
		svc.WithLogger(logger),
	}
}

// wrap is for [svc.WithTransportWrapper]. Names and labels are of few values, or
// what stores them would grow without end: the route has no id in it.
func (t *telemetry) wrap(base http.RoundTripper) http.RoundTripper {
	return labelled{otelhttp.NewTransport(base, otelhttp.WithTracerProvider(t.traces), otelhttp.WithMeterProvider(t.metrics),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return r.Method + " " + svc.RouteFromContext(r.Context())
		}),
		// No traceparent header: the service is not known to read it, and storage
		// that belongs to somebody else has no use for the ids of our traces.
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()))}
}

// labelled makes the route a label of the metrics of otelhttp.
type labelled struct{ next http.RoundTripper }

func (l labelled) RoundTrip(r *http.Request) (*http.Response, error) {
	var labels otelhttp.Labeler // in the place of one that a server has put there for its own request
	labels.Add(attribute.String("http.route", svc.RouteFromContext(r.Context())))
	return l.next.RoundTrip(r.WithContext(otelhttp.ContextWithLabeler(r.Context(), &labels)))
}

// attempt is for [svc.WithAttemptHook]. The ctx is that of the call, so the event
// lands in the span that the call was made in.
func attempt(ctx context.Context, a svc.Attempt) {
	details := []attribute.KeyValue{
		attribute.String("method", a.Method), attribute.String("route", a.Route), attribute.Int("attempt", a.Number),
		attribute.Int("status", a.StatusCode), attribute.String("request_id", a.RequestID),
	}
	if a.Err != nil {
		details = append(details, attribute.String("error", a.Err.Error()))
	}
	trace.SpanFromContext(ctx).AddEvent("svc.attempt", trace.WithAttributes(details...))
}

// span runs f in a span. Errors of the library are safe to record: they hold
// neither a token nor the query of a link.
func (t *telemetry) span(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, span := t.traces.Tracer("example.com/svc/examples/observability").Start(ctx, name)
	defer span.End()
	err := f(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// withTraceID adds the id of the trace to each line of a log.
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
