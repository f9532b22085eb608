package svcotel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svcotel"
	"example.com/svc/svctest"
)

// brokenStore is a store whose List fails, hangs or leaves records out.
type brokenStore struct {
	ledger.Store
	list atomic.Pointer[func(ctx context.Context, records []ledger.Record) ([]ledger.Record, error)] // nil: it works
}

func (s *brokenStore) List(ctx context.Context, key string) ([]ledger.Record, error) {
	records, err := s.Store.List(ctx, key)
	if list := s.list.Load(); list != nil {
		return (*list)(ctx, records)
	}
	return records, err
}

func TestTheLedgerIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server, r *recorder) {
		store := &brokenStore{Store: ledger.Memory()}
		client := srv.Client(r.option(svcotel.WithLedger(store)), svc.WithLedger(store))
		deploy := func(key string, lease time.Duration) *svc.InferenceService {
			s, err := client.InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{Key: key, Lease: lease})
			require.NoError(t, err)
			return s
		}
		deploy("long", 100*time.Hour)
		deleted := deploy("deleted", 0)
		deploy("short", time.Hour)
		require.NoError(t, client.InferenceServices.DeleteAndWait(t.Context(), deleted.ServiceID, nil))
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect(), svctest.Fault{Status: 422, Body: `{"message":"no"}`})
		for _, key := range []string{"lost", "refused"} {
			_, err := client.InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{Key: key})
			require.Error(t, err)
		}
		time.Sleep(2 * time.Hour) // the lease of short is over

		check := func(t *testing.T, failures int64) {
			t.Helper()
			require.Equal(t, map[string]int64{"intended": 0, "unknown": 1, "created": 2, "refused": 1, "forgotten": 0, "deleted": 1}, r.series(t, "svc.ledger.entries"))
			require.Equal(t, map[string]int64{"intended": 0, "unknown": 2, "created": 4}, r.series(t, "svc.instances"))
			require.Equal(t, map[string]int64{"": 1}, r.series(t, "svc.ledger.in_doubt"))
			require.Equal(t, map[string]int64{"": 1}, r.series(t, "svc.ledger.overdue"))
			require.Equal(t, map[string]int64{"": failures}, r.series(t, "svc.ledger.errors"))
		}
		check(t, 0)

		// A ledger that fails or hangs does not disturb the other metrics.
		hang := make(chan struct{})
		for i, list := range []func(context.Context, []ledger.Record) ([]ledger.Record, error){
			func(context.Context, []ledger.Record) ([]ledger.Record, error) { return nil, errors.New("no disk") },
			func(ctx context.Context, all []ledger.Record) ([]ledger.Record, error) {
				<-ctx.Done()
				return all[:1], context.Cause(ctx)
			},
			func(context.Context, []ledger.Record) ([]ledger.Record, error) { <-hang; return nil, nil },
			func(context.Context, []ledger.Record) ([]ledger.Record, error) { <-hang; return nil, nil }, // while the third still hangs
		} {
			store.list.Store(&list)
			began := time.Now()
			require.Equal(t, map[string]int64{"": int64(i + 1)}, r.series(t, "svc.ledger.errors"))
			require.LessOrEqual(t, time.Since(began), 5*time.Second)
		}
		close(hang)
	}, svctest.WithFlavors(svctest.Flavor{ID: "flavor-1", Stock: 100}))
}
