package chain

import (
	"context"
	"runtime"

	"example.com/svc/internal/cause"
)

// heed runs code of the caller's that should end with ctx. What does not, such as
// a token source that asks a slow server without ctx, is left to itself then. A
// panic comes out here.
func heed(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	type outcome struct {
		err      error
		returned bool
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.err = f()
		o.returned = true
	}()
	select {
	case o := <-done:
		switch {
		case o.returned:
			return o.err
		case o.panicked != nil:
			panic(o.panicked)
		}
		runtime.Goexit() // as f did
	case <-ctx.Done():
	}
	return cause.Of(ctx)
}
