package transfer

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

var errClosed = errors.New("read after Close")

// chunk is how much is read of the source at a time.
const chunk = 128 << 10

// body is one pass over a source.
type body struct {
	source *Source
	off    atomic.Int64 // how much has been handed out
	closed chan struct{}
	close  func()
	err    atomic.Pointer[error]
	buf    []byte // of its own: a read that is given up may still write here
	rest   []byte // of buf
}

// Open returns the whole body once more. An earlier one yields nothing from
// then on.
func (s *Source) Open() (io.ReadCloser, error) {
	b := &body{source: s, closed: make(chan struct{}), buf: make([]byte, min(chunk, s.size))}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	s.last.Swap(b).close()
	return b, nil
}

// Close does not wait for a read under way: net/http may be waiting for Close.
func (b *body) Close() error {
	b.close()
	return nil
}

// Read hands out the last bytes only when it is certain that there are no more,
// so that a body of another size than announced never arrives whole.
func (b *body) Read(p []byte) (int, error) {
	s, off := b.source, b.off.Load()
	select {
	case <-b.closed:
		return 0, errClosed
	default:
	}
	switch {
	case off == s.size:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	if len(b.rest) == 0 {
		if err := b.fill(off); err != nil {
			return 0, err
		}
	}
	if err := s.acquire(b.closed); err != nil {
		return 0, err
	}
	defer s.release()
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	off = b.off.Add(int64(n))
	if s.progress != nil && off < s.size && s.pace.due() { // the end is reported when it is certain
		s.progress(off, s.size)
	}
	return n, nil
}

// fill reads the next chunk in a goroutine of its own, so that a reader that blocks
// does not keep the upload from ending.
func (b *body) fill(off int64) error {
	s := b.source
	err := s.acquire(b.closed)
	if err != nil {
		return err
	}
	var n int
	buf := b.buf[:min(int64(len(b.buf)), s.size-off)]
	read := make(chan struct{})
	go func() {
		defer s.release()
		defer close(read)
		n, err = s.read(buf, off)
	}()
	select {
	case <-read:
	case <-b.closed:
		return errClosed
	case <-s.ctx.Done():
		return cause.Of(s.ctx)
	}
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if err != nil {
		err = &httpcall.LocalError{Doing: "reading the body", Err: err}
		b.err.Store(&err)
		return err
	}
	b.rest = buf[:n]
	return nil
}
