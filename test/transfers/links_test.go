package transfers_test

import (
	"bytes"
	"context"
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

// A reader that is at its end, for example after computing a checksum, is not sent as an
// empty file.
func TestUploadRefusesABodyAtItsEnd_C14(t *testing.T) {
	file := func(data string) *os.File {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	readers := map[string]func(data string) io.ReadSeeker{
		"strings.Reader": func(data string) io.ReadSeeker { return strings.NewReader(data) },
		"bytes.Reader":   func(data string) io.ReadSeeker { return bytes.NewReader([]byte(data)) },
		"file":           func(data string) io.ReadSeeker { return file(data) },
		"seeker":         func(data string) io.ReadSeeker { return seekOnly{strings.NewReader(data)} },
	}
	ways := map[string]func(c *svc.Client, body io.Reader, opts svc.UploadOptions) error{
		"Upload": func(c *svc.Client, body io.Reader, opts svc.UploadOptions) error {
			_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, UploadOptions: opts})
			return err
		},
		"Put": func(c *svc.Client, body io.Reader, opts svc.UploadOptions) error {
			_, err := c.Files.Put(t.Context(), uploadLink, body, &opts)
			return err
		},
		"Replace": func(c *svc.Client, body io.Reader, opts svc.UploadOptions) error {
			_, err := c.Files.Replace(t.Context(), "f1", body, &opts)
			return err
		},
	}
	first := map[string][]testkit.Reply{"Upload": {registered}, "Replace": {linked}}
	for name, make := range readers {
		for way, send := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				body := make("data")
				_, err := io.ReadAll(body)
				require.NoError(t, err)
				c, s := scripted(t)
				err = send(c, body, svc.UploadOptions{})
				invalid := testkit.ErrorAs[*svc.ValidationError](t, err)
				require.Len(t, invalid.Fields, 1)
				require.Equal(t, "Body", invalid.Fields[0].Field)
				require.ErrorContains(t, err, "nothing left after offset 4")
				require.ErrorContains(t, err, "AllowEmpty")
				require.Empty(t, s.Seen())

				c, s = scripted(t, append(first[way], testkit.Reply{Status: 200})...)
				require.NoError(t, send(c, body, svc.UploadOptions{AllowEmpty: true}))
				require.Empty(t, s.Seen()[len(s.Seen())-1].Body)

				c, _ = scripted(t, append(first[way], testkit.Reply{Status: 200})...)
				require.NoError(t, send(c, make(""), svc.UploadOptions{}), "an empty file needs no option")

				_, err = body.Seek(0, io.SeekStart)
				require.NoError(t, err)
				c, s = scripted(t, append(first[way], testkit.Reply{Status: 200})...)
				require.NoError(t, send(c, body, svc.UploadOptions{AllowEmpty: true}))
				require.Equal(t, "data", s.Seen()[len(s.Seen())-1].Body)
			})
		}
	}
	c, _ := scripted(t)
	body := strings.NewReader("data")
	_, _ = io.ReadAll(body)
	_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, Size: 4})
	require.ErrorIs(t, err, svc.ErrTruncated, "Size says that four bytes were expected")
}

