package svc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/transfer"
	"example.com/svc/internal/valid"
)

// UploadRequest describes a file to register and to send.
type UploadRequest struct {
	FileName string      // name of the file record; required
	Purpose  FilePurpose // value seen: FilePurposeFineTune; if empty, not sent

	// Body is sent from its current offset to its end. It is never closed. Required.
	//
	// A Body with ReadAt and Seek, such as an [os.File] on disk, a [bytes.Reader], a
	// [strings.Reader] or an [io.SectionReader], is read again for each attempt, by ReadAt. So
	// two uploads can share one file. A type that changes the Read of an embedded file must
	// change or hide its ReadAt as well. A [bytes.Buffer] is also read again for each attempt.
	// Such a Body must not change during the call: a changed size is an error, and so is a
	// changed modification time of an [os.File].
	//
	// Any other Body, a pipe for example, is read to its end before anything is sent. Its
	// contents are buffered: up to 64 KiB in memory, larger contents in a temporary file in
	// [os.TempDir], which is removed at the end. After a failure, open it again, since it has
	// been read.
	//
	// The offset of a Body that can seek moves only after success, to the end of the bytes
	// that were sent. After a failure, it is the same as before the call.
	//
	// If ctx ends while a Read or ReadAt blocks, the call returns and does not wait for it. One
	// goroutine remains until it returns. Do not use a Body without ReadAt before that, and set
	// its offset before you use it again.
	Body io.Reader

	// Size is the number of bytes that Body must yield. If Body yields more or fewer, the call
	// fails before anything is sent. If 0, Body may yield any number.
	Size int64

	UploadOptions
}

// UploadOptions controls an upload. A zero field selects its default.
type UploadOptions struct {
	// ContentType is the Content-Type of the contents. If empty, no Content-Type is sent, since a
	// presigned URL may be signed for a request without it.
	ContentType string

	// Header holds additional headers for the request to storage, such as x-ms-blob-type,
	// which some storage requires. Each value is sent once and unchanged. If storage redirects
	// the request, the headers are sent there as well, even if that is another host. The
	// only other headers are ContentType, User-Agent and those that frame the message, such as
	// Content-Length. The transport of [WithHTTPClient] may add more. Authorization, Cookie,
	// Host and the framing headers are refused. If nil, there are none.
	Header http.Header

	// Progress is called with the number of bytes that were given to the connection, and with
	// the size of the contents. It is called at most ten times a second, and once at the end,
	// when storage has confirmed the upload. The calls come from other goroutines, one at a
	// time, and there is no call after the upload has returned. If the contents have to be
	// sent again, sent starts at 0 again. If Progress or a method of Body panics, the upload fails,
	// and the panic then reaches its caller. If nil, nothing is called.
	Progress func(sent, total int64)

	// DeleteOnFailure deletes the record if its contents could not be sent, whatever the
	// reason: even if ctx has ended. The delete may take 30 s. If false, the record is not
	// deleted. Put and Replace make no record, so they refuse this option.
	DeleteOnFailure bool

	// AllowEmpty allows a Body whose offset is at its end, such as a file that was read before
	// to compute a checksum, and stores an empty file. If false, such a Body is a
	// [ValidationError]. A Body that has no contents at any offset, such as an empty file, is
	// always allowed, unless RefuseEmpty is set.
	AllowEmpty bool

	// RefuseEmpty refuses every Body without contents, such as the output of a program that
	// failed: it is a [ValidationError], and nothing is sent. It cannot be set together with
	// AllowEmpty. If false, see AllowEmpty.
	RefuseEmpty bool

	// IdleTimeout ends an attempt when no byte was sent or received for this long, including
	// while the attempt waits for the response. It is suspended while Body is read. A byte
	// counts as sent when the operating system has accepted it, and the system may buffer a
	// few MB: on a slow connection, set a limit that is longer than the time for sending them.
	// 0 means 2 minutes. A negative value means no limit. Only ctx limits the whole upload.
	IdleTimeout time.Duration

	// RequestOptions apply to every API call that the upload makes: the register call, the
	// requests for a presigned URL, and the delete of DeleteOnFailure. They do not apply to
	// the request to storage: use Header there. [WithBodyField] is an error in a call without
	// a body, so set it in RegisterOptions. Put makes no API call, so it refuses them. If nil, there are no
	// options.
	RequestOptions []RequestOption

	// RegisterOptions apply only to the register call. They are applied after RequestOptions,
	// so they override them. Put and Replace do not register a file, so they refuse them. If
	// nil, there are none.
	RegisterOptions []RequestOption
}

