// Package poll paces a loop that looks at something until it has changed.
package poll

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/svc/internal/cause"
)

// Pacer says when to look again. The time between looks grows from Min to Max,
// each varied by a fifth either way so that many loops do not fall into step.
// The last look before the deadline of its context comes shortly before it.
type Pacer struct {
	ctx     context.Context //nolint:containedctx // a pacer lives as long as the loop it paces
	current time.Duration
	max     time.Duration
	looked  time.Time // when the look under way began
	last    bool      // the last look before the deadline is the one under way
}

// growth is how much longer each interval is than the one before.
const growth = 1.5

// minLead is how long before the deadline the last look begins at the latest.
const minLead = 50 * time.Millisecond

// New starts a loop: the first look begins now.
func New(ctx context.Context, lowest, highest time.Duration) *Pacer {
	return &Pacer{ctx: ctx, current: lowest, max: highest, looked: time.Now()}
}

// Next is how long to sleep until the next look, atLeast so long unless the
// deadline comes first.
func (p *Pacer) Next(atLeast time.Duration) time.Duration {
	d := p.current - p.current/5 + jitter(p.current/5*2)
	p.current = min(time.Duration(float64(p.current)*growth), p.max)
	if atLeast > d {
		d = atLeast + jitter(atLeast/10)
	}
	deadline, ok := p.ctx.Deadline()
	if !ok {
		return d
	}
	left := time.Until(deadline)
	took := time.Since(p.looked)
	if lead := min(max(2*took, minLead), left/2); d >= left-lead {
		if p.last {
			return left // nothing more to see
		}
		p.last = true
		return left - lead
	}
	return d
}

// Sleep waits for that long, or until the context ends: then it says why.
func (p *Pacer) Sleep(d time.Duration) error {
	if err := Sleep(p.ctx, d); err != nil {
		return err
	}
	p.looked = time.Now()
	return nil
}

// Sleep waits for d or until ctx ends, and then says why it did.
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
		<-ctx.Done() // its timer rings in the same moment
		return cause.Of(ctx)
	}
	return nil
}

func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most) //nolint:gosec // spreads load, guards nothing
}
