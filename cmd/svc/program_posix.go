//go:build unix && !linux

package main

import "syscall"

// dieWith does nothing on this system.
func dieWith(*syscall.SysProcAttr) {}
