package transfer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/lazy"
)

// Errors that end a download, in addition to the errors of a call.
var (
	// ErrChanged is returned when the file changed while it was being downloaded.
	ErrChanged = errors.New("the file changed while it was being downloaded")
	// ErrUnexpected is returned when a 2xx response cannot be the rest of the file.
	ErrUnexpected = errors.New("the response is not the file, or not the requested part")
)

// A WriteError reports that downloaded bytes could not be written to their target.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "writing: " + e.Err.Error() }

// A RenewError reports that a request for a new link failed.
type RenewError struct{ Err error }

func (e *RenewError) Error() string {
	return "asking for a link: " + strings.TrimPrefix(e.Err.Error(), "svc: ")
}

func (e *RenewError) Unwrap() error { return e.Err }

// A CutError reports that a response ended before the file was complete.
type CutError struct{ Err error }

func (e *CutError) Error() string { return "cut off: " + e.Err.Error() }

func (e *CutError) Unwrap() []error { return []error{e.Err, io.ErrUnexpectedEOF} }

// maxRenewals is the maximum number of new links that may be requested in a row without
// progress.
const maxRenewals = 2

// A Get is a download with all its requests.
type Get struct {
	Caller   *httpcall.Caller
	Link     *Link                                    // the presigned URL; if nil, Run calls Renew first
	Renew    func(ctx context.Context) (*Link, error) // returns a new link after one has expired; nil if there is no new link
	Header   http.Header                              // sent with every request; not nil
	Idle     time.Duration
	W        io.Writer
	Restart  func() error // truncates W, so that the download can start over; nil if that is not possible
	Progress func(received, total int64)

	Received int64 // bytes written to W
	Total    int64 // size of the file; -1 if not known yet
	Attempts int   // attempts of all requests

	etag     string // strong entity tag of the first response, which identifies the version of the file; empty if there is none
	encoding string // Content-Encoding of the first response
	furthest int64  // the highest Received so far: only bytes beyond it are progress
	renewals int
	resume   httpcall.Resume
	progress progress
}

// Run downloads the file. After success it returns nil and nil. If a response refused the
// request, Run returns that response and no error. Otherwise it returns an error, and the last
// response if there was one.
func (g *Get) Run(ctx context.Context) (r *httpcall.Result, err error) {
	g.progress.f, g.resume.Caller = g.Progress, g.Caller
	if g.Link == nil {
		err = g.renew(ctx)
	}
	for err == nil {
		r = g.Caller.Do(ctx, g.call())
		g.Attempts += r.Attempts
		more := false
		switch {
		case r.OK():
			more, err = g.take(r.Stream)
		case !g.nothingLeft(r):
			if !g.renewable(r) {
				return r, nil
			}
			g.renewals++
			err = g.renew(ctx)
			continue
		}
		if err != nil {
			err = g.again(ctx, err)
		} else if !more {
			g.progress.end(g.Received, g.Received)
			return nil, nil
		}
	}
	return r, err
}

// again waits before a download that was cut off with err is continued or started over. It
// returns an error if the download cannot continue.
func (g *Get) again(ctx context.Context, err error) error {
	switch {
	case cause.Has[*WriteError](err):
		return err
	case ctx.Err() != nil:
		return cause.Of(ctx)
	case !cause.Has[*CutError](err):
		return err
	case g.Received == 0, g.etag != "": // the next request asks for what is missing
	case g.Restart == nil:
		return err
	default:
		if failed := g.Restart(); failed != nil {
			return &WriteError{failed}
		}
		g.Received = 0
	}
	if g.resume.Wait(ctx, err) {
		return nil
	}
	return cmp.Or(cause.Of(ctx), err) // ctx may have ended during the pause
}

// call sends the request for the part that is missing.
func (g *Get) call() *httpcall.Call {
	header := g.Header.Clone()
	header["Accept-Encoding"] = []string{"identity"} // so that lengths and ranges count the bytes that are written
	if g.Received > 0 {
		header["Range"] = []string{"bytes=" + strconv.FormatInt(g.Received, 10) + "-"}
		header["If-Range"] = []string{g.etag} // storage sends the part only if the file has not changed
	}
	return g.Link.call(http.MethodGet, header, g.Idle)
}

// renewable reports whether a new link may help. After bytes have been received, a 403 is taken
// for an expired link, whatever its message is.
func (g *Get) renewable(r *httpcall.Result) bool {
	if g.Renew == nil || g.renewals == maxRenewals {
		return false
	}
	return g.Link.Expired(r) || r.StatusCode == http.StatusForbidden && g.Received > 0
}

