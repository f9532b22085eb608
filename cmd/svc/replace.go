package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/svc/internal/lazy"
	"example.com/svc/internal/transfer"
)

// irregularError is returned for a path that a file must not replace: a device, a pipe, a socket, a folder, a mount point, or an
// open file of this process. As root, a rename would replace even /dev/null.
type irregularError struct{ path, text string }

func (e irregularError) Error() string { return e.path + " " + e.text }

// openFiles matches the folders that show the open files of a process. Behind /dev/stdout may be a regular file, but the
// process has it open, and would go on with the old one.
var openFiles = lazy.Regexp(`^(/dev/fd|/proc/([0-9]+|self|thread-self)(/task/[0-9]+)?/fd)$`)

const notAFile = "is a folder: give the name of a file in it"

// targetOf returns the file that a rename makes or replaces, so that what is written to a temporary file beside it has the name path: it
// follows symbolic links, which stay. old is nil if the file does not exist. All that gets its name by a rename asks
// this first, before anything is fetched or created.
func targetOf(path string) (file string, old fs.FileInfo, err error) {
	if os.IsPathSeparator(path[len(path)-1]) {
		return "", nil, irregularError{path, notAFile}
	}
	if file, err = followLinks(path); err != nil {
		return "", nil, err
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, nil, nil
	case err != nil:
		return "", nil, err
	case info.IsDir():
		return "", nil, irregularError{path, notAFile}
	case !info.Mode().IsRegular():
		return "", nil, irregularError{path, "is not a regular file, and nothing else is replaced"}
	case transfer.IsMount(file):
		return "", nil, irregularError{path, "is a mount point, which cannot be replaced"}
	}
	return file, info, nil
}

// followLinks returns the last target of path, which need not exist.
func followLinks(path string) (string, error) {
	file := path
	for range 40 { // Linux follows as many symbolic links
		dir, base := filepath.Split(file) // filepath.Dir would turn a/../b into b, which is wrong if a is a symbolic link
		if dir, err := filepath.EvalSymlinks(cmp.Or(dir, ".")); err == nil {
			if openFiles().MatchString(dir) {
				return "", irregularError{path, "is an open file of a process, and only a regular file is replaced"}
			}
			file = filepath.Join(dir, base)
		}
		to, err := os.Readlink(file)
		if err != nil {
			return file, nil //nolint:nilerr // it is no symbolic link
		}
		if !filepath.IsAbs(to) {
			to = dir + to
		}
		file = to
	}
	return "", fmt.Errorf("%s is a symbolic link that leads to itself, or to too many others", path)
}