// UploadResult describes an upload that succeeded.
type UploadResult struct {
	FileID     string      // ID of the file record; empty after Put
	Bytes      int64       // size of the contents
	SHA256     string      // checksum of the Bytes that the request body held, as 64 hex digits in lower case; empty only if the transport of WithHTTPClient is not one of net/http and did not read the body
	Attempts   int         // number of requests that sent the contents
	StatusCode int         // status of storage's response, 200 to 299
	ETag       string      // ETag from storage's response; may be empty
	Header     http.Header // header of storage's response, without secrets
}

// UploadStage is a part of an upload.
type UploadStage string

const (
	UploadStageBody     UploadStage = "reading the body" // nothing was sent
	UploadStageRegister UploadStage = "register"         // there is no file record; if Err is an OutcomeUnknownError, there may be a record
	UploadStagePut      UploadStage = "put"              // the file record exists, but its contents may be missing in storage; if Link of the error is empty, nothing was sent to storage
)

// An UploadError records the stage at which an upload failed, and why. To try again with the
// same record, call [FileClient.Replace] with the body.
type UploadError struct {
	Stage      UploadStage // where the upload failed
	FileName   string      // name of the file record; empty for Put and Replace
	FileID     string      // ID of the file record; empty if there is no record, or its ID is not known
	Link       SignedURL   // presigned URL for the contents; empty if the upload had no URL yet
	Cleanup    Cleanup     // state of the record: CleanupNone, CleanupDeleted (the service confirmed it) or CleanupFailed
	CleanupErr error       // why the delete failed; nil unless Cleanup is CleanupFailed; errors.Is and errors.As do not inspect it
	Err        error       // an [Error] from the service or from storage, a [TransportError], an [OutcomeUnknownError], or the error returned by Body
}

// Error returns what happened, what exists, and what to do about it, in one line.
func (e *UploadError) Error() string { return apierr.Line(e.text()) }

func (e *UploadError) text() string {
	text := "svc: upload"
	if e.FileName != "" {
		text += fmt.Sprintf(" of %q", e.FileName)
	}
	if e.Stage != "" {
		text += ": " + string(e.Stage)
	}
	text += reason(e.Err)
	_, noLink := e.Err.(*transfer.RenewError) //nolint:errorlint // if it is wrapped, there was a link before
	switch {
	case noLink:
		return text + "; no contents were sent for the record " + e.FileID
	case e.Stage == UploadStageBody:
		return text + "; nothing was sent"
	case e.Cleanup == CleanupDeleted:
		return text + "; the record was deleted"
	case e.FileID != "":
		if e.CleanupErr != nil {
			text += "; deleting the record failed" + reason(e.CleanupErr)
		}
		text += fmt.Sprintf("; the record %s exists, but its contents may be missing: call Replace with a new reader to send them, or Delete", e.FileID)
	case errors.Is(e, ErrLinkExpired):
		text += "; the link has expired: get a new link from PresignedURL and call Put again"
	}
	return text
}

// reason returns the message of err as a suffix for another message, or "" if err is nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return ": " + detail(err)
}

// Format prints what Error returns, for every verb.
func (e *UploadError) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.Error()) }

// Unwrap returns Err.
func (e *UploadError) Unwrap() error { return e.Err }

// Is reports [ErrTruncated] when the body had fewer bytes than announced.
func (e *UploadError) Is(target error) bool {
	size, ok := errors.AsType[*transfer.SizeError](e.Err)
	return target == ErrTruncated && ok && size.Got < size.Want
}

// Upload registers a file and sends its contents to storage: with an exact Content-Length,
// without the token, in constant memory. The register call is repeated only if it is known to
// have had no effect. Sending the contents is retried like any other PUT. If the presigned URL
// has expired, Upload requests a new one, once.
//
// An invalid request is a [ValidationError]. Any other error is an [UploadError], which holds
// the ID of the record and what exists.
//
// POST /v1/files, then PUT to the presigned URL and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) Upload(ctx context.Context, req UploadRequest) (*UploadResult, error) {
	register := &RegisterFileRequest{FileName: req.FileName, Purpose: req.Purpose}
	u := &upload{files: c, UploadOptions: req.UploadOptions, register: register, name: req.FileName}
	return u.run(ctx, register.problems(), req.Body, req.Size)
}

