package svc

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"example.com/svc/internal/redact"
)

// SignedURL is a link whose query is a key to what it points at. Everything
// that prints it leaves out query, fragment and user info: every fmt verb,
// log/slog, and the encodings as JSON, XML, gob and text. string(u) is the link
// itself, byte for byte as the service sent it; store that, not the JSON of a
// record, if a link has to outlive the process.
//
// Three ways around it are the caller's to avoid. Fmt cannot ask a value in an
// unexported field of a struct how to print itself. The misused verbs %p and %w,
// which go vet reports, do not ask either, nor does the built-in print. And some
// encoders take whatever is of a string kind for its bare text: encoding/json the
// keys of a map (so never use a link as a key), encoding/xml a comment field,
// encoding/asn1 and database/sql any value.
type SignedURL string

// String returns the link without its secrets: "https://host/path?REDACTED",
// or a note in brackets if it is no absolute URL.
func (u SignedURL) String() string { return redact.URL(string(u)) }

// Redacted reports whether u is what printing or encoding left of a link. Such
// a link opens nothing: ask the service for a new one.
func (u SignedURL) Redacted() bool {
	return strings.HasSuffix(string(u), "?"+redact.Mark) || string(u) == redact.BadURL
}

// Format prints what String returns, under every verb and flag.
func (u SignedURL) Format(f fmt.State, verb rune) { format(f, verb, u, u.String()) }

// GoString returns a Go expression without the secrets.
func (u SignedURL) GoString() string { return fmt.Sprintf("svc.SignedURL(%q)", u.String()) }

// LogValue returns what String returns.
func (u SignedURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText returns what String returns: a link never leaves the process by
// way of an encoder.
func (u SignedURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalJSON returns what String returns, as a JSON string.
func (u SignedURL) MarshalJSON() ([]byte, error) { return json.Marshal(u.String()) }

// GobEncode returns what String returns.
func (u SignedURL) GobEncode() ([]byte, error) { return []byte(u.String()), nil }

// GobDecode reads what GobEncode returned: a link without its secrets.
func (u *SignedURL) GobDecode(text []byte) error {
	*u = SignedURL(text)
	return nil
}

// Secret is a text that prints as REDACTED wherever it is formatted, logged or
// encoded; an empty one prints empty. string(s) is the text itself. It has the
// same three limits as [SignedURL].
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

// MarshalJSON returns what String returns, as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// GobEncode returns what String returns.
func (s Secret) GobEncode() ([]byte, error) { return []byte(s.String()), nil }

// GobDecode reads what GobEncode returned.
func (s *Secret) GobDecode(text []byte) error {
	*s = Secret(text)
	return nil
}

// format prints text in place of a value that must not be shown.
func format(f fmt.State, verb rune, value fmt.GoStringer, text string) {
	if verb == 'v' && f.Flag('#') {
		_, _ = fmt.Fprint(f, value.GoString())
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// formatFields prints all fields of a struct under every verb. It is there for
// structs that fmt would print without asking their fields: behind a pointer, a
// verb that does not fit shows them raw.
func formatFields(f fmt.State, verb rune, plain any) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), plain)
}
