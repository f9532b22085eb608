package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// moody is a service with storage. It may accept an upload, refuse it, lose it, or report
// a wrong result.
type moody struct {
	t        *testing.T
	dice     dice
	want     int // the length that each upload must announce
	stored   []byte
	puts     int
	deleted  bool
	deletes  int
	links    int // number of requests for another presigned URL
	lastPath string
}

func (m *moody) answer(req *http.Request, status int, body string, header ...string) (*http.Response, error) {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: req, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

func (m *moody) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	switch req.Method {
	case http.MethodPost:
		_, _ = io.Copy(io.Discard, req.Body)
		return m.answer(req, 201, `{"id":"file-1","presigned_url":"https://storage.test/f?X-Amz-Signature=topsecret"}`)
	case http.MethodDelete:
		m.deletes++
		switch m.dice.roll(4) {
		case 1:
			return m.answer(req, 500, "")
		case 2:
			m.deleted = true
			return nil, io.ErrUnexpectedEOF
		}
		if m.deleted {
			return m.answer(req, 404, "{}")
		}
		m.deleted = true
		return m.answer(req, 204, "")
	case http.MethodGet:
		m.links++
		if m.dice.roll(4) == 1 {
			return m.answer(req, 404, "{}")
		}
		return m.answer(req, 200, `{"presigned_url":"https://storage.test/again?X-Amz-Signature=topsecret"}`)
	}
	return m.put(req)
}

func (m *moody) put(req *http.Request) (*http.Response, error) {
	m.puts++
	m.lastPath = req.URL.Path
	require.EqualValues(m.t, m.want, req.ContentLength)
	require.Empty(m.t, req.TransferEncoding)
	require.Empty(m.t, req.Header.Get("Authorization"))
	if m.want > 0 {
		require.NotNil(m.t, req.GetBody)
	}
	read := func(n int) ([]byte, error) {
		if req.Body == nil {
			return nil, nil
		}
		return io.ReadAll(io.LimitReader(req.Body, int64(n)))
	}
	some := m.want * m.dice.roll(256) / 256
	switch m.dice.roll(14) {
	case 1:
		_, _ = read(some)
		return nil, io.ErrUnexpectedEOF
	case 2:
		return m.answer(req, 503, "")
	case 3: // stored, but the response is lost
		if b, err := read(m.want + 1); err == nil && len(b) == m.want {
			m.stored = b
		}
		return nil, io.ErrUnexpectedEOF
	case 4:
		return m.answer(req, 307, "", "Location", "/elsewhere?X-Amz-Signature=topsecret")
	case 5:
		return m.answer(req, 302, "", "Location", "/elsewhere")
	case 6: // responds with 200, perhaps before it has the whole body; the client trusts this only if the transport reads nothing
		if b, err := read(max(some, 1)); err == nil && len(b) == m.want {
			m.stored = b
		}
		return m.answer(req, 200, "")
	case 7:
		_, _ = read(some)
		return m.answer(req, 403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
	case 8:
		_, _ = read(some)
		return m.answer(req, 500, "<Error><Code>InternalError</Code></Error>")
	case 9:
		_, _ = read(some)
		<-req.Context().Done()
		return nil, req.Context().Err()
	case 10:
		return m.answer(req, 411, "")
	}
	b, err := read(m.want + 1)
	if err != nil {
		return nil, err
	}
	if len(b) == m.want { // otherwise the connection was cut
		m.stored = b
		return m.answer(req, []int{200, 201, 204}[m.dice.roll(3)], "")
	}
	return nil, io.ErrUnexpectedEOF
}

// flaky is a reader that may fail or return short reads.
type flaky struct {
	data   []byte
	pos    int
	dice   dice
	fails  int // position at which Read fails; -1: never
	length int // the length that Seek reports
}

var errFlaky = errors.New("flaky reader")

func (f *flaky) Read(p []byte) (int, error) {
	if f.fails >= 0 && f.pos >= f.fails {
		return 0, errFlaky
	}
	if f.pos >= len(f.data) {
		return 0, io.EOF
	}
	end := len(f.data)
	if f.fails >= 0 {
		end = min(end, f.fails)
	}
	if f.dice.roll(4) == 1 {
		p = p[:(len(p)+1)/2]
	}
	n := copy(p, f.data[f.pos:end])
	f.pos += n
	if f.pos == len(f.data) && f.fails < 0 && f.dice.roll(2) == 1 {
		return n, io.EOF
	}
	return n, nil
}

type flakySeeker struct{ *flaky }

func (f flakySeeker) ReadAt(p []byte, off int64) (n int, err error) {
	at := flaky{data: f.data, pos: int(off), dice: f.dice, fails: f.fails}
	for n < len(p) && err == nil {
		var k int
		k, err = at.Read(p[n:])
		n += k
	}
	return n, err
}

func (f flakySeeker) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += int64(f.pos)
	case io.SeekEnd:
		off += int64(f.length)
	}
	f.pos = int(off)
	return off, nil
}

