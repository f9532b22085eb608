package svc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/transfer"
	"example.com/svc/internal/valid"
)

// DownloadOptions controls a download. If nil, the defaults are used.
type DownloadOptions struct {
	// Progress is called with the number of bytes that were written so far, and with the size
	// of the file, or -1 if the size is not known. It is called at most ten times a second,
	// and once at the end. The calls come from the goroutine of the download. If nil, nothing is called.
	Progress func(received, total int64)

	// Header holds additional headers for every request to storage. If storage redirects a
	// request, the headers are sent there as well, even if that is another host.
	// Authorization, Cookie, Host, Range, Accept-Encoding and the framing headers are refused.
	// If nil, there are none.
	Header http.Header

	// IdleTimeout ends an attempt when no byte was received for this long, including while the
	// attempt waits for the response. It is suspended during a Write. 0 means 2 minutes. A
	// negative value means no limit. Only ctx limits the whole download.
	IdleTimeout time.Duration

	// RequestOptions apply to the API calls that the download makes: the requests for a
	// presigned URL. They do not apply to the requests to storage: use Header there. A
	// download from a link makes no API call, so it ignores them. If nil, there are none.
	RequestOptions []RequestOption
}

// A DownloadError records the progress of a download and why it failed.
type DownloadError struct {
	FileID   string    // ID of the file record; empty for a download by link
	Link     SignedURL // presigned URL that was used last
	Received int64     // number of bytes that were written
	Total    int64     // size of the file; -1 if not known
	Err      error     // an [Error] from storage, a [TransportError], or the error returned by the writer
}

// Error returns what happened and how many bytes were received, in one line.
func (e *DownloadError) Error() string {
	text := "svc: download"
	if e.FileID != "" {
		text += " of file " + e.FileID
	}
	switch {
	case e.Total >= 0:
		text += fmt.Sprintf(" (%d of %d bytes)", e.Received, e.Total)
	case e.Received > 0:
		text += fmt.Sprintf(" (%d bytes)", e.Received)
	}
	text += reason(e.Err)
	if errors.Is(e, ErrLinkExpired) {
		text += "; the link has expired: ask for a new link"
	}
	return apierr.Line(text)
}

// Format prints what Error returns, for every verb.
func (e *DownloadError) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.Error()) }

// Unwrap returns Err.
func (e *DownloadError) Unwrap() error { return e.Err }

// Is reports [ErrTruncated] when the contents were cut off.
func (e *DownloadError) Is(target error) bool {
	return target == ErrTruncated && cause.Has[*transfer.CutError](e.Err)
}

// DownloadURL writes the contents of a presigned URL, such as an output's media_url, to w, and
// returns the number of bytes written. The token is not sent, redirects are followed, and
// memory is constant.
//
// Before the first byte, the download is retried like any other GET. If it is cut off after
// that, it continues where it stopped, and no byte is written twice. This is possible only if
// storage shows by a strong ETag that the file has not changed. Without one, the error is
// [ErrTruncated]. If the file has changed, the error is [ErrChanged].
//
// The contents must be as long as the response announces. Without an announced length, a
// connection that is closed too early looks like the end of the file. Contents that are
// stored compressed are written compressed.
//
// An invalid link is a [ValidationError]. Any other error is a [DownloadError]. The end of
// ctx does not interrupt a Write that blocks.
//
// GET of the presigned URL
func (c *FileClient) DownloadURL(ctx context.Context, link SignedURL, w io.Writer, opts *DownloadOptions) (int64, error) {
	return c.client.download(opts).fromLink(link).into(ctx, w)
}

// DownloadURLFile writes the contents of a presigned URL to the file at path, as
// [FileClient.DownloadURL] does. The contents are written to a temporary file in the same directory
// (.svc-download-*.part), which is renamed to path when it is complete. Until then an existing
// file at path does not change. On failure the temporary file is removed. If the download is
// cut off and cannot continue where it stopped, it starts over.
//
// A symbolic link at path is followed, even if its target does not exist yet. A new file gets the
// permissions 0644 (before umask). An existing file keeps its permissions. The file is not synced
// to the disk. A path that is not a regular file, such as a device, is refused. On Linux, a file
// that is a mount point is refused as well. In both cases, open the file yourself and use
// DownloadURL.
//
// GET of the presigned URL
func (c *FileClient) DownloadURLFile(ctx context.Context, link SignedURL, path string, opts *DownloadOptions) (int64, error) {
	return c.client.download(opts).fromLink(link).intoFile(ctx, path)
}

// Download writes the contents of a file to w, by the rules of [FileClient.DownloadURL]. If the
// presigned URL expires, Download asks for a new one and continues.
//
// GET /v1/files/{file_id}/presigned_url, then GET of the presigned URL
func (c *FileClient) Download(ctx context.Context, id string, w io.Writer, opts *DownloadOptions) (int64, error) {
	return c.client.download(opts).ofFile(id).into(ctx, w)
}

