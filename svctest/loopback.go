package svctest

import (
	"net"
	"net/http"
	"sync"
)

// listener is one loopback port. It does without httptest.Server, whose
// Close also closes idle connections of http.DefaultTransport.
type listener struct {
	url    string
	server *http.Server
	open   sync.WaitGroup // the accepting goroutine and one per connection
}

func listen(h http.Handler) *listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("svctest: " + err.Error())
	}
	l := &listener{url: "http://" + ln.Addr().String()}
	l.server = &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			l.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			l.open.Done()
		}
	}}
	l.open.Go(func() { _ = l.server.Serve(ln) }) // always ErrServerClosed
	return l
}

// close cuts all connections and returns when nobody serves them any more.
func (l *listener) close() {
	_ = l.server.Close()
	l.open.Wait()
}
