package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
)

const scope = "example.com/svc/examples/observability"

// telemetry holds what records traces and metrics. It is not global, so that each test can
// have its own.
type telemetry struct {
	traces   *sdktrace.TracerProvider
	metrics  *sdkmetric.MeterProvider
	tracer   trace.Tracer
	duration httpconv.ClientRequestDuration // the histogram http.client.request.duration
}

func newTelemetry(spans sdktrace.SpanExporter, numbers sdkmetric.Reader) (*telemetry, error) {
	t := &telemetry{
		traces:  sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), // in a service: WithBatcher
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithReader(numbers)),
	}
	t.tracer = t.traces.Tracer(scope)
	var err error
	t.duration, err = httpconv.NewClientRequestDuration(t.metrics.Meter(scope))
	return t, err
}

func (t *telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// options connects a client to the telemetry.
func (t *telemetry) options(logger *slog.Logger) []svc.Option {
	return []svc.Option{svc.WithAttemptHook(t.attempt), svc.WithLogger(logger)}
}

// attempt is the function for [svc.WithAttemptHook]. It records each exchange as a span and in
// a metric, with the names of OpenTelemetry's semantic conventions for HTTP clients. It leaves
// out their attribute url.full: an address can contain an ID, and a presigned URL is a secret.
//
// ctx is the ctx of the call, so the span is a child of the span around the call.
func (t *telemetry) attempt(ctx context.Context, a svc.Attempt) {
	host, port := server(a.Host)
	// A label of a metric must have few different values. The route is a template without an
	// ID, so there are few routes.
	labels := []attribute.KeyValue{semconv.URLTemplate(a.Route)}
	if a.StatusCode > 0 {
		labels = append(labels, semconv.HTTPResponseStatusCode(a.StatusCode))
	}
	failed := errorType(a)
	if failed != "" {
		labels = append(labels, semconv.ErrorTypeKey.String(failed))
	}
	t.duration.Record(ctx, a.Duration.Seconds(), httpconv.RequestMethodAttr(a.Method), host, port, labels...)

	details := slices.Concat(labels, []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(a.Method), semconv.ServerAddress(host), semconv.ServerPort(port),
	})
	if a.Number > 1 {
		details = append(details, semconv.HTTPRequestResendCount(a.Number-1))
	}
	if a.ID != "" {
		details = append(details, attribute.String("svc.id", a.ID))
	}
	if a.RequestID != "" {
		details = append(details, attribute.String("svc.request_id", a.RequestID))
	}
	_, span := t.tracer.Start(ctx, a.Method+" "+a.Route, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(a.Start), trace.WithAttributes(details...))
	if failed != "" {
		text := ""
		if a.Err != nil {
			text = a.Err.Error() // like all errors of the library, it holds no secret
		}
		span.SetStatus(codes.Error, text)
	}
	span.End(trace.WithTimestamp(a.Start.Add(a.Duration)))
}

// server splits host:port. An attempt does not hold the scheme, so without a port server
// assumes https.
func server(hostport string) (host string, port int) {
	if host, text, err := net.SplitHostPort(hostport); err == nil {
		port, _ = strconv.Atoi(text)
		return host, port
	}
	return hostport, 443
}

// errorType returns the attribute error.type of an exchange: the status, if the status is an
// error, or else the kind of the failure. There are few kinds. Empty: the exchange did not fail.
func errorType(a svc.Attempt) string {
	failure, isNet := errors.AsType[net.Error](a.Err)
	switch {
	case a.StatusCode >= 400:
		return strconv.Itoa(a.StatusCode)
	case a.Err == nil:
		return ""
	case errors.Is(a.Err, context.Canceled):
		return "canceled"
	case isNet && failure.Timeout():
		return "timeout"
	case isNet, errors.Is(a.Err, io.EOF), errors.Is(a.Err, io.ErrUnexpectedEOF):
		return "connection"
	}
	return semconv.ErrorTypeOther.Value.AsString() // "_OTHER"
}

// span runs f in a span. Errors of the library are safe to record: they hold neither a
// token nor the query of a presigned URL.
func (t *telemetry) span(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, span := t.tracer.Start(ctx, name)
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
