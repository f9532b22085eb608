package wire_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// rotation returns a service that accepts one token only, and a token source.
func rotation(valid, given *string) (http.RoundTripper, svc.Option) {
	serve := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: 200, ProtoMajor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
		body := strings.Replace(testkit.ServiceJSON, `"initializing"`, `"available"`, 1)
		if r.Header.Get("Authorization") != "Bearer "+*valid {
			resp.StatusCode, body = 401, `{"message":"bad token"}`
		}
		resp.Body = io.NopCloser(strings.NewReader(body))
		return resp, nil
	})
	return serve, svc.WithTokenSource(func(context.Context) (string, error) { return *given, nil })
}

// A token may be replaced after the source was asked and before the request arrives. The
// request then gets a 401, and is sent again with the new token.
func TestTokenIsRotated_C11(t *testing.T) {
	for _, op := range testkit.Operations {
		t.Run(op.Name, func(t *testing.T) {
			valid, given, requests := "new-token", "old-token", 0
			serve, source := rotation(&valid, &given)
			client := testkit.ClientOn(t, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				requests++
				resp, err := serve.RoundTrip(r)
				given = "new-token"
				return resp, err
			}), source, testkit.Tries(1, 0))
			require.NoError(t, op.Do(t.Context(), client))
			require.Equal(t, 2, requests)

			valid = "another-token" // the source does not know this token, so the 401 is final
			requests = 0
			require.ErrorIs(t, op.Do(t.Context(), client), svc.ErrUnauthorized)
			require.Equal(t, 1, requests)
		})
	}
	t.Run("once", func(t *testing.T) { // every token of this source is new, and all are refused
		n := 0
		s := testkit.Play(t, testkit.Status(401), testkit.Status(401))
		client := s.Client(svc.WithTokenSource(func(context.Context) (string, error) { n++; return fmt.Sprint("token-", n), nil }))
		require.ErrorIs(t, testkit.OpCreate.Do(t.Context(), client), svc.ErrUnauthorized)
	})
	t.Run("a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			valid, given := "one-token", "one-token"
			serve, source := rotation(&valid, &given)
			polls := 0
			client := testkit.ClientOn(t, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				if polls++; polls == 2 {
					valid = "two-token"
				}
				resp, err := serve.RoundTrip(r)
				given = valid
				return resp, err
			}), source)
			_, err := client.InferenceServices.Wait(t.Context(), "svc-1", func(*svc.InferenceService) (bool, error) { return polls > 3, nil }, nil)
			require.NoError(t, err)
		})
	})
	t.Run("a fixed token", func(t *testing.T) {
		require.ErrorIs(t, testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Status(401)).Client()), svc.ErrUnauthorized)
	})
}

// Texts that cannot be tokens, such as placeholders, are refused, and the error does not
// show them.
func TestPlaceholdersAreNoTokens_C12(t *testing.T) {
	for _, token := range []string{
		`"tok-123456789"`, `'tok-123456789'`, "`tok-123456789`", `"tok-123456789`, `tok-123456789"`, `Bearer "tok-123456789"`,
		"<your-token>", "<API_TOKEN>", "${SVC_API_TOKEN}", "$SVC_API_TOKEN", "$(cat_token)", "{{token}}", "{token}", "%SVC_API_TOKEN%", "[token]",
		"your-token", "YOUR_API_TOKEN", "your-api-key-here", "YourTokenHere", "changeme", "CHANGE_ME", "replace-me", "xxxx", "XXXXXXXX", "...", "****", "tok-***", "sk-12...ab",
		"SVC_API_TOKEN", "API_TOKEN", "placeholder",
	} {
		_, err := svc.NewClient("https://h", svc.WithToken(token))
		require.Error(t, err, token)
		require.NotContains(t, err.Error(), strings.TrimPrefix(token, "Bearer "))

		client := testkit.Play(t).Client(svc.WithTokenSource(func(context.Context) (string, error) { return token, nil }))
		err = testkit.OpCreate.Do(t.Context(), client)
		require.Error(t, err, token)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Zero(t, testkit.ErrorAs[*svc.TransportError](t, err).Attempts, "nothing is sent")

		t.Setenv("SVC_BASE_URL", "https://h")
		t.Setenv("SVC_API_TOKEN", token)
		_, err = svc.NewClientFromEnv()
		require.ErrorContains(t, err, "SVC_API_TOKEN")
	}
	for _, token := range []string{
		"t", "token", "secret", "tok-0123456789-SECRET", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_=", "1|abcdef", "user:pass", "abc$def", "xyz", "a+b/c==", "your.name@host",
		"sk_live_your", "yourapp-key-8f3a91", "key.with.dots", "~a!b", "%41bc",
	} {
		_, err := svc.NewClient("https://h", svc.WithToken(token))
		require.NoError(t, err, token)
	}
}

// What stands before a request ends with the limit of the attempt, or with the deadline of ctx,
// and the error tells the two apart.
func TestTokenSourceIsUnderTheLimitOfTheAttempt_D03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := svc.WithTokenSource(func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		client := testkit.Play(t).Client(hangs, svc.WithTimeout(20*time.Second))
		start := time.Now()
		_, err := client.InferenceServices.Get(t.Context(), "svc-1")
		require.Equal(t, 20*time.Second, time.Since(start))
		require.ErrorIs(t, err, svc.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "token source: no token within 20s")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client.InferenceServices.Get(ctx, "svc-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, svc.ErrTimeout)
	})
}
