package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
	"example.com/svc/internal/same"
)

// Patience is the time limit for the store in calls that must not wait longer for it.
const Patience = 5 * time.Second

// A Journal reads and changes the entries in a store, by the rules of this package. No call of the
// store outlasts its ctx. All errors of a Journal are, or wrap, an [*Error].
type Journal struct {
	store   Store
	baseURL string
	clean   func(error) error
	keys    sync.Map // maps the ID of an endpoint of baseURL to the key of its entry
	seen    sync.Map // maps an intent without an outcome to the time when this process first read it, with the monotonic clock
	behind  sync.Map // maps the ID of an endpoint to the record that could not be written, to be written later
}

// NewJournal returns a journal of the service at baseURL. Clean removes secrets from the errors of
// the store.
func NewJournal(store Store, baseURL string, clean func(error) error) *Journal {
	return &Journal{store: store, baseURL: baseURL, clean: clean}
}

// Read returns the entries of a key and its highest Seq. For an empty key it returns the
// entries of all keys: first the open ones. Each group is sorted from old to new. With an error it
// returns the entries that it could read. An error that is about a single key has that Key.
func (j *Journal) Read(ctx context.Context, key string) (entries []Entry, last int64, err error) {
	records, err := bounded(ctx, func(ctx context.Context) ([]Record, error) { return j.store.List(ctx, key) })
	entries, damaged := Fold(records)
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.RequestedAt.Compare(b.RequestedAt) })
	ended := slices.DeleteFunc(slices.Clone(entries), Entry.Open)
	entries = append(slices.DeleteFunc(entries, func(e Entry) bool { return !e.Open() }), ended...) // the open ones first
	for i := range entries {
		j.note(&entries[i])
	}
	if len(records) > 0 {
		last = records[len(records)-1].Seq
	}
	return entries, last, cause.Join(j.fail("list", Entry{}, err), damaged)
}

// note stores the ID of an entry, and when this process first read it without an outcome.
func (j *Journal) note(e *Entry) {
	if e.BaseURL == j.baseURL && e.ServiceID != "" {
		j.keys.Store(same.Canonical(e.ServiceID), e.Key)
	}
	if e.Doubt = e.future(WallClock()); e.State != Intended && e.State != Unknown {
		j.seen.Delete(e.Intent)
		return
	}
	since, _ := j.seen.LoadOrStore(e.Intent, time.Now())
	e.seenFor = time.Since(since.(time.Time)) //nolint:forcetypeassert // only times are stored
}

// Entry reads an entry again, with the highest Seq of its key.
func (j *Journal) Entry(ctx context.Context, op string, e Entry) (now Entry, last int64, err error) {
	entries, last, err := j.Read(ctx, e.Key)
	if err != nil {
		return e, 0, err
	}
	i := slices.IndexFunc(entries, func(of Entry) bool { return of.Intent == e.Intent })
	if i < 0 {
		return e, 0, j.fail(op, e, errors.New("no such entry"))
	}
	return entries[i], last, nil
}

// Owner finds the entry in the state Created that has the ID of an endpoint; or nil if there is
// none. A record that [Journal.Settle] could not write is written first. If the key of the
// endpoint is not known, errors about a single key are ignored.
func (j *Journal) Owner(ctx context.Context, id string) (*Entry, error) {
	if r, ok := j.behind.Load(same.Canonical(id)); ok {
		if err := j.Settle(ctx, r.(Record), 1); err != nil { //nolint:forcetypeassert // Settle stores only records
			return nil, err
		}
	}
	var keys []string
	key, known := j.keys.Load(same.Canonical(id))
	if known {
		keys = []string{key.(string)} //nolint:forcetypeassert // note stores only strings
	}
	entries, err := j.search(ctx, id, keys)
	for i, e := range entries {
		if e.State == Created && e.BaseURL == j.baseURL {
			return &entries[i], nil
		}
	}
	if !known && ofOneKey(err) {
		err = nil
	}
	return nil, err
}

// search returns the entries with the ID of an endpoint, from the keys. If there are none, it
// searches all keys, or those that the store finds.
func (j *Journal) search(ctx context.Context, id string, keys []string) (found []Entry, err error) {
	if len(keys) == 0 {
		keys = []string{""}
		if f, ok := j.store.(Finder); ok {
			keys, err = bounded(ctx, func(ctx context.Context) ([]string, error) { return f.Find(ctx, id) })
		}
		if err != nil {
			return nil, j.fail("list", Entry{ServiceID: id}, err)
		}
	}
	for _, key := range keys {
		entries, _, unread := j.Read(ctx, key)
		err = cause.Join(err, unread)
		for _, e := range entries {
			if same.ID(e.ServiceID, id) {
				found = append(found, e)
			}
		}
	}
	return found, err
}

