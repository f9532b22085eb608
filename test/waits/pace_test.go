package waits_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func TestManyWaitsDoNotPollTogether_B28(t *testing.T) {
	const waits, rounds, interval = 50, 6, 500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range waits {
			id := srv.AddEndpoint(svctest.Endpoint{Instances: 1, Status: svctest.StatusInitializing})
			running.Go(func() {
				_, _ = srv.Client().InferenceServices.WaitUntilAvailable(ctx, id, testkit.Every(interval))
			})
		}
		time.Sleep((rounds + 1) * interval)
		cancel()
		running.Wait()

		polls := map[string][]time.Time{}
		for _, r := range srv.Requests() {
			polls[r.Path] = append(polls[r.Path], r.Time)
		}
		require.Len(t, polls, waits)
		for round := 2; round < rounds-1; round++ { // from the third round on
			first, last := time.Now(), time.Time{}
			for path, at := range polls {
				require.Greater(t, len(at), round, path)
				if at[round].Before(first) {
					first = at[round]
				}
				if at[round].After(last) {
					last = at[round]
				}
			}
			require.GreaterOrEqual(t, last.Sub(first), interval/5, "round %d", round+1)
		}
	})
}

// Each delay between polls is as documented, with a tolerance of one fifth.
func TestIntervalsGrowUpToTheirLimit_B28(t *testing.T) {
	for name, tt := range map[string]struct {
		opts     *svc.WaitOptions
		min, max time.Duration
	}{
		"no options":          {nil, time.Second, 15 * time.Second},
		"zero":                {&svc.WaitOptions{}, time.Second, 15 * time.Second},
		"negative":            {&svc.WaitOptions{MinInterval: -1, MaxInterval: -time.Hour}, time.Second, 15 * time.Second},
		"both":                {&svc.WaitOptions{MinInterval: 100 * time.Millisecond, MaxInterval: 2 * time.Second}, 100 * time.Millisecond, 2 * time.Second},
		"only a small lowest": {&svc.WaitOptions{MinInterval: 100 * time.Millisecond}, 100 * time.Millisecond, 15 * time.Second},
		"only a large lowest": {&svc.WaitOptions{MinInterval: time.Minute}, time.Minute, time.Minute},
		"only a small limit":  {&svc.WaitOptions{MaxInterval: 300 * time.Millisecond}, 300 * time.Millisecond, 300 * time.Millisecond},
		"only a large limit":  {&svc.WaitOptions{MaxInterval: time.Hour}, time.Second, time.Hour},
		"limit below lowest":  {&svc.WaitOptions{MinInterval: 3 * time.Second, MaxInterval: time.Second}, 3 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: append(testkit.Times(40, testkit.EndpointIs("initializing")), testkit.EndpointIs("available"))}
				_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, 100*time.Hour), "svc-1", tt.opts)
				require.NoError(t, err)
				want := float64(tt.min)
				for i, gap := range s.Gaps() {
					require.InDelta(t, want, gap, want/5+1e3, "gap %d", i)
					want = math.Min(want*1.25, float64(tt.max))
				}
			})
		})
	}
}

func TestReadinessIsNoticedSoon_B28(t *testing.T) {
	for name, tt := range map[string]struct {
		opts              *svc.WaitOptions
		after, lag        time.Duration
		fewest, mostPolls int
	}{
		"limit of 1 s": {&svc.WaitOptions{MinInterval: 10 * time.Millisecond, MaxInterval: time.Second}, 5 * time.Second, 1500 * time.Millisecond, 10, 25},
		"by default":   {nil, 20 * time.Minute, 18 * time.Second, 70, 120},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1, Status: svctest.StatusInitializing})
				time.AfterFunc(tt.after, func() { srv.SetStatus(id, svctest.StatusAvailable) })
				start := time.Now()
				_, err := srv.Client().InferenceServices.WaitUntilAvailable(testkit.Within(t, time.Hour), id, tt.opts)
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(start), tt.after)
				require.LessOrEqual(t, time.Since(start), tt.after+tt.lag)
				polls := srv.RequestCount("GET", svctest.RouteEndpoint)
				require.GreaterOrEqual(t, polls, tt.fewest)
				require.LessOrEqual(t, polls, tt.mostPolls)
			})
		})
	}
}

// An interval without a unit, or one that overflows, does not cause a busy loop.
func TestOddIntervalsAreNoBusyLoop_B28(t *testing.T) {
	for name, tt := range map[string]struct {
		opts  *svc.WaitOptions
		polls int // the most polls within a minute
	}{
		"zero":     {&svc.WaitOptions{}, 15},
		"negative": {&svc.WaitOptions{MinInterval: -time.Second, MaxInterval: -1}, 15},
		"1 ns":     {&svc.WaitOptions{MinInterval: 1}, 120}, // the interval soon grows to seconds
		"largest":  {&svc.WaitOptions{MinInterval: math.MaxInt64, MaxInterval: math.MaxInt64}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := alwaysInitializing()
				ctx := testkit.Within(t, time.Minute)
				_, err := s.Services(t).WaitUntilAvailable(ctx, "svc-1", &svc.WaitOptions{
					MinInterval: tt.opts.MinInterval, MaxInterval: tt.opts.MaxInterval,
					OnPoll: func(p svc.Poll) {
						if p.Number > 1000 {
							panic("a busy loop")
						}
					},
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, len(s.Requests("GET")), tt.polls)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // without a deadline that could hide an overflow
		for range 20 {
			s := alwaysInitializing()
			opts := &svc.WaitOptions{MinInterval: math.MaxInt64}
			_, err := s.Services(t).WaitUntilAvailable(testkit.CancelAfter(t, 24*time.Hour, nil), "svc-1", opts)
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, s.Requests("GET"), 1)
		}
	})
}

