package svc

import (
	"cmp"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

// The typed strings below name the values that the service is known to use.
// Their lists may grow: a value without a constant decodes, prints and encodes
// like any other.

// sameText compares two values of the service without regard to letter case and the amount
// of white space: services change both without notice.
func sameText[S ~string](a, b S) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(a)), " "), strings.Join(strings.Fields(string(b)), " "))
}

// mustFit reports whether a field of a record must have the type that the service
// documents. These are the fields that programs decide by. An odd value in any other field
// does not fail the record. Whole numbers must fit in any field, since they are counts.
func mustFit(key string) bool {
	switch strings.ToLower(key) {
	case "", "id", "service_id", "job_id", "flavor_id", "status", "is_deleted", "presigned_url", "media_url",
		"flavor_list", "job_list", "outputs", "resource_metadata", "deploy_metadata":
		return true
	}
	return false
}

// InferenceServiceStatus is the state of an inference service. Treat a status
// you do not know as still changing.
type InferenceServiceStatus string

const (
	InferenceServiceStatusInitializing InferenceServiceStatus = "initializing" // being deployed or scaled
	InferenceServiceStatusAvailable    InferenceServiceStatus = "available"    // running; a probe can tell whether it responds
	InferenceServiceStatusStopped      InferenceServiceStatus = "stopped"      // no workers left
	InferenceServiceStatusUnavailable  InferenceServiceStatus = "unavailable"  // deployment or scaling failed
)

// ScaleType says who changes the number of instances.
type ScaleType string

// ScaleTypeManual leaves the number of instances to the caller.
const ScaleTypeManual ScaleType = "manual"

// ServiceType is the kind of an inference service: "normal" is the only one seen.
type ServiceType string

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

// JobStatus is the state of a generation job. The service documents the first two.
// The others are the words that services use for a failure. [Job.Failed] and
// [Job.Done] read them without regard to letter case. Treat a status that is not among
// them as still changing.
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

// GenMode is the way a video is generated: "standard" is the service's default.
type GenMode string

// Int is an integer that the service may send as a number or as a string: 2,
// "2" and 2.0 decode alike, null and "" decode to 0. It encodes as a number.
type Int int64

// UnmarshalJSON fails with a [*json.UnmarshalTypeError] for anything that is
// not a whole number within 64 bits.
func (i *Int) UnmarshalJSON(b []byte) error {
	text := jsonText(string(b))
	if text == "" && len(b) > 0 {
		text = "0"
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if !isNumber(text) {
		return typeError[Int](b)
	}
	if err != nil { // 2.0 and 2e0 are whole numbers too
		r, _ := new(big.Rat).SetString(text)
		if !r.IsInt() || !r.Num().IsInt64() {
			return typeError[Int](b)
		}
		n = r.Num().Int64()
	}
	*i = Int(n)
	return nil
}

// jsonText returns the text of a JSON string, "" for null, and any other value as it
// is.
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

// typeError says that the JSON value b does not fit into T, as encoding/json
// itself would.
func typeError[T any](b []byte) error {
	const shown = 32 // longer text does not help to find the fault
	value := string(b)
	if len(b) > shown {
		value = cmp.Or(map[byte]string{'{': "object", '[': "array", '"': "string"}[b[0]], "number")
	}
	return &json.UnmarshalTypeError{Value: value, Type: reflect.TypeFor[T]()}
}
