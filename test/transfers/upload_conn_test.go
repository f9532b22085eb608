package transfers_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// rawStorage calls serve for each connection and closes the connection afterwards.
func rawStorage(t *testing.T, wrap func(net.Conn) net.Conn, serve func(net.Conn)) (address string, conns *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conns = new(atomic.Int32)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				serve(wrap(c))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), conns
}

func readHead(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			return
		}
	}
}

const tooLarge = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n" +
	"<Error><Code>EntityTooLarge</Code><Message>Your proposed upload exceeds the maximum allowed size</Message></Error>"

func plainConn(c net.Conn) net.Conn { return c }

// Storage refuses a large body because of its Content-Length, and closes the connection
// while the body is still being written. The client must receive the response and must
// not send the body again.
func TestUploadGetsAnEarlyRefusal(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	body := bytes.NewReader(make([]byte, 64<<20))
	for range 10 {
		address, conns := rawStorage(t, plainConn, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, tooLarge)
		})
		start := time.Now()
		_, err := testkit.NewFileClient(t, "http://"+address).Files.Put(t.Context(), svc.SignedURL("http://"+address+"/o?"+testkit.FileQuery), body, nil)
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "EntityTooLarge", e.Code)
		require.EqualValues(t, 1, conns.Load())
		require.Less(t, time.Since(start), 20*time.Second)
	}
}

// piped is a listener whose connections are pipes. It works inside a synctest bubble.
type piped struct {
	net.Listener
	dials int
	conns chan net.Conn
}

func (p *piped) Accept() (net.Conn, error) {
	if c, open := <-p.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *piped) Close() error {
	close(p.conns)
	return nil
}

func (p *piped) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.dials++
	p.conns <- server
	return client, nil
}

// A small body of a success is read, so that the connection serves the next upload. After 100 ms it is
// not waited for.
func TestPutUsesItsConnectionAgain_D26(t *testing.T) {
	for takes, most := range map[time.Duration]int{99 * time.Millisecond: 1, 100 * time.Millisecond: 8, time.Second: 8} {
		putsOnPipes(t, takes, most)
	}
}

// putsOnPipes puts eight times to a storage whose responses have a body that takes this time, on at most
// so many connections.
func putsOnPipes(t *testing.T, takes time.Duration, most int) {
	synctest.Test(t, func(t *testing.T) {
		p := &piped{conns: make(chan net.Conn)}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(201)
			w.(http.Flusher).Flush()
			time.Sleep(takes)
			_, _ = io.WriteString(w, "<Result>stored</Result>")
		})}
		go func() { _ = srv.Serve(p) }()
		defer srv.Close()
		c := testkit.NewFileClient(t, "http://127.0.0.1", svc.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: p.dial}}))
		for range 8 {
			_, err := c.Files.Put(t.Context(), "http://127.0.0.1/o", strings.NewReader("data"), nil)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, p.dials, most)
		time.Sleep(takes) // the handlers end
	})
}

// If a connection is cut without a response, the client does not wait for one.
func TestUploadNoticesACutConnectionAtOnce(t *testing.T) {
	body := bytes.NewReader(make([]byte, 64<<20))
	address, conns := rawStorage(t, plainConn, func(c net.Conn) { readHead(c) })
	start := time.Now()
	_, err := testkit.NewFileClient(t, "http://"+address).Files.Put(t.Context(), svc.SignedURL("http://"+address+"/o?"+testkit.FileQuery), body, nil)
	var e *svc.TransportError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 5, conns.Load())
	require.Less(t, time.Since(start), 20*time.Second)
}

// A 2xx response that comes before the body can have arrived is not a success.
func TestUploadFailsWithAnEarlySuccess(t *testing.T) {
	address, conns := rawStorage(t, plainConn, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	link := svc.SignedURL("http://" + address + "/o?" + testkit.FileQuery)
	for n := range 20 {
		_, err := testkit.NewFileClient(t, "http://"+address).Files.Put(t.Context(), link, bytes.NewReader(make([]byte, 64<<20)), nil)
		require.ErrorContains(t, err, "reported success when only")
		require.EqualValues(t, n+1, conns.Load())
	}

	mock := testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) { // a mock ignores the body
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	c := testkit.NewFileClient(t, "https://svc.test", svc.WithHTTPClient(&http.Client{Transport: mock}))
	_, err := c.Files.Put(t.Context(), link, strings.NewReader("data"), nil)
	require.NoError(t, err)
}

// An HTTP/2 server may send GOAWAY during an upload. The upload is sent on another
// connection, from its start.
func TestUploadGoesOnAfterGoAway(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	body := testkit.Contents(300_000)
	for name, r := range map[string]io.Reader{"bytes": bytes.NewReader(body), "file": tempFile(t, body), "seeker": seekOnly{bytes.NewReader(body)}, "plain": readOnly{bytes.NewReader(body)}} {
		var requests atomic.Int32
		var announced atomic.Int64 // Content-Length over HTTP/2; 0 over HTTP/1
		var got bytes.Buffer
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			announced.Store(r.ContentLength * int64(r.ProtoMajor-1))
			_, _ = io.Copy(&got, r.Body)
		}))
		srv.EnableHTTP2 = true
		first := &firstGoesAway{Listener: srv.Listener, done: make(chan struct{})}
		srv.Listener = first
		srv.StartTLS()
		first.config.Store(srv.TLS)
		c := testkit.NewFileClient(t, srv.URL, svc.WithHTTPClient(srv.Client()))
		result, err := c.Files.Put(t.Context(), svc.SignedURL(srv.URL+"/o?"+testkit.FileQuery), r, nil)
		require.NoError(t, err, name)
		require.Equal(t, 1, result.Attempts, "the transport repeats the request inside one attempt")
		require.EqualValues(t, 1, requests.Load())
		require.EqualValues(t, len(body), announced.Load())
		require.True(t, bytes.Equal(body, got.Bytes()), name)
		<-first.done
		require.True(t, first.sawData, name)
		srv.Close()
	}
}

