package svc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/transfer"
)

// UploadRequest is a file to register and to send.
type UploadRequest struct {
	FileName string      // of the record; required
	Purpose  FilePurpose // value seen: FilePurposeFineTune; empty: not sent

	// Body is sent from its current offset to its end. It is never closed. Required.
	//
	// A Body that can seek is read again for each attempt: an [os.File] on disk, a
	// [bytes.Reader] or [strings.Reader], any other [io.Seeker] that has bytes left, and
	// a [bytes.Buffer] too. It must not change during the call: another size is an error,
	// and so is another modification time of an [os.File]. After success its offset is
	// behind what was sent. After a failure its offset is the one of before the call.
	//
	// Any other Body, a pipe for example, is read to its end before anything is sent.
	// It is buffered: in memory up to 64 KiB, beyond that in a temporary file in
	// [os.TempDir], which is removed at the end. If ctx ends while a Read blocks, the
	// call returns and does not wait for that Read.
	Body io.Reader

	// Size is how many bytes Body must yield. Another number is an error, before
	// anything is sent. 0: as many as Body yields.
	Size int64

	UploadOptions
}

// UploadOptions are the options of an upload. The zero value is fine.
type UploadOptions struct {
	// ContentType of the contents. Empty: none is sent, since a presigned URL may be
	// signed for a request without one.
	ContentType string

	// Header is sent to storage with the contents, each value once and unchanged: for
	// storage that requires headers such as x-ms-blob-type. It follows redirects of
	// storage, to another host too. Besides it only User-Agent and the headers that
	// frame the message are sent, unless the transport of [WithHTTPClient] adds some.
	// Authorization, Cookie, Host and the framing headers are refused. Nil: none.
	Header http.Header

	// Progress is called with the number of bytes that were given to the connection and
	// with the size of the contents: at most ten times a second, and once at the end, when
	// storage has confirmed the upload. The calls come from other goroutines, one at a time,
	// and none after the upload has returned. If the contents have to be sent again,
	// sent starts at 0 again. Nil: none.
	Progress func(sent, total int64)

	// DeleteOnFailure deletes the record when its contents could not be sent, whatever
	// the reason: also when ctx has ended. The delete may take 30 s. False: the record
	// stays. Put and Replace do not use it.
	DeleteOnFailure bool

	// AllowEmpty sends an empty file if Body can seek and is at its end. False: such a Body
	// is a [ValidationError], since it was most likely read before, for example for a
	// checksum. A Body that is empty from its start, such as bytes.NewReader(nil), is sent in
	// either case.
	AllowEmpty bool

	// IdleTimeout ends an attempt when no byte has moved for this long, also while it waits
	// for the response. The time that Body takes does not count. A byte counts as moved when
	// the operating system has taken it. The system may buffer a few MB: on a slow line, set
	// a limit that is longer than sending those takes. 0: 2 minutes. Below 0: no limit. Only
	// ctx limits the whole upload.
	IdleTimeout time.Duration

	// RequestOptions go with every call of the API that the upload makes: register,
	// the requests for a presigned URL, and the delete of DeleteOnFailure. They do not
	// go to storage: see Header. [WithBodyField] is an error in the calls that have no
	// body, so it belongs in RegisterOptions. Nil: none.
	RequestOptions []RequestOption

	// RegisterOptions go with the register call alone. They are applied after
	// RequestOptions, and win where both set the same. Put and Replace do not use them.
	// Nil: none.
	RegisterOptions []RequestOption
}

// UploadResult describes an upload that succeeded.
type UploadResult struct {
	FileID     string      // of the record; empty after Put
	Bytes      int64       // size of the contents
	Attempts   int         // how often the contents were sent
	StatusCode int         // of storage's response; any 2xx is success
	ETag       string      // of the contents, as storage gave it; may be empty
	Header     http.Header // of storage's response, without secrets
}

// UploadStage is a part of an upload.
type UploadStage string

const (
	UploadStageBody     UploadStage = "reading the body" // nothing has been sent
	UploadStageRegister UploadStage = "register"         // there is no record; if Err is an OutcomeUnknownError, there may be one
	UploadStagePut      UploadStage = "put"              // the record exists, its contents may not; if Link is empty, nothing was sent to storage
)

