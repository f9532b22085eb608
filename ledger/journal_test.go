package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
)

const id = "0a1b2c3d-0000-4000-8000-00000000abcd"

func asIs(err error) error { return err }

// An ID in upper case is the same ID.
func TestOwnerOfAnIDInUpperCase_D18(t *testing.T) {
	s := ledger.Memory()
	for _, r := range []ledger.Record{
		{Key: "k", Seq: 1, Intent: "A", Event: ledger.Intended, BaseURL: "b", At: time.Now()},
		{Key: "k", Seq: 2, Intent: "A", Event: ledger.Created, ServiceID: id, At: time.Now()},
	} {
		require.NoError(t, s.Append(t.Context(), r))
	}
	j := ledger.NewJournal(s, "b", asIs)
	for range 2 { // then the key is known
		for _, id := range []string{id, "0A1B2C3D-0000-4000-8000-00000000ABCD"} {
			e, err := j.Owner(t.Context(), id)
			require.NoError(t, err)
			require.NotNil(t, e)
			require.Equal(t, "k", e.Key)
		}
	}
}

// entries appends the records of a key, which all have the same time.
func write(t *testing.T, s ledger.Store, key string, at time.Time, events ...ledger.Event) {
	t.Helper()
	for i, event := range events {
		r := ledger.Record{Key: key, Seq: int64(i + 1), Intent: "A", Event: event, BaseURL: "b", At: at}
		if event == ledger.Created || event == ledger.Deleted {
			r.ServiceID = "svc-" + key
		}
		require.NoError(t, s.Append(t.Context(), r))
	}
}

// Prune removes what has ended before a time, and nothing else. A process that has read a key before
// cannot append to it afterwards.
func TestPrune_D15(t *testing.T) {
	now := time.Now().UTC().Round(0)
	old, random := now.Add(-time.Hour), strings.Repeat("a", 26)
	for name, s := range map[string]ledger.Store{"folder": open(t, t.TempDir()), "memory": ledger.Memory()} {
		t.Run(name, func(t *testing.T) {
			write(t, s, "deleted", old, ledger.Intended, ledger.Created, ledger.Deleted)
			write(t, s, "recent", now, ledger.Intended, ledger.Created, ledger.Deleted)
			write(t, s, "running", old, ledger.Intended, ledger.Created)
			write(t, s, "doubt", old, ledger.Intended, ledger.Unknown)
			write(t, s, "refused", old, ledger.Intended, ledger.Refused)
			write(t, s, "broken", old, ledger.Intended, ledger.Created, ledger.Deleted, "later")
			write(t, s, random, old, ledger.Intended, ledger.Created, ledger.Deleted)
			for range 2 {
				j := ledger.NewJournal(s, "b", asIs)
				require.NoError(t, j.Prune(t.Context(), now.Add(-time.Minute)))
				entries, _, err := j.Read(t.Context(), "")
				require.ErrorContains(t, err, "later")
				left := make(map[string]ledger.State)
				for _, e := range entries {
					left[e.Key] = e.State
				}
				require.Equal(t, map[string]ledger.State{"recent": ledger.Deleted, "running": ledger.Created, "doubt": ledger.Unknown, "broken": ledger.Deleted}, left)
				all, err := s.List(t.Context(), "")
				require.NoError(t, err)
				require.Len(t, all, 3+2+2+4+2, "one record is left of each key of the caller")
			}
			late := ledger.Record{Key: "deleted", Seq: 4, Intent: "B", Event: ledger.Intended, BaseURL: "b", At: now}
			require.ErrorIs(t, s.Append(t.Context(), late), fs.ErrExist, "a process that has read the key before")
			j := ledger.NewJournal(s, "b", asIs)
			_, last, err := j.Read(t.Context(), "deleted")
			require.NoError(t, err)
			late.Seq = last + 1
			ok, err := j.Claim(t.Context(), &late)
			require.NoError(t, err)
			require.True(t, ok)
			entries, _, err := j.Read(t.Context(), "deleted")
			require.NoError(t, err)
			require.Len(t, entries, 1)
			require.Equal(t, "B", entries[0].Intent)
		})
	}
	plain := struct{ ledger.Store }{ledger.Memory()} // no Pruner
	write(t, plain, random, old, ledger.Intended, ledger.Refused)
	require.ErrorIs(t, ledger.NewJournal(plain, "b", asIs).Prune(t.Context(), now), errors.ErrUnsupported)
}

