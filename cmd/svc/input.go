package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// inTime returns what get returns. If ctx ends first, it returns the cause, and get goes on in the background: a pipe without
// a writer blocks the program that opens or reads it. A get that needs no wait succeeds with a ctx that has ended, too.
func inTime[T any](ctx context.Context, get func() (T, error)) (T, error) {
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
		return none, context.Cause(ctx)
	}
}

// badInput returns the error of an input that the command line names: the caller's mistake, unless ctx has ended.
func badInput(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return usageError{err}
}

// open opens a file for reading.
func open(ctx context.Context, name string) (*os.File, error) {
	return inTime(ctx, func() (*os.File, error) { return os.Open(name) })
}

// readFile reads a file of at most limit bytes.
func readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, err := open(ctx, name)
	if err != nil {
		return nil, unread(ctx, name, err)
	}
	defer f.Close()
	return readLimited(ctx, f, name, limit)
}

func readLimited(ctx context.Context, r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := inTime(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit+1)) })
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %s", name, size(limit))
	}
	return b, unread(ctx, name, err)
}

// unread names the file that was not read when ctx ended.
func unread(ctx context.Context, name string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%s is not read to its end: %w", name, err)
}