// UploadError says how far an upload came and why it failed. To try again with the same
// record, call [FileClient.Replace] with the body.
type UploadError struct {
	Stage      UploadStage // where the upload failed
	FileName   string      // empty for Put and Replace
	FileID     string      // of the record; empty: there is none, or it is not known
	Link       SignedURL   // that the contents were put to; empty before that stage
	Cleanup    Cleanup     // what became of the record: CleanupNone, CleanupDeleted (the service confirmed it) or CleanupFailed
	CleanupErr error       // why the delete failed; nil unless Cleanup is CleanupFailed; errors.Is and errors.As do not look into it
	Err        error       // an [Error] of the service or of storage, a [TransportError], an [OutcomeUnknownError], or what Body returned
}

// Error says what happened, what exists, and what to do about it, in one line.
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
	_, noLink := e.Err.(*transfer.RenewError) //nolint:errorlint // within another error, there was a link before
	switch {
	case noLink:
		return text + "; nothing was sent to the record " + e.FileID
	case e.Stage == UploadStageBody:
		return text + "; nothing was sent"
	case e.Cleanup == CleanupDeleted:
		return text + "; the record was deleted"
	case e.FileID != "":
		if e.CleanupErr != nil {
			text += "; deleting the record failed" + reason(e.CleanupErr)
		}
		text += fmt.Sprintf("; the record %s exists, but its contents may be missing: call Replace to send them, or Delete", e.FileID)
	case errors.Is(e, ErrLinkExpired):
		text += "; the link has expired: ask PresignedURL for a new one and Put again"
	}
	return text
}

// reason is the text of an error for the end of another; empty if there is none.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return ": " + detail(err)
}

// Format prints what Error returns, under every verb.
func (e *UploadError) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.Error()) }

// Unwrap gives the reason.
func (e *UploadError) Unwrap() error { return e.Err }

// Is reports [ErrTruncated] when the body had fewer bytes than announced.
func (e *UploadError) Is(target error) bool {
	size, ok := errors.AsType[*transfer.SizeError](e.Err)
	return target == ErrTruncated && ok && size.Got < size.Want
}

// Upload registers a file and sends its contents to storage: with an exact
// Content-Length, without the token, in constant memory. The register call is repeated only
// while it certainly had no effect. Sending the contents is retried as a PUT is. When the
// presigned URL has expired, Upload asks for another one, once.
//
// A request that cannot be right is a [ValidationError]. Any other error is an
// [UploadError], which holds the ID of the record and says what exists.
//
// POST /v1/files, then PUT to the presigned URL and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) Upload(ctx context.Context, req UploadRequest) (*UploadResult, error) {
	register := &RegisterFileRequest{FileName: req.FileName, Purpose: req.Purpose}
	u := &upload{files: c, UploadOptions: req.UploadOptions, register: register, name: req.FileName}
	return u.run(ctx, register.problems(), req.Body, req.Size)
}

// UploadFile is [FileClient.Upload] of the file at path, whose last element gives
// the record its name. Nil options stand for the zero value.
//
// POST /v1/files, then PUT to the presigned URL and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) UploadFile(ctx context.Context, path string, purpose FilePurpose, opts *UploadOptions) (*UploadResult, error) {
	req := UploadRequest{FileName: filepath.Base(path), Purpose: purpose, UploadOptions: orZero(opts)}
	f, err := os.Open(path)
	if err != nil {
		u := upload{files: c, name: req.FileName}
		return nil, u.failed(ctx, UploadStageBody, c.client.safe(err))
	}
	defer f.Close()
	req.Body = f
	return c.Upload(ctx, req)
}

// Put sends contents to a presigned URL, such as one that [FileClient.Register]
// or [FileClient.PresignedURL] returned. It is the second half of
// [FileClient.Upload], and treats body the same way. Nil options stand for the
// zero value.
//
// PUT to the presigned URL
func (c *FileClient) Put(ctx context.Context, link SignedURL, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	c.client.parseLink(link, &p)
	u := &upload{files: c, link: link, UploadOptions: orZero(opts)}
	return u.run(ctx, p, body, 0)
}

// Replace sends the contents of a record that exists already: it asks for a presigned
// URL and puts them there. Contents that the record had are replaced. After an
// [UploadError], Replace continues with the record. Body and an expired presigned URL are
// treated as in [FileClient.Upload]. Nil options stand for the zero value.
//
// GET /v1/files/{file_id}/presigned_url, then PUT to the presigned URL
func (c *FileClient) Replace(ctx context.Context, id string, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	p.add(idProblem(id) != "", "file_id", idProblem(id))
	u := &upload{files: c, id: id, UploadOptions: orZero(opts)}
	return u.run(ctx, p, body, 0)
}