// DownloadFile writes the contents of a file to the local file at path, by the rules of
// [FileClient.DownloadURLFile]. If the presigned URL expires, DownloadFile asks for a new one and
// continues.
//
// GET /v1/files/{file_id}/presigned_url, then GET of the presigned URL
func (c *FileClient) DownloadFile(ctx context.Context, id, path string, opts *DownloadOptions) (int64, error) {
	return c.client.download(opts).ofFile(id).intoFile(ctx, path)
}

// download is the state of one download.
type download struct {
	client   *Client
	get      transfer.Get
	link     SignedURL       // presigned URL that get uses
	fileID   string          // ID of the file record; empty for a download by link
	options  []RequestOption // options of the calls that request a link
	problems problems
}

func (c *Client) download(opts *DownloadOptions) *download {
	o := orZero(opts)
	d := &download{client: c, options: o.RequestOptions}
	d.get = transfer.Get{
		Caller: c.caller, Header: transfer.Header(o.Header, d.problems.add, "Range", "If-Range", "Accept-Encoding"),
		Idle: o.IdleTimeout, Progress: o.Progress, Total: -1,
	}
	return d
}

// fromLink sets the link that d downloads from, and returns d.
func (d *download) fromLink(link SignedURL) *download {
	var problem string
	d.link = link
	d.get.Link, problem = transfer.ParseLink(string(link), d.client.caller.Redactor())
	d.problems.add(problem != "", "link", problem)
	return d
}

// ofFile makes d download the contents of a file record, with links that it requests from the
// service, and returns d.
func (d *download) ofFile(id string) *download {
	d.problems.add(valid.ID(id) != "", "file_id", valid.ID(id))
	d.fileID = id
	d.get.Renew = func(ctx context.Context) (_ *transfer.Link, err error) {
		if d.link, err = d.client.Files.PresignedURL(ctx, id, d.options...); err != nil {
			return nil, err
		}
		link, problem := transfer.ParseLink(string(d.link), d.client.caller.Redactor())
		if problem != "" {
			return nil, invalid("link", problem)
		}
		return link, nil
	}
	return d
}

// into downloads the file to w. If that fails, it returns a DownloadError.
func (d *download) into(ctx context.Context, w io.Writer) (n int64, err error) {
	d.problems.add(w == nil, "w", "is nil")
	if err := d.problems.err(); err != nil {
		return 0, err
	}
	k := linkCall(http.MethodGet, d.fileID)
	ctx = d.client.begin(ctx, k)
	defer d.client.report(ctx, k, &err)
	d.get.W = w
	err = d.verdict(d.get.Run(ctx))
	k.Result.Attempts, k.done = d.get.Attempts, err == nil
	return d.get.Received, err
}

func (d *download) intoFile(ctx context.Context, path string) (int64, error) {
	if err := d.problems.err(); err != nil {
		return 0, err
	}
	f, err := transfer.NewFile(path)
	if err != nil {
		return 0, d.failed(d.client.safe(err))
	}
	defer f.Discard()
	d.get.Restart = f.Restart
	n, err := d.into(ctx, f)
	if err != nil {
		return n, err
	}
	if err := f.Commit(); err != nil {
		return n, d.failed(d.client.safe(err))
	}
	return n, nil
}

// verdict converts the results of Run into a DownloadError, or nil after success.
func (d *download) verdict(r *httpcall.Result, err error) error {
	g := &d.get
	write, isWrite := errors.AsType[*transfer.WriteError](err)
	switch {
	case r == nil && err == nil:
		return nil
	case err == nil:
		err = d.client.linkFailure(http.MethodGet, g.Link, r)
	case cause.Has[*transfer.RenewError](err): // err already describes the failed request for a link
	case isWrite:
		err = g.Link.Redact.Error(write.Err)
	case errors.Is(err, transfer.ErrChanged), errors.Is(err, transfer.ErrUnexpected): // a 2xx response
		err = fmt.Errorf("%w: %s", err, d.client.newError(linkResult(http.MethodGet, g.Link, r)).detail())
	default:
		err = &TransportError{RequestInfo: RequestInfo{Method: http.MethodGet, Route: transfer.Route}, Attempts: g.Attempts, Err: g.Link.Redact.Error(err)}
	}
	return d.failed(err)
}

func (d *download) failed(err error) error {
	return &DownloadError{
		FileID: d.client.clean(d.fileID), Link: d.link, Received: d.get.Received, Total: d.get.Total, Err: err,
	}
}

// linkCall returns the call that represents an upload or download in hooks and logs.
func linkCall(method, id string) *call {
	return &call{Call: httpcall.Call{Method: method, Route: transfer.Route, ID: id}, start: time.Now()}
}

// linkResult returns the call that represents the last request to storage in errors.
func linkResult(method string, link *transfer.Link, r *httpcall.Result) *call {
	return &call{Call: httpcall.Call{Method: method, Route: transfer.Route, Redact: link.Redact, Result: *r}}
}

// linkFailure returns the error of a request to storage that did not succeed.
func (c *Client) linkFailure(method string, link *transfer.Link, r *httpcall.Result) error {
	err := c.failure(linkResult(method, link, r))
	if e, ok := errors.AsType[*Error](err); ok {
		e.linkExpired = link.Expired(r)
	}
	return err
}
