package transfers_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// seekOnly has only the methods Read and Seek of a reader.
type seekOnly struct{ io.ReadSeeker }

// readOnly has only the method Read of a reader.
type readOnly struct{ io.Reader }

// measured has a Len method and cannot seek.
type measured struct {
	io.Reader
	n int
}

func (m measured) Len() int { return m.n }

// shouting is a file with its own Read.
type shouting struct{ *os.File }

func (s shouting) Read(p []byte) (int, error) {
	n, err := s.File.Read(p)
	copy(p, bytes.ToUpper(p[:n]))
	return n, err
}

func inTempDir(t *testing.T) func() int {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	return func() int {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(entries)
	}
}

// Every kind of reader is uploaded completely, with a Content-Length, from its current
// position. This also holds if the first attempt fails in the middle. A body that can
// seek is at its end afterwards.
func TestUploadOfEveryReaderHasALength_B14(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	leftovers := inTempDir(t)
	const skip = 7
	for _, size := range []int{0, 1, 4096, 64 << 10, 64<<10 + 1, 300_000} {
		all := append([]byte("skipped"), bytes.Repeat([]byte("ab\x00\xff"), size)[:size]...)
		file := func() *os.File { f := tempFile(t, all); _, _ = f.Seek(skip, 0); return f }
		section := io.NewSectionReader(bytes.NewReader(append([]byte("before"), all...)), 6, int64(len(all)))
		pipe, w, err := os.Pipe()
		require.NoError(t, err)
		go func() { _, _ = w.Write(all[skip:]); w.Close() }()
		open, err := fstest.MapFS{"a": {Data: all}}.Open("a")
		require.NoError(t, err)
		for name, body := range map[string]io.Reader{
			"file": file(), "bytes.Reader": bytes.NewReader(all), "strings.Reader": strings.NewReader(string(all)),
			"bytes.Buffer": bytes.NewBuffer(all), "section": section, "fs.File": open.(io.Reader), "seeker": seekOnly{file()},
			"pipe": pipe, "plain": readOnly{bytes.NewReader(all[skip:])}, "Len": measured{bytes.NewReader(all[skip:]), size},
			"one byte at a time": iotest.OneByteReader(bytes.NewReader(all[skip:])),
			"data with EOF":      seekOnly{dataErr{bytes.NewReader(all)}},
		} {
			seeker, seeks := body.(io.Seeker)
			if name == "pipe" {
				seeks = false
			}
			if buf, ok := body.(*bytes.Buffer); ok {
				buf.Next(skip)
			} else if seeks {
				_, err := seeker.Seek(skip, io.SeekStart)
				require.NoError(t, err)
			}
			s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					_, _ = io.CopyN(io.Discard, r.Body, int64(size/2))
					w.WriteHeader(503)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			result, err := s.Client(t).Files.Put(t.Context(), s.Link(), body, &svc.UploadOptions{AllowEmpty: true})
			require.NoError(t, err, name)
			require.EqualValues(t, size, result.Bytes, name)
			require.Equal(t, 2, result.Attempts, name)
			puts := s.Requests("PUT")
			require.Len(t, puts, 2, name)
			for _, p := range puts {
				require.EqualValues(t, size, p.ContentLength, name)
				require.Empty(t, p.TransferEncoding, name)
			}
			require.True(t, bytes.Equal(all[skip:], puts[1].Bytes.Bytes()), name)
			if seeks {
				at, err := seeker.Seek(0, io.SeekCurrent)
				require.NoError(t, err)
				require.EqualValues(t, len(all), at, name)
			}
			rest, err := io.ReadAll(body)
			require.NoError(t, err, "%s: the upload must not close the file", name)
			require.Empty(t, rest, name)
			if c, ok := body.(io.Closer); ok {
				require.NoError(t, c.Close(), name)
			}
		}
	}
	require.Zero(t, leftovers(), "temporary files are left")
}

