package redact_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
	"example.com/svc/internal/testkit"
)

// Servers choose the texts, and redirects add secrets. Many long secrets that are almost
// the same must not take quadratic time.
func TestManyLongSecretsTakeLinearTime(t *testing.T) {
	size := testkit.Shorter(256<<10, 16<<10)
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
