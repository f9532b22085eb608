package svc

import (
	"encoding/json"
	"math/big"
	"strings"
	"time"
)

// Time is a moment as the service writes it: "2024-05-01 10:20:30" or
// "2024-05-01T10:20:30", each with or without a fraction and a zone; a date alone; the 14
// digits 20240501102030; or a number of Unix seconds. A text without a zone is UTC. A number
// that is too large for seconds is in milliseconds, microseconds or nanoseconds. Null, "" and
// the year 1, which programs write for "never", are the zero value.
//
// If a value is not a time, its record is decoded all the same: the Time is zero, IsZero
// reports true, and [Time.Raw] returns the text of the value.
//
// A Time encodes as RFC 3339 in UTC. A zero Time encodes as null. But if it was read from a
// value that is not a time, it encodes as a string with the text of that value.
type Time struct {
	time.Time
	json string // the JSON value that was read; ignored after the embedded Time was changed
}

// UnmarshalJSON reads any JSON value. It never fails.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*t = Time{}
	} else {
		*t = readTime(string(b))
	}
	return nil
}

// UnmarshalText reads the text as UnmarshalJSON reads the contents of a JSON string. It never
// fails.
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
	case text == "", ok && (year == 1 || t.Year() == 1): // there is no text, or it is a time in the year 1, in UTC or in the zone that it names
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

// MarshalText returns the text that MarshalJSON writes, without the quotes. Instead of null it
// returns "".
func (t Time) MarshalText() ([]byte, error) {
	if t.IsZero() {
		return []byte(t.Raw()), nil
	}
	return t.UTC().MarshalText()
}

// AppendText appends the text that MarshalText returns. From Go 1.27, encoding/json calls
// AppendText for the keys of a JSON object. Without this method it would call that of the
// embedded [time.Time], which writes the year 1 for a zero Time.
func (t Time) AppendText(b []byte) ([]byte, error) {
	text, err := t.MarshalText()
	return append(b, text...), err
}

// Raw returns the text that the service sent for this time: a string without its quotes, ""
// for null, any other value as JSON. For a Time that was made or changed in Go, Raw returns
// the text of MarshalText.
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

// String returns the text of [time.Time.String]. For a zero Time it returns [Time.Raw].
func (t Time) String() string {
	if t.IsZero() {
		return t.Raw()
	}
	return t.Time.String()
}

// timeLayouts are the accepted forms of a text, the usual one first. isoLayouts are the same with a
// T between date and time. Parsing with them also accepts a fraction after the seconds.
var (
	timeLayouts = []string{time.DateTime, time.DateTime + "Z07:00", time.DateTime + "Z0700", time.DateTime + "Z07", time.DateOnly, "20060102150405"}
	isoLayouts  = strings.Split(strings.ReplaceAll(strings.Join(timeLayouts, "|"), " ", "T"), "|")
)

// parseTime reads a text. If it consists of digits only, at least 9 of them are read as a
// number. A shorter text is not a time: it is more likely something else, such as the date
// 20240501.
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