// UploadFile uploads the file at path, as [FileClient.Upload] does. The record is named after
// the last element of path. If path is a named pipe, UploadFile waits until it has a writer, or
// until ctx ends. If opts is nil, the defaults are used.
//
// POST /v1/files, then PUT to the presigned URL and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) UploadFile(ctx context.Context, path string, purpose FilePurpose, opts *UploadOptions) (*UploadResult, error) {
	req := UploadRequest{FileName: filepath.Base(path), Purpose: purpose, UploadOptions: orZero(opts)}
	f, err := transfer.OpenFile(ctx, path)
	if err != nil {
		return nil, (&upload{files: c, name: req.FileName}).failed(ctx, UploadStageBody, c.client.safe(err))
	}
	defer f.Close()
	req.Body = f
	return c.Upload(ctx, req)
}

// Put sends contents to a presigned URL, such as one that [FileClient.Register] or
// [FileClient.PresignedURL] returned. Put does the second half of [FileClient.Upload], and
// reads body by the same rules. If opts is nil, the defaults are used.
//
// PUT to the presigned URL
func (c *FileClient) Put(ctx context.Context, link SignedURL, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	_, problem := transfer.ParseLink(string(link), c.client.caller.Redactor())
	p.add(problem != "", "link", problem)
	u := &upload{files: c, link: link, UploadOptions: orZero(opts)}
	return u.run(ctx, p, body, 0)
}

// Replace sends the contents of an existing record: it requests a presigned URL and sends the
// contents there. Earlier contents of the record are replaced. After an [UploadError], call
// Replace with its FileID to send the contents again. Replace reads body by the same rules as
// [FileClient.Upload], and requests a new URL, once, if the first has expired. If opts is nil,
// the defaults are used.
//
// GET /v1/files/{file_id}/presigned_url, then PUT to the presigned URL
func (c *FileClient) Replace(ctx context.Context, id string, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	p.add(valid.ID(id) != "", "file_id", valid.ID(id))
	u := &upload{files: c, id: id, UploadOptions: orZero(opts)}
	return u.run(ctx, p, body, 0)
}

// upload is the state of one upload.
type upload struct {
	UploadOptions
	files    *FileClient
	register *RegisterFileRequest // describes the record to create; nil for Put and Replace
	made     bool                 // this upload created the record
	name     string               // name of the record; empty for Put and Replace
	id       string               // ID of the record; empty if not known yet, or not needed (Put)
	link     SignedURL            // presigned URL that the contents are sent to
	header   http.Header          // header of the PUT
	src      *transfer.Source
}

