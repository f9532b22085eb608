package svc_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// requireHides prints an error, all that it wraps and the answers in it, and looks
// for secrets in every form.
func requireHides(t *testing.T, err error, secrets ...string) {
	t.Helper()
	p := newPrinted()
	var walk func(error)
	walk = func(err error) {
		p.add(err, formats)
		p.addParts(err)
		for _, b := range bodiesOf(err) {
			p.Write(b)
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if err := e.Unwrap(); err != nil {
				walk(err)
			}
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		}
	}
	walk(err)
	for _, secret := range secrets {
		p.requireWithout(t, needlesOf(secret))
	}
}

// transfers are the two directions, each as one call.
var transfers = map[string]func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error){
	"download": func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error) {
		return c.Download(ctx, link, io.Discard, nil)
	},
	"put": func(ctx context.Context, c *svc.Client, link svc.SignedURL) (any, error) {
		return c.Files.Put(ctx, link, strings.NewReader("contents"), nil)
	},
}

// A link may lead on to another that is a key as well. What is quoted of that one
// is kept out of every text, too.
func TestSecretsOfRedirectTargets(t *testing.T) {
	const (
		second   = "SECOND-ab12cd34ef"
		password = "PASS+word/99"
		fragment = "FRAGMENT-0a9b8c7d"
		third    = "THIRD token/=77"
	)
	secrets := []string{signature, sessionKey, testToken, second, password, fragment, third, url.QueryEscape(third)}
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
			w.WriteHeader(http.StatusPartialContent) // no download
		},
		"not followed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "ftp://me:"+url.QueryEscape(password)+"@h/three?key=4th-SECRET-1234")
			w.WriteHeader(307)
			_, _ = io.WriteString(w, quote+" and 4th-SECRET-1234")
		},
		"cut": func(http.ResponseWriter, *http.Request) { abort() },
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
				log := newPrinted()
				hook := svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { log.add(a, formats) })
				client := clientAt(t, first.URL, tries(2, time.Millisecond), svc.WithLogger(log.text), hook)
				result, err := transfer(t.Context(), client, svc.SignedURL(first.URL+"/one"+strings.TrimPrefix(signedLink, "https://store.test/bucket/a.bin")))
				log.add(result, formats)
				if name != "success" || way != "put" {
					require.Error(t, err)
					requireHides(t, err, append(secrets, "4th-SECRET-1234")...)
				} else {
					require.NoError(t, err)
					log.add(*result.(*svc.UploadResult), formats)
				}
				for _, secret := range secrets {
					log.requireWithout(t, needlesOf(secret))
				}
			})
		}
	}
}

// All hops of a redirect are known, those of an endless one too.
func TestSecretsOfEveryHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hops, quote := 0, ""
		var secrets []string
		storage := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			hops++
			secrets = append(secrets, fmt.Sprintf("HOP-%02d-5f3c0d9a", hops))
			quote += " " + secrets[hops-1]
			return &http.Response{
				StatusCode: 302, Request: r, Header: http.Header{"Location": {"https://h.test/x?sig=" + secrets[hops-1]}},
				ContentLength: -1, Body: io.NopCloser(strings.NewReader("<Error><Message>" + quote + "</Message></Error>")),
			}, nil
		})
		_, err := clientOn(t, storage).Download(t.Context(), signedLink, io.Discard, nil)
		require.ErrorIs(t, err, svc.ErrRedirect)
		require.Len(t, secrets, 11)
		requireHides(t, err, secrets...)
		require.Contains(t, string(errorAs[*svc.Error](t, err).Body), "REDACTED")
	})
}

// An answer that is a success and no download is quoted without secrets, as any
// other is.
func TestSecretsOfASuccessThatIsNoDownload(t *testing.T) {
	for name, header := range map[string]string{"request id": "X-Request-Id: " + signature, "both": "X-Request-Id: " + signature + testToken} {
		for _, status := range []int{206, 204, 202} {
			_, err := clientOn(t, &pieces{all: []piece{{status, header, 0, "", false}}}).Download(t.Context(), signedLink, io.Discard, nil)
			require.ErrorContains(t, err, "the answer is not the contents", name)
			require.ErrorContains(t, err, "(request REDACTED", name)
			requireHides(t, err, signature, testToken)
		}
	}
}
