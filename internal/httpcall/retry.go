package httpcall

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
)

// Policy sets how many attempts a call gets, and how long the delays between them are.
type Policy struct {
	MaxAttempts int
	MinDelay    time.Duration
	MaxDelay    time.Duration
	Budget      int // size of the two retry budgets, for API calls and for transfers; less than 0 means no limit
}

// WithDefaults returns the policy with the default in place of each zero.
func (p Policy) WithDefaults() Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 5)
	p.MinDelay = cmp.Or(p.MinDelay, min(500*time.Millisecond, cmp.Or(p.MaxDelay, time.Second)))
	p.MaxDelay = cmp.Or(p.MaxDelay, max(30*time.Second, p.MinDelay))
	p.Budget = cmp.Or(p.Budget, 100)
	return p
}

// Valid reports whether a policy has at least one attempt, and 0 <= MinDelay <= MaxDelay.
func (p Policy) Valid() bool {
	return p.MaxAttempts > 0 && p.MinDelay >= 0 && p.MaxDelay >= p.MinDelay
}

// checkRetry decides after each attempt whether there is another one. It uses the error that
// RoundTrip noted in the exchange: the error of net/http holds the whole address, which may be
// a secret.
func checkRetry(ctx context.Context, _ *http.Response, err error) (bool, error) {
	x := exchangeOf(ctx)
	if err != nil && x.err == nil && x.StatusCode == 0 {
		x.err, x.local = err, true // net/http refused the request
	}
	x.again = false
	switch {
	case x.StatusCode/100 == 2:
	case x.newToken():
		x.again = true
	case x.worthRetrying():
		x.again = x.schedule()
	}
	x.tell()
	return x.again, nil
}

// newToken reports whether to repeat a call because the service rejected its token and the token
// source now returns another one. The repeat is safe: a call that got 401 had no effect.
func (x *exchange) newToken() bool {
	switch {
	case x.renewed, x.caller.cfg.Source == nil, x.sender == nil, x.err != nil, x.ctx.Err() != nil:
		return false
	case x.StatusCode != http.StatusUnauthorized, x.call.Once && x.Acted:
		return false
	}
	next, err := x.caller.askToken(x, time.Now().Add(x.late.After))
	if err != nil || next.token() == x.sender.token() {
		return false
	}
	x.renewed, x.delay = true, 0
	return true
}

// worthRetrying reports whether the outcome of the latest attempt allows another attempt.
func (x *exchange) worthRetrying() bool {
	limit := cmp.Or(x.call.MaxAttempts, x.caller.cfg.Retry.MaxAttempts)
	switch {
	case x.Attempts >= limit, x.ctx.Err() != nil, x.local, x.call.Once && x.Acted:
		return false
	case x.err != nil:
		return !Persistent(x.err)
	}
	return Transient(x.StatusCode)
}

// Transient reports whether the same request may succeed later, after this status.
func Transient(status int) bool { return slices.Contains(transient, status) }

var transient = []int{
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// schedule sets the delay before the next attempt, and reports whether there can be one. There
// is none if Retry-After is longer than MaxDelay, if ctx ends during the delay, or if the
// retry budget is used up.
func (x *exchange) schedule() bool {
	p := x.caller.cfg.Retry
	bound := time.Duration(min(float64(p.MaxDelay), float64(p.MinDelay)*math.Exp2(float64(x.Attempts))))
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
	case x.outcome == notSent: // the attempt put no load on the service
		x.taken = 0
		return true
	case cause.Has[*TimeoutError](x.err):
		x.taken = 2
	default:
		x.taken = 1
	}
	x.NoBudget = !x.lane.budget.take(x.taken)
	return !x.NoBudget
}

// budget is a token bucket. Retries take tokens from it; successes and time fill it again. It
// keeps many callers from multiplying the load on a service that is down.
type budget struct {
	mu     sync.Mutex
	size   float64 // less than 0 means no limit
	tokens float64
	filled time.Time
}

const (
	refillTime  = 10 * time.Minute // an empty bucket is full again after this time, even without a success
	successGain = 0.2              // tokens that a success adds if the call took none
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

// refund adds the tokens for a successful call: the n tokens that its retry took, but at least
// successGain.
func (b *budget) refund(n float64) {
	b.mu.Lock()
	b.tokens = min(b.tokens+max(n, successGain), b.size)
	b.mu.Unlock()
}

// retryAfter reads the Retry-After header, which holds a number of seconds or a date. The delay
// until a date counts from the Date header of the response; if there is none, from now.
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
	date, _ := http.ParseTime(text)          // zero if it is no date
	sent, _ := http.ParseTime(h.Get("Date")) // zero if there is none
	return max(date.Sub(cmp.Or(sent, time.Now())), 0)
}

// beforeSending are the operations of a net.OpError in which no byte of a request is sent.
var beforeSending = []string{"dial", "socks connect", "proxyconnect"}

// neverSent reports whether an error occurred before any byte of the request was sent.
func neverSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && slices.Contains(beforeSending, op.Op) {
		return true
	}
	return cause.Has[*net.DNSError](err) || cause.Has[*ProxyError](err) || untrusted(err)
}

// untrusted reports whether the server was not authenticated: its certificate is not valid, or
// it does not use TLS.
func untrusted(err error) bool {
	switch {
	case cause.Has[*tls.CertificateVerificationError](err), cause.Has[x509.UnknownAuthorityError](err),
		cause.Has[x509.HostnameError](err), cause.Has[x509.CertificateInvalidError](err):
		return true
	}
	return errors.Is(err, http.ErrSchemeMismatch)
}

// Persistent reports whether a retry would get the same error: client and server cannot agree on
// TLS, a proxy refuses the connection, or the response is too large.
func Persistent(err error) bool {
	if proxy, refused := errors.AsType[*ProxyError](err); refused {
		return !Transient(proxy.StatusCode)
	}
	switch {
	case cause.Has[tls.RecordHeaderError](err), untrusted(err), handshakeRefused(err):
		return true
	}
	return errors.Is(err, ErrTooLarge)
}

// handshakeRefused reports whether the server refused the TLS handshake. It compares error strings,
// since crypto/tls does not export the type.
func handshakeRefused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return false
	}
	passing := []string{"tls: internal error", "tls: bad record MAC", "tls: unexpected message", "tls: user canceled"}
	return !slices.Contains(passing, op.Err.Error())
}

// MaxDelay is the longest delay between two attempts of a call.
func (c *Caller) MaxDelay() time.Duration { return c.cfg.Retry.MaxDelay }

// Resume pauses before a download that was cut off continues. The number and the length of the
// pauses follow the retry policy of calls. Progress resets the count of failures.
type Resume struct {
	Caller *Caller
	failed int     // number of times in a row the transfer was cut off
	taken  float64 // tokens taken from the retry budget since the last progress
}

// Wait pauses after the transfer was cut off with err. It returns false if the transfer must
// not be continued, or if ctx ended during the pause.
func (r *Resume) Wait(ctx context.Context, err error) bool {
	r.failed++
	x := &exchange{
		Result: &Result{attempt: attempt{outcome: lost, err: err}, Attempts: r.failed},
		ctx:    ctx, caller: r.Caller, call: new(Call), lane: &r.Caller.transfers,
	}
	if !x.worthRetrying() || !x.schedule() {
		return false
	}
	r.taken += x.taken
	return poll.Sleep(ctx, x.delay) == nil
}

// Progress records that bytes have arrived.
func (r *Resume) Progress() {
	if r.failed > 0 {
		r.Caller.transfers.budget.refund(r.taken)
		r.failed, r.taken = 0, 0
	}
}
