package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// File is a file that takes its name only when it is complete. Until then its
// contents are in a temporary file beside it.
type File struct {
	*os.File
	target string
	mode   fs.FileMode // of the file that it replaces; 0: there is none
	done   bool
}

// NewFile begins a file. A link to a file is followed: it stays a link.
func NewFile(path string) (*File, error) {
	if path == "" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if os.IsPathSeparator(path[len(path)-1]) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f := &File{target: path}
	perm := fs.FileMode(0o644) // less the umask
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: give a writer on it instead", path)
	case err == nil:
		f.mode, perm = info.Mode().Perm(), 0o600
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	dir, name := filepath.Split(path)
	const longest = 200 // most file systems take names of up to 255 bytes
	name = strings.ToValidUTF8(name[:min(len(name), longest)], "")
	for range 1000 {
		temp := fmt.Sprintf("%s.%s.%08x.part", dir, name, rand.Uint32()) //nolint:gosec // O_EXCL sees to it that the name is free
		var err error
		if f.File, err = os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm); err == nil {
			return f, nil
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
}

// Restart makes the file empty again.
func (f *File) Restart() error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return f.Truncate(0)
}

// Commit gives the file its name and, if it replaces another, that one's mode.
func (f *File) Commit() error {
	if f.mode != 0 {
		if err := f.Chmod(f.mode); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.target); err != nil {
		return err
	}
	f.done = true
	return nil
}

// Discard removes the temporary file, unless the file is complete.
func (f *File) Discard() {
	if !f.done {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}
