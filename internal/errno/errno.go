//go:build !plan9

// Package errno defines the errors of connections that exist on every system but Plan 9.
package errno

import "syscall"

// Errors of connections.
const (
	ConnRefused = syscall.ECONNREFUSED
	ConnReset   = syscall.ECONNRESET
	Pipe        = syscall.EPIPE
)
