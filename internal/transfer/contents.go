package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"example.com/svc/internal/cause"
)

// inMemory is the maximum number of bytes that are buffered in memory. Longer contents go to a
// temporary file.
const inMemory = 64 << 10

// buffer copies the contents of r. If size is above zero, it copies at most one byte more than
// size, which shows that r is too long. If ctx ends while a Read hangs, buffer returns, and the
// copy is removed when that Read returns. The offset of r is then not restored, since the
// caller may be using r again.
func (s *Source) buffer(r io.Reader, size int64) error {
	done := make(chan func() (*buffered, error), 1)
	cause.Start(func() (*buffered, error) {
		b := new(buffered)
		err := b.fill(s.ctx, r, size)
		if err = cmp.Or(cause.Of(s.ctx), err); err != nil {
			b.drop()
		}
		return b, err
	}, done)
	outcome := await(s.ctx, done)
	if outcome == nil {
		return cause.Of(s.ctx)
	}
	s.move(0)
	b, err := outcome()
	s.size, s.drop, s.at = b.size, b.drop, bytes.NewReader(b.head)
	if b.file != nil {
		s.at = b.file
	}
	return err
}

// buffered is a copy of the contents of a reader.
type buffered struct {
	size    int64
	head    []byte   // the contents, unless there is a file
	file    *os.File // temporary file with the contents; nil if they are in memory
	unnamed bool     // the file was unlinked after it was opened
}

// fill copies r to its end, or until it has more than most bytes if most is above zero.
func (b *buffered) fill(ctx context.Context, r io.Reader, most int64) error {
	buf := make([]byte, chunk)
	for idle := 0; idle < 100; idle++ {
		if most > 0 {
			buf = buf[:min(chunk, most+1-b.size)]
		}
		if ctx.Err() != nil {
			return cause.Of(ctx)
		}
		n, err := r.Read(buf)
		if n < 0 || n > len(buf) {
			return faulty("Read", n, len(buf))
		}
		if failed := b.write(buf[:n]); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF), most > 0 && b.size > most:
			return nil
		case err != nil:
			return err
		case n > 0:
			idle = -1
		}
	}
	return io.ErrNoProgress
}

func (b *buffered) write(p []byte) (err error) {
	b.size += int64(len(p))
	if b.file == nil {
		b.head = append(b.head, p...)
		if b.size <= inMemory {
			return nil
		}
		if b.file, err = os.CreateTemp("", "svc-upload-*"); err != nil {
			return err
		}
		// The name is removed at once, so that nothing is left behind if the process is killed.
		// Some systems cannot remove an open file: there, drop removes it.
		b.unnamed = os.Remove(b.file.Name()) == nil
		p, b.head = b.head, nil
	}
	_, err = b.file.Write(p)
	return err
}

// drop removes the file.
func (b *buffered) drop() {
	if b.file == nil {
		return
	}
	_ = b.file.Close()
	if !b.unnamed {
		_ = os.Remove(b.file.Name())
	}
}

// OpenFile opens a file for reading. It returns when ctx ends, even if the file is a named pipe
// that nobody writes to.
func OpenFile(ctx context.Context, path string) (*os.File, error) {
	var pipe atomic.Bool
	done := make(chan func() (*os.File, error), 1)
	cause.Start(func() (*os.File, error) {
		info, _ := os.Stat(path)
		pipe.Store(info != nil && info.Mode().Type() == fs.ModeNamedPipe)
		return os.Open(path)
	}, done)
	if outcome := await(ctx, done); outcome != nil {
		return outcome()
	}
	if pipe.Load() {
		if w, failed := os.OpenFile(path, os.O_RDWR, 0); failed == nil { // os.Open returns when the pipe has a writer
			f, _ := (<-done)()
			_, _ = w.Close(), f.Close()
		}
	}
	return nil, cause.Of(ctx)
}
