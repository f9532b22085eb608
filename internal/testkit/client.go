package testkit

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// GetEndpoint gets a service whose record is body.
func GetEndpoint(t *testing.T, body string) (*svc.InferenceService, error) {
	t.Helper()
	return Play(t, Reply{Status: 200, Body: body}).Client().InferenceServices.Get(t.Context(), "svc-1")
}

// NewFileClient makes a client that hardly waits between attempts.
func NewFileClient(t testing.TB, url string, opts ...svc.Option) *svc.Client {
	return ClientAt(t, url, append([]svc.Option{Tries(0, time.Millisecond)}, opts...)...)
}

// Token is that of the clients.
const Token = "tok-0123456789-SECRET"

// ClientOn makes a client of https://api.test on a transport.
func ClientOn(t testing.TB, rt http.RoundTripper, opts ...svc.Option) *svc.Client {
	t.Helper()
	return ClientAt(t, "https://api.test", append([]svc.Option{svc.WithHTTPClient(&http.Client{Transport: rt})}, opts...)...)
}

// ClientAt makes a client with a token, whose connections end with the test.
func ClientAt(t testing.TB, baseURL string, opts ...svc.Option) *svc.Client {
	t.Helper()
	client, err := svc.NewClient(baseURL, append([]svc.Option{svc.WithToken(Token)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// Tries is a retry policy with delays that are always the same.
func Tries(attempts int, delay time.Duration) svc.Option {
	return svc.WithRetry(svc.RetryPolicy{MaxAttempts: attempts, MinDelay: delay, MaxDelay: delay})
}

// Limiter is a rate limiter.
type Limiter func(ctx context.Context) error

// Wait calls the function.
func (l Limiter) Wait(ctx context.Context) error { return l(ctx) }