// failing lists all keys, but fails to list one of them.
type failing struct {
	ledger.Store
	err error
}

func (f failing) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if key != "" {
		return nil, f.err
	}
	return f.Store.List(ctx, key)
}

func (f failing) Prune(context.Context, string, int64) error {
	panic("a key that cannot be read must stay")
}

func TestPruneLeavesAKeyThatCannotBeRead(t *testing.T) {
	s := ledger.Memory()
	write(t, s, "deleted", time.Now().Add(-time.Hour), ledger.Intended, ledger.Created, ledger.Deleted)
	err := ledger.NewJournal(failing{s, io.ErrUnexpectedEOF}, "b", asIs).Prune(t.Context(), time.Now())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	err = ledger.NewJournal(failing{s, ledger.Damage("deleted", "a file", io.EOF)}, "b", asIs).Prune(t.Context(), time.Now())
	require.NoError(t, err, "the error of reading all keys says which records are damaged")
	all, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, all, 3)
}

// The entry of an ID is found without reading all records again.
func TestFindReadsEachRecordOnce_D15(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	for i := range 50 {
		write(t, s, fmt.Sprint("k", i), time.Now(), ledger.Intended, ledger.Created)
	}
	f, ok := open(t, path).(ledger.Finder)
	require.True(t, ok)
	_, err := f.Find(t.Context(), "svc-none")
	require.NoError(t, err)
	for i := range 50 { // a record that is read again would now be damaged
		require.NoError(t, os.WriteFile(filepath.Join(path, fmt.Sprintf("k%d@000002.json", i)), nil, 0o600))
	}
	write(t, s, "new", time.Now(), ledger.Intended, ledger.Created)
	for id, key := range map[string]string{"svc-k7": "k7", "svc-new": "new"} {
		keys, err := f.Find(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []string{key}, keys)
	}
}

// quitting is a store whose List panics or ends the goroutine.
type quitting struct {
	ledger.Store
	quit func()
}

func (q quitting) List(context.Context, string) ([]ledger.Record, error) {
	q.quit()
	return nil, nil
}

// A store that panics or ends its goroutine does that to the caller, who can recover.
func TestPanicOfAStoreIsThatOfTheCaller(t *testing.T) {
	for name, quit := range map[string]func(){"panic": func() { panic("of the store") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_, _, _ = ledger.NewJournal(quitting{ledger.Memory(), quit}, "b", asIs).Read(t.Context(), "k")
				panic("it returned")
			}()
			want := map[string]any{"panic": "of the store", "Goexit": nil}[name]
			require.Equal(t, want, <-ended)
		})
	}
}

// repeating is a store on a network file system that repeats a request whose response was lost: it stores
// a record, and then finds that the record exists.
type repeating struct{ ledger.Store }

func (r repeating) Append(ctx context.Context, record ledger.Record) error {
	if err := r.Store.Append(ctx, record); err != nil {
		return err
	}
	return fs.ErrExist
}

// The created_at of the service may have any zone. The record of the adoption is recognized in the store
// nevertheless.
func TestAdoptionThatExistsByItself(t *testing.T) {
	s := repeating{open(t, t.TempDir())}
	for i, r := range []ledger.Record{{Event: ledger.Intended, BaseURL: "b", Name: "n"}, {Event: ledger.Unknown}} {
		r.Key, r.Seq, r.Intent, r.At = "k", int64(i+1), "A", time.Now().Add(-time.Hour).Round(0).UTC()
		require.ErrorIs(t, s.Append(t.Context(), r), fs.ErrExist)
	}
	j := ledger.NewJournal(s, "b", asIs)
	entries, _, err := j.Read(t.Context(), "k")
	require.NoError(t, err)
	created := time.Date(2024, 5, 1, 10, 20, 30, 0, time.FixedZone("", 5*60*60+30*60))
	require.NoError(t, j.Adopt(t.Context(), entries[0], ledger.Endpoint{ID: "svc-1", Name: "n", CreatedAt: created}, true, time.Now(), "check"))
	entries, last, err := j.Read(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 3, last)
	require.Equal(t, "svc-1", entries[0].ServiceID)
	require.True(t, created.Equal(entries[0].ServiceTime))
}