// run buffers a body that cannot be read again, gets a link, and sends the contents.
func (u *upload) run(ctx context.Context, p problems, body io.Reader, size int64) (*UploadResult, error) {
	u.check(&p, body)
	p.add(size < 0, "Size", "must not be negative")
	if err := p.err(); err != nil {
		return nil, err
	}
	src, err := transfer.NewSource(ctx, body, size, u.Progress)
	if err != nil {
		return nil, u.failed(ctx, UploadStageBody, u.files.client.safe(err))
	}
	sent := false
	defer func() { src.Finish(sent) }()
	if src.Size() == 0 {
		p.add(u.RefuseEmpty, "Body", "is empty, and RefuseEmpty is set")
		p.add(!u.AllowEmpty && src.Before > 0, "Body", fmt.Sprintf("has nothing left after offset %d: seek to its start, or set AllowEmpty to send an empty file", src.Before))
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	u.src = src
	if u.link == "" {
		if stage, err := u.begin(ctx); err != nil {
			return nil, u.failed(ctx, stage, err)
		}
	}
	result, err := u.put(ctx)
	if err != nil {
		return nil, u.failed(ctx, UploadStagePut, err)
	}
	sent = true
	return result, nil
}

// begin creates the record, unless it exists, and gets the link. Call it after the body was
// buffered: buffering may take longer than a link is valid.
func (u *upload) begin(ctx context.Context) (UploadStage, error) {
	if u.register == nil {
		return UploadStagePut, u.askForLink(ctx)
	}
	var linger time.Duration
	if u.DeleteOnFailure {
		linger = createLinger // to learn the ID of the record, so that it can be deleted
	}
	file, err := u.files.register(ctx, *u.register, linger, slices.Concat(u.RequestOptions, u.RegisterOptions))
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok {
		u.id, u.made = unknown.ID, unknown.created()
	}
	if err != nil {
		return UploadStageRegister, err
	}
	u.id, u.link, u.made = file.ID, file.PresignedURL, true
	return UploadStagePut, nil
}

// askForLink requests a new link for the contents. After an error, u.link is unchanged.
func (u *upload) askForLink(ctx context.Context) error {
	link, err := u.files.PresignedURL(ctx, u.id, u.RequestOptions...)
	if err != nil {
		return &transfer.RenewError{Err: err}
	}
	u.link = link
	return nil
}

// put sends the contents. If the link has expired and the ID of the record is known, put
// requests a new link, once, and sends the contents again.
func (u *upload) put(ctx context.Context) (_ *UploadResult, err error) {
	c, k := u.files.client, linkCall(http.MethodPut, u.id)
	ctx = c.begin(ctx, k)
	defer c.report(ctx, k, &err)
	for renewed := false; ; renewed = true {
		link, problem := transfer.ParseLink(string(u.link), c.caller.Redactor())
		if err = invalid("link", problem); problem == "" {
			r, sum := transfer.Put(ctx, c.caller, link, u.header, u.IdleTimeout, u.src)
			k.Result.Attempts += r.Attempts
			if k.done = r.OK(); k.done {
				header := link.Redact.Header(r.Header)
				return &UploadResult{
					FileID: u.id, Bytes: u.src.Size(), SHA256: sum, Attempts: k.Result.Attempts, StatusCode: r.StatusCode,
					ETag: header.Get("ETag"), Header: header,
				}, nil
			}
			err = c.linkFailure(http.MethodPut, link, r)
		}
		expired, ok := errors.AsType[*Error](err)
		switch {
		case renewed:
			return nil, fmt.Errorf("%w; the link was a new one, since the previous link had expired", err)
		case !ok, !expired.linkExpired, u.id == "":
			return nil, err
		}
		if noLink := u.askForLink(ctx); noLink != nil {
			return nil, fmt.Errorf("%w; %w", err, noLink)
		}
	}
}

// failed returns an UploadError. If the upload created the record and DeleteOnFailure is set,
// failed deletes the record first, even when ctx has ended.
func (u *upload) failed(ctx context.Context, stage UploadStage, err error) error {
	clean := u.files.client.clean // the caller may have used a secret as a name or ID
	e := &UploadError{Stage: stage, FileName: clean(u.name), FileID: clean(u.id), Link: u.link, Err: err}
	if !u.made || !u.DeleteOnFailure {
		return e
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupLimit, errCleanup)
	defer cancel()
	e.Cleanup = CleanupDeleted
	if err := u.files.Delete(ctx, u.id, u.RequestOptions...); err != nil && !notFound(err) {
		e.Cleanup, e.CleanupErr = CleanupFailed, err
	}
	return e
}

// check returns the header of the PUT, and adds the problems of the options to p.
func (u *upload) check(p *problems, body io.Reader) {
	p.add(body == nil, "Body", "is required (for an empty file, use bytes.NewReader(nil))")
	p.add(u.AllowEmpty && u.RefuseEmpty, "RefuseEmpty", "cannot be set together with AllowEmpty")
	if u.register == nil {
		p.add(u.DeleteOnFailure, "DeleteOnFailure", "has no effect here: only Upload and UploadFile make a record")
		p.add(len(u.RegisterOptions) > 0, "RegisterOptions", "have no effect here: only Upload and UploadFile register a file")
	}
	p.add(u.link != "" && len(u.RequestOptions) > 0, "RequestOptions", "have no effect here: Put makes no API call (use Header for the request to storage)")
	u.header = transfer.Header(u.Header, p.add)
	if u.ContentType != "" {
		p.add(!valid.HeaderValue(u.ContentType), "ContentType", "is not a valid header value")
		p.add(u.header["Content-Type"] != nil, "ContentType", "cannot be set together with a Content-Type in Header")
		u.header["Content-Type"] = []string{u.ContentType}
	}
}
