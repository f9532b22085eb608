// Package transfer moves contents over presigned links: one PUT, or as many
// ranged GETs as a download takes. It reports facts; the package above makes
// errors of them.
package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"example.com/svc/internal/chain"
)

// SizeError says that a body is not as long as it was said or seen to be.
type SizeError struct {
	Want int64
	Got  int64 // below Want; at least so many if above
}

func (e *SizeError) Error() string {
	if e.Got > e.Want {
		return fmt.Sprintf("the body has more than the %d bytes announced", e.Want)
	}
	return fmt.Sprintf("the body ended after %d of %d bytes", e.Got, e.Want)
}

// Short reports whether bytes were missing.
func (e *SizeError) Short() bool { return e.Got < e.Want }

// Is makes a short body an [io.ErrUnexpectedEOF].
func (e *SizeError) Is(target error) bool { return target == io.ErrUnexpectedEOF && e.Short() }

// errModified: the size is the same, but the file was written to.
var errModified = errors.New("the file was written to while it was being sent")

// contents are the bytes from where the caller's reader stood. A read at the end
// gives more only if the reader has grown.
type contents interface {
	readAt(p []byte, off int64) (int, error)
}

// Source is the body of an upload: the rest of the caller's reader, as often as
// it is needed. Reads never overlap, however many attempts are still winding up,
// and none takes place after [Source.Finish].
type Source struct {
	ctx      context.Context //nolint:containedctx // the upload's: its bodies outlive the calls that open them
	contents contents
	size     int64
	start    int64                   // where a reader that can seek stood
	foreign  bool                    // a read runs the caller's code, and may block
	leave    func(sent bool)         // puts the caller's reader where it is to stand; nil: nowhere
	modified func() error            // whether it has changed in another way than a read shows; nil: it cannot
	spooled  *spooled                // nil: read from the caller's reader itself
	progress func(sent, total int64) // nil: none
	pace     pace                    // of progress
	lock     chan struct{}           // held by whoever reads
	last     atomic.Pointer[body]
}

// NewSource makes a source of what is left in r, which must yield size bytes if
// size is above zero. What cannot be read twice is read now: up to 64 KiB of it
// into memory, more into a temporary file. No reader is ever closed.
func NewSource(ctx context.Context, r io.Reader, size int64, progress func(sent, total int64)) (*Source, error) {
	s := &Source{ctx: ctx, lock: make(chan struct{}, 1), progress: progress}
	ok, err := s.rewindable(r)
	if err != nil {
		return nil, err
	}
	if !ok {
		sp, err := spool(ctx, r, size)
		if err != nil {
			return nil, err
		}
		s.contents, s.size, s.spooled = sp.contents, sp.size, sp
	}
	if size > 0 && s.size != size {
		s.Finish(false)
		return nil, &SizeError{Want: size, Got: s.size}
	}
	return s, nil
}

// rewindable takes r as it is, if what is left in it can be seen and read again.
func (s *Source) rewindable(r io.Reader) (bool, error) {
	switch r := r.(type) {
	case *bytes.Buffer:
		left := r.Len()
		s.contents, s.size = &direct{at: bytes.NewReader(r.Bytes())}, int64(left)
		s.leave = func(sent bool) {
			if sent {
				r.Next(left)
			}
		}
		s.modified = func() error { // what is added may stand elsewhere
			if r.Len() != left {
				return &SizeError{Want: int64(left), Got: int64(r.Len())}
			}
			return nil
		}
		return true, nil
	case *bytes.Reader:
		return s.direct(r)
	case *strings.Reader:
		return s.direct(r)
	case *os.File:
		info, err := r.Stat()
		switch {
		case err != nil:
			return false, err
		case info.IsDir():
			return false, &fs.PathError{Op: "read", Path: r.Name(), Err: syscall.EISDIR}
		case info.Mode()&fs.ModeCharDevice != 0: // some systems have consoles that pretend to seek
			return false, nil
		}
		ok, err := s.direct(r)
		if ok && info.Mode().IsRegular() {
			s.modified = func() error { return modified(r, info) }
		}
		return ok, err
	case io.ReadSeeker:
		// By Read, also if there is a ReadAt: it may belong to an embedded file
		// whose bytes the outer Read changes.
		start, left, ok, err := seen(r)
		s.start = start
		if !ok || left == 0 { // it may have bytes that it does not count
			return false, err
		}
		k := &seeker{r: r, start: start}
		s.contents, s.size, s.foreign = k, left, true
		s.leave = func(sent bool) { k.leave(sent, left) }
		return true, nil
	}
	return false, nil
}

