package httpcall

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"example.com/svc/internal/cause"
)

// Errors of an attempt, beside those of the network.
var (
	ErrTooLarge   = errors.New("the response is larger than 32 MiB")
	errNoResponse = errors.New("the transport returned neither a response nor an error")
	errSealed     = errors.New("the request was canceled before its body was sent")
	errRefused    = errors.New("the server closed the HTTP/2 connection before it processed the request")
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
	return fmt.Sprintf("no complete response within %v", e.After)
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

// ProxyError says that a proxy refused to connect to the service.
type ProxyError struct {
	Proxy      string // its host; empty: not known
	StatusCode int
}

func (e *ProxyError) Error() string {
	return fmt.Sprintf("%s refused the connection: %d %s", strings.TrimSpace("the proxy "+e.Proxy), e.StatusCode, http.StatusText(e.StatusCode))
}

// explained gives two errors of net/http a type. The refusal of a proxy is only the text of
// its status. If an HTTP/2 server did not process a request, net/http asks for a GetBody that
// a create must not have.
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

// interrupted says why there was no further attempt. before is the failure of the attempt
// before it, nil if that got a response. A timeout in it is only text: it is not the reason
// for the end.
func interrupted(why, before error) error {
	switch {
	case before == nil:
		return why
	case cause.Has[*TimeoutError](before):
		return fmt.Errorf("%w, while waiting to try again after: %v", why, before) //nolint:errorlint // see above
	}
	return fmt.Errorf("%w, while waiting to try again after: %w", why, before)
}
