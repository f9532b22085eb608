package svctest

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is the whole service in one process. Make it with [NewServer] or
// [NewInMemory]. All methods may be called at any time from any goroutine.
type Server struct {
	cfg       config
	url       string // without the base path
	storage   string // address of the storage half; equal to url unless it is separate
	transport http.RoundTripper
	close     func()
	closing   chan struct{} // ends delays on Close; nil in memory, where only contexts do

	mu        sync.Mutex
	recorder  recorder
	faults    []*queuedFault
	endpoints []*endpoint // all there have been
	living    []*endpoint // those that may not be deleted yet
	jobs      []*job
	files     []*file
	objects   map[string]*object // by storage key
	media     *object            // what every media link downloads
}

// In memory the service has names instead of ports. Nobody can resolve them.
const (
	memoryHost        = "svc.test"
	memoryStorageHost = "storage.svc.test"
)

func newServer(opts []Option) *Server {
	s := &Server{cfg: newConfig(opts), objects: map[string]*object{}}
	s.media = newObject(s.cfg.media, time.Now())
	s.recorder = recorder{limit: s.cfg.recordLimit, counts: map[[2]string]int{}}
	return s
}

// NewServer starts the service on a loopback port, and panics if there is
// none. Close it at the end of the test. Time is real here: for virtual time
// see [NewInMemory].
func NewServer(opts ...Option) *Server {
	s := newServer(opts)
	s.closing = make(chan struct{})
	api := listen(s.apiHandler())
	s.url, s.storage = api.url, api.url
	listeners := []*listener{api}
	if s.cfg.separateStorage {
		storage := listen(s.storageHandler())
		s.storage = storage.url
		listeners = append(listeners, storage)
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	}
	s.transport = transport
	s.close = sync.OnceFunc(func() {
		close(s.closing)
		transport.CloseIdleConnections()
		for _, l := range listeners {
			l.close()
		}
	})
	return s
}

// NewInMemory makes the service without sockets and without any goroutine
// that outlives its request. Only the HTTP client of [Server.HTTPClient] (and
// so [Server.Client]) reaches it. All its times are those of the time package,
// which inside a testing/synctest bubble cost nothing.
func NewInMemory(opts ...Option) *Server {
	s := newServer(opts)
	s.url, s.storage = "https://"+memoryHost, "https://"+memoryHost
	t := &memoryTransport{hosts: map[string]http.Handler{memoryHost: s.apiHandler()}}
	if s.cfg.separateStorage {
		s.storage = "https://" + memoryStorageHost
		t.hosts[memoryStorageHost] = s.storageHandler()
	}
	s.transport = t
	s.close = func() { t.closed.Store(true) }
	return s
}

// Close ends the service. Requests under way lose their connection; later
// ones are refused. What the service holds can still be inspected.
func (s *Server) Close() { s.close() }

// URL is the base address for a client.
func (s *Server) URL() string { return s.url + s.cfg.basePath }

// InferenceURL is the address below which running endpoints are reached.
func (s *Server) InferenceURL() string { return s.URL() }

// Token is the bearer token that the service accepts.
func (s *Server) Token() string { return s.cfg.token }

// HTTPClient returns a new plain HTTP client that reaches the service. It adds
// no token. All of them share one pool of connections.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: s.transport} }
