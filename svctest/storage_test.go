package svctest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestStorageRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id, link := register(t, srv)
		unsigned, _, _ := strings.Cut(link, "?")
		for name, tt := range map[string]struct {
			method, link, body string
			header             []string
			status             int
			code               string
		}{
			"authorization":     {"PUT", link, "x", []string{"Authorization", "Bearer " + srv.Token()}, 400, "InvalidRequest"},
			"cookie":            {"PUT", link, "x", []string{"Cookie", "a=b"}, 400, "InvalidRequest"},
			"no signature":      {"PUT", unsigned, "x", nil, 403, "AccessDenied"},
			"other signature":   {"PUT", link[:len(link)-1], "x", nil, 403, "SignatureDoesNotMatch"},
			"other key":         {"PUT", strings.Replace(link, id, "file-2", 1), "x", nil, 403, "SignatureDoesNotMatch"},
			"more query":        {"PUT", link + "&a=b", "x", nil, 403, "SignatureDoesNotMatch"},
			"longer life":       {"PUT", strings.Replace(link, "Expires=900", "Expires=999", 1), "x", nil, 403, "SignatureDoesNotMatch"},
			"GET of a PUT link": {"GET", link, "", nil, 403, "SignatureDoesNotMatch"},
			"HEAD":              {"HEAD", link, "", nil, 403, ""},
			"POST":              {"POST", link, "x", nil, 403, "SignatureDoesNotMatch"},
			"unsigned header":   {"PUT", link, "x", []string{"X-Amz-Meta-Name", "x"}, 403, "AccessDenied"},
			"wrong MD5":         {"PUT", link, "x", []string{"Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="}, 400, "BadDigest"},
			"no MD5":            {"PUT", link, "x", []string{"Content-MD5", "x"}, 400, "InvalidDigest"},
			"too large":         {"PUT", link, "123456", nil, 400, "EntityTooLarge"},
		} {
			r := storage(t, srv, tt.method, tt.link, tt.body, tt.header...)
			require.Equal(t, tt.status, r.Status, name)
			require.Contains(t, r.Body, tt.code, name)
			require.Equal(t, "application/xml", r.Header.Get("Content-Type"), name)
			require.NotEmpty(t, r.Header.Get("X-Request-Id"), name)
		}
		r, err := tryStorage(t, srv, "PUT", link, io.MultiReader(strings.NewReader("x")))
		require.NoError(t, err)
		require.Equal(t, http.StatusLengthRequired, r.Status, "chunked")
		require.Contains(t, r.Body, "<Code>MissingContentLength</Code>")
		requests := srv.Requests()
		require.Equal(t, []string{"chunked"}, requests[len(requests)-1].TransferEncoding)
		require.EqualValues(t, -1, requests[len(requests)-1].ContentLength)

		_, ok := srv.FileContents(id)
		require.False(t, ok, "nothing of all that is stored")
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", link, "12345", "Content-MD5", "gnzLDuqKcGxMNKFokfhOew==").Status)
	}, svctest.WithMaxObjectSize(5))
}

func TestTooLargeIsRefusedUnread(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		_, link := register(t, srv)
		req, err := http.NewRequestWithContext(t.Context(), "PUT", link, iotest.ErrReader(errors.New("must not be read")))
		require.NoError(t, err)
		req.ContentLength = 1 << 40
		if strings.HasPrefix(srv.URL(), "http://") {
			req.Body = io.NopCloser(io.LimitReader(zeroReader{}, 1<<40)) // a real transport reads ahead, even if the server does not read
		}
		r, err := do(t, srv, req)
		if err == nil { // an error means that sending the body failed before the response was read
			require.Contains(t, r.Body, "EntityTooLarge")
		}
		requests := srv.Requests()
		require.Zero(t, requests[1].BodySize)
	}, svctest.WithMaxObjectSize(1<<20))
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

func TestSignedContentType(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		_, link := register(t, srv)
		for want, header := range map[int][]string{
			200: {"Content-Type", "text/plain"},
			403: {"Content-Type", "text/html"},
		} {
			require.Equal(t, want, storage(t, srv, "PUT", link, "x", header...).Status)
		}
		require.Equal(t, 403, storage(t, srv, "PUT", link, "x").Status)
		require.Equal(t, 403, storage(t, srv, "PUT", link, "x", "Content-Type", "text/plain", "Content-Type", "text/plain").Status)
		require.Equal(t, 200, storage(t, srv, "PUT", fileLink(t, srv, "file-1"), "x").Status, "only the first link demands it")
	}, svctest.WithSignedContentType("text/plain"))
}

func TestLinksExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithLinkTTL(time.Minute + time.Millisecond))
		id, link := register(t, srv)
		time.Sleep(time.Minute + time.Millisecond)
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", link, "x").Status)
		time.Sleep(1)
		r := storage(t, srv, "PUT", link, "x")
		require.Equal(t, http.StatusForbidden, r.Status)
		require.Contains(t, r.Body, "<Message>Request has expired</Message>")
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", fileLink(t, srv, id), "y").Status)
	})
}

func TestAzureStorage(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		_, link := register(t, srv)
		r := storage(t, srv, "PUT", link, "x")
		require.Equal(t, http.StatusBadRequest, r.Status)
		require.Empty(t, r.Body)
		require.Equal(t, http.StatusCreated, storage(t, srv, "PUT", link, "x", "x-ms-blob-type", "BlockBlob").Status)
		require.Equal(t, "x", storage(t, srv, "GET", fileLink(t, srv, "file-1"), "").Body)
	}, svctest.WithAzureStorage())
}

