package svc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"example.com/svc/internal/errbody"
	"example.com/svc/internal/transfer"
)

// UploadRequest is a file to be registered and sent.
type UploadRequest struct {
	FileName string      // that the record gets; required
	Purpose  FilePurpose // value seen: FilePurposeFineTune; empty: not sent

	// Body is sent from where it stands to its end. It is never closed.
	//
	// What can seek is read as often as it takes: an [os.File] on disk, a
	// [bytes.Reader] or [strings.Reader], a [bytes.Buffer], any other
	// [io.Seeker] that has something left. It must stay as it is during the call: one that grows or shrinks
	// meanwhile is an error, and so is an [os.File] that is written to, as its
	// modification time shows. After success it stands behind what was sent,
	// after a failure where it stood before.
	//
	// Anything else, a pipe for example, is read to its end before anything is
	// sent: into memory up to 64 KiB, beyond that into a temporary file in
	// [os.TempDir] with as much room as the body needs, which is removed again.
	// When ctx ends while such a Read blocks, the call returns and leaves that Read
	// to itself.
	Body io.Reader

	// Size is how many bytes Body must yield; another number is an error, before
	// anything is sent. 0: as many as it does.
	Size int64

	UploadOptions
}

// UploadOptions are the particulars of an upload. The zero value is fine.
type UploadOptions struct {
	// ContentType of the contents. Empty: none is sent, since a link may be signed
	// for a request without one.
	ContentType string

	// Header goes with the contents to storage, each value once and unchanged, and to
	// wherever storage redirects them, another host too: for storage that asks for its
	// own, such as x-ms-blob-type. Beyond it only
	// User-Agent and what frames the message are sent, unless the transport of
	// [WithHTTPClient] adds to it. Authorization, Cookie, Host and the framing
	// headers are refused.
	Header http.Header

	// Progress is told how many bytes have been handed to the connection and how
	// many there are: at most ten times a second, and once at the end, when storage
	// has confirmed all. It is called from other goroutines, one call at a time, and
	// not after the upload has returned. When the contents have to be sent anew,
	// sent starts over. A panic or [runtime.Goexit] in it while contents are sent ends the upload
	// with an error. Nil: none.
	Progress func(sent, total int64)

	// DeleteOnFailure deletes the record again when its contents could not be sent,
	// whatever the reason: also when ctx ends. The delete has a context of its own,
	// limited to 30 s. Put and PutFile do not use it.
	DeleteOnFailure bool

	// IdleTimeout ends an attempt in which no byte has moved for so long, the wait
	// for the answer included. The time that Body takes does not count. A byte has
	// moved when the system takes it: on a slow line the limit must leave it time to
	// send the few MB that it may hold. 0: 2 minutes; below 0: no limit. There is no
	// limit on the whole but ctx.
	IdleTimeout time.Duration

	// RegisterOptions go with the register call. Put and PutFile do not use them.
	RegisterOptions []RequestOption
}

// UploadResult tells of an upload that succeeded.
type UploadResult struct {
	FileID     string      // of the record; empty after Put, which knows none
	Bytes      int64       // size of the contents
	Attempts   int         // how often the contents were sent
	StatusCode int         // of storage's answer; any 2xx is success
	ETag       string      // of the contents, as storage gave it; may be empty
	Header     http.Header // of storage's answer, without secrets
}

// UploadStage is a part of an upload.
type UploadStage string

const (
	UploadStageBody     UploadStage = "reading the body"  // nothing has been sent
	UploadStageRegister UploadStage = "register"          // there is no record, or Err is an OutcomeUnknownError
	UploadStageLink     UploadStage = "asking for a link" // of PutFile: nothing was sent to storage
	UploadStagePut      UploadStage = "put"               // the record exists, its contents may not
)

// ErrLinkExpired: storage refused a presigned link because its time is over. Ask
// [FileClient.PresignedURL] for a new one.
var ErrLinkExpired = errors.New("svc: the presigned link has expired")

// UploadError says how far an upload came, and why no further. To try again with
// the same record, [FileClient.PutFile] the body again.
type UploadError struct {
	Stage      UploadStage
	FileName   string    // empty for Put and PutFile
	FileID     string    // of the record; empty: there is none, or it is not known
	Link       SignedURL // that the contents were put to; empty before that stage
	Removed    bool      // DeleteOnFailure deleted the record
	CleanUpErr error     // why it did not; errors.Is and errors.As do not look into it
	Err        error     // an [Error] of the service or of storage, a [TransportError], an [OutcomeUnknownError], or what Body returned

	name, id string // what FileName and FileID may show in a text
}

// Error says what happened, what exists, and what to do about it, in one line.
func (e *UploadError) Error() string { return errbody.Line(e.text()) }

