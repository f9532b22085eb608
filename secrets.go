package svc

import (
	"fmt"
	"log/slog"

	"example.com/svc/internal/redact"
)

// SignedURL is a presigned URL: a link whose query gives access to a file. If the link is
// printed with fmt, logged with log/slog, or encoded as JSON, XML or text, its query, fragment
// and user info are hidden. string(u) is the whole link, byte for byte as the service sent it.
// To store a link, store string(u): the JSON of a record does not hold the whole link.
//
// The whole link is still visible in four cases:
//   - fmt prints it from an unexported field of a struct. It also prints it from a struct that
//     is reached through a pointer inside another value, if the verb does not fit a pointer,
//     such as %s or %q. In both cases fmt does not call the methods of the link.
//   - fmt prints it with the verbs %p or %w, which are wrong here and which go vet reports. The
//     built-in functions print and println also show it.
//   - encoding/gob encodes it.
//   - Some encoders use the plain text of any string type: encoding/json for the keys of a map
//     (so never use a link as a key), encoding/xml for a comment field, and encoding/asn1 and
//     database/sql for any value.
type SignedURL string

// String returns the link without its secrets: "https://host/path?REDACTED". If u is not an
// absolute URL, String returns a note in brackets instead.
func (u SignedURL) String() string { return redact.URL(string(u)) }

// Redacted reports whether u is a link that has lost its query, because it was printed or
// encoded and then read again. Such a link gives no access: ask the service for a new one.
func (u SignedURL) Redacted() bool {
	return redact.Lost(string(u))
}

// Format prints the text of String for every verb and flag. The exception is %#v, for which
// it prints GoString.
func (u SignedURL) Format(f fmt.State, verb rune) { format(f, verb, u, u.String()) }

// GoString returns a Go expression without the secrets.
func (u SignedURL) GoString() string { return fmt.Sprintf("svc.SignedURL(%q)", u.String()) }

// LogValue returns the text of String as a log value.
func (u SignedURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText returns the text of String.
func (u SignedURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Secret is a string that shows as REDACTED wherever it is formatted, logged or encoded. An empty
// Secret shows as an empty string. string(s) is the secret itself. In the four cases of [SignedURL]
// the secret is still visible.
type Secret string

// String returns REDACTED, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redact.Mark
}

// Format prints the text of String for every verb and flag. The exception is %#v, for which
// it prints GoString.
func (s Secret) Format(f fmt.State, verb rune) { format(f, verb, s, s.String()) }

// GoString returns a Go expression without the secret.
func (s Secret) GoString() string { return fmt.Sprintf("svc.Secret(%q)", s.String()) }

// LogValue returns the text of String as a log value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the text of String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// format prints text in place of a value that must not be shown. For %#v it prints the GoString
// of the value.
func format(f fmt.State, verb rune, value fmt.GoStringer, text string) {
	if verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprint(f, value.GoString())
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}