// A symbolic link stays a symbolic link, even if its target does not exist yet.
func TestDownloadFileFollowsLinksWithoutATarget_C15(t *testing.T) {
	const data = "new contents"
	download := func(path string) error {
		c, _ := scripted(t, testkit.Reply{Status: 200, Body: data})
		_, err := c.Files.DownloadURLFile(t.Context(), uploadLink, path, nil)
		return err
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Skip(err)
		}
	}
	requireData := func(path string) {
		t.Helper()
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, data, string(got))
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular())
	}
	requireLinks := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&os.ModeSymlink, "%s is not a symbolic link any more", path)
		}
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("deep/er"), 0o700))

	link("target-1", at("relative"))
	link(at("target-2"), at("absolute"))
	link("second", at("first"))
	link("deep/third", at("second"))
	link("../target-3", at("deep/third"))
	link("deep/er", at("folder"))
	link("../target-4", at("deep/er/up"))        // relative to deep/er, not to folder
	link("folder/../target-5", at("through-up")) // relative to the target of folder
	for name, target := range map[string]string{
		"relative": "target-1", "absolute": "target-2", "first": "target-3", "folder/up": "deep/target-4", "through-up": "deep/target-5",
	} {
		require.NoError(t, download(at(name)), name)
		requireData(at(target))
		requireLinks(at(name))
		require.NoError(t, download(at(name)), "a second download, now that the target exists")
		requireData(at(target))
		requireLinks(at(name))
	}
	requireLinks(at("second"), at("deep/third"), at("folder"))

	link("circle-2", at("circle-1"))
	link("circle-1", at("circle-2"))
	link("nowhere/f", at("lost"))
	for _, name := range []string{"circle-1", "lost"} {
		c, s := scripted(t)
		_, err := c.Files.DownloadURLFile(t.Context(), uploadLink, at(name), nil)
		var pathErr *os.PathError
		require.ErrorAs(t, err, &pathErr, name)
		require.Empty(t, s.Seen(), "the error must come before the transfer")
		requireLinks(at(name))
	}
}

// The request options of a transfer apply to each of its API calls, but not to requests
// to storage.
func TestTransfersTakeRequestOptions_C26(t *testing.T) {
	mine := []svc.RequestOption{svc.WithHeader("X-Trace", "t1"), svc.WithQuery("tenant", "a b"), svc.WithHeader("X-Both", "every call")}
	body := func() io.Reader { return strings.NewReader("data") }
	up := svc.UploadOptions{RequestOptions: mine, DeleteOnFailure: true, RegisterOptions: []svc.RequestOption{
		svc.WithHeader("X-Both", "register"), svc.WithBodyField("expires_in", 60),
	}}
	down := &svc.DownloadOptions{RequestOptions: mine}
	for name, tt := range map[string]struct {
		replies []testkit.Reply
		do      func(c *svc.Client) error
		calls   int // number of API calls
	}{
		"Upload": {[]testkit.Reply{registered, expiredPut, linked, refusedPut, {Status: 204}}, func(c *svc.Client) error {
			_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body(), UploadOptions: up})
			require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.UploadError](t, err).Cleanup)
			return nil
		}, 3},
		"Replace": {[]testkit.Reply{linked, {Status: 200}}, func(c *svc.Client) error {
			_, err := c.Files.Replace(t.Context(), "f1", body(), &svc.UploadOptions{RequestOptions: mine})
			return err
		}, 1},
		"Download": {[]testkit.Reply{linked, expiredPut, linked, {Status: 200, Body: "data"}}, func(c *svc.Client) error {
			_, err := c.Files.Download(t.Context(), "f1", io.Discard, down)
			return err
		}, 2},
		"DownloadFile": {[]testkit.Reply{linked, {Status: 200, Body: "data"}}, func(c *svc.Client) error {
			_, err := c.Files.DownloadFile(t.Context(), "f1", filepath.Join(t.TempDir(), "f"), down)
			return err
		}, 1},
		"Download of a link": {[]testkit.Reply{{Status: 200, Body: "data"}}, func(c *svc.Client) error {
			_, err := c.Files.DownloadURL(t.Context(), uploadLink, io.Discard, down)
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := scripted(t, tt.replies...)
			require.NoError(t, tt.do(c))
			for _, r := range s.Seen() {
				if r.Host != "api.test" {
					require.Empty(t, r.Header.Get("X-Trace"))
					require.NotContains(t, r.Path, "tenant")
					continue
				}
				tt.calls--
				require.Equal(t, "t1", r.Header.Get("X-Trace"))
				require.True(t, strings.HasSuffix(r.Path, "?tenant=a+b"), r.Path)
				want := "every call"
				if r.Method == http.MethodPost {
					want = "register" // an option for one call overrides an option for all calls
					require.JSONEq(t, `{"file_name":"a","expires_in":60}`, r.Body)
				}
				require.Equal(t, want, r.Header.Get("X-Both"))
			}
			require.Zero(t, tt.calls)
		})
	}
	c, s := scripted(t, registered, expiredPut, linked, refusedPut, testkit.Reply{Status: 204})
	_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body(), UploadOptions: svc.UploadOptions{
		RequestOptions: []svc.RequestOption{svc.WithMaxAttempts(0)}}})
	require.ErrorContains(t, err, "WithMaxAttempts")
	require.Empty(t, s.Seen())
	s.Replies = nil
}

