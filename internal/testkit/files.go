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

// FileQuery is the query of the presigned URLs of a [FileService].
const FileQuery = "X-Amz-Signature=sig-77c1e2&X-Amz-Security-Token=st-9b04"

// FileService is a scripted service at one address: the file routes of the API, and
// object storage.
type FileService struct {
	*httptest.Server
	storage func(n int, w http.ResponseWriter, r *http.Request) // serves the n-th request to storage, counted from 1
	API     func(n int, w http.ResponseWriter, r *http.Request) // serves the n-th request to the API, counted from 1; nil means Answer

	mu   sync.Mutex
	Seen []SeenRequest // all requests, in the order of arrival
}

// SeenRequest is a request as it arrived, and the part of its body that was read.
type SeenRequest struct {
	*http.Request
	Bytes *bytes.Buffer
}

// NewFileService starts the service. The function storage serves the requests to
// storage. If it is nil, each of these requests gets 200 with an empty body.
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

// Answer responds to a request to the API with success.
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

// Link returns a presigned URL of f1, the only file of the service.
func (s *FileService) Link() svc.SignedURL { return svc.SignedURL(s.URL + "/storage/f1?" + FileQuery) }

// Requests returns the requests with this method so far, in the order of arrival.
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

// Client returns a client of the service. It waits only 1 ms between attempts.
func (s *FileService) Client(t testing.TB, opts ...svc.Option) *svc.Client {
	return NewFileClient(t, s.URL, opts...)
}

// XMLError writes an error response in the XML form of object storage.
func XMLError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message>`+
		`<RequestId>req-1</RequestId></Error>`, code, message)
}