// fuzzBody makes a random kind of body with the contents want. Function left returns how
// many bytes are still unread. If bad is set, the body cannot be sent.
func fuzzBody(t *testing.T, dice *dice, dir string, want []byte) (r io.Reader, left func() int, bad bool) {
	t.Helper()
	skip := dice.roll(3)
	all := append(bytes.Repeat([]byte("-"), skip), want...)
	f := &flaky{data: all, pos: skip, fails: -1, length: len(all)}
	for range 8 {
		f.dice = append(f.dice, byte(dice.roll(256)))
	}
	kind := dice.roll(10)
	switch kind {
	case 0:
		b := bytes.NewReader(all)
		_, _ = b.Seek(int64(skip), io.SeekStart)
		return b, b.Len, false
	case 1:
		b := strings.NewReader(string(all))
		_, _ = b.Seek(int64(skip), io.SeekStart)
		return b, b.Len, false
	case 2:
		b := bytes.NewBuffer(all)
		b.Next(skip)
		return b, b.Len, false
	case 3:
		path := filepath.Join(dir, "body")
		require.NoError(t, os.WriteFile(path, all, 0o600))
		file, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		_, _ = file.Seek(int64(skip), io.SeekStart)
		return file, func() int {
			at, err := file.Seek(0, io.SeekCurrent)
			require.NoError(t, err, "Upload must not close the file")
			return len(all) - int(at)
		}, false
	case 4:
		return f, nil, false
	case 5:
		f.fails = skip + len(want)*dice.roll(256)/256
		return f, nil, true
	case 6:
		f.length = max(len(all)+dice.roll(3)-1, skip)                        // the source grew or shrank
		return flakySeeker{f}, nil, f.length != len(all) && f.length != skip // a source with length 0 is read anyway
	case 7:
		f.fails = skip + len(want)*dice.roll(256)/256
		return flakySeeker{f}, func() int { return len(all) - f.pos }, true
	case 8: // without ReadAt
		return struct{ io.ReadSeeker }{flakySeeker{f}}, func() int { return len(all) - f.pos }, false
	}
	return flakySeeker{f}, func() int { return len(all) - f.pos }, false
}

// If an upload succeeds, exactly the right contents are stored, whatever the service and
// the body do. If it fails, the error says at which stage, and what was cleaned up.
func FuzzUploadModel(f *testing.F) {
	for kind := range byte(10) {
		for mood := range byte(14) {
			f.Add([]byte{2, 1, 1, 2, 3, 4, 5, 6, 7, 8, kind, 0, 1, 0, 0, 128, mood})
			f.Add([]byte{3, 0, 1, 2, 3, 4, 5, 6, 7, 8, kind, 128, 1, 1, 1, 255, mood, 0, 1})
			f.Add([]byte{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, kind, 1, 0, 1, 0, mood, 0, mood, 9, mood})
		}
	}
	f.Fuzz(func(t *testing.T, story []byte) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		synctest.Test(t, func(t *testing.T) {
			dice := dice(story[:min(len(story), 200)])
			want := testkit.Contents([]int{0, 1, 5000, 150_000}[dice.roll(4)])
			body, left, bad := fuzzBody(t, &dice, dir, want)
			m := &moody{t: t, want: len(want)}
			if s, ok := body.(flakySeeker); ok && s.length > s.pos {
				m.want = s.length - s.pos
			}
			var said int64
			if dice.roll(4) == 1 {
				said = int64(dice.roll(3) + m.want - 1)
				bad = bad || said > 0 && said != int64(m.want)
			}
			said = max(said, 0)
			opts := svc.UploadOptions{DeleteOnFailure: dice.roll(2) == 1, IdleTimeout: 10 * time.Second, AllowEmpty: true}
			var told []int64
			if dice.roll(2) == 1 {
				opts.Progress = func(sent, total int64) {
					require.EqualValues(t, m.want, total)
					told = append(told, sent)
				}
			}
			before := 0
			if left != nil {
				before = left()
			}
			m.dice = dice
			result, err := testkit.ClientOn(t, m).Files.Upload(t.Context(), svc.UploadRequest{FileName: "demo", Body: body, Size: said, UploadOptions: opts})
			require.LessOrEqual(t, m.links, 1)
			require.LessOrEqual(t, m.puts, 20*(1+m.links))
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				require.Equal(t, "body", e.Name(), "no temporary file is left")
			}
			if err == nil {
				require.False(t, bad, "a body that cannot be sent was uploaded")
				require.True(t, m.puts > 0 && bytes.Equal(want, m.stored), "stored: %d of %d bytes", len(m.stored), len(want))
				require.EqualValues(t, len(want), result.Bytes)
				require.False(t, m.deleted)
				if left != nil {
					require.Zero(t, left(), "the body was read to its end")
				}
				if opts.Progress != nil {
					require.EqualValues(t, len(want), told[len(told)-1])
				}
				return
			}
			e := testkit.ErrorAs[*svc.UploadError](t, err)
			require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, e, e), "topsecret")
			if left != nil {
				require.Equal(t, before, left(), "the body must be back at its old position")
			}
			if e.Stage == svc.UploadStageBody {
				require.True(t, bad)
				require.Zero(t, m.puts)
				return
			}
			require.Equal(t, svc.UploadStagePut, e.Stage)
			require.Equal(t, "file-1", e.FileID)
			if opts.DeleteOnFailure {
				require.Equal(t, e.Cleanup == svc.CleanupDeleted, e.CleanupErr == nil)
				require.True(t, e.Cleanup != svc.CleanupDeleted || m.deleted)
			} else {
				require.Zero(t, m.deletes)
			}
		})
	})
}
