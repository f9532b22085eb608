// Package transfers_test tests uploads and downloads.
package transfers_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func tempFile(t testing.TB, b []byte) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "train.jsonl"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.Write(b)
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	return f
}

func TestUploadRegistersThenPuts(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	body := testkit.Contents(100_000)
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"e1"`)
		w.Header().Set("X-Amz-Version-Id", "v1")
	})
	result, err := s.Client(t).Files.UploadFile(t.Context(), tempFile(t, body).Name(), svc.FilePurposeFineTune, nil)
	require.NoError(t, err)
	require.Equal(t, "f1", result.FileID)
	require.EqualValues(t, len(body), result.Bytes)
	require.Equal(t, 1, result.Attempts)
	require.Equal(t, 200, result.StatusCode)
	require.Equal(t, `"e1"`, result.ETag)
	require.Equal(t, "v1", result.Header.Get("X-Amz-Version-Id"))
	require.JSONEq(t, `{"file_name":"train.jsonl","purpose":"fine-tune"}`, s.Requests("POST")[0].Bytes.String())
	puts := s.Requests("PUT")
	require.Len(t, puts, 1)
	require.Equal(t, body, puts[0].Bytes.Bytes())
}

// The token is not sent to storage, even if storage has the same host as the API.
func TestTransfersSendNoTokenToStorage_B12(t *testing.T) {
	for name, opts := range map[string][]svctest.Option{
		"same host": nil, "another host": {svctest.WithSeparateStorage()},
	} {
		t.Run(name, func(t *testing.T) {
			srv := svctest.NewServer(opts...)
			defer srv.Close()
			c := srv.Client()
			r, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data")})
			require.NoError(t, err)
			var got bytes.Buffer
			_, err = c.Files.Download(t.Context(), r.FileID, &got, nil)
			require.NoError(t, err)
			require.Equal(t, "data", got.String())
			transfers := 0
			for _, req := range srv.Requests() {
				if req.Route == svctest.RouteStorage {
					transfers++
					require.Empty(t, req.Header.Values("Authorization"))
					require.Empty(t, req.Header.Values("Cookie"))
				}
			}
			require.Equal(t, 2, transfers)
		})
	}
}

// An upload sends only the headers that HTTP needs, the User-Agent, and the headers that
// the caller set. It sends no cookies of the API.
func TestUploadSendsOnlyTheHeadersAskedFor_B13(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "c1", Path: "/"})
		s.Answer(w, r)
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	c := s.Client(t, svc.WithHTTPClient(&http.Client{Jar: jar}))
	names := func(h http.Header) (list []string) {
		for name, values := range h {
			require.Len(t, values, 1, name)
			list = append(list, name)
		}
		return list
	}
	for _, body := range []string{"data", ""} {
		_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader(body)})
		require.NoError(t, err)
	}
	for _, r := range s.Requests("PUT") {
		require.ElementsMatch(t, []string{"User-Agent", "Content-Length"}, names(r.Header))
		require.Contains(t, r.Header.Get("User-Agent"), "svc-go/")
	}
	require.EqualValues(t, 0, s.Requests("PUT")[1].ContentLength, "an empty body must have Content-Length: 0")

	own := http.Header{"x-ms-blob-type": {"BlockBlob"}, "X-Amz-Meta-A": {"1, 2 ;=é"}}
	_, err = c.Files.Put(t.Context(), s.Link(), strings.NewReader("x"), &svc.UploadOptions{ContentType: "text/plain", Header: own})
	require.NoError(t, err)
	h := s.Requests("PUT")[2].Header
	require.ElementsMatch(t, []string{"User-Agent", "Content-Length", "Content-Type", "X-Ms-Blob-Type", "X-Amz-Meta-A"}, names(h))
	require.Equal(t, "text/plain", h.Get("Content-Type"))
	require.Equal(t, "BlockBlob", h.Get("X-Ms-Blob-Type"))
	require.Equal(t, "1, 2 ;=é", h.Get("X-Amz-Meta-A"))
	require.Len(t, own, 2, "the caller's header must not be changed")
}

func TestUploadSendsNoContentTypeOfItsOwn_B13(t *testing.T) {
	srv := svctest.NewServer(svctest.WithSignedContentType("text/plain"))
	defer srv.Close()
	upload := func(opts svc.UploadOptions) error {
		_, err := srv.Client().Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("x"), UploadOptions: opts})
		return err
	}
	var e *svc.Error
	require.ErrorAs(t, upload(svc.UploadOptions{}), &e)
	require.Equal(t, "SignatureDoesNotMatch", e.Code)
	require.NoError(t, upload(svc.UploadOptions{ContentType: "text/plain"}))
	require.NoError(t, upload(svc.UploadOptions{Header: http.Header{"content-type": {"text/plain"}}}))
}

func TestUploadRefusesHeaders(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	for _, name := range []string{
		"Authorization", "cookie", "Host", "Content-Length", "Transfer-Encoding", "Connection",
		"Proxy-Authorization", "Trailer", "te", "Upgrade", "bad name", "",
	} {
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), strings.NewReader("x"), &svc.UploadOptions{Header: http.Header{name: {testkit.Token}}})
		require.ErrorAs(t, err, new(*svc.ValidationError), name)
		testkit.RequireSilent(t, err)
	}
	require.Empty(t, s.Seen)
}

func TestUploadAcceptsEverySuccessOfStorage_B17(t *testing.T) {
	srv := svctest.NewServer(svctest.WithAzureStorage())
	defer srv.Close()
	r, err := srv.Client().Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data"),
		UploadOptions: svc.UploadOptions{Header: http.Header{"x-ms-blob-type": {"BlockBlob"}}}})
	require.NoError(t, err)
	require.Equal(t, 201, r.StatusCode)

	for _, status := range []int{200, 201, 202, 204} {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			if status != 204 {
				_, _ = io.WriteString(w, "<html>whatever")
			}
		})
		r, err := s.Client(t).Files.Put(t.Context(), s.Link(), strings.NewReader("data"), nil)
		require.NoError(t, err, status)
		require.Equal(t, status, r.StatusCode)
	}
}

// A successful upload does not wait for the end of the response body.
func TestUploadDoesNotWaitForAnEndlessResponse(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	var written atomic.Int64
	for name, more := range map[string]func(http.ResponseWriter, *http.Request){
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"loud": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				n, _ := w.Write(make([]byte, 4096))
				written.Add(int64(n))
			}
		},
	} {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			more(w, r)
		})
		start := time.Now()
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), strings.NewReader("data"), nil)
		require.NoError(t, err, name)
		require.Less(t, time.Since(start), 20*time.Second, name)
		require.Less(t, written.Load(), int64(32<<20), name)
	}
}

// A presigned URL is sent byte for byte, whatever escapes it has.
func TestTransfersSendTheLinkByteForByte(t *testing.T) {
	const keep = "" // it is sent unchanged
	s := testkit.NewFileService(t, nil)
	c := s.Client(t)
	for path, want := range map[string]string{
		"/storage/a%2fb%2Fc?sig=a%2Bb+c%20d/e=": keep,
		"/storage/%7Euser/%41?x":                keep,
		"/storage//a//b?":                       keep,
		"/storage/a/../b/./c?a=b;c=d&&e":        keep,
		"/storage/a:b@c!$&'()*+,;=?q=?/:@%zz":   keep,
		"/storage/a%C3%A9%E4%B8%AD?k=%e4%b8%ad": keep,
		"/storage/a%25b%20c":                    keep,
		"/storage/[a]?q=[b]":                    keep,
		"/storage/a?q=x#frag":                   "/storage/a?q=x",
		// Only characters that a request line cannot contain are escaped.
		"/storage/a b/é|%2F?q=a b": "/storage/a%20b/%C3%A9%7C%2F?q=a%20b",
		"/storage/À?q=À":           "/storage/%C3%80?q=%C3%80",
	} {
		if want == keep {
			want = path
		}
		link := svc.SignedURL(s.URL + path)
		_, err := c.Files.Put(t.Context(), link, strings.NewReader("x"), nil)
		require.NoError(t, err, path)
		puts := s.Requests("PUT")
		require.Equal(t, want, puts[len(puts)-1].RequestURI)
		_, _ = c.Files.DownloadURL(t.Context(), link, io.Discard, nil)
		gets := s.Requests("GET")
		require.Equal(t, want, gets[len(gets)-1].RequestURI)
	}
	_, err := c.Files.Put(t.Context(), svc.SignedURL(" "+s.URL+"/storage/x?y\n"), strings.NewReader("x"), nil)
	require.NoError(t, err, "white space around a link is not part of it")
}

func TestTransfersRefuseLinksThatCannotBeUsed(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	c := s.Client(t)
	printed := svc.SignedURL(s.Link().String())
	for link, problem := range map[svc.SignedURL]string{
		"": "is empty", " ": "is empty", "/storage/x?sig=" + testkit.FileQuery: "absolute", "ftp://h/x?" + testkit.FileQuery: "absolute",
		"https:///x?" + testkit.FileQuery: "absolute", "https://h/%zz?" + testkit.FileQuery: "is not a URL", "https://h/\x01?" + testkit.FileQuery: "is not a URL", "https://h/\x7f?" + testkit.FileQuery: "is not a URL",
		"https://user:" + testkit.Token + "@h/x": "user or password", printed: "lost its signature",
		"storage.example/x?" + testkit.FileQuery: "absolute", "https://h:port/?" + testkit.FileQuery: "is not a URL",
	} {
		_, err := c.Files.Put(t.Context(), link, strings.NewReader("x"), nil)
		require.ErrorAs(t, err, new(*svc.ValidationError), string(link))
		require.ErrorContains(t, err, problem)
		testkit.RequireSilent(t, err)
		n, err := c.Files.DownloadURL(t.Context(), link, io.Discard, nil)
		require.Zero(t, n)
		require.ErrorAs(t, err, new(*svc.ValidationError), string(link))
		testkit.RequireSilent(t, err)
	}
	require.Empty(t, s.Seen)
}

// Redirects with 307 and 308 keep method and body, and are followed. Other redirects are
// not followed, because they would turn the upload into a GET. No redirect carries the
// token or a Referer header.
func TestUploadFollowsOnlyRedirectsThatKeepItsMethod_B10(t *testing.T) {
	body := testkit.Contents(300_000)
	for _, status := range []int{301, 302, 303, 307, 308} {
		other := testkit.NewFileService(t, nil)
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(string(other.Link()), "http://", "http://user:password@", 1), status)
		})
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), bytes.NewReader(body), &svc.UploadOptions{Header: http.Header{"X-A": {"1"}}})
		if status < 307 {
			testkit.RequireRedirect(t, err)
			testkit.RequireSilent(t, err)
			require.Empty(t, other.Seen, status)
			require.Len(t, s.Requests("PUT"), 1)
			continue
		}
		require.NoError(t, err, status)
		puts := other.Requests("PUT")
		require.Len(t, puts, 1)
		require.Equal(t, body, puts[0].Bytes.Bytes())
		require.Equal(t, strconv.Itoa(len(body)), puts[0].Header.Get("Content-Length"))
		require.Equal(t, "1", puts[0].Header.Get("X-A"))
		require.Empty(t, puts[0].Header.Values("Authorization"))
		require.Empty(t, puts[0].Header.Values("Referer"))
	}
}
