//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// program is CMD of "svc run".
type program struct{ cmd *exec.Cmd }

func newProgram(cmd *exec.Cmd) *program { return &program{cmd} }

// hasIt reports whether the program has already received a signal. A console sends Ctrl-C to both
// programs.
func (p *program) hasIt(s os.Signal) bool { return s == os.Interrupt }

func (p *program) send(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *program) kill() { _ = p.cmd.Process.Kill() }

// others reports whether what the program has started still runs, which is not known here.
func (p *program) others() bool { return false }
