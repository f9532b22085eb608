package transfers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// hanging is a body on disk or elsewhere whose first read hangs until release is closed.
type hanging struct {
	*bytes.Reader
	begun   atomic.Bool
	hangs   func()
	release chan struct{}
}

func (h *hanging) hang() {
	if !h.begun.Swap(true) {
		h.hangs()
		<-h.release
	}
}

func (h *hanging) Read(p []byte) (int, error) { h.hang(); return h.Reader.Read(p) }

func (h *hanging) ReadAt(p []byte, off int64) (int, error) { h.hang(); return h.Reader.ReadAt(p, off) }

// If ctx ends the upload during a read of the body, the offset of the body does not move, and
// Replace with the same body, as the error advises, sends all of it.
func TestReplaceSendsAllAfterCtxEndedDuringARead_D25(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		all := testkit.Contents(200_000)
		ctx, cancel := context.WithCancel(t.Context())
		body := &hanging{Reader: bytes.NewReader(all), hangs: cancel, release: make(chan struct{})}
		_, err := body.Seek(7, io.SeekStart)
		require.NoError(t, err)
		start := time.Now()
		_, err = srv.Client().Files.Upload(ctx, svc.UploadRequest{FileName: "a", Body: body})
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, time.Since(start), time.Second)
		failed := testkit.ErrorAs[*svc.UploadError](t, err)
		require.ErrorContains(t, err, "call Replace with a new reader to send them")
		close(body.release)
		synctest.Wait()
		result, err := srv.Client().Files.Replace(t.Context(), failed.FileID, body, nil)
		require.NoError(t, err)
		require.EqualValues(t, len(all)-7, result.Bytes)
		stored, _ := srv.FileContents(failed.FileID)
		require.True(t, bytes.Equal(all[7:], stored))
		require.Zero(t, body.Len(), "the offset is behind the bytes that were sent")
	})
}

// Two uploads of one file at once both send all of it.
func TestUploadsOfOneFileAtOnceAreBothComplete_D25(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	all := testkit.Contents(300_000)
	f := tempFile(t, all)
	both := new(sync.WaitGroup)
	both.Add(2)
	s := testkit.NewFileService(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 100_000)
		both.Done()
		both.Wait()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	c := s.Client(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			result, err := c.Files.Put(t.Context(), s.Link(), f, nil)
			if err == nil && result.Bytes != int64(len(all)) {
				t.Errorf("%d bytes were sent", result.Bytes)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, put := range s.Requests("PUT") {
		require.True(t, bytes.Equal(all, put.Bytes.Bytes()))
	}
}