// firstGoesAway handles the first HTTP/2 connection itself. It accepts a request and a
// part of its body, and then sends a GOAWAY that says that nothing was processed.
type firstGoesAway struct {
	net.Listener
	config  atomic.Pointer[tls.Config]
	once    sync.Once
	sawData bool
	done    chan struct{}
}

func (l *firstGoesAway) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	mine := false
	l.once.Do(func() { mine = err == nil })
	if !mine {
		return c, err
	}
	go func() {
		defer close(l.done)
		defer c.Close()
		s := tls.Server(c, l.config.Load())
		_, _ = io.ReadFull(s, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		_, _ = s.Write(frame(4, 0, nil)) // a SETTINGS frame
		for head := make([]byte, 9); ; {
			if _, err := io.ReadFull(s, head); err != nil {
				return
			}
			length := binary.BigEndian.Uint32(head) >> 8
			if _, err := io.CopyN(io.Discard, s, int64(length)); err != nil {
				return
			}
			if head[3] == 0 && !l.sawData { // a DATA frame
				l.sawData = true
				_, _ = s.Write(frame(7, 0, make([]byte, 8))) // a GOAWAY frame: last stream 0, no error
			}
		}
	}()
	return l.Listener.Accept()
}

func frame(kind byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = append(b, 0)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Progress is called at most ten times a second, and never with more than the total. The
// last call has the total, and no other call has it.
func TestUploadReportsProgress(t *testing.T) {
	type report struct {
		at          time.Duration
		sent, total int64
	}
	slow := func(r *http.Request) (*http.Response, error) {
		buf := make([]byte, 1000)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for name, body := range map[string]io.Reader{"direct": bytes.NewReader(make([]byte, 100_000)), "seeker": seekOnly{bytes.NewReader(make([]byte, 100_000))}} {
		synctest.Test(t, func(t *testing.T) {
			var reports []report
			c, err := svc.NewClient("https://svc.test", svc.WithToken(testkit.Token), svc.WithHTTPClient(&http.Client{Transport: testkit.RoundTripFunc(slow)}))
			require.NoError(t, err)
			start := time.Now()
			_, err = c.Files.Put(t.Context(), "https://storage.test/o", body, &svc.UploadOptions{
				Progress: func(sent, total int64) { reports = append(reports, report{time.Since(start), sent, total}) },
			})
			require.NoError(t, err)
			require.Len(t, reports, 11, name) // ten reports in 1 s, and one at the end
			for i, r := range reports[:10] {
				require.EqualValues(t, 100_000, r.total)
				require.Equal(t, time.Duration(i)*100*time.Millisecond, r.at)
				require.EqualValues(t, 1000+i*10_000, r.sent)
			}
			require.EqualValues(t, 100_000, reports[10].sent)
		})
	}
	s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n == 1 {
			w.WriteHeader(503)
		}
	})
	for _, size := range []int{0, 1, 500_000} {
		var last, ends int64
		_, err := s.Client(t).Files.Put(t.Context(), s.Link(), bytes.NewReader(make([]byte, size)), &svc.UploadOptions{
			Progress: func(sent, total int64) {
				require.LessOrEqual(t, sent, total)
				require.EqualValues(t, size, total)
				if last = sent; sent == total {
					ends++
				}
			},
		})
		require.NoError(t, err)
		require.EqualValues(t, size, last)
		require.EqualValues(t, 1, ends, "the total must be reported once, after the success")
	}
	calls := 0
	_, err := s.Client(t).Files.Put(t.Context(), "http://"+testkit.ClosedPort+"/o", strings.NewReader("x"), &svc.UploadOptions{Progress: func(int64, int64) { calls++ }})
	require.Error(t, err)
	require.Zero(t, calls)
}
