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

// A reader that is positioned after its end has no bytes left, and its position is not
// changed.
func TestUploadFromBehindTheEnd(t *testing.T) {
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

// No Seek is called while a Read is still running that the upload did not wait for, nor after it.
func TestUploadDoesNotSeekDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body := newReplaced(1000)
		body.read = func(int, []byte) (int, error) { time.Sleep(time.Hour); return 0, io.EOF }
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		})
		_, err := testkit.ClientOn(t, storage).Files.Put(ctx, uploadLink, body, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, body.seeks, "only the call that finds the position")
		time.Sleep(2 * time.Hour)
		require.Equal(t, 1, body.seeks, "the upload leaves the body alone after it has returned")
	})
}

// The error names a file that cannot be read.
func TestUploadNamesWhatItCannotRead(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	_, err = tryPut(t, dir, -1)
	require.EqualError(t, err, "svc: upload: reading the body: read "+dir.Name()+": is a directory; nothing was sent")
}
