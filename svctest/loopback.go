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
	l.open.Go(func() { _ = l.server.Serve(mortalListener{ln}) }) // returns http.ErrServerClosed after close
	return l
}

// close cuts all connections, and returns after the handlers have ended.
func (l *listener) close() {
	_ = l.server.Close()
	l.open.Wait()
}

// mortalListener accepts connections that can go dead.
type mortalListener struct{ net.Listener }

func (l mortalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &mortalConn{Conn: c, closed: make(chan struct{})}
	m.close = sync.OnceValue(func() error {
		close(m.closed)
		return c.Close()
	})
	return m, nil
}

// mortalConn is a connection that can go dead. On a dead connection every Read and Write
// blocks until the server closes the connection, even if the client has closed its end.
type mortalConn struct {
	net.Conn
	dead   atomic.Bool
	closed chan struct{}
	close  func() error
}

type connKey struct{}

// connOf returns the connection of a request. It returns nil if the server is in memory.
func connOf(r *http.Request) *mortalConn {
	c, _ := r.Context().Value(connKey{}).(*mortalConn)
	return c
}

func (c *mortalConn) die() { c.dead.Store(true) }

func (c *mortalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *mortalConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *mortalConn) Close() error { return c.close() }
