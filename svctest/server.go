package svctest

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is the fake service. Create one with [NewServer] or [NewInMemory]. All methods may be
// called at any time from any goroutine, even after Close.
type Server struct {
	cfg       config
	url       string // without the base path
	storage   string // address of the storage; equal to url unless it is separate
	transport http.RoundTripper
	close     func()
	closing   chan struct{} // closed by Close, which ends delays and dead connections; nil in memory

	mu        sync.Mutex
	recorder  recorder
	faults    []*queuedFault
	endpoints []*endpoint // all endpoints that were ever created
	living    []*endpoint // all endpoints that are not deleted; may also hold deleted ones until alive is called
	jobs      []*job
	files     []*file
	objects   map[string]*object      // the stored contents by storage key
	media     *object                 // the contents to which every media URL leads
	extras    map[string][]extraField // by the ID of the record: see SetField
	added     map[string]bool         // the routes of Handle
	mux       http.ServeMux           // serves them
	cache     map[string]*cached      // see WithCache
}

// Host names of the service in memory. They do not exist in DNS.
const (
	memoryHost        = "svc.test"
	memoryStorageHost = "storage.svc.test"
)

// now returns the current time of the service.
func (s *Server) now() time.Time { return time.Now().Add(s.cfg.clockOffset) }

func newServer(opts []Option) *Server {
	s := &Server{cfg: newConfig(opts), objects: map[string]*object{}, extras: map[string][]extraField{}, added: map[string]bool{}, cache: map[string]*cached{}}
	s.media = newObject(s.cfg.media, s.now())
	s.recorder = recorder{limit: s.cfg.recordLimit, counts: map[[2]string]int{}}
	return s
}

// NewServer starts the service on a loopback port. Close it at the end of the test.
// It runs on real time; for virtual time see [NewInMemory]. NewServer panics if it
// cannot listen.
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

// NewInMemory creates the service without sockets, and without goroutines that
// outlive a request. Only clients of [Server.HTTPClient] and [Server.Client] reach
// it. Inside a testing/synctest bubble it runs on the bubble's virtual time.
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

// Close stops the service. Over real connections, requests that are being served
// lose their connection; in memory they are served to the end. Later requests are
// refused. The state of the service can still be read.
func (s *Server) Close() { s.close() }

// URL returns the base address of the service, for a client.
func (s *Server) URL() string { return s.url + s.cfg.basePath }

// InferenceURL returns the base address of running endpoints. It is the same as
// URL.
func (s *Server) InferenceURL() string { return s.URL() }

// Token returns the bearer token that the service accepts.
func (s *Server) Token() string { return s.cfg.token }

// HTTPClient returns a new HTTP client that reaches the service. It does not send
// the token by itself. All clients of a server share one pool of connections.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: s.transport} }
