// Package cause says why something ended: a context, so that both questions of it
// can be answered, which kind of end it was and the cause that its owner gave; and
// anything else, by what is in the tree of its error.
package cause

import "context"

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
