// Package transfer moves the contents of files over presigned URLs, which it calls links. An
// upload is one PUT. A download is a GET, and further GETs with a Range if it was cut off. The
// package reports facts, and package svc makes errors of them.
package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

// SizeError says that the size of a body is not the size that was announced.
type SizeError struct {
	Want int64
	Got  int64 // exact if below Want; if above Want, there may be more
}

func (e *SizeError) Error() string {
	if e.Got > e.Want {
		return fmt.Sprintf("the body has more than the %d bytes announced", e.Want)
	}
	return fmt.Sprintf("the body ended after %d of %d bytes", e.Got, e.Want)
}

// Is makes a short body an [io.ErrUnexpectedEOF].
func (e *SizeError) Is(target error) bool { return target == io.ErrUnexpectedEOF && e.Got < e.Want }

// errModified: the size or the modification time of the file changed.
var errModified = errors.New("the file was written to while it was being sent")

// Source is the body of an upload: the rest of the caller's reader, which each attempt reads
// anew. Reads never overlap, even if an attempt that failed is still reading. No read begins
// after [Source.Finish].
type Source struct {
	ctx      context.Context //nolint:containedctx // the context of the upload, since bodies outlive the calls that open them
	at       io.ReaderAt     // reads the contents at any offset
	start    int64           // offset in at where the contents begin
	size     int64
	Before   int64           // the offset of the caller's reader before the upload; 0 if it cannot seek
	leave    func(sent bool) // sets the offset of the caller's reader when the upload ends; nil: the reader has no offset
	modified func() error    // returns an error if the contents changed in a way that a read does not show; nil: cannot be known
	drop     func()          // removes the buffered copy; nil: there is none
	progress progress
	lock     chan struct{}        // a lock: holds a value while a read is under way
	last     atomic.Pointer[body] // the body that was opened last
}

// NewSource makes a source of what is left in r. If size is above zero, r must yield
// exactly that many bytes. A reader that cannot be rewound is read now: up to 64 KiB into
// memory, more into a temporary file. When ctx ends, NewSource returns at once, even while a
// Read of r blocks. r is never closed.
func NewSource(ctx context.Context, r io.Reader, size int64, report func(sent, total int64)) (*Source, error) {
	s := &Source{ctx: ctx, lock: make(chan struct{}, 1), progress: progress{f: report}}
	s.last.Store(&body{close: func(error) {}})
	if err := s.rewindable(r); err != nil {
		return nil, err
	}
	if s.at == nil {
		var b *buffered
		err := within(ctx, func() (err error) {
			b, err = buffer(steady{ctx, r}, size)
			return err
		}, func() {
			if b != nil {
				b.close()
			}
		})
		if err != nil {
			return nil, err
		}
		s.at, s.size, s.drop = b, b.size, b.close
	}
	if size > 0 && s.size != size {
		s.Finish(false)
		return nil, &SizeError{Want: size, Got: s.size}
	}
	return s, nil
}

// rewindable uses r without a copy, if its size is known and it can be read again.
func (s *Source) rewindable(r io.Reader) error {
	switch r := r.(type) {
	case *bytes.Buffer:
		left := r.Len()
		s.at, s.size = bytes.NewReader(r.Bytes()), int64(left)
		s.leave = func(sent bool) {
			if sent {
				r.Next(left)
			}
		}
		s.modified = func() error { // bytes that are added may be in a new array, which at does not see
			if r.Len() != left {
				return &SizeError{Want: int64(left), Got: int64(r.Len())}
			}
			return nil
		}
	case *os.File:
		info, err := r.Stat()
		if err != nil || !info.Mode().IsRegular() { // not a regular file: it is read like a pipe, even if it can seek, since some consoles only pretend to
			return nil //nolint:nilerr // reading says why not
		}
		s.modified = func() error {
			is, err := r.Stat()
			if err == nil && (is.Size() != info.Size() || !is.ModTime().Equal(info.ModTime())) {
				err = errModified
			}
			return err
		}
		return s.seekable(r)
	case io.ReadSeeker:
		return s.seekable(r)
	}
	return nil
}

