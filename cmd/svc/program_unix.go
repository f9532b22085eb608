//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// program is CMD of "svc run" with its children.
type program struct {
	cmd   *exec.Cmd
	group bool // they have a process group of their own
}

// newProgram prepares cmd. It gets its own process group, so that a signal also reaches its children. On
// a terminal it does not: only the group in the foreground may read from a terminal, and Ctrl-Z has to
// stop both programs.
func newProgram(cmd *exec.Cmd) *program {
	cmd.SysProcAttr = new(syscall.SysProcAttr)
	dieWith(cmd.SysProcAttr)
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		_ = tty.Close()
		return &program{cmd, false}
	}
	cmd.SysProcAttr.Setpgid = true
	return &program{cmd, true}
}

// hasIt reports whether the program has already received a signal. A terminal sends Ctrl-C and Ctrl-\ to
// both programs.
func (p *program) hasIt(s os.Signal) bool {
	return !p.group && (s == os.Interrupt || s == syscall.SIGQUIT)
}

// send sends a signal to the program, and to its group.
func (p *program) send(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok && p.group {
		_ = syscall.Kill(-p.cmd.Process.Pid, number)
		return
	}
	_ = p.cmd.Process.Signal(s)
}

func (p *program) kill() { p.send(syscall.SIGKILL) }

// others reports whether a process of the group has not ended.
func (p *program) others() bool { return p.group && syscall.Kill(-p.cmd.Process.Pid, 0) == nil }
