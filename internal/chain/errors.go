package chain

import (
	"errors"
	"fmt"
	"time"

	"example.com/svc/internal/cause"
)

// Errors that an attempt ends with beside those of the network.
var (
	ErrTooLarge   = errors.New("the answer is larger than 32 MiB")
	errNoResponse = errors.New("the transport returned neither an answer nor an error")
	errSealed     = errors.New("the request was given up before its body was sent")
)

// TimeoutError says that one attempt took too long.
type TimeoutError struct {
	After time.Duration
	Idle  bool // nothing moved for that long, as opposed to the whole attempt
}

func (e *TimeoutError) Error() string {
	if e.Idle {
		return fmt.Sprintf("no byte moved for %v", e.After)
	}
	return fmt.Sprintf("no complete answer within %v", e.After)
}

// Timeout makes it a net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// Temporary makes it a net.Error.
func (e *TimeoutError) Temporary() bool { return true }

// LocalError says that an attempt ended on this side, before anything was sent.
type LocalError struct {
	Doing string
	Err   error
}

func (e *LocalError) Error() string { return e.Doing + ": " + e.Err.Error() }

func (e *LocalError) Unwrap() error { return e.Err }

// interrupted says why there was no other attempt, and after which failure it
// was to be (nil: after an answer).
type interrupted struct{ cause, before error }

func (e *interrupted) Error() string {
	if e.before == nil {
		return e.cause.Error()
	}
	return e.cause.Error() + ", while waiting to try again after: " + e.before.Error()
}

func (e *interrupted) Unwrap() []error {
	if e.before == nil || cause.Has[*TimeoutError](e.before) { // the call ended for another reason than time
		return []error{e.cause}
	}
	return []error{e.cause, e.before}
}
