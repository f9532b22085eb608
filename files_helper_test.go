package svc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

const (
	fileToken = "token-5a1f0c"                                            // of the API
	fileQuery = "X-Amz-Signature=sig-77c1e2&X-Amz-Security-Token=st-9b04" // of presigned links
)

// fileService is the API's files and object storage at one address, as a script.
type fileService struct {
	*httptest.Server
	storage func(n int, w http.ResponseWriter, r *http.Request) // the n-th request to storage, from 1
	api     func(n int, w http.ResponseWriter, r *http.Request) // likewise; nil: as if all were well

	mu   sync.Mutex
	seen []seenRequest
}

// seenRequest is a request as it arrived, and as much of its body as was read.
type seenRequest struct {
	*http.Request
	Bytes *bytes.Buffer
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// newFileService starts the service; a nil storage accepts and serves nothing
// but success.
func newFileService(t *testing.T, storage func(n int, w http.ResponseWriter, r *http.Request)) *fileService {
	s := &fileService{storage: storage}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *fileService) serve(w http.ResponseWriter, r *http.Request) {
	sr := seenRequest{r, new(bytes.Buffer)}
	r.Body = io.NopCloser(io.TeeReader(r.Body, writerFunc(func(p []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return sr.Bytes.Write(p)
	})))
	stored := strings.HasPrefix(r.URL.Path, "/storage/")
	s.mu.Lock()
	s.seen = append(s.seen, sr)
	n := 0
	for _, other := range s.seen {
		if strings.HasPrefix(other.URL.Path, "/storage/") == stored {
			n++
		}
	}
	s.mu.Unlock()
	switch {
	case stored && s.storage != nil:
		s.storage(n, w, r)
	case stored:
		_, _ = io.Copy(io.Discard, r.Body)
	case s.api != nil:
		s.api(n, w, r)
	default:
		s.answer(w, r)
	}
}

// answer is the API when all is well.
func (s *fileService) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost:
		fmt.Fprintf(w, `{"id":"f1","presigned_url":%q}`, string(s.link()))
	case strings.HasSuffix(r.URL.Path, "/presigned_url"):
		fmt.Fprintf(w, `{"presigned_url":%q}`, string(s.link()))
	case r.Method == http.MethodDelete:
	default:
		_, _ = io.WriteString(w, `{"id":"f1","file_name":"a","purpose":"fine-tune","created_at":1714558830}`)
	}
}

func (s *fileService) link() svc.SignedURL { return svc.SignedURL(s.URL + "/storage/f1?" + fileQuery) }

// requests are those with this method so far, in the order of arrival.
func (s *fileService) requests(method string) []seenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []seenRequest
	for _, r := range s.seen {
		if r.Method == method {
			list = append(list, seenRequest{r.Request, bytes.NewBuffer(bytes.Clone(r.Bytes.Bytes()))})
		}
	}
	return list
}

// client makes a client of the service that hardly waits between attempts.
func (s *fileService) client(t testing.TB, opts ...svc.Option) *svc.Client {
	return newFileClient(t, s.URL, opts...)
}

func newFileClient(t testing.TB, url string, opts ...svc.Option) *svc.Client {
	c, err := svc.NewClient(url, append([]svc.Option{
		svc.WithToken(fileToken),
		svc.WithRetry(svc.RetryPolicy{MinDelay: time.Millisecond, MaxDelay: 4 * time.Millisecond}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// xmlError answers as object storage does.
func xmlError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message>`+
		`<RequestId>req-1</RequestId></Error>`, code, message)
}

// abort cuts the connection.
func abort() { panic(http.ErrAbortHandler) }

// roundTripFunc is a transport without a network, for virtual time.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// contents is n bytes without a pattern that a mix-up could hide in.
func contents(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// requireNoSecret looks for the secrets of the tests in everything that an error,
// or an error below it, prints.
func requireNoSecret(t *testing.T, err error) {
	t.Helper()
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Error("x", "err", err)
	requireClean(t, log.String())
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		requireClean(t, fmt.Sprintf(format, err))
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			requireNoSecret(t, e)
		}
	}
	if e := errors.Unwrap(err); e != nil {
		requireNoSecret(t, e)
	}
}

func requireClean(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{fileToken, "sig-77c1e2", "st-9b04"} {
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
			require.NotContains(t, text, form)
		}
	}
}

// noLeak checks at the end of the test, when its servers are closed, that no
// goroutine is left. Call it first.
func noLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, 5*time.Millisecond,
			"goroutines are left") // one more is Eventually's own
	})
}
