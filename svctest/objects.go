package svctest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// object is the contents in storage under one key.
type object struct {
	size        int64
	sha256      string // checksum in hex; empty for an object of newZeroObject
	etag        string
	contentType string
	header      http.Header // headers of the upload
	stored      time.Time
	open        func() io.ReadSeeker // nil if the contents were discarded
}

func newObject(contents []byte, now time.Time) *object {
	sum := sha256.Sum256(contents)
	o := &object{size: int64(len(contents)), stored: now, open: func() io.ReadSeeker { return bytes.NewReader(contents) }}
	o.setSum(sum[:])
	return o
}

func (o *object) setSum(sum []byte) {
	o.sha256 = hex.EncodeToString(sum)
	o.etag = `"` + o.sha256[:32] + `"`
}

// newZeroObject returns an object of size bytes, all of them zero. They need no memory.
func newZeroObject(size int64, now time.Time) *object {
	return &object{
		size: size, etag: fmt.Sprintf(`"zeros-%d"`, size), stored: now,
		open: func() io.ReadSeeker { return &zeros{size: size} },
	}
}

// zeros reads like a file of size bytes, all of them zero.
type zeros struct{ size, at int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.at >= z.size {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.size-z.at)
	clear(p[:n])
	z.at += n
	return int(n), nil
}

func (z *zeros) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += z.at
	case io.SeekEnd:
		offset += z.size
	}
	if offset < 0 {
		return 0, errors.New("svctest: seek before the start")
	}
	z.at = offset
	return offset, nil
}
