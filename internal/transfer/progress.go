package transfer

import "time"

// pace leaves out reports of progress that would follow too soon upon the one
// before. It is not safe for concurrent use.
type pace struct{ next time.Time }

// due reports whether it is time for another one, which is then made.
func (p *pace) due() bool {
	const pause = 100 * time.Millisecond
	now := time.Now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(pause)
	return true
}
