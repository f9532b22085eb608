package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// Dir returns a store in the folder path. It keeps each record in a separate file, such as
// deploy-7@000001.json, which only its owner may read. The folder is created if it does not
// exist, and other files in it are ignored. Several processes can share it, and on NFS
// several machines. There are no locks, so a process that dies blocks nobody.
//
// A record is on the disk when Append returns. Windows cannot sync a folder: there a
// record survives the end of the process, but may be lost when the power fails.
//
// Dir fails if the folder cannot be written, or if its file system has no hard links.
func Dir(path string) (Store, error) {
	path, err := filepath.Abs(path) // the program may change its working directory
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	_ = syncFolder(filepath.Dir(path)) // path may be new; an error does not count, since the parent may not be readable
	d := dir(path)
	left, _ := filepath.Glob(filepath.Join(path, ".ledger-*")) // temporary files that processes left when they died
	for _, file := range left {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(file)
		}
	}
	link := filepath.Join(path, fmt.Sprintf(".ledger-link-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := d.create(link, nil); err != nil {
		return nil, fmt.Errorf("ledger: the folder %q cannot be used: %w", path, err)
	}
	return d, os.Remove(link)
}

type dir string // an absolute path

func (d dir) file(key string, seq int64) string {
	return filepath.Join(string(d), fmt.Sprintf("%s@%06d.json", key, seq))
}

func (d dir) Append(ctx context.Context, r Record) error {
	text, err := Encode(r)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.create(d.file(r.Key, r.Seq), append(text, '\n'))
	}
	return writing(d.file(r.Key, r.Seq), err)
}

// create writes the text to a temporary file, and gives it the name file when all of the text
// is on the disk. So the file is never seen incomplete. It is an error if the name exists.
func (d dir) create(file string, text []byte) error {
	tmp, err := os.CreateTemp(string(d), ".ledger-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), file) // atomic, on NFS too
	}
	if err != nil {
		return err
	}
	return syncFolder(string(d))
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

var fileName = regexp.MustCompile(`^([a-z0-9_-]{1,64})@(\d{6}|[1-9]\d{6,17})\.json$`)

// name identifies a record by its key and its number.
type name struct {
	key string
	seq int64
}

// names returns the records that the folder shows, sorted.
func (d dir) names(key string) (names []name, err error) {
	files, err := os.ReadDir(string(d))
	for _, f := range files {
		if m := fileName.FindStringSubmatch(f.Name()); m != nil && (key == "" || key == m[1]) {
			seq, _ := strconv.ParseInt(m[2], 10, 64)
			names = append(names, name{m[1], seq})
		}
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) })
	return names, err
}

func (d dir) List(ctx context.Context, key string) (all []Record, err error) {
	names, err := d.names(key)
	var damaged []error
	var last name
	for _, n := range names {
		if n.key != last.key {
			last = name{n.key, 0}
		}
		// Older files are read even if ReadDir did not show them: it may miss one while the folder changes.
		for last.seq < n.seq && ctx.Err() == nil {
			last.seq++
			r, unread := d.read(last)
			if unread == nil {
				all = append(all, r)
				continue
			}
			damaged = append(damaged, unread)
			if errors.Is(unread, fs.ErrNotExist) {
				last.seq = max(last.seq, n.seq-1)
			}
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return all, fmt.Errorf("ledger: reading the records: %w", err)
	}
	return all, errors.Join(damaged...)
}

func (d dir) read(n name) (Record, error) {
	file := d.file(n.key, n.seq)
	text, err := os.ReadFile(file)
	if err != nil {
		return Record{}, Damage(n.key, file, err)
	}
	return Decode(n.key, n.seq, file, text)
}
