package transfers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// If the upload of the contents fails, Replace sends them again to the same record with a
// new URL.
func TestReplaceSendsTheContentsAgain(t *testing.T) {
	srv := svctest.NewInMemory()
	client := srv.Client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
	id := srv.AddFile("a", "fine-tune", []byte("old"))
	body := strings.NewReader("new contents")

	srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 500})
	_, err := client.Files.Replace(t.Context(), id, body, nil)
	var up *svc.UploadError
	require.ErrorAs(t, err, &up)
	require.Equal(t, id, up.FileID)
	require.Equal(t, svc.UploadStagePut, up.Stage)
	require.ErrorIs(t, err, svc.ErrServer)

	result, err := client.Files.Replace(t.Context(), id, body, nil)
	require.NoError(t, err)
	require.Equal(t, id, result.FileID)
	contents, _ := srv.FileContents(id)
	require.Equal(t, "new contents", string(contents))

	_, err = client.Files.Replace(t.Context(), "file-9", strings.NewReader("data"), nil)
	require.ErrorIs(t, err, svc.ErrNotFound)
	require.ErrorAs(t, err, &up)
	require.Equal(t, svc.UploadStagePut, up.Stage)
	require.Empty(t, up.Link, "nothing was sent to storage")
	require.Equal(t, "file-9", up.FileID)

	srv.ResetRequests()
	_, err = client.Files.Replace(t.Context(), " ", nil, nil)
	var invalid *svc.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Fields, 2)
	require.Empty(t, srv.Requests())
}

// A slow body is read completely before a presigned URL is requested.
func TestReplaceReadsASlowPipeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithLinkTTL(time.Second))
		id := srv.AddFile("a", "fine-tune", []byte("old"))
		pipe := testkit.ReadFunc(func() func(p []byte) (int, error) {
			left := 5
			return func(p []byte) (int, error) {
				if left--; left < 0 {
					return 0, io.EOF
				}
				time.Sleep(time.Hour)
				return copy(p, "x"), nil
			}
		}())
		result, err := srv.Client().Files.Replace(t.Context(), id, pipe, nil)
		require.NoError(t, err)
		require.Equal(t, 1, result.Attempts)
		require.Len(t, srv.Requests(), 2, "one request for a presigned URL, and one PUT")
		contents, _ := srv.FileContents(id)
		require.Equal(t, "xxxxx", string(contents))
	})
}

// expiring returns a service whose first presigned URLs are expired, as many as links
// says.
func expiring(t *testing.T, links int) *testkit.FileService {
	return testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n <= links {
			_, _ = io.CopyN(io.Discard, r.Body, 3)
			testkit.XMLError(w, 403, "AccessDenied", "Request has expired")
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	})
}

// uploads are the calls that can request a new presigned URL for their record.
var uploads = map[string]func(ctx context.Context, c *svc.Client, body io.Reader) (*svc.UploadResult, error){
	"Upload": func(ctx context.Context, c *svc.Client, body io.Reader) (*svc.UploadResult, error) {
		return c.Files.Upload(ctx, svc.UploadRequest{FileName: "a", Body: body})
	},
	"Replace": func(ctx context.Context, c *svc.Client, body io.Reader) (*svc.UploadResult, error) {
		return c.Files.Replace(ctx, "f1", body, nil)
	},
}

// firstLinks is the number of presigned URLs that each call requests before it sends the
// contents.
var firstLinks = map[string]int{"Upload": 0, "Replace": 1}

// If the presigned URL has expired, the complete contents are sent again to a new URL.
func TestUploadRenewsItsLink(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	for name, upload := range uploads {
		for kind, body := range map[string]io.Reader{"seeker": strings.NewReader("contents"), "pipe": readOnly{strings.NewReader("contents")}} {
			s := expiring(t, 1)
			result, err := upload(t.Context(), s.Client(t), body)
			require.NoError(t, err, name+kind)
			require.Equal(t, "f1", result.FileID)
			require.Equal(t, 2, result.Attempts)
			require.EqualValues(t, 8, result.Bytes)
			require.Equal(t, http.StatusCreated, result.StatusCode)
			require.Equal(t, "contents", s.Requests("PUT")[1].Bytes.String())
			rest, err := io.ReadAll(body)
			require.NoError(t, err)
			require.Empty(t, rest, "the body must be at its end")
			require.Len(t, s.Requests("GET"), firstLinks[name]+1)
		}
	}
}

// The URL is renewed only once. After that, the error is that of the second upload.
func TestUploadRenewsItsLinkOnce(t *testing.T) {
	for name, upload := range uploads {
		body := strings.NewReader("contents")
		s := expiring(t, 9)
		_, err := upload(t.Context(), s.Client(t), body)
		require.ErrorIs(t, err, svc.ErrLinkExpired, name)
		require.ErrorContains(t, err, "the link was a new one, since the previous link had expired")
		require.Len(t, s.Requests("PUT"), 2)
		require.Equal(t, 8, body.Len(), "the body must be back at its old position")
		testkit.RequireSilent(t, err)

		// The request for a new URL fails.
		s = expiring(t, 9)
		asked := 0
		s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" {
				if asked++; asked > firstLinks[name] {
					w.WriteHeader(404)
					return
				}
			}
			s.Answer(w, r)
		}
		_, err = upload(t.Context(), s.Client(t), body)
		e := testkit.ErrorAs[*svc.UploadError](t, err)
		require.Equal(t, svc.UploadStagePut, e.Stage)
		require.Equal(t, "f1", e.FileID)
		require.ErrorIs(t, err, svc.ErrLinkExpired)
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.ErrorContains(t, err, "asking for a link: ")
		require.Len(t, s.Requests("PUT"), 1)
		testkit.RequireSilent(t, err)

		// The new URL does not allow writing.
		s = testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			testkit.XMLError(w, 403, []string{"ExpiredToken", "SignatureDoesNotMatch"}[n-1], "no")
		})
		_, err = upload(t.Context(), s.Client(t), body)
		require.NotErrorIs(t, err, svc.ErrLinkExpired, "a second new URL would not help")
		require.ErrorIs(t, err, svc.ErrForbidden)
		require.ErrorContains(t, err, "the link was a new one, since the previous link had expired")
		require.Equal(t, "SignatureDoesNotMatch", testkit.ErrorAs[*svc.Error](t, err).Code)

		// ctx ends during the request for a new URL.
		ctx, cancel := context.WithCancel(t.Context())
		s = testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			cancel()
			testkit.XMLError(w, 403, "ExpiredToken", "no")
		})
		_, err = upload(ctx, s.Client(t), body)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, s.Requests("PUT"), 1)
	}
}

// Put has only a URL. Without a record it cannot request a new one.
func TestPutDoesNotRenewItsLink(t *testing.T) {
	s := expiring(t, 1)
	_, err := s.Client(t).Files.Put(t.Context(), s.Link(), strings.NewReader("contents"), nil)
	require.ErrorIs(t, err, svc.ErrLinkExpired)
	require.ErrorContains(t, err, "get a new link from PresignedURL and call Put again")
	require.Len(t, s.Seen, 1)
}
