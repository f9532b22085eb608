package main

import "syscall"

// dieWith makes the kernel kill the program when the thread that started it ends, for example after a
// SIGKILL of this program. The children of the program continue.
func dieWith(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
