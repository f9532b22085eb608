package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/svc"
)

// errWrongSum is returned when contents do not have the SHA-256 of --sha256.
var errWrongSum = errors.New("the contents do not have the expected SHA-256")

// fetched describes contents that were downloaded.
type fetched struct {
	bytes  int64
	sha256 string
}

// check compares the SHA-256 with the expected one, if there is one.
func (f fetched) check(want string) error {
	if want != "" && want != f.sha256 {
		return fmt.Errorf("%w: got %s, want %s", errWrongSum, f.sha256, want)
	}
	return nil
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// existsError is returned when the target file exists.
func existsError(file string) error {
	return fmt.Errorf("%s exists: --force overwrites it", file)
}

// fetch downloads to a temporary file, and renames it to the final name if its SHA-256 is the
// expected one. Without force, it never overwrites a file. If this program is killed, the temporary file stays, in a folder
// .svc-download-*, and no later download uses it.
func (t *tool) fetch(file string, force bool, want string, download func(string, *svc.DownloadOptions) (int64, error)) (got fetched, err error) {
	target, old, err := free(file, force)
	if err != nil {
		return got, usageError{err}
	}
	dir, err := litter.folder(filepath.Dir(target), ".svc-download-")
	if err != nil {
		return got, usageError{err}
	}
	defer func() { _ = litter.remove(dir) }()
	tmp := filepath.Join(dir, "contents")
	got.bytes, err = download(tmp, &svc.DownloadOptions{Progress: t.talk.transfer("downloading " + printable(filepath.Base(file)))})
	t.talk.endLine()
	if err != nil {
		return got, err
	}
	if got.sha256, err = sumOfFile(tmp); err != nil {
		return got, err
	}
	if err := got.check(want); err != nil {
		return got, fmt.Errorf("%s was not written: %w", file, err)
	}
	if old != nil { // as before, it can be read by the same users
		if err := os.Chmod(tmp, old.Mode().Perm()); err != nil {
			return got, err
		}
	}
	return got, move(tmp, file, target, force)
}

// free returns the file that a download to file makes or replaces. Without force, it must not exist.
func free(file string, force bool) (target string, old fs.FileInfo, err error) {
	target, old, err = targetOf(file)
	if err == nil && old != nil && !force {
		err = existsError(file)
	}
	return target, old, err
}

func sumOfFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return sum(h), err
}

// move gives the file from the name target, which is the target of file. A hard link fails if the name exists; where the file system has
// no links, move checks again that the name is free, and with force, that it still is one that may be replaced.
func move(from, file, target string, force bool) error {
	err := fs.ErrInvalid
	if !force {
		err = os.Link(from, target)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return existsError(file)
	}
	now, _, err := free(file, force)
	if err == nil && now != target {
		err = fmt.Errorf("%s was changed meanwhile: it is not replaced", file)
	}
	if err != nil {
		return err
	}
	return os.Rename(from, target)
}
