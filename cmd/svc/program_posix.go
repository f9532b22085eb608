//go:build unix && !linux

package main

import "syscall"

// dieWith does nothing: this system has no such thing.
func dieWith(*syscall.SysProcAttr) {}
