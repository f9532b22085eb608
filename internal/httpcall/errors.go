package httpcall

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/svc/internal/cause"
)

// Errors of an attempt, in addition to those of the network.
var (
	ErrTooLarge   = errors.New("the response is larger than 32 MiB")
	errNoResponse = errors.New("the transport returned neither a response nor an error")
	errSealed     = errors.New("the request was canceled before its body was sent")
	errRefused    = errors.New("the server closed the HTTP/2 connection before it processed the request")
)

// A TimeoutError records that one attempt took too long.
type TimeoutError struct {
	After   time.Duration
	Idle    bool   // whether no byte moved for After; if false, the whole attempt took longer than After
	Missing string // what did not come in time; if empty, a complete response
}

func (e *TimeoutError) Error() string {
	if e.Idle {
		return fmt.Sprintf("no byte sent or received for %v", e.After)
	}
	return fmt.Sprintf("no %s within %v", cmp.Or(e.Missing, "complete response"), e.After)
}

// Timeout makes TimeoutError a net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// Temporary makes TimeoutError a net.Error.
func (e *TimeoutError) Temporary() bool { return true }

// A LocalError records that an attempt failed in this process: the rate limiter, the token source
// or the body of the request failed.
type LocalError struct {
	Doing string // what failed: "rate limiter", "token source", "reading the body", …
	Err   error
}

func (e *LocalError) Error() string { return e.Doing + ": " + e.Err.Error() }

func (e *LocalError) Unwrap() error { return e.Err }

// A ProxyError records that a proxy refused to connect to the service.
type ProxyError struct {
	Proxy      string // host of the proxy; empty if not known
	StatusCode int
}

func (e *ProxyError) Error() string {
	return fmt.Sprintf("%s refused the connection: %d %s", strings.TrimSpace("the proxy "+e.Proxy), e.StatusCode, http.StatusText(e.StatusCode))
}

// explained returns a typed error for two errors of net/http that have no type. If a proxy
// refuses a connection, the message is the status text of the proxy. If an HTTP/2 server did
// not process a create, the message is about a missing GetBody.
func explained(err error) error {
	text := err.Error()
	if strings.HasPrefix(text, "http2: Transport: cannot retry err [") && (strings.Contains(text, "; REFUSED_STREAM") ||
		strings.Contains(text, "graceful shutdown GOAWAY") || strings.Contains(text, "client conn not usable")) {
		return errRefused
	}
	for status := 400; status < 600; status++ {
		if text == http.StatusText(status) && text != "" {
			return &ProxyError{StatusCode: status}
		}
	}
	return err
}

// interrupted returns why there was no further attempt. before is the error of the last attempt,
// or nil if that attempt got a response. If before is a timeout, it is not wrapped: the timeout
// did not end the call, so errors.Is must not find it.
func interrupted(why, before error) error {
	switch {
	case before == nil:
		return why
	case cause.Has[*TimeoutError](before):
		return fmt.Errorf("%w, while waiting to try again after: %v", why, before) //nolint:errorlint // see above
	}
	return fmt.Errorf("%w, while waiting to try again after: %w", why, before)
}
