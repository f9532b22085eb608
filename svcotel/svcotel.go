// Package svcotel records the traces and metrics of a [svc.Client] with OpenTelemetry.
//
//	client, err := svc.NewClient(baseURL, svc.WithToken(token), svc.WithLedger(store),
//		svcotel.Instrument(svcotel.WithLedger(store)))
//
// # Traces
//
// Each call of a client is a span of kind internal. Each HTTP exchange of the call is a child
// span of kind client: the attempts, and the redirects that are followed. Both have the name
// "{method} {url.template}", such as "GET /v1/files/{file_id}". The semantic conventions for
// HTTP ask for a client span for each exchange, and for no client span around them. The spans
// of the polls of a wait are children of the span in the ctx of the wait.
//
// The attributes of the conventions are http.request.method, url.template, server.address,
// server.port, http.response.status_code, http.request.resend_count and error.type. The attribute
// url.full is missing, since the query of a presigned URL is a secret. Further attributes are
// svc.id (the ID in the path), svc.request_id, and for a call svc.attempts, svc.outcome ("done",
// "failed" or "unknown") and svc.wait (a poll of a wait). A "not found" in a poll of a wait is not
// an error, since it may prove a deletion.
//
// The header traceparent is sent to the API of the service. It is never sent to storage.
//
// # Metrics
//
//   - http.client.request.duration, a histogram in seconds: the exchanges, by http.request.method,
//     url.template, server.address, server.port, http.response.status_code and error.type.
//   - svc.creates, a counter: the calls that create an endpoint, by svc.outcome: "created",
//     "refused" (nothing was created) or "unknown".
//   - svc.wait.duration, a histogram in seconds: the waits, by svc.wait.for ("available", "scaled",
//     "deleted", "cleanup", "stock", "done" for a job, or "condition"), svc.outcome ("done" or
//     "failed") and error.type.
//   - svc.cleanups, a counter: the cleanups of failed deployments, by svc.outcome: "deleted" or
//     "unproven" (the endpoint may still be running and billed).
//   - With [WithLedger], gauges of the ledger: svc.ledger.entries by svc.ledger.state,
//     svc.instances (those of open entries) by svc.ledger.state, svc.ledger.in_doubt, and
//     svc.ledger.overdue (open entries whose lease is over, by the local clock). The counter
//     svc.ledger.errors counts the reads that failed. Each process that shares the ledger
//     reports the same numbers: do not add them up.
//
// Spans and metrics hold no token and no query of a presigned URL. Spans hold IDs of endpoints
// and files; metrics do not.
package svcotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
	"example.com/svc/ledger"
)

const scope = "example.com/svc/svcotel"

// Option configures [Instrument].
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	ledger     ledger.Store
}

// WithTracerProvider sets the provider of the tracer. If nil, [otel.GetTracerProvider] is
// used.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithMeterProvider sets the provider of the meter. If nil, [otel.GetMeterProvider] is used.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithPropagator sets what is sent along with the requests to the API. If nil,
// [propagation.TraceContext] is used: traceparent and tracestate. The propagator of
// [otel.GetTextMapPropagator] is not the default, since it may send baggage, which is often meant
// only for internal services.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// WithLedger adds the gauges of a ledger: the store that [svc.WithLedger] gets. Every collection of the
// metrics reads the whole ledger, for 5 s at most. If it cannot be read, its gauges are missing in this
// collection, and all other metrics are reported. If nil, there are no such gauges.
func WithLedger(store ledger.Store) Option { return func(c *config) { c.ledger = store } }

// Instrument returns an option for [svc.NewClient] that records the traces and metrics of the
// client. It can be combined with the hooks and transport wrappers of other options.
func Instrument(opts ...Option) svc.Option {
	return forEachClient(func() ([]svc.Option, error) {
		c := config{propagator: propagation.TraceContext{}}
		for _, o := range opts {
			o(&c)
		}
		t, err := newTelemetry(&c)
		if err != nil {
			return nil, err
		}
		return []svc.Option{
			svc.WithCallContext(t.begin), svc.WithTransportWrapper(t.wrap), svc.WithAttemptHook(t.exchanged),
			svc.WithCallHook(t.end), svc.WithWaitHook(t.waited),
		}, nil
	})
}

// forEachClient combines options that are created for each client. C is the configuration of
// package svc, whose name is not exported.
func forEachClient[C any, O ~func(C) error](build func() ([]O, error)) func(C) error {
	return func(c C) error {
		options, err := build()
		for _, o := range options {
			err = errors.Join(err, o(c))
		}
		return err
	}
}

func newTelemetry(c *config) (*telemetry, error) {
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.propagator == nil {
		c.propagator = propagation.TraceContext{}
	}
	t := &telemetry{
		tracer:     c.tracers.Tracer(scope, trace.WithInstrumentationVersion(svc.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: c.propagator,
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(svc.Version), metric.WithSchemaURL(semconv.SchemaURL))
	var problems [5]error
	t.duration, problems[0] = httpconv.NewClientRequestDuration(meter,
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	t.creates, problems[1] = meter.Int64Counter("svc.creates", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that create an endpoint."))
	t.cleanups, problems[2] = meter.Int64Counter("svc.cleanups", metric.WithUnit("{cleanup}"),
		metric.WithDescription("Cleanups of failed deployments."))
	t.waits, problems[3] = meter.Float64Histogram("svc.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of waits and cleanups."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200))
	if c.ledger != nil {
		problems[4] = observeLedger(meter, c.ledger)
	}
	for _, o := range createOutcome { // a rate needs a first sample
		t.creates.Add(context.Background(), 0, o)
	}
	for _, o := range cleanupOutcome {
		t.cleanups.Add(context.Background(), 0, o)
	}
	return t, errors.Join(problems[:]...)
}
