package httpcall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
)

// Policy says how often and how long apart a call is tried.
type Policy struct {
	MaxAttempts int
	MinDelay    time.Duration
	MaxDelay    time.Duration
	Budget      int // retries of all calls together; less than 0: no limit
}

// checkRetry decides after each attempt whether there is another one. It uses what RoundTrip
// noted in the exchange, since the error of net/http holds the whole address.
func checkRetry(ctx context.Context, _ *http.Response, err error) (bool, error) {
	x := exchangeOf(ctx)
	if err != nil && x.last == nil && x.StatusCode == 0 {
		x.last, x.local = err, true // net/http refused the request
	}
	x.again = x.newToken() || x.worthRetrying() && x.schedule()
	x.tell()
	return x.again, nil
}

// newToken reports whether the call is repeated because the token source gives another
// token than the one that the service did not accept. A call that got 401 had no effect.
func (x *exchange) newToken() bool {
	if x.renewed || x.token == nil || x.last != nil || x.StatusCode != http.StatusUnauthorized || x.ctx.Err() != nil {
		return false
	}
	token, err := x.caller.cfg.Token(x.ctx)
	if err != nil || token == x.token() {
		return false
	}
	x.renewed, x.delay = true, 0
	return true
}

// worthRetrying is the table of what is retried.
func (x *exchange) worthRetrying() bool {
	limit := x.caller.cfg.Retry.MaxAttempts
	if x.call.MaxAttempts > 0 {
		limit = x.call.MaxAttempts
	}
	switch {
	case x.Attempts >= limit, x.ctx.Err() != nil, x.local:
		return false
	case x.last != nil:
		return !Hopeless(x.last) && !(x.call.Once && x.Acted)
	case x.StatusCode == http.StatusTooManyRequests:
		return true
	default:
		return Transient(x.StatusCode) && !x.call.Once
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

// schedule sets the delay before the next attempt, and reports whether there can be one. The
// service may ask for more time than there is, and the budget may be used up.
func (x *exchange) schedule() bool {
	p := x.caller.cfg.Retry
	bound := p.MaxDelay
	if shift := min(x.Attempts, 30); p.MinDelay<<shift>>shift == p.MinDelay {
		bound = min(bound, p.MinDelay<<shift)
	}
	x.delay = p.MinDelay + poll.Jitter(bound-p.MinDelay)
	if x.RetryAfter > 0 {
		if x.RetryAfter > p.MaxDelay {
			return false
		}
		x.delay = x.RetryAfter + poll.Jitter(min(x.RetryAfter/10, p.MaxDelay-x.RetryAfter))
	}
	if deadline, ok := x.ctx.Deadline(); ok && x.delay >= time.Until(deadline) {
		return false
	}
	switch {
	case x.last != nil && x.unsent: // it put no load on the service
		x.taken = 0
		return true
	case cause.Has[*TimeoutError](x.last):
		x.taken = 2
	default:
		x.taken = 1
	}
	x.NoBudget = !x.caller.budgets[x.call.Transfer].take(x.taken)
	return !x.NoBudget
}

// budget is a token bucket. Retries take from it, and successes and time fill it again. So
// many callers do not multiply the load on a service that is down.
type budget struct {
	mu     sync.Mutex
	size   float64 // less than 0: no limit
	tokens float64
	filled time.Time
}

const (
	refillTime  = 10 * time.Minute // for the whole bucket, without any success
	successGain = 0.2              // of a success that took no retry
)

func newBudget(size int) *budget {
	return &budget{size: float64(size), tokens: float64(size), filled: time.Now()}
}

func (b *budget) take(n float64) bool {
	if b.size < 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.tokens+b.size*float64(now.Sub(b.filled))/float64(refillTime), b.size)
	b.filled = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// refund gives back what the retry of a successful call took, or successGain if there was
// none.
func (b *budget) refund(n float64) {
	b.mu.Lock()
	b.tokens = min(b.tokens+max(n, successGain), b.size)
	b.mu.Unlock()
}

// retryAfter reads the header in both its forms. A date counts from the Date header of the
// response, if there is one.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		const most = 100 * 365 * 24 * 60 * 60 // a century
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, most) * float64(time.Second))
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

// neverSent reports whether an error certainly came before any byte of the request
// was sent.
func neverSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "socks connect" || op.Op == "proxyconnect") {
		return true
	}
	return cause.Has[*net.DNSError](err) || cause.Has[*ProxyError](err) || mistrusted(err)
}

// mistrusted reports whether a TLS handshake failed over who the other end is.
func mistrusted(err error) bool {
	return cause.Has[*tls.CertificateVerificationError](err) || cause.Has[x509.UnknownAuthorityError](err) ||
		cause.Has[x509.HostnameError](err) || cause.Has[x509.CertificateInvalidError](err) || errors.Is(err, http.ErrSchemeMismatch)
}

// Hopeless reports whether a retry would get the same error: the two ends do not fit
// together, or a proxy refuses.
func Hopeless(err error) bool {
	proxy, refused := errors.AsType[*ProxyError](err)
	return refused && !Transient(proxy.StatusCode) || cause.Has[tls.RecordHeaderError](err) ||
		mistrusted(err) || turnedAway(err) || errors.Is(err, ErrTooLarge)
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
func (c *Caller) MaxDelay() time.Duration { return c.cfg.Retry.MaxDelay }

// Resume sets the delays of a transfer that is cut off and continues, by the same policy as
// those between the attempts of a call. Progress resets the count.
type Resume struct {
	Caller *Caller
	Call   *Call

	failed int     // times in a row
	taken  float64 // from the retry budget
}

// Wait pauses after the transfer was cut off with err. It reports false if there
// is to be no further try.
func (r *Resume) Wait(ctx context.Context, err error) bool {
	r.failed++
	x := &exchange{Result: &Result{Attempts: r.failed}, ctx: ctx, caller: r.Caller, call: r.Call, last: err}
	if !x.worthRetrying() || !x.schedule() {
		return false
	}
	r.taken += x.taken
	return poll.Sleep(ctx, x.delay) == nil
}

// Progress notes that bytes have arrived.
func (r *Resume) Progress() {
	if r.failed > 0 {
		r.Caller.budgets[r.Call.Transfer].refund(r.taken)
		r.failed, r.taken = 0, 0
	}
}
