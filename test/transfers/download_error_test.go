package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// The text of a download error says how much was received, and what to do.
func TestDownloadErrorText(t *testing.T) {
	cut := func(total int64) *pieces {
		return &pieces{all: []piece{{200, "", total, "01234", true}}}
	}
	answer := func(status int, body string) *pieces {
		return &pieces{all: []piece{{status, "Content-Type: application/json", int64(len(body)), body, false}}}
	}
	for name, tt := range map[string]struct {
		storage *pieces
		want    string
		is      error
	}{
		"cut":               {cut(10), "svc: download (5 of 10 bytes): cut off: unexpected EOF", svc.ErrTruncated},
		"cut, no length":    {cut(-1), "svc: download (5 bytes): cut off: unexpected EOF", svc.ErrTruncated},
		"cut at the start":  {&pieces{all: []piece{{200, "", 10, "", true}}}, "svc: download (0 of 10 bytes): cut off: unexpected EOF", svc.ErrTruncated},
		"one byte":          {&pieces{all: []piece{{200, "", -1, "0", true}}}, "svc: download (1 bytes): cut off: unexpected EOF", svc.ErrTruncated},
		"more than nothing": {&pieces{all: []piece{{200, "", 0, "x", false}}}, "svc: download (0 of 0 bytes): the response is not the file, or not the requested part: 200 OK", nil},
		"forbidden":         {answer(403, `{"message":"no"}`), "svc: download: 403 Forbidden: no", svc.ErrForbidden},
		"expired":           {answer(403, `{"message":"it has expired"}`), "svc: download: 403 Forbidden: it has expired; the link has expired: ask for a new link", svc.ErrLinkExpired},
		"another success":   {answer(203, `x`), "svc: download: the response is not the file, or not the requested part: 203 Non-Authoritative Information", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := testkit.ClientOn(t, tt.storage, testkit.Tries(1, time.Second)).Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, nil)
			requireText(t, err, tt.want)
			for _, target := range []error{svc.ErrTruncated, svc.ErrLinkExpired, svc.ErrChanged} {
				require.Equal(t, target == tt.is, errors.Is(err, target), "%v", target)
			}
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			e := testkit.ErrorAs[*svc.DownloadError](t, err)
			require.Equal(t, n, e.Received)
			require.Equal(t, svc.SignedURL(testkit.SignedLink), e.Link)
			require.Empty(t, e.FileID)
		})
	}
}

// Contents that end too early are reported as cut off. This also holds for the part that
// a second response repeats and the download skips.
func TestDownloadErrorOfAnEndThatComesEarly(t *testing.T) {
	storage := &pieces{all: []piece{{200, `ETag: "a"`, 10, "01234", true}, {200, `ETag: "a"`, -1, "012", false}}}
	_, err := testkit.ClientOn(t, storage, testkit.Tries(2, time.Millisecond)).Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, nil)
	requireText(t, err, "svc: download (5 of 10 bytes): cut off: unexpected EOF (2 attempts)")
	require.ErrorIs(t, err, svc.ErrTruncated)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotErrorIs(t, err, io.EOF)

	storage = &pieces{all: []piece{{200, `ETag: "a"`, 10, "01234", true}, {200, `ETag: "b"`, 10, "0123456789", false}}}
	_, err = testkit.ClientOn(t, storage, testkit.Tries(2, time.Millisecond)).Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, nil)
	requireText(t, err, "svc: download (5 of 10 bytes): the file changed while it was being downloaded: 200 OK")
	require.ErrorIs(t, err, svc.ErrChanged)
}

// The error of a download by file ID has the ID and the presigned URL that was used.
func TestDownloadErrorOfAFile(t *testing.T) {
	c, _ := scripted(t, linked, refusedPut)
	_, err := c.Files.Download(t.Context(), "f1", io.Discard, nil)
	requireText(t, err, "svc: download of file f1: 403 Forbidden: no (code AccessDenied)")
	e := testkit.ErrorAs[*svc.DownloadError](t, err)
	require.Equal(t, "f1", e.FileID)
	require.Equal(t, svc.SignedURL(uploadLink), e.Link)

	c, _ = scripted(t, testkit.Reply{Status: 404})
	_, err = c.Files.Download(t.Context(), "f1", io.Discard, nil)
	requireText(t, err, "svc: download of file f1: asking for a link: GET /v1/files/{file_id}/presigned_url: 404 Not Found (id f1)")
	require.ErrorIs(t, err, svc.ErrNotFound)
	require.NotErrorIs(t, err, svc.ErrLinkExpired)
	require.Empty(t, testkit.ErrorAs[*svc.DownloadError](t, err).Link)

	// An invalid presigned URL gives an error, not a panic.
	c, _ = scripted(t, testkit.Reply{Status: 200, Body: `{"presigned_url":"ftp://store.test/f1"}`})
	_, err = c.Files.Download(t.Context(), "f1", io.Discard, nil)
	require.ErrorContains(t, err, "svc: download of file f1: asking for a link: ")
	require.ErrorContains(t, err, "link must be an absolute URL")
	require.Equal(t, svc.SignedURL("ftp://store.test/f1"), testkit.ErrorAs[*svc.DownloadError](t, err).Link)
}

// If the writer fails and ctx ends at the same time, the error is that of the writer.
func TestDownloadErrorOfTheWriterThatEndsCtx(t *testing.T) {
	full := errors.New("disk full")
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := scripted(t, testkit.Reply{Status: 200, Body: "contents"})
	_, err := c.Files.DownloadURL(ctx, testkit.SignedLink, testkit.WriterFunc(func([]byte) (int, error) { cancel(); return 0, full }), nil)
	requireText(t, err, "svc: download (0 of 8 bytes): disk full")
}

