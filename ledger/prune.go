package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/lazy"
)

// randomKey matches the keys of creates without a key of the caller. No other create has such a key.
var randomKey = lazy.Regexp(`^[a-z2-7]{26}$`)

// Prune removes the records of the keys whose entries have all ended, and whose last record is older
// than before. One record of a key that the caller chose remains, so that a process that has read the
// old records cannot append to them. A key with a damaged record stays as it is.
func (j *Journal) Prune(ctx context.Context, before time.Time) error {
	records, err := bounded(ctx, func(ctx context.Context) ([]Record, error) { return j.store.List(ctx, "") })
	errs := []error{err}
	for len(records) > 0 && ctx.Err() == nil {
		n := 1
		for n < len(records) && records[n].Key == records[0].Key {
			n++
		}
		if ended(records[:n], before) {
			errs = append(errs, j.prune(ctx, records[n-1]))
		}
		records = records[n:]
	}
	return j.fail("prune", Entry{}, cause.Join(append(errs, cause.Of(ctx))...))
}

// ended reports whether all entries of a key have ended, and the last record is older than before.
func ended(records []Record, before time.Time) bool {
	last := records[len(records)-1]
	if last.Event == Pruned && len(records) == 1 || !last.At.Before(before) {
		return false
	}
	entries, err := Fold(records)
	return err == nil && !slices.ContainsFunc(entries, Entry.Open)
}

// prune removes the records of a key up to the last one, unless a record of the key is damaged.
func (j *Journal) prune(ctx context.Context, last Record) error {
	about := Entry{Key: last.Key}
	_, _, unread := j.Read(ctx, last.Key)
	switch {
	case ofOneKey(unread): // damaged, as in the error of reading all keys
		return nil
	case unread != nil:
		return unread
	case last.Event == Pruned:
		last.Seq--
	case !randomKey().MatchString(last.Key):
		err := j.append(ctx, Record{Key: last.Key, Seq: last.Seq + 1, Event: Pruned, At: WallClock()})
		if errors.Is(err, fs.ErrExist) { // the key is in use again
			return nil
		} else if err != nil {
			return j.fail("append pruned", about, err)
		}
	}
	p, ok := j.store.(Pruner)
	if !ok {
		return j.fail("prune", about, fmt.Errorf("the store cannot remove records: %w", errors.ErrUnsupported))
	}
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Prune(ctx, last.Key, last.Seq) })
	return j.fail("prune", about, err)
}
