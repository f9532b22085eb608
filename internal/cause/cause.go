// Package cause reports why a context ended, and inspects and joins errors.
package cause

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Of returns why ctx ended: its Err, joined with its cause if one was set. It returns nil if
// ctx has not ended.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if own, ok := cause.(*limit); ok { //nolint:errorlint // the very same value
		return own.error
	}
	if err != nil && cause != err { //nolint:errorlint // the very same value
		return &ended{cause, err}
	}
	return err
}

// Limit returns a copy of ctx that ends at the given time at the latest. Of then returns only err,
// since context.DeadlineExceeded would mean that a deadline of the caller has passed.
func Limit(ctx context.Context, at time.Time, err error) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && !deadline.After(at) {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, at, &limit{err})
}

type limit struct{ error }

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
