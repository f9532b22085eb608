package svcotel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/trace"

	"example.com/svc"
)

const (
	endpoints = "/v1/inference-service"
	storage   = "{presigned_url}"
)

// templates are the routes with a low cardinality. The route of a [svc.Client.Do] can hold IDs.
var templates = map[string]bool{
	endpoints: true, endpoints + "/{service_id}": true, endpoints + "/flavor": true,
	"/v1/svc-video-job": true, "/v1/svc-video-job/{job_id}": true,
	"/v1/svc-image-job": true, "/v1/svc-image-job/{job_id}": true,
	"/v1/files": true, "/v1/files/{file_id}": true, "/v1/files/{file_id}/presigned_url": true, "/v1/public-files": true,
	storage: true,
}

// telemetry records the calls of one client.
type telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	duration   httpconv.ClientRequestDuration
	creates    metric.Int64Counter
	cleanups   metric.Int64Counter
	waits      metric.Float64Histogram
}

// call is a call in progress. Its context holds it. Its exchanges are sequential.
type call struct {
	svc.Call
	span     trace.Span
	exchange trace.Span           // the latest exchange
	server   []attribute.KeyValue // server.address and server.port of the latest exchange
	sent     int                  // number of exchanges
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// nameOf returns the name of a span, and the attributes that calls and exchanges share.
func nameOf(method, route string) (name string, attrs []attribute.KeyValue) {
	attrs = make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.HTTPRequestMethodKey.String(method))
	if !templates[route] {
		return method, attrs
	}
	return method + " " + route, append(attrs, semconv.URLTemplate(route))
}

// begin is the function for [svc.WithCallContext]: it begins the span of a call.
func (t *telemetry) begin(ctx context.Context, started svc.Call) context.Context {
	name, attrs := nameOf(started.Method, started.Route)
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
	return context.WithValue(ctx, callKey{}, &call{Call: started, span: span})
}

// end is the function for [svc.WithCallHook]: it ends the span of a call.
func (t *telemetry) end(ctx context.Context, ended svc.Call) {
	if ended.Method == http.MethodPost && ended.Route == endpoints {
		t.creates.Add(ctx, 1, createOutcome[ended.Outcome])
	}
	c := callOf(ctx)
	if c == nil {
		return
	}
	if c.span.IsRecording() {
		failed, outcome := c.errorType(ended.Err), ended.Outcome
		if failed == "" {
			outcome = svc.CallDone
		}
		attrs := []attribute.KeyValue{attribute.Int("svc.attempts", ended.Attempts), attribute.String("svc.outcome", string(outcome))}
		if ended.Wait {
			attrs = append(attrs, attribute.Bool("svc.wait", true))
		}
		if failed != "" {
			attrs = append(attrs, semconv.ErrorTypeKey.String(failed))
			c.span.SetStatus(codes.Error, ended.Err.Error()) // like all errors of svc, it holds no secret
		}
		c.span.SetAttributes(append(attrs, details(ended.ID, "")...)...)
	}
	c.span.End()
}

// wrap is the function for [svc.WithTransportWrapper]: it begins the span of an exchange.
func (t *telemetry) wrap(next http.RoundTripper) http.RoundTripper { return &transport{t, next} }

type transport struct {
	*telemetry
	next http.RoundTripper
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	if c == nil {
		return t.next.RoundTrip(req)
	}
	name, attrs := nameOf(req.Method, c.Route)
	c.server = serverOf(req)
	attrs = append(attrs, c.server...)
	if c.sent > 0 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(c.sent))
	}
	c.sent++
	ctx, span := t.tracer.Start(req.Context(), name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	c.exchange = span
	req = req.WithContext(ctx)
	if c.Route != storage {
		req.Header = req.Header.Clone()
		t.propagator.Inject(ctx, propagation.HeaderCarrier(req.Header))
	}
	return t.next.RoundTrip(req)
}

// serverOf returns server.address and server.port.
func serverOf(req *http.Request) []attribute.KeyValue {
	port, err := strconv.Atoi(req.URL.Port())
	if err != nil {
		port = 443
		if req.URL.Scheme == "http" {
			port = 80
		}
	}
	return []attribute.KeyValue{semconv.ServerAddress(req.URL.Hostname()), semconv.ServerPort(port)}
}

// exchanged is the function for [svc.WithAttemptHook]: it ends the span of an exchange.
func (t *telemetry) exchanged(ctx context.Context, a svc.Attempt) {
	c := callOf(ctx)
	if c == nil || c.exchange == nil {
		return
	}
	_, attrs := nameOf(a.Method, a.Route)
	attrs = append(attrs, c.server...)
	shared := len(attrs)
	if a.StatusCode > 0 {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(a.StatusCode))
	}
	failed := c.exchangeError(a)
	if failed != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(failed))
	}
	t.duration.Inst().Record(trace.ContextWithSpan(ctx, c.exchange), a.Duration.Seconds(), metric.WithAttributes(attrs...))
	if c.exchange.IsRecording() {
		c.exchange.SetAttributes(append(attrs[shared:], details(a.ID, a.RequestID)...)...)
		if failed != "" {
			text := "" // the status of the response says it all
			if a.Err != nil {
				text = a.Err.Error()
			}
			c.exchange.SetStatus(codes.Error, text)
		}
	}
	c.exchange.End(trace.WithTimestamp(a.Start.Add(a.Duration)))
	c.exchange = nil
}

// createOutcome maps outcomes to the attributes of svc.creates.
var createOutcome = map[svc.CallOutcome]metric.MeasurementOption{
	svc.CallDone:    outcome("created"),
	svc.CallFailed:  outcome("refused"),
	svc.CallUnknown: outcome("unknown"),
}

func details(id, requestID string) (attrs []attribute.KeyValue) {
	if id != "" {
		attrs = append(attrs, attribute.String("svc.id", id))
	}
	if requestID != "" {
		attrs = append(attrs, attribute.String("svc.request_id", requestID))
	}
	return attrs
}

// exchangeError returns the attribute error.type of an exchange: the status, if it is an error,
// or else the kind of the failure. It is empty if the exchange did not fail.
func (c *call) exchangeError(a svc.Attempt) string {
	switch {
	case c.Wait && (a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusGone):
		return "" // that is what the poll asked
	case a.StatusCode >= 400:
		return strconv.Itoa(a.StatusCode)
	}
	return kindOf(a.Err)
}

// errorType returns the attribute error.type of a call.
func (c *call) errorType(err error) string {
	refused, isStatus := errors.AsType[*svc.Error](err)
	switch {
	case c.Wait && errors.Is(err, svc.ErrNotFound):
		return ""
	case errors.Is(err, svc.ErrOutcomeUnknown):
		return "outcome_unknown"
	case isStatus:
		return strconv.Itoa(refused.StatusCode)
	}
	return kindOf(err)
}

// kindOf returns the attribute error.type of a failure without a status. There are few kinds.
// It is empty if there was no failure.
func kindOf(err error) string {
	failure, isNet := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), isNet && failure.Timeout():
		return "timeout"
	case isNet, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	}
	return semconv.ErrorTypeOther.Value.AsString() // "_OTHER"
}
