package secrets_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// printings formats v with every function and verb of fmt.
func printings(v any) map[string]string {
	tooMany, badWidth := "none", "%*s"
	all := map[string]string{
		"Sprint":   fmt.Sprint(v),
		"Sprintln": fmt.Sprintln(v),
		"Errorf":   fmt.Errorf("%v", v).Error(),
		"extra":    fmt.Sprintf(tooMany, v),
		"star":     fmt.Sprintf(badWidth, v, "x"),
		"slice":    fmt.Sprintf("%v %+v %#v %q %x", []any{v}, []any{v}, []any{v}, []any{v}, []any{v}),
		"map":      fmt.Sprintf("%v %#v", map[string]any{"k": v}, map[any]string{v: "k"}),
		"field":    fmt.Sprintf("%v %+v %#v %s", struct{ F any }{v}, struct{ F any }{v}, &struct{ F any }{v}, struct{ F any }{v}),
	}
	for _, verb := range testkit.Verbs {
		for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "90", "-90", "5.3", ".70", "[1]"} {
			format := "%" + flags + string(verb)
			all[format] = fmt.Sprintf(format, v)
		}
	}
	return all
}

// encodings encodes v in every way that does not use fmt directly.
func encodings(t *testing.T, v any) map[string]string {
	all := map[string]string{
		"json":     testkit.Encode(t, v),
		"json map": testkit.Encode(t, map[string]any{"k": []any{v}}),
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("", "v", v, slog.Group("g", "v", []any{v}))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("", "v", v, slog.Group("g", "v", []any{v}))
	require.NoError(t, template.Must(template.New("").Parse("{{.}} {{printf `%q` .}}")).Execute(&out, v))
	require.NoError(t, xml.NewEncoder(&out).Encode(v))
	all["handlers"] = out.String()
	return all
}

func requireHidden(t *testing.T, how, text string) {
	t.Helper()
	for _, secret := range []string{"PASSWORD", "SIGN", "TOKEN", "FRAGMENT", "user", "Amz"} {
		require.NotContains(t, text, secret, how)
		require.NotContains(t, strings.ToLower(text), fmt.Sprintf("%x", secret), how)
		require.NotContains(t, strings.ToLower(text), fmt.Sprintf("% x", secret), how)
	}
}

func TestSignedURLHidesItsSecrets(t *testing.T) {
	link := svc.SignedURL(testkit.SecretLink)
	for how, text := range printings(link) {
		requireHidden(t, how, text)
	}
	for how, text := range printings(&link) {
		requireHidden(t, how, text)
	}
	for how, text := range encodings(t, link) {
		requireHidden(t, how, text)
		require.Contains(t, text, "https://store.test:8443/bucket/a%20b.bin?REDACTED", how)
	}
	for how, text := range encodings(t, testkit.Record{Link: link, DeletedAt: &svc.Time{}}) {
		requireHidden(t, how, text)
	}
	requireHidden(t, "error", errors.Join(fmt.Errorf("no answer from %s", link)).Error())
	require.Equal(t, testkit.SecretLink, string(link))
}

func TestSignedURLFormats(t *testing.T) {
	link := svc.SignedURL("https://h/p?q")
	for format, want := range map[string]string{
		"%v":    "https://h/p?REDACTED",
		"%s":    "https://h/p?REDACTED",
		"%q":    `"https://h/p?REDACTED"`,
		"%#v":   `svc.SignedURL("https://h/p?REDACTED")`,
		"%25s":  "     https://h/p?REDACTED",
		"%-25s": "https://h/p?REDACTED     ",
		"%.5s":  "https",
		"%x":    fmt.Sprintf("%x", "https://h/p?REDACTED"),
		"%d":    "%!d(string=https://h/p?REDACTED)",
	} {
		require.Equal(t, want, fmt.Sprintf(format, link))
	}
}

func TestSignedURLText(t *testing.T) {
	for link, want := range map[string]string{
		"":                                  "",
		"https://h":                         "https://h",
		"https://h/p":                       "https://h/p",
		"https://h/p?":                      "https://h/p?REDACTED",
		"https://h?q":                       "https://h?REDACTED",
		"https://h/p#f":                     "https://h/p",
		"https://token@h/p":                 "https://h/p",
		"HTTPS://H/p?q":                     "https://H/p?REDACTED",
		"https://h/p%3FX-Amz-Signature%3DS": "https://h/p?REDACTED",
		"s3://bucket/key?versionId=1":       "s3://bucket/key?REDACTED",
		"https://[::1]:80/p?q":              "https://[::1]:80/p?REDACTED",
		"https://h/ü?q":                     "https://h/%C3%BC?REDACTED",
		"just-a-token":                      "[unparsable link REDACTED]",
		"/p?q":                              "[unparsable link REDACTED]",
		"//h/p?q":                           "[unparsable link REDACTED]",
		"https:///p?q":                      "[unparsable link REDACTED]",
		"https:p?q":                         "[unparsable link REDACTED]",
		"https://h:port/p?q":                "[unparsable link REDACTED]",
		"https://h/%zz?q":                   "[unparsable link REDACTED]",
		"https://h/p?q\n":                   "[unparsable link REDACTED]",
		" https://h/p?q":                    "[unparsable link REDACTED]",
		"data:text/plain,secret":            "[unparsable link REDACTED]",
		"https://us:er@pass/word@h/p?q":     "https://pass/word@h/p?REDACTED", // the host, by the rules of URLs, is "pass"
	} {
		require.Equal(t, want, svc.SignedURL(link).String(), link)
	}
}

func TestSignedURLKnowsWhenItWasPrinted(t *testing.T) {
	for _, link := range []svc.SignedURL{testkit.SecretLink, "https://h/%zz?q"} {
		require.False(t, link.Redacted())
		require.True(t, svc.SignedURL(link.String()).Redacted())
		require.True(t, testkit.Decode[svc.SignedURL](t, testkit.Encode(t, link)).Redacted(), "encoding as JSON must remove the secret")
	}
	require.False(t, svc.SignedURL("").Redacted())
	require.False(t, svc.SignedURL("https://h/p").Redacted())
}

func TestSignedURLDecodesByteForByte(t *testing.T) {
	for text, want := range map[string]string{
		`"https://h/p?a=1\u0026b=%2F%2f+%20"`: "https://h/p?a=1&b=%2F%2f+%20",
		`"https:\/\/h\/p?a=ü;é\""`:            "https://h/p?a=ü;é\"",
		`" odd text "`:                        " odd text ",
	} {
		require.Equal(t, want, string(testkit.Decode[svc.SignedURL](t, text)))
	}
}

func TestSecret(t *testing.T) {
	const token = "SIGN-PASSWORD-TOKEN"
	secret := testkit.Decode[svc.Secret](t, `"`+token+`"`)
	require.Equal(t, token, string(secret))
	for how, text := range printings(secret) {
		requireHidden(t, how, text)
	}
	for how, text := range encodings(t, secret) {
		requireHidden(t, how, text)
		require.Contains(t, text, "REDACTED", how)
	}
	require.Equal(t, "REDACTED", fmt.Sprint(secret))
	require.Equal(t, `svc.Secret("REDACTED")`, fmt.Sprintf("%#v", secret))
	require.Equal(t, `svc.Secret("REDACTED")`, fmt.Sprintf("%#v", struct{ F any }{secret}.F))

	require.Empty(t, fmt.Sprint(svc.Secret("")))
	require.Equal(t, `""`, testkit.Encode(t, svc.Secret("")))
	require.Equal(t, svc.Secret(""), testkit.Decode[svc.Secret](t, `null`))
}
