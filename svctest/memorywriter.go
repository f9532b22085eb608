package svctest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"example.com/svc/internal/errno"
)

// streamAfter is the largest number of bytes of a response that are buffered. A longer
// response is sent while the handler still writes.
const streamAfter = 64 << 10

// memoryWriter turns what a handler writes into the response that the client gets.
// A short response is passed on as a whole when the handler has ended. A response that
// is long or flushed goes through a pipe while the handler still writes.
type memoryWriter struct {
	req      *http.Request // the request of the caller
	cancel   context.CancelFunc
	header   http.Header
	sent     http.Header // copy of header, made when the status was written
	status   int
	declared int64 // Content-Length that the handler set, or -1
	written  int64
	buf      bytes.Buffer
	pipe     *io.PipeWriter // not nil once the response is streamed
	stop     func() bool    // stops watching the caller's context

	ready chan struct{} // closed when resp or err is set
	resp  *http.Response
	err   error
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
		w.declared = n
	}
	w.sent = w.header.Clone()
	if _, ok := w.sent["Date"]; !ok {
		w.sent.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	} else if len(w.sent["Date"]) == 0 {
		delete(w.sent, "Date") // as in net/http, a nil value removes the header
	}
}

// bodiless reports whether the response has no body, whatever the handler writes.
func (w *memoryWriter) bodiless() bool {
	return w.req.Method == http.MethodHead || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.bodiless() {
		return len(p), nil
	}
	if w.declared >= 0 && w.written+int64(len(p)) > w.declared {
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.pipe == nil {
		w.buf.Write(p)
		if w.buf.Len() > streamAfter {
			w.Flush()
		}
		return len(p), nil
	}
	return w.pipe.Write(p)
}

// Flush sends what was written so far. From then on, each Write is sent at once.
func (w *memoryWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.pipe != nil || w.bodiless() {
		return
	}
	var body *io.PipeReader
	body, w.pipe = io.Pipe()
	ctx := w.req.Context()
	w.stop = context.AfterFunc(ctx, func() { _ = w.pipe.CloseWithError(context.Cause(ctx)) })
	w.send(&streamBody{body, w.cancel})
	if w.buf.Len() > 0 {
		_, _ = w.pipe.Write(w.buf.Bytes())
	}
	w.buf = bytes.Buffer{}
}

// finish ends the response. If the handler aborted it, the caller sees a lost
// connection. requestErr is the reason why the caller could not send its whole request,
// or nil.
func (w *memoryWriter) finish(aborted bool, requestErr error) {
	left := context.Cause(w.req.Context()) // why the caller gave up; nil if it did not
	cut := aborted || requestErr != nil
	if !cut {
		w.WriteHeader(http.StatusOK)
	}
	short := cut || w.declared > w.written && !w.bodiless()
	switch {
	case w.pipe != nil:
		w.stop()
		if short && left != nil {
			_ = w.pipe.CloseWithError(left)
		} else if short {
			_ = w.pipe.CloseWithError(io.ErrUnexpectedEOF)
		}
		_ = w.pipe.Close()
	case cut && left != nil:
		w.fail(left)
	case requestErr != nil:
		w.fail(requestErr)
	case aborted:
		w.fail(&net.OpError{Op: "read", Net: "tcp", Err: errno.ConnReset})
	case short:
		w.send(io.NopCloser(io.MultiReader(&w.buf, cutReader{})))
	default:
		if w.declared < 0 && !w.bodiless() {
			w.declared = w.written
			w.sent.Set("Content-Length", strconv.FormatInt(w.written, 10))
		}
		w.send(io.NopCloser(bytes.NewReader(w.buf.Bytes())))
	}
}

func (w *memoryWriter) fail(err error) {
	w.err = err
	close(w.ready)
}

func (w *memoryWriter) send(body io.ReadCloser) {
	w.resp = &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: w.declared, Body: body, Request: w.req,
	}
	if w.bodiless() {
		w.resp.Body = http.NoBody
		if w.req.Method != http.MethodHead {
			w.resp.ContentLength = 0
		}
	}
	close(w.ready)
}

// streamBody cancels the context of the handler when the caller closes the response
// body.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *streamBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// cutReader makes a response body end like one that was cut off.
type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