// linkTimes are the ways in which presigned URLs state when they expire.
var linkTimes = map[string]func(end time.Time) string{
	"Amazon": func(end time.Time) string {
		return "X-Amz-Date=" + end.Add(-time.Hour).UTC().Format("20060102T150405Z") + "&X-Amz-Expires=3600&X-Amz-Signature=sig-77c1e2"
	},
	"lower case": func(end time.Time) string {
		return "x-amz-date=" + end.Add(-time.Hour).UTC().Format("20060102T150405Z") + "&x-amz-expires=3600&x-amz-signature=sig-77c1e2"
	},
	"Google": func(end time.Time) string {
		return "X-Goog-Date=" + end.Add(-time.Minute).UTC().Format("20060102T150405Z") + "&X-Goog-Expires=60&X-Goog-Signature=sig-77c1e2"
	},
	"Azure": func(end time.Time) string {
		return "sv=2024-05-04&se=" + strings.ReplaceAll(end.UTC().Format(time.RFC3339), ":", "%3A") + "&sig=sig-77c1e2"
	},
	"seconds": func(end time.Time) string {
		return fmt.Sprintf("AWSAccessKeyId=AKIA&Expires=%d&Signature=sig-77c1e2", end.Unix())
	},
}

// If storage responds with 403, the expiry time in the URL shows whether it has expired,
// even if storage does not say so.
func TestLinkExpiresByItsOwnTimes_C41(t *testing.T) {
	const denied = `<?xml version="1.0"?><Error><Code>AuthorizationFailure</Code><Message>This request is not authorized.</Message></Error>`
	refuse := testkit.Reply{Status: 403, Body: denied}
	for name, query := range linkTimes {
		for _, left := range []time.Duration{-time.Minute, time.Minute} {
			t.Run(fmt.Sprint(name, left), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					link := func(left time.Duration) string { return "https://store.test/f1?" + query(time.Now().Add(left)) }
					asked := func(left time.Duration) testkit.Reply {
						return testkit.Reply{Status: 200, Body: `{"presigned_url":"` + link(left) + `"}`}
					}
					over := left < 0
					c, _ := scripted(t, refuse)
					_, err := c.Files.Put(t.Context(), svc.SignedURL(link(left)), strings.NewReader("data"), nil)
					require.Equal(t, over, errors.Is(err, svc.ErrLinkExpired))
					c, _ = scripted(t, refuse)
					_, err = c.Files.DownloadURL(t.Context(), svc.SignedURL(link(left)), io.Discard, nil)
					require.Equal(t, over, errors.Is(err, svc.ErrLinkExpired))

					replies := []testkit.Reply{asked(left), refuse}
					if over { // then the URL is renewed
						replies = append(replies, asked(time.Hour), testkit.Reply{Status: 200, Body: "data"})
					}
					c, _ = scripted(t, replies...)
					_, err = c.Files.Replace(t.Context(), "f1", strings.NewReader("data"), nil)
					require.Equal(t, over, err == nil)
					c, _ = scripted(t, replies...)
					_, err = c.Files.Download(t.Context(), "f1", io.Discard, nil)
					require.Equal(t, over, err == nil)
				})
			})
		}
	}
	t.Run("storage's clock", func(t *testing.T) { // the Date of the response decides
		old := uploadLink + "&Expires=" + fmt.Sprint(time.Now().Add(-time.Minute).Unix())
		for date, want := range map[time.Time]bool{time.Now().Add(-time.Hour): false, time.Now(): true} {
			c, _ := scripted(t, testkit.Reply{Status: 403, Body: denied, Header: map[string]string{"Date": date.UTC().Format(http.TimeFormat)}})
			_, err := c.Files.DownloadURL(t.Context(), svc.SignedURL(old), io.Discard, nil)
			require.Equal(t, want, errors.Is(err, svc.ErrLinkExpired))
		}
	})
	t.Run("times that are none", func(t *testing.T) {
		for _, query := range []string{"Expires=3600&sig=abcd", "se=x&sig=abcd", "X-Amz-Date=20240501T102030Z", "X-Amz-Expires=900", "X-Amz-Date=x&X-Amz-Expires=y", "Expires=-1"} {
			c, _ := scripted(t, refuse)
			_, err := c.Files.DownloadURL(t.Context(), svc.SignedURL("https://store.test/f1?"+query), io.Discard, nil)
			require.NotErrorIs(t, err, svc.ErrLinkExpired, query)
		}
	})
}

