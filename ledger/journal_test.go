package ledger_test

import (
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
