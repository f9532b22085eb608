package transfer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
)

// Errors that end a download, in addition to the errors of a call.
var (
	// ErrChanged is returned when the file changed while it was being downloaded.
	ErrChanged = errors.New("the file changed while it was being downloaded")
	// ErrUnexpected is returned when a 2xx response cannot be the rest of the file.
	ErrUnexpected = errors.New("the response is not the file, or not the part that was asked for")
)

// WriteError says that downloaded bytes could not be written to their target.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "writing: " + e.Err.Error() }

// RenewError says that asking for a new link failed.
type RenewError struct{ Err error }

func (e *RenewError) Error() string {
	return "asking for a link: " + strings.TrimPrefix(e.Err.Error(), "svc: ")
}

func (e *RenewError) Unwrap() error { return e.Err }

// CutError says that a response ended before the file was complete.
type CutError struct{ Err error }

func (e *CutError) Error() string { return "cut off: " + e.Err.Error() }

func (e *CutError) Unwrap() []error { return []error{e.Err, io.ErrUnexpectedEOF} }

// maxRenewals is how many new links may be requested in a row without progress.
const maxRenewals = 2

// Get is a download with all its requests.
type Get struct {
	Caller   *httpcall.Caller
	Link     *Link                                    // the presigned URL; nil: Run calls Renew first
	Renew    func(ctx context.Context) (*Link, error) // returns a new link after one has expired; nil: there is no new link
	Header   http.Header                              // for every request; not nil
	Idle     time.Duration
	W        io.Writer
	Restart  func() error // makes W empty again, so that the download can start over; nil: not possible
	Progress func(received, total int64)

	Received int64 // bytes written to W
	Total    int64 // size of the file; -1: not known yet
	Attempts int   // attempts of all requests

	etag, modified string // what identifies the version of the file, from the first response
	encoding       string // Content-Encoding of the first response
	furthest       int64  // the highest Received so far: only bytes beyond it are progress
	renewals       int
	resume         httpcall.Resume
	progress       progress
}

// Run downloads the file. After success it returns nil and nil. If a response refused the
// request, Run returns that response. Otherwise it returns an error, and with [ErrUnexpected]
// and [ErrChanged] the response as well.
func (g *Get) Run(ctx context.Context) (r *httpcall.Result, err error) {
	g.progress.f = g.Progress
	if g.Link == nil {
		if err := g.renew(ctx); err != nil {
			return nil, err
		}
	}
	for {
		call := g.call()
		g.resume.Caller, g.resume.Call = g.Caller, call
		r := g.Caller.Do(ctx, call)
		g.Attempts += r.Attempts
		if !r.OK() {
			switch again, err := g.refused(ctx, r); {
			case err != nil:
				return nil, err
			case again:
				continue
			}
			return r, nil
		}
		more, err := g.take(r.Stream)
		switch {
		case err == nil && !more:
			g.progress.end(g.Received)
			return nil, nil
		case err == nil:
			continue
		case cause.Has[*WriteError](err):
			return nil, err
		case ctx.Err() != nil:
			return nil, cause.Of(ctx)
		case !cause.Has[*CutError](err):
			return r, err
		case g.Received > 0 && g.validator() == "":
			if g.Restart == nil {
				return nil, err
			}
			if err := g.Restart(); err != nil {
				return nil, &WriteError{err}
			}
			g.Received = 0
		}
		if !g.resume.Wait(ctx, err) {
			if ended := cause.Of(ctx); ended != nil { // ctx ended during the pause
				err = ended
			}
			return nil, err
		}
	}
}

// call makes the request for the part that is missing.
func (g *Get) call() *httpcall.Call {
	header := g.Header.Clone()
	header["Accept-Encoding"] = []string{"identity"} // so that lengths and ranges count the bytes that are written
	if g.Received > 0 {
		header["Range"] = []string{"bytes=" + strconv.FormatInt(g.Received, 10) + "-"}
		header["If-Range"] = []string{g.validator()}
	}
	return g.Link.call(http.MethodGet, header, g.Idle)
}

