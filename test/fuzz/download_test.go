package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// fickle is a storage server whose contents change, whose connections break, and which
// may ignore ranges. It never claims the wrong contents: other contents have another
// ETag, though not always another date, and compressed contents have a Content-Encoding.
type fickle struct {
	dice     dice
	versions [][]byte
	changed  time.Time
	tag      int // 0: strong, 1: weak, 2: none
	dated    bool
	ranges   int // 0: served, 1: served even if If-Range does not match, 2: ignored
	chunked  bool
	packed   bool // the contents are sent compressed
	repacked bool // the compressed bytes have changed
	requests int
}

func newFickle(story []byte) *fickle {
	s := &fickle{dice: dice(story), changed: time.Now().Add(-time.Hour)}
	s.tag, s.dated, s.ranges, s.chunked = s.dice.roll(3), s.dice.roll(2) == 1, s.dice.roll(3), s.dice.roll(4) == 1
	s.change(false)
	return s
}

// change installs new contents. No byte of them is the same as before at the same
// position.
func (s *fickle) change(keepDate bool) {
	v := make([]byte, []int{0, 1, 1000, 70_000, 140_000}[s.dice.roll(5)])
	for i := range v {
		v[i] = byte(i*7 + i/256 + 101*len(s.versions))
	}
	s.versions = append(s.versions, v)
	if !keepDate {
		s.changed = time.Now()
	}
}

// pack simulates compression: it returns different bytes of the same length.
func pack(v []byte) []byte {
	packed := bytes.Clone(v)
	for i := range packed {
		packed[i] ^= 0x55
	}
	return packed
}

func (s *fickle) etag() string {
	switch s.tag {
	case 0:
		return fmt.Sprintf(`"v%d"`, len(s.versions))
	case 1:
		return fmt.Sprintf(`W/"v%d"`, len(s.versions))
	}
	return ""
}

func (s *fickle) answer(req *http.Request, status int, header http.Header, body []byte, length int, end error) *http.Response {
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: req, ContentLength: int64(length),
		Body: io.NopCloser(io.MultiReader(bytes.NewReader(body), testkit.ReadFunc(func([]byte) (int, error) { return 0, end }))),
	}
}

func (s *fickle) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests++
	switch s.dice.roll(6) {
	case 1:
		if len(s.versions) < 20 {
			s.change(false)
		}
	case 2:
		if len(s.versions) < 20 && s.tag < 2 { // without an ETag and with the same date, no client could see the change
			s.change(true)
		}
	}
	manyParts := false
	if s.dice.roll(5) == 1 {
		time.Sleep(700 * time.Millisecond)
	}
	header := make(http.Header)
	switch s.dice.roll(12) {
	case 1:
		return nil, io.ErrUnexpectedEOF
	case 2:
		return s.answer(req, 503, header, nil, 0, io.EOF), nil
	case 3:
		return s.answer(req, 403, header, []byte("<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"), -1, io.EOF), nil
	case 4:
		return s.answer(req, 416, header, nil, 0, io.EOF), nil
	case 5:
		return s.answer(req, 204, header, nil, 0, io.EOF), nil
	case 6:
		s.packed, s.repacked = !s.packed, true
	case 7:
		manyParts = true
	}
	whole := s.versions[len(s.versions)-1]
	if s.packed {
		whole = pack(whole)
		header.Set("Content-Encoding", "gzip")
	}
	if etag := s.etag(); etag != "" {
		header.Set("ETag", etag)
	}
	if s.dated {
		header.Set("Last-Modified", s.changed.UTC().Format(http.TimeFormat))
	}
	status, from, to := 200, 0, len(whole)
	start, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(req.Header.Get("Range"), "bytes="), "-"))
	if partial := err == nil && s.ranges < 2 && (s.ranges == 1 || s.matches(req.Header.Get("If-Range"), header)); partial {
		if start >= len(whole) {
			header.Set("Content-Range", fmt.Sprintf("bytes */%d", len(whole)))
			return s.answer(req, 416, header, nil, 0, io.EOF), nil
		}
		status, from = 206, start
		switch s.dice.roll(8) {
		case 1:
			to = from + (to-from+1)/2 // a shorter range than requested
		case 2:
			from = max(from-10, 0) // an earlier start than requested, as Content-Range says
		}
		total := strconv.Itoa(len(whole))
		if s.chunked {
			total = "*"
		}
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%s", from, to-1, total))
	}
	body, length, end := whole[from:to], to-from, io.EOF
	if status == 206 && manyParts {
		header.Set("Content-Type", "multipart/byteranges; boundary=x")
		body = bytes.Repeat([]byte("-"), length)
	}
	switch s.dice.roll(4) {
	case 1: // the body is cut off, with or without an error
		body = body[:len(body)*s.dice.roll(256)/256]
		if end = io.ErrUnexpectedEOF; s.dice.roll(2) == 1 && !s.chunked {
			end = io.EOF
		}
	case 2:
		if !s.chunked {
			body = append(body[:len(body):len(body)], "more than was announced"...)
		}
	}
	if s.chunked {
		length = -1
	}
	return s.answer(req, status, header, body, length, end), nil
}

