package chain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/svc/internal/cause"
)

// Policy says how often and how long apart a call is tried.
type Policy struct {
	MaxAttempts int
	MinDelay    time.Duration
	MaxDelay    time.Duration
}

// checkRetry decides after each attempt whether there is to be another. It
// goes by what RoundTrip noted in the exchange: the error that net/http made of
// it holds the whole address.
func checkRetry(ctx context.Context, _ *http.Response, err error) (bool, error) {
	x := ctx.(*exchange)
	c := x.chain
	if err != nil && x.last == nil && x.StatusCode == 0 {
		x.last, x.local = err, true // net/http refused the request
	}
	x.again = c.worthRetrying(x) && c.schedule(x)
	if x.again && c.cfg.LogRetry != nil {
		c.cfg.LogRetry(x.Context, Attempt{Method: x.call.Method, Route: x.call.Route, Number: x.Attempts}, x.delay)
	}
	return x.again, nil
}

// worthRetrying is the table of what is retried.
func (c *Chain) worthRetrying(x *exchange) bool {
	limit := c.cfg.Retry.MaxAttempts
	if x.call.MaxAttempts > 0 {
		limit = x.call.MaxAttempts
	}
	switch {
	case x.Attempts >= limit, x.Context.Err() != nil, x.local:
		return false
	case x.last != nil:
		return !Hopeless(x.last) && (x.call.Once == nil || !x.Acted)
	case x.StatusCode == http.StatusTooManyRequests:
		return true
	default:
		return Transient(x.StatusCode) && x.call.Once == nil
	}
}

// Transient reports whether a status says that the same request may succeed
// later.
func Transient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// schedule sets the delay before the next attempt, and reports whether there
// can be one: the service may ask for more time than there is, and the budget
// may be spent.
func (c *Chain) schedule(x *exchange) bool {
	p := c.cfg.Retry
	bound := p.MaxDelay
	if shift := min(x.Attempts, 30); p.MinDelay<<shift>>shift == p.MinDelay {
		bound = min(bound, p.MinDelay<<shift)
	}
	x.delay = between(p.MinDelay, bound)
	if x.RetryAfter > 0 {
		if x.RetryAfter > p.MaxDelay {
			return false
		}
		x.delay = between(x.RetryAfter, min(x.RetryAfter+x.RetryAfter/10, p.MaxDelay))
	}
	if deadline, ok := x.Deadline(); ok && x.delay >= time.Until(deadline) {
		return false
	}
	cost := retryCost
	if cause.Has[*TimeoutError](x.last) {
		cost = timeoutCost
	}
	if !c.budget(x.call).take(cost) {
		return false
	}
	x.taken = cost
	return true
}

func (x *exchange) backoff(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return x.delay }

func between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + rand.N(high-low+1) //nolint:gosec // spreads load, guards nothing
}

// The retry budget: a bucket that retries empty and successes fill, so that
// many callers do not multiply the load on a service that is down.
const (
	budgetSize  = 500
	retryCost   = 5
	timeoutCost = 10
)

type budget struct {
	mu     sync.Mutex
	tokens int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// refund gives back what the retry that led to success had cost, or a little
// for a success without any.
func (b *budget) refund(n int) {
	b.mu.Lock()
	b.tokens = min(b.tokens+max(n, 1), budgetSize)
	b.mu.Unlock()
}

// retryAfter reads the header in both its forms. A date is measured against
// the clock of the one who sent it where the answer shows that clock.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		const most = 100 * 365 * 24 * time.Hour
		switch {
		case !(seconds > 0):
			return 0
		case seconds >= most.Seconds():
			return most
		}
		return time.Duration(seconds * float64(time.Second))
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now := time.Now()
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return max(date.Sub(now), 0)
}

// unsent reports whether an error certainly came before any byte of the request
// went out.
func unsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "socks connect" || op.Op == "proxyconnect") {
		return true
	}
	return cause.Has[*net.DNSError](err) || mistrusted(err)
}

// turnedDown reports whether an HTTP/2 server said that it did not process a
// request whose body it may have got. net/http, which would have repeated it with
// a second body, says so in words only.
func turnedDown(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "http2: Transport: cannot retry err [") && (strings.Contains(text, "; REFUSED_STREAM") ||
		strings.Contains(text, "graceful shutdown GOAWAY") || strings.Contains(text, "client conn not usable"))
}

// mistrusted reports whether a TLS handshake failed over who the other end is.
func mistrusted(err error) bool {
	for e := range cause.Tree(err) {
		switch e.(type) { //nolint:errorlint // Tree unwraps
		case *tls.CertificateVerificationError, x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
			return true
		}
	}
	return errors.Is(err, http.ErrSchemeMismatch)
}

// Hopeless reports whether an error would come back however often the request
// is tried: what the two ends are does not fit together.
func Hopeless(err error) bool {
	for e := range cause.Tree(err) {
		if _, ok := e.(tls.RecordHeaderError); ok { //nolint:errorlint // Tree unwraps
			return true
		}
	}
	return mistrusted(err) || turnedAway(err) || errors.Is(err, ErrTooLarge)
}

// turnedAway reports whether the other end refused a TLS handshake. The type of
// an alert is not exported.
func turnedAway(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return false
	}
	switch op.Err.Error() {
	case "tls: internal error", "tls: bad record MAC", "tls: unexpected message", "tls: user canceled":
		return false // that may pass
	}
	return true
}

// MaxDelay is the longest that a call waits between two attempts.
func (c *Chain) MaxDelay() time.Duration { return c.cfg.Retry.MaxDelay }
