package fuzz_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// wire is a transport that writes a request in the HTTP/1 format and reads it again, as a
// server does.
type wire struct {
	requests []*http.Request
	answer   string
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	var text bytes.Buffer
	if err := req.Write(&text); err != nil {
		return nil, err
	}
	got, err := http.ReadRequest(bufio.NewReader(&text))
	if err != nil {
		return nil, err
	}
	w.requests = append(w.requests, got)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(w.answer)),
		Body: io.NopCloser(strings.NewReader(w.answer)),
	}, nil
}

// segments returns the segments of an escaped path, decoded as a server decodes them.
func segments(t *testing.T, path string) []string {
	t.Helper()
	parts := strings.Split(path, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		require.NoError(t, err, part)
		parts[i] = plain
	}
	return parts
}

// fuzzPrefix is the path of a base URL. Wrong escaping changes it.
const fuzzPrefix = "/a%2Fb/c%20d"

// fuzzIDCalls are calls that take an ID, with the route in which the ID stands.
var fuzzIDCalls = []struct {
	route string
	do    func(ctx context.Context, c *svc.Client, id string) error
}{
	{"GET /v1/inference-service/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.InferenceServices.Get(ctx, id)
		return err
	}},
	{"PUT /v1/inference-service/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.InferenceServices.Scale(ctx, id, 1)
		return err
	}},
	{"DELETE /v1/inference-service/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		return c.InferenceServices.Delete(ctx, id)
	}},
	{"GET /v1/svc-video-job/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.VideoJobs.Get(ctx, id)
		return err
	}},
	{"DELETE /v1/svc-image-job/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		return c.ImageJobs.Delete(ctx, id)
	}},
	{"GET /v1/files/{id}", func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.Files.Get(ctx, id)
		return err
	}},
	{"GET /v1/files/{id}/presigned_url", func(ctx context.Context, c *svc.Client, id string) error {
		_, err := c.Files.PresignedURL(ctx, id)
		return err
	}},
}

// An ID is either refused, or sent unchanged as one segment of the path, at its place in
// the route.
func FuzzID(f *testing.F) {
	for i, id := range []string{
		"svc-1", "", " ", ".", "..", "a/b", `a\b`, "a%2Fb", "%2e%2e", "a?b", "a#b", "é", "a b", "+", "a\nb", "\x00", "\xff", ";", "*",
		"{id}", "%", "%zz", "//", "a:b@c", strings.Repeat("x", 1025), "\u2028", "a\u0085", "presigned_url", "[::1]", "...", "\u202e", "\ufffd",
	} {
		f.Add(uint8(i), id)
	}
	f.Fuzz(func(t *testing.T, which uint8, id string) {
		op := fuzzIDCalls[int(which)%len(fuzzIDCalls)]
		answer, err := json.Marshal(map[string]string{"service_id": id, "job_id": id, "id": id, "presigned_url": "https://storage.test/x?sig=1"})
		require.NoError(t, err)
		w := &wire{answer: string(answer)}
		err = op.do(t.Context(), testkit.ClientAt(t, "https://api.test"+fuzzPrefix+"/", svc.WithHTTPClient(&http.Client{Transport: w})), id)
		if errors.As(err, new(*svc.ValidationError)) {
			require.Empty(t, w.requests)
			require.NotRegexp(t, `^[A-Za-z0-9_-]{1,1000}$`, id, "an ordinary ID was refused")
			return
		}
		require.NoError(t, err)
		require.Len(t, w.requests, 1)
		method, path, _ := strings.Cut(op.route, " ")
		want := segments(t, fuzzPrefix+path)
		for i, segment := range want {
			if segment == "{id}" {
				want[i] = id
			}
		}
		got := w.requests[0]
		require.Equal(t, method, got.Method)
		require.Equal(t, "api.test", got.Host)
		require.Empty(t, got.URL.RawQuery)
		require.Equal(t, want, segments(t, got.URL.EscapedPath()))
		require.NotContains(t, []string{".", ".."}, strings.TrimSpace(id), "a proxy would make another path of it")
		require.Equal(t, -1, strings.IndexFunc(id, unicode.IsControl))
	})
}

// Do either refuses a path, or sends its segments below the base URL, escaped as they
// were.
func FuzzDoPath(f *testing.F) {
	for _, path := range []string{
		"/v1/x", "", "v1", "/", "//", "//evil.test/x", "/a/../b", "/a/%2e%2E/b", "/a%2Fb", "/a b%2Fc", "/%zz", "/%", "/a?b", "/a#b", `/a\b`,
		"/é%2F", "/a%0Ab", "/a\nb", "/\xff", "/%FF", "/;a=b", "/*", "/a:b", "/a%20b", "/[x]", "/a+b", "/%41", `/"`, "/a%5Cb", "/|%2f", "https://evil.test/", "}{", "/{id}",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		w := &wire{answer: `{}`}
		err := testkit.ClientAt(t, "https://api.test"+fuzzPrefix, svc.WithHTTPClient(&http.Client{Transport: w})).
			Do(t.Context(), http.MethodGet, path, nil, nil)
		if errors.As(err, new(*svc.ValidationError)) {
			require.Empty(t, w.requests)
			require.NotRegexp(t, `^(/[A-Za-z0-9_-]{1,100})+$`, path, "an ordinary path was refused")
			return
		}
		require.NoError(t, err)
		require.Len(t, w.requests, 1)
		got := w.requests[0]
		require.Equal(t, "api.test", got.Host)
		require.Empty(t, got.URL.RawQuery)
		sent := segments(t, got.URL.EscapedPath())
		require.Equal(t, segments(t, fuzzPrefix+path), sent)
		if sent[len(sent)-1] == "" { // the path ends in a slash
			sent = sent[:len(sent)-1]
		}
		for _, odd := range []string{"", ".", ".."} {
			require.NotContains(t, sent[1:], odd, "a proxy would make another path of it")
		}
	})
}
