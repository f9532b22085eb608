package httpcall

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const ( // of HTTP/2
	frameHeaders  = 1
	frameSettings = 4
	framePing     = 6
	flagAck       = 1
	flagEnd       = 1 | 4 // END_STREAM and END_HEADERS
)

// quiet is an HTTP/2 server that sends nothing but responses with the status 200 and, if alive,
// the responses to pings. It notes when each ping arrived.
type quiet struct {
	config *tls.Config
	takes  time.Duration // from a request to its response
	alive  bool

	mu    sync.Mutex
	pings []time.Time
	dials int
}

// seen returns when the pings arrived since the last time that seen was called.
func (s *quiet) seen() []time.Time {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	pings := s.pings
	s.pings = nil
	return pings
}

func (s *quiet) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.mu.Lock()
	s.dials++
	s.mu.Unlock()
	go s.serve(tls.Server(server, s.config))
	return client, nil
}

func (s *quiet) serve(c *tls.Conn) {
	defer c.Close()
	frames, over := make(chan []byte, 100), make(chan struct{})
	defer close(over)
	go func() { // apart from the reads, since a pipe has no buffer
		for {
			select {
			case f := <-frames:
				_, _ = c.Write(f)
			case <-over:
				return
			}
		}
	}()
	send := func(kind, flags byte, stream uint32, payload []byte) {
		head := binary.BigEndian.AppendUint32([]byte{0, 0, byte(len(payload)), kind, flags}, stream)
		frames <- append(head, payload...)
	}
	if _, err := io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	send(frameSettings, 0, 0, nil)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch {
		case head[3] == framePing && head[4]&flagAck == 0:
			s.mu.Lock()
			s.pings = append(s.pings, time.Now())
			s.mu.Unlock()
			if s.alive {
				send(framePing, flagAck, 0, payload)
			}
		case head[3] == frameSettings && head[4]&flagAck == 0:
			send(frameSettings, flagAck, 0, nil)
		case head[3] == frameHeaders:
			time.AfterFunc(s.takes, func() { send(frameHeaders, flagEnd, stream, []byte{0x88}) }) // ":status: 200"
		}
	}
}

// onQuiet returns a Caller that is connected to s, with one attempt for each call.
func onQuiet(s *quiet) *Caller {
	certified := httptest.NewUnstartedServer(nil)
	certified.Config.ErrorLog = log.New(io.Discard, "", 0)
	certified.StartTLS()
	defer certified.Close()
	s.config = &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}
	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	address := url.URL{Scheme: "https", Host: "example.com"}
	c := newChain(nil, func(cfg *Config) { cfg.Client, cfg.Origin, cfg.Retry.MaxAttempts = nil, &address, 1 })
	for _, t := range []*http.Transport{c.api.own, c.transfers.own} {
		t.Proxy, t.DialContext, t.TLSClientConfig = nil, s.dial, &tls.Config{RootCAs: roots}
	}
	return c
}

func quietCall(method string) *Call {
	k := newCall(method)
	k.URL = &url.URL{Scheme: "https", Host: "example.com", Path: "/x"}
	return k
}

// A server may close a connection that sends it more than two pings without data: then the
// outcome of a create is unknown.
func TestPings_D09(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Second, 5 * time.Second, 8 * time.Second, 9 * time.Second, 20 * time.Second} {
		s := &quiet{alive: true}
		c := onQuiet(s)
		synctest.Test(t, func(t *testing.T) {
			defer c.CloseIdle()
			s.takes = time.Second
			require.NoError(t, c.Do(t.Context(), quietCall("GET")).Fail)
			time.Sleep(idle)
			require.Empty(t, s.seen(), "no request waits")

			s.takes = 29900 * time.Millisecond
			start := time.Now()
			require.NoError(t, c.Do(t.Context(), quietCall("POST")).Fail)
			pings := s.seen()
			require.LessOrEqual(t, len(pings), 2)
			require.NotEmpty(t, pings)
			if s.dials > 1 || idle == 0 {
				require.GreaterOrEqual(t, pings[0].Sub(start), 10*time.Second)
			}
			time.Sleep(5 * time.Minute)
			require.Empty(t, s.seen(), "no request waits")
		})
	}
}

func TestConnectionWithoutAResponseToAPingIsClosed_D09(t *testing.T) {
	s := &quiet{takes: time.Hour}
	c := onQuiet(s)
	synctest.Test(t, func(t *testing.T) {
		defer c.CloseIdle()
		start := time.Now()
		r := c.Do(t.Context(), quietCall("POST"))
		require.Error(t, r.Fail)
		require.NotErrorAs(t, r.Fail, new(*TimeoutError))
		require.True(t, r.Acted)
		pings := s.seen()
		require.NotEmpty(t, pings)
		require.Equal(t, 10*time.Second, time.Since(pings[0]), "the ping may have to wait behind other data")
		for _, p := range pings[1:] {
			require.Zero(t, time.Since(p), "net/http may send another one when it closes the connection")
		}
		require.Less(t, time.Since(start), 25*time.Second)
	})
}
