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
	n, err := o.put(b)
	if errors.Is(err, errReaderGone) {
		return len(b), nil
	}
	return n, err
}

// put is Write, but returns errReaderGone for a closed pipe.
func (o *output) put(b []byte) (n int, err error) {
	n, err = o.file.Write(b)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, syscall.EPIPE):
		return n, errReaderGone
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = unwritable{err}
	}
	return n, o.failed
}

var errReaderGone = errors.New("the reader of standard output has closed it")

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
