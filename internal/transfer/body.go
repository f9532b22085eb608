package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

var errClosed = errors.New("read after Close")

// chunk is how many bytes are read from the source at a time.
const chunk = 64 << 10

// A body is one pass over a source: the end of a pipe. A goroutine reads the source and fills the
// pipe, so that a read that hangs does not keep the upload from ending.
type body struct {
	*io.PipeReader
	source *Source
	close  func(error)   // ends the pipe, unless it has ended; never waits
	done   chan struct{} // closed when no read of the source is under way, and none will follow
	sum    hash.Hash     // of what the goroutine has read
	sent   int64         // how many bytes Read has returned; guarded by the mutex of the source
	err    error         // why the source could not be read; guarded by the mutex of the source
}

// Open returns a new body that begins at the start of the source. From then on, a body that was
// opened earlier returns no bytes.
func (s *Source) Open() (io.ReadCloser, error) {
	r, w := io.Pipe()
	b := &body{PipeReader: r, source: s, done: make(chan struct{}), sum: sha256.New()}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	if before == nil {
		return nil, errClosed
	}
	s.last = b
	stop := context.AfterFunc(s.ctx, func() { _ = w.CloseWithError(cause.Of(s.ctx)) })
	b.close = func(err error) {
		stop()
		_ = w.CloseWithError(err)
	}
	before.close(errClosed)
	go func() {
		defer close(b.done)
		<-before.done // reads never overlap
		b.close(b.fill(w))
	}()
	return b, nil
}

// fill copies the source to w.
func (b *body) fill(w io.Writer) error {
	s := b.source
	buf := make([]byte, min(chunk, s.size)+1)
	for off := int64(0); off < s.size; {
		p, err := s.read(buf, off)
		if err != nil {
			return b.fail(err)
		}
		b.sum.Write(p)
		if _, err := w.Write(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// fail notes why the source could not be read, for a transport that ignores the error of Read.
func (b *body) fail(err error) error {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	b.err = &httpcall.LocalError{Doing: "reading the body", Err: err}
	return b.err
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	s := b.source
	s.mu.Lock()
	defer s.mu.Unlock()
	b.sent += int64(n)
	if s.last == b && b.sent < s.size { // the end is reported later, when it is certain
		s.progress.report(b.sent, s.size)
	}
	return n, err
}

func (b *body) Close() error {
	b.close(errClosed)
	return nil
}

// sent returns how much of the contents was read from the body that was opened last, and why it
// could not be read. An empty body is never read, so sent checks that it is still empty.
func (s *Source) sent() (n int64, err error) {
	if s.size == 0 {
		if _, err := s.read(make([]byte, 1), 0); err != nil {
			return 0, s.last.fail(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.sent, s.last.err
}

// SHA256 returns the checksum of what was sent, in hex, once all of it was sent. It returns "" if
// a transport that is not of net/http did not read the body.
func (s *Source) SHA256() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.sent < s.size {
		return ""
	}
	return hex.EncodeToString(s.last.sum.Sum(nil))
}

// Finish ends the use of the caller's reader. If sent is true, its offset moves behind the bytes
// that were sent, and the end of the progress is reported.
func (s *Source) Finish(sent bool) {
	s.mu.Lock()
	last := s.last
	s.last = nil
	s.mu.Unlock()
	last.close(errClosed)
	await(s.ctx, last.done)
	s.drop()
	if sent {
		s.move(s.size)
		s.progress.end(s.size, s.size)
	}
}

// progress reports how far a transfer is: at most ten times a second, and once at the
// end. It is not safe for concurrent use.
type progress struct {
	f    func(done, total int64) // nil: nothing is reported
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
