package recovery_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
)

// The way out of an entry at an address that no longer exists: the record that docs/recovery.md appends.
// The key is free then, at the new address.
func TestEntryOfAnAddressThatNoLongerExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), ledger.Memory()
		clientAt := func(address string) *svc.Client {
			s := &testkit.ByMethod{
				Post: []testkit.Reply{testkit.OpCreate.OK}, Get: []testkit.Reply{{Body: testkit.EndpointJSON("available", 2)}},
			}
			return testkit.ClientAt(t, address, svc.WithLedger(store), svc.WithHTTPClient(&http.Client{Transport: s}))
		}
		opts := &svc.DeployOptions{Key: "chat"}
		_, err := clientAt("https://old.test").InferenceServices.Deploy(ctx, testkit.Demo, opts)
		require.NoError(t, err)
		client := clientAt("https://new.test")
		_, err = client.InferenceServices.Deploy(ctx, testkit.Demo, opts)
		require.ErrorIs(t, err, svc.ErrKeyInUse)
		entry, err := client.Ledger.Entry(ctx, "chat")
		require.NoError(t, err)
		require.ErrorContains(t, client.Ledger.Forget(ctx, *entry), "the entry belongs to another base URL: https://old.test")

		require.NoError(t, forgetAtOldAddress(ctx, store, *entry))
		entry, err = client.Ledger.Entry(ctx, "chat")
		require.NoError(t, err)
		require.Nil(t, entry)
		_, err = client.InferenceServices.Deploy(ctx, testkit.Demo, opts)
		require.NoError(t, err)
		entry, err = client.Ledger.Entry(ctx, "chat")
		require.NoError(t, err)
		require.Equal(t, "https://new.test", entry.BaseURL)
	})
}

func forgetAtOldAddress(ctx context.Context, store ledger.Store, entry ledger.Entry) error {
	records, err := store.List(ctx, entry.Key)
	if err != nil {
		return err
	}
	last := int64(0)
	for _, r := range records {
		last = max(last, r.Seq)
	}
	return store.Append(ctx, ledger.Record{Key: entry.Key, Seq: last + 1, Intent: entry.Intent, Event: ledger.Forgotten, ServiceID: entry.ServiceID, At: time.Now().UTC()})
}
