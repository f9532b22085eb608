package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"example.com/svc/internal/cause"
)

// steady is a reader that stops when ctx ends. Its Read never returns 0 bytes without an error.
type steady struct {
	ctx context.Context //nolint:containedctx // the context of the upload that reads from r
	r   io.Reader
}

func (s steady) Read(p []byte) (int, error) {
	for range 100 {
		if err := cause.Of(s.ctx); err != nil {
			return 0, err
		}
		switch n, err := s.r.Read(p); {
		case n < 0 || n > len(p):
			return 0, fmt.Errorf("the Read method of the body is faulty: it returned %d for a buffer of %d bytes", n, len(p))
		case n > 0 || err != nil:
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// seeker is an io.ReaderAt for a reader that can seek.
type seeker struct {
	io.ReadSeeker
	read steady
	pos  int64 // offset of the reader; -1: not known
}

func (k *seeker) ReadAt(p []byte, off int64) (int, error) {
	if k.pos != off {
		k.pos = -1
		if _, err := k.Seek(off, io.SeekStart); err != nil {
			return 0, err
		}
		k.pos = off
	}
	n, err := k.read.Read(p)
	k.pos += int64(n)
	return n, err
}

// within calls f and returns its error. If ctx ends first, within returns at once, and drop is
// called after f has returned.
func within(ctx context.Context, f func() error, drop func()) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go func() {
			<-done //nolint:errcheck // nobody needs the error any more
			drop()
		}()
		return cause.Of(ctx)
	}
}

// buffered is a copy of the contents of a reader.
type buffered struct {
	io.ReaderAt
	size  int64
	close func()
}

// inMemory is how many bytes are buffered in memory. Longer contents go to a temporary file.
const inMemory = 64 << 10

// buffer copies r up to its end. If size is above zero, it copies at most size+1 bytes: the
// byte after size shows that r is too long.
func buffer(r io.Reader, size int64) (*buffered, error) {
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
	// The name is removed at once, so that nothing is left behind if the process is killed.
	// Some systems cannot remove an open file: there, close removes it.
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
