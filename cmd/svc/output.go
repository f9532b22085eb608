package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
)

// output is standard output. A write to a closed pipe is not a failure, as with "| head". Any
// other failure of a write is kept.
type output struct {
	file *os.File

	mu     sync.Mutex
	failed error
}

// Write writes b. It blocks while nobody reads.
func (o *output) Write(b []byte) (int, error) {
	_, err := o.file.Write(b)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = unwritable{err}
	}
	return 0, o.failed
}

// err is the first failure of a write.
func (o *output) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// writeUntil writes text. It does not wait for a reader after ctx has ended.
func (o *output) writeUntil(ctx context.Context, text string) error {
	done := make(chan error, 1)
	go func() {
		_, err := o.Write([]byte(text))
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unwritable is a failure to write to standard output.
type unwritable struct{ error }

func (e unwritable) Error() string { return "standard output cannot be written: " + e.error.Error() }

func (e unwritable) Unwrap() error { return e.error }
