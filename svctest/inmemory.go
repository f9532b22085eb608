package svctest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"example.com/svc/internal/errno"
)

// memoryTransport passes each request to a handler, in a goroutine that ends with
// the request. The caller gets errors like those of a real connection: a *net.OpError if
// the connection is lost before a response, io.ErrUnexpectedEOF if the body is cut off,
// and a *net.OpError with Op "dial" if the host has no handler.
type memoryTransport struct {
	hosts  map[string]http.Handler
	closed atomic.Bool
}

func (t *memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body := newMemoryBody(req)
	handler, err := t.dial(req)
	if err == nil {
		err = checkHeader(req.Header)
	}
	if err != nil {
		body.Close()
		return nil, err
	}
	if err := context.Cause(req.Context()); err != nil {
		body.Close()
		return nil, err
	}
	body.traceConnection(req)
	ctx, cancel := context.WithCancel(req.Context())
	w := &memoryWriter{req: req, cancel: cancel, header: http.Header{}, ready: make(chan struct{}), declared: -1}
	go func() {
		defer func() {
			p := recover()
			body.Close()
			if p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			w.finish(p != nil, body.err)
			cancel()
		}()
		handler.ServeHTTP(w, serverRequest(ctx, req, body))
	}()
	select {
	case <-w.ready:
		return w.resp, w.err
	case <-req.Context().Done():
		body.Close() // so that a Read in the handler returns
		return nil, context.Cause(req.Context())
	}
}

func (t *memoryTransport) dial(req *http.Request) (http.Handler, error) {
	fail := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	if req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		return nil, fmt.Errorf("unsupported protocol scheme %q", req.URL.Scheme)
	}
	handler := t.hosts[req.URL.Host]
	switch {
	case handler == nil:
		return nil, fail(&net.DNSError{Err: "no such host", Name: req.URL.Hostname(), IsNotFound: true})
	case t.closed.Load():
		return nil, fail(errno.ConnRefused)
	}
	return handler, nil
}

func checkHeader(h http.Header) error {
	for k, values := range h {
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return fmt.Errorf("net/http: invalid header field value for %q", k)
			}
		}
	}
	return nil
}

// serverRequest returns req in the form in which the handler receives it.
func serverRequest(ctx context.Context, req *http.Request, body *memoryBody) *http.Request {
	r := &http.Request{
		Method: req.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: req.Header.Clone(), Host: req.Host, RemoteAddr: "127.0.0.1:1",
		RequestURI: req.URL.RequestURI(), ContentLength: body.length, Body: body,
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header.Set("User-Agent", "Go-http-client/1.1")
	}
	switch {
	case body.length < 0:
		r.TransferEncoding = []string{"chunked"}
	case body.length > 0, r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		r.Header.Set("Content-Length", strconv.FormatInt(body.length, 10))
	}
	var err error
	if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
		r.URL = &url.URL{Path: "/"}
	}
	return r.WithContext(ctx)
}

// memoryBody is a request body for the handler. Its Read fails if the body does not have
// the announced length.
type memoryBody struct {
	rc     io.ReadCloser
	length int64 // announced length; -1 if none was announced
	left   int64
	err    error // the error that the caller gets; the handler gets io.ErrUnexpectedEOF
	close  func() error
	wrote  func(error) // calls WroteRequest of the caller's trace, once
}

func newMemoryBody(req *http.Request) *memoryBody {
	b := &memoryBody{rc: req.Body, length: req.ContentLength, wrote: func(error) {}}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		b.rc, b.length = http.NoBody, 0
	case req.ContentLength == 0:
		b.length = -1
	}
	b.left = b.length
	b.close = sync.OnceValue(b.rc.Close)
	return b
}

func (b *memoryBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.rc.Read(p)
	switch {
	case b.length < 0:
	case int64(n) > b.left, err == io.EOF && int64(n) < b.left:
		err = fmt.Errorf("http: ContentLength=%d with Body length %d", b.length, b.length-b.left+int64(n))
		n = min(n, int(b.left))
	case int64(n) == b.left && err == nil:
		err = io.EOF
	}
	b.left -= int64(n)
	if err != nil {
		b.wrote(err)
	}
	if err != nil && err != io.EOF {
		b.err, err = err, io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *memoryBody) Close() error {
	err := b.close()
	b.wrote(nil)
	return err
}

// traceConnection calls the connection hooks of the client trace (httptrace), as a
// transport with a real connection does.
func (b *memoryBody) traceConnection(req *http.Request) {
	trace := httptrace.ContextClientTrace(req.Context())
	if trace == nil {
		return
	}
	if trace.GetConn != nil {
		trace.GetConn(req.URL.Host)
	}
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: memoryConn{}})
	}
	if trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	if trace.WroteRequest != nil {
		var once sync.Once
		b.wrote = func(err error) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			once.Do(func() { trace.WroteRequest(httptrace.WroteRequestInfo{Err: err}) })
		}
		if b.length == 0 {
			b.wrote(nil)
		}
	}
}

// memoryConn is the connection that the GotConn hook of a trace receives. Only its
// addresses can be read.
type memoryConn struct{ net.Conn }

func (memoryConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (memoryConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
