package main

import "syscall"

// dieWith lets the kernel kill the program when the thread that has started it ends: nothing else is left to do
// after a SIGKILL of this program. What the program has started goes on.
func dieWith(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
