package ledger

import (
	"context"
	"errors"
	"fmt"
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
	type outcome struct {
		result   T
		err      error
		returned bool
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if !o.returned {
				o.panicked = recover()
			}
			done <- o
		}()
		o.result, o.err = f(ctx)
		o.returned = true
	}()
	select {
	case <-ctx.Done():
		return result, cause.Of(ctx)
	case o := <-done:
		switch {
		case o.returned:
			return o.result, o.err
		case o.panicked != nil:
			panic(o.panicked)
		}
		runtime.Goexit()
		return result, nil
	}
}

// guarded is a store whose calls end with their ctx.
type guarded struct{ store Store }

func (g guarded) Append(ctx context.Context, r Record) error {
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.store.Append(ctx, r) })
	return err
}

func (g guarded) List(ctx context.Context, key string) ([]Record, error) {
	return bounded(ctx, func(ctx context.Context) ([]Record, error) { return g.store.List(ctx, key) })
}

// Find returns the keys that may have an entry with the ID. ok is false if the store is no [Finder].
func (g guarded) Find(ctx context.Context, id string) (keys []string, ok bool, err error) {
	f, ok := g.store.(Finder)
	if !ok {
		return nil, false, nil
	}
	keys, err = bounded(ctx, func(ctx context.Context) ([]string, error) { return f.Find(ctx, id) })
	return keys, true, err
}

// Prune removes records. It fails if the store is no [Pruner].
func (g guarded) Prune(ctx context.Context, key string, upTo int64) error {
	p, ok := g.store.(Pruner)
	if !ok {
		return fmt.Errorf("the store cannot remove records: %w", errors.ErrUnsupported)
	}
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Prune(ctx, key, upTo) })
	return err
}
