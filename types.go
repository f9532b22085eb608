package svc

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/redact"
)

// The constants of the string types below are the values that the service is known to use. The
// service may add values: a value without a constant decodes, prints and encodes like any other.

// mustFit reports whether a field of a record must have the type that the service documents:
// if it has another type, decoding the record fails. These are the fields on which programs
// base decisions. In any other field, a value of the wrong type is tolerated, unless the field
// has an integer type. The key "" stands for the response as a whole.
func mustFit(key string) bool {
	switch strings.ToLower(key) {
	case "", "id", "service_id", "job_id", "flavor_id", "status", "is_deleted", "presigned_url", "media_url",
		"flavor_list", "job_list", "outputs", "resource_metadata", "deploy_metadata":
		return true
	}
	return false
}

// InferenceServiceStatus is the state of an inference service. For an unknown status, assume
// that the endpoint is still changing.
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

// UnmarshalJSON returns a [*json.UnmarshalTypeError] for anything that is not an integer
// within 64 bits.
func (i *Int) UnmarshalJSON(b []byte) error {
	n, ok := jsonfield.Int(b)
	if !ok {
		return jsonfield.TypeError[Int](b)
	}
	*i = Int(n)
	return nil
}

// Time is a time in one of the forms that the service uses: "2024-05-01 10:20:30" or
// "2024-05-01T10:20:30", each with or without a fraction and a zone; a date alone; the 14
// digits 20240501102030; or a number of Unix seconds. A string without a zone is in UTC. A
// number that is too large for seconds is in milliseconds, microseconds or nanoseconds. Null,
// "" and the year 1, which programs write for "never", are the zero value.
//
// If a value is not a time, its record is still decoded: the Time is zero, IsZero reports
// true, and [Time.Raw] returns the text of the value.
//
// A Time encodes as RFC 3339 in UTC. A zero Time encodes as null. If it was read from a value
// that is not a time, it encodes as a string with the text of that value.
type Time struct {
	time.Time
	json string // the JSON value that was read; ignored after the embedded Time was changed
}

// UnmarshalJSON reads any JSON value. It never fails.
func (t *Time) UnmarshalJSON(b []byte) error {
	if *t = (Time{}); string(b) != "null" { // spares an allocation
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
	switch t, ok := jsonfield.Time(value); {
	case !ok:
		return Time{json: value}
	case t.IsZero():
		return Time{}
	default:
		return Time{t, value}
	}
}

// MarshalJSON fails only for a time outside the years 0 to 9999.
func (t Time) MarshalJSON() ([]byte, error) {
	text, err := t.MarshalText()
	if len(text) == 0 {
		return []byte("null"), err
	}
	return json.Marshal(string(text))
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
// AppendText for the keys of a JSON object. Without this method, the method of the embedded
// [time.Time] would write the year 1 for a zero Time.
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
		return jsonfield.Text(t.json)
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

// Price is an exact decimal number, kept as the text that the service sent: 0.1 stays 0.1.
// The zero value is a price that is not set. A price of 0 is set. Compare prices with
// [Price.Cmp]: for the operator == the prices 3 and 3.0 are different.
//
// If a value is not a number, its record is still decoded: the price is not set, and
// [Price.Raw] returns the text of the value.
type Price struct {
	text string // the price as a JSON number; empty if the price is not set
	raw  string // the text that was read, if it was not a number; otherwise empty
}

// ParsePrice parses a decimal number in the syntax of JSON: "0.25", "3", "1e-7".
func ParsePrice(s string) (Price, error) {
	if !jsonfield.IsNumber(s) {
		return Price{}, fmt.Errorf("svc: price %q is not a decimal number, or out of range", s)
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
// is not set encodes as null. If it was read from a value that is not a number, it encodes as
// a string with the text of that value.
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
	text := jsonfield.Text(string(b))
	if *p = (Price{raw: text}); jsonfield.IsNumber(text) {
		*p = Price{text: text}
	}
	return nil
}

// SignedURL is a presigned URL: a link whose query gives access to a file. If the link is
// printed with fmt, logged with log/slog, or encoded as JSON, XML or text, its query, fragment
// and user info are hidden. string(u) is the whole link, byte for byte as the service sent it.
// To store a link, store string(u): the JSON of a record does not hold the whole link.
//
// The whole link is still visible in four cases:
//   - fmt prints it from an unexported field of a struct. It also prints it from a struct that
//     is reached through a pointer inside another value, if the verb is not for pointers, such
//     as %s or %q. In both cases fmt does not call the methods of the link.
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

// Redacted reports whether u is a link without its query, because it was printed or encoded
// and then read again. Such a link gives no access: request a new one from the service.
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
