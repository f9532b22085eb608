package httpcall

import (
	"context"

	"example.com/svc/internal/poll"
)

// Resume sets the delays of a transfer that is cut off and continues, by the same policy as
// those between the attempts of a call. Progress resets the count.
type Resume struct {
	Caller *Caller
	Call   *Call

	failed int     // times in a row
	taken  float64 // from the retry budget
}

// Wait pauses after the transfer was cut off with err. It reports false if there
// is to be no further try.
func (r *Resume) Wait(ctx context.Context, err error) bool {
	r.failed++
	x := &exchange{Result: &Result{Attempts: r.failed}, ctx: ctx, caller: r.Caller, call: r.Call, last: err}
	if !x.worthRetrying() || !x.schedule() {
		return false
	}
	r.taken += x.taken
	return poll.Sleep(ctx, x.delay) == nil
}

// Progress notes that bytes have arrived.
func (r *Resume) Progress() {
	if r.failed > 0 {
		r.Caller.budgets[r.Call.Transfer].refund(r.taken)
		r.failed, r.taken = 0, 0
	}
}
