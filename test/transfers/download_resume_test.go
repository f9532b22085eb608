package transfers_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// ranges serves body with ranges and an ETag, as storage does. The n-th response is cut
// off after cuts[n-1] bytes; later responses are complete.
func ranges(body []byte, etag string, cuts ...int) func(n int, w http.ResponseWriter, r *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		if n <= len(cuts) {
			w = &cutWriter{w, cuts[n-1]}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(p []byte) (int, error) {
	n, _ := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		testkit.Abort()
	}
	return n, nil
}

func TestDownloadResumesWhereItStopped(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	body := testkit.Contents(1 << 20)
	for name, storage := range map[string]func(n int, w http.ResponseWriter, r *http.Request){
		"etag": ranges(body, `"e1"`, 300_000, 1, 500_000),
		"cut before the first byte": func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				w.(http.Flusher).Flush()
				testkit.Abort()
			}
			ranges(body, `"e1"`)(n, w, r)
		},
		"errors on the way": func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 1, 2, 4, 5, 7:
				w.WriteHeader(503)
			case 3, 6:
				ranges(body, `"e1"`, 9, 9, 300_000, 9, 9, 300_000)(n, w, r)
			default:
				ranges(body, `"e1"`)(n, w, r)
			}
		},
		"smaller ranges than asked for": func(n int, w http.ResponseWriter, r *http.Request) {
			if from := r.Header.Get("Range"); from != "" {
				start, _ := strconv.Atoi(strings.Trim(from, "bytes=-"))
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", start, start+99_999))
			}
			ranges(body, `"e1"`, 300_000)(n, w, r)
		},
		"length not announced": func(n int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"e1"`)
			switch r.Header.Get("Range") {
			case "":
				_, _ = w.Write(body[:300_000])
				w.(http.Flusher).Flush()
				testkit.Abort()
			default:
				ranges(body, `"e1"`)(n, w, r)
			}
		},
		"many cuts, with progress between": ranges(body, `"e1"`, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10),
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.NewFileService(t, storage)
			var got bytes.Buffer
			n, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, nil)
			require.NoError(t, err)
			require.EqualValues(t, len(body), n)
			require.True(t, bytes.Equal(body, got.Bytes()), "every byte must come once")
			if name == "etag" {
				gets := s.Requests("GET")
				require.Len(t, gets, 4)
				require.Empty(t, gets[0].Header.Get("Range"))
				for i, want := range []string{"bytes=300000-", "bytes=300001-", "bytes=800001-"} {
					require.Equal(t, want, gets[i+1].Header.Get("Range"))
					require.Equal(t, `"e1"`, gets[i+1].Header.Get("If-Range"))
				}
			}
		})
	}
}

// Bytes of two versions are never mixed. If it is not certain that two parts belong to
// the same version, they are not put together.
func TestDownloadNeverMixesVersions(t *testing.T) {
	old, other := bytes.Repeat([]byte("old-"), 1000), bytes.Repeat([]byte("new-"), 1000)
	first := ranges(old, `"e1"`, 1000)
	for name, tt := range map[string]struct {
		then func(n int, w http.ResponseWriter, r *http.Request)
		want error
	}{
		"another etag, whole":   {ranges(other, `"e2"`), svc.ErrChanged},
		"another length, whole": {ranges(other[:3000], `"e1"`), svc.ErrChanged},
		"another length, no ranges": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"e1"`)
			w.Header().Set("Content-Length", "3000")
			_, _ = w.Write(other[:3000])
		}, svc.ErrChanged},
		"another etag, in part": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"e2"`)
			w.Header().Set("Content-Range", "bytes 1000-3999/4000")
			w.WriteHeader(206)
			_, _ = w.Write(other[1000:])
		}, svc.ErrChanged},
		"another total": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 1000-3999/5000")
			w.WriteHeader(206)
			_, _ = w.Write(other[1000:])
		}, svc.ErrChanged},
		"whole without an etag": {ranges(other, ""), svc.ErrChanged},
		"a range not asked for": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-2999/4000")
			w.WriteHeader(206)
			_, _ = w.Write(other[:3000])
		}, nil},
		"a part without a range": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			_, _ = w.Write(other[1000:])
		}, nil},
		"range not satisfiable": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes */500")
			w.WriteHeader(416)
		}, nil},
		"gone": {func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, svc.ErrNotFound},
	} {
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				first(n, w, r)
			}
			tt.then(n, w, r)
		})
		var got bytes.Buffer
		n, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), &got, nil)
		require.Error(t, err, name)
		if tt.want != nil {
			require.ErrorIs(t, err, tt.want, name)
		}
		require.EqualValues(t, 1000, n, name)
		require.Equal(t, old[:1000], got.Bytes(), name)
		require.Len(t, s.Requests("GET"), 2, name)
		var e *svc.DownloadError
		require.ErrorAs(t, err, &e)
		require.EqualValues(t, 1000, e.Received)
		require.EqualValues(t, 4000, e.Total)
		require.Equal(t, string(s.Link()), string(e.Link))
		require.Contains(t, err.Error(), "1000 of 4000 bytes")
		testkit.RequireSilent(t, err)
	}
}

func TestDownloadIsTruncatedWithoutAStrongTag(t *testing.T) {
	for name, header := range map[string][2]string{
		"nothing": {"X-A", ""}, "a weak etag": {"ETag", `W/"e1"`},
		"a date": {"Last-Modified", "Wed, 01 May 2024 10:00:00 GMT"},
	} {
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header[0], header[1])
			ranges(testkit.Contents(1000), "", 500)(n, w, r)
		})
		_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil)
		require.ErrorIs(t, err, svc.ErrTruncated, name)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.Len(t, s.Requests("GET"), 1, name)
	}
}

func TestDownloadGivesUpWithoutProgress(t *testing.T) {
	for requests, storage := range map[int]func(n int, w http.ResponseWriter, r *http.Request){
		3: func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				ranges(testkit.Contents(1000), `"e1"`, 500)(n, w, r)
			}
			w.Header().Set("ETag", `"e1"`)
			w.Header().Set("Content-Range", "bytes 500-999/1000")
			w.Header().Set("Content-Length", "500")
			w.WriteHeader(206)
			w.(http.Flusher).Flush()
			testkit.Abort() // this response has no new bytes
		},
		4: func(n int, w http.ResponseWriter, r *http.Request) {
			if n > 1 {
				testkit.Abort() // no response
			}
			ranges(testkit.Contents(1000), `"e1"`, 500)(n, w, r)
		},
	} {
		s := testkit.NewFileService(t, storage)
		c := s.Client(t, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 3, MinDelay: time.Millisecond}))
		n, err := c.Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil)
		require.Error(t, err)
		require.EqualValues(t, 500, n)
		require.Len(t, s.Requests("GET"), requests)
		testkit.RequireSilent(t, err)
	}
	s := testkit.NewFileService(t, ranges(testkit.Contents(1000), `"e1"`, 500))
	_, err := s.Client(t, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1})).Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil)
	require.ErrorIs(t, err, svc.ErrTruncated, "without retries the download is not continued")
	require.Len(t, s.Requests("GET"), 1)
}
