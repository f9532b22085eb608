package transfer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// If the new file cannot be completed, it does not replace the old one.
func TestFileThatCannotBeFinished(t *testing.T) {
	for _, old := range []string{"", "old"} {
		path := filepath.Join(t.TempDir(), "f")
		if old != "" {
			require.NoError(t, os.WriteFile(path, []byte(old), 0o600))
		}
		f, err := NewFile(path)
		require.NoError(t, err)
		require.NoError(t, f.File.Close())
		require.ErrorIs(t, f.Restart(), os.ErrClosed)
		require.ErrorIs(t, f.Commit(), os.ErrClosed)
		f.Discard()
		got, err := os.ReadFile(path)
		require.Equal(t, old == "", os.IsNotExist(err))
		require.Equal(t, old, string(got))
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, len(old)/3, "the temporary file is removed")
	}
}
