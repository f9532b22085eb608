package svc

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// The typed strings below name the values that the service is known to use.
// Their lists may grow: a value without a constant decodes, prints and encodes
// like any other.

// sameText compares two values of the service without regard to letter case and
// surrounding white space: services change both without notice.
func sameText[S ~string](a, b S) bool {
	return strings.EqualFold(strings.TrimSpace(string(a)), strings.TrimSpace(string(b)))
}

// InferenceServiceStatus is the state of an inference service. Treat a status
// you do not know as still changing.
type InferenceServiceStatus string

const (
	InferenceServiceStatusInitializing InferenceServiceStatus = "initializing" // being deployed or scaled
	InferenceServiceStatusAvailable    InferenceServiceStatus = "available"    // running; whether it answers, a probe can tell
	InferenceServiceStatusStopped      InferenceServiceStatus = "stopped"      // no workers left
	InferenceServiceStatusUnavailable  InferenceServiceStatus = "unavailable"  // deployment or scaling failed
)

// ScaleType says who changes the number of instances.
type ScaleType string

// ScaleTypeManual leaves the number of instances to the caller.
const ScaleTypeManual ScaleType = "manual"

// ServiceType is the kind of an inference service.
type ServiceType string

// ServiceTypeNormal is the only kind seen so far.
const ServiceTypeNormal ServiceType = "normal"

// PaymentType is the currency that a service or job is paid in.
type PaymentType string

// PaymentTypeUSD pays in US dollars.
const PaymentTypeUSD PaymentType = "usd"

// Currency selects one of a flavor's prices.
type Currency string

const (
	CurrencyUSD   Currency = "usd"   // US dollars
	CurrencyCNY   Currency = "cny"   // Chinese yuan
	CurrencyToken Currency = "token" // the service's own tokens
)

// Region is where the GPUs of a flavor stand.
type Region string

const (
	RegionCN    Region = "cn"    // China
	RegionOther Region = "other" // anywhere else
)

// FilePurpose is what a file is meant for.
type FilePurpose string

// FilePurposeFineTune marks training data.
const FilePurposeFineTune FilePurpose = "fine-tune"

// JobType is the kind of a generation job.
type JobType string

const (
	JobTypeText2Video JobType = "text2video" // a video from a prompt
	JobTypeText2Image JobType = "text2image" // images from a prompt
)

// JobStatus is the state of a generation job. Treat a status you do not know
// as still changing.
type JobStatus string

const (
	JobStatusInitializing JobStatus = "initializing" // accepted, without outputs
	JobStatusSucceed      JobStatus = "succeed"      // done, its outputs can be downloaded
)

// GenMode is the way a video is generated.
type GenMode string

// GenModeStandard is the service's default.
const GenModeStandard GenMode = "standard"

// Int is an integer that the service may send as a number or as a string: 2,
// "2" and 2.0 decode alike, null and "" decode to 0. It encodes as a number.
type Int int64

// UnmarshalJSON fails with a [*json.UnmarshalTypeError] for anything that is
// not a whole number within 64 bits.
func (i *Int) UnmarshalJSON(b []byte) error {
	if n, ok := smallInt(b); ok {
		*i = Int(n)
		return nil
	}
	text, ok := numberText(b)
	if !ok {
		return typeError[Int](b)
	}
	if text == "" {
		*i = 0
		return nil
	}
	d, err := parseDecimal(text)
	if err != nil || d.exp < 0 || len(d.digits)+d.exp > 19 {
		return typeError[Int](b)
	}
	n, err := strconv.ParseInt(d.plain(), 10, 64)
	if err != nil {
		return typeError[Int](b)
	}
	*i = Int(n)
	return nil
}

// smallInt reads the everyday case, up to 18 digits without a fraction,
// quoted or not, and allocates nothing.
func smallInt(b []byte) (n int64, ok bool) {
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// numberText returns the text of a JSON number, or of a string that may hold
// one. It is empty for null and "", and not ok for any other value.
func numberText(b []byte) (text string, ok bool) {
	switch {
	case len(b) == 0:
		return "", false
	case string(b) == "null", string(b) == `""`:
		return "", true
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		return s, err == nil
	default:
		return string(b), b[0] == '-' || '0' <= b[0] && b[0] <= '9'
	}
}

// typeError says that the JSON value b does not fit into T, as encoding/json
// itself would.
func typeError[T any](b []byte) error {
	return &json.UnmarshalTypeError{Value: kindOf(b), Type: reflect.TypeFor[T]()}
}

// kindOf describes a JSON value as encoding/json does.
func kindOf(b []byte) string {
	const shown = 32 // longer text does not help to find the fault
	value := "nothing"
	if len(b) > 0 {
		switch b[0] {
		case '{':
			value = "object"
		case '[':
			value = "array"
		case 't', 'f':
			value = "bool"
		case '"':
			value = "string"
			if len(b) <= shown {
				value += " " + string(b)
			}
		default:
			value = "number"
			if len(b) <= shown {
				value += " " + string(b)
			}
		}
	}
	return value
}
