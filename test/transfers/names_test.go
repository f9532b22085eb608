package transfers_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// A name or an ID given by the caller may contain the token by mistake, or a line end.
// The error texts of transfers show neither.
func TestTransferErrorsShowNoSecretForAName(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, c *svc.Client, name string) error{
		"Replace": func(t *testing.T, c *svc.Client, name string) error {
			_, err := c.Files.Replace(t.Context(), name, strings.NewReader("x"), nil)
			return err
		},
		"Download": func(t *testing.T, c *svc.Client, name string) error {
			_, err := c.Files.Download(t.Context(), name, io.Discard, nil)
			return err
		},
		"Upload, body": func(t *testing.T, c *svc.Client, name string) error {
			body := testkit.ReadFunc(func([]byte) (int, error) { return 0, errMine })
			_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: name, Body: body})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				err := fail(t, srv.Client(), srv.Token()+"\u2028.jsonl")
				if up, ok := errors.AsType[*svc.UploadError](err); ok {
					require.Contains(t, up.FileName+up.FileID, "REDACTED")
				} else {
					require.Contains(t, testkit.ErrorAs[*svc.DownloadError](t, err).FileID, "REDACTED")
				}
				for _, format := range []string{"%v", "%+v", "%#v", "%q", "%s", "%x"} {
					text := fmt.Sprintf(format, err)
					require.NotContains(t, text, srv.Token())
					require.NotContains(t, text, "\u2028")
					require.Contains(t, text, "REDACTED")
				}
			})
		})
	}
}

// The text of an error that a program builds itself has only the fields that are set.
func TestTransferErrorsMadeByHand(t *testing.T) {
	for want, err := range map[string]error{
		"svc: download of file a b (1 of 2 bytes): mine": &svc.DownloadError{FileID: "a\u2028b", Received: 1, Total: 2, Err: errMine},
		"svc: download: mine":                            &svc.DownloadError{Total: -1, Err: errMine},
		`svc: upload of "f": put: mine; the record a b exists, but its contents may be missing: call Replace with a new reader to send them, or Delete`: &svc.UploadError{
			Stage: svc.UploadStagePut, FileName: "f", FileID: "a\u2028b", Err: errMine},
		"svc: upload":                  &svc.UploadError{},
		"svc: download (0 of 0 bytes)": &svc.DownloadError{},
		"svc: upload: reading the body: mine; nothing was sent": &svc.UploadError{Stage: svc.UploadStageBody, Err: errMine},
	} {
		require.EqualError(t, err, strings.Replace(want, "mine", errMine.Error(), 1))
	}
}
