package svcotel

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"example.com/svc"
)

// cleanupOutcome maps whether the deletion is proven to the attributes of svc.cleanups.
var cleanupOutcome = map[bool]metric.MeasurementOption{
	true:  outcome("deleted"),
	false: outcome("unproven"),
}

func outcome(text string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("svc.outcome", text)))
}

// waited is the function for [svc.WithWaitHook].
func (t *telemetry) waited(ctx context.Context, w svc.WaitEnd) {
	if w.Cleanup {
		t.cleanups.Add(ctx, 1, cleanupOutcome[w.Err == nil])
	}
	attrs := []attribute.KeyValue{attribute.String("svc.wait.for", goal(w)), attribute.String("svc.outcome", "done")}
	if w.Err != nil {
		attrs[1] = attribute.String("svc.outcome", "failed")
		attrs = append(attrs, semconv.ErrorTypeKey.String(waitError(w.Err)))
	}
	t.waits.Record(ctx, w.Elapsed.Seconds(), metric.WithAttributes(attrs...))
}

// goal returns what a wait was for, with low cardinality.
func goal(w svc.WaitEnd) string {
	want, _, counted := strings.Cut(w.Want, " with ") // "available with 2 instances"
	switch {
	case w.Cleanup:
		return "cleanup"
	case counted:
		return "scaled"
	case want == "available", want == "deleted", want == "done", want == "in stock":
		return strings.TrimPrefix(want, "in ")
	}
	return "condition"
}

// waitError returns the attribute error.type of a wait that failed.
func waitError(err error) string {
	switch {
	case errors.Is(err, svc.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, svc.ErrStopped):
		return "stopped"
	case errors.Is(err, svc.ErrNotFound):
		return "not_found"
	}
	if end, ok := errors.AsType[*svc.WaitError](err); ok {
		err = end.Err
	}
	return (&call{}).errorType(err)
}
