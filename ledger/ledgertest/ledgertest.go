// Package ledgertest tests stores for the ledger.
//
//	func TestStore(t *testing.T) {
//		path := filepath.Join(t.TempDir(), "store")
//		ledgertest.Run(t, func() ledger.Store { return openMyStore(path) })
//	}
package ledgertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/svc/ledger"
)

// Run tests that a store keeps the rules of [ledger.Store]. Each call of open must open
// the same store again, as another process would: what open returned before is still in use.
// The store may hold other records. Run uses random keys, and its records stay in the store.
func Run(t *testing.T, open func() ledger.Store) {
	for _, test := range []struct {
		name string
		f    func(*testing.T, func() ledger.Store)
	}{
		{"records come back as they were", durable},
		{"only one record gets a Seq", once},
		{"keys do not mix", apart},
		{"one of many writers gets a Seq", race},
		{"an ended context is an error", ended},
		{"the key of an ID is found", finds},
		{"the oldest records are removed", prunes},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, open) })
	}
}

// newKey returns a key that nobody else uses.
func newKey() string { return strings.ToLower(rand.Text()) }

// record returns a record with all fields set.
func record(key string, seq int64) ledger.Record {
	at := time.Date(2024, 2, 29, 23, 59, 59, 123456789, time.UTC)
	return ledger.Record{
		Key: key, Seq: seq, Intent: rand.Text(), Event: ledger.Intended, At: at,
		BaseURL: "https://svc.example", Name: "a \"name\"\nin two lines, with 世界 and \\", FlavorID: "flavor", RequestHash: "1:00",
		SettleBy: at.Add(time.Minute), Instances: 3, LeaseEnd: at.Add(time.Hour), ServiceID: "svc-1", Adopted: true,
	}
}

func add(t *testing.T, s ledger.Store, r ledger.Record) {
	t.Helper()
	if err := s.Append(t.Context(), r); err != nil {
		t.Fatalf("Append of record %d: %v", r.Seq, err)
	}
}

// expect fails the test unless the store lists exactly these records for key.
func expect(t *testing.T, s ledger.Store, key string, want ...ledger.Record) {
	t.Helper()
	got, err := s.List(t.Context(), key)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	if diff := difference(got, want); diff != "" {
		t.Fatalf("List returned %d records, and %d were stored: %s", len(got), len(want), diff)
	}
}

// difference describes the first difference between two lists of records, or an empty string if there is none.
func difference(got, want []ledger.Record) string {
	both := min(len(got), len(want))
	for i, r := range got[:both] {
		g, w := reflect.ValueOf(r), reflect.ValueOf(want[i])
		for f := range g.NumField() {
			if !reflect.DeepEqual(g.Field(f).Interface(), w.Field(f).Interface()) {
				return fmt.Sprintf("%s of record %d is %#v, and not %#v", g.Type().Field(f).Name, i+1, g.Field(f), w.Field(f))
			}
		}
	}
	if missing := want[both:]; len(missing) > 0 {
		return fmt.Sprintf("record %d of key %s is missing", missing[0].Seq, missing[0].Key)
	}
	if more := got[both:]; len(more) > 0 {
		return fmt.Sprintf("record %d of key %s was not stored", more[0].Seq, more[0].Key)
	}
	return ""
}

func durable(t *testing.T, open func() ledger.Store) {
	key, s := newKey(), open()
	expect(t, s, key)
	var all []ledger.Record
	for seq := range int64(12) { // 10 comes after 9, and not after 1
		all = append(all, record(key, seq+1))
		if seq == 5 {
			all[seq] = ledger.Record{Key: key, Seq: seq + 1, At: time.Unix(0, 0).UTC()}
		}
		add(t, s, all[seq])
		expect(t, open(), key, all...)
	}
	expect(t, s, key, all...)
}

func once(t *testing.T, open func() ledger.Store) {
	key, s := newKey(), open()
	first, second := record(key, 1), record(key, 1)
	add(t, s, first)
	for _, s := range []ledger.Store{s, open()} {
		for _, r := range []ledger.Record{second, first} { // also the record that is stored already
			if err := s.Append(t.Context(), r); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("Append of a second record 1 returned the error %v, and not fs.ErrExist", err)
			}
		}
		expect(t, s, key, first)
	}
}

