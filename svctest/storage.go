package svctest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// storageError is an error response in the XML form of object storage. If code is empty,
// there is no such response to write.
type storageError struct {
	status        int
	code, message string
}

func (e storageError) write(w http.ResponseWriter, requestID string) {
	body, _ := xml.Marshal(struct { // never fails, since all fields are strings
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
		ID      string `xml:"RequestId"`
	}{Code: e.code, Message: e.message, ID: requestID})
	body = append([]byte(xml.Header), body...)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status)
	_, _ = w.Write(body)
}

// serveStorage serves presigned URLs.
func (s *Server) serveStorage(w http.ResponseWriter, x *exchange) {
	failed := checkLink(x.r, s.now())
	if failed.code == "" {
		if x.r.Method == http.MethodPut {
			failed = s.upload(w, x)
		} else {
			failed = s.download(w, x)
		}
	}
	if failed.code != "" {
		x.pause()
		failed.write(w, x.rec.RequestID)
	}
}

func (s *Server) download(w http.ResponseWriter, x *exchange) storageError {
	x.pause()
	s.mu.Lock()
	o := s.object(x.param, s.now())
	s.mu.Unlock()
	switch {
	case o == nil:
		return storageError{http.StatusNotFound, "NoSuchKey", "The specified key does not exist"}
	case o.open == nil:
		return storageError{http.StatusNotFound, "NoSuchKey", "The contents of this key have been discarded"}
	}
	w.Header().Set("Etag", o.etag)
	w.Header().Set("Content-Type", orDefault(o.contentType, "application/octet-stream"))
	http.ServeContent(w, x.r, "", o.stored, o.open())
	return storageError{}
}

// object returns the contents of a key: a file, or the media of a job. It returns nil if
// there are none.
func (s *Server) object(key string, now time.Time) *object {
	if o := s.objects[key]; o != nil {
		return o
	}
	id, ok := strings.CutPrefix(key, "media-")
	id, _, _ = strings.Cut(id, ".")
	if j := s.jobByID(id); ok && j != nil && j.deleted.IsZero() && j.hasOutputs(now) {
		return s.media
	}
	return nil
}

func (s *Server) upload(w http.ResponseWriter, x *exchange) storageError {
	r := x.r
	switch {
	case r.ContentLength < 0, r.Header.Get("Content-Length") == "":
		return storageError{http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header"}
	case s.cfg.maxObjectSize > 0 && r.ContentLength > s.cfg.maxObjectSize:
		return storageError{http.StatusBadRequest, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size"}
	case s.cfg.azure && r.Header.Get("X-Ms-Blob-Type") != "BlockBlob":
		x.pause()
		w.WriteHeader(http.StatusBadRequest)
		return storageError{}
	}
	o, failed := s.receive(r)
	if failed.code != "" {
		return failed
	}
	x.pause()
	s.mu.Lock()
	o.stored = s.now()
	s.objects[x.param] = o
	s.mu.Unlock()
	w.Header().Set("Etag", o.etag)
	w.Header().Set("Content-Length", "0")
	if s.cfg.azure {
		w.WriteHeader(http.StatusCreated)
	} else {
		w.WriteHeader(http.StatusOK)
	}
	return storageError{}
}

// receive reads an upload to its end. If the upload is cut off, nothing of it is stored.
func (s *Server) receive(r *http.Request) (*object, storageError) {
	sum := sha256.New()
	sinks := []io.Writer{sum}
	var contents bytes.Buffer
	if !s.cfg.discardContents {
		contents.Grow(int(min(r.ContentLength, 1<<20)))
		sinks = append(sinks, &contents)
	}
	var digest hash.Hash
	given := r.Header.Get("Content-Md5")
	if given != "" {
		digest = md5.New()
		sinks = append(sinks, digest)
	}
	size, err := io.Copy(io.MultiWriter(sinks...), r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has left
	}
	if digest != nil {
		want, err := base64.StdEncoding.DecodeString(given)
		switch {
		case err != nil || len(want) != md5.Size:
			return nil, storageError{http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified is not valid"}
		case !bytes.Equal(want, digest.Sum(nil)):
			return nil, storageError{http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received"}
		}
	}
	o := &object{size: size, contentType: r.Header.Get("Content-Type"), header: r.Header.Clone()}
	o.setSum(sum.Sum(nil))
	if !s.cfg.discardContents {
		o.open = func() io.ReadSeeker { return bytes.NewReader(contents.Bytes()) }
	}
	return o, storageError{}
}
