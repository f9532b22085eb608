package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// errNoInterpreter is returned for a CMD whose first line names an interpreter that does not exist, or is no program.
var errNoInterpreter = errors.New("which does not exist or cannot be executed")

// interpret lets sh run a text that does not name its interpreter in the first line, as a shell does. It returns an error if
// the interpreter that CMD names does not exist, or is no program.
func interpret(cmd *exec.Cmd) error {
	info, err := os.Stat(cmd.Path)
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS == "windows" {
		return nil
	}
	file, err := os.Open(cmd.Path)
	if err != nil {
		return nil // it may be executable for those who cannot read it
	}
	defer file.Close()
	head := make([]byte, 1024)
	n, err := io.ReadFull(file, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil
	}
	line, marked := strings.CutPrefix(string(head[:n]), "#!")
	if !marked {
		if !strings.Contains(line, "\x00") {
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", cmd.Path}, cmd.Args[1:]...)
		}
		return nil
	}
	line, _, _ = strings.Cut(line, "\n")
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 {
		return nil
	}
	if program, err := os.Stat(words[0]); errors.Is(err, fs.ErrNotExist) || err == nil && (program.IsDir() || program.Mode()&0o111 == 0) {
		return &exec.Error{Name: cmd.Args[0], Err: fmt.Errorf("its first line names the interpreter %q, %w", words[0], errNoInterpreter)}
	}
	return nil
}
