package recovery_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// garbage is a database whose file is not one.
type garbage struct{}

var errGarbage = errors.New("file is not a database")

func (garbage) Connect(context.Context) (driver.Conn, error) { return nil, errGarbage }
func (garbage) Driver() driver.Driver                        { return nil }

// A ledger that cannot be read is not taken for one that does not exist: then a new one would be made.
func TestMalformedLedger(t *testing.T) {
	db := sql.OpenDB(garbage{})
	defer db.Close()
	_, err := malformed(t.Context(), db)
	require.ErrorIs(t, err, errGarbage)
	require.NotErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), "there is no ledger")
}
