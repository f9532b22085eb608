package svc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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

// needlesOf are the ways in which a printed value can show a secret: as it is, as
// numbers of several kinds, and as an encoder writes it.
func needlesOf(secret string) []string {
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
	// In base64 a text looks different for each place where it may begin.
	for offset := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := e.EncodeToString(append(make([]byte, offset), secret...))
			forms = append(forms, s[[]int{0, 2, 3}[offset]:len(s)-1])
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// printed holds all that fmt, JSON and slog make of values.
type printed struct {
	bytes.Buffer
	json *slog.Logger
	text *slog.Logger
}

func newPrinted() *printed {
	p := new(printed)
	p.json = slog.New(slog.NewJSONHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p.text = slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return p
}

// formats are the verbs and flags of fmt, except for those that by the
// documentation do not ask a value how it prints; commonFormats are the ones that
// make a difference for what stands inside another value.
var (
	formats = func() []string {
		all := []string{"%+v", "%#v", "%+q", "%#q", "% x", "%# x", "%#X", "%+d", "%08v", "%-90s", "%.400v"}
		for _, verb := range strings.ReplaceAll(verbs, "p", "") {
			all = append(all, "%"+string(verb))
		}
		return all
	}()
	commonFormats = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"}
)

// add prints a value as it is.
func (p *printed) add(v any, formats []string) {
	if v == nil {
		return
	}
	bare := showsBare(reflect.ValueOf(v), 0)
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
	p.text.Info("", "v", v, slog.Group("g", slog.Any("v", v)))
}

// showsBare reports whether v holds a pointer to a record with a link or a secret, and
// not at the top. Fmt does not ask such a record how it prints when the verb does not
// fit a pointer: the documentation of SignedURL says so.
func showsBare(v reflect.Value, depth int) bool {
	switch v.Kind() {
	case reflect.Interface:
		return showsBare(v.Elem(), depth)
	case reflect.Pointer:
		switch v.Type().Elem() {
		case reflect.TypeFor[svc.Job](), reflect.TypeFor[svc.JobList](), reflect.TypeFor[svc.JobMetaInfo](), reflect.TypeFor[svc.JobOutput](),
			reflect.TypeFor[svc.ServiceAPIToken](), reflect.TypeFor[svc.RegisteredFile]():
			return depth > 0
		}
		return showsBare(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if showsBare(v.Index(i), depth+1) {
				return true
			}
		}
	case reflect.Map:
		for _, value := range v.Seq2() {
			if showsBare(value, depth+1) {
				return true
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if depth < 10 && showsBare(field, depth+1) {
				return true
			}
		}
	}
	return false
}

// addParts prints a value as part of others: behind a pointer, in a slice, a map,
// and a field of a struct, with its own type and as any.
func (p *printed) addParts(v any) {
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
		p.add(part, commonFormats)
	}
}

// requireWithout looks for the needles of some secrets.
func (p *printed) requireWithout(t *testing.T, needles []string) {
	t.Helper()
	all := p.Bytes()
	for _, needle := range needles {
		if at := bytes.Index(all, []byte(needle)); at >= 0 {
			require.Fail(t, "a secret is shown", "%q in …%s…", needle, all[max(at-300, 0):min(at+len(needle)+50, len(all))])
		}
	}
}

// The search must find what it looks for: a secret in a value that does not hide it.
func TestNeedlesAreFound(t *testing.T) {
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
			p := newPrinted()
			p.add(v, formats)
			p.addParts(v)
			for _, needle := range needlesOf(secret) {
				found = found || bytes.Contains(p.Bytes(), []byte(needle))
			}
			require.True(t, found, name)
		}
		encoded, err := json.Marshal([]byte(pad + secret + "zz"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(needlesOf(secret), func(n string) bool { return bytes.Contains(encoded, []byte(n)) }), "base64 after %q", pad)
		hex := fmt.Sprintf("%x %X % x %v %#v", pad+secret, pad+secret, pad+secret, []byte(pad+secret), []byte(pad+secret))
		n := 0
		for _, needle := range needlesOf(secret) {
			n += matrixIf(strings.Contains(hex, needle))
		}
		require.Equal(t, 5, n, hex)
	}
}
