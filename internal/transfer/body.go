package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

var errClosed = errors.New("read after Close")

// errPanicked ends a request whose body panicked. Finish passes on the panic.
var errPanicked = &httpcall.LocalError{Doing: "reading the body", Err: errors.New("it panicked")}

// chunk is the number of bytes that are read from the source at a time.
const chunk = 64 << 10

// A body is one pass over a source: the end of a pipe. A goroutine copies the source to the pipe,
// so that the upload can end while a Read blocks.
type body struct {
	*io.PipeReader
	source *Source
	done   chan func() (int64, error) // holds the outcome of fill when no read of the source is under way, and none will follow
	sum    hash.Hash                  // checksum of what the goroutine has read
	sent   int64                      // number of bytes that Read has returned; guarded by the mutex of the source
	err    error                      // why the source could not be read; guarded by the mutex of the source
}

// Open returns a new body that begins at the start of the source. From then on, a body that was
// opened earlier returns no bytes.
func (s *Source) Open() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	if before == nil {
		return nil, errClosed
	}
	r, w := io.Pipe()
	b := &body{PipeReader: r, source: s, done: make(chan func() (int64, error), 1), sum: sha256.New()}
	s.last = b
	_ = before.Close()
	stop := context.AfterFunc(s.ctx, func() { _ = w.CloseWithError(cause.Of(s.ctx)) })
	cause.Start(func() (_ int64, err error) {
		err = errPanicked
		defer func() { stop(); _ = w.CloseWithError(err) }()
		_, _ = (<-before.done)() // reads never overlap
		return 0, b.fill(w)
	}, b.done)
	return b, nil
}

// fill copies the source to w. It stores the error of the source, for a transport that ignores
// the error of Read.
func (b *body) fill(w io.Writer) error {
	s := b.source
	buf := make([]byte, min(chunk, s.size)+1)
	for off := int64(0); off < s.size; {
		p, err := s.read(buf, off)
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			b.err = err
			return err
		}
		b.sum.Write(p)
		if _, err := w.Write(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// Read also reports the progress. A transport calls it in a goroutine of its own, which a panic must not end.
func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.PipeReader.Read(p)
	s := b.source
	s.mu.Lock()
	defer s.mu.Unlock()
	b.sent += int64(n)
	switch {
	case s.last != b, b.sent >= s.size, s.progress.f == nil, err != nil: // the end is reported later, when it is certain
		return n, err
	}
	told, err := make(chan func() (int64, error), 1), errPanicked
	cause.Start(func() (int64, error) { s.progress.report(b.sent, s.size); err = nil; return 0, nil }, told)
	s.told = <-told
	return n, err
}

// confirm returns the checksum of what was sent, in hex, or why a 2xx response does not mean
// success: the body could not be read to its end, or storage responded before it had the whole
// body. If direct is false, the transport may be a mock: if it did not read the body at all, the
// checksum is "" and there is no error.
func (s *Source) confirm(direct bool) (sum string, err error) {
	if s.size == 0 { // an empty body is never read; is it still empty?
		_, err = s.read(make([]byte, 1), 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last
	switch err = cmp.Or(err, last.err); {
	case err != nil:
		return "", err
	case last.sent == s.size:
		return hex.EncodeToString(last.sum.Sum(nil)), nil
	case last.sent == 0 && !direct:
		return "", nil
	}
	return "", fmt.Errorf("storage reported success when only %d of %d bytes had been sent: the stored file may be incomplete", last.sent, s.size)
}

// Finish ends the use of the caller's reader. If a read or a report of the progress has panicked or
// called [runtime.Goexit], so does Finish. If sent is true, it sets the offset of the reader
// to the end of the bytes that were sent, and reports the final progress.
func (s *Source) Finish(sent bool) {
	s.mu.Lock()
	last := s.last
	s.last = nil
	s.mu.Unlock()
	_ = last.Close()
	if outcome := await(s.ctx, last.done); outcome != nil {
		defer func() { _, _ = outcome() }()
	}
	s.drop()
	_, _ = s.told()
	if sent {
		s.move(s.size)
		s.progress.end(s.size, s.size)
	}
}

// progress reports the progress of a transfer, at most ten times a second and once at the end.
// It is not safe for concurrent use.
type progress struct {
	f    func(done, total int64) // if nil, nothing is reported
	next time.Time               // no report before this time
}

func (p *progress) report(done, total int64) {
	if now := time.Now(); !now.Before(p.next) {
		p.next = now.Add(100 * time.Millisecond)
		p.end(done, total)
	}
}

func (p *progress) end(done, total int64) {
	if p.f != nil {
		p.f(done, total)
	}
}
