// Package secrets_test tests that no text shows a token or the signature of a presigned
// URL.
package secrets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
)

// The service, a proxy or the network may repeat the token or a presigned URL in any
// place. No error, log line or hook shows it.
func TestSecretsStayHidden_B07(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes the search in texts slow, and finds nothing in it")
	}
	echo := func(text string) map[string]string {
		return map[string]string{"X-Request-Id": text, "Location": testkit.SignedLink, "X-Echo": text, "Content-Type": "text/plain; x=" + testkit.Token, "Set-Cookie": "a=" + testkit.Token}
	}
	quoted, _ := json.Marshal(testkit.SignedLink + " Bearer " + testkit.Token)
	escaped := strings.ReplaceAll(string(quoted), "&", `\u0026`)
	bodies := []string{
		`{"message":` + string(quoted) + `,"code":"` + testkit.Token + `","request_id":"` + testkit.Token + `"}`,
		`{"message":` + escaped + `,"error":{"detail":` + escaped + `}}`,
		`{"service_id":` + string(quoted) + `,"is_deleted":` + string(quoted) + `}`,
		`{"service_id":"x","created_at":{"a":` + string(quoted) + `}}`,
		"<html><title>" + testkit.Token + "</title><a href='" + strings.ReplaceAll(testkit.SignedLink, "&", "&amp;") + "'>" + testkit.SignedLink + "</a></html>",
		"<Error><Code>AccessDenied</Code><Message>" + strings.ReplaceAll(testkit.SignedLink, "&", "&amp;") + " " + testkit.Token + "</Message></Error>",
		testkit.SignedLink + "\nAuthorization: Bearer " + testkit.Token,
		url.QueryEscape(testkit.SignedLink) + " " + url.QueryEscape(testkit.Token),
		strings.Repeat("x", 250) + testkit.Token + strings.Repeat("y", 300) + testkit.SignedLink,
		strings.Repeat("x", 64<<10-len(testkit.Token)/2) + testkit.Token,
		strings.Repeat("x", 64<<10-len(testkit.SignedLink)/2) + testkit.SignedLink,
	}
	var replies []testkit.Reply
	for _, body := range bodies {
		if len(body) > 32<<10 { // the text is so long that it is cut
			replies = append(replies, testkit.Reply{Status: 400, Body: body})
			continue
		}
		for _, code := range []int{200, 302, 400, 403, 503} {
			replies = append(replies, testkit.Reply{Status: code, Body: body, Header: echo("Bearer " + testkit.Token)}, testkit.Reply{Status: code, Body: body, Header: echo(testkit.SignedLink)})
		}
		replies = append(replies, testkit.Reply{Status: 200, Body: body, Err: io.ErrUnexpectedEOF, Header: echo(testkit.Token)})
	}
	for _, err := range []error{
		&url.Error{Op: "Put", URL: testkit.SignedLink, Err: testkit.ErrReset},
		fmt.Errorf("proxy said: %w", &url.Error{Op: "Get", URL: testkit.SignedLink, Err: errors.New("bad header Bearer " + testkit.Token)}),
		errors.New("net/http: invalid header field value \"Bearer " + testkit.Token + "\""),
		errors.Join(errors.New(testkit.SignedLink), testkit.ErrReset),
	} {
		replies = append(replies, testkit.Reply{Err: err}, testkit.Reply{Err: err, Unsent: true}, testkit.Reply{Status: 200, Body: "{", Err: err})
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
		hook := func(_ context.Context, a svc.Attempt) {
			testkit.RequireClean(t, fmt.Sprintf("%+v %#v", a, a))
			if a.Err != nil {
				testkit.RequireSilent(t, a.Err)
			}
		}
		callHook := func(_ context.Context, c svc.Call) {
			testkit.RequireClean(t, fmt.Sprintf("%+v %#v", c, c))
			if c.Err != nil {
				testkit.RequireSilent(t, c.Err)
			}
		}
		source := svc.WithTokenSource(func(context.Context) (string, error) { return testkit.Token, nil })
		for i, r := range replies {
			for _, op := range testkit.Operations {
				opts := []svc.Option{testkit.Tries(2, 1), svc.WithLogger(logger), svc.WithAttemptHook(hook), svc.WithCallHook(callHook)}
				if i%2 == 1 {
					opts = append(opts, source) // the source gives the token, so the client does not know it at the start
				}
				var resp svc.Response
				testkit.RequireSilent(t, op.Do(t.Context(), testkit.Loop(t, r).Client(opts...), svc.WithResponse(&resp)))
				testkit.RequireClean(t, fmt.Sprintf("%v %+v %#v", resp, resp, resp))
			}
		}
		require.Contains(t, log.String(), "svc: exchange")
		require.Contains(t, log.String(), "svc: the outcome of a call is not known")
		testkit.RequireClean(t, log.String())
	})
}

// A token whose characters are all escaped is not visible in a message or in the excerpt
// of an HTML page.
func TestEscapedSecrets_B07(t *testing.T) {
	message, page := `{"message":"`, "<html><p>"
	for _, c := range testkit.Token {
		message += fmt.Sprintf(`\u%04x`, c)
		page += fmt.Sprintf("&#%d;", c)
	}
	message += `"}`
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 302, 400, 403, 503} {
			for _, op := range testkit.Operations {
				for _, body := range []string{message, page} {
					err := op.Do(t.Context(), testkit.Loop(t, testkit.Reply{Status: code, Body: body}).Client(testkit.Tries(2, 1)))
					for e := err; e != nil; e = errors.Unwrap(e) {
						text, _ := json.Marshal(e)
						require.NotContains(t, fmt.Sprintf("%v %+v %#v %q %s", e, e, e, e, text), testkit.Token)
					}
				}
			}
		}
	})
}

