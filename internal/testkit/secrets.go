package testkit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// NeedlesOf returns the strings in which a printed value can show a secret: the secret itself,
// its bytes as numbers in several notations, and its encoded forms.
func NeedlesOf(secret string) []string {
	var dec, golang, bin, oct, escapedJSON, escapedURL, runes []string
	for _, c := range []byte(secret) {
		dec = append(dec, fmt.Sprint(c))
		golang = append(golang, fmt.Sprintf("%#x", c))
		bin = append(bin, fmt.Sprintf("%b", c))
		oct = append(oct, fmt.Sprintf("%o", c))
		escapedJSON = append(escapedJSON, fmt.Sprintf(`\u%04x`, c))
		escapedURL = append(escapedURL, fmt.Sprintf("%%%02X", c))
		runes = append(runes, fmt.Sprintf("U+%04X", c))
	}
	forms := []string{
		secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret), fmt.Sprintf("% X", secret),
		fmt.Sprintf("%# x", secret), strings.Join(dec, " "), strings.Join(dec, ","), strings.Join(golang, ", "),
		strings.Join(bin, " "), strings.Join(oct, " "), strings.Join(runes, " "),
		strings.Join(escapedJSON, ""), strings.Join(escapedURL, ""), strings.ToLower(strings.Join(escapedURL, "")),
	}
	// The base64 form of a text depends on its offset in the encoded data, modulo 3.
	for offset := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := e.EncodeToString(append(make([]byte, offset), secret...))
			forms = append(forms, s[[]int{0, 2, 3}[offset]:len(s)-1])
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// Printed collects the output of fmt, encoding/json and slog for values.
type Printed struct {
	bytes.Buffer
	json *slog.Logger
	Text *slog.Logger
}

// NewPrinted returns an empty Printed.
func NewPrinted() *Printed {
	p := new(Printed)
	p.json = slog.New(slog.NewJSONHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p.Text = slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return p
}

// Formats are the verbs of fmt, and combinations of verbs and flags. Only %p and %w are
// missing: SignedURL documents that they show the whole link. CommonFormats are the
// formats that can make a difference for a value inside another value.
var (
	Formats = func() []string {
		all := []string{"%+v", "%#v", "%+q", "%#q", "% x", "%# x", "%#X", "%+d", "%08v", "%-90s", "%.400v"}
		for _, verb := range Verbs {
			all = append(all, "%"+string(verb))
		}
		return all
	}()
	CommonFormats = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"}
)

// Add prints v with each of the formats, as JSON, and with slog. If ShowsBare is true for
// v, Add skips the formats that do not fit a pointer.
func (p *Printed) Add(v any, formats []string) {
	if v == nil {
		return
	}
	bare := ShowsBare(reflect.ValueOf(v), 0)
	for _, format := range formats {
		if !bare || strings.ContainsAny(format[len(format)-1:], "vdxXob") {
			fmt.Fprintf(p, format, v)
		}
	}
	if b, err := json.Marshal(v); err == nil {
		p.Write(b)
	} else {
		io.WriteString(p, err.Error())
	}
	p.json.Info("", "v", v, slog.Group("g", slog.Any("v", v)))
	p.Text.Info("", "v", v, slog.Group("g", slog.Any("v", v)))
}

// ShowsBare reports whether a pointer to a record with a link or a secret is inside v, but
// is not v itself. If such a value is printed with a verb that does not fit a pointer, fmt
// does not call the methods of the link or the secret. SignedURL documents this.
func ShowsBare(v reflect.Value, depth int) bool {
	switch v.Kind() {
	case reflect.Interface:
		return ShowsBare(v.Elem(), depth)
	case reflect.Pointer:
		switch v.Type().Elem() {
		case reflect.TypeFor[svc.Job](), reflect.TypeFor[svc.JobList](), reflect.TypeFor[svc.JobMetaInfo](), reflect.TypeFor[svc.JobOutput](),
			reflect.TypeFor[svc.ServiceAPIToken](), reflect.TypeFor[svc.RegisteredFile]():
			return depth > 0
		}
		return ShowsBare(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if ShowsBare(v.Index(i), depth+1) {
				return true
			}
		}
	case reflect.Map:
		for _, value := range v.Seq2() {
			if ShowsBare(value, depth+1) {
				return true
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if depth < 10 && ShowsBare(field, depth+1) {
				return true
			}
		}
	}
	return false
}

// AddParts prints v inside other values: behind a pointer, in a slice, in a map, and in a
// field of a struct. The elements and fields have the type of v, and then the type any.
func (p *Printed) AddParts(v any) {
	rv := reflect.ValueOf(v)
	if !rv.IsValid() {
		return
	}
	t := rv.Type()
	pointer := reflect.New(t)
	pointer.Elem().Set(rv)
	slice := reflect.MakeSlice(reflect.SliceOf(t), 1, 1)
	slice.Index(0).Set(rv)
	byName := reflect.MakeMap(reflect.MapOf(reflect.TypeFor[string](), t))
	byName.SetMapIndex(reflect.ValueOf("k"), rv)
	field := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "F", Type: t}})).Elem()
	field.Field(0).Set(rv)
	parts := []any{
		pointer.Interface(), slice.Interface(), byName.Interface(), field.Interface(), field.Addr().Interface(),
		[]any{v}, map[string]any{"k": v}, struct{ F any }{v},
	}
	if t.Kind() == reflect.Pointer && !rv.IsNil() {
		parts = append(parts, rv.Elem().Interface())
	}
	for _, part := range parts {
		p.Add(part, CommonFormats)
	}
}