func apart(t *testing.T, open func() ledger.Store) {
	s, key := open(), newKey()
	keys := []string{key, key + "-", key + "_1", key[1:]}
	for seq := range int64(2) {
		for _, key := range keys {
			add(t, s, ledger.Record{Key: key, Seq: seq + 1, Intent: key})
		}
	}
	all, err := open().List(t.Context(), "")
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, key := range keys {
		want := []ledger.Record{{Key: key, Seq: 1, Intent: key}, {Key: key, Seq: 2, Intent: key}}
		expect(t, s, key, want...)
		i := slices.IndexFunc(all, func(r ledger.Record) bool { return r.Key == key })
		if diff := difference(all[max(i, 0):min(max(i, 0)+2, len(all))], want); diff != "" {
			t.Fatalf("List of all keys does not have the records of %s together and in order: %s", key, diff)
		}
	}
}

// race lets several stores append to one key at once. List must return the records whose
// Append succeeded, one for each Seq.
func race(t *testing.T, open func() ledger.Store) {
	const stores, each = 8, 5
	key := newKey()
	won := make([][]ledger.Record, stores)
	var group sync.WaitGroup
	for i := range stores {
		s := open()
		group.Go(func() {
			for seq := int64(1); seq <= stores*each && len(won[i]) < each; seq++ {
				r := record(key, seq)
				if err := s.Append(t.Context(), r); err == nil {
					won[i] = append(won[i], r)
				} else if !errors.Is(err, fs.ErrExist) {
					t.Errorf("Append of record %d: %v", seq, err)
				}
			}
		})
	}
	group.Wait()
	want := slices.Concat(won...)
	slices.SortFunc(want, func(a, b ledger.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	expect(t, open(), key, want...)
	if len(want) != stores*each {
		t.Fatalf("%d records were stored, and not %d: Append returned fs.ErrExist for a Seq that no record has", len(want), stores*each)
	}
}

func ended(t *testing.T, open func() ledger.Store) {
	key, s := newKey(), open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Append(ctx, record(key, 1)); err == nil || errors.Is(err, fs.ErrExist) {
		t.Fatalf("Append with a ctx that has ended returned the error %v", err)
	}
	if _, err := s.List(ctx, key); err == nil {
		t.Fatal("List with a ctx that has ended returned no error")
	}
}

// finds tests a [ledger.Finder].
func finds(t *testing.T, open func() ledger.Store) {
	f, ok := open().(ledger.Finder)
	if !ok {
		t.Skip("the store is not a ledger.Finder")
	}
	one, two := newKey(), newKey()
	id := fmt.Sprintf("5E4D3C2B-4000-4000-8000-%012X", time.Now().UnixNano()&0xffffffffffff)
	for range 2 { // the second time the store may remember what it has read
		for _, key := range []string{one, two} {
			before, err := f.Find(t.Context(), id)
			if err != nil || slices.Contains(before, key) {
				t.Fatalf("Find returned %v, %v, and no record has this ID under the key %s", before, err, key)
			}
			add(t, open(), record(key, 1))
			r := record(key, 2)
			r.ServiceID = id
			add(t, open(), r)
			for _, id := range []string{id, strings.ToLower(id)} { // of a UUID
				after, err := f.Find(t.Context(), id)
				if err != nil || !slices.Contains(after, key) {
					t.Fatalf("Find of %s returned %v, %v, without the key %s", id, after, err, key)
				}
			}
		}
		one, two, id = newKey(), newKey(), "a%_!"+newKey()+`"`
	}
	if other, err := f.Find(t.Context(), "no-"+newKey()); err != nil || len(other) > 0 {
		t.Fatalf("Find of an unknown ID returned %v, %v", other, err)
	}
}

// prunes tests a [ledger.Pruner].
func prunes(t *testing.T, open func() ledger.Store) {
	s := open()
	p, ok := s.(ledger.Pruner)
	if !ok {
		t.Skip("the store is not a ledger.Pruner")
	}
	key, other := newKey(), newKey()
	var all []ledger.Record
	for seq := range int64(12) {
		all = append(all, record(key, seq+1))
		add(t, s, all[seq])
	}
	kept := record(other, 1)
	add(t, s, kept)
	for _, upTo := range []int64{3, 3, 10} {
		if err := p.Prune(t.Context(), key, upTo); err != nil {
			t.Fatalf("Prune: %v", err)
		}
		expect(t, open(), key, all[upTo:]...)
	}
	expect(t, open(), other, kept)
}
