package transfer

import (
	"errors"
	"io"
	"sync/atomic"

	"example.com/svc/internal/apart"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/chain"
)

var errClosed = errors.New("read after Close")

// body is one pass over a source.
type body struct {
	source *Source
	off    atomic.Int64 // how much has been handed out
	once   atomic.Bool
	closed chan struct{}
	err    atomic.Pointer[error]
	buf    []byte // of a foreign reader: a read that is given up may still write here
	rest   []byte // of buf
}

// Close does not wait for a read under way: net/http may be waiting for Close.
func (b *body) Close() error {
	if !b.once.Swap(true) {
		close(b.closed)
	}
	return nil
}

// Read hands out the last bytes only when it is certain that there are no more,
// so that a body of another size than announced never arrives whole.
func (b *body) Read(p []byte) (int, error) {
	if b.once.Load() {
		return 0, errClosed
	}
	off := b.off.Load()
	left := b.source.size - off
	if left == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), left)]
	n, err := 0, error(nil)
	if b.source.foreign {
		n, err = b.readForeign(p, off)
	} else {
		n, err = b.readDirect(p, off)
	}
	if err != nil {
		return n, err
	}
	b.off.Store(off + int64(n))
	return n, nil
}

func (b *body) readDirect(p []byte, off int64) (int, error) {
	s := b.source
	if !s.acquire(b.closed) {
		return 0, b.ended()
	}
	defer s.release()
	n, err := b.fill(p, off)
	if err != nil {
		return 0, b.fail(err)
	}
	if err := b.progress(off + int64(n)); err != nil {
		return 0, err
	}
	return n, nil
}

// chunk is how much is asked of a foreign reader at a time.
const chunk = 128 << 10

// readForeign reads in a goroutine of its own, so that a reader that blocks does
// not keep the upload from ending.
func (b *body) readForeign(p []byte, off int64) (int, error) {
	s := b.source
	if len(b.rest) == 0 {
		if !s.acquire(b.closed) {
			return 0, b.ended()
		}
		if b.buf == nil {
			b.buf = make([]byte, min(chunk, s.size))
		}
		buf := b.buf[:min(int64(len(b.buf)), s.size-off)]
		var n int
		var err error
		read := make(chan struct{})
		go apart.Run(func() (failed error) {
			n, failed = b.fill(buf, off)
			return failed
		}, func(e apart.End) {
			if failed := e.Err("the body"); failed != nil {
				err = b.fail(failed)
			}
			close(read)
			s.release()
		})
		select {
		case <-read:
		case <-b.closed:
			return 0, errClosed
		case <-s.ctx.Done():
			return 0, b.ended()
		}
		if err != nil {
			return 0, err
		}
		b.rest = buf[:n]
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if !s.acquire(b.closed) {
		return 0, b.ended()
	}
	defer s.release()
	if err := b.progress(off + int64(n)); err != nil {
		return 0, err
	}
	return n, nil
}

// fill reads at off, at least one byte, and looks beyond the end before it
// hands out what comes last. The lock is held.
func (b *body) fill(p []byte, off int64) (int, error) {
	n, err := b.source.contents.readAt(p, off)
	end := off + int64(n)
	switch {
	case n > 0 && end < b.source.size:
		return n, nil
	case n > 0:
		return n, b.source.ends()
	case errors.Is(err, io.EOF):
		return 0, &SizeError{Want: b.source.size, Got: off}
	case err == nil:
		return 0, io.ErrNoProgress
	default:
		return 0, err
	}
}

func (b *body) fail(err error) error { return b.ending("reading the body", err) }

// ending notes what keeps the body from being read to its end.
func (b *body) ending(doing string, err error) error {
	err = &chain.LocalError{Doing: doing, Err: err}
	b.err.Store(&err)
	return err
}

// progress reports, and waits for that.
func (b *body) progress(sent int64) error {
	s := b.source
	if s.progress == nil || sent >= s.size || !s.pace.due() { // the end is reported when it is certain
		return nil
	}
	reported := make(chan error, 1)
	go apart.Run(func() error {
		s.progress(sent, s.size)
		return nil
	}, func(e apart.End) { reported <- e.Err("the function") })
	if err := <-reported; err != nil {
		return b.ending("reporting the progress", err)
	}
	return nil
}

func (b *body) ended() error {
	if err := cause.Of(b.source.ctx); err != nil {
		return err
	}
	return errClosed
}
