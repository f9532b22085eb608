package transfer

import "time"

// progress reports how far a transfer is: at most ten times a second, and once at the
// end. It is not safe for concurrent use.
type progress struct {
	f    func(done, total int64) // nil: nobody wants to know
	next time.Time
}

func (p *progress) report(done, total int64) {
	const pause = 100 * time.Millisecond
	if now := time.Now(); p.f != nil && !now.Before(p.next) {
		p.next = now.Add(pause)
		p.f(done, total)
	}
}

func (p *progress) end(total int64) {
	if p.f != nil {
		p.f(total, total)
	}
}
