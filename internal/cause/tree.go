package cause

import (
	"errors"
	"iter"
)

// Tree yields err and everything it wraps, as errors.Is visits it.
func Tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) { walk(err, yield) }
}

func walk(err error, yield func(error) bool) bool {
	for err != nil {
		if !yield(err) {
			return false
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if !walk(err, yield) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// Has reports whether there is an E in the tree of err.
func Has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
