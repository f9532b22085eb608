package secrets_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/testkit"
)

// The search for secrets must find a secret in values that do not hide it.
func TestSearchFindsSecrets(t *testing.T) {
	const secret = "5ecre7-0123456789"
	type open struct {
		Text  string
		Bytes []byte
	}
	for _, pad := range []string{"", "a", "ab", "abc"} {
		for name, v := range map[string]any{
			"text": pad + secret + "z", "bytes": []byte(pad + secret + "z"), "struct": open{Bytes: []byte(pad + secret + "z")},
			"pointer": &open{Text: pad + secret}, "json": json.RawMessage(`"` + pad + secret + `"`),
		} {
			found := false
			p := testkit.NewPrinted()
			p.Add(v, testkit.Formats)
			p.AddParts(v)
			for _, needle := range testkit.NeedlesOf(secret) {
				found = found || bytes.Contains(p.Bytes(), []byte(needle))
			}
			require.True(t, found, name)
		}
		encoded, err := json.Marshal([]byte(pad + secret + "zz"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(testkit.NeedlesOf(secret), func(n string) bool { return bytes.Contains(encoded, []byte(n)) }), "base64 after %q", pad)
		hex := fmt.Sprintf("%x %X % x %v %#v", pad+secret, pad+secret, pad+secret, []byte(pad+secret), []byte(pad+secret))
		n := 0
		for _, needle := range testkit.NeedlesOf(secret) {
			n += testkit.One(strings.Contains(hex, needle))
		}
		require.Equal(t, 5, n, hex)
	}
}
