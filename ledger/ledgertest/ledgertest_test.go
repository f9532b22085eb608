package ledgertest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/ledger/ledgertest"
)

func TestMemoryPasses(t *testing.T) {
	store := ledger.Memory()
	ledgertest.Run(t, func() ledger.Store { return store })
}

// wrapped is a Store with its own Append and List.
type wrapped struct {
	ledger.Store
	append func(context.Context, ledger.Record) error
	list   func(context.Context, string) ([]ledger.Record, error)
}

func (w *wrapped) Append(ctx context.Context, r ledger.Record) error { return w.append(ctx, r) }
func (w *wrapped) List(ctx context.Context, key string) ([]ledger.Record, error) {
	return w.list(ctx, key)
}

// overwrites returns a faulty store: it accepts a second record with the same Seq and
// keeps the last one.
func overwrites() func() ledger.Store {
	var mu sync.Mutex
	all := make(map[string]map[int64]ledger.Record)
	s := &wrapped{
		append: func(ctx context.Context, r ledger.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if all[r.Key] == nil {
				all[r.Key] = make(map[int64]ledger.Record)
			}
			all[r.Key][r.Seq] = r
			return ctx.Err()
		},
		list: func(ctx context.Context, key string) (list []ledger.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range slices.Sorted(maps.Keys(all)) {
				for _, seq := range slices.Sorted(maps.Keys(all[k])) {
					if key == "" || key == k {
						list = append(list, all[k][seq])
					}
				}
			}
			return list, ctx.Err()
		},
	}
	return func() ledger.Store { return s }
}

// forgets returns a faulty store: List returns only the ten latest records of a key.
func forgets() func() ledger.Store {
	m := ledger.Memory()
	s := &wrapped{append: m.Append, list: func(ctx context.Context, key string) ([]ledger.Record, error) {
		list, err := m.List(ctx, key)
		if key != "" {
			list = list[max(len(list)-10, 0):]
		}
		return list, err
	}}
	return func() ledger.Store { return s }
}

// early returns a faulty store: Append reports success before the record is visible in
// other stores. The record becomes visible with the next Append.
func early() func() ledger.Store {
	m := ledger.Memory()
	return func() ledger.Store {
		var mu sync.Mutex
		var waiting []ledger.Record
		return &wrapped{
			append: func(ctx context.Context, r ledger.Record) error {
				mu.Lock()
				defer mu.Unlock()
				for _, r := range waiting {
					if err := m.Append(ctx, r); err != nil {
						return err
					}
				}
				waiting = []ledger.Record{r}
				return ctx.Err()
			},
			list: func(ctx context.Context, key string) ([]ledger.Record, error) {
				mu.Lock()
				defer mu.Unlock()
				list, err := m.List(ctx, key)
				for _, r := range waiting {
					if r.Key == key || key == "" {
						list = append(list, r)
					}
				}
				return list, err
			},
		}
	}
}

var broken = map[string]func() func() ledger.Store{"overwrites": overwrites, "forgets": forgets, "early": early}

const child = "SVC_LEDGERTEST_BROKEN"

// TestBroken runs the tests of ledgertest on a faulty store, in another process. There
// they must fail.
func TestBroken(t *testing.T) {
	if open, ok := broken[os.Getenv(child)]; ok {
		ledgertest.Run(t, open())
		return
	}
	for name, want := range map[string][2]string{ // the test that fails, and the difference that it names
		"overwrites": {"only_one_record_gets_a_Seq", "returned the error <nil>, and not fs.ErrExist"},
		"forgets":    {"records_come_back_as_they_were", "Seq of record 1 is 2, and not 1"},
		"early":      {"records_come_back_as_they_were", "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.v")
			cmd.Env = append(os.Environ(), child+"="+name)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the faulty store passed the test: %s", out)
			require.Contains(t, string(out), "--- FAIL: TestBroken/"+want[0])
			require.Contains(t, string(out), want[1])
		})
	}
}