// A change while a wait sleeps is seen by a last poll before the deadline.
func TestWaitPollsOnceMoreBeforeItsDeadline(t *testing.T) {
	for name, tt := range map[string]struct {
		deadline, change, took time.Duration
	}{
		"between two polls":        {10 * time.Second, 9900 * time.Millisecond, 0},
		"with one long interval":   {30 * time.Minute, 29*time.Minute + 59*time.Second, 0},
		"with slow polls":          {20 * time.Second, 17 * time.Second, time.Second},
		"before the second poll":   {time.Second, 900 * time.Millisecond, 0},
		"with very little time":    {20 * time.Millisecond, 5 * time.Millisecond, 0},
		"while the answer is slow": {20 * time.Second, 9 * time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1, Status: svctest.StatusInitializing})
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: tt.took, Times: -1})
				time.AfterFunc(tt.change, func() { srv.SetStatus(id, svctest.StatusAvailable) })
				_, err := srv.Client().InferenceServices.WaitUntilAvailable(testkit.Within(t, tt.deadline), id, testkit.Every(time.Hour))
				require.NoError(t, err)
				require.Equal(t, 2, srv.RequestCount("GET", svctest.RouteEndpoint), "one poll at the beginning, one at the end")
			})
		})
	}
}

// After the last poll before the deadline there are no further polls.
func TestWaitEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := alwaysInitializing()
		start := time.Now()
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Minute), "svc-1", testkit.Every(7*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		polls := s.Requests("GET")
		left := start.Add(time.Minute).Sub(polls[len(polls)-1].When)
		require.Positive(t, left)
		require.LessOrEqual(t, left, 50*time.Millisecond)
		require.LessOrEqual(t, len(polls), 13)
	})
}

func TestWaitRespectsRetryAfter(t *testing.T) {
	in := func(d time.Duration) func() string {
		return func() string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	}
	seconds := func(s string) func() string { return func() string { return s } }
	short := svc.WithRetry(svc.RetryPolicy{MaxDelay: 3 * time.Second})
	for name, tt := range map[string]struct {
		status   int
		header   func() string
		interval time.Duration
		opt      svc.Option
		from, to time.Duration // bounds of the delay after the response
	}{
		"429":                         {429, seconds("7"), time.Second, nil, 7 * time.Second, 7700 * time.Millisecond},
		"503":                         {503, seconds("7"), time.Second, nil, 7 * time.Second, 7700 * time.Millisecond},
		"date":                        {429, in(9 * time.Second), time.Second, nil, 8 * time.Second, 9900 * time.Millisecond},
		"shorter than the interval":   {429, seconds("1"), 10 * time.Second, nil, 8 * time.Second, 12 * time.Second},
		"an hour":                     {429, seconds("3600"), time.Second, nil, 30 * time.Second, 33 * time.Second},
		"an hour, with a short limit": {429, seconds("3600"), time.Second, short, 3 * time.Second, 3300 * time.Millisecond},
		"an hour, long intervals":     {429, seconds("3600"), time.Minute, short, 60 * time.Second, 72 * time.Second},
		"negative":                    {429, seconds("-5"), time.Second, nil, 800 * time.Millisecond, 1200 * time.Millisecond},
		"in the past":                 {429, in(-time.Hour), time.Second, nil, 800 * time.Millisecond, 1200 * time.Millisecond},
		"no number":                   {429, seconds("soon"), time.Second, nil, 800 * time.Millisecond, 1200 * time.Millisecond},
		"endless":                     {503, seconds(strings.Repeat("9", 20)), time.Second, nil, 30 * time.Second, 33 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Second - time.Duration(time.Now().Nanosecond())) // a date in Retry-After has no fraction of a second
				s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(tt.status, "Retry-After", tt.header()), testkit.EndpointIs("available")}}
				_, err := s.Services(t, tt.opt).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", testkit.Every(tt.interval))
				require.NoError(t, err)
				gap := s.Gaps()[0]
				require.GreaterOrEqual(t, gap, tt.from)
				require.LessOrEqual(t, gap, tt.to)
			})
		})
	}
}

// If Retry-After is later than the deadline, the wait still polls once, right before the
// deadline.
func TestWaitPollsBeforeItsDeadlineDespiteRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(429, "Retry-After", "25"), testkit.EndpointIs("available")}}
		start := time.Now()
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, 10*time.Second), "svc-1", nil)
		require.NoError(t, err)
		require.InDelta(t, 10*time.Second, time.Since(start), float64(60*time.Millisecond))
	})
}
