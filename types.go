package svc

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The constants of the string types below are the values that the service is known to use. The
// service may add values: a value without a constant decodes, prints and encodes like any other.

// mustFit reports whether a field of a record must have the type that the service documents:
// if it has another type, decoding the record fails. These are the fields on which programs
// base decisions. In any other field, a value of the wrong type is tolerated, unless the field
// has an integer type: it is a count. The key "" stands for the response as a whole.
func mustFit(key string) bool {
	switch strings.ToLower(key) {
	case "", "id", "service_id", "job_id", "flavor_id", "status", "is_deleted", "presigned_url", "media_url",
		"flavor_list", "job_list", "outputs", "resource_metadata", "deploy_metadata":
		return true
	}
	return false
}

// InferenceServiceStatus is the state of an inference service. If you do not know a status,
// assume that the endpoint is still changing.
type InferenceServiceStatus string

const (
	InferenceServiceStatusInitializing InferenceServiceStatus = "initializing" // being deployed or scaled
	InferenceServiceStatusAvailable    InferenceServiceStatus = "available"    // running; a probe can tell whether it responds
	InferenceServiceStatusStopped      InferenceServiceStatus = "stopped"      // no workers left
	InferenceServiceStatusUnavailable  InferenceServiceStatus = "unavailable"  // deployment or scaling failed
)

// ScaleType is the way in which the number of instances is changed.
type ScaleType string

// ScaleTypeManual means that the caller sets the number of instances.
const ScaleTypeManual ScaleType = "manual"

// ServiceType is the kind of an inference service. The only value that was seen is "normal".
type ServiceType string

// PaymentType is the currency that a service or job is paid in.
type PaymentType string

// PaymentTypeUSD means payment in US dollars.
const PaymentTypeUSD PaymentType = "usd"

// Currency selects one of a flavor's prices.
type Currency string

const (
	CurrencyUSD   Currency = "usd"   // US dollars
	CurrencyCNY   Currency = "cny"   // Chinese yuan
	CurrencyToken Currency = "token" // the service's own tokens
)

// Region is the region in which the GPUs of a flavor are.
type Region string

const (
	RegionCN    Region = "cn"    // China
	RegionOther Region = "other" // anywhere else
)

// FilePurpose is what a file is used for.
type FilePurpose string

// FilePurposeFineTune marks training data.
const FilePurposeFineTune FilePurpose = "fine-tune"

// JobType is the kind of a generation job.
type JobType string

const (
	JobTypeText2Video JobType = "text2video" // a video from a prompt
	JobTypeText2Image JobType = "text2image" // images from a prompt
)

// JobStatus is the state of a generation job. The service documents the first two constants.
// The other constants are words that services use for a failure. [Job.Failed] and [Job.Done]
// compare case-insensitively. If a status has no constant, assume that the job is still running.
type JobStatus string

const (
	JobStatusInitializing JobStatus = "initializing" // accepted, without outputs
	JobStatusSucceed      JobStatus = "succeed"      // done, its outputs can be downloaded
	JobStatusFail         JobStatus = "fail"         // a failure
	JobStatusFailed       JobStatus = "failed"       // a failure
	JobStatusError        JobStatus = "error"        // a failure
	JobStatusCanceled     JobStatus = "canceled"     // stopped before it was done
	JobStatusCancelled    JobStatus = "cancelled"    // stopped before it was done
	JobStatusRejected     JobStatus = "rejected"     // not accepted
)

// GenMode is the mode in which a video is generated. The default of the service is "standard".
type GenMode string

// Int is an integer that the service may send as a number or as a string: 2, "2" and 2.0 decode
// to 2; null and "" decode to 0. It encodes as a number.
type Int int64

// UnmarshalJSON fails with a [*json.UnmarshalTypeError] for anything that is
// not a whole number within 64 bits.
func (i *Int) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil { // the usual form
		*i = Int(n)
		return nil
	}
	text := jsonText(string(b))
	if text == "" && len(b) > 0 {
		text = "0"
	}
	if !isNumber(text) {
		return typeError[Int](b)
	}
	r, _ := new(big.Rat).SetString(text) // also reads 2.0 and 2e0, which are whole numbers
	if !r.IsInt() || !r.Num().IsInt64() {
		return typeError[Int](b)
	}
	*i = Int(r.Num().Int64())
	return nil
}

