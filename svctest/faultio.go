package svctest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
)

// pacedChunk is the largest number of bytes that a rate limit lets pass between two
// pauses.
const pacedChunk = 16 << 10

// pacedBody is a request body that is read no faster than the Rate of a fault.
type pacedBody struct {
	io.ReadCloser
	pause func(n int)
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), pacedChunk)])
	b.pause(n)
	return n, err
}

// faultyWriter applies a fault to a response: it adds headers, limits the rate, and cuts the
// connection before the end of the body.
type faultyWriter struct {
	http.ResponseWriter
	f     *Fault
	sleep func(n int)
	lose  func() // does not return
	wrote bool
	cuts  bool
	left  int64 // bytes to send before the cut
}

func (w *faultyWriter) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = true
	w.f.addHeader(w.Header())
	switch {
	case w.f.TruncateAfter != 0:
		w.cuts, w.left = true, max(w.f.TruncateAfter, 0)
	case w.f.TruncateBody:
		size, _ := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64)
		w.cuts, w.left = true, size/2
	}
	w.ResponseWriter.WriteHeader(status)
	if w.cuts && w.left == 0 {
		w.cut()
	}
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	written := 0
	for len(p) > 0 {
		chunk := p
		if w.f.Rate > 0 {
			chunk = p[:min(len(p), pacedChunk)]
		}
		if w.cuts {
			chunk = chunk[:min(int64(len(chunk)), w.left)]
		}
		n, err := w.ResponseWriter.Write(chunk)
		written += n
		if err != nil {
			return written, err
		}
		if w.f.Rate > 0 {
			w.flush()
			w.sleep(n)
		}
		if w.left -= int64(n); w.cuts && w.left == 0 {
			w.cut()
		}
		p = p[n:]
	}
	return written, nil
}

// Unwrap lets http.ResponseController flush the response.
func (w *faultyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultyWriter) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *faultyWriter) cut() {
	w.flush()
	w.lose()
}

// capture stores a response, so that it can be sent later or never.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newCapture() *capture { return &capture{header: http.Header{}} }

func (c *capture) Header() http.Header         { return c.header }
func (c *capture) WriteHeader(status int)      { c.status = status }
func (c *capture) Write(p []byte) (int, error) { return c.body.Write(p) }

func (c *capture) replay(w http.ResponseWriter) {
	for k, v := range c.header {
		w.Header()[k] = v
	}
	w.WriteHeader(max(c.status, http.StatusOK))
	_, _ = w.Write(c.body.Bytes())
}