// RequireWithout fails the test if p contains one of the needles (see NeedlesOf).
func (p *Printed) RequireWithout(t *testing.T, needles []string) {
	t.Helper()
	all := p.Bytes()
	for _, needle := range needles {
		if at := bytes.Index(all, []byte(needle)); at >= 0 {
			require.Fail(t, "the output shows a secret", "%q in …%s…", needle, all[max(at-300, 0):min(at+len(needle)+50, len(all))])
		}
	}
}

// A presigned URL with two secrets. A service or a proxy may repeat it in a response.
const (
	Signature  = "5f3c0d9a7be1SIGNATURE"
	SessionKey = "FwoGZXIvYXdzEHSESSION"
	SignedLink = "https://store.test/bucket/a.bin?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + Signature + "&X-Amz-Security-Token=" + SessionKey
)

// BodiesOf returns the response bodies and headers that an error holds.
func BodiesOf(err error) (bodies [][]byte) {
	if e, ok := errors.AsType[*svc.Error](err); ok {
		bodies = append(bodies, e.Body, fmt.Append(nil, e.Header))
	}
	if e, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		bodies = append(bodies, e.Body)
	}
	return bodies
}

// Secrets are the token of the clients, and the secrets in SignedLink and FileQuery.
var Secrets = []string{Token, Signature, SessionKey, "sig-77c1e2", "st-9b04"}

// RequireSilent prints err in the common formats, and fails the test if the output shows
// one of the Secrets.
func RequireSilent(t *testing.T, err error) {
	t.Helper()
	p := NewPrinted()
	p.AddError(err, func(err error) { p.Add(err, CommonFormats) })
	for _, secret := range Secrets {
		p.RequireWithout(t, NeedlesOf(secret))
	}
}

// AddError calls add with err and with each error that err wraps. It also prints the
// responses that these errors hold.
func (p *Printed) AddError(err error, add func(error)) {
	add(err)
	for _, b := range BodiesOf(err) {
		p.Write(b)
	}
	switch e := err.(type) {
	case *svc.OutcomeUnknownError: // has no Unwrap
		p.AddError(e.Err, add)
	case interface{ Unwrap() error }:
		if err := e.Unwrap(); err != nil {
			p.AddError(err, add)
		}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			p.AddError(err, add)
		}
	}
}

// RequireClean fails the test if the text shows one of the Secrets.
func RequireClean(t *testing.T, text string) {
	t.Helper()
	p := NewPrinted()
	p.WriteString(text)
	for _, secret := range Secrets {
		p.RequireWithout(t, NeedlesOf(secret))
	}
}

// Verbs are the verbs that fmt defines, except p and w, and one undefined verb, z.
const Verbs = "vTtbcdoOqxXUeEfFgGsz"

// SecretLink is a URL with secrets in its user info, its query and its fragment.
const SecretLink = "https://user:PASSWORD@store.test:8443/bucket/a%20b.bin?X-Amz-Signature=SIGNATURE&X-Amz-Security-Token=TOKEN#FRAGMENT"
