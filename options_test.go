package svc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
)

// The token source is called before every attempt, and a new token is used at once.
func TestWithTokenSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		source := func(context.Context) (string, error) { asked++; return "token-" + strings.Repeat("i", asked), nil }
		s := testkit.Play(t, testkit.Status(503), testkit.Lost, testkit.OpGet.OK, testkit.OpDelete.OK)
		client := s.Client(svc.WithTokenSource(source))
		require.Zero(t, asked, "NewClient must not call the token source")
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		require.NoError(t, testkit.OpDelete.Do(t.Context(), client))
		for i, r := range s.Seen() {
			require.Equal(t, []string{"Bearer token-" + strings.Repeat("i", i+1)}, r.Header["Authorization"])
		}
	})
	t.Run("the later option wins", func(t *testing.T) {
		s := testkit.Play(t, testkit.OpGet.OK, testkit.OpGet.OK)
		source := svc.WithTokenSource(func(context.Context) (string, error) { return "from-source", nil })
		require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(source)))
		require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(source, svc.WithToken("fixed"))))
		require.Equal(t, "Bearer from-source", s.Seen()[0].Header.Get("Authorization"))
		require.Equal(t, "Bearer fixed", s.Seen()[1].Header.Get("Authorization"))
	})
	t.Run("gets the ctx of the call", func(t *testing.T) {
		type key struct{}
		source := func(ctx context.Context) (string, error) { return ctx.Value(key{}).(string), nil }
		s := testkit.Play(t, testkit.OpGet.OK)
		require.NoError(t, testkit.OpGet.Do(context.WithValue(t.Context(), key{}, "mine"), s.Client(svc.WithTokenSource(source))))
		require.Equal(t, "Bearer mine", s.Seen()[0].Header.Get("Authorization"))
	})
}

// A client that repeats requests could create an endpoint twice.
func TestWithHTTPClientRefusesAClientThatRepeatsRequests(t *testing.T) {
	repeating := retryablehttp.NewClient()
	_, err := svc.NewClient("https://h", svc.WithToken(testkit.Token), svc.WithHTTPClient(repeating.StandardClient()))
	require.ErrorContains(t, err, "could create an endpoint twice")
	_, err = svc.NewClient("https://h", svc.WithToken(testkit.Token), svc.WithHTTPClient(repeating.HTTPClient))
	require.NoError(t, err)
}

// One client is safe for many concurrent callers, with a new token for each attempt.
func TestConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, exchanges atomic.Int32
		source := svc.WithTokenSource(func(context.Context) (string, error) { return fmt.Sprintf("token-%d", n.Add(1)), nil })
		hook := svc.WithAttemptHook(func(context.Context, svc.Attempt) { exchanges.Add(1) })
		client := testkit.Loop(t, testkit.Reply{Status: 503, Body: "token-1 token-99"}).Client(source, hook, svc.WithRateLimiter(testkit.Limiter(func(context.Context) error { return nil })))
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for _, op := range testkit.Operations {
					err := op.Do(t.Context(), client, svc.WithHeader("X-Mine", "1"))
					if e, ok := errors.AsType[*svc.Error](err); !ok || e.StatusCode != 503 {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		require.Equal(t, n.Load(), exchanges.Load())
		require.EqualValues(t, 50*4+100, exchanges.Load(), "one budget for all")
	})
}

// If the token source or the rate limiter fails, the call ends. No further attempt is
// sent, and the error keeps what the earlier attempts showed.
func TestAttemptThatIsNotMade(t *testing.T) {
	errBroken := errors.New("vault is sealed")
	after := func(n int) func(ctx context.Context) error {
		asked := 0
		return func(context.Context) error {
			if asked++; asked > n {
				return errBroken
			}
			return nil
		}
	}
	for name, option := range map[string]func(f func(ctx context.Context) error) svc.Option{
		"token source": func(f func(ctx context.Context) error) svc.Option {
			return svc.WithTokenSource(func(ctx context.Context) (string, error) { return testkit.Token, f(ctx) })
		},
		"rate limiter": func(f func(ctx context.Context) error) svc.Option { return svc.WithRateLimiter(testkit.Limiter(f)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, op := range testkit.Operations {
					start := time.Now()
					err := op.Do(t.Context(), testkit.Play(t).Client(option(after(0))))
					require.ErrorIs(t, err, errBroken)
					require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
					require.ErrorContains(t, err, name+": vault is sealed")
					require.Zero(t, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
					require.Zero(t, time.Since(start), "the attempt must not be repeated")

					err = op.Do(t.Context(), testkit.Play(t, testkit.Status(429)).Client(option(after(1))))
					require.ErrorIs(t, err, errBroken)
					require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
					require.ErrorIs(t, err, svc.ErrRateLimited)
					require.Equal(t, 1, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)

					err = op.Do(t.Context(), testkit.Play(t, testkit.Refused).Client(option(after(1))))
					require.ErrorIs(t, err, errBroken)
					require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
					require.ErrorIs(t, err, errno.ConnRefused)
				}
			})
		})
	}
}

