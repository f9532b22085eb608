package svc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Time is a moment as the service writes it: "2024-05-01 10:20:30",
// "2024-05-01T10:20:30", each with or without fraction and zone, a date alone,
// or a number of Unix seconds. A text without a zone is read as UTC; null and
// "" are the zero value. It encodes in the form it was read from; a Time made
// in Go, as Time{Time: t}, encodes as RFC 3339 in UTC, and a zero Time as null.
//
// Text that is no date does not fail the record around it: the Time is zero,
// IsZero reports true, and [Time.Raw] has the text.
type Time struct {
	time.Time
	raw  string // text that is no date; counts only while Time is zero
	form timeForm
}

// timeForm is how a Time was written. The zero value is a Time made in Go.
type timeForm struct {
	style    timeStyle
	zone     timeZone
	fraction uint8 // digits after the second
}

type timeStyle uint8

const (
	styleDate   timeStyle = iota + 1 // 2024-05-01
	styleSpaced                      // 2024-05-01 10:20:30
	styleISO                         // 2024-05-01T10:20:30
	styleNumber                      // 1714558830
	styleDigits                      // "1714558830"
)

type timeZone uint8

const (
	zoneNone  timeZone = iota
	zoneZ              // Z
	zoneColon          // +08:00
	zoneBasic          // +0800
	zoneHours          // +08
)

// UnmarshalJSON fails with a [*json.UnmarshalTypeError] for a number that no
// time between the years 1 and 9999 can be, and for a value that is neither
// number, string nor null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if len(b) > 2 && b[0] == '"' && b[len(b)-1] == '"' {
		if parsed, ok := parseTime(b[1 : len(b)-1]); ok {
			*t = parsed
			return nil
		}
	}
	text, ok := numberText(b)
	switch {
	case !ok:
		return typeError[Time](b)
	case text == "":
		*t = Time{}
	case b[0] == '"':
		return t.UnmarshalText([]byte(text))
	default:
		parsed, ok := parseUnix(text)
		if !ok {
			return typeError[Time](b)
		}
		*t = parsed
	}
	return nil
}

// UnmarshalText reads what a JSON string may hold. It never fails: text that is
// no date is kept for [Time.Raw].
func (t *Time) UnmarshalText(text []byte) error {
	parsed, ok := parseTime(text)
	if !ok {
		parsed = Time{raw: string(text)}
	}
	*t = parsed
	return nil
}

// MarshalJSON returns the time in the form it was read from, null if it is zero.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		if t.raw != "" {
			return json.Marshal(t.raw)
		}
		return []byte("null"), nil
	}
	if local, _ := t.written(); local.Year() < 1 || local.Year() > 9999 {
		return nil, errors.New("svc: cannot encode a time outside the years 1 to 9999")
	}
	if t.form.style == styleNumber {
		return t.append(nil), nil
	}
	b := make([]byte, 0, len(time.RFC3339Nano)+2)
	b = t.append(append(b, '"'))
	return append(b, '"'), nil
}

// MarshalText returns the same text as [Time.Raw].
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// AppendText appends the same text as [Time.Raw] to b.
func (t Time) AppendText(b []byte) ([]byte, error) { return append(b, t.Raw()...), nil }

// Raw returns the time in the text form that the service sent, which for a text
// that is no date is that text. It is "" for the zero value and RFC 3339 for a
// Time made in Go.
func (t Time) Raw() string {
	if t.IsZero() {
		return t.raw
	}
	return string(t.append(nil))
}

// String returns the time as [time.Time.String] does, the text itself if it is
// no date, and "" for the zero value.
func (t Time) String() string {
	if t.IsZero() {
		return t.raw
	}
	return t.Time.String()
}

// GoString returns a Go expression for the time, without the form it was read
// from.
func (t Time) GoString() string {
	switch {
	case !t.IsZero():
		return "svc.Time{Time:" + t.Time.GoString() + "}"
	case t.raw != "":
		return fmt.Sprintf("svc.Time{raw:%q}", t.raw)
	default:
		return "svc.Time{}"
	}
}

