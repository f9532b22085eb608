package httpcall

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// earlyResponse is how long a response may take to arrive after the connection
// has stopped taking the request's body.
const earlyResponse = time.Second

// conn is a connection that reports a failed write a moment later. A server that refuses a
// large body responds early and closes the connection. The write fails first, and net/http
// would drop the connection before it has read the response, which says why. The delay ends
// when net/http closes the connection: then it has read the response, or there is none.
//
// conn hides the ReadFrom method of a TCP connection: this package observes each read of a body.
type conn struct {
	net.Conn
	once sync.Once
	over chan struct{} // closed when the connection is closed; net/http also closes the connection when reading fails
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		timer := time.NewTimer(earlyResponse)
		defer timer.Stop()
		select {
		case <-c.over:
		case <-timer.C:
		}
	}
	return n, err
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.over) })
	return c.Conn.Close()
}