// After a token was rotated, the old token is still redacted.
func TestFormerTokens_B07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		source := svc.WithTokenSource(func(context.Context) (string, error) { n++; return fmt.Sprintf("%s-%d", testkit.Token, n), nil })
		s := testkit.Loop(t, testkit.Reply{Status: 503, Body: testkit.Token + "-1 " + testkit.Token + "-2 " + testkit.Token + "-3"})
		err := testkit.OpGet.Do(t.Context(), s.Client(source, testkit.Tries(3, 1)))
		testkit.RequireSilent(t, err)
		require.Equal(t, "REDACTED REDACTED REDACTED", string(testkit.ErrorAs[*svc.Error](t, err).Body))
	})
}

// A token source may return its token with "Bearer " in front, or with the token in its
// error. Both are redacted.
func TestTokensOfASource_B07(t *testing.T) {
	for given, failure := range map[string]error{"Bearer " + testkit.Token: nil, testkit.Token: errors.New(testkit.Token + " is too old")} {
		source := svc.WithTokenSource(func(context.Context) (string, error) { return given, failure })
		s := testkit.Loop(t, testkit.Reply{Status: 400, Body: "no such token: " + testkit.Token})
		err := testkit.OpGet.Do(t.Context(), s.Client(source))
		testkit.RequireSilent(t, err)
		require.ErrorContains(t, err, "REDACTED")
	}
}

// Errors of the caller's own functions do not show the token.
func TestCallersErrors_B07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaky := errors.New("cannot refresh " + testkit.Token)
		err := testkit.OpGet.Do(t.Context(), testkit.Play(t).Client(svc.WithRateLimiter(testkit.Limiter(func(context.Context) error { return leaky }))))
		testkit.RequireSilent(t, err)
		require.ErrorIs(t, err, leaky)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(leaky)
		err = testkit.OpGet.Do(ctx, testkit.Play(t).Client())
		testkit.RequireSilent(t, err)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, leaky)
	})
}

// Text that is not secret stays readable.
func TestErrorsStayReadable(t *testing.T) {
	body := `{"message":"link https://store.test/bucket/a.bin?sig=0123456789abcdef has expired","code":"LinkExpired"}`
	err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 403, Body: body, Header: map[string]string{"X-Request-Id": "req-1"}}).Client())
	require.Equal(t, "svc: GET /v1/inference-service/{service_id}: 403 Forbidden: link https://store.test/bucket/a.bin?REDACTED has expired (id svc-1, code LinkExpired, request req-1)", err.Error())
}

// A service that sends the token back as the ID of a new endpoint brings it into no error and no ledger.
func TestTokenAsAnIDIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const token = "echoed-token-1234567890"
		record := `{"service_id":"` + token + `","name":"demo","status":"unavailable"}`
		store := ledger.Memory()
		s := testkit.Play(t, testkit.Reply{Status: 200, Body: record})
		client := s.Client(svc.WithToken(token), svc.WithLedger(store), svc.WithoutLedgerMark())
		_, err := client.InferenceServices.Deploy(t.Context(), svc.CreateInferenceServiceRequest{
			Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "f", TargetInstanceNumber: 1},
		}, nil)
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown, "an ID that cannot be shown cannot be used either")
		require.Len(t, s.Seen(), 1, "no endpoint with another ID is polled or deleted")
		require.NotContains(t, err.Error(), token)
		records, err := store.List(t.Context(), "")
		require.NoError(t, err)
		for _, r := range records {
			require.NotContains(t, fmt.Sprint(r), token)
		}
	})
}

// Neither does it come into the error of Use, or into the log.
func TestTokenAsAnIDIsNotShownByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const token = "echoed-token-1234567890"
		record := testkit.Reply{Status: 200, Body: `{"service_id":"` + token + `","name":"demo","status":"available"}`}
		s := &testkit.ByMethod{Post: []testkit.Reply{record}, Get: []testkit.Reply{record}, Delete: []testkit.Reply{testkit.Status(400)}}
		var log bytes.Buffer
		client, err := svc.NewClient("https://svc.test", svc.WithToken(token), svc.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), svc.WithHTTPClient(&http.Client{Transport: s}))
		require.NoError(t, err)
		err = client.InferenceServices.Use(t.Context(), svc.CreateInferenceServiceRequest{
			Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "f", TargetInstanceNumber: 1},
		}, nil, func(context.Context, *svc.InferenceService) error { return nil })
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.NotContains(t, err.Error(), token)
		require.NotContains(t, log.String(), token)
	})
}

// A default header may hold the key of a gateway. Printing a client does not show it.
func TestPrintedClientShowsNoHeader(t *testing.T) {
	client, err := svc.NewClient("https://svc.test", svc.WithToken("token-1234567890"), svc.WithDefaultHeader("X-Api-Key", "key-of-a-gateway"))
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(verb, client)
		require.NotContains(t, text, "key-of-a-gateway")
		require.NotContains(t, text, "token-1234567890")
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("client", "client", client)
	require.NotContains(t, log.String(), "key-of-a-gateway")
}
