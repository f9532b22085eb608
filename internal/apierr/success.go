package apierr

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/lazy"
	"example.com/svc/internal/same"
)

// Errors of a 2xx response that is not a success.
var (
	ErrDenied = errors.New("the response holds an error, although its status reports success")
	ErrOther  = errors.New("the response is about another record than the request")
)

// Reported reports whether the body of a 2xx response has a field named error or errors that
// is not empty, as gateways send it. A record may have a field of that name as well, so
// Reported must only be called for responses that hold no record.
func Reported(body []byte) bool {
	var said struct{ Error, Errors json.RawMessage }
	_ = json.Unmarshal(body, &said) // a body that is not an object reports no error
	empty := []string{"", "null", "false", "0", `""`, "{}", "[]"}
	return slices.ContainsFunc([]json.RawMessage{said.Error, said.Errors}, func(e json.RawMessage) bool {
		return !slices.Contains(empty, string(e))
	})
}

// DeniedDelete returns an error if the body of a 2xx response does not show that the delete of id
// was accepted: it is about another record, or reports in one of the usual ways that the delete
// failed.
func DeniedDelete(id string, body []byte) error {
	body = jsonfield.Clean(body)
	var said struct {
		Success, OK, Code, Errcode, Status, StatusCode json.RawMessage

		ServiceID string `json:"service_id"`
		JobID     string `json:"job_id"`
	}
	_ = json.Unmarshal(body, &said)
	switch {
	case Reported(body), no().Match(said.Success), no().Match(said.OK), failureCode(said.Code), failureCode(said.Errcode),
		failed().Match(said.Status), failed().Match(said.StatusCode):
		return ErrDenied
	case said.ServiceID != "" && !same.ID(said.ServiceID, id), said.JobID != "" && !same.ID(said.JobID, id):
		return ErrOther
	}
	return nil
}

// failed matches the value of a field status that reports a failure, such as "error" or 503.
var failed = lazy.Regexp(`^"\s*(?i:error|fail|failed|failure)\s*"$|^"?[45]\d\d"?$`)

// no matches a value that denies a success.
var no = lazy.Regexp(`^("?false"?|0)$`)

// failureCode reports whether a value is a number other than 0 and 200 to 299.
func failureCode(b json.RawMessage) bool {
	n, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	return err == nil && n != 0 && (n < 200 || n > 299)
}
