package transfers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// answerBody is the body of an answer that notes what is read of it.
type answerBody struct {
	io.Reader
	read  int
	ended bool // read to its end
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *answerBody) Close() error { return nil }

// The answer to an upload is read to its end, so that the connection can be used
// again, unless that takes more than a second or 64 KiB.
func TestUpload_ReadsTheAnswerWithinLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		size  int
		after time.Duration // that the end comes
		takes time.Duration
		ended bool
	}{
		"short":     {50 << 10, 0, 0, true},
		"long":      {1 << 20, 0, 0, false},
		"soon":      {10, 999 * time.Millisecond, 999 * time.Millisecond, true},
		"late":      {10, 1001 * time.Millisecond, time.Second, false},
		"never":     {10, testkit.Ages, time.Second, false},
		"very long": {64<<10 + 1, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var body *answerBody
			storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, r.Body)
				body = &answerBody{Reader: io.MultiReader(bytes.NewReader(make([]byte, tt.size)), testkit.ReadFunc(func([]byte) (int, error) {
					select {
					case <-time.After(tt.after):
						return 0, io.EOF
					case <-r.Context().Done():
						return 0, r.Context().Err()
					}
				}))}
				return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: body, Request: r}, nil
			})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := testkit.ClientOn(t, storage).Files.Put(t.Context(), uploadLink, strings.NewReader("data"), nil)
				require.NoError(t, err)
				require.Equal(t, tt.takes, time.Since(start))
				require.Equal(t, tt.ended, body.ended)
				require.LessOrEqual(t, body.read, 64<<10)
			})
		})
	}
}

// A reader that stands behind its end has nothing left, and stays there.
func TestUpload_FromBehindTheEnd(t *testing.T) {
	file := tempFile(t, testkit.Contents(1000))
	for name, body := range map[string]io.ReadSeeker{
		"bytes": bytes.NewReader(testkit.Contents(1000)), "strings": strings.NewReader("data"), "file": file,
		"seeker": seekOnly{bytes.NewReader(testkit.Contents(1000))},
	} {
		_, err := body.Seek(5000, io.SeekStart)
		require.NoError(t, err)
		c, s := scripted(t, testkit.Reply{Status: 200})
		result, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{AllowEmpty: true})
		require.NoError(t, err, name)
		require.Zero(t, result.Bytes, name)
		require.Empty(t, s.Seen()[0].Body)
		at, err := body.Seek(0, io.SeekCurrent)
		require.NoError(t, err)
		require.EqualValues(t, 5000, at, name)
	}
}

// A Read that is left to itself is not disturbed by a Seek.
func TestUpload_NoSeekDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.read = func(int, []byte) (int, error) { time.Sleep(time.Hour); return 0, io.EOF }
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		})
		_, err := testkit.ClientOn(t, storage).Files.Put(ctx, uploadLink, body, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		seeks := body.n[1]
		require.Equal(t, 3, seeks, "those that find out where it stands")
		time.Sleep(2 * time.Hour)
		require.Equal(t, seeks, body.n[1])
	})
}

// What cannot be read is named, and so is a body that says too little of itself.
func TestUpload_NamesWhatItCannotRead(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	_, err = tryPut(t, dir, -1)
	require.EqualError(t, err, "svc: upload: reading the body: read "+dir.Name()+": is a directory; nothing was sent")

	c, _ := scripted(t)
	_, err = c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data"), Size: 5})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotErrorIs(t, err, io.EOF, "it answers for what it is, and for nothing else")
	_, err = c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: readOnly{strings.NewReader("da")}, Size: 1})
	require.ErrorContains(t, err, "the body has more than the 1 bytes announced")
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
}
