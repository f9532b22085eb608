package testkit

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"example.com/svc"
)

// FileQuery is that of presigned links.
const FileQuery = "X-Amz-Signature=sig-77c1e2&X-Amz-Security-Token=st-9b04"

// FileService is the API's files and object storage at one address, as a script.
type FileService struct {
	*httptest.Server
	storage func(n int, w http.ResponseWriter, r *http.Request) // the n-th request to storage, from 1
	API     func(n int, w http.ResponseWriter, r *http.Request) // likewise; nil: as if all were well

	mu   sync.Mutex
	Seen []SeenRequest // in the order of arrival
}

// SeenRequest is a request as it arrived, and as much of its body as was read.
type SeenRequest struct {
	*http.Request
	Bytes *bytes.Buffer
}

// NewFileService starts the service; a nil storage accepts and serves nothing
// but success.
func NewFileService(t *testing.T, storage func(n int, w http.ResponseWriter, r *http.Request)) *FileService {
	s := &FileService{storage: storage}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *FileService) serve(w http.ResponseWriter, r *http.Request) {
	sr := SeenRequest{r, new(bytes.Buffer)}
	r.Body = io.NopCloser(io.TeeReader(r.Body, WriterFunc(func(p []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return sr.Bytes.Write(p)
	})))
	stored := strings.HasPrefix(r.URL.Path, "/storage/")
	s.mu.Lock()
	s.Seen = append(s.Seen, sr)
	n := 0
	for _, other := range s.Seen {
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
	case s.API != nil:
		s.API(n, w, r)
	default:
		s.Answer(w, r)
	}
}

// Answer is the API when all is well.
func (s *FileService) Answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost:
		fmt.Fprintf(w, `{"id":"f1","presigned_url":%q}`, string(s.Link()))
	case strings.HasSuffix(r.URL.Path, "/presigned_url"):
		fmt.Fprintf(w, `{"presigned_url":%q}`, string(s.Link()))
	case r.Method == http.MethodDelete:
	default:
		_, _ = io.WriteString(w, `{"id":"f1","file_name":"a","purpose":"fine-tune","created_at":1714558830}`)
	}
}

// Link is a presigned URL of the one file.
func (s *FileService) Link() svc.SignedURL { return svc.SignedURL(s.URL + "/storage/f1?" + FileQuery) }

// Requests are those with this method so far, in the order of arrival.
func (s *FileService) Requests(method string) []SeenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []SeenRequest
	for _, r := range s.Seen {
		if r.Method == method {
			list = append(list, SeenRequest{r.Request, bytes.NewBuffer(bytes.Clone(r.Bytes.Bytes()))})
		}
	}
	return list
}

// Client makes a client of the service that hardly waits between attempts.
func (s *FileService) Client(t testing.TB, opts ...svc.Option) *svc.Client {
	return NewFileClient(t, s.URL, opts...)
}

// XMLError answers as object storage does.
func XMLError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message>`+
		`<RequestId>req-1</RequestId></Error>`, code, message)
}