// seekable uses a reader without a copy, if it can seek and its end is behind its offset. Any
// other reader is copied: a file of /proc, for example, has bytes although its size is 0. It is
// an error if the offset cannot be set back from the end, since nothing would be left to read.
func (s *Source) seekable(r io.ReadSeeker) error {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil //nolint:nilerr // the offset of r has not changed
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return nil //nolint:nilerr // the offset of r has not changed either
	}
	if _, err = r.Seek(start, io.SeekStart); err != nil {
		return err
	}
	s.Before = start
	if end <= start {
		return nil
	}
	s.at, s.start, s.size = &seeker{r, steady{s.ctx, r}, start}, start, end-start
	s.leave = func(sent bool) {
		to := start
		if sent {
			to = end
		}
		_, _ = r.Seek(to, io.SeekStart)
	}
	return nil
}

// Size is how many bytes there are to send.
func (s *Source) Size() int64 { return s.size }

// read reads at off. Before it returns the last bytes, it checks that nothing follows them.
// The caller must hold the lock.
func (s *Source) read(p []byte, off int64) (int, error) {
	n, err := s.at.ReadAt(p, s.start+off)
	switch {
	case n > 0 && off+int64(n) == s.size:
		return n, s.ends()
	case n > 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return 0, &SizeError{Want: s.size, Got: off}
	}
	return 0, err
}

// ends checks that the contents still end at the same offset, and were not modified. The caller
// must hold the lock.
func (s *Source) ends() error {
	n, err := s.at.ReadAt(make([]byte, 1), s.start+s.size)
	switch {
	case n > 0:
		return &SizeError{Want: s.size, Got: s.size + 1}
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case s.modified != nil:
		return s.modified()
	}
	return nil
}

// Err returns why the body that was opened last could not be read, and nil if no read of it
// failed. An empty body is never read, so Err checks that it is still empty.
func (s *Source) Err() error {
	if s.size == 0 && s.acquire(s.ctx) == nil {
		defer s.release()
		if err := s.ends(); err != nil {
			return &httpcall.LocalError{Doing: "reading the body", Err: err}
		}
	}
	if err := s.last.Load().err.Load(); err != nil {
		return *err
	}
	return nil
}

// Finish ends the use of the caller's reader, sets its offset, and reports the end of the
// progress if sent is true. It waits for a read under way, unless ctx has ended. If sent is
// true, the new offset is behind the bytes that were sent, otherwise it is the old one.
func (s *Source) Finish(sent bool) {
	s.last.Load().close(errClosed)
	quiet := s.acquire(s.ctx) == nil // the lock is never released, so that no other read begins
	if s.drop != nil {
		s.drop()
	}
	if quiet && s.leave != nil {
		s.leave(sent)
	}
	if sent {
		s.progress.end(s.size)
	}
}

// acquire takes the lock, unless ctx ends first.
func (s *Source) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cause.Of(ctx)
	}
}

func (s *Source) release() { <-s.lock }

// Put sends src to a presigned URL. The caller must call Finish of src afterwards.
func Put(ctx context.Context, c *httpcall.Caller, link *Link, header http.Header, idle time.Duration, src *Source) *httpcall.Result {
	call := link.call(http.MethodPut, header.Clone(), idle)
	call.Source, call.Length = src.Open, src.Size()
	r := c.Do(ctx, call)
	if r.Stream != nil {
		_ = r.Stream.Body.Close() // nobody needs the body
	}
	if err := unsaid(c, src); err != nil && r.OK() {
		r.StatusCode, r.Fail = 0, link.Redact.Error(err)
	}
	return r
}

// unsaid says why a 2xx response does not mean success: the body could not be read to its
// end, or storage responded before it had the whole body. A mock that did not read the body
// at all is believed.
func unsaid(c *httpcall.Caller, src *Source) error {
	if err := src.Err(); err != nil {
		return err
	}
	n := src.last.Load().off.Load()
	if n == src.Size() || n == 0 && !c.OverNetwork() {
		return nil
	}
	return fmt.Errorf("storage reported success when only %d of %d bytes had been sent: the stored file may be incomplete", n, src.Size())
}
