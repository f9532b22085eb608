package transfers_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// piece is a response of storage to one request of a download.
type piece struct {
	status int
	header string // headers, as in "ETag: x|Content-Range: y"
	length int64  // Content-Length; -1: none
	body   string
	cut    bool // the connection breaks after the body
}

// pieces returns its responses in turn, and repeats the last one.
type pieces struct {
	all    []piece
	ranges []string // Range and If-Range of each request
}

func (p *pieces) RoundTrip(r *http.Request) (*http.Response, error) {
	p.ranges = append(p.ranges, strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")+" "+r.Header.Get("If-Range"))
	next := p.all[min(len(p.ranges), len(p.all))-1]
	h := http.Header{"Date": {"Wed, 01 May 2024 10:00:10 GMT"}}
	for line := range strings.SplitSeq(next.header, "|") {
		if key, value, ok := strings.Cut(line, ": "); ok {
			if key == "Date" {
				h.Del(key)
			}
			h.Add(key, value)
		}
	}
	var body io.Reader = strings.NewReader(next.body)
	if next.cut {
		body = io.MultiReader(body, iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return &http.Response{
		StatusCode: next.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: next.length, Body: io.NopCloser(body), Request: r,
	}, nil
}

// Which pieces a download may put together, and which it must not.
func TestDownloadOfPieces(t *testing.T) {
	const (
		whole = "0123456789"
		tag   = `ETag: "a"`
		weak  = `ETag: W/"a"`
		dated = "Last-Modified: Wed, 01 May 2024 10:00:00 GMT" // ten seconds before the Date of the response
		limit = 3                                              // number of attempts without new bytes
	)
	errNone := errors.New("no error, although the contents are not the usual ones")
	start := func(header string, length int64) piece { return piece{200, header, length, "01234", true} }
	rest := func(header string) piece { return piece{206, header, 5, "56789", false} }
	for name, tt := range map[string]struct {
		pieces []piece
		want   string   // the contents written
		err    error    // nil: no error if want is the whole contents, otherwise any error but ErrChanged
		ranges []string // the ranges requested after the first request
	}{
		"rest":                                           {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"rest, no tag beside it":                         {[]piece{start(tag, 10), rest("Content-Range: bytes 5-9/10")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"rest in two":                                    {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 5-6/10", 2, "56", false}, {206, tag + "|Content-Range: bytes 7-9/10", 3, "789", false}}, whole, nil, []string{`5 "a"`, `7 "a"`}},
		"rest, case and space":                           {[]piece{start(tag, 10), rest(tag + "|Content-Range:  Bytes 5-9/*")}, whole, nil, []string{`5 "a"`}},
		"rest of what had no length":                     {[]piece{start(tag, -1), rest(tag + "|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"no length, and no word of anything":             {[]piece{start(tag, -1), {416, "", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and nothing behind it_D27":           {[]piece{start(tag, -1), {416, tag + "|Content-Range: bytes */5", 0, "", false}}, "01234", errNone, []string{`5 "a"`}},
		"no length, and nothing behind it, no tag_D27":   {[]piece{start(tag, -1), {416, "Content-Range: bytes */5", 0, "", false}}, "01234", errNone, []string{`5 "a"`}},
		"no length, and the end has a weak tag":          {[]piece{start(tag, -1), {416, weak + "|Content-Range: bytes */5", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"rest to an unknown end_D27":                     {[]piece{start(tag, -1), rest(tag + "|Content-Range: bytes 5-9/*"), {416, tag + "|Content-Range: bytes */10", 0, "", false}}, whole, nil, []string{`5 "a"`, `10 "a"`}},
		"rest to an unknown end, and more":               {[]piece{start(tag, -1), {206, tag + "|Content-Range: bytes 5-6/*", 2, "56", false}, {206, tag + "|Content-Range: bytes 7-9/10", 3, "789", false}}, whole, nil, []string{`5 "a"`, `7 "a"`}},
		"rest to an unknown end, and no word of it":      {[]piece{start(tag, -1), {206, tag + "|Content-Range: bytes 5-6/*", 2, "56", false}, {416, tag, 0, "", false}}, "0123456", nil, []string{`5 "a"`, `7 "a"`}},
		"no length, but there is more":                   {[]piece{start(tag, -1), {416, tag + "|Content-Range: bytes */12", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, but there is less":                   {[]piece{start(tag, -1), {416, tag + "|Content-Range: bytes */4", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and the end is another's":            {[]piece{start(tag, -1), {416, `ETag: "b"|Content-Range: bytes */5`, 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and an end with a sign":              {[]piece{start(tag, -1), {416, tag + "|Content-Range: bytes */+5", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and an odd end":                      {[]piece{start(tag, -1), {416, tag + "|Content-Range: bytes 0-4/5", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and no sense at the end":             {[]piece{start(tag, -1), {416, tag + "|Content-Range: rubbish", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"no length, and another refusal":                 {[]piece{start(tag, -1), {400, tag + "|Content-Range: bytes */5", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"a length, and nothing behind it":                {[]piece{start(tag, 10), {416, tag + "|Content-Range: bytes */5", 0, "", false}}, "01234", nil, []string{`5 "a"`}},
		"rest beyond the end, no word of that":           {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 5-19/*", 15, "56789abcdefghij", false}}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"rest of a rest, beyond the end":                 {[]piece{start(tag, -1), {206, tag + "|Content-Range: bytes 5-6/10", 2, "56", false}, {206, tag + "|Content-Range: bytes 7-10/*", 4, "789a", false}}, "0123456", svc.ErrChanged, []string{`5 "a"`, `7 "a"`}},
		"nothing there at all":                           {[]piece{{416, tag + "|Content-Range: bytes */0", 0, "", false}}, "", nil, nil},
		"more than nothing":                              {[]piece{{200, tag, 0, "x", false}}, "", nil, nil},
		"empty":                                          {[]piece{{200, tag, 0, "", false}}, "", errNone, nil},
		"all as a part that nobody asked for_D28":        {[]piece{{206, "Content-Range: bytes 0-9/10", 10, whole, false}}, whole, nil, nil},
		"a part that nobody asked for, and the rest_D28": {[]piece{{206, tag + "|Content-Range: bytes 0-4/10", 5, "01234", false}, rest(tag + "|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"a part that nobody asked for, no tag":           {[]piece{{206, "Content-Range: bytes 0-4/10", 5, "01234", false}}, "01234", svc.ErrTruncated, nil},
		"a part that nobody asked for, too late":         {[]piece{{206, tag + "|Content-Range: bytes 1-9/10", 9, whole[1:], false}}, "", nil, nil},

		"all again":                        {[]piece{start(tag, 10), {200, tag, 10, whole, false}}, whole, nil, []string{`5 "a"`}},
		"all again, now with length":       {[]piece{start(tag, -1), {200, tag, 10, whole, false}}, whole, nil, []string{`5 "a"`}},
		"all again, now without":           {[]piece{start(tag, 10), {200, tag, -1, whole, false}}, whole, nil, []string{`5 "a"`}},
		"all again, never a length":        {[]piece{start(tag, -1), {200, tag, -1, whole, false}}, whole, nil, []string{`5 "a"`}},
		"all again, cut before the old":    {[]piece{start(tag, 10), {200, tag, 10, "012", true}, {200, tag, 10, whole, false}}, whole, nil, []string{`5 "a"`, `5 "a"`}},
		"all again, but short":             {[]piece{start(tag, 10), {200, tag, -1, "0123456", false}, rest(tag + "|Content-Range: bytes 7-9/10")}, "0123456", nil, []string{`5 "a"`, `7 "a"`}},
		"all again, with length and short": {[]piece{start(tag, -1), {200, tag, 10, "0123456", false}, {206, tag + "|Content-Range: bytes 7-9/10", 3, "789", false}}, whole, nil, []string{`5 "a"`, `7 "a"`}},
		"all again, but empty":             {[]piece{start(tag, 10), {200, tag, 0, "", false}}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"all again, ends before the old":   {[]piece{start(tag, -1), {200, tag, -1, "012", false}, {200, tag, -1, whole, false}}, whole, nil, []string{`5 "a"`, `5 "a"`}},
		"all again, and more":              {[]piece{start(tag, 10), {200, tag, -1, whole + "X", false}}, "01234", nil, []string{`5 "a"`}},

		"dated only":            {[]piece{start(dated, 10)}, "01234", svc.ErrTruncated, nil},
		"weakly tagged":         {[]piece{start(weak+"|"+dated, 10)}, "01234", svc.ErrTruncated, nil},
		"tagged, then weakly":   {[]piece{start(tag+"|"+dated, 10), rest(weak + "|" + dated + "|Content-Range: bytes 5-9/10")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"two tags":              {[]piece{start(tag+`|ETag: "b"`, 10)}, "01234", svc.ErrTruncated, nil},
		"a tag, then two":       {[]piece{start(tag, 10), rest(tag + `|ETag: "c"|Content-Range: bytes 5-9/10`)}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"the rest packed":       {[]piece{start(tag, 10), rest(tag + "|Content-Encoding: gzip|Content-Range: bytes 5-9/10")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"the rest unpacked":     {[]piece{start(tag+"|Content-Encoding: gzip", 10), rest(tag + "|Content-Range: bytes 5-9/10")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"packed as before":      {[]piece{start(tag+"|Content-Encoding: gzip", 10), rest(tag + "|Content-Encoding: GZIP|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"packed in nothing":     {[]piece{start(tag+"|Content-Encoding: identity", 10), rest(tag + "|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"all again, packed":     {[]piece{start(tag, 10), {200, tag + "|Content-Encoding: gzip", 10, whole, false}}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"parts with heads":      {[]piece{start(tag, 10), rest(tag + "|Content-Type: Multipart/ByteRanges; boundary=x|Content-Range: bytes 5-9/10")}, "01234", nil, []string{`5 "a"`}},
		"an odd type":           {[]piece{start(tag, 10), rest(tag + "|Content-Type: multipart|Content-Range: bytes 5-9/10")}, whole, nil, []string{`5 "a"`}},
		"a single byte":         {[]piece{{200, tag, 10, "0", true}, {206, tag + "|Content-Range: bytes 1-9/10", 9, "123456789", false}}, whole, nil, []string{`1 "a"`}},
		"a single byte, no tag": {[]piece{{200, "", 10, "0", true}}, "0", svc.ErrTruncated, nil},
		"tagged with nothing":   {[]piece{start(`ETag: ""`, 10)}, "01234", svc.ErrTruncated, nil},

		"tagged, then dated":                {[]piece{start(tag+"|"+dated, 10), rest(dated + "|Content-Range: bytes 5-9/10")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"another success":                   {[]piece{start(tag, 10), {203, tag + "|Content-Range: bytes 5-9/10", 5, "56789", false}}, "01234", nil, []string{`5 "a"`}},
		"a piece too late, and consistent":  {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 6-9/10", 4, "6789", false}}, "01234", nil, []string{`5 "a"`}},
		"a piece too early, and consistent": {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 4-9/10", 6, "456789", false}}, "01234", nil, []string{`5 "a"`}},
		"a piece too late":                  {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 6-9/10")}, "01234", nil, []string{`5 "a"`}},
		"a piece beyond the end":            {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-10/10")}, "01234", nil, []string{`5 "a"`}},
		"a piece backwards":                 {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-4/10")}, "01234", nil, []string{`5 "a"`}},
		"a piece in lines":                  {[]piece{start(tag, 10), rest(tag + "|Content-Range: lines 5-9/10")}, "01234", nil, []string{`5 "a"`}},
		"a piece with signs":                {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes +5-9/10")}, "01234", nil, []string{`5 "a"`}},
		"a piece without a total":           {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-9")}, "01234", nil, []string{`5 "a"`}},
		"a piece of less than nothing":      {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-9/-1")}, "01234", nil, []string{`5 "a"`}},
		"a piece of another total":          {[]piece{start(tag, 10), rest(tag + "|Content-Range: bytes 5-9/11")}, "01234", svc.ErrChanged, []string{`5 "a"`}},
		"more than announced":               {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 5-9/10", -1, "56789X", false}}, "01234", nil, []string{`5 "a"`}},
		"pieces that bring nothing":         {[]piece{start(tag, 10), {206, tag + "|Content-Range: bytes 5-9/10", 5, "", false}}, "01234", svc.ErrTruncated, []string{`5 "a"`, `5 "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				storage := &pieces{all: tt.pieces}
				var got bytes.Buffer
				began := time.Now()
				n, err := testkit.ClientOn(t, storage, testkit.Tries(limit, time.Second)).Files.DownloadURL(t.Context(), "https://store.test/f?X-Amz-Signature="+testkit.Signature, &got, nil)
				require.Equal(t, tt.want, got.String())
				require.EqualValues(t, len(tt.want), n)
				complete := tt.want == whole || tt.err == errNone
				require.Equal(t, complete, err == nil, "%v", err)
				if complete {
					require.NoError(t, err)
				} else if tt.err != nil {
					require.ErrorIs(t, err, tt.err)
				} else {
					require.NotErrorIs(t, err, svc.ErrChanged)
				}
				require.Equal(t, fmt.Sprint(tt.ranges), fmt.Sprint(storage.ranges[1:]))
				if name == "rest in two" { // the second part is requested without a delay
					require.Equal(t, time.Second, time.Since(began))
				}
				testkit.RequireSilent(t, err)
			})
		})
	}
}

// A presigned URL counts as expired only if the response says so, or refuses what the
// same URL allowed before.
func TestDownloadKeepsALinkThatWorks(t *testing.T) {
	for status, links := range map[int]int{403: 2, 404: 1, 400: 1, 401: 1, 501: 1} {
		cut := 5 - 4*testkit.One(status == 403) // one byte is enough to prove that the URL worked
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 2 {
				w.WriteHeader(status)
				return
			}
			ranges([]byte("0123456789"), `"a"`, cut)(n, w, r)
		})
		var got bytes.Buffer
		_, err := s.Client(t).Files.Download(t.Context(), "f1", &got, nil)
		require.Equal(t, links == 2, err == nil, "%d: %v", status, err)
		asked := 0
		for _, r := range s.Requests("GET") {
			asked += testkit.One(strings.HasSuffix(r.URL.Path, "/presigned_url"))
		}
		require.Equal(t, links, asked, "links asked for after a %d", status)
	}
}

// After the last announced byte the download succeeds, whatever the connection does then.
// The writer is never called without data.
func TestDownloadEndsWithItsLastByte(t *testing.T) {
	for _, size := range []int{1, 2, 70_000} {
		body := iotest.OneByteReader(bytes.NewReader(testkit.Contents(size)))
		reads := 0
		pausing := testkit.ReadFunc(func(p []byte) (int, error) {
			if reads++; reads%2 == 1 {
				return 0, nil
			}
			return body.Read(p)
		})
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: 200, Header: http.Header{}, ContentLength: int64(size), Request: r,
				Body: io.NopCloser(io.MultiReader(io.LimitReader(pausing, int64(size)), iotest.ErrReader(io.ErrUnexpectedEOF))),
			}, nil
		})
		var got bytes.Buffer
		n, err := testkit.ClientOn(t, storage, testkit.Tries(1, 1)).Files.DownloadURL(t.Context(), testkit.SignedLink, testkit.WriterFunc(func(p []byte) (int, error) {
			require.NotEmpty(t, p)
			return got.Write(p)
		}), nil)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		require.True(t, bytes.Equal(testkit.Contents(size), got.Bytes()))
	}
}

// If a writer returns an impossible count, the count of the download stays between 0 and
// the number of bytes.
func TestDownloadToAWriterThatCannotCount(t *testing.T) {
	for count, want := range map[int]int64{11: 10, 1 << 40: 10, 3: 3, -5: 0} {
		storage := &pieces{all: []piece{{200, `ETag: "a"`, 10, "0123456789", false}}}
		n, err := testkit.ClientOn(t, storage).Files.DownloadURL(t.Context(), testkit.SignedLink, testkit.WriterFunc(func([]byte) (int, error) { return count, nil }), nil)
		require.Equal(t, want, n)
		require.Equal(t, want == 10, err == nil, "%v", err)
	}
}

// A redirect may lead from http to https, but not back.
func TestDownloadRedirectsBetweenSchemes(t *testing.T) {
	for from, want := range map[string]bool{"http": true, "https": false} {
		to := map[string]string{"http": "https", "https": "http"}[from]
		replies := []testkit.Reply{{Status: 302, Header: map[string]string{"Location": to + "://other.test/b?sig=x"}}}
		if want {
			replies = append(replies, testkit.Reply{Status: 200, Body: "contents"})
		}
		var got bytes.Buffer
		_, err := testkit.Play(t, replies...).Client(testkit.Tries(1, 1)).Files.DownloadURL(t.Context(), svc.SignedURL(from+"://store.test/a?sig=x"), &got, nil)
		require.Equal(t, want, err == nil, "%s: %v", from, err)
	}
}

// The temporary file of a download has a valid name, even if the final name has the
// maximum length.
func TestDownloadFileWithTheLongestName(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 255), strings.Repeat("ü", 127)} {
		path := filepath.Join(t.TempDir(), name)
		n, err := testkit.Play(t, testkit.Reply{Status: 200, Body: "contents"}).Client().Files.DownloadURLFile(t.Context(), testkit.SignedLink, path, nil)
		require.NoError(t, err)
		require.EqualValues(t, 8, n)
		require.FileExists(t, path)
	}
}
