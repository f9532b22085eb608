package wire_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A response with a Content-Encoding that was not requested is an error that names this
// encoding.
func TestContentEncodingNobodyAskedFor_C16(t *testing.T) {
	for _, encoding := range []string{"br", "zstd", "deflate", "gzip, br", "x-unknown"} {
		for name, body := range map[string]string{"bytes": "\x0b\x02\x80{\"x\x03", "text": "a9#k"} {
			header := map[string]string{"Content-Encoding": encoding}
			for _, op := range testkit.Operations {
				if op.Name == "delete" {
					continue // a delete needs no body
				}
				err := op.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: body, Header: header}).Client())
				require.ErrorContains(t, err, `the body has the Content-Encoding "`+encoding+`", which was not asked for`, name)
				require.NotContains(t, err.Error(), "invalid character")
				require.NotContains(t, err.Error(), body)
				testkit.ErrorAs[*svc.DecodeError](t, err)
				require.Equal(t, op.Name == "create", errors.Is(err, svc.ErrOutcomeUnknown))
			}
			err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 404, Body: body, Header: header}).Client())
			require.ErrorContains(t, err, encoding)
			require.NotContains(t, err.Error(), body)
		}
	}
	require.NoError(t, testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200, Body: testkit.ServiceJSON, Header: map[string]string{"Content-Encoding": "identity"}}).Client()))
}

// A gateway may respond with 408 although it has forwarded the request.
func TestRequestTimeoutAfterACreate_C39(t *testing.T) {
	err := testkit.OpCreate.Do(t.Context(), testkit.Play(t, testkit.Status(408)).Client())
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.Equal(t, 408, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
	for _, op := range []testkit.Operation{testkit.OpGet, testkit.OpUpdate, testkit.OpDelete} {
		err := op.Do(t.Context(), testkit.Play(t, testkit.Status(408)).Client())
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, 408, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
	}
}
