package svc_test

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// A body that ends the goroutine it is read in, as a failed assertion of a test
// does, is an error like any other: nobody waits for what never comes.
func TestUpload_BodyEndsItsGoroutine(t *testing.T) {
	leftovers := inTempDir(t)
	exit := func() { runtime.Goexit() }
	for name, tt := range map[string]struct {
		body  func() io.Reader
		stage svc.UploadStage
		want  string
	}{
		"read": {func() io.Reader {
			return &wayward{Reader: bytes.NewReader(contents(1000)), read: func(int, []byte) (int, error) { exit(); return 0, nil }}
		}, svc.UploadStagePut, "the body ended its goroutine"},
		"read behind the end": {func() io.Reader {
			r := bytes.NewReader(contents(1000))
			return &wayward{Reader: r, read: func(n int, p []byte) (int, error) {
				if n == 2 {
					exit()
				}
				return r.Read(p)
			}}
		}, svc.UploadStagePut, "the body ended its goroutine"},
		"seek": {func() io.Reader {
			r := bytes.NewReader(contents(1000))
			return &wayward{Reader: r, seek: func(n int, offset int64, whence int) (int64, error) {
				if n == 4 {
					exit()
				}
				return r.Seek(offset, whence)
			}}
		}, svc.UploadStagePut, "the body ended its goroutine"},
		"seek that panics": {func() io.Reader {
			r := bytes.NewReader(contents(1000))
			return &wayward{Reader: r, seek: func(n int, offset int64, whence int) (int64, error) {
				if n == 4 {
					panic("no tape")
				}
				return r.Seek(offset, whence)
			}}
		}, svc.UploadStagePut, "the body panicked: no tape"},
		"pipe": {func() io.Reader {
			return readFunc(func([]byte) (int, error) { exit(); return 0, nil })
		}, svc.UploadStageBody, "the body ended its goroutine"},
		"pipe with a file": {func() io.Reader {
			return io.MultiReader(bytes.NewReader(contents(200_000)), readFunc(func([]byte) (int, error) { exit(); return 0, nil }))
		}, svc.UploadStageBody, "the body ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := clientOn(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
					if _, err := io.CopyN(io.Discard, r.Body, 500); err != nil { // then from its start again
						return nil, err
					}
					r.Body.Close()
					return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
				}))
				_, err := client.Files.Put(t.Context(), uploadLink, tt.body(), nil)
				require.Equal(t, tt.stage, errorAs[*svc.UploadError](t, err).Stage)
				require.ErrorContains(t, err, "reading the body: "+tt.want)
			})
		})
	}
	require.Zero(t, leftovers())
}

// Progress that does so ends the upload too, and not the connection's goroutine.
func TestUpload_ProgressEndsItsGoroutine(t *testing.T) {
	noLeak(t)
	for name, body := range map[string]io.Reader{
		"bytes": bytes.NewReader(contents(10 << 20)), "seeker": seekOnly{bytes.NewReader(contents(10 << 20))},
		"pipe": readOnly{bytes.NewReader(contents(10 << 20))},
	} {
		s := newFileService(t, nil)
		_, err := s.client(t).Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, UploadOptions: svc.UploadOptions{
			Progress: func(int64, int64) { runtime.Goexit() },
		}})
		require.Equal(t, svc.UploadStagePut, errorAs[*svc.UploadError](t, err).Stage, name)
		require.ErrorContains(t, err, "reporting the progress: the function ended its goroutine")
		require.LessOrEqual(t, len(s.requests("PUT")), 1, "it is not tried again")
	}
}
