package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// inTime returns what get returns, which opens or reads a file. If ctx ends first, the error names the file, and get goes on in
// the background: a pipe without a writer blocks it. A get that needs no wait succeeds with a ctx that has ended, too.
func inTime[T any](ctx context.Context, name string, get func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := get()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(200 * time.Millisecond):
		var none T
		return none, fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx))
	}
}

// badInput returns the error of an input that the command line names: the caller's mistake, unless a ctx has ended.
func badInput(err error) error {
	if err == nil || isEnd(err) {
		return err
	}
	return usageError{err}
}

// isEnd reports whether an error is the end of a ctx.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// open opens a file for reading.
func open(ctx context.Context, name string) (*os.File, error) {
	return inTime(ctx, name, func() (*os.File, error) { return os.Open(name) })
}

// readFile reads a file of at most limit bytes.
func readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(ctx, f, name, limit)
}

func readLimited(ctx context.Context, r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := inTime(ctx, name, func() ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit+1)) })
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %s", name, size(limit))
	}
	return b, err
}
