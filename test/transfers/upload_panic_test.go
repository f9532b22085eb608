package transfers_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A panic of the body or of Progress reaches the caller of the upload, who can recover it, and so does a
// [runtime.Goexit]. It must not end the process, whose other goroutines may have endpoints to delete. The
// record is deleted before, if DeleteOnFailure is set, and nothing is left behind.
func TestUploadPassesOnWhatEndsItsBody_D36(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	const size = 300_000
	for end, stop := range map[string]func(){"mine": func() { panic("mine") }, "": runtime.Goexit} {
		for name, upload := range map[string]func(*svc.UploadRequest){
			"Read": func(r *svc.UploadRequest) {
				body := newReplaced(size)
				body.read = func(n int, p []byte) (int, error) {
					if n == 3 {
						stop()
					}
					return body.r.Read(p)
				}
				r.Body = body
			},
			"ReadAt": func(r *svc.UploadRequest) {
				body := newPlaced(size)
				body.readAt = func(n int64, p []byte, off int64) (int, error) {
					if n == 3 {
						stop()
					}
					return body.r.ReadAt(p, off)
				}
				r.Body = body
			},
			"Progress": func(r *svc.UploadRequest) {
				r.Body, r.Progress = newPlaced(size), func(int64, int64) { stop() }
			},
		} {
			t.Run(fmt.Sprint(name, " ", end), func(t *testing.T) {
				leftovers := inTempDir(t)
				s := testkit.NewFileService(t, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				request := svc.UploadRequest{FileName: "a", UploadOptions: svc.UploadOptions{DeleteOnFailure: true}}
				upload(&request)
				client, returned, ended := s.Client(t), false, make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					_, _ = client.Files.Upload(ctx, request)
					returned = true
				}()
				got := <-ended
				require.False(t, returned)
				require.Equal(t, end, fmt.Sprint(append([]any{}, got)[0:testkit.One(got != nil)]...))
				require.NoError(t, ctx.Err(), "the upload has to end at once")
				require.Len(t, s.Requests("DELETE"), testkit.One(name != "Read"), "a buffered body is read before a record exists")
				if seeker, ok := request.Body.(io.Seeker); ok {
					offset, err := seeker.Seek(0, io.SeekCurrent)
					require.NoError(t, err)
					require.Zero(t, offset)
				}
				require.Zero(t, leftovers())
			})
		}
	}
}