// The limiter is called once per attempt and may block for long.
func TestWithRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		hold := testkit.Limiter(func(context.Context) error { asked++; time.Sleep(time.Minute); return nil })
		s := testkit.Play(t, testkit.Status(503), testkit.Lost, testkit.OpCreate.OK)
		client := s.Client(svc.WithRateLimiter(hold), svc.WithTimeout(time.Second), testkit.Tries(3, time.Second))
		require.NoError(t, testkit.OpGet.Do(t.Context(), client), "the time in the limiter does not count as time of the attempt")
		require.Equal(t, 3, asked)
		require.Equal(t, []time.Duration{61 * time.Second, 61 * time.Second}, s.Gaps())
	})
}

// The hook is called for every exchange, including redirects, and for nothing else.
func TestWithAttemptHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var got []svc.Attempt
		hook := svc.WithAttemptHook(func(ctx context.Context, a svc.Attempt) {
			require.Equal(t, "mine", ctx.Value(key{}))
			got = append(got, a)
		})
		ctx := context.WithValue(t.Context(), key{}, "mine")
		slow := testkit.OpGet.OK
		slow.After, slow.Header = 3*time.Second, map[string]string{"X-Request-Id": "req-3"}
		s := testkit.Play(t, testkit.Status(503), testkit.Reply{Status: 307, Header: map[string]string{"Location": "/elsewhere"}}, testkit.Lost, testkit.CutShort, slow, testkit.Status(404), testkit.Refused)
		client := s.Client(hook, testkit.Tries(4, time.Second))
		start := time.Now()
		require.NoError(t, testkit.OpGet.Do(ctx, client))
		require.Error(t, testkit.OpDelete.Do(ctx, client))
		require.Error(t, testkit.OpCreate.Do(ctx, client, svc.WithMaxAttempts(1)))

		type row struct {
			method, route string
			number        int
			status        int
			err           error
			start, took   time.Duration
			id            string
		}
		const one, all = "/v1/inference-service/{service_id}", "/v1/inference-service"
		want := []row{
			{"GET", one, 1, 503, nil, 0, 0, ""},
			{"GET", one, 2, 307, nil, time.Second, 0, ""},
			{"GET", one, 2, 0, errno.ConnReset, time.Second, 0, ""},
			{"GET", one, 3, 0, io.ErrUnexpectedEOF, 2 * time.Second, 0, ""},
			{"GET", one, 4, 200, nil, 3 * time.Second, 3 * time.Second, "req-3"},
			{"DELETE", one, 1, 404, nil, 6 * time.Second, 0, ""},
			{"POST", all, 1, 0, errno.ConnRefused, 6 * time.Second, 0, ""},
		}
		require.Len(t, got, len(want))
		for i, a := range got {
			require.ErrorIs(t, a.Err, want[i].err)
			require.Equal(t, want[i].err == nil, a.Err == nil)
			want[i].err = nil
			seen := row{a.Method, a.Route, a.Number, a.StatusCode, nil, a.Start.Sub(start), a.Duration, a.RequestID}
			require.Equal(t, want[i], seen)
			require.Equal(t, "api.test", a.Host)
		}
	})
}

