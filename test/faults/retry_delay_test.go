package faults_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// Each delay is random, evenly distributed between MinDelay and a bound. The bound
// doubles with each attempt, up to MaxDelay.
func TestDelays(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		policy svc.RetryPolicy
		min    time.Duration
		bounds []time.Duration
	}{
		"default":               {svc.RetryPolicy{MaxAttempts: 9}, s / 2, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s}},
		"short":                 {svc.RetryPolicy{MinDelay: s / 10, MaxDelay: s / 4}, s / 10, []time.Duration{s / 5, s / 4, s / 4, s / 4}},
		"only the shortest":     {svc.RetryPolicy{MaxAttempts: 3, MinDelay: 40 * s}, 40 * s, []time.Duration{40 * s, 40 * s}},
		"only the longest":      {svc.RetryPolicy{MaxAttempts: 3, MaxDelay: s / 5}, s / 5, []time.Duration{s / 5, s / 5}},
		"longest above default": {svc.RetryPolicy{MaxAttempts: 8, MaxDelay: 45 * s}, s / 2, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 45 * s}},
		"always the same":       {svc.RetryPolicy{MinDelay: s, MaxDelay: s}, s, []time.Duration{s, s, s, s}},
		"beyond all bounds":     {svc.RetryPolicy{MaxAttempts: 2, MinDelay: 1 << 61, MaxDelay: 1<<63 - 1}, 1 << 61, []time.Duration{1 << 62}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drawn := make([][]time.Duration, len(tt.bounds))
				for range 200 {
					service := testkit.Loop(t, testkit.Status(503))
					require.Error(t, testkit.OpGet.Do(t.Context(), service.Client(svc.WithRetry(tt.policy))))
					gaps := service.Gaps()
					require.Len(t, gaps, len(tt.bounds))
					for i, gap := range gaps {
						drawn[i] = append(drawn[i], gap)
					}
					if name == "beyond all bounds" {
						break // the fake clock would overflow
					}
				}
				for i, bound := range tt.bounds {
					low, high, width := slices.Min(drawn[i]), slices.Max(drawn[i]), bound-tt.min
					require.GreaterOrEqual(t, low, tt.min)
					require.LessOrEqual(t, high, bound)
					if len(drawn[i]) > 1 {
						require.LessOrEqual(t, low, tt.min+width/5, "the delays must cover the whole range")
						require.GreaterOrEqual(t, high, bound-width/5, "the delays must cover the whole range")
					}
				}
			})
		})
	}
}

func TestRetryAfter_B05(t *testing.T) {
	const s = time.Second
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start time in every synctest bubble
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, tt := range map[string]struct {
		value, sent string
		low, high   time.Duration // bounds of the delay; both 0: the call ends at once
		says        time.Duration
	}{
		"seconds":                      {value: "2", low: 2 * s, high: 2*s + s/5, says: 2 * s},
		"below the shortest delay":     {value: "0.25", low: s / 4, high: s/4 + s/40, says: s / 4},
		"the longest delay":            {value: "3", low: 3 * s, high: 3 * s, says: 3 * s},
		"a fraction":                   {value: "1.5", low: 1500 * time.Millisecond, high: 1650 * time.Millisecond, says: 1500 * time.Millisecond},
		"white space":                  {value: " 2 ", low: 2 * s, high: 2*s + s/5, says: 2 * s},
		"date":                         {value: date(2 * s), low: 2 * s, high: 2*s + s/5, says: 2 * s},
		"date by the service's clock":  {value: date(2*s - time.Hour), sent: date(-time.Hour), low: 2 * s, high: 2*s + s/5, says: 2 * s},
		"date, the service is ahead":   {value: date(2*s + time.Hour), sent: date(time.Hour), low: 2 * s, high: 2*s + s/5, says: 2 * s},
		"an hour":                      {value: "3600", says: time.Hour},
		"beyond the longest delay":     {value: "4", says: 4 * s},
		"a date beyond that":           {value: date(time.Hour), says: time.Hour},
		"longer than a Duration holds": {value: "99999999999999999999", says: 100 * 365 * 24 * time.Hour},
		"absent":                       {low: s, high: 2 * s},
		"zero":                         {value: "0", low: s, high: 2 * s},
		"negative":                     {value: "-5", low: s, high: 2 * s},
		"not a number":                 {value: "NaN", low: s, high: 2 * s},
		"nonsense":                     {value: "soon", low: s, high: 2 * s},
		"a date that is over":          {value: date(-time.Hour), low: s, high: 2 * s},
	} {
		t.Run(name, func(t *testing.T) {
			for _, code := range []int{429, 503} {
				synctest.Test(t, func(t *testing.T) {
					busy := testkit.Status(code)
					busy.Header = map[string]string{}
					if tt.value != "" {
						busy.Header["Retry-After"] = tt.value
					}
					if tt.sent != "" {
						busy.Header["Date"] = tt.sent
					}
					policy := svc.WithRetry(svc.RetryPolicy{MinDelay: s, MaxDelay: 3 * s})
					e := testkit.ErrorAs[*svc.Error](t, testkit.OpGet.Do(t.Context(), testkit.Loop(t, busy).Client(policy), svc.WithMaxAttempts(1)))
					require.Equal(t, tt.says, e.RetryAfter)
					service := testkit.Loop(t, busy)
					e = testkit.ErrorAs[*svc.Error](t, testkit.OpGet.Do(t.Context(), service.Client(policy), svc.WithMaxAttempts(2)))
					require.Equal(t, code, e.StatusCode)
					if tt.low == 0 {
						require.Empty(t, service.Gaps())
						require.Zero(t, time.Since(now), "the call ends at once")
						return
					}
					require.GreaterOrEqual(t, service.Gaps()[0], tt.low)
					require.LessOrEqual(t, service.Gaps()[0], tt.high)
				})
			}
		})
	}
}

