package redact_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
)

// Whoever answers chooses the text, and whoever redirects some of the secrets: long
// ones that are alike must not take many seconds.
func TestManyLongSecretsTakeLinearTime(t *testing.T) {
	const size = 256 << 10
	all := strings.Repeat("a", size)
	var secrets []string
	for i := range 20 {
		secrets = append(secrets, all[:size/2-i])
	}
	r := redact.New(secrets...)
	require.Equal(t, redact.Mark+redact.Mark, r.String(all))
	other := strings.Repeat(all[:size/2-100]+"b", 4)
	require.Equal(t, other, r.String(other))
}
