// Command svc runs container images as dedicated endpoints of the Inference Service API: for
// interactive use, and for scripts and pipelines. README.md describes its use, and how to add
// a command.
package main

//go:generate go test -run UpToDate -update .

import "os"

func main() {
	t := newTool(os.Stdin, os.Stdout, os.Stderr, watchSignals())
	os.Exit(t.main(os.Args[1:]))
}
