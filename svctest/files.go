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

// File is a file record as the service sees it, deleted ones included, with
// what has been uploaded for it.
type File struct {
	ID, Name, Purpose string
	Public            bool
	CreatedAt         time.Time
	Deleted           bool
	Uploaded          bool
	Size              int64
	SHA256            string      // of the contents, in hex; empty for [Server.AddZeroFile]
	ContentType       string      // of the upload
	UploadHeader      http.Header // all headers of the upload; nil for a seeded file
}

// PublicFile is a record of the public list.
type PublicFile struct {
	Name, Purpose, Description string
	Token, Length, Bytes       int64
}

type file struct {
	id, name, purpose string
	created           time.Time
	deleted           bool
	public            *PublicFile
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

// add gives a file its ID. Its contents lie in storage under the same key.
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

func (s *Server) listPublicFiles(*call) response {
	list := []publicFileRecord{}
	for _, f := range s.files {
		if p := f.public; p != nil && !f.deleted {
			list = append(list, publicFileRecord{f.record(), p.Token, p.Length, p.Bytes, p.Description})
		}
	}
	return response{value: list}
}

func (s *Server) listFiles(*call) response {
	list := []fileRecord{}
	for _, f := range s.files {
		if f.public == nil && !f.deleted {
			list = append(list, f.record())
		}
	}
	return response{value: list}
}

// registerFile answers with a link that is for PUT alone.
func (s *Server) registerFile(c *call) response {
	f := &file{name: c.body.text("file_name", ""), purpose: c.body.text("purpose", ""), created: c.now}
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
	if f := s.fileByID(c.id); f != nil {
		return response{value: f.record()}
	}
	return notFound("file")
}

func (s *Server) deleteFile(c *call) response {
	f := s.fileByID(c.id)
	if f == nil {
		return notFound("file")
	}
	f.deleted = true
	delete(s.objects, f.id)
	return response{value: struct{}{}}
}

// getFileLink answers with a link for GET and PUT, since the contract does not
// say what it is for.
func (s *Server) getFileLink(c *call) response {
	f := s.fileByID(c.id)
	if f == nil {
		return notFound("file")
	}
	return response{value: map[string]string{"presigned_url": s.link(f.id, c.now, nil, "GET", "PUT")}}
}

// AddFile puts a file with contents into the service and returns its ID.
func (s *Server) AddFile(name, purpose string, contents []byte) string {
	return s.seedFile(&file{name: name, purpose: purpose}, newObject(slices.Clone(contents), time.Now()))
}

// AddZeroFile puts a file of so many zero bytes into the service and returns
// its ID. It needs no memory, so any size will do.
func (s *Server) AddZeroFile(name, purpose string, size int64) string {
	return s.seedFile(&file{name: name, purpose: purpose}, newZeroObject(size, time.Now()))
}

// AddPublicFile puts a record into the public list and returns its ID. It has
// no contents.
func (s *Server) AddPublicFile(f PublicFile) string {
	return s.seedFile(&file{name: f.Name, purpose: f.Purpose, public: &f}, nil)
}

func (s *Server) seedFile(f *file, o *object) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.created = time.Now()
	s.addFile(f)
	if o != nil {
		s.objects[f.id] = o
	}
	return f.id
}

// FileContents is what has been uploaded for a file. It is false when there
// is no such file, when nothing has been uploaded in full, and with
// [WithDiscardContents].
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

// Files lists all file records in the order of their creation.
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
