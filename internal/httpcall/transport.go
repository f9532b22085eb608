package httpcall

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"example.com/svc/internal/valid"
)

// Pings find dead HTTP/2 connections while a request waits. Some servers close a connection
// after more than two pings without data. An attempt of 30 s has at most two pings, also on a
// connection that was idle before, since maxIdle + 30 s is not more than three times maxSilence.
// An idle connection is closed before it is pinged.
const (
	maxIdle    = 9 * time.Second  // how long a connection stays open without a request
	maxSilence = 13 * time.Second // how long nothing may arrive before a ping is sent
	maxPing    = 10 * time.Second // how long the response to a ping may take; the ping may have to wait behind buffered data
)

// A lane holds what all API calls share, or what all transfers share.
type lane struct {
	own    *http.Transport // the transport that is used unless the caller sets one
	budget *budget         // limits the retries
}

// newTransport returns the transport that is used unless the caller sets one. Its idle pool is
// large enough that many concurrent callers keep their connections. The default of net/http is
// two idle connections for each host.
func newTransport() *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if x := exchangeOf(ctx); x != nil && x.dials.Add(1) > maxReplays {
				return nil, errReplays
			}
			return dialer.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       maxIdle,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: maxSilence, PingTimeout: maxPing},
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode != http.StatusOK {
				return &ProxyError{proxy.Host, resp.StatusCode}
			}
			return nil
		},
	}
}

// newTransferTransport returns the transport for presigned URLs. It has a separate pool and
// does not ask for compression. If a write fails, its connections still wait for a response:
// see conn.
func newTransferTransport() *http.Transport {
	t := newTransport()
	t.DisableCompression = true
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, over: make(chan struct{})}, nil
	}
	return t
}

// maxHops is the maximum number of redirects that are followed.
const maxHops = 10

// checkRedirect follows a redirect that keeps the method. For an API call the method must be
// GET, and the redirect must lead to the same origin. A redirect from https to http is never
// followed. If a redirect is not followed, the response with the redirect is returned.
//
// No request has a Referer header, since the previous address may be a presigned URL.
func checkRedirect(req *http.Request, via []*http.Request) error {
	call := exchangeOf(req.Context()).call
	if call.Hop != nil {
		call.Hop(req.URL)
	}
	first, last := via[0], via[len(via)-1]
	follow := len(via) <= maxHops && req.Method == first.Method &&
		(req.URL.Scheme == "https" || last.URL.Scheme == req.URL.Scheme)
	if !call.Transfer {
		follow = follow && req.Method == http.MethodGet && valid.SameOrigin(req.URL, first.URL)
	}
	if !follow {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return nil
}

// instruments is the transport around the caller's wrapper. It hides the query of each URL,
// since tools for traces and metrics store the URL, and the query of a presigned URL is a
// secret. restore, below the wrapper, restores the whole URL and sends the request. The URL is
// in the context of the request and not in the exchange, since a wrapper may abandon a request
// in progress and the call may begin the next one.
type instruments struct{ http.RoundTripper }

func (i instruments) RoundTrip(req *http.Request) (*http.Response, error) {
	whole := req.URL
	req = req.WithContext(context.WithValue(req.Context(), addressKey{}, whole))
	req.URL = new(*whole)
	req.URL.RawQuery, req.URL.ForceQuery = "", false
	return i.RoundTripper.RoundTrip(req)
}

// addressKey is the context key of the whole URL of a request.
type addressKey struct{}

type restore struct{}

func (restore) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	to, known := req.Context().Value(addressKey{}).(*url.URL)
	if x == nil || !known {
		return nil, errors.New("the transport of WithTransportWrapper changed the context of a request")
	}
	whole := req.WithContext(req.Context()) // a transport must not modify its request
	whole.URL = to
	resp, err := x.base.RoundTrip(whole)
	if err == nil {
		resp.Request = req
	}
	return resp, err
}

// earlyResponse is how long a response may take to arrive after the connection
// has stopped taking the request's body.
const earlyResponse = time.Second

// conn is a connection that reports a failed write a moment later. A server that refuses a large
// body responds early and closes the connection. The write fails first, and net/http would close
// the connection before it has read the response with the reason. The delay ends when net/http
// closes the connection: then it has read the response, or there is none.
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
