package errno

import "syscall"

// Errors of connections.
var (
	ConnRefused = syscall.NewError("connection refused")
	ConnReset   = syscall.NewError("connection reset")
	Pipe        = syscall.NewError("write to hungup channel")
)
