package svc_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// An encoding that nobody asked for is what the error is about, not the bytes.
func TestC16_ContentEncodingNobodyAskedFor(t *testing.T) {
	for _, encoding := range []string{"br", "zstd", "deflate", "gzip, br", "x-unknown"} {
		for name, body := range map[string]string{"bytes": "\x0b\x02\x80{\"x\x03", "text": "a9#k"} {
			header := map[string]string{"Content-Encoding": encoding}
			for _, op := range operations {
				if op.name == "delete" {
					continue // promises no body
				}
				err := op.do(t.Context(), play(t, reply{status: 200, body: body, header: header}).client())
				require.ErrorContains(t, err, `the body has the Content-Encoding "`+encoding+`", which was not asked for`, name)
				require.NotContains(t, err.Error(), "invalid character")
				require.NotContains(t, err.Error(), body)
				errorAs[*svc.DecodeError](t, err)
				require.Equal(t, op.name == "create", errors.Is(err, svc.ErrOutcomeUnknown))
			}
			err := opGet.do(t.Context(), play(t, reply{status: 404, body: body, header: header}).client())
			require.ErrorContains(t, err, encoding)
			require.NotContains(t, err.Error(), body)
		}
	}
	require.NoError(t, opGet.do(t.Context(), play(t, reply{status: 200, body: serviceJSON, header: map[string]string{"Content-Encoding": "identity"}}).client()))
}

// Gateways say 408 of requests that they have passed on, too.
func TestC39_RequestTimeoutAfterACreate(t *testing.T) {
	err := opCreate.do(t.Context(), play(t, status(408)).client())
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.Equal(t, 408, errorAs[*svc.Error](t, err).StatusCode)
	for _, op := range []operation{opGet, opUpdate, opDelete} {
		err := op.do(t.Context(), play(t, status(408)).client())
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, 408, errorAs[*svc.Error](t, err).StatusCode)
	}
}
