// Package poll computes the intervals of a polling loop.
package poll

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/svc/internal/cause"
)

// A Pacer computes the time until the next poll. The interval grows from Lowest to Highest. Each
// interval is made up to a fifth shorter or a tenth longer at random, so that many loops do not poll
// at the same moment. The last poll comes shortly before the deadline of the context.
type Pacer struct {
	Lowest, Highest time.Duration

	current time.Duration
	last    bool // the current poll is the last one before the deadline
}

// longest bounds the intervals, so that no arithmetic with them overflows a Duration.
const longest = 100 * 365 * 24 * time.Hour

// minLead is how long before the deadline the last poll begins at the latest.
const minLead = 50 * time.Millisecond

// Next returns how long to sleep before the next poll, if the current one took this long: at least
// atLeast, and at most atMost (0 means no upper limit). It is shorter if the deadline of ctx comes
// first. If there is no time for another poll, another is false and d is the time until the deadline.
func (p *Pacer) Next(ctx context.Context, took, atLeast, atMost time.Duration) (d time.Duration, another bool) {
	current := min(max(p.current, p.Lowest), longest)
	share := rand.Float64() //nolint:gosec // spreads load, guards nothing
	d = current - current/5 + time.Duration(share*float64(current)*3/10)
	p.current = min(current+current/4+1, p.Highest) // a quarter longer; the 1 makes even the shortest interval grow
	if atLeast > d {
		d = atLeast + time.Duration(share*float64(atLeast)/10)
	}
	if atMost > 0 {
		d = min(d, atMost)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return d, true
	}
	left, lead := max(time.Until(deadline), 0), max(2*took, minLead)
	if lead > left/2 { // time is short: leave room for a poll that takes as long as the current one
		lead = max(left/2, min(took+took/4, left))
	}
	if d >= left-lead {
		if p.last {
			return left, false
		}
		p.last = true
		return left - lead, true
	}
	return d, true
}

// Sleep waits for d, or until ctx ends. Then it returns why ctx ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return cause.Of(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return cause.Of(ctx)
	case <-timer.C:
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // the timer of ctx fires at this moment as well
		return cause.Of(ctx)
	}
	return nil
}

// Jitter returns a random duration from 0 to most.
func Jitter(most time.Duration) time.Duration {
	return rand.N(max(most, 1)) //nolint:gosec // spreads load, guards nothing
}