func (e *UploadError) text() string {
	text, id := "svc: upload", orElse(e.id, e.FileID)
	if name := orElse(e.name, e.FileName); name != "" {
		text += fmt.Sprintf(" of %q", name)
	}
	text += fmt.Sprintf(": %s: %s", e.Stage, detail(e.Err))
	switch {
	case e.Stage == UploadStageLink:
		return text + "; nothing was sent to the record " + id
	case e.Stage == UploadStageBody:
		return text + "; nothing was sent"
	case e.Removed:
		return text + "; the record was deleted"
	case id != "":
		text += fmt.Sprintf("; the record %s exists, its contents may not: PutFile them again, or Delete it", id)
	case errors.Is(e, ErrLinkExpired):
		text += "; the link has expired: ask PresignedURL for a new one and Put again"
	}
	if e.CleanUpErr != nil {
		text += "; deleting it failed: " + detail(e.CleanUpErr)
	}
	return text
}

// Format prints what Error returns, under every verb.
func (e *UploadError) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.Error()) }

// Unwrap gives the reason.
func (e *UploadError) Unwrap() error { return e.Err }

// Is answers for [ErrLinkExpired], and for [ErrTruncated] when the body had fewer
// bytes than announced.
func (e *UploadError) Is(target error) bool {
	switch target {
	case ErrLinkExpired:
		return linkExpired(e.Err)
	case ErrTruncated:
		size, ok := errors.AsType[*transfer.SizeError](e.Err)
		return ok && size.Short()
	}
	return false
}

// Upload registers a file and sends its contents to storage: with an exact
// Content-Length, without the token, in constant memory. Contents are sent again
// when an attempt fails that may be repeated; the register call is repeated only
// as long as it certainly had no effect. When storage says that the link has
// expired, one other is asked for, as by [FileClient.PutFile].
//
// An error is a [ValidationError] when the request cannot be right, and else an
// [UploadError], which holds the id of the record and says what exists.
//
// POST /v1/files, then PUT to the presigned link and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) Upload(ctx context.Context, req UploadRequest) (*UploadResult, error) {
	register := RegisterFileRequest{FileName: req.FileName, Purpose: req.Purpose}
	p := register.problems()
	header := req.UploadOptions.check(&p, req.Body)
	p.add(req.Size < 0, "Size", "must not be negative")
	if err := p.err(); err != nil {
		return nil, err
	}
	failed := func(stage UploadStage, err error) *UploadError {
		return c.uploadError(UploadError{Stage: stage, FileName: req.FileName, Err: err})
	}
	src, err := transfer.NewSource(ctx, req.Body, req.Size, req.Progress)
	if err != nil {
		return nil, failed(UploadStageBody, c.client.safe(err))
	}
	sent := false
	defer func() { src.Finish(sent) }()

	var linger time.Duration
	if req.DeleteOnFailure {
		linger = createLinger // to learn what there is to delete
	}
	file, err := c.register(ctx, register, linger, req.RegisterOptions)
	if err != nil {
		e := failed(UploadStageRegister, err)
		known := false
		if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok {
			e.FileID, known = unknown.ID, unknown.created()
		}
		return nil, c.cleanUp(ctx, c.uploadError(*e), req.DeleteOnFailure && known)
	}
	result, link, err := c.put(ctx, file.ID, file.PresignedURL, src, header, req.IdleTimeout)
	if err != nil {
		e := failed(UploadStagePut, err)
		e.FileID, e.Link = file.ID, link
		return nil, c.cleanUp(ctx, c.uploadError(*e), req.DeleteOnFailure)
	}
	sent = true
	return result, nil
}

// UploadFile is [FileClient.Upload] of the file at path, whose last element gives
// the record its name. Nil options stand for the zero value.
//
// POST /v1/files, then PUT to the presigned link and perhaps DELETE
// /v1/files/{file_id}
func (c *FileClient) UploadFile(ctx context.Context, path string, purpose FilePurpose, opts *UploadOptions) (*UploadResult, error) {
	f, err := transfer.Open(ctx, path)
	if err != nil {
		return nil, c.uploadError(UploadError{Stage: UploadStageBody, FileName: filepath.Base(path), Err: c.client.safe(err)})
	}
	defer f.Close()
	req := UploadRequest{FileName: filepath.Base(path), Purpose: purpose, Body: f}
	if opts != nil {
		req.UploadOptions = *opts
	}
	return c.Upload(ctx, req)
}

// Put sends contents to a presigned link, such as one that [FileClient.Register]
// or [FileClient.PresignedURL] returned. It is the second half of
// [FileClient.Upload], and treats body the same way. Nil options stand for the
// zero value.
//
// PUT to the presigned link
func (c *FileClient) Put(ctx context.Context, link SignedURL, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	parseLink(link, &p)
	return c.putBody(ctx, p, "", link, body, opts)
}

// PutFile sends contents to a record that exists already, by asking for a link
// and putting them there: the second half of [FileClient.Upload], to be tried
// again after an [UploadError]. It treats body and an expired link the same way.
// Nil options stand for the zero value.
//
// GET /v1/files/{file_id}/presigned_url, then PUT to the link
func (c *FileClient) PutFile(ctx context.Context, id string, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var p problems
	p.add(idProblem(id) != "", "file_id", idProblem(id))
	return c.putBody(ctx, p, id, "", body, opts)
}

