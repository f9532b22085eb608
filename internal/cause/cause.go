// Package cause says why something ended. For a context it gives the kind of the end and
// the cause that its owner set.
package cause

import (
	"context"
	"errors"
)

// Of is the reason for which ctx ended: its Err, with the owner's cause in front
// of it where that is another. It is nil while ctx lives.
func Of(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && cause != err { //nolint:errorlint // the very same value
		return &ended{cause, err}
	}
	return err
}

type ended struct{ cause, err error }

func (e *ended) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.err, e.cause} }

// Has reports whether err is an E or wraps one.
func Has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
