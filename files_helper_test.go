package svc_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/svc"
)

// fileQuery is that of presigned links.
const fileQuery = "X-Amz-Signature=sig-77c1e2&X-Amz-Security-Token=st-9b04"

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
	return clientAt(t, url, append([]svc.Option{tries(0, time.Millisecond)}, opts...)...)
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
