package httpcall

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// earlyAnswer is how long an answer may take to come in after the connection
// has stopped taking the request's body.
const earlyAnswer = time.Second

// conn is a connection on which a failed write waits a moment before it is
// reported. A server that refuses a large body early answers, then closes: the
// write fails first, net/http drops the connection for that, and with it the
// answer that says why. The wait ends when the answer has been read, and at once
// when none is going to come: net/http closes the connection then.
//
// It does not pass on ReadFrom: request bodies are watched on their way, so that
// none could go by sendfile anyway.
type conn struct {
	net.Conn
	once sync.Once
	over chan struct{} // closed with the connection, as net/http does when reading fails too
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		timer := time.NewTimer(earlyAnswer)
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