// written returns the time in the zone that its form writes it in, and that
// zone's notation. A Time that was changed since it was read keeps its form as
// far as the form can hold it.
func (t Time) written() (time.Time, timeZone) {
	_, offset := t.Zone()
	switch zone := t.form.zone; {
	case zone < zoneColon:
		return t.UTC(), zone
	case offset%60 != 0: // no notation for it
		return t.UTC(), zoneZ
	case offset%3600 != 0 && zone == zoneHours:
		return t.Time, zoneColon
	default:
		return t.Time, zone
	}
}

// append writes t, which is not zero, in its form.
func (t Time) append(b []byte) []byte {
	digits := max(int(t.form.fraction), fractionDigits(t.Nanosecond()))
	local, zone := t.written()
	switch t.form.style {
	case styleNumber, styleDigits:
		return appendUnix(b, t.Time, digits)
	case styleDate:
		b = local.AppendFormat(b, time.DateOnly)
		if local.Hour() == 0 && local.Minute() == 0 && local.Second() == 0 && local.Nanosecond() == 0 {
			return b
		}
		b = local.AppendFormat(b, " 15:04:05")
	case styleSpaced:
		b = local.AppendFormat(b, time.DateTime)
	case styleISO:
		b = local.AppendFormat(b, "2006-01-02T15:04:05")
	default:
		return local.AppendFormat(b, time.RFC3339Nano)
	}
	b = appendFraction(b, t.Nanosecond(), digits)
	return local.AppendFormat(b, [...]string{"", "Z", "-07:00", "-0700", "-07"}[zone])
}

// appendUnix writes t in seconds since 1970.
func appendUnix(b []byte, t time.Time, digits int) []byte {
	seconds, nanos := t.Unix(), t.Nanosecond()
	if seconds < 0 && nanos > 0 { // -1 s + 0.75 s is -0.25 s
		seconds, nanos = seconds+1, 1e9-nanos
		if seconds == 0 {
			b = append(b, '-')
		}
	}
	return appendFraction(strconv.AppendInt(b, seconds, 10), nanos, digits)
}

// appendFraction writes the first digits of a fraction of a second, with its
// point.
func appendFraction(b []byte, nanos, digits int) []byte {
	if digits == 0 {
		return b
	}
	b = append(b, '.')
	for unit := int(1e8); digits > 0; digits-- {
		b = append(b, '0'+byte(nanos/unit%10))
		unit /= 10
	}
	return b
}

// fractionDigits is how many digits nanos needs after the point.
func fractionDigits(nanos int) int {
	if nanos == 0 {
		return 0
	}
	digits := 9
	for nanos%10 == 0 {
		nanos /= 10
		digits--
	}
	return digits
}

// parseTime reads every text form, without allocating for the usual ones.
func parseTime(b []byte) (Time, bool) {
	if len(b) == 0 {
		return Time{}, true
	}
	year, ok1 := number(b, 0, 4)
	month, ok2 := number(b, 5, 2)
	day, ok3 := number(b, 8, 2)
	if !ok1 || !ok2 || !ok3 || b[4] != '-' || b[7] != '-' {
		return parseDigits(b)
	}
	if len(b) == len("2006-01-02") {
		return newTime(year, month, day, 0, 0, 0, 0, time.UTC, timeForm{style: styleDate})
	}
	var form timeForm
	switch b[10] {
	case ' ':
		form.style = styleSpaced
	case 'T':
		form.style = styleISO
	default:
		return Time{}, false
	}
	hour, ok1 := number(b, 11, 2)
	minute, ok2 := number(b, 14, 2)
	second, ok3 := number(b, 17, 2)
	if !ok1 || !ok2 || !ok3 || b[13] != ':' || b[16] != ':' || hour > 23 || minute > 59 || second > 59 {
		return Time{}, false
	}
	rest := b[19:]
	var nanos int
	if len(rest) > 0 && rest[0] == '.' {
		digits := 0
		for rest = rest[1:]; len(rest) > 0 && isDigit(rest[0]); rest = rest[1:] {
			if digits++; digits <= 9 {
				nanos = nanos*10 + int(rest[0]-'0')
			}
		}
		if digits == 0 {
			return Time{}, false
		}
		form.fraction = uint8(min(digits, 9))
		for ; digits < 9; digits++ {
			nanos *= 10
		}
	}
	zone, loc, ok := parseZone(rest)
	if !ok {
		return Time{}, false
	}
	form.zone = zone
	return newTime(year, month, day, hour, minute, second, nanos, loc, form)
}