// modified reports an error if a file is not as it was.
func modified(f *os.File, was fs.FileInfo) error {
	switch is, err := f.Stat(); {
	case err != nil:
		return err
	case is.Size() != was.Size(), !is.ModTime().Equal(was.ModTime()):
		return errModified
	}
	return nil
}

// direct takes a reader of the standard library, which reads at any offset
// without moving and without waiting.
func (s *Source) direct(r interface {
	io.ReaderAt
	io.Seeker
}) (bool, error) {
	start, left, ok, err := seen(r)
	s.start = start
	if !ok {
		return false, err
	}
	d := &direct{at: r, start: start}
	if left == 0 {
		// A file of /proc has no size and yields bytes all the same.
		if n, _ := d.readAt(make([]byte, 1), 0); n > 0 {
			return false, nil
		}
	}
	s.contents, s.size = d, left
	s.leave = func(sent bool) {
		if sent {
			_, _ = r.Seek(start+left, io.SeekStart)
		}
	}
	return true, nil
}

// seen tells where a seeker stands and how much is left, and does not move it. It
// is not ok if r cannot seek after all. One that went to its end and does not
// come back is an error: what is left in it would be taken for all of the body.
func seen(r io.Seeker) (start, left int64, ok bool, err error) {
	if start, err = r.Seek(0, io.SeekCurrent); err != nil {
		return 0, 0, false, nil //nolint:nilerr // it stands where it stood
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, false, nil //nolint:nilerr // likewise
	}
	if _, err = r.Seek(start, io.SeekStart); err != nil {
		return 0, 0, false, err
	}
	return start, max(end-start, 0), true, nil
}

// ReadBefore is the offset at which the caller's reader stood, if it can seek and
// has nothing left; 0 otherwise.
func (s *Source) ReadBefore() int64 {
	if s.size > 0 {
		return 0
	}
	return s.start
}

// Size is how many bytes there are to send.
func (s *Source) Size() int64 { return s.size }

// Open returns the whole body once more. An earlier one yields nothing from
// then on.
func (s *Source) Open() (io.ReadCloser, error) {
	b := &body{source: s, closed: make(chan struct{})}
	if old := s.last.Swap(b); old != nil {
		_ = old.Close()
	}
	return b, nil
}

// ends looks whether the contents end where they ended at first, and are what they
// were. The lock is held.
func (s *Source) ends() error {
	n, err := s.contents.readAt(make([]byte, 1), s.size)
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

// Err is why the body opened last could not be read to its end; nil if it could,
// or if nobody tried. Of contents without a byte nobody reads: those it looks at
// itself.
func (s *Source) Err() error {
	if s.size == 0 && s.acquire(nil) {
		defer s.release()
		if err := s.ends(); err != nil {
			return &chain.LocalError{Doing: "reading the body", Err: err}
		}
		return nil
	}
	if b := s.last.Load(); b != nil {
		if err := b.err.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// handed is how much the body opened last has given.
func (s *Source) handed() int64 {
	if b := s.last.Load(); b != nil {
		return b.off.Load()
	}
	return 0
}

// Finish ends the use of the caller's reader, and reports the end of the
// progress if all is sent. It waits for a read under way, unless ctx has ended:
// then that read is left to itself. A reader that can seek stands behind what was
// sent, or where it stood at first if sent is false.
func (s *Source) Finish(sent bool) {
	if b := s.last.Load(); b != nil {
		_ = b.Close()
	}
	quiet := s.acquire(nil) // and never released: there are no more reads
	if s.spooled != nil {
		s.spooled.close()
	}
	if quiet && s.leave != nil {
		s.leave(sent)
	}
	if sent && s.progress != nil {
		s.progress(s.size, s.size)
	}
}

// acquire takes the lock, unless ctx or the body that asks ends first.
func (s *Source) acquire(closed <-chan struct{}) bool {
	select {
	case s.lock <- struct{}{}:
		return true
	default:
	}
	select {
	case s.lock <- struct{}{}:
		return true
	case <-s.ctx.Done():
	case <-closed:
	}
	return false
}

func (s *Source) release() { <-s.lock }
