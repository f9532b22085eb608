package jsonfield

import (
	"cmp"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/lazy"
)

// Int reads a JSON value as a whole number within 64 bits: 2, "2" and 2.0 are 2; null and "" are 0.
func Int(value []byte) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil { // the usual form
		return n, true
	}
	text := Text(string(value))
	switch {
	case text == "":
		return 0, len(value) > 0
	case !IsNumber(text):
		return 0, false
	}
	r, _ := new(big.Rat).SetString(text) // also reads 2.0 and 2e0, which are whole numbers
	return r.Num().Int64(), r.IsInt() && r.Num().IsInt64()
}

// Time reads a JSON value as a time. The time is zero for null, "" and the year 1. ok is false if the
// value is not a time.
func Time(value string) (t time.Time, ok bool) {
	text := Text(value)
	if t, ok = parseTime(text); !ok && !strings.HasPrefix(value, `"`) {
		t, ok = parseUnix(text)
	}
	switch year := t.UTC().Year(); {
	case text == "", ok && (year == 1 || t.Year() == 1): // there is no text, or it is a time in the year 1, in UTC or in the zone that it names
		return time.Time{}, true
	case year < 1, year > 9999:
		return time.Time{}, false
	}
	return t, ok
}

// Text returns the text of a JSON string, "" for null, and any other value unchanged.
func Text(value string) string {
	switch n := len(value); {
	case value == "null":
		return ""
	case n < 2 || value[0] != '"' || value[n-1] != '"':
		return value
	case strings.IndexByte(value, '\\') < 0:
		return value[1 : n-1]
	}
	var text string
	if json.Unmarshal([]byte(value), &text) != nil {
		return value
	}
	return text
}

// TypeError returns the type of error that encoding/json returns if a JSON value b does not fit
// into T.
func TypeError[T any](b []byte) error {
	const shown = 32 // a longer value is replaced by its kind, such as "object"
	value := string(b)
	if len(b) > shown {
		value = cmp.Or(map[byte]string{'{': "object", '[': "array", '"': "string"}[b[0]], "number")
	}
	return &json.UnmarshalTypeError{Value: value, Type: reflect.TypeFor[T]()}
}

// timeLayouts are the accepted layouts of a string, the usual one first. isoLayouts are the same
// with a T between date and time. Parsing with them also accepts a fraction after the seconds.
var (
	timeLayouts = []string{time.DateTime, time.DateTime + "Z07:00", time.DateTime + "Z0700", time.DateTime + "Z07", time.DateOnly, "20060102150405"}
	isoLayouts  = strings.Split(strings.ReplaceAll(strings.Join(timeLayouts, "|"), " ", "T"), "|")
)

// parseTime parses a string. At least 9 digits are parsed as a number. Fewer digits are not a
// time, since they are more likely something else, such as the date 20240501.
func parseTime(text string) (time.Time, bool) {
	layouts := timeLayouts
	if len(text) > len(time.DateOnly) && text[len(time.DateOnly)] == 'T' {
		layouts = isoLayouts
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, true
		}
	}
	if len(text) < 9 || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	return parseUnix(text)
}

// parseUnix reads a number. Up to the year 5138 it is a number of seconds. A larger number
// is in milliseconds, microseconds or nanoseconds.
func parseUnix(text string) (time.Time, bool) {
	if !IsNumber(text) {
		return time.Time{}, false
	}
	seconds, _ := new(big.Rat).SetString(text)
	most, thousandth := big.NewRat(1e11, 1), big.NewRat(1, 1000)
	for range 3 {
		if seconds.Cmp(most) >= 0 {
			seconds.Mul(seconds, thousandth)
		}
	}
	if new(big.Rat).Abs(seconds).Cmp(most) >= 0 {
		return time.Time{}, false
	}
	nanos := seconds.Mul(seconds, big.NewRat(1e9, 1))
	whole, rest := new(big.Int).DivMod(new(big.Int).Div(nanos.Num(), nanos.Denom()), big.NewInt(1e9), new(big.Int))
	return time.Unix(whole.Int64(), rest.Int64()).UTC(), true
}

// IsNumber reports whether text is a number as JSON writes it. It returns false for a number
// that is too large to compute with, such as 1e999999999.
func IsNumber(text string) bool {
	const maxText, maxExponent = 1024, 400
	if _, exponent, scientific := strings.Cut(strings.ToLower(text), "e"); scientific {
		if n, err := strconv.Atoi(exponent); err != nil || n < -maxExponent || n > maxExponent {
			return false
		}
	}
	if len(text) > maxText {
		return false
	}
	_, err := strconv.ParseFloat(text, 64) // fails if the number is too large for a float64
	return err == nil && number().MatchString(text)
}

var number = lazy.Regexp(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
