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

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/ledger/ledgertest"
)

func TestMemoryPasses(t *testing.T) {
	store := ledger.Memory()
	ledgertest.Run(t, func() svc.LedgerStore { return store })
}

// wrapped is a LedgerStore with its own Append and List.
type wrapped struct {
	svc.LedgerStore
	append func(context.Context, svc.LedgerRecord) error
	list   func(context.Context, string) ([]svc.LedgerRecord, error)
}

func (w *wrapped) Append(ctx context.Context, r svc.LedgerRecord) error { return w.append(ctx, r) }
func (w *wrapped) List(ctx context.Context, key string) ([]svc.LedgerRecord, error) {
	return w.list(ctx, key)
}

// overwrites returns a faulty store: it accepts a second record with the same Seq and
// keeps the last one.
func overwrites() func() svc.LedgerStore {
	var mu sync.Mutex
	all := make(map[string]map[int64]svc.LedgerRecord)
	s := &wrapped{
		append: func(ctx context.Context, r svc.LedgerRecord) error {
			mu.Lock()
			defer mu.Unlock()
			if all[r.Key] == nil {
				all[r.Key] = make(map[int64]svc.LedgerRecord)
			}
			all[r.Key][r.Seq] = r
			return ctx.Err()
		},
		list: func(ctx context.Context, key string) (list []svc.LedgerRecord, err error) {
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
	return func() svc.LedgerStore { return s }
}

// forgets returns a faulty store: List returns only the ten latest records of a key.
func forgets() func() svc.LedgerStore {
	m := ledger.Memory()
	s := &wrapped{append: m.Append, list: func(ctx context.Context, key string) ([]svc.LedgerRecord, error) {
		list, err := m.List(ctx, key)
		if key != "" {
			list = list[max(len(list)-10, 0):]
		}
		return list, err
	}}
	return func() svc.LedgerStore { return s }
}

// early returns a faulty store: Append reports success before the record is visible in
// other stores. The record becomes visible with the next Append.
func early() func() svc.LedgerStore {
	m := ledger.Memory()
	return func() svc.LedgerStore {
		var mu sync.Mutex
		var waiting []svc.LedgerRecord
		return &wrapped{
			append: func(ctx context.Context, r svc.LedgerRecord) error {
				mu.Lock()
				defer mu.Unlock()
				for _, r := range waiting {
					if err := m.Append(ctx, r); err != nil {
						return err
					}
				}
				waiting = []svc.LedgerRecord{r}
				return ctx.Err()
			},
			list: func(ctx context.Context, key string) ([]svc.LedgerRecord, error) {
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

var broken = map[string]func() func() svc.LedgerStore{"overwrites": overwrites, "forgets": forgets, "early": early}

const child = "SVC_LEDGERTEST_BROKEN"

// TestBroken runs the tests of ledgertest on a faulty store, in another process. There
// they must fail.
func TestBroken(t *testing.T) {
	if open, ok := broken[os.Getenv(child)]; ok {
		ledgertest.Run(t, open())
		return
	}
	for name, test := range map[string]string{
		"overwrites": "only_one_record_gets_a_Seq", "forgets": "records_come_back_as_they_were", "early": "records_come_back_as_they_were",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.v")
			cmd.Env = append(os.Environ(), child+"="+name)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the faulty store passed the test: %s", out)
			require.Contains(t, string(out), "--- FAIL: TestBroken/"+test)
		})
	}
}
