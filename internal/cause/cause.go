// Package cause reports why a context ended, inspects and joins errors, and passes on what ends a goroutine.
package cause

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Of returns why ctx ended: its Err, joined with its cause if one was set. It returns nil if
// ctx has not ended.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if alone, ok := cause.(Alone); ok { //nolint:errorlint // the very same value
		return alone.Err
	}
	if err != nil && cause != err { //nolint:errorlint // the very same value
		return &ended{cause, err}
	}
	return err
}

// Alone is the cause of a context whose end is no deadline of the caller. Of returns only its Err,
// without context.DeadlineExceeded.
type Alone struct{ Err error }

func (a Alone) Error() string { return a.Err.Error() }

type ended struct{ cause, err error }

func (e *ended) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.err, e.cause} }

// Has reports whether err is an E or wraps one.
func Has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Join is like errors.Join, but its message is one line, and it returns a single error
// unchanged.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &several{errs}
}

type several struct{ errs []error }

func (e *several) Error() string {
	const most = 10 // more of them do not help to find the fault
	var texts []string
	for _, err := range e.errs[:min(len(e.errs), most)] {
		texts = append(texts, err.Error())
	}
	if more := len(e.errs) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (e *several) Unwrap() []error { return e.errs }

// Start calls f in a new goroutine. When f has ended, it sends a function with the same outcome to done: the function
// returns what f has returned, panics as f has, or calls [runtime.Goexit] as f has.
func Start[T any](f func() (T, error), done chan<- func() (T, error)) {
	go func() {
		outcome := func() (v T, err error) { runtime.Goexit(); return v, nil }
		defer func() {
			if p := recover(); p != nil {
				outcome = func() (T, error) { panic(p) }
			}
			done <- outcome
		}()
		v, err := f()
		outcome = func() (T, error) { return v, err }
	}()
}
