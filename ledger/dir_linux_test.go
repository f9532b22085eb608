package ledger_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
)

// asNobody runs f in a thread without root's right to ignore file permissions.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		if errno == 0 {
			f()
		}
	}()
	<-done
}

func TestDirReadOnly(t *testing.T) {
	path := t.TempDir()
	for folder := path; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	s := open(t, path)
	require.NoError(t, s.Append(t.Context(), rec("k", 1)))
	require.NoError(t, os.Chmod(filepath.Join(path, "k@000001.json"), 0o444))
	require.NoError(t, os.Chmod(path, 0o555))
	t.Cleanup(func() { os.Chmod(path, 0o755) })
	asNobody(t, func() {
		_, err := ledger.Dir(path)
		require.ErrorIs(t, err, os.ErrPermission)
		require.ErrorContains(t, err, path)
		s, err := ledger.Dir(path, ledger.MustExist())
		require.NoError(t, err, "a reader needs no write")
		all, err := s.List(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, all, 1)
		err = s.Append(t.Context(), rec("k", 2))
		require.ErrorIs(t, err, os.ErrPermission)
		require.ErrorContains(t, err, "writing "+filepath.Join(path, "k@000002.json"))
	})
	require.Equal(t, []string{"k@000001.json"}, names(t, path))
}

// A disk is full while a record is written. A limit on the file size of this process
// simulates the full disk.
func TestDirFull(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	require.NoError(t, s.Append(t.Context(), rec("k", 1)))
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 10, Max: old.Max}))
	err := s.Append(t.Context(), rec("k", 2)) // Go ignores SIGXFSZ, so the write returns EFBIG
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorContains(t, err, "writing "+filepath.Join(path, "k@000002.json"))
	require.Equal(t, []string{"k@000001.json"}, names(t, path), "the half-written record has no file")
	require.NoError(t, s.Append(t.Context(), rec("k", 2)))
}
