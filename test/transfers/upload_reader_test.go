package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// tryPut uploads body to storage in memory, and returns the bytes of the last attempt.
// The first two attempts read firstReads bytes and get status 503, and the third one
// succeeds. If firstReads is negative, the first attempt succeeds.
func tryPut(t *testing.T, body io.Reader, firstReads int64) ([]byte, error) {
	attempts, got := 0, new(bytes.Buffer)
	storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		got.Reset()
		status := 200
		var from io.Reader = r.Body
		if attempts++; attempts <= 2 && firstReads >= 0 {
			from, status = io.LimitReader(r.Body, firstReads), 503
		}
		if _, err := io.Copy(got, from); err != nil {
			return nil, err
		}
		r.Body.Close()
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	c := testkit.ClientOn(t, storage, svc.WithRetry(svc.RetryPolicy{MinDelay: time.Millisecond}))
	_, err := c.Files.Put(t.Context(), uploadLink, body, nil)
	return got.Bytes(), err
}

// replaced is a body that can seek, with a Read and a Seek that a test can replace.
type replaced struct {
	r     *bytes.Reader
	read  func(n int, p []byte) (int, error)                   // called for the n-th Read, from 1; nil: reads normally
	seek  func(n int, offset int64, whence int) (int64, error) // called for the n-th Seek, from 1; nil: seeks normally
	reads int
	seeks int
}

func newReplaced(size int) *replaced { return &replaced{r: bytes.NewReader(testkit.Contents(size))} }

func (b *replaced) Read(p []byte) (int, error) {
	if b.reads++; b.read != nil {
		return b.read(b.reads, p)
	}
	return b.r.Read(p)
}

func (b *replaced) Seek(offset int64, whence int) (int64, error) {
	if b.seeks++; b.seek != nil {
		return b.seek(b.seeks, offset, whence)
	}
	return b.r.Seek(offset, whence)
}

// placed is a body that can also be read at any offset, by a ReadAt that a test can replace.
type placed struct {
	*replaced
	readAt func(n int64, p []byte, off int64) (int, error) // called for the n-th ReadAt, from 1; nil: reads normally
	n      atomic.Int64
}

func newPlaced(size int) *placed { return &placed{replaced: newReplaced(size)} }

func (b *placed) ReadAt(p []byte, off int64) (int, error) {
	if n := b.n.Add(1); b.readAt != nil {
		return b.readAt(n, p, off)
	}
	return b.r.ReadAt(p, off)
}

// A Read may return few bytes, or none. All bytes arrive in order, also at a second
// attempt.
func TestUploadReadsOnAfterReadsThatGiveLittle(t *testing.T) {
	for name, most := range map[string]func(n int) int{
		"one byte":             func(int) int { return 1 },
		"nothing now and then": func(n int) int { return n % 3 },
		"nothing for long":     func(n int) int { return min(n%99, 1) * 40 },
	} {
		for _, first := range []int64{-1, 0, 1, 2, 500} {
			body := newReplaced(1000)
			body.read = func(n int, p []byte) (int, error) {
				if most(n) == 0 {
					return 0, nil
				}
				return body.r.Read(p[:min(len(p), most(n))])
			}
			got, err := tryPut(t, body, first)
			require.NoError(t, err, name)
			require.True(t, bytes.Equal(testkit.Contents(1000), got), name)
			require.Zero(t, body.r.Len(), "the body must be at its end")
		}
	}
}

