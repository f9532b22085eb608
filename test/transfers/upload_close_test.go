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

// okResponse returns a response of status 200.
func okResponse(r *http.Request) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
}

// A 2xx response of storage is not a success if the body could not be read to its end, or
// was not read to its end. This also holds for a transport that is not from net/http.
func TestUploadFailsIfItsBodyWasNotSent(t *testing.T) {
	broken := errors.New("disk on fire")
	careless := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return okResponse(r), nil
	})
	for _, most := range []int64{0, 70_000} {
		body := newPlaced(100_000)
		body.readAt = func(_ int64, p []byte, off int64) (int, error) {
			n, err := body.r.ReadAt(p, off)
			if off+int64(n) > most {
				return 0, broken
			}
			return n, err
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

// With a transport of net/http, a 2xx response before the first byte of the body was read
// is not a success.
func TestUploadFailsIfNoByteWasSent(t *testing.T) {
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
		body := newPlaced(1000)
		body.readAt = func(_ int64, p []byte, off int64) (int, error) { time.Sleep(time.Hour); return body.r.ReadAt(p, off) }
		_, err := testkit.ClientOn(t, transport).Files.Put(t.Context(), "http://store.test/f", body, nil)
		require.ErrorContains(t, err, "storage reported success when only 0 of 1000 bytes had been sent")
	})
}

// Close ends a Read that waits for the caller's reader, or that waits behind a Read of an
// earlier attempt.
func TestUploadCloseEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := newPlaced(1000)
		body.readAt = func(n int64, p []byte, off int64) (int, error) {
			if n == 1 {
				time.Sleep(time.Hour)
			}
			return body.r.ReadAt(p, off)
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

// When ctx ends an upload and no Read is running, the body is back at its old position.
func TestUploadKeepsTheOffsetAfterCtx(t *testing.T) {
	for range 20 { // select chooses at random if several cases are ready
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

// watched is a context that counts the functions that wait for its end.
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

// After an upload has returned, nothing waits for the end of its ctx any more.
func TestUploadLeavesNothingOnItsContext(t *testing.T) {
	for _, status := range []int{200, 403} {
		ctx := &watched{Context: t.Context(), done: make(chan struct{})}
		most := int64(0)
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			most = ctx.waiting.Load()
			_, _ = io.Copy(io.Discard, r.Body)
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

// A download that starts again from the beginning keeps no old bytes.
func TestDownloadFileThatStartsOver(t *testing.T) {
	for _, rest := range []string{"", "x", "9876543210"} {
		storage := &pieces{all: []piece{{200, "", 10, "01234", true}, {200, "", int64(len(rest)), rest, false}}}
		path := filepath.Join(t.TempDir(), "f")
		n, err := testkit.ClientOn(t, storage, testkit.Tries(2, time.Millisecond)).Files.DownloadURLFile(t.Context(), testkit.SignedLink, path, nil)
		require.NoError(t, err)
		require.EqualValues(t, len(rest), n)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, rest, string(got))
	}
}
