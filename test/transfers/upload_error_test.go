package transfers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// requireText checks the text of an error, under every verb of fmt.
func requireText(t *testing.T, err error, want string) {
	t.Helper()
	require.EqualError(t, err, want)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		require.Equal(t, want, fmt.Sprintf(verb, err), verb)
	}
}

// scripted returns a client whose API and storage give the replies in turn.
func scripted(t *testing.T, replies ...testkit.Reply) (*svc.Client, *testkit.Script) {
	s := testkit.Play(t, replies...)
	return s.Client(testkit.Tries(1, time.Second)), s
}

const uploadLink = "https://store.test/f1?X-Amz-Signature=sig-77c1e2"

var (
	registered = testkit.Reply{Status: 201, Body: `{"id":"f1","presigned_url":"` + uploadLink + `"}`}
	linked     = testkit.Reply{Status: 200, Body: `{"presigned_url":"` + uploadLink + `"}`}
	refusedPut = testkit.Reply{Status: 403, Body: `{"code":"AccessDenied","message":"no"}`}
	expiredPut = testkit.Reply{Status: 403, Body: `{"code":"AccessDenied","message":"Request has expired"}`}
)

// The text of an upload error says at which stage it failed, what exists now, and what to
// do.
func TestUploadErrorText(t *testing.T) {
	const refusal = "403 Forbidden: no (code AccessDenied)"
	const expiry = "403 Forbidden: Request has expired (code AccessDenied)"
	upload := func(req svc.UploadRequest) func(c *svc.Client) error {
		req.FileName = "a.jsonl"
		if req.Body == nil {
			req.Body = strings.NewReader("data")
		}
		return func(c *svc.Client) error { _, err := c.Files.Upload(t.Context(), req); return err }
	}
	put := func(c *svc.Client) error {
		_, err := c.Files.Put(t.Context(), uploadLink, strings.NewReader("data"), nil)
		return err
	}
	putFile := func(c *svc.Client) error {
		_, err := c.Files.Replace(t.Context(), "f1", strings.NewReader("data"), nil)
		return err
	}
	thenDelete := svc.UploadRequest{UploadOptions: svc.UploadOptions{DeleteOnFailure: true}}
	for name, tt := range map[string]struct {
		replies []testkit.Reply
		do      func(c *svc.Client) error
		want    string
	}{
		"body": {nil, upload(svc.UploadRequest{Size: 5}),
			`svc: upload of "a.jsonl": reading the body: the body ended after 4 of 5 bytes; nothing was sent`},
		"body too long": {nil, upload(svc.UploadRequest{Size: 3}),
			`svc: upload of "a.jsonl": reading the body: the body has more than the 3 bytes announced; nothing was sent`},
		"register": {[]testkit.Reply{{Status: 403, Body: `{"message":"no"}`}}, upload(svc.UploadRequest{}),
			`svc: upload of "a.jsonl": register: 403 Forbidden: no`},
		"put": {[]testkit.Reply{registered, refusedPut}, upload(svc.UploadRequest{}),
			`svc: upload of "a.jsonl": put: ` + refusal + `; the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"put, expired twice": {[]testkit.Reply{registered, expiredPut, linked, expiredPut}, upload(svc.UploadRequest{}),
			`svc: upload of "a.jsonl": put: PUT {presigned_url}: ` + expiry + `; the link was a new one, since the previous link had expired` +
				`; the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"put, expired, the new link refused": {[]testkit.Reply{registered, expiredPut, linked, refusedPut}, upload(svc.UploadRequest{}),
			`svc: upload of "a.jsonl": put: PUT {presigned_url}: ` + refusal + `; the link was a new one, since the previous link had expired` +
				`; the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"put, expired, no new link": {[]testkit.Reply{registered, expiredPut, {Status: 404}}, upload(svc.UploadRequest{}),
			`svc: upload of "a.jsonl": put: PUT {presigned_url}: ` + expiry + `; asking for a link: GET /v1/files/{file_id}/presigned_url: 404 Not Found (id f1); the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"put, deleted": {[]testkit.Reply{registered, refusedPut, {Status: 204}}, upload(thenDelete),
			`svc: upload of "a.jsonl": put: ` + refusal + `; the record was deleted`},
		"put, gone already": {[]testkit.Reply{registered, refusedPut, {Status: 404}}, upload(thenDelete),
			`svc: upload of "a.jsonl": put: ` + refusal + `; the record was deleted`},
		"put, not deleted": {[]testkit.Reply{registered, refusedPut, {Status: 403}}, upload(thenDelete),
			`svc: upload of "a.jsonl": put: ` + refusal + `; deleting the record failed: 403 Forbidden (id f1)` +
				`; the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"Put":          {[]testkit.Reply{refusedPut}, put, `svc: upload: put: ` + refusal},
		"Put, expired": {[]testkit.Reply{expiredPut}, put, `svc: upload: put: ` + expiry + `; the link has expired: get a new link from PresignedURL and call Put again`},
		"Replace": {[]testkit.Reply{linked, refusedPut}, putFile,
			`svc: upload: put: ` + refusal + `; the record f1 exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`},
		"Replace without a link": {[]testkit.Reply{{Status: 404}}, putFile,
			`svc: upload: put: asking for a link: GET /v1/files/{file_id}/presigned_url: 404 Not Found (id f1); no contents were sent for the record f1`},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := scripted(t, tt.replies...)
			err := tt.do(c)
			requireText(t, err, tt.want)
			require.Equal(t, strings.Contains(tt.want, expiry), errors.Is(err, svc.ErrLinkExpired))
			e := testkit.ErrorAs[*svc.UploadError](t, err)
			require.Equal(t, strings.Contains(tt.want, "was deleted"), e.Cleanup == svc.CleanupDeleted)
			require.Equal(t, strings.Contains(tt.want, "deleting the record failed"), e.CleanupErr != nil, "%v", e.CleanupErr)
			if e.Stage == svc.UploadStagePut && !strings.Contains(tt.want, "no contents were sent") {
				require.Equal(t, svc.SignedURL(uploadLink), e.Link)
			}
		})
	}
	require.EqualError(t, svc.ErrLinkExpired, "svc: the presigned link has expired")
}

// Invalid arguments are refused before the body is read and anything is sent. The error
// names all of them.
func TestUploadRefusalSaysWhy(t *testing.T) {
	c, _ := scripted(t)
	body := readOnly{strings.NewReader("data")}
	for want, try := range map[string]func() error{
		"file_name is required; Body is required (for an empty file, use bytes.NewReader(nil)); Size must not be negative": func() error {
			_, err := c.Files.Upload(t.Context(), svc.UploadRequest{Size: -1})
			return err
		},
		"link must be an absolute URL that starts with https:// or http://": func() error {
			_, err := c.Files.Put(t.Context(), "store.test/x", body, nil)
			return err
		},
		"link lost its signature when it was printed or encoded: ask the service for a new link, and store string(link)": func() error {
			_, err := c.Files.Put(t.Context(), svc.SignedURL(svc.SignedURL(uploadLink).String()), body, nil)
			return err
		},
		"file_id is empty": func() error { _, err := c.Files.Replace(t.Context(), " ", body, nil); return err },
		"ContentType is not a valid header value": func() error {
			_, err := c.Files.Replace(t.Context(), "f1", body, &svc.UploadOptions{ContentType: "a\nb"})
			return err
		},
		"ContentType cannot be set together with a Content-Type in Header": func() error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{ContentType: "a/b", Header: http.Header{"content-type": {"c/d"}}})
			return err
		},
		"Header has a name that is not valid": func() error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{Header: http.Header{"a b": nil}})
			return err
		},
		"Header Host cannot be set": func() error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{Header: http.Header{"host": nil}})
			return err
		},
		"Header X-A has a value that cannot be sent": func() error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{Header: http.Header{"X-A": {"1", "\n"}}})
			return err
		},
		"Header X-A is set twice, in two spellings": func() error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{Header: http.Header{"X-A": {"1"}, "x-a": {"2"}}})
			return err
		},
	} {
		err := try()
		require.EqualError(t, err, "svc: not sent: "+want)
		testkit.ErrorAs[*svc.ValidationError](t, err)
	}
	left, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "data", string(left))

	both := http.Header{"a b": {"1"}, "Host": {"2"}}
	for range 20 { // the order of a map is random
		_, err := c.Files.Put(t.Context(), uploadLink, body, &svc.UploadOptions{Header: both})
		require.Len(t, testkit.ErrorAs[*svc.ValidationError](t, err).Fields, 2)
	}
}

// Every upload function respects the options.
func TestUploadOptionsOfEveryKind(t *testing.T) {
	for name, do := range map[string]func(c *svc.Client, opts *svc.UploadOptions) (*svc.UploadResult, error){
		"UploadFile": func(c *svc.Client, opts *svc.UploadOptions) (*svc.UploadResult, error) {
			return c.Files.UploadFile(t.Context(), tempFile(t, []byte("data")).Name(), "", opts)
		},
		"Replace": func(c *svc.Client, opts *svc.UploadOptions) (*svc.UploadResult, error) {
			return c.Files.Replace(t.Context(), "f1", strings.NewReader("data"), opts)
		},
		"Put": func(c *svc.Client, opts *svc.UploadOptions) (*svc.UploadResult, error) {
			return c.Files.Put(t.Context(), uploadLink, strings.NewReader("data"), opts)
		},
	} {
		first := map[string][]testkit.Reply{"UploadFile": {registered}, "Replace": {linked}}[name]
		c, s := scripted(t, append(first, testkit.Reply{Status: 200, Header: map[string]string{"ETag": `"e1"`}})...)
		var told []int64
		result, err := do(c, &svc.UploadOptions{
			ContentType: "text/plain", Header: http.Header{"X-A": {"1"}}, Progress: func(sent, _ int64) { told = append(told, sent) },
		})
		require.NoError(t, err, name)
		require.Equal(t, `"e1"`, result.ETag)
		require.Equal(t, map[string]string{"UploadFile": "f1", "Replace": "f1"}[name], result.FileID)
		sent := s.Seen()[len(first)]
		require.Equal(t, "text/plain", sent.Header.Get("Content-Type"), name)
		require.Equal(t, "1", sent.Header.Get("X-A"), name)
		require.Equal(t, []int64{4}, told, name)
	}
}

// If a file cannot be opened, the error names it as any other upload error does.
func TestUploadFileThatIsNone(t *testing.T) {
	c, _ := scripted(t)
	_, err := c.Files.UploadFile(t.Context(), filepath.Join(t.TempDir(), "train.jsonl"), "", nil)
	require.ErrorContains(t, err, `svc: upload of "train.jsonl": reading the body: open `)
	require.ErrorContains(t, err, "; nothing was sent")
	require.Equal(t, "train.jsonl", testkit.ErrorAs[*svc.UploadError](t, err).FileName)
}

// If the service returns an invalid presigned URL, the upload returns an error and does
// not panic.
func TestUploadToALinkThatIsNone(t *testing.T) {
	c, _ := scripted(t, testkit.Reply{Status: 201, Body: `{"id":"f1","presigned_url":"ftp://store.test/f1"}`})
	_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data")})
	e := testkit.ErrorAs[*svc.UploadError](t, err)
	require.Equal(t, svc.UploadStagePut, e.Stage)
	require.Equal(t, "f1", e.FileID)
	require.Equal(t, svc.SignedURL("ftp://store.test/f1"), e.Link)
	testkit.ErrorAs[*svc.ValidationError](t, err)
}

// The record is deleted only with DeleteOnFailure, and only if the response reports
// success. The ID in an error response may be that of another record.
func TestUploadDeletesOnlyItsOwn(t *testing.T) {
	broken := testkit.Reply{Status: 201, Body: `{"id":"f1","presigned_u`}
	failed := testkit.Reply{Status: 502, Body: `{"id":"f1"}`}
	for name, tt := range map[string]struct {
		answer  testkit.Reply
		wanted  bool
		removed bool
	}{
		"wanted":     {broken, true, true},
		"not wanted": {broken, false, false},
		"not known":  {failed, true, false},
	} {
		replies := []testkit.Reply{tt.answer}
		if tt.removed {
			replies = append(replies, testkit.Reply{Status: 204})
		}
		c, _ := scripted(t, replies...)
		_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data"),
			UploadOptions: svc.UploadOptions{DeleteOnFailure: tt.wanted}})
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown, name)
		require.Equal(t, tt.removed, testkit.ErrorAs[*svc.UploadError](t, err).Cleanup == svc.CleanupDeleted, name)
	}
}

// With DeleteOnFailure, the upload waits for the response to the register call for up to
// ten seconds after the end of ctx. Without the ID in the response the record cannot be
// deleted.
func TestUploadAwaitsTheRecordThatItDeletes(t *testing.T) {
	for after, removed := range map[time.Duration]bool{10*time.Second - time.Millisecond: true, 10*time.Second + time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			late := registered
			late.After = time.Second + after
			replies := []testkit.Reply{late}
			if removed {
				replies = append(replies, testkit.Reply{Status: 204})
			}
			c, s := scripted(t, replies...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := c.Files.Upload(ctx, svc.UploadRequest{FileName: "a", Body: strings.NewReader("data"),
				UploadOptions: svc.UploadOptions{DeleteOnFailure: true}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, min(time.Second+after, 11*time.Second), time.Since(start))
			require.Equal(t, removed, testkit.ErrorAs[*svc.UploadError](t, err).Cleanup == svc.CleanupDeleted)
			require.Equal(t, !removed, errors.Is(err, svc.ErrOutcomeUnknown))
			require.Equal(t, "POST", s.Seen()[0].Method)
		})
	}
}

// If an API response says that something has expired, this does not mean the presigned
// URL.
func TestOnlyStorageSaysThatALinkHasExpired(t *testing.T) {
	denied := testkit.Reply{Status: 401, Body: `{"message":"the token has expired"}`}
	c, _ := scripted(t, denied, denied, denied)
	_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("data")})
	require.ErrorIs(t, err, svc.ErrUnauthorized)
	require.NotErrorIs(t, err, svc.ErrLinkExpired)
	_, err = c.Files.Replace(t.Context(), "f1", strings.NewReader("data"), nil)
	require.ErrorIs(t, err, svc.ErrUnauthorized)
	require.NotErrorIs(t, err, svc.ErrLinkExpired)
	_, err = c.Files.Download(t.Context(), "f1", io.Discard, nil)
	require.ErrorIs(t, err, svc.ErrUnauthorized)
	require.NotErrorIs(t, err, svc.ErrLinkExpired)
}