// A response that says that the URL expired counts, in whatever words it says so.
func TestLinkExpiresByTheWordsOfStorage_C41(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":"token out of date"}`:                                                  true,
		`{"error":"expired token"}`:                                                      true,
		`{"code":"expired_auth_token","message":"no"}`:                                   true,
		`{"message":"The presigned URL expired at 12:00"}`:                               true,
		`{"message":"it has expired"}`:                                                   true,
		`{"message":"Expired"}`:                                                          true,
		`<Error><Code>RequestExpired</Code></Error>`:                                     true,
		`<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>`: true,
		`<Error><Code>AuthenticationFailed</Code><AuthenticationErrorDetail>Signature not valid in the specified time frame</AuthenticationErrorDetail></Error>`: true,
		`{"message":"your subscription has expired"}`:                                  false,
		`{"message":"The license of this account expired; renew it to make requests"}`: false,
		`{"code":"SubscriptionExpired","message":"no"}`:                                false,
		`{"message":"certificate has expired"}`:                                        false,
		`{"message":"no"}`:                                                             false,
	} {
		for _, status := range []int{400, 401, 403, 410} {
			c, _ := scripted(t, testkit.Reply{Status: status, Body: body})
			_, err := c.Files.DownloadURL(t.Context(), uploadLink, io.Discard, nil)
			require.Equal(t, want || status == 410, errors.Is(err, svc.ErrLinkExpired), "%d %s", status, body)
		}
		c, _ := scripted(t, testkit.Reply{Status: 404, Body: body})
		_, err := c.Files.DownloadURL(t.Context(), uploadLink, io.Discard, nil)
		require.NotErrorIs(t, err, svc.ErrLinkExpired, body)
	}
	c, _ := scripted(t, linked, testkit.Reply{Status: 410}, linked, testkit.Reply{Status: 200, Body: "data"})
	n, err := c.Files.Download(context.Background(), "f1", io.Discard, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
}

// The fragment of a URL in a message stays readable, unless it may contain a secret.
func TestErrorsKeepTheFragmentsOfLinks_C43(t *testing.T) {
	for text, want := range map[string]string{
		"see https://docs.test/errors#quota-exceeded":          "see https://docs.test/errors#quota-exceeded",
		"see https://docs.test/errors#a/b?c":                   "see https://docs.test/errors#a/b?c",
		"see https://docs.test/errors?id=7#quota":              "see https://docs.test/errors?REDACTED",
		"see https://docs.test/cb#access_token=abc&state=open": "see https://docs.test/cb#REDACTED",
	} {
		c, _ := scripted(t, testkit.Reply{Status: 400, Body: `{"message":"` + text + `"}`})
		_, err := c.Files.Get(t.Context(), "f1")
		require.EqualError(t, err, "svc: GET /v1/files/{file_id}: 400 Bad Request: "+want+" (id f1)")
	}
}
