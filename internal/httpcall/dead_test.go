package httpcall

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tunnel copies bytes between its clients and a server. After freeze, the connections
// that exist then stay open, but no byte passes through them.
type tunnel struct {
	net.Listener
	to     string
	mu     sync.Mutex
	frozen chan struct{} // freeze closes the channel and replaces it for later connections
}

func newTunnel(t *testing.T, to string) *tunnel {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tunnel{Listener: l, to: to, frozen: make(chan struct{})}
	var all sync.WaitGroup
	over := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); close(over); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			frozen := p.frozen
			p.mu.Unlock()
			all.Go(func() { <-over; _ = in.Close(); _ = out.Close() })
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() { pump(way[0], way[1], frozen) })
			}
		}
	})
	return p
}

func pump(from, to net.Conn, frozen chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			return
		default:
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			_ = to.Close()
			return
		}
	}
}

func (p *tunnel) freeze() {
	p.mu.Lock()
	close(p.frozen)
	p.frozen = make(chan struct{})
	p.mu.Unlock()
}

// A connection that died without a close is replaced by a new one within seconds.
func TestDeadConnection_C01(t *testing.T) {
	for _, transport := range []*http.Transport{newTransport(), newTransferTransport()} {
		require.NotZero(t, transport.HTTP2.SendPingTimeout)
		require.LessOrEqual(t, transport.HTTP2.SendPingTimeout+transport.HTTP2.PingTimeout, 25*time.Second)
	}
	big := bytes.Repeat([]byte("x"), 4<<20)
	told := make(chan struct{}) // closed when the connection of the download is frozen
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("first "))
		if r.URL.Path == "/download" {
			_ = http.NewResponseController(w).Flush()
			<-told
		}
		_, _ = w.Write([]byte("last " + r.Proto))
	}))
	srv.EnableHTTP2, srv.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	p := newTunnel(t, srv.Listener.Addr().String())
	address := url.URL{Scheme: "https", Host: p.Addr().String()}
	c := newChain(nil, func(cfg *Config) { cfg.Client, cfg.Origin = nil, &address })
	defer c.CloseIdle()
	for _, transport := range []*http.Transport{c.api.own, c.transfers.own} {
		transport.TLSClientConfig = &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 50 * time.Millisecond, PingTimeout: time.Second}
	}
	call := func(method, path string) *Call {
		k := newCall(method)
		k.URL = &url.URL{Scheme: address.Scheme, Host: address.Host, Path: "/" + path}
		return k
	}
	upload := func() *Call {
		k := call("PUT", "upload")
		k.Auth, k.Body, k.Transfer, k.Length = false, nil, true, int64(len(big))
		k.Source = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(big)), nil }
		return k
	}
	text := func(r *Result) string {
		if r.Stream == nil {
			return string(r.Body)
		}
		defer r.Stream.Body.Close()
		b, _ := io.ReadAll(r.Stream.Body)
		return string(b)
	}
	do := func(k *Call) *Result {
		start := time.Now()
		r := c.Do(t.Context(), k)
		require.Less(t, time.Since(start), 20*time.Second)
		return r
	}
	for name, k := range map[string]func() *Call{"GET": func() *Call { return call("GET", "") }, "DELETE": func() *Call { return call("DELETE", "") }, "upload": upload} {
		r := do(k())
		require.NoError(t, r.Fail, name)
		require.Equal(t, "first last HTTP/2.0", text(r), name)
		p.freeze()
		r = do(k())
		require.NoError(t, r.Fail, name)
		require.Equal(t, 2, r.Attempts, name)
		require.Equal(t, "first last HTTP/2.0", text(r), name)
	}

	download := call("GET", "download")
	download.Auth, download.Body, download.Transfer = false, nil, true
	r := do(download)
	require.NoError(t, r.Fail)
	first := make([]byte, len("first "))
	_, err := io.ReadFull(r.Stream.Body, first)
	require.NoError(t, err)
	require.Equal(t, "first ", string(first))
	p.freeze()
	close(told)
	start := time.Now()
	require.Empty(t, text(r))
	require.Less(t, time.Since(start), 20*time.Second)

	require.NoError(t, do(call("GET", "")).Fail)
	p.freeze()
	r = do(call("POST", "")) // the service may have received the create
	require.Error(t, r.Fail)
	require.True(t, r.Acted)
}

// The error names a proxy that refuses to connect. A 403 or 407 of the proxy is not
// retried.
func TestOwnTransportNamesTheProxy_C02(t *testing.T) {
	for status, attempts := range map[int]int{407: 1, 403: 1, 502: 3, 503: 3} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_ = (&http.Response{StatusCode: status, Status: "999 Go away", ProtoMajor: 1, ProtoMinor: 1, Request: r}).Write(conn)
				}
				_ = conn.Close()
			}
		})
		c := newChain(nil, func(cfg *Config) { cfg.Client = nil })
		c.api.own.Proxy = http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword("me", "hush"), Host: l.Addr().String()})
		r := c.Do(t.Context(), newCall("POST"))
		require.EqualError(t, r.Fail, (&ProxyError{l.Addr().String(), status}).Error())
		require.Contains(t, r.Fail.Error(), "the proxy "+l.Addr().String()+" refused the connection")
		require.Equal(t, attempts, r.Attempts)
		require.False(t, r.Acted)
		_ = l.Close()
		serving.Wait()
	}
}