// The log has a line for each exchange and each retry, with the route in place of the
// path.
func TestWithLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		busy := testkit.Reply{Status: 503, Body: "secret body", Header: map[string]string{"X-Request-Id": "req-1", "Retry-After": "2"}, After: time.Second}
		s := testkit.Play(t, busy, testkit.Lost, testkit.OpGet.OK)
		require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(svc.WithLogger(logger), testkit.Tries(3, 2*time.Second)), svc.WithQuery("q", "private")))
		const call = "method=GET route=/v1/inference-service/{service_id} "
		require.Equal(t, strings.Join([]string{
			`level=INFO msg="svc: trying again" ` + call + `call=1 attempt=1 status=503 duration=1s id=svc-1 request_id=req-1 delay=2s`,
			`level=INFO msg="svc: trying again" ` + call + `call=1 attempt=2 status=0 duration=0s id=svc-1 error="read tcp: connection reset by peer" delay=2s`,
			`level=DEBUG msg="svc: exchange" ` + call + `call=1 attempt=3 status=200 duration=0s id=svc-1`,
			``,
		}, "\n"), log.String())
	})
}

// The caller's http.Client is read at every request, and is never changed.
func TestWithHTTPClient(t *testing.T) {
	first, second := testkit.Play(t, testkit.OpGet.OK), testkit.Play(t, testkit.OpGet.OK, testkit.OpGet.OK)
	never := func(*http.Request, []*http.Request) error { panic("not asked") }
	hc := &http.Client{Transport: first, CheckRedirect: never, Timeout: time.Hour}
	client := testkit.ClientAt(t, "https://api.test", svc.WithHTTPClient(hc))
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
	hc.Transport = second
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
	client.CloseIdleConnections()
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
	require.Same(t, second, hc.Transport)
	require.Equal(t, time.Hour, hc.Timeout)
	require.Nil(t, hc.Jar)

	hc.Transport = nil // nil: the library's own transport is used
	client = testkit.ClientAt(t, "http://"+testkit.ClosedPort, svc.WithHTTPClient(hc), testkit.Tries(1, 0))
	require.ErrorIs(t, testkit.OpGet.Do(t.Context(), client), errno.ConnRefused)
	hc.Transport = testkit.Play(t)
	client = testkit.ClientAt(t, "http://"+testkit.ClosedPort, svc.WithHTTPClient(hc), testkit.Tries(1, 0))
	hc.Transport = nil // also if Transport was set when the client was made
	require.ErrorIs(t, testkit.OpGet.Do(t.Context(), client), errno.ConnRefused)
}

// The cookie jar is used at every attempt and every redirect.
func TestJar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		u, _ := url.Parse("https://api.test/")
		jar.SetCookies(u, []*http.Cookie{{Name: "a", Value: "1"}})
		set := func(r testkit.Reply, cookie string) testkit.Reply {
			r.Header = map[string]string{"Set-Cookie": cookie}
			return r
		}
		hop := set(testkit.Reply{Status: 302}, "c=3; Path=/")
		hop.Header["Location"] = testkit.OpGet.Path + "?again"
		s := testkit.Play(t, set(testkit.Status(503), "b=2; Path=/"), hop, set(testkit.OpGet.OK, "a=; Max-Age=0; Path=/"), testkit.OpGet.OK)
		client := testkit.ClientAt(t, "https://api.test", svc.WithHTTPClient(&http.Client{Transport: s, Jar: jar}))
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		var sent [][]string
		for _, r := range s.Seen() {
			sent = append(sent, r.Header["Cookie"])
		}
		require.Equal(t, [][]string{{"a=1"}, {"a=1; b=2"}, {"a=1; b=2; c=3"}, {"b=2; c=3"}}, sent)
	})
}

// A client without a logger writes nothing to stdout, stderr or the default logger.
func TestSilence_B07(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout, stderr, def := os.Stdout, os.Stderr, slog.Default()
	var log strings.Builder
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))) // this also redirects package log
	os.Stdout, os.Stderr = w, w
	defer func() { os.Stdout, os.Stderr = stdout, stderr; slog.SetDefault(def) }()
	synctest.Test(t, func(t *testing.T) {
		for _, op := range testkit.Operations {
			for _, fault := range []testkit.Reply{testkit.Refused, testkit.Lost, testkit.CutShort, {After: testkit.Ages}, {Body: "{", Stall: true}} {
				_ = op.Do(t.Context(), testkit.Loop(t, fault).Client())
			}
			for code := 300; code < 600; code++ {
				_ = op.Do(t.Context(), testkit.Loop(t, testkit.Status(code)).Client())
			}
		}
	})
	require.NoError(t, w.Close())
	written, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, string(written)+log.String())
}
