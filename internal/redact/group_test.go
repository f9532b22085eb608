package redact_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
)

func TestAddSeveral(t *testing.T) {
	r := redact.New("fixed-secret")
	group := func(i int) []string {
		return []string{fmt.Sprintf("signature-%02d", i), fmt.Sprintf("session-%02d", i), "abc"}
	}
	r.Add(group(0)...)
	for i := range 30 {
		r.Add(group(i)...)
		r.Add(group(0)...) // a group that is added again stays known
	}
	r.Add("token-00")
	r.Add()
	require.Equal(t, "signature-07 REDACTED REDACTED REDACTED REDACTED abc",
		r.String("signature-07 signature-08 session-29 session-00 token-00 abc"))
	require.Equal(t, "REDACTED", r.String("fixed-secret"))
}
