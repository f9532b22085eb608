package redact_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
)

// hide does with needles of the letters a and b in a text of these what a Redactor
// does, by looking at every place.
func hide(text string, needles []string, inputCut bool) string {
	covered := make([]bool, len(text)+1)
	cover := func(start, end int) {
		for i := start; i < end; i++ {
			covered[i] = true
		}
	}
	for _, needle := range needles {
		for i := range text {
			if strings.HasPrefix(text[i:], needle) {
				cover(i, i+len(needle))
			} else if inputCut && len(text)-i >= 4 && strings.HasPrefix(needle, text[i:]) {
				cover(i, len(text))
			}
		}
	}
	var b strings.Builder
	for i := range text {
		switch {
		case !covered[i]:
			b.WriteByte(text[i])
		case i == 0 || !covered[i-1]:
			b.WriteString(redact.Mark)
		}
	}
	return b.String()
}

// Long secrets are looked for in another way than short ones, and are found in the
// same places, however they repeat themselves.
func TestLongSecretsAreFoundEverywhere(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	letters := func(n, period int) string {
		b := make([]byte, period)
		for i := range b {
			b[i] = "ab"[dice.IntN(2)]
		}
		return string(bytes.Repeat(b, n/period+1)[:n])
	}
	marks := 0
	for range 3000 {
		secret := letters(250+dice.IntN(400), 1+dice.IntN(300))
		text := ""
		for range dice.IntN(5) {
			switch from := dice.IntN(len(secret)); dice.IntN(4) {
			case 0:
				text += secret
			case 1:
				text += secret[from:]
			case 2:
				text += secret[:from]
			case 3:
				text += letters(dice.IntN(100), 1+dice.IntN(5))
			}
		}
		for _, inputCut := range []bool{false, true} {
			out, _ := redact.New(secret).Cut([]byte(text), len(text)+100, inputCut)
			require.Equal(t, hide(text, []string{secret}, inputCut), string(out), "%q in %q", secret, text)
			marks += bytes.Count(out, []byte(redact.Mark))
		}
	}
	require.Greater(t, marks, 3000)

	// A mark that stands in the text already is no part of a secret.
	secret := strings.Repeat("ab", 200)
	text := secret[:300] + redact.Mark + secret[:300]
	out, _ := redact.New(secret).Cut([]byte(text), 1000, true)
	require.Equal(t, secret[:300]+redact.Mark+redact.Mark, string(out))
}

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
	require.Equal(t, redact.Mark, r.String(all), "one at every place")
	for text, want := range map[string]string{
		all[:size/2-100]:       redact.Mark,
		all[:size/2-100] + "b": all[:size/2-100] + "b",
	} {
		out, _ := r.Cut([]byte(text), size, true)
		require.Equal(t, want, string(out), "a beginning at the end, or none")
	}
}
