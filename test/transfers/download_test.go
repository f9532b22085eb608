package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestDownloadStreams(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	body := testkit.Contents(1 << 20)
	s := testkit.NewFileService(t, ranges(body, `"e1"`))
	var got bytes.Buffer
	n, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, &svc.DownloadOptions{Header: http.Header{"x-a": {"1"}}})
	require.NoError(t, err)
	require.EqualValues(t, len(body), n)
	require.True(t, bytes.Equal(body, got.Bytes()))
	gets := s.Requests("GET")
	require.Len(t, gets, 1)
	var names []string
	for name := range gets[0].Header {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"User-Agent", "Accept-Encoding", "X-A"}, names)
	require.Equal(t, "identity", gets[0].Header.Get("Accept-Encoding"))
}

func TestDownloadReportsRefusals(t *testing.T) {
	for _, status := range []int{400, 403, 404, 204, 202, 206, 203, 304, 416} {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			testkit.XMLError(w, status, "NoSuchKey", "no such thing")
		})
		var got bytes.Buffer
		n, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, nil)
		require.Error(t, err, status)
		require.Zero(t, n)
		require.Empty(t, got.String(), status)
		require.Contains(t, err.Error(), strconv.Itoa(status))
		require.Len(t, s.Requests("GET"), 1)
		var e *svc.Error
		if status >= 400 {
			require.ErrorAs(t, err, &e)
			require.Equal(t, "NoSuchKey", e.Code)
		}
	}
	s := testkit.NewFileService(t, nil)
	for _, name := range []string{"Range", "if-range", "Accept-Encoding", "Authorization", "Cookie", "Host"} {
		_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), io.Discard, &svc.DownloadOptions{Header: http.Header{name: {"x"}}})
		require.ErrorAs(t, err, new(*svc.ValidationError), name)
	}
	require.Empty(t, s.Seen)
}

func TestDownloadFollowsRedirects(t *testing.T) {
	body := testkit.Contents(10_000)
	for _, status := range []int{301, 302, 303, 307, 308} {
		other := testkit.NewFileService(t, ranges(body, `"e1"`, 5000))
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(string(other.Link()), "http://", "http://user:password@", 1), status)
		})
		var got bytes.Buffer
		_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, nil)
		require.NoError(t, err, status)
		require.Equal(t, body, got.Bytes())
		for _, r := range other.Requests("GET") {
			require.Empty(t, r.Header.Values("Authorization"))
			require.Empty(t, r.Header.Values("Referer"))
			require.Empty(t, r.Header.Values("Cookie"))
			require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		}
		require.Equal(t, "bytes=5000-", other.Requests("GET")[1].Header.Get("Range"))
	}
}

// failingWriter accepts left bytes and then fails.
type failingWriter struct {
	left        int
	err         error
	failed, cry bool // failed: a Write failed; cry: Write was called again after that
}

func (w *failingWriter) Write(p []byte) (int, error) {
	w.cry = w.failed
	n := min(len(p), w.left)
	if w.left -= n; n < len(p) {
		w.failed = true
		return n, w.err
	}
	return n, nil
}

func TestDownloadReturnsTheErrorOfItsWriter(t *testing.T) {
	full := errors.New("disk full")
	for _, want := range []error{full, nil} { // nil: a short write without an error
		s := testkit.NewFileService(t, ranges(testkit.Contents(100_000), `"e1"`))
		w := &failingWriter{left: 30_000, err: want}
		n, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), w, nil)
		if want == nil {
			want = io.ErrShortWrite
		}
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, svc.ErrTruncated)
		require.EqualValues(t, 30_000, n)
		require.Len(t, s.Requests("GET"), 1)
		require.False(t, w.cry, "Write must not be called after it failed")
	}
}

// Contents that are stored compressed are downloaded unchanged.
func TestDownloadKeepsCompressedContentsAsTheyAre(t *testing.T) {
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "\x1f\x8b not really")
	})
	var got bytes.Buffer
	_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, nil)
	require.NoError(t, err)
	require.Equal(t, "\x1f\x8b not really", got.String())
}

