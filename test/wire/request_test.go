package wire_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A refused base URL gives an error that names the broken rule, and does not show the
// URL.
func TestRefusalOfABaseURLSaysWhy(t *testing.T) {
	const absolute = "must be an absolute URL that starts with https:// or http://"
	for given, want := range map[string]string{
		"":                 "is empty",
		" \n":              "is empty",
		"https://h:port":   "is not a URL",
		"https://h/%zz":    "is not a URL",
		"h":                absolute,
		"ftp://h":          absolute,
		"https://:80":      absolute,
		"https://u:pw@h":   "must not hold a user or password",
		"https://h?q=1":    "must not have a query",
		"https://h?":       "must not have a query",
		"https://h#f":      "must not have a fragment",
		"https://h#":       "must not have a fragment",
		"https://h/a//b":   `its path must not hold an empty segment, "." or ".." as a segment, or a control character`,
		"https://h/%2e/b":  `its path must not hold an empty segment, "." or ".." as a segment, or a control character`,
		"http://h.invalid": "plain http would show the token to everyone on the network: use https, or allow it with WithInsecureHTTP",
	} {
		_, err := svc.NewClient(given, svc.WithToken(testkit.Token))
		require.EqualError(t, err, "svc: base URL: "+want, "%q", given)
	}
}

// A refused path for Do gives an error that names the broken rule.
func TestRefusalOfAPathSaysWhy(t *testing.T) {
	const segments = `must not hold an empty segment, "." or ".." as a segment, or a control character`
	for path, want := range map[string]string{
		"":            "must start with a slash: it is relative to the base URL",
		"v1/files":    "must start with a slash: it is relative to the base URL",
		"//a.test/v1": segments,
		"/v1/files?x": "must not hold a query or a fragment: use WithQuery, and escape IDs with url.PathEscape",
		"/v1/files#x": "must not hold a query or a fragment: use WithQuery, and escape IDs with url.PathEscape",
		"/v1/a\\b":    "must not hold a query or a fragment: use WithQuery, and escape IDs with url.PathEscape",
		"/v1/a%zz":    "is not escaped: escape IDs with url.PathEscape",
		"/v1//files":  segments,
		"/v1/files//": segments,
		"//":          segments,
		"/v1/.":       segments,
		"/v1/%2E.":    segments,
		"/v1/a%0A":    segments,
	} {
		err := testkit.Play(t).Client().Do(t.Context(), "GET", path, nil, nil)
		require.EqualError(t, err, "svc: not sent: path "+want, "%q", path)
	}
}

func TestPathMayEndInASlash_D33(t *testing.T) {
	for path, want := range map[string]string{"/v2/x/": "/api/v2/x/", "/v2/a%2Fb/": "/api/v2/a%2Fb/", "/": "/api/"} {
		s := testkit.Play(t, testkit.Reply{Status: 200})
		client := testkit.ClientAt(t, "https://h/api/", svc.WithHTTPClient(&http.Client{Transport: s}))
		require.NoError(t, client.Do(t.Context(), "GET", path, nil, nil))
		require.Equal(t, want, s.Seen()[0].Path)
	}
}

// An ID may have at most 1024 bytes.
func TestLongestID(t *testing.T) {
	longest := strings.Repeat("x", 1024)
	s := testkit.Play(t, testkit.Reply{Status: 200, Body: fmt.Sprintf(`{"id":%q}`, longest)})
	file, err := s.Client().Files.Get(t.Context(), longest)
	require.NoError(t, err)
	require.Equal(t, longest, file.ID)
	require.Equal(t, "/v1/files/"+longest, s.Seen()[0].Path)

	_, err = s.Client().Files.Get(t.Context(), longest+"x")
	require.EqualError(t, err, "svc: not sent: file_id is longer than 1024 bytes")
}

// A body field for a call that has no body is an error. A call that may have a body gets
// one.
func TestBodyFieldOfACallWithoutABody(t *testing.T) {
	field := svc.WithBodyField("a.b", 1)
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS"} {
		for _, none := range []any{nil, json.RawMessage(nil), json.RawMessage{}} {
			err := testkit.Play(t).Client().Do(t.Context(), method, "/v2/x", none, nil, field)
			require.EqualError(t, err, "svc: not sent: a.b cannot be set: the call has no body", method)
		}
		s := testkit.Play(t, testkit.Reply{Status: 200})
		require.NoError(t, s.Client().Do(t.Context(), method, "/v2/x", map[string]int{"c": 2}, nil, field), method)
		require.JSONEq(t, `{"a":{"b":1},"c":2}`, s.Seen()[0].Body, "one that has a body can be added to")
	}
	require.EqualError(t, testkit.OpGet.Do(t.Context(), testkit.Play(t).Client(), field), "svc: not sent: a.b cannot be set: the call has no body")

	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
		for _, none := range []any{nil, json.RawMessage(nil), json.RawMessage{}} {
			s := testkit.Play(t, testkit.Reply{Status: 200})
			require.NoError(t, s.Client().Do(t.Context(), method, "/v2/x", none, nil, field), method)
			require.Equal(t, `{"a":{"b":1}}`, s.Seen()[0].Body, method)
			require.Equal(t, "application/json", s.Seen()[0].Header.Get("Content-Type"))
		}
	}
}

// If a value cannot be encoded as JSON, the error names it and says why.
func TestRefusalOfABodySaysWhy(t *testing.T) {
	do := func(body any, opts ...svc.RequestOption) error {
		return testkit.Play(t).Client().Do(t.Context(), "POST", "/v2/x", body, nil, opts...)
	}
	require.EqualError(t, do(func() {}), "svc: not sent: body cannot be written as JSON: json: unsupported type: func()")
	require.ErrorContains(t, do(json.RawMessage("{")), "svc: not sent: body cannot be written as JSON: ")
	err := do(nil, svc.WithBodyField("a.b", func() {}))
	require.ErrorContains(t, err, "svc: not sent: a.b cannot be set: ")
	require.ErrorContains(t, err, "json: unsupported type: func()")
}