func (g *Get) renew(ctx context.Context) error {
	link, err := g.Renew(ctx)
	if err != nil {
		return &RenewError{err}
	}
	g.Link = link
	return nil
}

// take writes the body of a response. more reports whether a part is still missing: storage
// may send less than was requested.
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
	more = resp.StatusCode == http.StatusPartialContent && g.Received != g.Total
	if more && g.etag == "" {
		return false, &CutError{io.ErrUnexpectedEOF} // nothing would prove that the rest belongs to the same file
	}
	return more, nil
}

// accept checks the header of a response. skip is the number of bytes at the start of its body
// that were written before, and left is the number of bytes after them. If left is negative, the
// rest of the body is needed.
func (g *Get) accept(resp *http.Response) (skip, left int64, err error) {
	part, ok := partOf(resp)
	etag, coding := tag(resp.Header), encoding(resp.Header)
	switch {
	case !ok, resp.StatusCode == http.StatusPartialContent && part.start != g.Received:
		return 0, 0, ErrUnexpected
	case g.Received == 0:
		g.Total, g.etag, g.encoding = part.total, etag, coding
	case etag != g.etag, coding != g.encoding, !part.fits(g.Total): // some storage ignores If-Range
		return 0, 0, ErrChanged
	}
	if g.Total = max(g.Total, part.total); part.end < 0 {
		part.end = g.Total - 1
	}
	return g.Received - part.start, part.end + 1 - g.Received, nil
}

// nothingLeft reports whether a refusal means that the file ends at the current offset. It is
// used only if the size is not known.
func (g *Get) nothingLeft(r *httpcall.Result) bool {
	switch {
	case r.StatusCode != http.StatusRequestedRangeNotSatisfiable, g.Received == 0, g.Total >= 0,
		r.Header["Etag"] != nil && tag(r.Header) != g.etag: // another version ends here
		return false
	}
	size := sizeForm().FindStringSubmatch(r.Header.Get("Content-Range"))
	return size != nil && number(size[1]) == g.Received
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

// broken returns the error of a body that ended too early.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &CutError{err}
}

// contentRange is a parsed Content-Range header.
type contentRange struct {
	start, end int64
	total      int64 // size of the file; -1 if not known
}

var rangeForm = lazy.Regexp(`^\s*(?i:bytes) ([0-9]+)-([0-9]+)/([0-9]+|\*)\s*$`)
var sizeForm = lazy.Regexp(`^\s*(?i:bytes) \*/([0-9]+)\s*$`) // of a 416 response

// parseContentRange reads "bytes 500-999/1000" and "bytes 500-999/*".
func parseContentRange(text string) (c contentRange, ok bool) {
	m := rangeForm().FindStringSubmatch(text)
	if m == nil {
		return c, false
	}
	c = contentRange{number(m[1]), number(m[2]), number(m[3])}
	return c, c.start >= 0 && c.start <= c.end && (m[3] == "*" || c.end < c.total)
}

// partOf returns which part of the file a response holds. end is below zero if the size of the
// body is not known, or if it is empty.
func partOf(resp *http.Response) (c contentRange, ok bool) {
	switch resp.StatusCode {
	case http.StatusOK:
		return contentRange{0, resp.ContentLength - 1, resp.ContentLength}, true
	case http.StatusPartialContent:
		kind := strings.ToLower(resp.Header.Get("Content-Type"))
		if strings.HasPrefix(kind, "multipart/byteranges") { // several parts, each with a header
			return c, false
		}
		return parseContentRange(resp.Header.Get("Content-Range"))
	}
	return c, false
}

// fits reports whether c can be a part of a file of this size, which is -1 if it is not known.
func (c contentRange) fits(total int64) bool {
	if total < 0 {
		return true
	}
	return c.end < total && (c.total < 0 || c.total == total)
}

// number returns -1 if digits is not a number.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// tag returns the strong entity tag of a response, which identifies its exact bytes, or "" if
// it has none or several.
func tag(h http.Header) string {
	if tags := h["Etag"]; len(tags) == 1 && strings.HasPrefix(tags[0], `"`) && tags[0] != `""` {
		return tags[0]
	}
	return ""
}

// encoding returns the Content-Encoding of a response. The same file has other bytes in
// another encoding.
func encoding(h http.Header) string {
	if e := strings.ToLower(strings.Join(h["Content-Encoding"], ",")); e != "identity" {
		return e
	}
	return ""
}
