package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
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

// wayward is a seekable body whose Read and Seek can be replaced.
type wayward struct {
	*bytes.Reader
	read func(n int, p []byte) (int, error)                   // called for the n-th Read, from 1; nil: reads normally
	seek func(n int, offset int64, whence int) (int64, error) // called for the n-th Seek, from 1; nil: seeks normally
	n    [2]int
}

func (m *wayward) Read(p []byte) (int, error) {
	if m.n[0]++; m.read != nil {
		return m.read(m.n[0], p)
	}
	return m.Reader.Read(p)
}

func (m *wayward) Seek(offset int64, whence int) (int64, error) {
	if m.n[1]++; m.seek != nil {
		return m.seek(m.n[1], offset, whence)
	}
	return m.Reader.Seek(offset, whence)
}

// A Read may return few bytes, or none. All bytes arrive in order, also at a second
// attempt.
func TestUpload_ReadsThatGiveLittle(t *testing.T) {
	all := testkit.Contents(1000)
	for name, most := range map[string]func(n int) int{
		"one byte":             func(int) int { return 1 },
		"nothing now and then": func(n int) int { return n % 3 },
		"nothing for long":     func(n int) int { return min(n%99, 1) * 40 },
	} {
		for _, first := range []int64{-1, 0, 1, 2, 500} {
			body := &wayward{Reader: bytes.NewReader(all)}
			body.read = func(n int, p []byte) (int, error) {
				if most(n) == 0 {
					return 0, nil
				}
				return body.Reader.Read(p[:min(len(p), most(n))])
			}
			got, err := tryPut(t, body, first)
			require.NoError(t, err, name)
			require.True(t, bytes.Equal(all, got), name)
			require.Zero(t, body.Len(), "the body must be at its end")
		}
	}
}

// If the body never returns bytes and never ends, the upload fails.
func TestUpload_ReadsThatGiveNothing(t *testing.T) {
	body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
	body.read = func(int, []byte) (int, error) { return 0, nil }
	_, err := tryPut(t, body, -1)
	require.ErrorIs(t, err, io.ErrNoProgress)
	require.Equal(t, svc.UploadStagePut, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
}

// If the body cannot seek back, the upload fails. It is never sent from another position.
func TestUpload_SeekThatFails(t *testing.T) {
	broken := errors.New("the tape is torn")
	body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
	body.seek = func(n int, offset int64, whence int) (int64, error) {
		if n > 3 { // the first three calls find the position and the length
			return 0, broken
		}
		return body.Reader.Seek(offset, whence)
	}
	got, err := tryPut(t, body, 500)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "reading the body: the tape is torn")
	require.Empty(t, got, "the second attempt must send nothing")

	// If Seek fails before the position has changed, the body is treated as one that
	// cannot seek. If Seek has moved to the end to find the length and cannot go back,
	// the upload fails.
	for failing := 1; failing <= 3; failing++ {
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.seek = func(n int, offset int64, whence int) (int64, error) {
			if n >= failing {
				return 0, broken
			}
			return body.Reader.Seek(offset, whence)
		}
		got, err := tryPut(t, body, 500)
		if failing < 3 {
			require.NoError(t, err)
			require.True(t, bytes.Equal(testkit.Contents(1000), got))
			continue
		}
		require.ErrorIs(t, err, broken)
		require.Equal(t, svc.UploadStageBody, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
	}
}

// If the body is longer or shorter than the length that it reported, it never arrives
// completely. This holds for every size of its Reads.
func TestUpload_SeekThatSaysAnotherLength(t *testing.T) {
	for said, want := range map[int64]string{
		999:  "the body has more than the 999 bytes announced",
		1001: "the body ended after 1000 of 1001 bytes",
	} {
		for _, most := range []int{1, 600, 1000} {
			body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
			body.read = func(_ int, p []byte) (int, error) { return body.Reader.Read(p[:min(len(p), most)]) }
			body.seek = func(_ int, offset int64, whence int) (int64, error) {
				if whence == io.SeekEnd {
					return said, nil
				}
				return body.Reader.Seek(offset, whence)
			}
			_, err := tryPut(t, body, -1)
			require.EqualError(t, err, "svc: upload: put: reading the body: "+want)
			require.Equal(t, said == 1001, errors.Is(err, svc.ErrTruncated))
		}
	}
}

// A Read that returns an impossible count is an error, also when the body is not buffered
// for a second attempt.
func TestUpload_ReadsThatCannotBe(t *testing.T) {
	for want, read := range map[string]func(n int, p []byte) (int, error){
		"the Read method of the body is faulty: it returned -1 for a buffer of 1000 bytes":   func(int, []byte) (int, error) { return -1, nil },
		"the Read method of the body is faulty: it returned 1001 for a buffer of 1000 bytes": func(_ int, p []byte) (int, error) { return len(p) + 1, nil },
	} {
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000)), read: read}
		got, err := tryPut(t, body, -1)
		require.ErrorContains(t, err, "reading the body: "+want)
		require.Empty(t, got)
		require.Equal(t, 1, body.n[0], "the body must not be read again")
		before, _, _ := strings.Cut(want, " of ")
		before = strings.TrimSuffix(before, " 1001") // for a body that cannot seek, the buffer has another size
		_, err = tryPut(t, readOnly{&wayward{Reader: bytes.NewReader(nil), read: read}}, -1)
		require.ErrorContains(t, err, "reading the body: "+before)
	}
}

// A body that cannot seek is read before the upload. Up to 64 KiB are kept in memory,
// more in a temporary file.
func TestUpload_SpoolsToDiskOnlyWhatIsLarge(t *testing.T) {
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
func TestUpload_ReadsNoFurtherThanItsSize(t *testing.T) {
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
func TestUpload_ReadsNoMoreAfterTheEndOfCtx(t *testing.T) {
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
func TestUpload_ErrorBehindTheLastByte(t *testing.T) {
	broken := errors.New("checksum")
	for name, behind := range map[string]error{"error": broken, "EOF": io.EOF} {
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.read = func(_ int, p []byte) (int, error) {
			if n, err := body.Reader.Read(p); err == nil {
				return n, nil
			}
			return 0, behind
		}
		got, err := tryPut(t, body, -1)
		require.Equal(t, behind == io.EOF, err == nil, "%s: %v", name, err)
		require.Equal(t, behind == io.EOF, len(got) == 1000, name)
		if behind != io.EOF {
			require.ErrorIs(t, err, broken)
		}
	}
	_, err := tryPut(t, io.MultiReader(bytes.NewReader(testkit.Contents(1000)), iotest.ErrReader(broken)), -1)
	require.ErrorIs(t, err, broken)
}