// A body that cannot be read, or whose Read or ReadAt breaks the rules of its interface, ends the
// upload, and is not read again.
func TestUploadEndsWithTheFaultOfItsBody(t *testing.T) {
	broken := errors.New("disk on fire")
	for want, read := range map[string]func(p []byte) (int, error){
		"disk on fire": func([]byte) (int, error) { return 0, broken },
		"multiple Read calls return no data or error":               func([]byte) (int, error) { return 0, nil },
		"method of the body is faulty: it returned -1 for a buffer": func([]byte) (int, error) { return -1, nil },
		"method of the body is faulty: it returned 90000 for a":     func([]byte) (int, error) { return 90000, nil },
	} {
		body := newReplaced(1000)
		body.read = func(_ int, p []byte) (int, error) { return read(p) }
		at := newPlaced(1000)
		at.readAt = func(_ int64, p []byte, _ int64) (int, error) { return read(p) }
		for stage, body := range map[svc.UploadStage]io.Reader{svc.UploadStageBody: body, svc.UploadStagePut: at} {
			got, err := tryPut(t, body, -1)
			require.ErrorContains(t, err, "reading the body: ")
			require.ErrorContains(t, err, want)
			require.Equal(t, want == broken.Error(), errors.Is(err, broken))
			require.Equal(t, stage, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
			require.Empty(t, got)
			left, err := body.(io.Seeker).Seek(0, io.SeekCurrent)
			require.NoError(t, err)
			require.Zero(t, left, "the offset must be the old one")
		}
		require.EqualValues(t, 1, at.n.Load())
		require.LessOrEqual(t, body.reads, 100)
	}
}

// If a Seek fails, the body is read like one that cannot seek. The exception is the Seek that
// sets the offset back after the end was found: nothing would be left to read.
func TestUploadWithASeekThatFails(t *testing.T) {
	broken := errors.New("the tape is torn")
	for failing := 1; failing <= 5; failing++ {
		for _, placed := range []bool{true, false} {
			at := newPlaced(1000)
			at.seek = func(n int, offset int64, whence int) (int64, error) {
				if n >= failing {
					return 0, broken
				}
				return at.r.Seek(offset, whence)
			}
			var body io.Reader = at
			if !placed {
				body = at.replaced
			}
			got, err := tryPut(t, body, 500)
			if placed && failing == 3 {
				require.ErrorIs(t, err, broken)
				require.Equal(t, svc.UploadStageBody, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
				continue
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(testkit.Contents(1000), got))
		}
	}
}

// If the body is longer or shorter than the length that it reported, it never arrives
// completely.
func TestUploadOfABodyThatReportsAnotherLength(t *testing.T) {
	for said, want := range map[int64]string{
		999:  "the body has more than the 999 bytes announced",
		1001: "the body ended after 1000 of 1001 bytes",
	} {
		body := newPlaced(1000)
		body.seek = func(_ int, offset int64, whence int) (int64, error) {
			if whence == io.SeekEnd {
				return said, nil
			}
			return body.r.Seek(offset, whence)
		}
		_, err := tryPut(t, body, -1)
		require.EqualError(t, err, "svc: upload: put: reading the body: "+want)
		require.Equal(t, said == 1001, errors.Is(err, svc.ErrTruncated))
	}
}

// A body that cannot seek is read before the upload. Up to 64 KiB are kept in memory,
// more in a temporary file.
func TestUploadBuffersSmallBodiesInMemory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMP", filepath.Join(t.TempDir(), "none"))
	got, err := tryPut(t, readOnly{bytes.NewReader(testkit.Contents(64 << 10))}, 100)
	require.NoError(t, err)
	require.True(t, bytes.Equal(testkit.Contents(64<<10), got))
	_, err = tryPut(t, readOnly{bytes.NewReader(testkit.Contents(64<<10 + 1))}, 100)
	require.ErrorContains(t, err, "svc: upload: reading the body: ")
	require.ErrorContains(t, err, "none")
	require.Equal(t, svc.UploadStageBody, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
}

// If the size is given, at most one byte more than that is read.
func TestUploadReadsNoFurtherThanItsSize(t *testing.T) {
	for _, size := range []int64{1, 1000, 100_000} {
		read := int64(0)
		endless := testkit.ReadFunc(func(p []byte) (int, error) { read++; p[0] = 'x'; return 1, nil })
		c, _ := scripted(t)
		_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: endless, Size: size})
		require.ErrorContains(t, err, "the body has more than the ")
		require.Equal(t, size+1, read)
	}
}

// After ctx has ended, an endless body is not read any more, not even in the background.
func TestUploadReadsNoMoreAfterTheEndOfCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		body := testkit.ReadFunc(func(p []byte) (int, error) {
			if reads++; reads == 3 {
				cancel()
			}
			if reads == 100 {
				return 0, io.EOF
			}
			return len(p), nil
		})
		c, _ := scripted(t)
		_, err := c.Files.Put(ctx, uploadLink, body, nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 3, reads)

		reads = 10
		_, err = c.Files.Put(ctx, uploadLink, body, nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 10, reads, "if ctx has ended before the upload, the body must not be read")
	})
}

// If a reader returns an error after its last byte, the upload fails.
func TestUploadFailsWithAnErrorAfterTheLastByte(t *testing.T) {
	broken := errors.New("checksum")
	for _, behind := range []error{broken, io.EOF} {
		at := newPlaced(1000)
		at.readAt = func(_ int64, p []byte, off int64) (int, error) {
			n, _ := at.r.ReadAt(p, off)
			return n, behind
		}
		for _, body := range []io.Reader{at, io.MultiReader(bytes.NewReader(testkit.Contents(1000)), iotest.ErrReader(behind))} {
			got, err := tryPut(t, body, -1)
			if behind == io.EOF {
				require.NoError(t, err)
				require.Len(t, got, 1000)
				continue
			}
			require.ErrorIs(t, err, broken)
			require.Empty(t, got)
		}
	}
}
