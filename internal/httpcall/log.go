package httpcall

import (
	"context"
	"log/slog"
	"slices"
)

// LogTo returns a hook that logs every exchange to l: at level info if a retry follows, otherwise at
// level debug.
func LogTo(l *slog.Logger) func(context.Context, Attempt) {
	return func(ctx context.Context, a Attempt) {
		level, text := slog.LevelDebug, "svc: exchange"
		attrs := []slog.Attr{
			slog.String("method", a.Method), slog.String("route", a.Route), slog.Uint64("call", a.Call), slog.Int("attempt", a.Number),
			slog.Int("status", a.StatusCode), slog.Duration("duration", a.Duration),
		}
		attrs = append(attrs, Texts("id", a.ID, "request_id", a.RequestID)...)
		if a.Err != nil {
			attrs = append(attrs, slog.String("error", a.Err.Error()))
		}
		if a.Retry {
			level, text = slog.LevelInfo, "svc: trying again"
			attrs = append(attrs, slog.Duration("delay", a.Delay))
		}
		l.LogAttrs(ctx, level, text, attrs...)
	}
}

// Texts makes attributes of pairs of a name and a value. It leaves out the empty values.
func Texts(pairs ...string) (attrs []slog.Attr) {
	for pair := range slices.Chunk(pairs, 2) {
		if name, text := pair[0], pair[len(pair)-1]; text != "" {
			attrs = append(attrs, slog.String(name, text))
		}
	}
	return attrs
}
