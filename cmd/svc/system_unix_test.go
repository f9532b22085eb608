//go:build unix

package main

import (
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

// asUser starts a program as another user. Only root may do that.
func asUser(uid, gid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// isProcess reports whether there is a process with this ID.
func isProcess(pid int) bool { return syscall.Kill(pid, 0) == nil }
