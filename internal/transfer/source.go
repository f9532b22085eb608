// Package transfer moves the contents of files over presigned URLs, which it calls links. An
// upload is one PUT. A download is a GET, and further GETs with a Range if it was cut off. The
// package returns results, and package svc creates errors from them.
package transfer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"example.com/svc/internal/httpcall"
)

// A SizeError reports that the size of a body is not the size that was announced.
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

// errModified is returned when the size or the modification time of a file changed.
var errModified = errors.New("the file was written to while it was being sent")

// A Source is the body of an upload: the rest of the caller's reader, which each attempt reads
// again from its offset. The offset of the reader moves only after the upload has succeeded.
type Source struct {
	ctx     context.Context //nolint:containedctx // the context of the upload, since bodies outlive the calls that open them
	at      io.ReaderAt     // reads the contents at any offset
	start   int64           // offset in at where the contents begin
	size    int64
	Before  int64         // the offset of the caller's reader; 0 if it cannot seek
	move    func(n int64) // moves the offset of the caller's reader to n bytes after Before
	changed func() error  // returns an error if the contents changed in a way that a read does not show
	drop    func()        // removes the buffered copy

	mu       sync.Mutex // guards the fields below
	last     *body      // the body that was opened last; nil after Finish
	progress progress
	told     func() (int64, error) // the outcome of the latest report of the progress
}

// NewSource returns a source of what is left in r. If size is above zero, r must yield exactly
// that many bytes. If r cannot be read at any offset, its contents are buffered now. When ctx
// ends, NewSource returns, even if a Read of r blocks. NewSource never closes r.
func NewSource(ctx context.Context, r io.Reader, size int64, report func(sent, total int64)) (*Source, error) {
	s := &Source{ctx: ctx, progress: progress{f: report}}
	none, _ := io.Pipe()
	s.last = &body{PipeReader: none, done: make(chan func() (int64, error), 1), sum: sha256.New()}
	s.told = func() (int64, error) { return 0, nil }
	s.last.done <- s.told
	s.move, s.changed, s.drop = func(int64) {}, func() error { return nil }, func() {}
	err := s.inPlace(r)
	if err == nil && s.at == nil {
		err = s.buffer(r, size)
	}
	if err == nil && size > 0 && s.size != size {
		s.drop()
		err = &SizeError{Want: size, Got: s.size}
	}
	return s, err
}

// inPlace uses r without a copy, if it can be read at any offset.
func (s *Source) inPlace(r io.Reader) error {
	switch r := r.(type) {
	case *bytes.Buffer:
		left := r.Len()
		s.at, s.size = bytes.NewReader(r.Bytes()), int64(left)
		s.move = func(n int64) { r.Next(int(n)) }
		s.changed = func() error { // bytes that are added may be in a new array, which at does not see
			if r.Len() != left {
				return &SizeError{Want: int64(left), Got: int64(r.Len())}
			}
			return nil
		}
	case *os.File:
		info, err := r.Stat()
		if err != nil || !info.Mode().IsRegular() { // not a regular file: it is read like a pipe, even if it can seek, since some consoles only pretend to
			return nil //nolint:nilerr // reading returns the reason
		}
		s.changed = func() error {
			is, err := r.Stat()
			if err == nil && (is.Size() != info.Size() || !is.ModTime().Equal(info.ModTime())) {
				err = errModified
			}
			return err
		}
		return s.seekable(r, info.Size()) // the size is known: another upload may use the offset of the file
	case io.Seeker:
		return s.seekable(r, -1)
	}
	return nil
}

// seekable stores the offset of r, and uses r without a copy if it has ReadAt and its end is after
// its offset. Any other reader is copied: for example, a file in /proc has contents although its
// size is 0. If end is negative, seekable finds it by seeking.
func (s *Source) seekable(r io.Seeker, end int64) error {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil //nolint:nilerr // r cannot seek
	}
	s.Before = start
	s.move = func(n int64) { _, _ = r.Seek(start+n, io.SeekStart) }
	at, ok := r.(io.ReaderAt)
	if !ok {
		return nil
	}
	if end < 0 {
		if end, err = r.Seek(0, io.SeekEnd); err != nil {
			return nil //nolint:nilerr // the offset of r has not changed
		}
		if _, err = r.Seek(start, io.SeekStart); err != nil {
			return err
		}
	}
	if end > start {
		s.at, s.start, s.size = at, start, end-start
	}
	return nil
}

// Size returns the number of bytes to send.
func (s *Source) Size() int64 { return s.size }

// read returns the contents at off: at most len(buf)-1 bytes. With the last bytes, it checks that
// nothing follows them and that nothing changed. Its error is a LocalError.
func (s *Source) read(buf []byte, off int64) ([]byte, error) {
	want := min(int64(len(buf))-1, s.size-off)
	n, err := s.at.ReadAt(buf[:want+1], s.start+off)
	switch {
	case n < 0 || int64(n) > want+1:
		err = faulty("ReadAt", n, int(want+1))
	case int64(n) >= want && off+want < s.size:
		return buf[:want], nil
	case int64(n) > want:
		err = &SizeError{Want: s.size, Got: s.size + 1}
	case !errors.Is(err, io.EOF):
		err = cmp.Or(err, io.ErrNoProgress)
	case int64(n) < want:
		err = &SizeError{Want: s.size, Got: off + int64(n)}
	default:
		err = s.changed()
	}
	if err != nil {
		err = &httpcall.LocalError{Doing: "reading the body", Err: err}
	}
	return buf[:want], err
}

func faulty(method string, n, size int) error {
	return fmt.Errorf("the %s method of the body is faulty: it returned %d for a buffer of %d bytes", method, n, size)
}

// await waits for an outcome until shortly after ctx ends, so that a read of a disk or of memory can
// return. It returns nil if there is no outcome by then.
func await[T any](ctx context.Context, done <-chan func() (T, error)) func() (T, error) {
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(100*time.Millisecond, func() { close(late) }) })()
	select {
	case outcome := <-done:
		return outcome
	case <-late:
		return nil
	}
}

// Put sends src to a presigned URL. After success, it returns the checksum of what was sent, in
// hex; it is "" if a transport that is not of net/http did not read the body. The caller must call
// Finish of src afterwards.
func Put(ctx context.Context, c *httpcall.Caller, link *Link, header http.Header, idle time.Duration, src *Source) (r *httpcall.Result, sum string) {
	call := link.call(http.MethodPut, header.Clone(), idle)
	call.Source, call.Length = src.Open, src.size
	if r = c.Do(ctx, call); r.OK() {
		var err error
		if sum, err = src.confirm(r.Direct); err != nil {
			r.StatusCode, r.Fail = 0, link.Redact.Error(err)
		}
	}
	return r, sum
}