// If the delay would last longer than the deadline of ctx, the call ends at once with the
// last error.
func TestDelayThatOutlastsTheDeadline(t *testing.T) {
	wait := func(code int, seconds string) testkit.Reply {
		return testkit.Reply{Status: code, Header: map[string]string{"Retry-After": seconds}}
	}
	for name, tt := range map[string]struct {
		replies []testkit.Reply
		want    error
		elapsed time.Duration
	}{
		"backoff":                     {[]testkit.Reply{testkit.Status(503)}, svc.ErrServer, 0},
		"Retry-After":                 {[]testkit.Reply{wait(429, "3")}, svc.ErrRateLimited, 0},
		"Retry-After to the deadline": {[]testkit.Reply{wait(429, "2")}, svc.ErrRateLimited, 0},
		"the second one":              {[]testkit.Reply{wait(503, "1.8"), testkit.Status(503)}, svc.ErrServer, 1800 * time.Millisecond},
		"lost":                        {[]testkit.Reply{testkit.Lost}, testkit.ErrReset.Err, 0},
		"refused":                     {[]testkit.Reply{testkit.Refused}, testkit.ErrRefused.Err, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				s := testkit.Play(t, tt.replies...)
				start := time.Now()
				err := testkit.OpGet.Do(ctx, s.Client(svc.WithRetry(svc.RetryPolicy{MinDelay: 2 * time.Second})))
				require.ErrorIs(t, err, tt.want)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, svc.ErrTimeout)
				require.InDelta(t, tt.elapsed, time.Since(start), float64(200*time.Millisecond))
			})
		})
	}
}

// All calls of a client share a retry budget. An outage uses it up, and successful calls
// fill it again.
func TestRetryBudget_C22(t *testing.T) {
	attempts := func(t *testing.T, c *svc.Client) int {
		var resp svc.Response
		_ = testkit.OpGet.Do(t.Context(), c, svc.WithResponse(&resp))
		return resp.Attempts
	}
	for name, tt := range map[string]struct {
		fault   testkit.Reply
		retries int
	}{
		"server errors": {testkit.Status(503), 100},
		"busy":          {testkit.Status(429), 100},
		"lost":          {testkit.Lost, 100},
		"refused":       {testkit.Refused, 160}, // attempts that certainly were not sent are not counted against the budget
		"no answer":     {testkit.Reply{After: testkit.Ages}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := testkit.Loop(t, tt.fault)
				// The delays are so short that time does not refill the budget.
				quick := []svc.Option{svc.WithRetry(svc.RetryPolicy{MinDelay: 1, MaxDelay: 1}), svc.WithTimeout(time.Millisecond)}
				client, other := down.Client(quick...), down.Client(quick...)
				for range 40 {
					attempts(t, client)
				}
				require.Equal(t, 40+tt.retries, len(down.Seen())) //nolint:testifylint // the list is long
				start := time.Now()
				if name != "refused" {
					require.Equal(t, 1, attempts(t, client))
					require.ErrorContains(t, testkit.OpGet.Do(t.Context(), client), "the retry budget of the client is used up")
					require.Equal(t, tt.fault.After > 0, time.Since(start) > 0, "without retries there are no delays")
				}
				require.Equal(t, 5, attempts(t, other), "each client has its own budget")
				time.Sleep(2 * time.Hour)
				require.Equal(t, 5, attempts(t, client), "time fills the budget as well")
				unlimited := down.Client(svc.WithRetry(svc.RetryPolicy{MinDelay: 1, MaxDelay: 1, Budget: -1}), svc.WithTimeout(time.Millisecond))
				for range 60 {
					require.Equal(t, 5, attempts(t, unlimited))
				}
			})
		})
	}
	t.Run("refilled by successes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testkit.Loop(t, testkit.Status(503))
			client := s.Client(svc.WithRetry(svc.RetryPolicy{MinDelay: 1, MaxDelay: 1}))
			for range 40 {
				attempts(t, client)
			}
			s.Replies[0] = testkit.OpGet.OK
			for range 9 { // a tenth success would allow two retries
				require.Equal(t, 1, attempts(t, client))
			}
			s.Replies[0] = testkit.Status(503)
			require.Equal(t, 2, attempts(t, client))
			require.Equal(t, 1, attempts(t, client))
		})
	})
	t.Run("a retry that helps costs nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var replies []testkit.Reply
			for range 300 {
				replies = append(replies, testkit.Status(503), testkit.OpGet.OK)
			}
			client := testkit.Play(t, replies...).Client()
			for range 300 {
				require.Equal(t, 2, attempts(t, client))
			}
		})
	})
	t.Run("never above its size", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testkit.Loop(t, testkit.OpGet.OK)
			client := s.Client(svc.WithRetry(svc.RetryPolicy{MinDelay: 1, MaxDelay: 1}))
			for range 300 {
				attempts(t, client)
			}
			s.Replies[0] = testkit.Status(503)
			for range 40 {
				attempts(t, client)
			}
			require.Equal(t, 300+40+100, len(s.Seen()), "successes add nothing to a full budget") //nolint:testifylint // the list is long
		})
	})
}
