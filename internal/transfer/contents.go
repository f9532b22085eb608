package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"example.com/svc/internal/cause"
)

// seeker reads by way of a position that every reader of it moves. It goes
// where it has to be first, whatever an earlier attempt has left behind.
type seeker struct {
	io.ReadSeeker
	pos int64 // -1: not known
}

func (k *seeker) ReadAt(p []byte, off int64) (int, error) {
	if k.pos != off {
		k.pos = -1
		if _, err := k.Seek(off, io.SeekStart); err != nil {
			return 0, err
		}
		k.pos = off
	}
	n, err := readSome(context.Background(), k.ReadSeeker, p)
	k.pos += int64(n)
	return n, err
}

// readSome reads until something comes of it, but not for ever.
func readSome(ctx context.Context, r io.Reader, p []byte) (int, error) {
	for range 100 {
		if err := cause.Of(ctx); err != nil {
			return 0, err
		}
		switch n, err := r.Read(p); {
		case n < 0 || n > len(p):
			return 0, fmt.Errorf("the body says it has read %d of %d bytes", n, len(p))
		case n > 0 || err != nil:
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// buffered is a copy of what a reader had to give.
type buffered struct {
	io.ReaderAt
	size  int64
	close func()
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// inMemory is how much is buffered without a file.
const inMemory = 64 << 10

// buffer reads r to its end, or to just beyond size if that is above zero. When
// ctx ends it returns at once, also while r blocks: then the rest is cleared up
// as soon as r lets go.
func buffer(ctx context.Context, r io.Reader, size int64) (*buffered, error) {
	read := readerFunc(func(p []byte) (int, error) { return readSome(ctx, r, p) })
	return within(ctx, func() (*buffered, error) { return copyAll(read, size) }, func(b *buffered) { b.close() })
}

// within is what f returns, unless ctx ends first: then f is left to itself, and what
// comes of it goes to drop.
func within[T any](ctx context.Context, f func() (T, error), drop func(T)) (none T, err error) {
	var value T
	failed := io.ErrNoProgress // if f does not return
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, failed = f()
	}()
	select {
	case <-done:
		return value, failed
	case <-ctx.Done():
		go func() {
			if <-done; failed == nil {
				drop(value)
			}
		}()
		return none, cause.Of(ctx)
	}
}

func copyAll(r io.Reader, size int64) (*buffered, error) {
	if size > 0 {
		r = io.LimitReader(r, size+1)
	}
	head, err := io.ReadAll(io.LimitReader(r, inMemory+1))
	if err != nil {
		return nil, err
	}
	if len(head) <= inMemory {
		return &buffered{bytes.NewReader(head), int64(len(head)), func() {}}, nil
	}
	f, err := os.CreateTemp("", "svc-upload-*")
	if err != nil {
		return nil, err
	}
	// Where a file can lose its name while it is open, nothing is left behind even
	// if the process is killed.
	unnamed := os.Remove(f.Name()) == nil
	b := &buffered{ReaderAt: f, close: func() {
		_ = f.Close()
		if !unnamed {
			_ = os.Remove(f.Name())
		}
	}}
	if b.size, err = io.Copy(f, io.MultiReader(bytes.NewReader(head), r)); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// Open opens a file for reading. Unlike [os.Open] on a named pipe, it does not
// outlast ctx.
func Open(ctx context.Context, path string) (*os.File, error) {
	return within(ctx, func() (*os.File, error) { return os.Open(path) }, func(f *os.File) { _ = f.Close() })
}
