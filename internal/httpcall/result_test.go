package httpcall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var apiOrigin = url.URL{Scheme: "https", Host: "api.test"}

// newChain returns a Caller that uses rt and has a token.
func newChain(rt http.RoundTripper, change func(*Config)) *Caller {
	cfg := Config{
		Client: &http.Client{Transport: rt}, Origin: &apiOrigin, Timeout: 30 * time.Second, Redact: redact.New(),
		Token: func() string { return "token" },
		Retry: Policy{MaxAttempts: 3, MinDelay: 1, MaxDelay: 1, Budget: 100},
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func newCall(method string) *Call {
	return &Call{Method: method, Route: "/x", URL: apiOrigin.JoinPath("x"), Header: http.Header{}, Auth: true, Once: method == "POST", Body: []byte("{}")}
}

func says(r *http.Request, status int, body string) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: status, ProtoMajor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// The Result of a call can be read even if a hook or the transport panics. So the ID of a
// created endpoint is not lost.
func TestResultIsKnownWhenAHookPanics_C37(t *testing.T) {
	for name, tt := range map[string]struct {
		rt     transport
		hook   func(context.Context, Attempt)
		limits bool
		want   Result
	}{
		"hook after success":   {rt: func(r *http.Request) (*http.Response, error) { return says(r, 201, "the id") }, want: Result{attempt: attempt{StatusCode: 201, Body: []byte("the id")}, Attempts: 1}},
		"hook after a 503":     {rt: func(r *http.Request) (*http.Response, error) { return says(r, 503, "") }, want: Result{attempt: attempt{StatusCode: 503, Body: []byte{}}, Attempts: 1, Acted: true}},
		"hook after a 400":     {rt: func(r *http.Request) (*http.Response, error) { return says(r, 400, "") }, want: Result{attempt: attempt{StatusCode: 400, Body: []byte{}}, Attempts: 1}},
		"transport":            {rt: func(*http.Request) (*http.Response, error) { panic("transport") }, want: Result{Attempts: 1, Acted: true}},
		"limiter, before that": {limits: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(tt.rt, func(cfg *Config) {
				cfg.Hooks = []func(context.Context, Attempt){func(context.Context, Attempt) { panic("hook") }}
				if tt.limits {
					cfg.Limiter = panics{}
				}
			})
			call := newCall("POST")
			require.Panics(t, func() { c.Do(t.Context(), call) })
			r := call.Result
			r.Header, r.resp, r.sender = nil, nil, nil
			require.Equal(t, tt.want, r)
		})
	}
}

type panics struct{}

func (panics) Wait(context.Context) error { panic("limiter") }

// A request counts as possibly executed (Acted) from the moment when it is handed to the
// transport, until a response shows that it had no effect.
func TestActedWhileUnderWay(t *testing.T) {
	for _, method := range []string{"POST", "PUT"} {
		call := newCall(method)
		r := &call.Result
		c := newChain(transport(func(req *http.Request) (*http.Response, error) {
			require.Positive(t, r.Attempts)
			require.True(t, r.Acted)
			return says(req, 429, "")
		}), nil)
		c.Do(t.Context(), call)
		require.Equal(t, 3, r.Attempts)
		require.False(t, r.Acted)
	}
}

// Call.Before is called for each attempt, after the limiter and the token source. If it
// returns an error, the call ends and nothing more is sent.
func TestBefore(t *testing.T) {
	stop := errors.New("too late")
	for _, attempts := range []int{0, 1, 2} {
		sent, asked, tokens := 0, 0, 0
		c := newChain(transport(func(r *http.Request) (*http.Response, error) { sent++; return says(r, 429, "") }), func(cfg *Config) {
			cfg.Source = func(context.Context) (string, error) { tokens++; return "token", nil }
		})
		call := newCall("POST")
		call.Before = func() error {
			require.Equal(t, sent+1, tokens)
			if asked++; asked > attempts {
				return stop
			}
			return nil
		}
		r := c.Do(t.Context(), call)
		require.ErrorIs(t, r.Fail, stop)
		require.Equal(t, attempts, sent)
		require.Equal(t, attempts, r.Attempts)
		require.False(t, r.Acted)
		if attempts > 0 {
			require.Equal(t, 429, r.StatusCode, "the last response is kept")
		}
	}
}
