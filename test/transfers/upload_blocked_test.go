package transfers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// stuckSeeker blocks in its second Read.
type stuckSeeker struct {
	*bytes.Reader
	reads   int
	stuck   func()
	release chan struct{}
}

func (s *stuckSeeker) Read(p []byte) (int, error) {
	if s.reads++; s.reads == 2 {
		s.stuck()
		<-s.release
	}
	return s.Reader.Read(p[:min(len(p), 1000)])
}

// When ctx ends, the upload ends, even if a Read of the body blocks.
func TestUpload_BlockedReader(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	leftovers := inTempDir(t)
	for _, seeks := range []bool{false, true} {
		s := testkit.NewFileService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		stuck := &stuckSeeker{Reader: bytes.NewReader(testkit.Contents(100_000)), stuck: cancel, release: make(chan struct{})}
		var body io.Reader = stuck
		if !seeks {
			body = readOnly{stuck}
		}
		done, c := make(chan error, 1), s.Client(t)
		go func() {
			_, err := c.Files.Put(ctx, s.Link(), body, nil)
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.Canceled)
		case <-time.After(10 * time.Second):
			require.Fail(t, "still blocked")
		}
		close(stuck.release)
	}
	require.Eventually(t, func() bool { return leftovers() == 0 }, 5*time.Second, time.Millisecond)
}

// trailingSeeker has a Read that takes an hour. The first attempt fails before this Read
// returns.
type trailingSeeker struct {
	*bytes.Reader
	reads int
}

func (s *trailingSeeker) Read(p []byte) (int, error) {
	if s.reads++; s.reads == 2 {
		time.Sleep(time.Hour)
	}
	return s.Reader.Read(p[:min(len(p), 1000)])
}

// A Read of an earlier attempt does not change the position for the next attempt. After
// the upload has returned, no Read is called.
func TestUpload_AttemptsDoNotDisturbEachOther(t *testing.T) {
	body := testkit.Contents(100_000)
	for _, first := range []int{503, 403} {
		src := &trailingSeeker{Reader: bytes.NewReader(body)}
		attempts, over := 0, new(atomic.Bool)
		var got bytes.Buffer
		storage := func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: first, Body: http.NoBody}
			if attempts++; attempts == 1 {
				go func() {
					_, _ = io.Copy(io.Discard, readOnly{r.Body})
					over.Store(true)
				}()
				time.Sleep(time.Second)
				return resp, nil
			}
			resp.StatusCode = 200
			_, err := io.Copy(&got, r.Body)
			return resp, err
		}
		inBubble(t, storage, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
			start := time.Now()
			_, err := c.Files.Put(t.Context(), link, struct{ io.ReadSeeker }{src}, nil)
			require.GreaterOrEqual(t, time.Since(start), time.Hour, "the upload must wait for the running Read")
			reads, left := src.reads, src.Len()
			time.Sleep(2 * time.Hour)
			require.Equal(t, reads, src.reads)
			require.Equal(t, left, src.Len())
			require.True(t, over.Load(), "the body of the first attempt must not be read any more")
			if first == 503 {
				require.NoError(t, err)
				require.True(t, bytes.Equal(body, got.Bytes()))
				require.Zero(t, left, "the body must be at its end")
				return
			}
			require.ErrorIs(t, err, svc.ErrForbidden)
			require.Equal(t, len(body), left, "the body must be back at its old position")
		})
	}
}
