package svctest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// listener serves one loopback port. It does not use httptest.Server, because
// httptest.Server.Close also closes idle connections of http.DefaultTransport.
type listener struct {
	url    string
	server *http.Server
	open   sync.WaitGroup // counts the accepting goroutine and the open connections
}

func listen(h http.Handler) *listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("svctest: " + err.Error())
	}
	l := &listener{url: "http://" + ln.Addr().String()}
	l.server = &http.Server{
		Handler:     h,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				l.open.Add(1)
			case http.StateClosed, http.StateHijacked:
				l.open.Done()
			}
		},
	}
	l.open.Go(func() { _ = l.server.Serve(stallListener{ln}) }) // returns http.ErrServerClosed after close
	return l
}

// close cuts all connections, and returns after the handlers have ended.
func (l *listener) close() {
	_ = l.server.Close()
	l.open.Wait()
}

// stallListener accepts connections that can go dead.
type stallListener struct{ net.Listener }

func (l stallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &stallConn{Conn: c, closed: make(chan struct{})}
	m.close = sync.OnceValue(func() error {
		close(m.closed)
		return c.Close()
	})
	return m, nil
}

// stallConn is a connection that can go dead. On a dead connection every Read and Write
// blocks until the server closes the connection, even if the client has closed its end.
type stallConn struct {
	net.Conn
	dead   atomic.Bool
	closed chan struct{}
	close  func() error
}

type connKey struct{}

// connOf returns the connection of a request. It returns nil if the server is in memory.
func connOf(r *http.Request) *stallConn {
	c, _ := r.Context().Value(connKey{}).(*stallConn)
	return c
}

func (c *stallConn) die() { c.dead.Store(true) }

func (c *stallConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *stallConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *stallConn) Close() error { return c.close() }
