// Package apart runs code of the caller's in another goroutine than the caller's. A
// panic there would end the program, and [runtime.Goexit], as of a test that fails,
// would leave somebody waiting for ever: both are seen, and belong to who waits.
package apart

import (
	"fmt"
	"runtime"
)

// End is how a function ended.
type End struct {
	err      error
	panicked any
	exited   bool // its goroutine ended
}

// Run calls f and then done with how it ended, in this goroutine.
func Run(f func() error, done func(End)) {
	e := End{exited: true}
	defer func() {
		if e.exited {
			if e.panicked = recover(); e.panicked != nil {
				e.exited = false
			}
		}
		done(e)
	}()
	e.err = f()
	e.exited = false
}

// Here ends this goroutine as f ended its own, or returns what f did.
func (e End) Here() error {
	switch {
	case e.panicked != nil:
		panic(e.panicked)
	case e.exited:
		runtime.Goexit()
	}
	return e.err
}

// Err makes an error of every end but a good one. It says what ended so.
func (e End) Err(what string) error {
	switch {
	case e.panicked != nil:
		return fmt.Errorf("%s panicked: %v", what, e.panicked)
	case e.exited:
		return fmt.Errorf("%s ended its goroutine", what)
	}
	return e.err
}
