package httpcall

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokenCheckUsesTheTokenOfTheLastAttempt(t *testing.T) {
	tokens := []string{"first-token", "second-token"}
	next := 0
	c := newChain(transport(func(r *http.Request) (*http.Response, error) { return says(r, 429, "") }), func(cfg *Config) {
		cfg.Retry.MaxAttempts = len(tokens)
		cfg.Source = func(context.Context) (string, error) { next++; return tokens[next-1], nil }
	})
	r := c.Do(t.Context(), newCall("POST"))
	mac := hmac.New(sha256.New, []byte("second-token"))
	mac.Write([]byte("intent"))
	require.Equal(t, hex.EncodeToString(mac.Sum(nil))[:8], r.TokenCheck("intent"))
	require.NotEqual(t, r.TokenCheck("intent"), r.TokenCheck("other"))
	dump := fmt.Sprintf("%v %+v %#v", r, *r, *r)
	require.NotContains(t, dump, "-token")
	require.NotContains(t, dump, hex.EncodeToString([]byte("-token")))
}

func TestTokenCheckIsEmptyWithoutAToken(t *testing.T) {
	c := newChain(transport(func(r *http.Request) (*http.Response, error) { return says(r, 200, "") }), nil)
	k := newCall("GET")
	k.Auth = false
	require.Empty(t, c.Do(t.Context(), k).TokenCheck("intent"))
	require.Empty(t, new(Result).TokenCheck("intent"))
}

type limiter func(context.Context) error

func (f limiter) Wait(ctx context.Context) error { return f(ctx) }

func TestUrgentCallDoesNotAskTheLimiter(t *testing.T) {
	asked := 0
	c := newChain(transport(func(r *http.Request) (*http.Response, error) { return says(r, 429, "") }), func(cfg *Config) {
		cfg.Limiter = limiter(func(context.Context) error { asked++; return nil })
	})
	k := newCall("DELETE")
	k.Urgent = true
	require.Equal(t, 3, c.Do(t.Context(), k).Attempts)
	require.Zero(t, asked)
	c.Do(t.Context(), newCall("DELETE"))
	require.Equal(t, 3, asked)
}

// errTooSoon is the error of golang.org/x/time/rate if the deadline of ctx would pass first.
var errTooSoon = errors.New("rate: Wait(n=1) would exceed context deadline")

func TestRefusalOfTheLimiterBecauseOfADeadlineIsADeadline(t *testing.T) {
	for err, deadline := range map[error]bool{errTooSoon: true, errors.New("rate: Wait(n=1) exceeds limiter's burst 0"): false} {
		c := newChain(nil, func(cfg *Config) { cfg.Limiter = limiter(func(context.Context) error { return err }) })
		r := c.Do(t.Context(), newCall("GET"))
		require.ErrorIs(t, r.Fail, err)
		require.ErrorAs(t, r.Fail, new(*LocalError))
		require.Equal(t, deadline, errors.Is(r.Fail, context.DeadlineExceeded))
	}
}

func TestLimitOfAnAttempt_D03(t *testing.T) {
	hangs := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	slow := func(ctx context.Context) (string, error) {
		time.Sleep(8 * time.Second)
		return "token", ctx.Err()
	}
	fast := func(context.Context) (string, error) { return "token", nil }
	for name, tt := range map[string]struct {
		token   func(context.Context) (string, error)
		timeout time.Duration // of the call
		limiter time.Duration // how long the rate limiter takes
		takes   time.Duration
		missing string
		local   bool
	}{
		"the token source hangs":          {token: hangs, takes: 30 * time.Second, missing: "token", local: true},
		"the service hangs":               {token: fast, takes: 30 * time.Second},
		"source and service share it":     {token: slow, takes: 30 * time.Second},
		"the rate limiter does not count": {token: fast, limiter: time.Minute, takes: 90 * time.Second},
	} {
		for linger := range 2 {
			t.Run(fmt.Sprintf("%s, linger %d", name, linger), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newChain(transport(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }), func(cfg *Config) {
						cfg.Source, cfg.Limiter = tt.token, limiter(func(context.Context) error { time.Sleep(tt.limiter); return nil })
					})
					k := newCall("POST")
					k.Linger = time.Duration(linger) * time.Second
					start := time.Now()
					r := c.Do(t.Context(), k)
					require.Equal(t, tt.takes, time.Since(start))
					var late *TimeoutError
					require.ErrorAs(t, r.Fail, &late)
					require.Equal(t, tt.missing, late.Missing)
					require.NotErrorIs(t, r.Fail, context.DeadlineExceeded, "the deadline of the caller has not passed")
					require.Equal(t, tt.local, r.Attempts == 0)
					local, isLocal := errors.AsType[*LocalError](r.Fail)
					if require.Equal(t, tt.local, isLocal); isLocal {
						require.Equal(t, "token source", local.Doing)
					}
				})
			})
		}
	}
}
