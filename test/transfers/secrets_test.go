package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// requireHides prints an error in every format, alone and inside other values, and checks
// that no secret is visible in any encoding.
func requireHides(t *testing.T, err error, secrets ...string) {
	t.Helper()
	p := testkit.NewPrinted()
	p.AddError(err, func(err error) { p.Add(err, testkit.Formats); p.AddParts(err) })
	for _, secret := range append(secrets, testkit.Secrets...) {
		p.RequireWithout(t, testkit.NeedlesOf(secret))
	}
}

// transfers has an upload and a download.
var transfers = map[string]func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error){
	"download": func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error) {
		return c.Files.DownloadURL(ctx, link, io.Discard, nil)
	},
	"put": func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error) {
		return c.Files.Put(ctx, link, strings.NewReader("contents"), nil)
	},
}

// A presigned URL may redirect to a URL with secrets of its own. These secrets are
// redacted as well.
func TestSecretsOfRedirectTargets(t *testing.T) {
	const (
		second   = "SECOND-ab12cd34ef"
		password = "PASS+word/99"
		fragment = "FRAGMENT-0a9b8c7d"
		third    = "THIRD token/=77"
	)
	secrets := []string{testkit.Signature, testkit.SessionKey, testkit.Token, second, password, fragment, third, url.QueryEscape(third)}
	target := "/two?sig=" + second + "&lang=de&note=" + url.QueryEscape(third) + "#access_token=" + fragment
	quote := "no: " + target + " and " + second + " and " + third + " or " + password + " or " + fragment
	for name, end := range map[string]func(w http.ResponseWriter, r *http.Request){
		"403 body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", second, html.EscapeString(quote))
		},
		"403 json": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(403)
			fmt.Fprintf(w, `{"message":%q,"code":%q,"request_id":%q}`, quote, third, fragment)
		},
		"503 headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", second)
			w.Header().Set("X-Echo", quote)
			w.Header().Set("ETag", `"`+third+`"`)
			w.WriteHeader(503)
		},
		"success": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", second)
			w.Header().Set("X-Echo", quote)
			w.Header().Set("ETag", `"`+second+`"`)
			w.WriteHeader(http.StatusPartialContent) // 206 is not a valid response to a request without a range
		},
		"not followed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "ftp://me:"+url.QueryEscape(password)+"@h/three?key=4th-SECRET-1234")
			w.WriteHeader(307)
			_, _ = io.WriteString(w, quote+" and 4th-SECRET-1234")
		},
		"cut": func(http.ResponseWriter, *http.Request) { testkit.Abort() },
	} {
		for way, transfer := range transfers {
			t.Run(name+" "+way, func(t *testing.T) {
				other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					end(w, r)
				}))
				defer other.Close()
				host := strings.TrimPrefix(other.URL, "http://")
				first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Location", "http://me:"+url.QueryEscape(password)+"@"+host+target)
					w.WriteHeader(307)
				}))
				defer first.Close()
				log := testkit.NewPrinted()
				hook := svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { log.Add(a, testkit.Formats) })
				client := testkit.ClientAt(t, first.URL, testkit.Tries(2, time.Millisecond), svc.WithLogger(log.Text), hook)
				result, err := transfer(t.Context(), client, svc.SignedURL(first.URL+"/one"+strings.TrimPrefix(testkit.SignedLink, "https://store.test/bucket/a.bin")))
				log.Add(result, testkit.Formats)
				if name != "success" || way != "put" {
					require.Error(t, err)
					requireHides(t, err, append(secrets, "4th-SECRET-1234")...)
				} else {
					require.NoError(t, err)
					log.Add(*result.(*svc.UploadResult), testkit.Formats)
				}
				for _, secret := range secrets {
					log.RequireWithout(t, testkit.NeedlesOf(secret))
				}
			})
		}
	}
}

// The secrets of every redirect are redacted, also in an endless redirect loop.
func TestSecretsOfEveryHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hops, quote := 0, ""
		var secrets []string
		storage := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			hops++
			secrets = append(secrets, fmt.Sprintf("HOP-%02d-5f3c0d9a", hops))
			quote += " " + secrets[hops-1]
			return &http.Response{
				StatusCode: 302, Request: r, Header: http.Header{"Location": {"https://h.test/x?sig=" + secrets[hops-1]}},
				ContentLength: -1, Body: io.NopCloser(strings.NewReader("<Error><Message>" + quote + "</Message></Error>")),
			}, nil
		})
		_, err := testkit.ClientOn(t, storage).Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, nil)
		testkit.RequireRedirect(t, err)
		require.Len(t, secrets, 11)
		requireHides(t, err, secrets...)
		require.Contains(t, string(testkit.ErrorAs[*svc.Error](t, err).Body), "REDACTED")
	})
}

// A 2xx response that is not a download is quoted without secrets.
func TestSecretsOfASuccessThatIsNoDownload(t *testing.T) {
	for name, header := range map[string]string{"request id": "X-Request-Id: " + testkit.Signature, "both": "X-Request-Id: " + testkit.Signature + testkit.Token} {
		for _, status := range []int{206, 204, 202} {
			_, err := testkit.ClientOn(t, &pieces{all: []piece{{status, header, 0, "", false}}}).Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, nil)
			require.ErrorContains(t, err, "the response is not the file, or not the requested part", name)
			require.ErrorContains(t, err, "(request REDACTED", name)
			requireHides(t, err, testkit.Signature, testkit.Token)
		}
	}
}

