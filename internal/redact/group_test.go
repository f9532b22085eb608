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
		return []string{fmt.Sprintf("signature-%03d", i), fmt.Sprintf("session-%03d", i), "abc"}
	}
	r.Add(group(0)...)
	for i := range 106 {
		r.Add(group(i)...)
		r.Add(group(0)...) // a group that is added again stays known
	}
	r.Add("token-00")
	r.Add()
	require.Equal(t, "signature-007 REDACTED REDACTED REDACTED REDACTED abc",
		r.String("signature-007 signature-008 session-105 session-000 token-00 abc"))
	require.Equal(t, "REDACTED", r.String("fixed-secret"))
}
