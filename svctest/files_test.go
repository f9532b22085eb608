package svctest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestFileRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		require.Equal(t, "[]", send(t, srv, "GET", "/v1/files", "").Body)
		require.Equal(t, "[]", send(t, srv, "GET", "/v1/public-files", "").Body)

		id, _ := register(t, srv)
		const record = `{"id":"file-1","file_name":"train.jsonl","purpose":"fine-tune","created_at":946684800}`
		require.Equal(t, "file-1", id)
		require.JSONEq(t, record, send(t, srv, "GET", "/v1/files/file-1", "").Body)
		public := srv.AddPublicFile(svctest.PublicFile{Name: "sample.jsonl", Purpose: "fine-tune", Description: "a sample", Token: 1200, Length: 30, Bytes: 1<<63 - 1})
		require.JSONEq(t, `[`+record+`]`, send(t, srv, "GET", "/v1/files", "").Body)
		r := send(t, srv, "GET", "/v1/public-files", "", "Authorization", "")
		require.JSONEq(t, `[{"id":"file-2","file_name":"sample.jsonl","purpose":"fine-tune","created_at":946684800,
			"token":1200,"length":30,"bytes":9223372036854775807,"description":"a sample"}]`, r.Body)
		require.Equal(t, http.StatusOK, r.Status)
		require.Equal(t, http.StatusUnauthorized, send(t, srv, "GET", "/v1/files", "", "Authorization", "").Status)

		require.Equal(t, http.StatusOK, send(t, srv, "DELETE", "/v1/files/file-1", "").Status)
		send(t, srv, "DELETE", "/v1/files/"+public, "")
		require.Equal(t, "[]", send(t, srv, "GET", "/v1/files", "").Body)
		require.Equal(t, "[]", send(t, srv, "GET", "/v1/public-files", "").Body)
		for _, id := range []string{"file-1", "file-9", "x"} {
			require.Equal(t, http.StatusNotFound, send(t, srv, "GET", "/v1/files/"+id, "").Status)
			require.Equal(t, http.StatusNotFound, send(t, srv, "DELETE", "/v1/files/"+id, "").Status)
			require.Equal(t, http.StatusNotFound, send(t, srv, "GET", "/v1/files/"+id+"/presigned_url", "").Status)
		}
		files := srv.Files()
		require.True(t, files[0].Deleted)
		require.True(t, files[1].Public)
		require.Equal(t, time.Now(), files[0].CreatedAt)

		bad := send(t, srv, "POST", "/v1/files", `{"file_name":1,"bytes":2}`)
		require.Equal(t, http.StatusUnprocessableEntity, bad.Status)
		require.Equal(t, "file_name must be a string; bytes is not a field of this request", bad.JSON()["message"])
		require.Len(t, srv.Files(), 2)
	})
}

func TestUploadAndDownload(t *testing.T) {
	for name, opts := range map[string][]svctest.Option{
		"same host": nil, "other host": {svctest.WithSeparateStorage(), svctest.WithBasePath("/api")},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, srv *svctest.Server) {
				id, link := register(t, srv)
				_, ok := srv.FileContents(id)
				require.False(t, ok)
				missing := storage(t, srv, "GET", fileLink(t, srv, id), "")
				require.Equal(t, http.StatusNotFound, missing.Status)
				require.Contains(t, missing.Body, "<Code>NoSuchKey</Code>")
				require.Contains(t, missing.Body, "<RequestId>"+missing.Header.Get("X-Request-Id")+"</RequestId>")

				put := storage(t, srv, "PUT", link, "hello, world", "Content-Type", "text/plain")
				require.Equal(t, http.StatusOK, put.Status, put.Body)
				require.Empty(t, put.Body)
				contents, ok := srv.FileContents(id)
				require.True(t, ok)
				require.Equal(t, "hello, world", string(contents))
				f := srv.Files()[0]
				sum := sha256.Sum256([]byte("hello, world"))
				require.Equal(t, hex.EncodeToString(sum[:]), f.SHA256)
				require.EqualValues(t, 12, f.Size)
				require.True(t, f.Uploaded)
				require.Equal(t, "text/plain", f.ContentType)
				require.Equal(t, "12", f.UploadHeader.Get("Content-Length"))

				get := fileLink(t, srv, id)
				r := storage(t, srv, "GET", get, "")
				require.Equal(t, "hello, world", r.Body)
				require.Equal(t, "text/plain", r.Header.Get("Content-Type"))
				require.Equal(t, put.Header.Get("Etag"), r.Header.Get("Etag"))
				checkRanges(t, srv, get, r.Header.Get("Etag"))
				head := storage(t, srv, "HEAD", get, "")
				require.Equal(t, "12", head.Header.Get("Content-Length"))
				require.Empty(t, head.Body)

				require.Equal(t, http.StatusOK, storage(t, srv, "PUT", get, "").Status, "the link of a file is for PUT as well")
				contents, ok = srv.FileContents(id)
				require.True(t, ok)
				require.Empty(t, contents)
				send(t, srv, "DELETE", "/v1/files/"+id, "")
				_, ok = srv.FileContents(id)
				require.False(t, ok)
				require.Equal(t, http.StatusNotFound, storage(t, srv, "GET", get, "").Status)
			}, opts...)
		})
	}
}

// checkRanges downloads parts of "hello, world".
func checkRanges(t *testing.T, srv *svctest.Server, url, etag string) {
	t.Helper()
	part := storage(t, srv, "GET", url, "", "Range", "bytes=7-", "If-Range", etag)
	require.Equal(t, http.StatusPartialContent, part.Status)
	require.Equal(t, "world", part.Body)
	require.Equal(t, "bytes 7-11/12", part.Header.Get("Content-Range"))
	whole := storage(t, srv, "GET", url, "", "Range", "bytes=7-", "If-Range", `"other"`)
	require.Equal(t, http.StatusOK, whole.Status)
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, storage(t, srv, "GET", url, "", "Range", "bytes=99-").Status)
}

func TestSeparateStorageIsAnotherHost(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		_, link := register(t, srv)
		require.NotContains(t, link, srv.URL())
		req, err := http.NewRequestWithContext(t.Context(), "PUT", link, nil)
		require.NoError(t, err)
		req.URL.Path = "/v1/files"
		r, err := do(t, srv, req)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, r.Status, "no API there")
		require.Equal(t, http.StatusNotFound, send(t, srv, "GET", "/storage/file-1", "").Status, "no storage here")
	}, svctest.WithSeparateStorage())
}

func TestSeededFiles(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddFile("a.txt", "fine-tune", []byte("seeded"))
		require.Equal(t, "seeded", storage(t, srv, "GET", fileLink(t, srv, id), "").Body)
		zero := srv.AddZeroFile("big.bin", "fine-tune", 300_000)
		link := fileLink(t, srv, zero)
		r := storage(t, srv, "GET", link, "")
		require.Equal(t, string(make([]byte, 300_000)), r.Body)
		part := storage(t, srv, "GET", link, "", "Range", "bytes=-10")
		require.Equal(t, string(make([]byte, 10)), part.Body)
		require.Equal(t, "bytes 299990-299999/300000", part.Header.Get("Content-Range"))
		require.EqualValues(t, 300_000, srv.Files()[1].Size)
		b, ok := srv.FileContents(zero)
		require.True(t, ok)
		require.Len(t, b, 300_000)
	})
}
