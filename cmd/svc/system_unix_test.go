//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The signals that suspend a program, and let it go on.
const sigStop, sigCont = syscall.SIGSTOP, syscall.SIGCONT

func makeFifo(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(path, 0o600))
}

// awaitReader waits until a program reads a named pipe, and keeps the pipe open for writing.
func awaitReader(t *testing.T, path string) {
	t.Helper()
	eventually(t, "a reader of the pipe", func() bool {
		w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { w.Close() })
		}
		return err == nil
	})
}

// asUser starts a program as another user. Only root may do that.
func asUser(uid, gid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// isProcess reports whether there is a process with this ID.
func isProcess(pid int) bool { return syscall.Kill(pid, 0) == nil }