// jsonText returns the text of a JSON string, "" for null, and any other value unchanged.
func jsonText(value string) string {
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

// typeError returns the type of error that encoding/json returns if a JSON value b does not fit
// into T.
func typeError[T any](b []byte) error {
	const shown = 32 // a longer value is replaced by its kind, such as "object"
	value := string(b)
	if len(b) > shown {
		value = cmp.Or(map[byte]string{'{': "object", '[': "array", '"': "string"}[b[0]], "number")
	}
	return &json.UnmarshalTypeError{Value: value, Type: reflect.TypeFor[T]()}
}

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

// Price is an exact decimal number, kept as the text that the service sent: 0.1 stays 0.1.
// The zero value is a price that is not set. A price of 0 is set. Compare prices with
// [Price.Cmp]: for the operator == the prices 3 and 3.0 are different.
//
// If a value is not a number, its record is decoded all the same: the price is not set, and
// [Price.Raw] returns the text of the value.
type Price struct {
	text string // the price as a JSON number; empty if the price is not set
	raw  string // the text that was read, if it was not a number; otherwise empty
}

// ParsePrice reads a decimal number as JSON writes it: "0.25", "3", "1e-7".
func ParsePrice(s string) (Price, error) {
	if !isNumber(s) {
		return Price{}, errors.New("svc: price: not a decimal number, or out of range")
	}
	return Price{text: s}, nil
}

// IsZero reports whether the price is not set, also for the omitzero option of
// encoding/json. A price of 0 is set.
func (p Price) IsZero() bool { return p.text == "" }

// Raw returns the text that the service sent: a string without its quotes, "" for null, any
// other value as JSON. If that text is not a number, the price is not set.
func (p Price) Raw() string { return p.text + p.raw }

// String returns the price in plain decimal notation, never in scientific
// notation, and "" if it is not set.
func (p Price) String() string {
	if !strings.ContainsAny(p.text, "eE") {
		return p.text
	}
	r := p.Rat()
	digits, _ := r.FloatPrec()
	return r.FloatString(digits)
}

// Rat returns the exact value as a new number, nil if the price is not set.
func (p Price) Rat() *big.Rat {
	r, _ := new(big.Rat).SetString(p.text)
	return r
}

// Float64 returns the nearest float64, 0 if the price is not set.
func (p Price) Float64() float64 {
	f, _ := strconv.ParseFloat(p.text, 64) // the result is 0 for an empty text
	return f
}

// Cmp compares by value: -1 if p is less than q, 0 if they are equal, +1 if p
// is greater. A price that is not set is less than any other.
func (p Price) Cmp(q Price) int {
	switch {
	case p.IsZero() && q.IsZero():
		return 0
	case p.IsZero():
		return -1
	case q.IsZero():
		return 1
	}
	return p.Rat().Cmp(q.Rat())
}

// MarshalJSON returns the price as a number, with the same digits as it was read. A price that
// is not set encodes as null. But if it was read from a value that is not a number, it encodes
// as a string with the text of that value.
func (p Price) MarshalJSON() ([]byte, error) {
	switch {
	case !p.IsZero():
		return []byte(p.text), nil
	case p.raw != "":
		return json.Marshal(p.raw)
	default:
		return []byte("null"), nil
	}
}

// UnmarshalJSON reads any JSON value. It never fails.
func (p *Price) UnmarshalJSON(b []byte) error {
	text := jsonText(string(b))
	if isNumber(text) {
		*p = Price{text: text}
	} else {
		*p = Price{raw: text}
	}
	return nil
}

// isNumber reports whether text is a number as JSON writes it. A text or an exponent that is
// too large to calculate with does not count: for example, 1e999999999.
func isNumber(text string) bool {
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
	return err == nil && number.MatchString(text)
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