// readersOf returns different readers that fail with err.
func readersOf(t *testing.T, err error) map[string]io.Reader {
	fails := testkit.ReadFunc(func([]byte) (int, error) { return 0, err })
	return map[string]io.Reader{
		"plain":   fails,
		"late":    io.MultiReader(bytes.NewReader(testkit.Contents(100_000)), fails),
		"seeker":  &failingSeeker{bytes.NewReader(testkit.Contents(500_000)), err},
		"no file": badFile(t, testkit.Token),
	}
}

func badFile(t *testing.T, name string) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f
}

var errMine = errors.New("own")

// Errors of the caller's readers, writers, files and contexts may contain a secret, for
// example of another transfer. It is redacted.
func TestSecretsInErrorsOfTheCaller(t *testing.T) {
	leaky := fmt.Errorf("%w: %w", errMine, &url.Error{Op: "Get", URL: testkit.SignedLink, Err: errors.New("refused Bearer " + testkit.Token)})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(leaky)
	writer := testkit.WriterFunc(func([]byte) (int, error) { return 0, leaky })
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "contents")
	})
	c := testkit.ClientAt(t, s.URL, testkit.Tries(2, time.Millisecond))
	link := s.Link()
	dir := filepath.Join(t.TempDir(), testkit.Token)
	errs := map[string]error{}
	for name, body := range readersOf(t, leaky) {
		_, errs["Put "+name] = c.Files.Put(t.Context(), link, body, nil)
	}
	for name, body := range readersOf(t, leaky) {
		_, errs["Replace "+name] = c.Files.Replace(t.Context(), "f1", body, nil)
	}
	for name, body := range readersOf(t, leaky) {
		_, errs["Upload "+name] = c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body})
	}
	_, errs["UploadFile no file"] = c.Files.UploadFile(t.Context(), dir+"/none", "", nil)
	_, errs["Put ended"] = c.Files.Put(ended, link, strings.NewReader("x"), nil)
	_, errs["Put spool ended"] = c.Files.Put(ended, link, readOnly{strings.NewReader("x")}, nil)
	_, errs["Upload ended"] = c.Files.Upload(ended, svc.UploadRequest{FileName: "a", Body: strings.NewReader("x")})
	_, errs["Download writer"] = c.Files.DownloadURL(t.Context(), link, writer, nil)
	_, errs["Files.Download writer"] = c.Files.Download(t.Context(), "f1", writer, nil)
	_, errs["Download ended"] = c.Files.DownloadURL(ended, link, io.Discard, nil)
	_, errs["Files.Download ended"] = c.Files.Download(ended, "f1", io.Discard, nil)
	_, errs["DownloadFile no file"] = c.Files.DownloadURLFile(t.Context(), link, dir+"/none", nil)
	for name, err := range errs {
		require.Error(t, err, name)
		requireHides(t, err, testkit.Signature, testkit.SessionKey, testkit.Token)
		switch {
		case strings.Contains(name, "no file"):
			require.True(t, errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrClosed), name)
		default:
			require.ErrorIs(t, err, errMine, name)
		}
		require.Equal(t, strings.Contains(name, "ended"), errors.Is(err, context.Canceled), name)
	}

	// An error without a secret is kept as the same value.
	_, err := c.Files.Put(t.Context(), link, testkit.ReadFunc(func([]byte) (int, error) { return 0, errMine }), nil)
	require.Same(t, errMine, testkit.ErrorAs[*svc.UploadError](t, err).Err)
	_, err = c.Files.DownloadURL(t.Context(), link, testkit.WriterFunc(func([]byte) (int, error) { return 0, errMine }), nil)
	require.Same(t, errMine, testkit.ErrorAs[*svc.DownloadError](t, err).Err)
}

// The Header option of a transfer is also sent to the target of a redirect.
func TestHeaderOfATransferGoesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := http.Header{"X-Mine": {"1"}}
		for _, status := range []int{307, 308} {
			s := testkit.Play(t, testkit.RedirectTo(status, "https://other.test/two"), testkit.Reply{Status: 200, Body: "contents"}, testkit.RedirectTo(status, "https://other.test/two"), testkit.Reply{Status: 200})
			c := s.Client()
			_, err := c.Files.DownloadURL(t.Context(), testkit.SignedLink, io.Discard, &svc.DownloadOptions{Header: header})
			require.NoError(t, err)
			_, err = c.Files.Put(t.Context(), testkit.SignedLink, strings.NewReader("x"), &svc.UploadOptions{Header: header})
			require.NoError(t, err)
			for i, r := range s.Seen() {
				require.Equal(t, []string{"store.test", "other.test"}[i%2], r.Host)
				require.Equal(t, []string{"1"}, r.Header["X-Mine"])
				require.NotContains(t, r.Header, "Authorization")
			}
		}
	})
}
