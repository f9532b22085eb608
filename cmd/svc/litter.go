package main

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
)

// litter has the temporary files and folders of this process. A program that is given up removes them before it ends.
var litter litterBox

// litterBox is a set of temporary files and folders.
type litterBox struct {
	mu    sync.Mutex
	names map[string]bool
}

// name returns a new name in dir that begins with prefix. It is in the set before the file exists, so that it is removed at
// every moment.
func (l *litterBox) name(dir, prefix string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = map[string]bool{}
	}
	name := filepath.Join(dir, prefix+rand.Text()[:10])
	l.names[name] = true
	return name
}

// file creates a temporary file that only its user can read.
func (l *litterBox) file(dir, prefix string) (*os.File, error) {
	return os.OpenFile(l.name(dir, prefix), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// folder creates a temporary folder.
func (l *litterBox) folder(dir, prefix string) (string, error) {
	name := l.name(dir, prefix)
	return name, os.Mkdir(name, 0o700)
}

// remove removes a file or folder with its contents. If it does not exist any more, that is no error.
func (l *litterBox) remove(name string) error {
	l.mu.Lock()
	delete(l.names, name)
	l.mu.Unlock()
	return os.RemoveAll(name)
}

// clear removes all files and folders of the set. Another goroutine may still write to them.
func (l *litterBox) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.names {
		for tries := 3; os.RemoveAll(name) != nil && tries > 0; tries-- {
		}
	}
}
