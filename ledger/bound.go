package ledger

import (
	"context"
	"runtime"

	"example.com/svc/internal/cause"
)

// bounded calls a method of a store, and returns when it returns or when ctx ends, whichever is
// first: a file system or a driver may hang and ignore ctx. Then the method goes on, and its result
// is dropped. A panic or a Goexit of the method is one of the caller.
func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (result T, err error) {
	if ctx.Err() != nil {
		return result, cause.Of(ctx)
	}
	done := make(chan func() (T, error), 1)
	go func() {
		outcome := func() (T, error) { runtime.Goexit(); return result, nil }
		defer func() {
			if p := recover(); p != nil {
				outcome = func() (T, error) { panic(p) }
			}
			done <- outcome
		}()
		got, err := f(ctx)
		outcome = func() (T, error) { return got, err }
	}()
	select {
	case <-ctx.Done():
		return result, cause.Of(ctx)
	case outcome := <-done:
		return outcome()
	}
}
