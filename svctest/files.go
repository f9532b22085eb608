package svctest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// File is the state of a file: its record and what was uploaded for it.
// [Server.Files] lists all files, including deleted ones.
type File struct {
	// ID is the ID of the record.
	ID string
	// Name and Purpose are the file_name and purpose of the registration.
	Name, Purpose string
	// Public is true for a file of [Server.AddPublicFile].
	Public bool
	// CreatedAt is the time of the registration.
	CreatedAt time.Time
	// Deleted is true once the file was deleted. Its contents are deleted with it.
	Deleted bool
	// Uploaded is true if the file has contents: from a complete upload, or from
	// [Server.AddFile] or [Server.AddZeroFile]. The fields below describe the latest
	// contents. They are zero if there are no contents.
	Uploaded bool
	// Size is the length of the contents in bytes.
	Size int64
	// SHA256 is the checksum of the contents in hex. It is empty for a file of
	// [Server.AddZeroFile].
	SHA256 string
	// ContentType is the Content-Type header of the upload.
	ContentType string
	// UploadHeader holds all headers of the upload. It is nil if the contents are from
	// AddFile or AddZeroFile.
	UploadHeader http.Header
}

// PublicFile is a record of the public list, for [Server.AddPublicFile]. All
// fields are optional. They are sent unchanged.
type PublicFile struct {
	// Name is the file_name of the record.
	Name string
	// Purpose and Description are the purpose and description of the record.
	Purpose, Description string
	// Token, Length and Bytes are sent under the same names. The service does not
	// document their meaning.
	Token, Length, Bytes int64
}

type file struct {
	id, user, name, purpose string
	created                 time.Time
	deleted                 bool
	public                  *PublicFile
}

type fileRecord struct {
	ID        string `json:"id"`
	FileName  string `json:"file_name"`
	Purpose   string `json:"purpose"`
	CreatedAt int64  `json:"created_at"`
}

type publicFileRecord struct {
	fileRecord
	Token       int64  `json:"token"`
	Length      int64  `json:"length"`
	Bytes       int64  `json:"bytes"`
	Description string `json:"description"`
}

func (f *file) record() fileRecord {
	return fileRecord{f.id, f.name, f.purpose, f.created.Unix()}
}

// addFile gives f its ID. The ID is also the key of the contents in storage.
func (s *Server) addFile(f *file) *file {
	f.id = fmt.Sprintf("file-%d", len(s.files)+1)
	s.files = append(s.files, f)
	return f
}

func (s *Server) fileByID(id string) *file {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "file-"))
	if err != nil || n < 1 || n > len(s.files) || s.files[n-1].id != id || s.files[n-1].deleted {
		return nil
	}
	return s.files[n-1]
}

// ownFile returns the file of the request, or nil if it does not exist or belongs to another
// account.
func (s *Server) ownFile(c *call) *file {
	if f := s.fileByID(c.id); f != nil && f.user == c.user {
		return f
	}
	return nil
}

func (s *Server) listPublicFiles(*call) response {
	list := []publicFileRecord{}
	for _, f := range s.files {
		if p := f.public; p != nil && !f.deleted {
			list = append(list, publicFileRecord{f.record(), p.Token, p.Length, p.Bytes, p.Description})
		}
	}
	return response{value: list}
}

func (s *Server) listFiles(c *call) response {
	list := []fileRecord{}
	for _, f := range s.files {
		if f.public == nil && !f.deleted && f.user == c.user {
			list = append(list, f.record())
		}
	}
	return response{value: list}
}

// registerFile returns a presigned URL that allows PUT only.
func (s *Server) registerFile(c *call) response {
	f := &file{user: c.user, name: c.body.text("file_name", ""), purpose: c.body.text("purpose", ""), created: c.now}
	c.body.done()
	if a := c.body.invalid(); a.code != "" {
		return a
	}
	signed := http.Header{}
	if s.cfg.signedType != "" {
		signed.Set("Content-Type", s.cfg.signedType)
	}
	s.addFile(f)
	return response{value: map[string]string{"id": f.id, "presigned_url": s.link(f.id, c.now, signed, "PUT")}}
}

func (s *Server) getFile(c *call) response {
	if f := s.ownFile(c); f != nil {
		return response{value: f.record()}
	}
	return notFound("file")
}

func (s *Server) deleteFile(c *call) response {
	f := s.ownFile(c)
	if f == nil {
		return notFound("file")
	}
	f.deleted = true
	delete(s.objects, f.id)
	return response{value: struct{}{}}
}

// getFileLink returns a presigned URL that allows GET and PUT, since the contract does not
// document which of the two the URL allows.
func (s *Server) getFileLink(c *call) response {
	f := s.ownFile(c)
	if f == nil {
		return notFound("file")
	}
	return response{value: map[string]string{"presigned_url": s.link(f.id, c.now, nil, "GET", "PUT")}}
}

// AddFile adds a file with these contents and returns its ID.
func (s *Server) AddFile(name, purpose string, contents []byte) string {
	return s.seedFile(&file{name: name, purpose: purpose}, newObject(slices.Clone(contents), s.now()))
}

// AddZeroFile adds a file and returns its ID. The contents are size bytes, all of them
// zero. They need no memory, whatever the size.
func (s *Server) AddZeroFile(name, purpose string, size int64) string {
	return s.seedFile(&file{name: name, purpose: purpose}, newZeroObject(size, s.now()))
}

// AddPublicFile adds a record to the public list and returns its ID. The file has
// no contents.
func (s *Server) AddPublicFile(f PublicFile) string {
	return s.seedFile(&file{name: f.Name, purpose: f.Purpose, public: &f}, nil)
}

func (s *Server) seedFile(f *file, o *object) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.user, f.created = DefaultUser, s.now()
	s.addFile(f)
	if o != nil {
		s.objects[f.id] = o
	}
	return f.id
}

// FileContents returns the contents of a file. It returns false if the file does not
// exist, was deleted or has no contents, or if [WithDiscardContents] discarded them.
func (s *Server) FileContents(id string) ([]byte, bool) {
	s.mu.Lock()
	f, o := s.fileByID(id), s.objects[id]
	s.mu.Unlock()
	if f == nil || o == nil || o.open == nil {
		return nil, false
	}
	b, err := io.ReadAll(o.open())
	return b, err == nil
}

// Files lists all files in the order of creation, including deleted ones.
func (s *Server) Files() []File {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]File, 0, len(s.files))
	for _, f := range s.files {
		v := File{ID: f.id, Name: f.name, Purpose: f.purpose, Public: f.public != nil, CreatedAt: f.created, Deleted: f.deleted}
		if o := s.objects[f.id]; o != nil {
			v.Uploaded, v.Size, v.SHA256, v.ContentType, v.UploadHeader = true, o.size, o.sha256, o.contentType, o.header.Clone()
		}
		list = append(list, v)
	}
	return list
}
