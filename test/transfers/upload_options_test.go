package transfers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// An option that has no effect in a call is refused, before anything is sent.
func TestUploadOptionsWithoutEffectAreRefused_D30(t *testing.T) {
	some := []svc.RequestOption{svc.WithHeader("X-A", "1")}
	for field, opts := range map[string]svc.UploadOptions{
		"DeleteOnFailure": {DeleteOnFailure: true}, "RegisterOptions": {RegisterOptions: some},
		"RequestOptions": {RequestOptions: some}, "RefuseEmpty": {RefuseEmpty: true, AllowEmpty: true},
	} {
		c, s := scripted(t)
		_, put := c.Files.Put(t.Context(), uploadLink, strings.NewReader("x"), &opts)
		require.Equal(t, field, testkit.ErrorAs[*svc.ValidationError](t, put).Fields[0].Field)
		require.Empty(t, s.Seen())
		if field == "RequestOptions" { // Replace asks for a link with them
			continue
		}
		_, replace := c.Files.Replace(t.Context(), "f1", strings.NewReader("x"), &opts)
		require.Equal(t, field, testkit.ErrorAs[*svc.ValidationError](t, replace).Fields[0].Field)
		require.Empty(t, s.Seen())
	}
}

// RefuseEmpty refuses every body without contents, before anything is registered.
func TestUploadRefusesEmptyBodies_D29(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"bytes": bytes.NewReader(nil), "pipe": readOnly{strings.NewReader("")}, "buffer": new(bytes.Buffer), "file": tempFile(t, nil),
	} {
		for _, refuse := range []bool{true, false} {
			srv := svctest.NewInMemory()
			result, err := srv.Client().Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, UploadOptions: svc.UploadOptions{RefuseEmpty: refuse}})
			if refuse {
				require.ErrorContains(t, err, "Body is empty", name)
				testkit.ErrorAs[*svc.ValidationError](t, err)
				require.Empty(t, srv.Requests())
				continue
			}
			require.NoError(t, err, name)
			require.Zero(t, result.Bytes)
		}
	}
}

// SHA256 is the checksum of what the attempt that succeeded has sent.
func TestUploadReportsTheChecksumOfWhatItSent(t *testing.T) {
	all := testkit.Contents(200_000)
	for _, size := range []int{0, 1, 64 << 10, 200_000} {
		want := sha256.Sum256(all[:size])
		for _, body := range []io.Reader{bytes.NewReader(all[:size]), readOnly{bytes.NewReader(all[:size])}} {
			s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					_, _ = io.CopyN(io.Discard, r.Body, 1000)
					w.WriteHeader(503)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			result, err := s.Client(t).Files.Put(t.Context(), s.Link(), body, nil)
			require.NoError(t, err)
			require.Equal(t, hex.EncodeToString(want[:]), result.SHA256)
		}
	}
	mock := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) { return okResponse(r), nil })
	result, err := testkit.ClientOn(t, mock).Files.Put(context.Background(), uploadLink, strings.NewReader("not read"), nil)
	require.NoError(t, err)
	require.Empty(t, result.SHA256)
}
