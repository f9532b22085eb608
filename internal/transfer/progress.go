package transfer

import "time"

// pause is the least time between two reports of progress.
const pause = 100 * time.Millisecond

// throttle leaves out reports that follow too soon upon the one before. It is
// not safe for concurrent use.
func throttle(f func(done, total int64)) func(done, total int64) {
	var next time.Time
	return func(done, total int64) {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(pause)
			f(done, total)
		}
	}
}
