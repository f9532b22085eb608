package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"example.com/svc/internal/lazy"
)

// A File is a file that gets its name only when it is complete. Until then its contents are in
// a temporary file in the same directory.
type File struct {
	*os.File
	target string
	old    fs.FileInfo // the file that is replaced; nil if no file is replaced
}

// NewFile creates the temporary file. A symbolic link is followed, even if its target does not exist.
func NewFile(path string) (*File, error) {
	if path == "" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if os.IsPathSeparator(path[len(path)-1]) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	path, err := followLinks(path)
	if err != nil {
		return nil, err
	}
	f := &File{target: path}
	perm := fs.FileMode(0o600)
	if f.old, err = replaceable(path); errors.Is(err, fs.ErrNotExist) {
		f.old, perm = nil, 0o644 // before umask
	} else if err != nil {
		return nil, err
	}
	dir, _ := filepath.Split(path)
	sweep(dir)
	temp := fmt.Sprintf("%s.svc-download-%016x.part", dir, rand.Uint64()) //nolint:gosec // O_EXCL sees to it that the name is free
	if f.File, err = os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm); err != nil {
		return nil, err
	}
	return f, nil
}

// replaceable returns what is known about the file at path. It is an error if a rename cannot
// replace the file.
func replaceable(path string) (fs.FileInfo, error) {
	const useWriter = ": it cannot be replaced by another file; open it, and use Download with a writer"
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is not a regular file%s", path, useWriter)
	case IsMount(path):
		return nil, fmt.Errorf("%q is a mount point%s", path, useWriter)
	}
	return info, nil
}

var tempForm = lazy.Regexp(`^\.svc-download-[0-9a-f]{16}\.part$`)

// sweep removes temporary files that were not written to for a day, which killed downloads have
// left.
func sweep(dir string) {
	const most = 10_000 // names that are read; a larger folder would slow down each download
	d, err := os.Open(filepath.Join(dir, "."))
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(most)
	for _, name := range names {
		if !tempForm().MatchString(name) {
			continue
		}
		info, err := os.Lstat(dir + name)
		if err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(dir + name)
		}
	}
}

// followLinks returns the target of path after all symbolic links. The target need not exist.
func followLinks(path string) (string, error) {
	for range 40 { // Linux follows as many symbolic links
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // path is not a symbolic link
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to // filepath.Join would turn a/../b into b, which is wrong if a is a symbolic link
		}
		path = to
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("too many levels of symbolic links")}
}

// IsMount reports whether a file is a mount point, which cannot be replaced by a rename. On
// systems without /proc it is always false.
func IsMount(path string) bool {
	path, _ = filepath.EvalSymlinks(path)
	path, _ = filepath.Abs(path)
	path = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	found, _ := regexp.Match(`(?m)^\S+ \S+ \S+ \S+ `+regexp.QuoteMeta(path)+" ", mounts)
	return found
}

// Restart truncates the file.
func (f *File) Restart() error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return f.Truncate(0)
}

// Commit renames the temporary file to its final name. If it replaces a file, it keeps the mode
// of that file, and its owner where the system allows it.
func (f *File) Commit() error {
	if f.old != nil {
		chown(f.File, f.old)
		if err := f.Chmod(f.old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.target)
}

// Discard removes the temporary file, if there still is one.
func (f *File) Discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
