package transfers_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// okResponse is storage that is content.
func okResponse(r *http.Request) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
}

// A success of storage counts for nothing when the body could not be read to its
// end, or was not wanted to its end: also with a transport made by hand.
func TestUpload_SuccessWithoutTheBodyIsNone(t *testing.T) {
	broken := errors.New("disk on fire")
	careless := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return okResponse(r), nil
	})
	for _, most := range []int64{0, 600} {
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.read = func(n int, p []byte) (int, error) {
			if int64(body.Len()) <= 1000-most {
				return 0, broken
			}
			return body.Reader.Read(p[:most])
		}
		_, err := testkit.ClientOn(t, careless).Files.Put(t.Context(), uploadLink, body, nil)
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, "svc: upload: put: reading the body: disk on fire")
	}
	hasty := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		_, _ = io.CopyN(io.Discard, r.Body, 3)
		return okResponse(r), nil
	})
	_, err := testkit.ClientOn(t, hasty).Files.Put(t.Context(), uploadLink, strings.NewReader("0123456789"), nil)
	require.ErrorContains(t, err, "storage reported success when only 3 of 10 bytes had been sent")
}

// On a network, a success that comes before the first byte is read is none either.
func TestUpload_SuccessBeforeTheFirstByteIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go func() {
			if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
		}()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
		defer transport.CloseIdleConnections()
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.read = func(_ int, p []byte) (int, error) { time.Sleep(time.Hour); return body.Reader.Read(p) }
		_, err := testkit.ClientOn(t, transport).Files.Put(t.Context(), "http://store.test/f", body, nil)
		require.ErrorContains(t, err, "storage reported success when only 0 of 1000 bytes had been sent")
	})
}

// Close lets a Read go that waits for the caller's reader, or for its turn behind
// an earlier attempt that does.
func TestUpload_CloseEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &wayward{Reader: bytes.NewReader(testkit.Contents(1000))}
		body.read = func(n int, p []byte) (int, error) {
			if n == 1 {
				time.Sleep(time.Hour)
			}
			return body.Reader.Read(p)
		}
		attempts := 0
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			attempts++
			var over atomic.Bool
			go func() {
				n, err := r.Body.Read(make([]byte, 10))
				over.Store(n == 0 && err != nil && !errors.Is(err, io.EOF))
			}()
			time.Sleep(time.Second)
			require.False(t, over.Load())
			require.NoError(t, r.Body.Close())
			synctest.Wait()
			require.True(t, over.Load(), "attempt %d", attempts)
			resp := okResponse(r)
			resp.StatusCode = map[int]int{1: 503, 2: 403}[attempts]
			return resp, nil
		})
		_, err := testkit.ClientOn(t, storage, testkit.Tries(3, time.Second)).Files.Put(t.Context(), uploadLink, body, nil)
		require.ErrorIs(t, err, svc.ErrForbidden)
		require.Equal(t, 2, attempts)
	})
}

// When ctx ends an upload, a body that nobody reads stands where it stood.
func TestUpload_PositionAfterCtx(t *testing.T) {
	for range 20 { // what is ready at the same time is taken in any order
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				_, _ = io.CopyN(io.Discard, r.Body, 10)
				cancel()
				return nil, ctx.Err()
			})
			body := bytes.NewReader(testkit.Contents(1000))
			_, err := body.Seek(8, io.SeekStart)
			require.NoError(t, err)
			_, err = testkit.ClientOn(t, storage).Files.Put(ctx, uploadLink, seekOnly{body}, nil)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 992, body.Len())
		})
	}
}

// watched is a context that counts what waits for its end.
type watched struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int64
}

func (w *watched) Done() <-chan struct{} { return w.done }

func (w *watched) AfterFunc(func()) func() bool {
	w.waiting.Add(1)
	return func() bool { w.waiting.Add(-1); return true }
}

// An upload that is over leaves nothing behind that waits for the end of ctx.
func TestUpload_LeavesNothingOnItsContext(t *testing.T) {
	for _, status := range []int{200, 403} {
		ctx := &watched{Context: t.Context(), done: make(chan struct{})}
		most := int64(0)
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			most = ctx.waiting.Load()
			resp := okResponse(r)
			resp.StatusCode = status
			return resp, nil
		})
		_, err := testkit.ClientOn(t, storage).Files.Put(ctx, uploadLink, strings.NewReader("data"), nil)
		require.Equal(t, status == 200, err == nil, "%v", err)
		require.Positive(t, most)
		require.Zero(t, ctx.waiting.Load())
	}
}

// A download that starts over keeps nothing of what it had.
func TestDownloadFileThatStartsOver(t *testing.T) {
	for _, rest := range []string{"", "x", "9876543210"} {
		storage := &pieces{all: []piece{{200, "", 10, "01234", true}, {200, "", int64(len(rest)), rest, false}}}
		path := filepath.Join(t.TempDir(), "f")
		n, err := testkit.ClientOn(t, storage, testkit.Tries(2, time.Millisecond)).DownloadFile(t.Context(), testkit.SignedLink, path, nil)
		require.NoError(t, err)
		require.EqualValues(t, len(rest), n)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, rest, string(got))
	}
}