// dataErr returns io.EOF together with the last bytes.
type dataErr struct{ *bytes.Reader }

func (d dataErr) Read(p []byte) (int, error) {
	n, _ := d.Reader.Read(p)
	if d.Len() == 0 {
		return n, io.EOF
	}
	return n, nil
}

// A body is read by its ReadAt, if it has one that is not hidden, and otherwise by its Read.
func TestUploadReadsByReadAtUnlessItIsHidden(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	for want, body := range map[string]io.Reader{
		"quiet": shouting{tempFile(t, []byte("quiet"))}, "QUIET": seekOnly{shouting{tempFile(t, []byte("quiet"))}},
	} {
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), body, nil)
		require.NoError(t, err)
		puts := s.Requests("PUT")
		require.Equal(t, want, puts[len(puts)-1].Bytes.String())
	}
}

// A file in /proc has size 0 although it has contents.
func TestUploadOfAFileWithoutASize(t *testing.T) {
	f, err := os.Open("/proc/self/cmdline")
	if err != nil {
		t.Skip("no /proc")
	}
	defer f.Close()
	s := testkit.NewFileService(t, nil)
	r, err := s.Client(t).Files.Put(t.Context(), s.Link(), f, nil)
	require.NoError(t, err)
	require.Positive(t, r.Bytes)
	require.Contains(t, s.Requests("PUT")[0].Bytes.String(), "test")
}

// After a failed upload the body is back at its old position, ready for another Put.
func TestUploadKeepsTheOffsetAfterAFailure_B15(t *testing.T) {
	all := []byte("skipped body")
	for name, body := range map[string]io.ReadSeeker{
		"file": tempFile(t, all), "seeker": seekOnly{tempFile(t, all)}, "bytes": bytes.NewReader(all),
	} {
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n == 1 {
				testkit.XMLError(w, 403, "AccessDenied", "Request has expired")
			}
		})
		_, _ = body.Seek(8, io.SeekStart)
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), body, nil)
		require.ErrorIs(t, err, svc.ErrLinkExpired, name)
		_, err = s.Client(t).Files.Put(t.Context(), s.Link(), body, nil)
		require.NoError(t, err, name)
		require.Equal(t, "body", s.Requests("PUT")[1].Bytes.String(), name)
	}
	buf := bytes.NewBufferString("body")
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })
	_, err := s.Client(t).Files.Put(t.Context(), s.Link(), buf, nil)
	require.ErrorIs(t, err, svc.ErrForbidden)
	require.Equal(t, "body", buf.String())
}

// If the body has another size than given, or than seen before, the upload fails.
func TestUploadFailsIfTheSizeIsWrong(t *testing.T) {
	leftovers := inTempDir(t)
	for _, size := range []int64{99, 101} {
		for name, body := range map[string]io.Reader{
			"file": tempFile(t, testkit.Contents(100)), "bytes": bytes.NewReader(testkit.Contents(100)), "buffer": bytes.NewBuffer(testkit.Contents(100)),
			"seeker": seekOnly{bytes.NewReader(testkit.Contents(100))}, "plain": readOnly{bytes.NewReader(testkit.Contents(100))},
			"Len": measured{bytes.NewReader(testkit.Contents(100)), 100},
		} {
			s := testkit.NewFileService(t, nil)
			_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, Size: size})
			var e *svc.UploadError
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, svc.UploadStageBody, e.Stage)
			require.Contains(t, err.Error(), "nothing was sent")
			require.Equal(t, size > 100, errors.Is(err, svc.ErrTruncated), name)
			require.Equal(t, size > 100, errors.Is(err, io.ErrUnexpectedEOF), name)
			require.Empty(t, s.Seen, "the error must come before anything is registered")
		}
	}
	s := testkit.NewFileService(t, nil)
	_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: readOnly{bytes.NewReader(testkit.Contents(100_000))}, Size: 100_000})
	require.NoError(t, err)
	// An endless reader is not read forever.
	var read int
	endless := readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
	_, err = s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: endless, Size: 100_000})
	require.ErrorContains(t, err, "more than the 100000 bytes")
	require.Less(t, read, 1<<20)
	// Len may return any number.
	r, err := s.Client(t).Files.Put(t.Context(), s.Link(), measured{bytes.NewReader(testkit.Contents(100)), 3}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 100, r.Bytes)
	require.Zero(t, leftovers())
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// changing is a body whose size changes at its first read.
type changing struct {
	*os.File
	change func()
	done   atomic.Bool
}

