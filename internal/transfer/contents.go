package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"example.com/svc/internal/apart"
	"example.com/svc/internal/cause"
)

// direct reads at offsets from where a reader stood.
type direct struct {
	at    io.ReaderAt
	start int64
}

func (d *direct) readAt(p []byte, off int64) (int, error) { return d.at.ReadAt(p, d.start+off) }

// seeker reads by way of a position that every reader of it moves. It goes
// where it has to be first, whatever an earlier attempt has left behind.
type seeker struct {
	r     io.ReadSeeker
	start int64
	pos   int64 // from start; -1: not known
}

func (k *seeker) readAt(p []byte, off int64) (int, error) {
	if k.pos != off {
		k.pos = -1
		if _, err := k.r.Seek(k.start+off, io.SeekStart); err != nil {
			return 0, err
		}
		k.pos = off
	}
	n, err := readSome(context.Background(), k.r, p)
	k.pos += int64(n)
	return n, err
}

func (k *seeker) leave(sent bool, size int64) {
	to := k.start
	if sent {
		to += size
	}
	_, _ = k.r.Seek(to, io.SeekStart)
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

// spooled is a copy of what a reader had to give.
type spooled struct {
	contents contents
	size     int64
	file     *os.File // nil: in memory
	remove   bool     // the file still has a name
}

func (s *spooled) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.remove {
		_ = os.Remove(s.file.Name())
	}
}

// inMemory is how much is spooled without a file.
const inMemory = 64 << 10

// spool reads r to its end, or to just beyond size if that is above zero. When
// ctx ends it returns at once, also while r blocks: then the rest is cleared up
// as soon as r lets go.
func spool(ctx context.Context, r io.Reader, size int64) (*spooled, error) {
	return within(ctx, "the body", func() (*spooled, error) { return copyAll(&interruptible{ctx, r}, size) }, (*spooled).close)
}

// within is what f returns, unless ctx ends first: then f is left to itself, and what
// comes of it goes to drop.
func within[T any](ctx context.Context, what string, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result)
	var r result
	go apart.Run(func() (err error) {
		r.value, err = f()
		return err
	}, func(e apart.End) {
		r.err = e.Err(what)
		select {
		case done <- r:
		case <-ctx.Done():
			if r.err == nil {
				drop(r.value)
			}
		}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, cause.Of(ctx)
	}
}

func copyAll(r io.Reader, size int64) (_ *spooled, err error) {
	if size > 0 {
		r = io.LimitReader(r, size+1)
	}
	head, err := io.ReadAll(io.LimitReader(r, inMemory+1))
	if err != nil {
		return nil, err
	}
	s := &spooled{size: int64(len(head))}
	if len(head) <= inMemory {
		s.contents = &direct{at: bytes.NewReader(head)}
		return s, nil
	}
	if s.file, err = os.CreateTemp("", "svc-upload-*"); err != nil {
		return nil, err
	}
	// Where a file can lose its name while it is open, nothing is left behind even
	// if the process is killed.
	s.remove = os.Remove(s.file.Name()) != nil
	copied := false
	defer func() {
		if !copied {
			s.close()
		}
	}()
	if s.size, err = io.Copy(s.file, io.MultiReader(bytes.NewReader(head), r)); err != nil {
		return nil, err
	}
	s.contents, copied = &direct{at: s.file}, true
	return s, nil
}

// interruptible ends between two reads when ctx does.
type interruptible struct {
	ctx context.Context //nolint:containedctx // it lives as long as the copying
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	return readSome(i.ctx, i.r, p)
}

// Open opens a file for reading. Unlike [os.Open] on a named pipe, it does not
// outlast ctx.
func Open(ctx context.Context, path string) (*os.File, error) {
	return within(ctx, "opening the file", func() (*os.File, error) { return os.Open(path) }, func(f *os.File) { _ = f.Close() })
}
