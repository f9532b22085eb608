package faults_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// handmade is an HTTP/2 server written without a library. When a request has arrived
// completely, the test decides what the server sends.
type handmade struct {
	url      string
	cert     []byte
	trusting *http.Transport
	answers  int // if not zero: a connection ends with a GOAWAY after so many responses, to its first streams
	mu       sync.Mutex
	requests []string // the bodies received
}

func (h *handmade) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...)
}

func newHandmade(t *testing.T, say func(n int, stream uint32) string) *handmade {
	t.Helper()
	donor := httptest.NewUnstartedServer(nil)
	donor.EnableHTTP2 = true
	donor.StartTLS()
	t.Cleanup(donor.Close)
	config := donor.TLS.Clone()
	config.NextProtos = []string{"h2"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &handmade{url: "https://" + l.Addr().String(), cert: donor.Certificate().Raw}
	h.trusting = donor.Client().Transport.(*http.Transport).Clone()
	var conns sync.WaitGroup
	over := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); close(over); h.trusting.CloseIdleConnections(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				<-over // a client may have opened a connection that it never uses
				_ = c.Close()
			})
			conns.Go(func() {
				defer c.Close()
				h.serve(tls.Server(c, config), say)
			})
		}
	})
	return h
}

func (h *handmade) serve(conn *tls.Conn, say func(n int, stream uint32) string) {
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	_, _ = io.WriteString(conn, h2Frame(h2Settings, 0, 0, ""))
	bodies, answered := map[uint32]string{}, 0
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head)>>8)
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		if _, err := io.ReadFull(conn, payload); err != nil {
			return
		}
		switch kind {
		case h2Settings:
			if flags&h2Ack == 0 {
				_, _ = io.WriteString(conn, h2Frame(h2Settings, h2Ack, 0, ""))
			}
		case h2Data:
			bodies[stream] += string(payload)
		}
		if (kind == h2Data || kind == h2Headers) && flags&h2EndStream != 0 {
			h.mu.Lock()
			h.requests = append(h.requests, bodies[stream])
			n := len(h.requests)
			h.mu.Unlock()
			said := say(n, stream)
			if said != "" {
				answered++
			}
			if said != "" && answered == h.answers { // streams have odd numbers
				said += h2GoingAway(uint32(2*h.answers - 1))
			}
			_, _ = io.WriteString(conn, said)
			// After a GOAWAY only the writing side is closed. A full close could lose the
			// data that was just sent.
			if n := len(said) - len(h2GoingAway(0)); n >= 0 && said[n:n+4] == h2GoingAway(0)[:4] {
				_ = conn.CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
				return
			}
		}
	}
}

func h2Reset(stream, code uint32) string {
	return h2Frame(h2RSTStream, 0, stream, string(binary.BigEndian.AppendUint32(nil, code)))
}

func h2OK(stream uint32, body string) string {
	return h2Frame(h2Headers, h2EndHeaders, stream, "\x88") + h2Frame(h2Data, h2EndStream, stream, body)
}

// h2GoingAway returns a GOAWAY frame: streams above last were not processed, and the
// connection ends.
func h2GoingAway(last uint32) string {
	return h2Frame(h2GoAway, 0, 0, string(binary.BigEndian.AppendUint32(nil, last))+"\x00\x00\x00\x00")
}

// Types and flags of HTTP/2 frames.
const (
	h2Data, h2Headers, h2RSTStream, h2Settings, h2GoAway = 0, 1, 3, 4, 7

	h2EndStream, h2Ack, h2EndHeaders = 1, 1, 4
)

func h2Frame(kind, flags byte, stream uint32, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), stream)
	return string(b) + payload
}