// putBody sends body to link, or for a record to one that it asks for when it has
// the body: reading that may take longer than a link lasts.
func (c *FileClient) putBody(ctx context.Context, p problems, id string, link SignedURL, body io.Reader, opts *UploadOptions) (*UploadResult, error) {
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	header := o.check(&p, body)
	if err := p.err(); err != nil {
		return nil, err
	}
	failed := func(stage UploadStage, link SignedURL, err error) error {
		return c.uploadError(UploadError{Stage: stage, FileID: id, Link: link, Err: err})
	}
	src, err := transfer.NewSource(ctx, body, 0, o.Progress)
	if err != nil {
		return nil, failed(UploadStageBody, "", c.client.safe(err))
	}
	sent := false
	defer func() { src.Finish(sent) }()
	if id != "" {
		if link, err = c.PresignedURL(ctx, id); err != nil {
			return nil, failed(UploadStageLink, "", err)
		}
	}
	result, link, err := c.put(ctx, id, link, src, header, o.IdleTimeout)
	if err != nil {
		return nil, failed(UploadStagePut, link, err)
	}
	sent = true
	return result, nil
}

// put sends the contents, and says to which link. When that has expired and id
// names a record it asks for another, once, and sends them again.
func (c *FileClient) put(ctx context.Context, id string, to SignedURL, src *transfer.Source, header http.Header, idle time.Duration) (*UploadResult, SignedURL, error) {
	result, err := c.putOnce(ctx, to, src, header, idle)
	if expired, ok := errors.AsType[*Error](err); ok && id != "" && linkExpired(err) {
		link, askErr := c.PresignedURL(ctx, id)
		if askErr != nil {
			return nil, to, &renewalError{err, "; asking for a new link: " + detail(askErr), askErr}
		}
		to = link
		if result, err = c.putOnce(ctx, to, src, header, idle); err != nil {
			return nil, to, &renewalError{err, "; this was a new link, the one before had expired", nil}
		}
		result.Attempts += expired.Attempts
	}
	if err != nil {
		return nil, to, err
	}
	result.FileID = id
	return result, to, nil
}

// renewalError says what became of an upload whose link had expired.
type renewalError struct {
	put    error
	note   string
	asking error // nil: there was a new link
}

func (e *renewalError) Error() string  { return e.put.Error() + e.note }
func (e *renewalError) detail() string { return detail(e.put) + e.note }
func (e *renewalError) Unwrap() []error {
	if e.asking != nil {
		return []error{e.put, e.asking}
	}
	return []error{e.put}
}

// putOnce sends the contents to one link.
func (c *FileClient) putOnce(ctx context.Context, to SignedURL, src *transfer.Source, header http.Header, idle time.Duration) (*UploadResult, error) {
	var p problems
	link := parseLink(to, &p)
	if err := p.err(); err != nil {
		return nil, err
	}
	put := transfer.Put{Chain: c.client.chain, Route: linkRoute, Link: link, Header: header, Idle: idleLimit(idle)}
	r := put.Run(ctx, src)
	if err := c.client.linkVerdict(http.MethodPut, link, r); err != nil {
		return nil, err
	}
	red := c.client.chain.Redactor()
	return &UploadResult{
		Bytes: src.Size(), Attempts: r.Attempts, StatusCode: r.StatusCode,
		ETag: link.Redact.String(red.String(r.Header.Get("ETag"))), Header: link.Redact.Header(red.Header(r.Header)),
	}, nil
}

// uploadError takes the secrets out of what the text of e shows: a caller may have
// given one for a name or an id by mistake.
func (c *FileClient) uploadError(e UploadError) *UploadError {
	clean := c.client.chain.Redactor().String
	e.name, e.id = clean(e.FileName), clean(e.FileID)
	return &e
}

// cleanUp deletes the record of a failed upload, which is known, if that is
// wanted, whatever became of ctx.
func (c *FileClient) cleanUp(ctx context.Context, e *UploadError, wanted bool) error {
	if !wanted {
		return e
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	err := c.Delete(ctx, e.FileID)
	if e.Removed = err == nil || notFound(err); !e.Removed {
		e.CleanUpErr = err
	}
	return e
}

// check makes the header of a PUT.
func (o *UploadOptions) check(p *problems, body io.Reader) http.Header {
	p.add(body == nil, "Body", "is required; an empty file is bytes.NewReader(nil)")
	header := linkHeader(p, o.Header)
	if o.ContentType != "" {
		p.add(!headerValue(o.ContentType), "ContentType", "is not a header value")
		p.add(header["Content-Type"] != nil, "ContentType", "is set, and Header has one too")
		header["Content-Type"] = []string{o.ContentType}
	}
	return header
}
