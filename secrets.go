package svc

import (
	"fmt"
	"log/slog"
	"strings"

	"example.com/svc/internal/redact"
)

// SignedURL is a presigned URL: a link whose query gives access to a file. The query, the
// fragment and the user info do not show when it is printed with fmt, logged with log/slog,
// or encoded as JSON, XML or text. string(u) is the whole link, byte for byte as the service
// sent it. To store a link, store string(u): the JSON of a record does not hold the whole
// link.
//
// In four ways the whole link can show all the same:
//   - fmt prints a value in an unexported field of a struct without its methods, and also
//     one behind a pointer in a struct that is printed with a verb that does not fit, such
//     as %d.
//   - The misused verbs %p and %w, which go vet reports, and the built-in print show
//     the whole link.
//   - encoding/gob encodes the whole link.
//   - Some encoders take any string type for its bare text: encoding/json the keys of a
//     map (so never use a link as a key), encoding/xml a comment field, encoding/asn1
//     and database/sql any value.
type SignedURL string

// String returns the link without its secrets: "https://host/path?REDACTED",
// or a note in brackets if it is no absolute URL.
func (u SignedURL) String() string { return redact.URL(string(u)) }

// Redacted reports whether u has lost its query because it was printed or encoded. Such a
// link gives no access: ask the service for a new one.
func (u SignedURL) Redacted() bool {
	return strings.HasSuffix(string(u), "?"+redact.Mark) || string(u) == redact.BadURL
}

// Format prints what String returns, under every verb and flag.
func (u SignedURL) Format(f fmt.State, verb rune) { format(f, verb, u, u.String()) }

// GoString returns a Go expression without the secrets.
func (u SignedURL) GoString() string { return fmt.Sprintf("svc.SignedURL(%q)", u.String()) }

// LogValue returns what String returns.
func (u SignedURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText returns what String returns.
func (u SignedURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Secret is a text that prints as REDACTED wherever it is formatted, logged or
// encoded. An empty one prints empty. string(s) is the text itself. It has the same
// four limits as [SignedURL].
type Secret string

// String returns REDACTED, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redact.Mark
}

// Format prints what String returns, under every verb and flag.
func (s Secret) Format(f fmt.State, verb rune) { format(f, verb, s, s.String()) }

// GoString returns a Go expression without the secret.
func (s Secret) GoString() string { return fmt.Sprintf("svc.Secret(%q)", s.String()) }

// LogValue returns what String returns.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String returns.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// format prints text in place of a value that must not be shown.
func format(f fmt.State, verb rune, value fmt.GoStringer, text string) {
	if verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprint(f, value.GoString())
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}