// ofOneKey reports whether an error of Read is about a single key.
func ofOneKey(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Key != ""
}

// Settle records the outcome of a create, at its Seq or at the next Seq that is free. After an error
// it tries again, up to tries times in all. Its own time limit is [Patience]; it continues when ctx
// ends. If it fails, the outcome of a create that made an endpoint is kept, and written later by
// [Journal.Owner] or [Journal.Await].
func (j *Journal) Settle(ctx context.Context, r Record, tries int) error {
	ctx, cancel := Afterwards(ctx)
	defer cancel()
	r.At = WallClock()
	err := j.append(ctx, r)
	for err != nil && ctx.Err() == nil {
		if errors.Is(err, fs.ErrExist) {
			r.Seq++
		} else if tries--; tries == 0 || poll.Sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
		err = j.append(ctx, r)
	}
	if id := same.Canonical(r.ServiceID); r.Event == Created && err == nil {
		j.behind.Delete(id)
		j.keys.Store(id, r.Key)
	} else if r.Event == Created {
		j.behind.Store(id, r)
	}
	if err == nil { // the record of the intent may be in another ledger, which was replaced by this one since then
		if _, _, err = j.Read(ctx, r.Key); !ofOneKey(err) {
			return nil
		}
	}
	return j.fail("append "+string(r.Event), Entry{Key: r.Key, Intent: r.Intent, ServiceID: r.ServiceID}, err)
}

// Change reads an entry again, calls decide with it, and appends the record that decide
// returns. If another record was appended in the meantime, Change starts again, so decide has
// seen all records before its own. A record without an Event is not appended. If its At is zero, it is
// the current time.
func (j *Journal) Change(ctx context.Context, op string, e Entry, decide func(now Entry) (Record, error)) error {
	for {
		now, last, err := j.Entry(ctx, op, e)
		if err != nil {
			return err
		}
		r, err := decide(now)
		if err == nil && r.Event == "" {
			return nil
		}
		if err == nil {
			r.Key, r.Seq, r.Intent, r.At = e.Key, last+1, e.Intent, cmp.Or(r.At, WallClock())
			err = j.append(ctx, r)
		}
		if !errors.Is(err, fs.ErrExist) {
			return j.fail(op, now, err)
		}
	}
}

// onlyIf returns r if it is needed, and otherwise the empty record, which [Journal.Change] does
// not append.
func (r Record) onlyIf(needed bool) (Record, error) {
	if !needed {
		r = Record{}
	}
	return r, nil
}

// append appends a record at its Seq. If the store returns [fs.ErrExist], the record may still
// have been stored: a network file system repeats the creation of a hard link if the response
// is lost, and then finds that the name exists. So append checks whether the record is listed. The
// times of the record must be in UTC, since == compares their zones.
func (j *Journal) append(ctx context.Context, r Record) error {
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, j.store.Append(ctx, r) })
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	stored, unread := bounded(ctx, func(ctx context.Context) ([]Record, error) { return j.store.List(ctx, r.Key) })
	taken := slices.ContainsFunc(stored, func(s Record) bool { return s.Seq == r.Seq })
	switch {
	case slices.Contains(stored, r):
		return nil
	case unread == nil && !taken:
		return fmt.Errorf("the store reports that record %d of the key exists, but does not list it", r.Seq)
	}
	return err
}

// Afterwards returns a context for recording what has already happened. It remains valid after
// ctx has ended, for at most [Patience].
func Afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), Patience)
}

func (j *Journal) fail(op string, e Entry, err error) error { return Wrap(op, e, j.clean(err)) }

// bounded calls a method of a store. It returns when the method returns or when ctx ends, since a
// file system or a driver may block and ignore ctx. In that case the method continues, and its
// result is discarded. A panic or Goexit of the method is passed on to the caller.
func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (result T, err error) {
	if ctx.Err() != nil {
		return result, cause.Of(ctx)
	}
	done := make(chan func() (T, error), 1)
	cause.Start(func() (T, error) { return f(ctx) }, done)
	select {
	case <-ctx.Done():
		return result, cause.Of(ctx)
	case outcome := <-done:
		return outcome()
	}
}
