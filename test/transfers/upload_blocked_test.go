package transfers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// When ctx ends, the upload ends, even if a Read or a ReadAt of the body hangs. Only the goroutine
// of that read is left.
func TestUploadEndsWithCtxWhileAReadHangs(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	leftovers := inTempDir(t)
	for _, kind := range []string{"ReadAt", "Read", "Read of a seeker"} {
		s := testkit.NewFileService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		hang := func(n int64) {
			if n == 2 {
				cancel()
				<-release
			}
		}
		at := newPlaced(200_000)
		at.readAt = func(n int64, p []byte, off int64) (int, error) { hang(n); return at.r.ReadAt(p, off) }
		at.read = func(n int, p []byte) (int, error) { hang(int64(n)); return at.r.Read(p) }
		body := map[string]io.Reader{"ReadAt": at, "Read": readOnly{at}, "Read of a seeker": at.replaced}[kind]
		c := s.Client(t)
		start := time.Now()
		_, err := c.Files.Put(ctx, s.Link(), body, nil)
		require.ErrorIs(t, err, context.Canceled, kind)
		require.Less(t, time.Since(start), 20*time.Second)
		require.Eventually(t, func() bool { return goroutinesIn("example.com/svc/internal/") <= 1 }, 20*time.Second, time.Millisecond)
		close(release)
	}
	require.Eventually(t, func() bool { return leftovers() == 0 }, 20*time.Second, time.Millisecond)
}

// goroutinesIn counts the goroutines that run code of the packages.
func goroutinesIn(packages string) (n int) {
	stacks := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(one, packages) && !strings.Contains(one, "goroutinesIn") && !strings.Contains(one, "internal/testkit") {
			n++
		}
	}
	return n
}

// A read of an earlier attempt does not disturb the next attempt. After the upload has returned,
// nothing is read.
func TestUploadAttemptsDoNotDisturbEachOther(t *testing.T) {
	for _, first := range []int{503, 403} {
		body := newPlaced(100_000)
		body.readAt = func(n int64, p []byte, off int64) (int, error) {
			if n == 2 {
				time.Sleep(time.Hour)
			}
			return body.r.ReadAt(p, off)
		}
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
			_, err := c.Files.Put(t.Context(), link, body, nil)
			require.GreaterOrEqual(t, time.Since(start), time.Hour, "the upload must wait for the running read")
			reads, left := body.n.Load(), body.r.Len()
			time.Sleep(2 * time.Hour)
			require.Equal(t, reads, body.n.Load())
			require.True(t, over.Load(), "the body of the first attempt must not be read any more")
			if first == 503 {
				require.NoError(t, err)
				require.True(t, bytes.Equal(testkit.Contents(100_000), got.Bytes()))
				require.Zero(t, left, "the body must be at its end")
				return
			}
			require.ErrorIs(t, err, svc.ErrForbidden)
			require.Equal(t, 100_000, left, "the body must be back at its old position")
		})
	}
}
