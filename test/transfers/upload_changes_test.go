package transfers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// A file is written to while it is uploaded. A mixture of two versions is never uploaded
// completely, not even by a second attempt.
func TestUploadFailsIfItsFileIsWrittenTo(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	var size int64
	overwrite := func(f *os.File) error {
		w, err := os.OpenFile(f.Name(), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = w.WriteAt(bytes.Repeat([]byte("B"), 1000), size-1000)
		return err
	}
	regrow := func(f *os.File) error {
		if err := os.Truncate(f.Name(), 10); err != nil {
			return err
		}
		return os.Truncate(f.Name(), size)
	}
	for name, change := range map[string]func(f *os.File) error{"overwritten": overwrite, "regrown": regrow} {
		for _, when := range []string{"before", "meanwhile", "between attempts"} {
			if name == "regrown" && when == "meanwhile" {
				continue // a read may happen while the file is short
			}
			t.Run(name+" "+when, func(t *testing.T) {
				size = 2 << 20
				if when == "meanwhile" {
					size = 16 << 20 // more than what may be on its way
				}
				f := tempFile(t, make([]byte, size))
				before := time.Now().Add(-time.Hour)
				require.NoError(t, os.Chtimes(f.Name(), before, before))
				var whole atomic.Int32
				var once sync.Once
				do := func() { once.Do(func() { require.NoError(t, change(f)) }) }
				s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
					if when == "meanwhile" {
						_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
						do()
					}
					got, err := io.Copy(io.Discard, r.Body)
					if when == "between attempts" {
						do()
						w.WriteHeader(503)
					} else if err == nil && got > size-1<<20-1 {
						whole.Add(1)
					}
				})
				s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
					if when == "before" {
						do()
					}
					s.Answer(w, r)
				}
				_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: f})
				e := testkit.ErrorAs[*svc.UploadError](t, err)
				require.Equal(t, svc.UploadStagePut, e.Stage)
				require.Equal(t, "f1", e.FileID)
				require.ErrorContains(t, err, "reading the body: the file was written to while it was being sent")
				require.NotErrorIs(t, err, svc.ErrTruncated)
				require.LessOrEqual(t, len(s.Requests("PUT")), 2, "the upload must not be retried")
				at, err := f.Seek(0, io.SeekCurrent)
				require.NoError(t, err)
				require.Zero(t, at)
				s.Close()
				require.Zero(t, whole.Load(), "storage must not get a complete body")
			})
		}
	}
}

// Renaming the file does not matter, and reading it does not count as a change.
func TestUploadOfAFileThatIsRenamed(t *testing.T) {
	f := tempFile(t, testkit.Contents(100_000))
	s := testkit.NewFileService(t, nil)
	s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
		require.NoError(t, os.Rename(f.Name(), f.Name()+".old"))
		require.NoError(t, os.WriteFile(f.Name(), []byte("another"), 0o600))
		s.Answer(w, r)
	}
	_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: f})
	require.NoError(t, err)
	require.True(t, bytes.Equal(testkit.Contents(100_000), s.Requests("PUT")[0].Bytes.Bytes()))
}

// The last call of Progress happens in the caller's goroutine, after the success. So a
// panic in it reaches the caller.
func TestUploadPassesOnAPanicOfProgress(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	body := strings.NewReader("contents")
	require.PanicsWithValue(t, "at the end", func() {
		_, _ = s.Client(t).Files.Put(t.Context(), s.Link(), body, &svc.UploadOptions{Progress: func(sent, total int64) {
			if sent == total {
				panic("at the end")
			}
		}})
	})
	require.Zero(t, body.Len())
}

// If a reader returns no bytes many times, the upload fails with io.ErrNoProgress.
func TestUploadFailsIfItsReaderReturnsNothing(t *testing.T) {
	leftovers := inTempDir(t)
	for _, before := range []int{0, 100_000} {
		reads := 0
		idle := testkit.ReadFunc(func([]byte) (int, error) { reads++; return 0, nil })
		s := testkit.NewFileService(t, nil)
		_, err := s.Client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: io.MultiReader(bytes.NewReader(testkit.Contents(before)), idle)})
		require.ErrorIs(t, err, io.ErrNoProgress)
		require.Equal(t, svc.UploadStageBody, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
		require.Equal(t, 100, reads)
		require.Empty(t, s.Seen)
	}
	require.Zero(t, leftovers())
}

// A body grows after the upload has taken its length. The upload must fail, even if the
// body was empty at first, so that none of its bytes had to be read. Afterwards the body
// is at its old position.
func TestUploadFailsIfItsBodyGrowsUnseen(t *testing.T) {
	for _, was := range []string{"", "abc"} {
		for name, open := range map[string]func(t *testing.T) (body io.Reader, grow func()){
			"file": func(t *testing.T) (io.Reader, func()) {
				f := tempFile(t, []byte(was))
				return f, func() {
					_, err := f.WriteAt([]byte("more"), int64(len(was)))
					require.NoError(t, err)
				}
			},
			"buffer": func(*testing.T) (io.Reader, func()) {
				b := bytes.NewBufferString(was)
				return b, func() { b.WriteString("more") }
			},
		} {
			for _, grows := range []bool{true, false} {
				body, grow := open(t)
				srv := svctest.NewInMemory()
				client := srv.Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
					if a.Route == "/v1/files" && grows {
						grow()
					}
				}))
				result, err := client.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body})
				if !grows {
					require.NoError(t, err, name)
					require.Equal(t, int64(len(was)), result.Bytes)
					continue
				}
				e := testkit.ErrorAs[*svc.UploadError](t, err)
				require.Equal(t, svc.UploadStagePut, e.Stage)
				require.NotEmpty(t, e.FileID)
				want := fmt.Sprintf("the body has more than the %d bytes announced", len(was))
				if name == "file" && was == "" {
					want = "the file was written to while it was being sent"
				}
				require.ErrorContains(t, err, "reading the body: "+want)
				left, err := io.ReadAll(body)
				require.NoError(t, err)
				require.Equal(t, was+"more", string(left), "the body must be at its old position")
			}
		}
	}
}