// Without a response, or if the connection breaks in the contents, the error is a
// TransportError. It has the number of attempts and shows no secret of the URL.
func TestDownloadErrorOfTheTransport(t *testing.T) {
	for name, storage := range map[string]testkit.RoundTripFunc{
		"before the answer": func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("no way to %s", r.URL) },
		"in the contents": func(r *http.Request) (*http.Response, error) {
			body := io.MultiReader(bytes.NewReader([]byte("01234")), testkit.ReadFunc(func([]byte) (int, error) {
				return 0, fmt.Errorf("lost %s on the way, and %s", r.URL, testkit.Token)
			}))
			return &http.Response{StatusCode: 200, ContentLength: 10, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
		},
	} {
		inBubble(t, storage, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
			_, err := c.Files.DownloadURLFile(t.Context(), link, filepath.Join(t.TempDir(), "f"), nil)
			e := testkit.ErrorAs[*svc.TransportError](t, err)
			require.Equal(t, 3, e.Attempts, name)
			require.Equal(t, "GET", e.Method)
			require.Equal(t, "{presigned_url}", e.Route)
			require.ErrorContains(t, err, "storage.test/f1?REDACTED", name)
			testkit.RequireSilent(t, err)
		}, testkit.Tries(3, time.Second))
	}
}

// If ctx ends while a download waits for its next attempt, the error is that of ctx.
func TestDownloadEndsWithCtxBetweenTwoTries(t *testing.T) {
	for _, validator := range []string{`ETag: "a"`, ""} {
		synctest.Test(t, func(t *testing.T) {
			storage := &pieces{all: []piece{{200, validator, 10, "01234", true}}}
			c := testkit.ClientOn(t, storage, testkit.Tries(5, time.Minute))
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("the user has left")
			time.AfterFunc(time.Second, func() { cancel(stop) })
			start := time.Now()
			_, err := c.Files.DownloadURLFile(ctx, testkit.SignedLink, filepath.Join(t.TempDir(), "f"), nil)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, stop)
			require.NotErrorIs(t, err, svc.ErrTruncated)
			require.Equal(t, time.Second, time.Since(start))
			require.Len(t, storage.ranges, 1)
		})
	}
}

// Invalid arguments are refused before a request is sent or a file is created.
func TestDownloadRefusalSaysWhy(t *testing.T) {
	c, _ := scripted(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	range0 := &svc.DownloadOptions{Header: http.Header{"range": {"bytes=0-"}}}
	for name, tt := range map[string]struct {
		do   func() (int64, error)
		want string
	}{
		"writer":          {func() (int64, error) { return c.Files.DownloadURL(t.Context(), testkit.SignedLink, nil, nil) }, "w is nil"},
		"link":            {func() (int64, error) { return c.Files.DownloadURL(t.Context(), " ", io.Discard, nil) }, "link is empty"},
		"link, to a file": {func() (int64, error) { return c.Files.DownloadURLFile(t.Context(), " ", path, nil) }, "link is empty"},
		"header":          {func() (int64, error) { return c.Files.DownloadURLFile(t.Context(), testkit.SignedLink, path, range0) }, "Header Range cannot be set"},
		"id":              {func() (int64, error) { return c.Files.Download(t.Context(), "..", io.Discard, nil) }, `file_id must not be "." or ".."`},
		"id, to a file":   {func() (int64, error) { return c.Files.DownloadFile(t.Context(), "", path, nil) }, "file_id is empty"},
		"all of it":       {func() (int64, error) { return c.Files.Download(t.Context(), "", nil, range0) }, "Header Range cannot be set; file_id is empty; w is nil"},
	} {
		n, err := tt.do()
		require.Zero(t, n, name)
		require.EqualError(t, err, "svc: not sent: "+tt.want, name)
		testkit.ErrorAs[*svc.ValidationError](t, err)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// If the file cannot be created or renamed, the download fails. The error says how much
// was received.
func TestDownloadFileThatCannotBeWritten(t *testing.T) {
	s := testkit.Play(t)
	n, err := s.Client().Files.DownloadURLFile(t.Context(), testkit.SignedLink, filepath.Join(t.TempDir(), "none", "f"), nil)
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "bytes", "the download has not begun")
	require.EqualValues(t, -1, testkit.ErrorAs[*svc.DownloadError](t, err).Total)

	// A directory appears at the path while the download runs.
	path := filepath.Join(t.TempDir(), "f")
	storage := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		_ = os.MkdirAll(filepath.Join(path, "x"), 0o700)
		_, _ = io.WriteString(w, "contents")
	})
	n, err = storage.Client(t).Files.DownloadURLFile(t.Context(), storage.Link(), path, nil)
	require.EqualValues(t, 8, n)
	require.ErrorContains(t, err, "svc: download (8 of 8 bytes): rename ")
	testkit.ErrorAs[*os.LinkError](t, err)
	require.EqualValues(t, 8, testkit.ErrorAs[*svc.DownloadError](t, err).Received)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "the temporary file is removed")

	// The error of a failed download says how much was received.
	cut := &pieces{all: []piece{{200, `ETag: "a"`, 10, "01234", true}}}
	n, err = testkit.ClientOn(t, cut, testkit.Tries(1, time.Second)).Files.DownloadURLFile(t.Context(), testkit.SignedLink, filepath.Join(t.TempDir(), "f"), nil)
	require.ErrorIs(t, err, svc.ErrTruncated)
	require.EqualValues(t, 5, n)
}