func TestDiscardedContents(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id, link := register(t, srv)
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", link, "abc").Status)
		_, ok := srv.FileContents(id)
		require.False(t, ok)
		f := srv.Files()[0]
		require.EqualValues(t, 3, f.Size)
		require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", f.SHA256)
		require.Equal(t, http.StatusNotFound, storage(t, srv, "GET", fileLink(t, srv, id), "").Status)
	}, svctest.WithDiscardContents())
}

func TestBrokenUploadStoresNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id, link := register(t, srv)
		broken := errors.New("disk on fire")
		for name, tt := range map[string]struct {
			body io.Reader
			want string
		}{
			"read error": {io.MultiReader(strings.NewReader("12345"), iotest.ErrReader(broken)), "disk on fire"},
			"too short":  {strings.NewReader("12345"), "ContentLength=10 with Body length 5"},
		} {
			req, err := http.NewRequestWithContext(t.Context(), "PUT", link, tt.body)
			require.NoError(t, err)
			req.ContentLength = 10
			_, err = do(t, srv, req)
			if !errors.Is(err, net.ErrClosed) { // net/http closes the connection, and may report that
				require.ErrorContains(t, err, tt.want, name)
			}
			_, ok := srv.FileContents(id)
			require.False(t, ok, name)
		}
	})
}

func TestUploadFaults(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id, link := register(t, srv)
		body := strings.Repeat("x", 1<<20)
		srv.Fault("PUT", svctest.RouteStorage,
			svctest.Fault{Status: 503, ReadBytes: 1000},
			svctest.Fault{DropBefore: true, ReadBytes: 1000},
			svctest.DropAfterEffect())
		r, err := tryStorage(t, srv, "PUT", link, strings.NewReader(body))
		if err == nil { // an error means that sending the body failed before the response was read
			require.Equal(t, 503, r.Status)
		}
		_, err = tryStorage(t, srv, "PUT", link, strings.NewReader(body))
		require.Error(t, err)
		requests := srv.Requests()
		require.EqualValues(t, 1000, requests[1].BodySize)
		require.EqualValues(t, 1000, requests[2].BodySize)
		require.Equal(t, body[:1000], string(requests[1].Body))
		_, ok := srv.FileContents(id)
		require.False(t, ok)
		_, err = tryStorage(t, srv, "PUT", link, strings.NewReader(body))
		lost(t, err)
		contents, ok := srv.FileContents(id)
		require.True(t, ok)
		require.Len(t, contents, 1<<20)
		require.Len(t, srv.Requests()[3].Body, 64<<10, "the record is bounded")
	})
}

func TestDownloadFaults(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		link := fileLink(t, srv, srv.AddZeroFile("big", "", 1<<20))
		for cut, fault := range map[int]svctest.Fault{
			1000:    {TruncateAfter: 1000},
			700_000: {TruncateAfter: 700_000},
			1 << 19: {TruncateBody: true},
		} {
			srv.Fault("GET", svctest.RouteStorage, fault)
			r, err := tryStorage(t, srv, "GET", link, nil)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Len(t, r.Body, cut)
			require.Equal(t, "1048576", r.Header.Get("Content-Length"))
		}
		srv.Fault("GET", svctest.RouteStorage, svctest.Fault{TruncateAfter: 5})
		r, err := tryStorage(t, srv, "GET", link, nil, "Range", "bytes=100-199")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, http.StatusPartialContent, r.Status)
		require.Len(t, r.Body, 5)
	})
}

func TestRateLimitedTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id, link := register(t, srv)
		srv.Fault("*", svctest.RouteStorage, svctest.Fault{Rate: 100_000, Times: -1})
		start := time.Now()
		require.Equal(t, http.StatusOK, storage(t, srv, "PUT", link, strings.Repeat("x", 300_000)).Status)
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.01)
		start = time.Now()
		r := storage(t, srv, "GET", fileLink(t, srv, id), "")
		require.Len(t, r.Body, 300_000)
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.01)

		// A caller ends the handler if it closes the response body.
		req, err := http.NewRequestWithContext(t.Context(), "GET", fileLink(t, srv, id), nil)
		require.NoError(t, err)
		resp, err := srv.HTTPClient().Do(req)
		require.NoError(t, err)
		_, err = io.ReadFull(resp.Body, make([]byte, 1000))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.01)
	})
}

func TestSlowStorageTakesTheBodyThenWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id, link := register(t, srv)
		srv.Fault("PUT", svctest.RouteStorage, svctest.Slow(time.Hour), svctest.Fault{Delay: time.Hour, Status: 500})
		for i := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, "PUT", link, strings.NewReader("hello"))
			require.NoError(t, err)
			failed := make(chan error, 1)
			go func() {
				_, err := do(t, srv, req)
				failed <- err
			}()
			require.Eventually(t, func() bool {
				requests := srv.Requests()
				return len(requests) == i+2 && requests[i+1].BodySize == 5
			}, 20*time.Second, time.Millisecond)
			cancel()
			require.ErrorIs(t, <-failed, context.Canceled)
			_, ok := srv.FileContents(id)
			require.False(t, ok)
		}
	})
}
