package svc

import (
	"cmp"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
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

// ScaleType says who changes the number of instances.
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

// FilePurpose says what a file is used for.
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
// ignore letter case. If a status has no constant, assume that the job is still running.
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
