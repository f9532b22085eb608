package transfer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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

// A download removes temporary files beside its own that nobody has written to for a day, and no
// other file.
func TestFileSweepsOldTemporaryFiles_D28(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{
		".svc-download-0123456789abcdef.part": 25 * time.Hour, ".svc-download-0123456789abcde0.part": 23 * time.Hour,
		".svc-download-mine.part": 99 * time.Hour, "x.svc-download-0123456789abcdef.part": 99 * time.Hour,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}
	f, err := NewFile(filepath.Join(dir, "f"))
	require.NoError(t, err)
	f.Discard()
	var left []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	require.Equal(t, []string{".svc-download-0123456789abcde0.part", ".svc-download-mine.part", "x.svc-download-0123456789abcdef.part"}, left)
}
