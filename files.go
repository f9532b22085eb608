package svc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// File is a file record: a name and what the file is for. The contents are in object
// storage, where they can be reached only by presigned URLs.
type File struct {
	ID        string      `json:"id"`         // ID of the file, for all other calls
	FileName  string      `json:"file_name"`  // name from the register call
	Purpose   FilePurpose `json:"purpose"`    // value seen: FilePurposeFineTune
	CreatedAt Time        `json:"created_at"` // when the record was created; the service sends seconds since 1970
}

func (f *File) identity() (field, id string) { return "id", f.ID }

// PublicFile is a file record of the public list.
type PublicFile struct {
	File
	Token       Int    `json:"token"`       // a number; its meaning is not documented
	Length      Int    `json:"length"`      // a number; its meaning is not documented
	Bytes       Int    `json:"bytes"`       // size of the contents, in bytes
	Description string `json:"description"` // description by the service; may be empty
}

// RegisteredFile is a new file record, with the presigned URL for its contents.
type RegisteredFile struct {
	ID           string    `json:"id"`            // ID of the file, for all other calls
	PresignedURL SignedURL `json:"presigned_url"` // where [FileClient.Put] sends the contents; how long it is valid is not documented
}

func (f *RegisteredFile) identity() (field, id string) {
	if f.PresignedURL == "" {
		return "presigned_url", ""
	}
	return "id", f.ID
}

// A FileClient manages file records and moves their contents: see [Client.Files].
type FileClient struct{ client *Client }

const (
	files    = "/v1/files"
	fileByID = "/v1/files/{file_id}"
)

// RegisterFileRequest describes a file record to create.
type RegisterFileRequest struct {
	FileName string      `json:"file_name"`         // name of the record; required
	Purpose  FilePurpose `json:"purpose,omitempty"` // value seen: FilePurposeFineTune; if empty, not sent
}

func (r *RegisterFileRequest) problems() (p problems) {
	p.add(r.FileName == "", "file_name", "is required")
	return p
}

// Register creates a file record and returns the presigned URL for its contents.
// [FileClient.Upload] registers a file and sends its contents.
//
// The request is repeated only if it is known to have had no effect. If its outcome is not
// known, the error is an [OutcomeUnknownError]: a record with the name may exist.
// [FileClient.List] shows whether it exists.
//
// POST /v1/files
func (c *FileClient) Register(ctx context.Context, req RegisterFileRequest, opts ...RequestOption) (*RegisteredFile, error) {
	return c.register(ctx, req, 0, opts)
}

// register does the work of Register. If ctx ends before the response arrives, it waits for
// the response for up to linger more.
func (c *FileClient) register(ctx context.Context, req RegisterFileRequest, linger time.Duration, opts []RequestOption) (*RegisteredFile, error) {
	k := newCall(http.MethodPost, files, "", &req, req.problems(), opts)
	k.Linger = linger
	f, err := do[RegisteredFile](ctx, c.client, k)
	if errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w; FileClient.List shows whether the record exists", err)
	}
	return f, err
}

// List reads all file records of the account.
//
// GET /v1/files
func (c *FileClient) List(ctx context.Context, opts ...RequestOption) ([]File, error) {
	return doList[File](ctx, c.client, get(files, "", opts))
}

// ListPublic reads the public files. It needs no token and sends none.
//
// GET /v1/public-files
func (c *FileClient) ListPublic(ctx context.Context, opts ...RequestOption) ([]PublicFile, error) {
	k := get("/v1/public-files", "", opts)
	k.Auth = false
	return doList[PublicFile](ctx, c.client, k)
}

// Get reads one file record.
//
// GET /v1/files/{file_id}
func (c *FileClient) Get(ctx context.Context, id string, opts ...RequestOption) (*File, error) {
	return do[File](ctx, c.client, get(fileByID, id, opts))
}

// Delete deletes a file record. If a response is lost and the repeated request gets "not
// found" with the same token, Delete assumes that the first request deleted the record, and
// returns no error.
//
// DELETE /v1/files/{file_id}
func (c *FileClient) Delete(ctx context.Context, id string, opts ...RequestOption) error {
	return doDelete(ctx, c.client, fileByID, id, opts)
}

// PresignedURL requests a new presigned URL for the contents of a file. Whether the URL is for
// reading, for writing or for both is not documented. [FileClient.Download] reads from such a
// URL, and [FileClient.Replace] writes to such a URL.
//
// GET /v1/files/{file_id}/presigned_url
func (c *FileClient) PresignedURL(ctx context.Context, id string, opts ...RequestOption) (SignedURL, error) {
	l, err := do[freshLink](ctx, c.client, get(fileByID+"/presigned_url", id, opts))
	return orZero(l).PresignedURL, err
}

// freshLink is the response with a new presigned URL. It has no ID. A response without the
// URL is an error.
type freshLink struct {
	PresignedURL SignedURL `json:"presigned_url"`
}

func (l *freshLink) grow([]byte) {}

func (l *freshLink) check([]byte) (field string, err error) {
	if l.PresignedURL == "" {
		return "presigned_url", errMissing
	}
	return "", nil
}
