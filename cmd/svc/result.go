package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// result is the file of "svc run --result". Without a name there is none.
type result struct {
	name    string
	refused bool // it cannot be written: nothing is
	mine    bool // what is there now may be replaced

	mu           sync.Mutex
	code, signal *int // how CMD has ended
}

// maxResult is far above the size of a result.
const maxResult = 1 << 20

// resultError is returned if the file of --result cannot be written.
type resultError struct{ error }

func (e resultError) Error() string { return "--result cannot be written: " + e.error.Error() }

func (e resultError) Unwrap() error { return e.error }

// prepare removes an older file, and checks that a new one can be created.
func (r *result) prepare() (err error) {
	if r.name == "" {
		return nil
	}
	defer func() {
		if r.refused = err != nil; r.refused {
			err = fmt.Errorf("--result: %w", err)
		}
	}()
	target, err := r.target()
	if err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := r.temporary(target)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), litter.remove(f.Name()))
}

// target returns where the file is to be. It returns an error if something else is there, such as a ledger or CMD: only an
// earlier result, or an empty file, is replaced.
func (r *result) target() (string, error) {
	target, old, err := targetOf(r.name)
	if err != nil || old == nil || old.Size() == 0 || r.mine {
		r.mine = err == nil
		return target, err
	}
	var earlier map[string]any
	if old.Size() <= maxResult { // a ledger may be large
		text, err := os.ReadFile(target)
		if err != nil {
			return target, err
		}
		_ = json.Unmarshal(text, &earlier)
	}
	if earlier["svc_exit_code"] == nil {
		return target, fmt.Errorf("%s is not a result of svc run: name another file, or remove it", r.name)
	}
	r.mine = true
	return target, nil
}

// temporary makes a temporary file beside the one that it will be.
func (r *result) temporary(target string) (*os.File, error) {
	return litter.file(filepath.Dir(target), ".svc-result-")
}

// ended records how CMD has ended.
func (r *result) ended(code, signal *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code, r.signal = code, signal
}

// saveResult writes the file of --result. It is renamed into place when it is complete.
func (t *tool) saveResult(err error, code int, c *command, f facts) error {
	v, isRun := c.empty().(*runView)
	r := &t.result
	if !isRun || r.name == "" || r.refused || c.run == nil && err == nil {
		return nil
	}
	t.complete(v, err, code, c, f)
	r.mu.Lock()
	v.CommandExitCode, v.CommandSignal, v.LeaseOver = r.code, r.signal, f.LeaseOver
	r.mu.Unlock()
	text, failed := json.MarshalIndent(v, "", "  ")
	if failed == nil {
		failed = r.replace(append(text, '\n'))
	}
	if failed != nil {
		return resultError{failed}
	}
	return nil
}

// replace writes the file, which only its user can read. After a usage error, prepare may not have been called.
func (r *result) replace(text []byte) error {
	target, err := r.target()
	if err != nil {
		return err
	}
	f, err := r.temporary(target)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		_ = litter.remove(f.Name())
	}
	return err
}
