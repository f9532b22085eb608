package svc

import (
	"encoding/json"
	"math/big"
	"strings"
	"time"
)

// Time is a moment as the service writes it: "2024-05-01 10:20:30",
// "2024-05-01T10:20:30", each with or without fraction and zone, a date alone, or a
// number. A text without a zone is UTC. A number is in Unix seconds; one that is too
// large for that is in milliseconds, microseconds or nanoseconds. Null, "" and the
// year 1, which programs write for "never", are the zero value.
//
// A value that is no time does not fail the record around it: the Time is zero,
// IsZero reports true, and [Time.Raw] has the text.
//
// A Time encodes as RFC 3339 in UTC. A zero Time encodes as null, or as its text if it
// was read from a value that is no time.
type Time struct {
	time.Time
	json string // what was read; ignored after Time was changed
}

// UnmarshalJSON reads any JSON value. It never fails.
func (t *Time) UnmarshalJSON(b []byte) error {
	*t = readTime(string(b))
	return nil
}

// UnmarshalText reads what a JSON string may hold. It never fails.
func (t *Time) UnmarshalText(text []byte) error {
	b, err := json.Marshal(string(text))
	*t = readTime(string(b))
	return err
}

func readTime(value string) Time {
	text := jsonText(value)
	t, ok := parseTime(text)
	if !ok && !strings.HasPrefix(value, `"`) {
		t, ok = parseUnix(text)
	}
	switch year := t.UTC().Year(); {
	case text == "", ok && (year == 1 || t.Year() == 1): // of its zone
		return Time{}
	case ok && year > 1 && year <= 9999:
		return Time{t, value}
	default:
		return Time{json: value}
	}
}

// MarshalJSON fails only for a time outside the years 0 to 9999.
func (t Time) MarshalJSON() ([]byte, error) {
	switch raw := t.Raw(); {
	case !t.IsZero():
		return t.UTC().MarshalJSON()
	case raw != "":
		return json.Marshal(raw)
	default:
		return []byte("null"), nil
	}
}

// MarshalText returns what MarshalJSON does, without the quotes; "" for null.
func (t Time) MarshalText() ([]byte, error) {
	if t.IsZero() {
		return []byte(t.Raw()), nil
	}
	return t.UTC().MarshalText()
}

// AppendText appends what MarshalText returns. Go 1.27 writes the keys of a JSON object
// with it: without it the embedded [time.Time] would write the year 1 for zero.
func (t Time) AppendText(b []byte) ([]byte, error) {
	text, err := t.MarshalText()
	return append(b, text...), err
}

// Raw returns the text that the service sent for this time: a string without its
// quotes, any other value as JSON. A Time that was made or changed in Go has the text
// that it encodes as, and "" if it is zero.
func (t Time) Raw() string {
	switch {
	case t.Time.Equal(readTime(t.json).Time):
		return jsonText(t.json)
	case t.IsZero():
		return ""
	default:
		return t.UTC().Format(time.RFC3339Nano)
	}
}

// String returns the time as [time.Time.String] does. For a zero Time it returns what
// [Time.Raw] does.
func (t Time) String() string {
	if t.IsZero() {
		return t.Raw()
	}
	return t.Time.String()
}

// timeLayouts are the forms of a text, with a space in place of the T. Each may have a
// fraction after its seconds.
var timeLayouts = []string{time.DateTime, time.DateTime + "Z07:00", time.DateTime + "Z0700", time.DateTime + "Z07", time.DateOnly, "20060102150405"}

// parseTime reads a text. Digits alone are a number if there are enough of them: fewer
// are more likely something else, such as 20240501.
func parseTime(text string) (time.Time, bool) {
	spaced := strings.Replace(text, "T", " ", 1)
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, spaced, time.UTC); err == nil {
			return t, true
		}
	}
	if len(text) < 9 || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	return parseUnix(text)
}

// parseUnix reads a number: of seconds up to the year 5138, of a smaller unit above.
func parseUnix(text string) (time.Time, bool) {
	if !isNumber(text) {
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
