package transfers_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// target returns a path in a new directory. If old is not nil, a file with these contents
// is there.
func target(t *testing.T, old []byte) string {
	path := filepath.Join(t.TempDir(), "video.mp4")
	if old != nil {
		require.NoError(t, os.WriteFile(path, old, 0o600))
	}
	return path
}

// requireFile checks the contents of the file, and that the directory has no other file.
// For nil, the directory must be empty.
func requireFile(t *testing.T, path string, want []byte) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	if want == nil {
		require.Empty(t, entries)
		return
	}
	require.Len(t, entries, 1, "nothing but the file")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}

func TestDownloadFileOfABrokenDownloadIsNoFile_B19(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	for _, old := range [][]byte{nil, []byte("old")} {
		cut := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(make([]byte, 500))
			w.(http.Flusher).Flush()
			testkit.Abort()
		})
		path := target(t, old)
		_, err := cut.Client(t).Files.DownloadURLFile(t.Context(), cut.Link(), path, nil)
		require.ErrorIs(t, err, svc.ErrTruncated)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, cut.Requests("GET"), 5, "an attempt may start over, because the file is not in place yet")
		requireFile(t, path, old)

		denied := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) { testkit.XMLError(w, 403, "AccessDenied", "no") })
		_, err = denied.Client(t).Files.DownloadURLFile(t.Context(), denied.Link(), path, nil)
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 403, e.StatusCode)
		requireFile(t, path, old)

		ctx, cancel := context.WithCancel(t.Context())
		halt := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(make([]byte, 500))
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
		})
		_, err = halt.Client(t).Files.DownloadURLFile(ctx, halt.Link(), path, nil)
		require.ErrorIs(t, err, context.Canceled)
		requireFile(t, path, old)

		empty := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "0") })
		n, err := empty.Client(t).Files.DownloadURLFile(t.Context(), empty.Link(), path, nil)
		require.NoError(t, err)
		require.Zero(t, n)
		requireFile(t, path, []byte{})
	}
}

func TestDownloadFileResumes(t *testing.T) {
	body := testkit.Contents(1 << 20)
	for name, storage := range map[string]func(n int, w http.ResponseWriter, r *http.Request){
		"resumed":      ranges(body, `"e1"`, 300_000, 300_000),
		"started over": ranges(body, "", 300_000, 200_000),
	} {
		s := testkit.NewFileService(t, storage)
		path := target(t, []byte("old"))
		var last int64
		n, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, &svc.DownloadOptions{Progress: func(n, _ int64) { last = n }})
		require.NoError(t, err, name)
		require.EqualValues(t, len(body), n)
		require.EqualValues(t, len(body), last)
		requireFile(t, path, body)
		require.Len(t, s.Requests("GET"), 3)
	}
	s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			ranges(body, "", 300_000)(n, w, r)
		}
		ranges([]byte("shorter"), "")(n, w, r)
	})
	path := target(t, nil)
	_, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
	require.NoError(t, err)
	requireFile(t, path, []byte("shorter"))

	s = testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			ranges(body, `"e1"`, 300_000)(n, w, r)
		}
		ranges(body, `"e2"`)(n, w, r)
	})
	path = target(t, []byte("old"))
	_, err = s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
	require.ErrorIs(t, err, svc.ErrChanged)
	requireFile(t, path, []byte("old"))
}

func TestDownloadFileReplacesOnlyFiles(t *testing.T) {
	body := []byte("new contents")
	s := testkit.NewFileService(t, ranges(body, `"e1"`))
	download := func(path string) error {
		_, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
		return err
	}
	mode := func(path string) fs.FileMode {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return info.Mode()
	}
	probe := filepath.Join(t.TempDir(), "probe")
	require.NoError(t, os.WriteFile(probe, nil, 0o644))

	path := target(t, nil)
	require.NoError(t, download(path))
	requireFile(t, path, body)
	require.Equal(t, mode(probe), mode(path), "the mode must be that of a new file")

	path = target(t, []byte("much longer old contents"))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, download(path))
	requireFile(t, path, body)
	require.Equal(t, fs.FileMode(0o640), mode(path))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, os.WriteFile(path, nil, 0o640))
	require.NoError(t, download(link))
	requireFile(t, path, body)
	require.NotZero(t, mode(link)&fs.ModeSymlink, "the path must still be a symbolic link")

	t.Chdir(t.TempDir())
	require.NoError(t, download("here"))
	requireFile(t, "./here", body)
	long := strings.Repeat("é", 120)
	require.NoError(t, os.Remove("here"))
	require.NoError(t, download(long))
	requireFile(t, "./"+long, body)

	asked := len(s.Requests("GET"))
	dir := t.TempDir()
	require.ErrorIs(t, download(dir), syscall.EISDIR)
	require.ErrorIs(t, download(filepath.Join(dir, "x")+"/"), syscall.EISDIR)
	require.ErrorIs(t, download(filepath.Join(dir, "none", "x")), fs.ErrNotExist)
	require.ErrorIs(t, download(""), fs.ErrNotExist)
	socket := filepath.Join(dir, "s") // no system device is used, because a bug would replace it
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	require.ErrorContains(t, download(socket), "not a regular file")
	require.NotZero(t, mode(socket)&fs.ModeSocket)
	require.Len(t, s.Requests("GET"), asked, "these errors must come before any request")
}

