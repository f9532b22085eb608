package transfer

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

var errClosed = errors.New("read after Close")

// chunk is how many bytes are read from the source at a time.
const chunk = 64 << 10

// body is one pass over a source.
type body struct {
	source *Source
	ctx    context.Context //nolint:containedctx // a context under that of the upload; Close ends it
	close  context.CancelCauseFunc
	off    atomic.Int64          // how many bytes Read has returned
	err    atomic.Pointer[error] // why the source could not be read
	buf    []byte                // a read that was abandoned may still write here
	rest   []byte                // the part of buf that Read has not returned yet
}

// Open returns a new body that begins at the start of the source. From then on, a body that
// was opened earlier returns no bytes.
func (s *Source) Open() (io.ReadCloser, error) {
	b := &body{source: s, buf: make([]byte, min(chunk, s.size))}
	b.ctx, b.close = context.WithCancelCause(s.ctx)
	s.last.Swap(b).close(errClosed)
	return b, nil
}

// Close does not wait for a read under way: net/http may be waiting for Close.
func (b *body) Close() error {
	b.close(errClosed)
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	off := b.off.Load()
	switch {
	case b.ctx.Err() != nil:
		return 0, cause.Of(b.ctx)
	case off == b.source.size:
		return 0, io.EOF
	}
	if len(b.rest) == 0 {
		if err := b.fill(off); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if off = b.off.Add(int64(n)); off < b.source.size { // the end is reported later, when it is certain
		if err := b.source.acquire(b.ctx); err != nil {
			return 0, err
		}
		defer b.source.release()
		b.source.progress.report(off, b.source.size)
	}
	return n, nil
}

// fill reads the next chunk in a separate goroutine, so that a reader that blocks
// does not keep the upload from ending.
func (b *body) fill(off int64) error {
	s := b.source
	if err := s.acquire(b.ctx); err != nil {
		return err
	}
	n, buf := 0, b.buf[:min(int64(len(b.buf)), s.size-off)]
	err := within(b.ctx, func() (err error) {
		defer s.release()
		if n, err = s.read(buf, off); err != nil {
			err = &httpcall.LocalError{Doing: "reading the body", Err: err}
			b.err.Store(&err)
		}
		return err
	}, func() {})
	if err != nil {
		return err
	}
	b.rest = buf[:n]
	return nil
}

// progress reports how far a transfer is: at most ten times a second, and once at the
// end. It is not safe for concurrent use.
type progress struct {
	f    func(done, total int64) // nil: nothing is reported
	next time.Time               // no report before this time
}

func (p *progress) report(done, total int64) {
	const pause = 100 * time.Millisecond
	if now := time.Now(); p.f != nil && !now.Before(p.next) {
		p.next = now.Add(pause)
		p.f(done, total)
	}
}

func (p *progress) end(total int64) {
	if p.f != nil {
		p.f(total, total)
	}
}
