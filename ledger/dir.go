package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/lazy"
	"example.com/svc/internal/same"
)

// Dir returns a store in the folder path. It keeps each record in a separate file, such as
// deploy-7@000001.json, which only its owner may read. The folder is created if it does not exist, and
// other files in it are ignored. Several processes can share it, and on NFS several machines. It uses
// no locks, so a process that is killed does not block others.
//
// A record is on the disk when Append returns. Windows cannot sync a folder: there a record survives
// the end of the process, but may be lost in a power failure.
//
// The file .svc-ledger marks the folder as a ledger. Without that file, all calls fail, since the
// volume of the ledger may not be mounted. With [MustExist], Dir does not make a folder into a ledger,
// and needs no write: a ledger on a full disk or a read-only volume can be read, and only Append fails.
// Otherwise Dir fails if the folder cannot be written, or if its file system has no hard links. With
// [MustNotExist], it fails if the folder is a ledger.
func Dir(path string, opts ...Option) (Store, error) {
	path, err := filepath.Abs(path) // so that a change of the working directory does not matter
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	d := &dir{path: path, indexed: make(map[string]int64), keys: make(map[string][]string)}
	begin := d.make
	if slices.Contains(opts, MustExist()) {
		begin = d.marked
	}
	switch err := begin(); {
	case err == nil:
	case !errors.Is(err, fs.ErrExist), slices.Contains(opts, MustNotExist()):
		return nil, fmt.Errorf("ledger: %w", err)
	}
	left, _ := fs.Glob(os.DirFS(path), ".ledger-*") // temporary files that processes left when they died
	for _, name := range left {
		if info, err := os.Stat(filepath.Join(path, name)); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(path, name))
		}
	}
	return d, nil
}

type dir struct {
	path string // absolute

	mu      sync.Mutex
	indexed map[string]int64    // maps a key to the Seq of the last record that keys considers
	keys    map[string][]string // maps the ID of an endpoint to the keys that have a record of it
}

// make creates the folder and the file .svc-ledger. If there is one, the error matches fs.ErrExist, and the folder can be
// written.
func (d *dir) make() error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return errors.New(err.Error()) // it is about the folder, so it must not match fs.ErrExist
	}
	_ = syncFolder(filepath.Dir(d.path)) // the folder may be new; an error is ignored, since the parent may not be readable
	return d.create(d.mark(), []byte("A ledger of endpoints that may be running. Do not delete this file.\n"))
}

func (d *dir) mark() string { return filepath.Join(d.path, ".svc-ledger") }

// marked returns an error unless the folder holds the file .svc-ledger.
func (d *dir) marked() error {
	if _, err := os.Stat(d.mark()); err != nil {
		return fmt.Errorf("the folder %q is not a ledger, or its volume is not mounted: %w", d.path, err)
	}
	return nil
}

func (d *dir) file(key string, seq int64) string {
	return filepath.Join(d.path, fmt.Sprintf("%s@%06d.json", key, seq))
}

func (d *dir) Append(ctx context.Context, r Record) error {
	text, err := Encode(r)
	if err = cmp.Or(cause.Of(ctx), err, d.marked()); err == nil {
		err = d.create(d.file(r.Key, r.Seq), append(text, '\n'))
	}
	if err != nil {
		err = fmt.Errorf("ledger: writing %s: %w", d.file(r.Key, r.Seq), err)
	}
	return err
}

// create writes text to a temporary file, syncs it, and links it to the name file, so that no
// reader sees an incomplete file. It returns an error if the name exists.
func (d *dir) create(file string, text []byte) error {
	tmp, err := os.CreateTemp(d.path, ".ledger-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), file) // atomic, on NFS too
	}
	if err != nil {
		return err
	}
	return syncFolder(d.path)
}

// syncFolder syncs a folder, so that the names in it are durable.
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

var fileName = lazy.Regexp(`^([a-z0-9_-]{1,64})@(\d{6}|[1-9]\d{6,17})\.json$`)

// name identifies a record by its key and its number.
type name struct {
	key string
	seq int64
}

// names returns the records of a key, or of all keys, that the folder shows, sorted.
func (d *dir) names(key string) (names []name, err error) {
	if err := d.marked(); err != nil {
		return nil, err
	}
	folder, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	files, err := folder.Readdirnames(-1)
	prefix := strings.TrimPrefix(key+"@", "@") // empty for all keys
	for _, file := range files {
		if !strings.HasPrefix(file, prefix) {
			continue
		}
		if m := fileName().FindStringSubmatch(file); m != nil {
			seq, _ := strconv.ParseInt(m[2], 10, 64)
			names = append(names, name{m[1], seq})
		}
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) })
	return names, err
}

func (d *dir) List(ctx context.Context, key string) (all []Record, err error) {
	for {
		all, changed, err := d.list(ctx, key)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if changed {
			continue
		}
		if _, damaged := errors.AsType[*Error](err); err != nil && !damaged {
			err = fmt.Errorf("ledger: reading the records: %w", err)
		}
		return all, err
	}
}

// list reads the records once. If a file is removed meanwhile, changed is true, and all may lack
// records. [Fold] handles a record that is missing between others.
func (d *dir) list(ctx context.Context, key string) (all []Record, changed bool, err error) {
	names, err := d.names(key)
	if err != nil {
		return nil, false, err
	}
	damaged, last := []error(nil), name{}
	for _, n := range names {
		if n.key != last.key {
			last = name{n.key, 0}
		}
		// Older files are read even if the folder did not show them: it may miss one while it changes.
		for last.seq < n.seq && ctx.Err() == nil {
			last.seq++
			r, unread := d.read(last)
			switch {
			case unread == nil:
				all = append(all, r)
			case !errors.Is(unread, fs.ErrNotExist):
				damaged = append(damaged, unread)
			case last == n:
				return nil, true, nil
			default:
				last.seq = n.seq - 1
			}
		}
	}
	return all, false, errors.Join(damaged...)
}

func (d *dir) read(n name) (Record, error) {
	file := d.file(n.key, n.seq)
	text, err := os.ReadFile(file)
	if err != nil {
		return Record{}, Damage(n.key, file, err)
	}
	return Decode(n.key, n.seq, file, text)
}

// Find reads each record once, and caches its ServiceID. A record that cannot be read is read
// again the next time.
func (d *dir) Find(ctx context.Context, id string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names, err := d.names("")
	for _, n := range names {
		if n.seq <= d.indexed[n.key] || n.seq == 1 { // the first record of a key holds no ServiceID
			continue
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		r, unread := d.read(n)
		if unread != nil {
			continue
		}
		if d.indexed[n.key] = n.seq; r.ServiceID != "" {
			if of := same.Canonical(r.ServiceID); !slices.Contains(d.keys[of], n.key) {
				d.keys[of] = append(d.keys[of], n.key)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: searching the records: %w", err)
	}
	return slices.Clone(d.keys[same.Canonical(id)]), nil
}

func (d *dir) Prune(ctx context.Context, key string, upTo int64) error {
	for seq := range upTo {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := os.Remove(d.file(key, seq+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ledger: removing a record: %w", err)
		}
	}
	return nil
}