// If a function of the caller panics, no temporary file is left.
func TestDownloadFileLeavesNothingAfterAPanic(t *testing.T) {
	s := testkit.NewFileService(t, ranges(testkit.Contents(100), `"e1"`))
	path := target(t, []byte("old"))
	require.Panics(t, func() {
		_, _ = s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, &svc.DownloadOptions{Progress: func(int64, int64) { panic("mine") }})
	})
	requireFile(t, path, []byte("old"))
}

// If the presigned URL expires during a download by file ID, the download requests a new
// one and continues.
func TestDownloadRenewsItsLink(t *testing.T) {
	body := testkit.Contents(100_000)
	links := func(s *testkit.FileService) (n int) {
		for _, r := range s.Requests("GET") {
			if strings.HasSuffix(r.URL.Path, "/presigned_url") {
				n++
			}
		}
		return n
	}
	for _, expired := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { testkit.XMLError(w, 403, "AccessDenied", "Request has expired") },
		func(w http.ResponseWriter) { testkit.XMLError(w, 400, "ExpiredToken", "x") },
		func(w http.ResponseWriter) { w.WriteHeader(403) },
	} {
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 1, 3, 5, 7:
				ranges(body, `"e1"`, 10_000, 0, 10_000, 0, 10_000, 0, 10_000)(n, w, r)
			case 2, 4, 6, 8:
				expired(w)
			default:
				ranges(body, `"e1"`)(n, w, r)
			}
		})
		var got bytes.Buffer
		n, err := s.Client(t).Files.Download(t.Context(), "f1", &got, nil)
		require.NoError(t, err)
		require.EqualValues(t, len(body), n)
		require.True(t, bytes.Equal(body, got.Bytes()))
		require.Equal(t, 5, links(s))
	}
	t.Run("not for ever", func(t *testing.T) {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			testkit.XMLError(w, 403, "AccessDenied", "Request has expired")
		})
		_, err := s.Client(t).Files.Download(t.Context(), "f1", io.Discard, nil)
		require.ErrorIs(t, err, svc.ErrLinkExpired)
		var e *svc.DownloadError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "f1", e.FileID)
		require.Contains(t, err.Error(), "f1")
		require.Equal(t, 3, links(s))
	})
	t.Run("no new one", func(t *testing.T) {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			testkit.XMLError(w, 403, "AccessDenied", "Request has expired")
		})
		s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
			if links(s) == 2 {
				w.WriteHeader(404)
				return
			}
			s.Answer(w, r)
		}
		_, err := s.Client(t).Files.Download(t.Context(), "f1", io.Discard, nil)
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.ErrorContains(t, err, "/v1/files/{file_id}/presigned_url")
	})
	t.Run("a plain link is not renewed", func(t *testing.T) {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			testkit.XMLError(w, 403, "AccessDenied", "Request has expired")
		})
		_, err := s.Client(t).Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil)
		require.ErrorIs(t, err, svc.ErrLinkExpired)
		require.Zero(t, links(s))
	})
}

// A complete upload and download with the fake service: presigned URLs expire, and
// connections are cut.
func TestFilesFromUploadToDelete(t *testing.T) {
	srv := svctest.NewServer(svctest.WithSeparateStorage(), svctest.WithLinkTTL(time.Minute))
	defer srv.Close()
	c := srv.Client(svc.WithRetry(svc.RetryPolicy{MinDelay: time.Millisecond}))
	body := testkit.Contents(3 << 20)

	srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{DropBefore: true, ReadBytes: 1 << 20}, svctest.ServiceUnavailable(1))
	f := tempFile(t, body)
	up, err := c.Files.UploadFile(t.Context(), f.Name(), svc.FilePurposeFineTune, nil)
	require.NoError(t, err)
	require.Equal(t, 3, up.Attempts)
	stored, ok := srv.FileContents(up.FileID)
	require.True(t, ok)
	require.True(t, bytes.Equal(body, stored))

	list, err := c.Files.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, up.FileID, list[0].ID)
	require.Equal(t, filepath.Base(f.Name()), list[0].FileName)

	srv.Fault("GET", svctest.RouteStorage, svctest.Fault{TruncateAfter: 1 << 20}, svctest.ServiceUnavailable(1), svctest.Fault{TruncateBody: true})
	path := target(t, nil)
	n, err := c.Files.DownloadFile(t.Context(), up.FileID, path, nil)
	require.NoError(t, err)
	require.EqualValues(t, len(body), n)
	requireFile(t, path, body)
	require.Zero(t, srv.PendingFaults())

	require.NoError(t, c.Files.Delete(t.Context(), up.FileID))
	_, err = c.Files.Get(t.Context(), up.FileID)
	require.ErrorIs(t, err, svc.ErrNotFound)
}

// If the presigned URL of an upload has expired, the upload continues with a new URL for
// the same record.
func TestFilesWithALinkThatExpires(t *testing.T) {
	srv := svctest.NewServer(svctest.WithLinkTTL(time.Nanosecond))
	defer srv.Close()
	body := strings.NewReader("data")
	_, err := srv.Client().Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body})
	require.ErrorIs(t, err, svc.ErrLinkExpired)
	var e *svc.UploadError
	require.ErrorAs(t, err, &e)
	require.NotEmpty(t, e.FileID)
	require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
	_, ok := srv.FileContents(e.FileID)
	require.False(t, ok)
	require.Equal(t, 4, body.Len(), "the body must be back at its old position")
}