// upload is an upload and how far it has come.
type upload struct {
	UploadOptions
	files    *FileClient
	register *RegisterFileRequest // of a record to make; nil: there is one already, or a link is enough
	made     bool                 // there is such a record now
	name     string               // of that record
	id       string               // of the record; empty while there is none, and for Put
	link     SignedURL            // that the contents are put to
	header   http.Header
	src      *transfer.Source
}

// run reads the body as far as that has to be, gets a link, and sends the contents.
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
	if src.Size() == 0 && src.Before > 0 && !u.AllowEmpty {
		p.add(true, "Body", fmt.Sprintf("has nothing left after offset %d: seek to its start, or set AllowEmpty to send an empty file", src.Before))
		return nil, p.err()
	}
	u.src = src
	stage, err := u.begin(ctx)
	if err != nil {
		return nil, u.failed(ctx, stage, err)
	}
	result, err := u.put(ctx)
	if err != nil {
		return nil, u.failed(ctx, UploadStagePut, err)
	}
	sent = true
	return result, nil
}

// begin gets the record and the link, unless they were given. A body that cannot be read
// twice is already buffered when begin is called: buffering may take longer than a link is
// valid.
func (u *upload) begin(ctx context.Context) (UploadStage, error) {
	switch {
	case u.register == nil && u.link != "":
		return UploadStagePut, nil
	case u.register == nil:
		return UploadStagePut, u.askForLink(ctx)
	}
	var linger time.Duration
	if u.DeleteOnFailure {
		linger = createLinger // to learn what there is to delete
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

// askForLink gets another link for the contents. After an error the link stays the same.
func (u *upload) askForLink(ctx context.Context) error {
	link, err := u.files.PresignedURL(ctx, u.id, u.RequestOptions...)
	if err != nil {
		return &transfer.RenewError{Err: err}
	}
	u.link = link
	return nil
}

// put sends the contents. If the link has expired and there is a record, it asks for
// another link, once, and sends them again.
func (u *upload) put(ctx context.Context) (*UploadResult, error) {
	result, err := u.putOnce(ctx)
	expired, ok := errors.AsType[*Error](err)
	if !ok || !expired.linkExpired || u.id == "" {
		return result, err
	}
	if noLink := u.askForLink(ctx); noLink != nil {
		return nil, fmt.Errorf("%w; %w", err, noLink)
	}
	if result, err = u.putOnce(ctx); err != nil {
		return nil, fmt.Errorf("%w; this was a new link, the one before had expired", err)
	}
	result.Attempts += expired.Attempts
	return result, nil
}

// putOnce sends the contents to one link.
func (u *upload) putOnce(ctx context.Context) (*UploadResult, error) {
	var p problems
	c := u.files.client
	link := c.parseLink(u.link, &p)
	if err := p.err(); err != nil {
		return nil, err
	}
	r := transfer.Put(ctx, c.caller, link, u.header, idleLimit(u.IdleTimeout), u.src)
	if err := c.linkVerdict(http.MethodPut, link, r); err != nil {
		return nil, err
	}
	header := link.Redact.Header(r.Header)
	return &UploadResult{
		FileID: u.id, Bytes: u.src.Size(), Attempts: r.Attempts, StatusCode: r.StatusCode,
		ETag: header.Get("ETag"), Header: header,
	}, nil
}

// failed makes an UploadError. If the upload created the record and DeleteOnFailure is
// set, it deletes the record first, also when ctx has ended.
func (u *upload) failed(ctx context.Context, stage UploadStage, err error) error {
	clean := u.files.client.caller.Redactor().String // somebody may have given a secret for a name
	e := &UploadError{Stage: stage, FileName: clean(u.name), FileID: clean(u.id), Link: u.link, Err: err}
	if !u.made || !u.DeleteOnFailure {
		return e
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	e.Cleanup = CleanupDeleted
	if err := u.files.Delete(ctx, u.id, u.RequestOptions...); err != nil && !notFound(err) {
		e.Cleanup, e.CleanupErr = CleanupFailed, err
	}
	return e
}

// check makes the header of the PUT and notes what is wrong with the options.
func (u *upload) check(p *problems, body io.Reader) {
	p.add(body == nil, "Body", "is required (for an empty file, use bytes.NewReader(nil))")
	u.header = linkHeader(p, u.Header)
	if u.ContentType != "" {
		p.add(!headerValue(u.ContentType), "ContentType", "is not a header value")
		p.add(u.header["Content-Type"] != nil, "ContentType", "is set, and Header has one too")
		u.header["Content-Type"] = []string{u.ContentType}
	}
}
