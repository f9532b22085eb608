package svc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// A signed link as a service or a proxy may repeat it, with its secrets.
const (
	signature  = "5f3c0d9a7be1SIGNATURE"
	sessionKey = "FwoGZXIvYXdzEHSESSION"
	signedLink = "https://store.test/bucket/a.bin?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + signature + "&X-Amz-Security-Token=" + sessionKey
)

func bodiesOf(err error) (bodies [][]byte) {
	if e, ok := errors.AsType[*svc.Error](err); ok {
		bodies = append(bodies, e.Body, fmt.Append(nil, e.Header))
	}
	if e, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		bodies = append(bodies, e.Body)
	}
	return bodies
}

// Whatever the service, a proxy or the network repeat of the token and of links,
// no error, log line or hook shows it.
func TestB07_SecretsStayHidden(t *testing.T) {
	echo := func(text string) map[string]string {
		return map[string]string{"X-Request-Id": text, "Location": signedLink, "X-Echo": text, "Content-Type": "text/plain; x=" + testToken, "Set-Cookie": "a=" + testToken}
	}
	quoted, _ := json.Marshal(signedLink + " Bearer " + testToken)
	escaped := strings.ReplaceAll(string(quoted), "&", `\u0026`)
	bodies := []string{
		`{"message":` + string(quoted) + `,"code":"` + testToken + `","request_id":"` + testToken + `"}`,
		`{"message":` + escaped + `,"error":{"detail":` + escaped + `}}`,
		`{"service_id":` + string(quoted) + `,"is_deleted":` + string(quoted) + `}`,
		`{"service_id":"x","created_at":{"a":` + string(quoted) + `}}`,
		"<html><title>" + testToken + "</title><a href='" + strings.ReplaceAll(signedLink, "&", "&amp;") + "'>" + signedLink + "</a></html>",
		"<Error><Code>AccessDenied</Code><Message>" + strings.ReplaceAll(signedLink, "&", "&amp;") + " " + testToken + "</Message></Error>",
		signedLink + "\nAuthorization: Bearer " + testToken,
		url.QueryEscape(signedLink) + " " + url.QueryEscape(testToken),
		strings.Repeat("x", 250) + testToken + strings.Repeat("y", 300) + signedLink,
		strings.Repeat("x", 64<<10-len(testToken)/2) + testToken,
		strings.Repeat("x", 64<<10-len(signedLink)/2) + signedLink,
	}
	var replies []reply
	for _, body := range bodies {
		if len(body) > 32<<10 { // a text that is long enough to be cut at its end
			replies = append(replies, reply{status: 400, body: body})
			continue
		}
		for _, code := range []int{200, 302, 400, 403, 503} {
			replies = append(replies, reply{status: code, body: body, header: echo("Bearer " + testToken)}, reply{status: code, body: body, header: echo(signedLink)})
		}
		replies = append(replies, reply{status: 200, body: body, err: io.ErrUnexpectedEOF, header: echo(testToken)})
	}
	for _, err := range []error{
		&url.Error{Op: "Put", URL: signedLink, Err: errReset},
		fmt.Errorf("proxy said: %w", &url.Error{Op: "Get", URL: signedLink, Err: errors.New("bad header Bearer " + testToken)}),
		errors.New("net/http: invalid header field value \"Bearer " + testToken + "\""),
		errors.Join(errors.New(signedLink), errReset),
	} {
		replies = append(replies, reply{err: err}, reply{err: err, unsent: true}, reply{status: 200, body: "{", err: err})
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
		hook := func(_ context.Context, a svc.Attempt) {
			requireClean(t, fmt.Sprintf("%+v %#v", a, a))
			if a.Err != nil {
				requireSilent(t, a.Err)
			}
		}
		source := svc.WithTokenSource(func(context.Context) (string, error) { return testToken, nil })
		for i, r := range replies {
			for _, op := range operations {
				opts := []svc.Option{tries(2, 1), svc.WithLogger(logger), svc.WithAttemptHook(hook)}
				if i%2 == 1 {
					opts = append(opts, source) // it learns the token only on the way
				}
				var resp svc.Response
				requireSilent(t, op.do(t.Context(), loop(t, r).client(opts...), svc.WithResponse(&resp)))
				requireClean(t, fmt.Sprintf("%v %+v %#v", resp, resp, resp))
			}
		}
		require.Contains(t, log.String(), "svc: exchange")
		requireClean(t, log.String())
	})
}

// A token that is written with an escape for each character shows in no message.
func TestB07_EscapedSecrets(t *testing.T) {
	var spelled strings.Builder
	for _, c := range testToken {
		fmt.Fprintf(&spelled, `\u%04x`, c)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 302, 400, 403, 503} {
			for _, op := range operations {
				err := op.do(t.Context(), loop(t, reply{status: code, body: `{"message":"` + spelled.String() + `"}`}).client(tries(2, 1)))
				for e := err; e != nil; e = errors.Unwrap(e) {
					for _, verb := range []string{"%v", "%+v", "%#v", "%q"} {
						require.NotContains(t, fmt.Sprintf(verb, e), testToken)
					}
					text, _ := json.Marshal(e)
					require.NotContains(t, string(text), testToken)
				}
			}
		}
	})
}

// A rotated token is kept out of what comes after it, too.
func TestB07_FormerTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		source := svc.WithTokenSource(func(context.Context) (string, error) { n++; return fmt.Sprintf("%s-%d", testToken, n), nil })
		s := loop(t, reply{status: 503, body: testToken + "-1 " + testToken + "-2 " + testToken + "-3"})
		err := opGet.do(t.Context(), s.client(source, tries(3, 1)))
		requireSilent(t, err)
		require.Equal(t, "REDACTED REDACTED REDACTED", string(errorAs[*svc.Error](t, err).Body))
	})
}

// The errors of what the caller brings do not show the token either.
func TestB07_CallersErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaky := errors.New("cannot refresh " + testToken)
		err := opGet.do(t.Context(), play(t).client(svc.WithRateLimiter(limiter(func(context.Context) error { return leaky }))))
		requireSilent(t, err)
		require.ErrorIs(t, err, leaky)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(leaky)
		err = opGet.do(ctx, play(t).client())
		requireSilent(t, err)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, leaky)
	})
}

// What is no secret stays readable.
func TestErrorsStayReadable(t *testing.T) {
	body := `{"message":"link https://store.test/bucket/a.bin?sig=0123456789abcdef has expired","code":"LinkExpired"}`
	err := opGet.do(t.Context(), play(t, reply{status: 403, body: body, header: map[string]string{"X-Request-Id": "req-1"}}).client())
	require.Equal(t, "svc: GET /v1/inference-service/{service_id}: 403 Forbidden: link https://store.test/bucket/a.bin?REDACTED has expired (id svc-1, code LinkExpired, request req-1)", err.Error())
}
