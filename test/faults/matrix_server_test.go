package faults_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// matrixServer puts a TCP server in front of the service of a cell, for faults of the
// connection.
type matrixServer struct {
	c        *matrixCell
	listener net.Listener
	serving  sync.WaitGroup
	accepted func(net.Conn) bool // if it returns false, the connection is closed

	// meet handles the n-th request that the fault applies to. It returns whether the
	// connection stays open.
	meet func(n int, conn net.Conn, req *http.Request) bool
}

// newMatrixServer returns a cell with a TCP server. It uses real time and the client's
// own transport.
func newMatrixServer(t *testing.T, op *matrixOp, attempts int, timeout time.Duration) *matrixServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &matrixCell{t: t, op: op, srv: svctest.NewInMemory(svctest.WithToken(matrixToken), svctest.WithJobTime(0)), timeout: timeout, base: "http://" + l.Addr().String()}
	s := &matrixServer{c: c, listener: l, accepted: func(net.Conn) bool { return true }}
	c.seed()
	c.setUp(c.base, svc.RetryPolicy{MaxAttempts: attempts, MinDelay: time.Millisecond, MaxDelay: 4 * time.Millisecond})
	t.Cleanup(func() { l.Close() })
	return s
}

// run makes the call of the cell, and then stops the server.
func (s *matrixServer) run() (any, error) {
	s.serving.Go(s.accept)
	value, err := s.c.op.run(s.c.t.Context(), s.c)
	s.close()
	return value, err
}

func (s *matrixServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() {
			defer conn.Close()
			if s.accepted(conn) {
				s.serve(conn)
			}
		})
	}
}

func (s *matrixServer) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return // the client has closed the connection
		}
		s.c.inward(req)
		if !s.c.op.meets(req) {
			if !s.pass(conn, req) {
				return
			}
			continue
		}
		if !s.meet(s.c.meets(), conn, req) {
			return
		}
	}
}

// meets counts a request that the fault applies to, and returns the count.
func (c *matrixCell) meets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = append(c.met, time.Now())
	return len(c.met)
}

// inward rewrites a request to the TCP server into a request to the service behind it.
func (c *matrixCell) inward(req *http.Request) {
	req.RequestURI, req.URL.Scheme, req.URL.Host, req.Host = "", "https", "svc.test", "svc.test"
}

// pass sends the response of the service. It returns whether the connection stays open.
func (s *matrixServer) pass(conn net.Conn, req *http.Request) bool {
	head, body, err := s.real(req)
	if err != nil {
		return false
	}
	_, err = conn.Write(append(head, body...))
	return err == nil
}

// real returns the bytes of the service's response.
func (s *matrixServer) real(req *http.Request) (head, body []byte, err error) {
	resp, err := s.c.pass(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return nil, nil, err
	}
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	var buf bytes.Buffer
	fmt.Fprintf(&buf, "HTTP/1.1 %d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	_ = resp.Header.Write(&buf)
	buf.WriteString("\r\n")
	return buf.Bytes(), body, nil
}

// matrixReset makes the next Close of conn send a TCP reset.
func matrixReset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// matrixSilence sends nothing until the client closes the connection.
func matrixSilence(conn net.Conn, req *http.Request) {
	matrixSend(req)
	_, _ = io.Copy(io.Discard, conn)
}

// close stops the server, and fails if a connection stays open.
func (s *matrixServer) close() {
	s.c.client.CloseIdleConnections()
	s.listener.Close()
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.Fail(s.c.t, "connections are left open")
	}
}
