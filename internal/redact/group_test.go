package redact_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
)

func TestAddGroup(t *testing.T) {
	r := redact.New("fixed-secret")
	group := func(i int) []string {
		return []string{fmt.Sprintf("signature-%02d", i), fmt.Sprintf("session-%02d", i), "abc"}
	}
	r.AddGroup(group(0))
	for i := range 30 {
		r.AddGroup(group(i))
		r.AddGroup(group(0)) // used again: not forgotten
	}
	r.Add("token-00")
	r.AddGroup(nil)
	require.Equal(t, "signature-06 REDACTED REDACTED REDACTED REDACTED abc",
		r.String("signature-06 signature-07 session-29 session-00 token-00 abc"))
	require.Equal(t, "REDACTED", r.String("fixed-secret"))

	var none *redact.Redactor
	none.AddGroup(group(0))
	require.Equal(t, "signature-00", none.String("signature-00"))
	var zero redact.Redactor
	zero.AddGroup(group(0))
	require.Equal(t, "signature-00", zero.String("signature-00"))
}