// parseZone reads what follows the second.
func parseZone(b []byte) (zone timeZone, loc *time.Location, ok bool) {
	switch {
	case len(b) == 0:
		return zoneNone, time.UTC, true
	case string(b) == "Z":
		return zoneZ, time.UTC, true
	case b[0] != '+' && b[0] != '-':
		return 0, nil, false
	}
	hours, ok := number(b, 1, 2)
	var minutes int
	switch {
	case !ok || hours > 23:
		return 0, nil, false
	case len(b) == len("+08:00") && b[3] == ':':
		zone = zoneColon
		minutes, ok = number(b, 4, 2)
	case len(b) == len("+0800"):
		zone = zoneBasic
		minutes, ok = number(b, 3, 2)
	case len(b) == len("+08"):
		zone = zoneHours
	default:
		return 0, nil, false
	}
	offset := hours*3600 + minutes*60
	switch {
	case !ok || minutes > 59:
		return 0, nil, false
	case offset == 0:
		return zone, time.UTC, true
	case b[0] == '-':
		offset = -offset
	}
	return zone, time.FixedZone("", offset), true // whole hours are not allocated
}

// newTime refuses a day that its month does not have. The first second of year
// 1 is what Go programs send for "never": it gives the zero value.
func newTime(year, month, day, hour, minute, second, nanos int, loc *time.Location, form timeForm) (Time, bool) {
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, loc)
	if year == 0 || t.Year() != year || t.Month() != time.Month(month) || t.Day() != day {
		return Time{}, false
	}
	if t.IsZero() {
		return Time{}, true
	}
	return Time{Time: t, form: form}, true
}

// parseDigits reads Unix seconds that came as a string. Fewer than 9 digits are
// more likely something else, such as 20240501.
func parseDigits(b []byte) (Time, bool) {
	if len(b) < 9 || len(b) > 18 || b[0] == '0' {
		return Time{}, false
	}
	seconds, ok := number(b, 0, len(b))
	if !ok {
		return Time{}, false
	}
	return unixTime(int64(seconds), 0, timeForm{style: styleDigits})
}

// parseUnix reads Unix seconds, a fraction of nanoseconds at most.
func parseUnix(text string) (Time, bool) {
	d, err := parseDecimal(text)
	if err != nil || len(d.digits)+d.exp > 18 {
		return Time{}, false
	}
	plain, neg := strings.CutPrefix(d.plain(), "-")
	whole, fraction, _ := strings.Cut(plain, ".")
	_, written, _ := strings.Cut(text, ".") // with its trailing zeros
	if strings.ContainsAny(text, "eE") || len(written) < len(fraction) {
		written = fraction
	}
	seconds, _ := strconv.ParseInt(whole, 10, 64)
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	if neg {
		seconds, nanos = -seconds, -nanos
	}
	return unixTime(seconds, nanos, timeForm{style: styleNumber, fraction: uint8(min(len(written), 9))})
}

func unixTime(seconds, nanos int64, form timeForm) (Time, bool) {
	const year1, year10000 = -62135596800, 253402300800
	if seconds < year1 || seconds >= year10000 {
		return Time{}, false
	}
	t := time.Unix(seconds, nanos).UTC()
	if t.Year() < 1 {
		return Time{}, false
	}
	if t.IsZero() {
		return Time{}, true
	}
	return Time{Time: t, form: form}, true
}

// number reads n ASCII digits of b from i on.
func number(b []byte, i, n int) (v int, ok bool) {
	if len(b) < i+n {
		return 0, false
	}
	for _, c := range b[i : i+n] {
		if !isDigit(c) {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
