package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"example.com/svc"
)

// Dir returns a store that keeps each record in a file of its own in the folder path,
// such as deploy-7@000001.json, which only its owner may read. The folder is created if
// it does not exist. Processes can share it and, on NFS, machines. There are no locks, so
// a process that dies blocks nobody. Other files in the folder are ignored.
//
// A record is on the disk when Append returns. Windows cannot sync a folder: there a
// record survives the end of the process, but perhaps not a power failure.
//
// Dir fails if the folder cannot be written, or if its file system has no hard links.
func Dir(path string) (svc.LedgerStore, error) {
	path, err := filepath.Abs(path) // the program may change its folder
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	d := dir(path)
	left, _ := filepath.Glob(filepath.Join(path, ".ledger-*")) // by processes that died
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(name)
		}
	}
	link := filepath.Join(path, fmt.Sprintf(".ledger-link-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := d.create(nil, link); err != nil {
		return nil, err
	}
	return d, os.Remove(link)
}

type dir string // an absolute path

func (d dir) file(key string, seq int64) string {
	return filepath.Join(string(d), fmt.Sprintf("%s@%06d.json", key, seq))
}

// Append fails if the file exists.
func (d dir) Append(ctx context.Context, r svc.LedgerRecord) error {
	text, err := encode(ctx, r)
	if err != nil {
		return err
	}
	return d.create(append(text, '\n'), d.file(r.Key, r.Seq))
}

// create gives a file its name when all of its text is on the disk, so there is
// never a part of it under that name. The name must be new.
func (d dir) create(text []byte, name string) error {
	tmp, err := os.CreateTemp(string(d), ".ledger-*") // mode 0600
	if err != nil {
		return fmt.Errorf("ledger: %s was not written: %w", name, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), name) // atomic, on NFS too
	}
	if err != nil {
		return fmt.Errorf("ledger: %s was not written: %w", name, err)
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(string(d))
	if err == nil {
		err = errors.Join(folder.Sync(), folder.Close())
	}
	if err != nil {
		return fmt.Errorf("ledger: %s was written, and may be lost when the machine fails: %w", name, err)
	}
	return nil
}

var fileName = regexp.MustCompile(`^([a-z0-9_-]{1,64})@(\d{6,18})\.json$`)

func (d dir) List(ctx context.Context, key string) (all []svc.LedgerRecord, err error) {
	files, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	listed := make(map[string][]int64) // by key
	for _, f := range files {
		if m := fileName.FindStringSubmatch(f.Name()); m != nil && (key == "" || key == m[1]) {
			if seq, _ := strconv.ParseInt(m[2], 10, 64); d.file(m[1], seq) == filepath.Join(string(d), f.Name()) {
				listed[m[1]] = append(listed[m[1]], seq)
			}
		}
	}
	var damaged []error
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		slices.Sort(listed[key])
		// By number: while a folder changes, ReadDir may show a new name and not an older one.
		for seq := int64(1); ctx.Err() == nil; seq++ {
			text, err := os.ReadFile(d.file(key, seq))
			r, damage := decode(text, key, seq, d.file(key, seq), err)
			if errors.Is(err, fs.ErrNotExist) {
				next, _ := slices.BinarySearch(listed[key], seq)
				if next == len(listed[key]) {
					break
				}
				seq = listed[key][next] - 1
			}
			if damaged = append(damaged, damage); damage == nil {
				all = append(all, r)
			}
		}
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, errors.Join(damaged...)
}