func (c *changing) ReadAt(p []byte, off int64) (int, error) {
	if !c.done.Swap(true) {
		c.change()
	}
	return c.File.ReadAt(p, off)
}

func TestUploadFailsIfItsBodyChangesMeanwhile(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	for _, to := range []int64{99_999, 100_001} {
		for _, direct := range []bool{true, false} {
			f := tempFile(t, testkit.Contents(100_000))
			change := func() { _ = f.Truncate(to) }
			var whole atomic.Int32
			s := testkit.NewFileService(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
				if n, err := io.Copy(io.Discard, r.Body); err == nil && n == 100_000 {
					whole.Add(1)
				}
			})
			req := svc.UploadRequest{FileName: "a", Body: &changing{File: f, change: change}}
			if direct {
				req.Body = f
				s.API = func(_ int, w http.ResponseWriter, r *http.Request) { change(); s.Answer(w, r) }
			}
			_, err := s.Client(t).Files.Upload(t.Context(), req)
			var e *svc.UploadError
			require.ErrorAs(t, err, &e)
			require.Equal(t, svc.UploadStagePut, e.Stage)
			require.Equal(t, to < 100_000, errors.Is(err, svc.ErrTruncated))
			require.LessOrEqual(t, len(s.Requests("PUT")), 1, "the upload must not be retried")
			s.Close()
			require.Zero(t, whole.Load(), "storage must not get a complete body")
		}
	}
}

func TestUploadReturnsTheErrorOfItsBody(t *testing.T) {
	leftovers := inTempDir(t)
	broken := errors.New("disk on fire")
	for name, body := range map[string]io.Reader{
		"at once": iotest.ErrReader(broken),
		"late":    io.MultiReader(bytes.NewReader(testkit.Contents(200_000)), iotest.ErrReader(broken)),
	} {
		s := testkit.NewFileService(t, nil)
		_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body})
		require.ErrorIs(t, err, broken, name)
		require.Empty(t, s.Seen, "nothing was sent")
	}
	require.Zero(t, leftovers())

	// A body that can seek fails while it is sent.
	s := testkit.NewFileService(t, nil)
	failing := &failingSeeker{bytes.NewReader(testkit.Contents(500_000)), broken}
	_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: failing})
	require.ErrorIs(t, err, broken)
	var e *svc.UploadError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "f1", e.FileID)
	require.LessOrEqual(t, len(s.Requests("PUT")), 1, "the upload must not be retried")

	dir := t.TempDir()
	_, err = s.Client(t).Files.UploadFile(t.Context(), dir, "", nil)
	require.ErrorIs(t, err, syscall.EISDIR)
	require.ErrorAs(t, err, &e)
	require.Equal(t, svc.UploadStageBody, e.Stage)
	_, err = s.Client(t).Files.UploadFile(t.Context(), filepath.Join(dir, "none"), "", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	f := tempFile(t, nil)
	f.Close()
	_, err = s.Client(t).Files.Put(t.Context(), s.Link(), f, nil)
	require.ErrorIs(t, err, os.ErrClosed)
}

type failingSeeker struct {
	*bytes.Reader
	err error
}

func (f *failingSeeker) ReadAt(p []byte, off int64) (int, error) {
	if off >= 130_000 {
		return 0, f.err
	}
	return f.Reader.ReadAt(p, off)
}
