//go:build !unix

package main

import (
	"syscall"
	"testing"
)

const sigStop, sigCont = syscall.Signal(-1), syscall.Signal(-1) // there are none

func makeFifo(t *testing.T, _ string) {
	t.Helper()
	t.Skip("there are no named pipes on this system")
}

func awaitReader(*testing.T, string) {}

func asUser(int, int) *syscall.SysProcAttr { return nil }

func isProcess(int) bool { return false }
