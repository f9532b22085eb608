package poll_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/poll"
)

// next returns the next sleep of p, and checks that another poll follows it.
func next(t *testing.T, p *poll.Pacer, atLeast time.Duration) time.Duration {
	t.Helper()
	d, another := p.Next(t.Context(), 0, atLeast, 0)
	require.True(t, another)
	return d
}

func TestNextVaries(t *testing.T) {
	shortest, longest := time.Hour, time.Duration(0)
	for range 1000 {
		d := next(t, &poll.Pacer{Lowest: time.Second, Highest: time.Second}, 0)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	require.GreaterOrEqual(t, shortest, 800*time.Millisecond)
	require.Less(t, shortest, 850*time.Millisecond)
	require.LessOrEqual(t, longest, 1100*time.Millisecond)
	require.Greater(t, longest, 1080*time.Millisecond)
}

func TestNextIsAtLeastWhatWasAskedFor(t *testing.T) {
	shortest, longest := time.Hour, time.Duration(0)
	p := &poll.Pacer{Lowest: time.Second, Highest: time.Second}
	for range 1000 {
		d := next(t, p, 10*time.Second)
		shortest, longest = min(shortest, d), max(longest, d)
		require.LessOrEqual(t, next(t, p, 100*time.Millisecond), 1200*time.Millisecond, "a minimum below the interval has no effect")
	}
	require.GreaterOrEqual(t, shortest, 10*time.Second)
	require.LessOrEqual(t, longest, 11*time.Second)
	require.Greater(t, longest-shortest, 500*time.Millisecond, "clients that get the same Retry-After must not return at the same time")
}

// looks runs a loop of polls up to the deadline. Each poll takes the time took. It
// returns how long before the deadline each poll began.
func looks(t *testing.T, deadline, interval, took, atLeast time.Duration) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	end := time.Now().Add(deadline)
	p := poll.Pacer{Lowest: interval, Highest: interval}
	var before []time.Duration
	for more := true; ; {
		require.True(t, more, "Next said that no poll follows, but one did")
		before = append(before, time.Until(end))
		if poll.Sleep(ctx, took) != nil {
			return before
		}
		var d time.Duration
		if d, more = p.Next(ctx, took, atLeast, 0); poll.Sleep(ctx, d) != nil {
			require.False(t, more, "Next said that a poll follows, but none did")
			require.Zero(t, time.Until(end))
			return before
		}
	}
}

func TestTheLastPollComesShortlyBeforeTheDeadline(t *testing.T) {
	for name, tt := range map[string]struct {
		deadline, interval, took, atLeast time.Duration
		lead                              time.Duration // the last poll begins at most this long before the deadline
	}{
		"quick polls":            {time.Minute, 7 * time.Second, 0, 0, 50 * time.Millisecond},
		"a long interval":        {time.Minute, time.Hour, 0, 0, 50 * time.Millisecond},
		"slow polls":             {time.Minute, 7 * time.Second, 2 * time.Second, 0, 4 * time.Second},
		"very slow polls":        {time.Minute, time.Hour, 25 * time.Second, 0, 32 * time.Second},
		"asked to wait":          {time.Minute, time.Second, 0, time.Hour, 50 * time.Millisecond},
		"little time":            {30 * time.Millisecond, time.Second, 0, 0, 15 * time.Millisecond},
		"hardly any time":        {2, time.Second, 0, 0, 1},
		"intervals like the end": {time.Second, 480 * time.Millisecond, 0, 0, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					before := looks(t, tt.deadline, tt.interval, tt.took, tt.atLeast)
					last := before[len(before)-1]
					require.Greater(t, len(before), 1)
					require.LessOrEqual(t, last, tt.lead)
					require.Greater(t, last, tt.took, "the last poll has enough time before the deadline")
					if n := len(before); n > 2 { // the polls before the last one keep the interval
						require.LessOrEqual(t, n, 3+int(tt.deadline/(tt.interval*8/10)))
					}
				})
			}
		})
	}
}
