package wire_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A default header is sent with each API call of its client, and with nothing else.
func TestWithDefaultHeader_C26(t *testing.T) {
	s := testkit.Play(t, testkit.OpGet.OK, testkit.OpGet.OK, testkit.Reply{Status: 200, Body: "[]"}, testkit.Status(503), testkit.OpGet.OK, testkit.Reply{Status: 200, Body: "x"})
	client := s.Client(svc.WithDefaultHeader("x-team", "one"), svc.WithDefaultHeader("X-Team", "two"), svc.WithDefaultHeader("accept", "application/json; v=2"),
		svc.WithDefaultHeader("User-Agent", "me"), testkit.Tries(2, 1))
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
	require.NoError(t, testkit.OpGet.Do(t.Context(), client, svc.WithHeader("X-Team", "three"), svc.WithHeader("X-More", "m")))
	_, err := client.Files.ListPublic(t.Context())
	require.NoError(t, err)
	require.NoError(t, client.Do(t.Context(), "GET", "/v2/x", nil, nil)) // makes two attempts
	_, err = client.Files.DownloadURL(t.Context(), "https://storage.test/f?sig=x", io.Discard, nil)
	require.NoError(t, err)

	all := s.Seen()
	for i, want := range []string{"two", "three", "two", "two", "two", ""} {
		require.Equal(t, want, all[i].Header.Get("X-Team"), i)
	}
	require.Equal(t, "application/json; v=2", all[0].Header.Get("Accept"))
	require.Equal(t, "me", all[0].Header.Get("User-Agent"))
	require.Equal(t, "m", all[1].Header.Get("X-More"))
	require.Empty(t, all[0].Header.Get("X-More"))

	for _, name := range []string{"Authorization", "cookie", "Content-Length", "Idempotency-Key", "host", "", "a b", "é"} {
		_, err := svc.NewClient("https://h", svc.WithDefaultHeader(name, "hush"))
		require.ErrorContains(t, err, "svc: WithDefaultHeader: header ", name)
		require.NotContains(t, err.Error(), "hush")
	}
	_, err = svc.NewClient("https://h", svc.WithDefaultHeader("X-Mine", "a\nb"))
	require.Error(t, err)
}
