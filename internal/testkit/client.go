package testkit

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// GetEndpoint calls InferenceServices.Get once, on a service that responds with body.
func GetEndpoint(t *testing.T, body string) (*svc.InferenceService, error) {
	t.Helper()
	return Play(t, Reply{Status: 200, Body: body}).Client().InferenceServices.Get(t.Context(), "svc-1")
}

// NewFileClient returns a client of the service at url. It waits only 1 ms between attempts.
func NewFileClient(t testing.TB, url string, opts ...svc.Option) *svc.Client {
	return ClientAt(t, url, append([]svc.Option{Tries(0, time.Millisecond)}, opts...)...)
}

// Token is the API token of all clients of this package.
const Token = "tok-0123456789-SECRET"

// ClientOn returns a client with the base URL https://api.test that sends its requests through
// rt.
func ClientOn(t testing.TB, rt http.RoundTripper, opts ...svc.Option) *svc.Client {
	t.Helper()
	return ClientAt(t, "https://api.test", append([]svc.Option{svc.WithHTTPClient(&http.Client{Transport: rt})}, opts...)...)
}

// ClientAt returns a client with Token. Its idle connections are closed at the end of the
// test.
func ClientAt(t testing.TB, baseURL string, opts ...svc.Option) *svc.Client {
	t.Helper()
	client, err := svc.NewClient(baseURL, append([]svc.Option{svc.WithToken(Token)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// Tries sets a retry policy with this number of attempts and the same delay before each
// retry. Zero attempts means the default number.
func Tries(attempts int, delay time.Duration) svc.Option {
	return svc.WithRetry(svc.RetryPolicy{MaxAttempts: attempts, MinDelay: delay, MaxDelay: delay})
}

// Limiter is a function that serves as a [svc.RateLimiter].
type Limiter func(ctx context.Context) error

// Wait calls the function.
func (l Limiter) Wait(ctx context.Context) error { return l(ctx) }
