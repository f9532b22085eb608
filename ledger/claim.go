package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
)

// ErrKeyInUse is returned when a key has an endpoint of another request, or two open entries.
var ErrKeyInUse = errors.New("svc: the key is in use")

// Await returns the verdict of judge for a create. If another create under the key is under way,
// Await calls begins once, which returns the service's clock, and reads the ledger until the other
// create has an outcome. The verdict is never Wait, unless the ledger cannot be read. If it is
// Free, last is the highest Seq of the key. If it is Resume, the entry has the lease now, unless
// its own ends later. If it is InDoubt or InUse, the error is the reason.
func (j *Journal) Await(ctx context.Context, key string, lease time.Duration, want Request, begins func(context.Context, Entry) func() time.Time) (v Verdict, e Entry, last int64, err error) {
	pace := poll.Pacer{Lowest: 50 * time.Millisecond, Highest: time.Second}
	date := func() time.Time { return time.Time{} }
	for waits := false; ; waits = true {
		began := time.Now()
		entries, last, err := j.Read(ctx, key)
		switch {
		case err == nil:
		case waits && ctx.Err() != nil:
			return InDoubt, e, 0, cause.Of(ctx)
		default:
			return Wait, e, 0, err
		}
		var why string
		switch v, e, why = judge(entries, j.baseURL, want, date()); v {
		case InDoubt:
			err = fmt.Errorf("look for %s in the console of the service at %s, then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", cmp.Or(e.ServiceID, "the endpoint"), e.BaseURL)
		case InUse:
			err = j.fail("deploy", e, fmt.Errorf("%w: %s", ErrKeyInUse, why))
		case Resume:
			err = j.Change(ctx, "extend", e, func(now Entry) (Record, error) { return now.lengthen(lease).onlyIf(now.Open()) })
		case Wait:
			if !waits {
				date = begins(ctx, e)
				continue
			}
			next, _ := pace.Next(ctx, time.Since(began), 0, 0)
			if ended := poll.Sleep(ctx, next); ended != nil {
				return InDoubt, e, 0, fmt.Errorf("waiting for its outcome: %w", ended)
			}
			continue
		}
		return v, e, last, err
	}
}

// Claim appends the record of an intent, right before the create is sent. It sets At and SettleBy, by
// the wall clock: no attempt may be sent after SettleBy. If its Seq is taken by another record, ok is
// false. After an error of the store the record may be stored. In that case Claim tries once to
// record that the create was refused.
func (j *Journal) Claim(ctx context.Context, r *Record) (ok bool, err error) {
	r.At = WallClock()
	r.SettleBy = r.At.Add(SettleLimit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(r.SettleBy) {
		r.SettleBy = deadline.Round(0).UTC()
	}
	switch err = j.append(ctx, *r); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	_ = j.Settle(ctx, Record{Key: r.Key, Seq: r.Seq, Intent: r.Intent, Event: Refused}, 1)
	return false, j.fail("append intended", Entry{Key: r.Key, Intent: r.Intent}, err)
}