// refused asks for a new link if the link has expired. After bytes have been received, a 403
// counts as an expired link, whatever its text says.
func (g *Get) refused(ctx context.Context, r *httpcall.Result) (again bool, err error) {
	expired := g.Link.Expired(r) || r.StatusCode == http.StatusForbidden && g.Received > 0
	if g.Renew == nil || !expired || g.renewals == maxRenewals {
		return false, nil
	}
	g.renewals++
	err = g.renew(ctx)
	return err == nil, err
}

func (g *Get) renew(ctx context.Context) error {
	link, err := g.Renew(ctx)
	if err != nil {
		return &RenewError{err}
	}
	g.Link = link
	return nil
}

// take writes the body of a response. more says that a part is still missing: storage may
// send less than was asked for.
func (g *Get) take(resp *http.Response) (more bool, err error) {
	defer resp.Body.Close()
	skip, left, err := g.accept(resp)
	if err != nil {
		return false, err
	}
	if _, err := io.CopyN(io.Discard, resp.Body, skip); err != nil {
		return false, broken(err)
	}
	if err := g.copy(resp.Body, left); err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusPartialContent && g.Received != g.Total, nil
}

// accept judges a response by its header. skip is the number of bytes at the start of its body
// that were written before, and left is the number of bytes after them. left below zero: all
// bytes until the body ends.
func (g *Get) accept(resp *http.Response) (skip, left int64, err error) {
	switch {
	case resp.StatusCode == http.StatusOK && g.Received == 0:
		g.Total = resp.ContentLength
		g.etag, g.modified, g.encoding = tag(resp.Header), "", encoding(resp.Header)
		if datesStrongly(resp.Header) {
			g.modified = resp.Header.Get("Last-Modified")
		}
		return 0, g.Total, nil
	case resp.StatusCode == http.StatusOK:
		// Storage ignores ranges, or the file has changed.
		known := resp.ContentLength < 0 || g.Total < 0 || resp.ContentLength == g.Total
		if !known || !strong(g.etag) || tag(resp.Header) != g.etag || encoding(resp.Header) != g.encoding {
			return 0, 0, ErrChanged
		}
		g.Total = max(g.Total, resp.ContentLength)
		return g.Received, g.Total - g.Received, nil
	case resp.StatusCode == http.StatusPartialContent && g.Received > 0:
		c, ok := parseContentRange(resp.Header.Get("Content-Range"))
		parts := strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "multipart/byteranges") // several parts, each with a header
		switch {
		case !ok || parts || c.start != g.Received:
			return 0, 0, ErrUnexpected
		case !g.same(resp.Header), encoding(resp.Header) != g.encoding, g.Total >= 0 && (c.end >= g.Total || c.total >= 0 && c.total != g.Total):
			return 0, 0, ErrChanged
		case g.Total < 0:
			g.Total = c.total
		}
		return 0, c.end - c.start + 1, nil
	}
	return 0, 0, ErrUnexpected
}

// copy writes the body to W. More than left bytes are an error, unless left is below zero.
func (g *Get) copy(body io.Reader, left int64) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		if left >= 0 && int64(n) > left {
			return ErrUnexpected
		}
		if n > 0 {
			left -= int64(n) // a value below zero stays below zero
			if err := g.write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case n > 0 && left == 0:
			return nil // complete; how the connection ends does not matter
		case err == nil:
		case errors.Is(err, io.EOF) && left > 0:
			return &CutError{io.ErrUnexpectedEOF}
		case errors.Is(err, io.EOF):
			return nil
		default:
			return broken(err)
		}
	}
}

func (g *Get) write(p []byte) error {
	n, err := g.W.Write(p)
	n = min(max(n, 0), len(p))
	g.Received += int64(n)
	if g.Received > g.furthest {
		g.furthest, g.renewals = g.Received, 0
		g.resume.Progress()
	}
	if n > 0 && g.Received != g.Total { // the end is reported later, when it is certain
		g.progress.report(g.Received, g.Total)
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &WriteError{err}
	}
	return nil
}

// broken is the error of a body that ended too early.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &CutError{err}
}