func (s *fickle) matches(validator string, header http.Header) bool {
	if strings.HasPrefix(validator, `"`) {
		return validator == header.Get("ETag")
	}
	return validator == header.Get("Last-Modified")
}

// whole reports whether got is exactly one version of the contents.
func (s *fickle) whole(got []byte) bool {
	for _, v := range s.versions {
		if bytes.Equal(got, v) || bytes.Equal(got, pack(v)) {
			return true
		}
	}
	return false
}

// begins reports whether one version of the contents begins with got.
func (s *fickle) begins(got []byte) bool {
	for _, v := range s.versions {
		if bytes.HasPrefix(v, got) || bytes.HasPrefix(pack(v), got) {
			return true
		}
	}
	return false
}

// Whatever the storage server does, a download that succeeds has exactly one version of
// the contents. A download that fails has written the beginning of one version to its
// writer, or has left the file unchanged.
func FuzzDownloadModel(f *testing.F) {
	for tag := range byte(3) {
		for ranges := range byte(3) {
			for dated := range byte(2) {
				head := []byte{tag, dated, ranges, 0, 3}
				f.Add(head, false)
				f.Add(append(head, 0, 0, 0, 1, 100), true)                                           // cut off
				f.Add(append(head, 0, 0, 0, 1, 100, 0, 1, 3, 0, 0, 0, 1, 200), false)                // cut off, changed, cut off again
				f.Add(append(head, 0, 1, 0, 1, 100, 1, 0, 0, 3, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0), true) // slow, then the URL has expired
				f.Add(append([]byte{tag, dated, ranges, 1, 4}, 0, 0, 0, 1, 255, 0, 0, 0, 1, 1), false)
				for _, second := range [][]byte{{2, 3, 0, 0}, {0, 0, 6, 0}, {0, 0, 7, 0}} { // changed with the same date; compressed; multipart
					f.Add(append(append(head, 0, 0, 0, 1, 100, 0), second...), false)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, story []byte, toFile bool) {
		dir := ""
		if toFile {
			dir = t.TempDir()
		}
		synctest.Test(t, func(t *testing.T) {
			storage := newFickle(story[:min(len(story), 200)])
			client := testkit.ClientOn(t, storage)
			link := svc.SignedURL("https://storage.test/f?X-Amz-Signature=topsecret")
			var got []byte
			var n int64
			var err error
			if toFile {
				path := filepath.Join(dir, "f")
				require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
				n, err = client.Files.DownloadURLFile(t.Context(), link, path, nil)
				got, _ = os.ReadFile(path)
				entries, _ := os.ReadDir(dir)
				require.Len(t, entries, 1, "no temporary file is left")
			} else {
				var w bytes.Buffer
				n, err = client.Files.DownloadURL(t.Context(), link, &w, nil)
				got = w.Bytes()
			}
			require.LessOrEqual(t, storage.requests, 60)
			if err == nil {
				require.EqualValues(t, len(got), n)
				require.True(t, storage.whole(got), "%d bytes that are no version of the contents", len(got))
				return
			}
			e := testkit.ErrorAs[*svc.DownloadError](t, err)
			require.NotContains(t, err.Error(), "topsecret")
			require.Equal(t, n, e.Received)
			if toFile {
				require.Equal(t, "old", string(got))
				return
			}
			require.EqualValues(t, len(got), n)
			require.True(t, storage.begins(got), "%d bytes that are no version of the contents", len(got))
			if errors.Is(err, svc.ErrChanged) {
				require.True(t, len(storage.versions) > 1 || storage.repacked || storage.tag != 0 || storage.ranges == 2, "nothing has changed: %v", err)
			}
		})
	})
}