func TestDownloadEndsWithCtx(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e1"`)
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 500))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	n, err := s.Client(t).Files.DownloadURL(ctx, s.Link(), testkit.WriterFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, svc.ErrTruncated)
	require.EqualValues(t, 500, n)
	require.Len(t, s.Requests("GET"), 1)
	_, err = s.Client(t).Files.DownloadURL(ctx, s.Link(), io.Discard, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, s.Requests("GET"), 1, "no request may be sent any more")
}

// A slow body is fine. A body that stops is requested again from where it stopped.
func TestDownloadEndsWhenNoByteArrives_B18(t *testing.T) {
	asked := 0
	storage := func(r *http.Request) (*http.Response, error) {
		asked++
		resp := &http.Response{StatusCode: 200, ContentLength: 30, Header: http.Header{"Etag": {`"e1"`}, "Date": {"x"}}, Body: &drip{ctx: r.Context(), left: 20}}
		if r.Header.Get("Range") == "bytes=20-" {
			resp.StatusCode, resp.ContentLength = 206, 10
			resp.Header.Set("Content-Range", "bytes 20-29/30")
			resp.Body.(*drip).left, resp.Body.(*drip).ends = 10, true
		}
		return resp, nil
	}
	inBubble(t, storage, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
		var got bytes.Buffer
		start := time.Now()
		n, err := c.Files.DownloadURL(t.Context(), link, &got, nil)
		require.NoError(t, err)
		require.EqualValues(t, 30, n)
		require.Equal(t, 2, asked)
		require.InDelta(t, 30*90+120, time.Since(start).Seconds(), 2)
	}, svc.WithTimeout(time.Second))
	inBubble(t, silence, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
		start := time.Now()
		_, err := c.Files.DownloadURL(t.Context(), link, io.Discard, &svc.DownloadOptions{IdleTimeout: 9 * time.Second})
		require.ErrorIs(t, err, svc.ErrTimeout)
		require.Equal(t, 9*time.Second, time.Since(start))
	}, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
}

// drip returns one byte every 90 seconds. After the last byte it ends, or blocks.
type drip struct {
	ctx  context.Context
	left int
	ends bool
}

func (d *drip) Read(p []byte) (int, error) {
	wait := 90 * time.Second
	if d.left == 0 {
		if d.ends {
			return 0, io.EOF
		}
		wait = 1000 * time.Hour
	}
	select {
	case <-time.After(wait):
		d.left--
		return copy(p, "x"), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (d *drip) Close() error { return nil }

func TestDownloadReportsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := func(r *http.Request) (*http.Response, error) {
			body := readOnly{writerPaced{bytes.NewReader(make([]byte, 100_000))}}
			return &http.Response{StatusCode: 200, ContentLength: 100_000, Body: io.NopCloser(body)}, nil
		}
		c, err := svc.NewClient("https://svc.test", svc.WithHTTPClient(&http.Client{Transport: testkit.RoundTripFunc(storage)}))
		require.NoError(t, err)
		var received []int64
		_, err = c.Files.DownloadURL(t.Context(), "https://storage.test/o", io.Discard, &svc.DownloadOptions{Progress: func(n, total int64) {
			require.EqualValues(t, 100_000, total)
			received = append(received, n)
		}})
		require.NoError(t, err)
		require.Len(t, received, 11)
		require.EqualValues(t, 1000, received[0])
		require.EqualValues(t, 100_000, received[10])
	})
	for announced, want := range map[bool][]int64{false: {-1, 100}, true: {100}} {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 100))
			if !announced {
				w.(http.Flusher).Flush()
			}
		})
		var totals []int64
		_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), io.Discard, &svc.DownloadOptions{Progress: func(_, total int64) { totals = append(totals, total) }})
		require.NoError(t, err)
		require.Equal(t, want, totals, "the total is unknown until the last call of Progress")
	}
}

// writerPaced returns 1000 bytes every 10 ms.
type writerPaced struct{ io.Reader }

func (r writerPaced) Read(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return r.Reader.Read(p[:min(len(p), 1000)])
}
