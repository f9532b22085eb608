package svc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
)

// identified is a record with an ID. identity returns the ID and the name of its JSON field.
type identified interface {
	identity() (field, id string)
}

type record[T any] interface {
	*T
	identified
}

// list is a response that can hold many records.
type list interface {
	// grow makes room for as many records as the body of the response has.
	grow(body []byte)
}

// promised is a response that is not a record with an ID. check fails if the decoded response is
// not what the service promises. field is the name of the field that is missing; empty: the
// response is wrong for another reason.
type promised interface {
	check(body []byte) (field string, err error)
}

// records is a response that is an array of records.
type records[T any, P record[T]] []T

// UnmarshalJSON keeps the name of this type out of error texts.
func (l *records[T, P]) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*[]T)(l)) }

func (l *records[T, P]) grow(body []byte) { *l = room[T](body, "id") }

func (l *records[T, P]) check(body []byte) (string, error) {
	return checkList[T, P]("", *l, body, false)
}

// checkList fails if an entry of the list is not a record. With strict, each entry must have an
// ID. Without strict, an entry fails only if all its fields are empty. An empty list is valid if
// the response has the key name and reports no error. name is empty if the response is the
// list itself.
func checkList[T any, P record[T]](name string, list []T, body []byte, strict bool) (field string, err error) {
	for i := range list {
		if field, id := P(&list[i]).identity(); id == "" && (strict || reflect.ValueOf(&list[i]).Elem().IsZero()) {
			return fmt.Sprintf("%s[%d].%s", name, i, field), errMissing
		}
	}
	switch {
	case len(list) > 0:
		return "", nil
	case reportsError(body):
		return "", errDenied
	case name != "" && !hasKey(body, name):
		return name, errMissing
	}
	return "", nil
}

// checkRecord fails if a record has no ID, if its ID is not the one in the path of the call, or
// if a new record has an ID that is not valid.
func (k *call) checkRecord(r identified) (field string, err error) {
	field, id := r.identity()
	switch problem := idProblem(id); {
	case id == "":
		return field, errMissing
	case k.Once && problem != "":
		return field, errors.New(problem)
	case k.ID != "" && !same.ID(id, k.ID):
		return field, errOther
	}
	return "", nil
}

// idField has, for each route that creates a record, the name of the field with the ID.
var idField = map[string]string{services: "service_id", files: "id", videoJobs: "job_id", imageJobs: "job_id"}

// salvageText finds a field of the record, such as its ID, in the response to a create, even if
// the response is broken. It reads up to the first syntax error. Fields of nested objects do not
// count, since an ID there belongs to something else. A number at the end of a response that
// was cut off does not count: digits of it may be missing.
func salvageText(response []byte, field string) string {
	response = jsonfield.Clean(response)
	dec := json.NewDecoder(bytes.NewReader(response))
	if open, err := dec.Token(); field == "" || err != nil || open != json.Delim('{') {
		return ""
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return ""
		}
		if text, _ := name.(string); !strings.EqualFold(text, field) {
			continue
		}
		var id string
		if value[0] != '"' { // an ID that is not a string must be a number
			next := response[dec.InputOffset():]
			if id = string(value); strings.Trim(id, "0123456789") != "" || len(next) == 0 || !strings.ContainsRune(",} \t\r\n", rune(next[0])) {
				return ""
			}
		} else if json.Unmarshal(value, &id) != nil {
			return ""
		}
		return id
	}
	return ""
}

// salvageID finds the ID of a created record in a broken response. An ID that holds a secret
// does not count. A field named "id" counts only in a 2xx response: in any other response it
// may be the ID of the error.
func (c *Client) salvageID(route string, status int, response []byte) string {
	id := salvageText(response, idField[route])
	if idProblem(id) != "" || c.caller.Redactor().String(id) != id || idField[route] == "id" && (status < 200 || status > 299) {
		return ""
	}
	return id
}

// decode reads a 2xx response into out. It fails if the response is not what the service
// promises, for example if it holds the record of another ID.
func (c *Client) decode(k *call, r *httpcall.Result, out any) error {
	if encoded := r.Encoding(); encoded != "" {
		return c.notPromised(k, r, "", errors.New(encoded))
	}
	body := jsonfield.Clean(r.Body)
	if l, isList := out.(list); isList {
		if tooMany(body) {
			return c.notPromised(k, r, "", errTooMany)
		}
		l.grow(body)
	}
	record, isRecord := out.(identified)
	other, isPromised := out.(promised)
	must := mustFit
	if !isRecord && !isPromised {
		must = nil // out has a type of the caller, so every value must fit
	}
	field, err := jsonfield.Decode(body, out, must)
	switch {
	case err != nil && len(bytes.TrimSpace(body)) == 0:
		err = fmt.Errorf("the body is empty: %w", io.ErrUnexpectedEOF)
	case err != nil:
	case isRecord:
		field, err = k.checkRecord(record)
	case isPromised:
		field, err = other.check(body)
	}
	if err == nil {
		return nil
	}
	return c.notPromised(k, r, field, err)
}

// classify returns the class of a response, and why it is not the service's own.
func (c *Client) classify(k *call, r *httpcall.Result) (rules.Class, string) {
	to, err := url.Parse(r.Header.Get("Location"))
	redirect := r.StatusCode >= 300 && r.StatusCode < 400
	return rules.Classify(rules.Response{
		Method: k.Method, Status: r.StatusCode, ContentType: r.Header.Get("Content-Type"), Body: r.Body, Cut: r.Cut,
		Elsewhere: redirect && err == nil && to.Host != "" && !httpcall.SameOrigin(to, &c.base.URL),
	})
}

var errMissing = errors.New("missing from the response")

var errOther = errors.New("the response is about another record than the request")

var errDenied = errors.New("the response holds an error, although its status says success")

// reportsError reports whether a 2xx response has an error in its body, as gateways send it:
// a field named error or errors that is not empty. A record may have a field of that name as
// well, so reportsError must only be called for responses that hold no record.
func reportsError(body []byte) bool {
	var said struct{ Error, Errors json.RawMessage }
	_ = json.Unmarshal(body, &said) // a body that is not an object reports no error
	for _, e := range [...]json.RawMessage{said.Error, said.Errors} {
		switch string(e) {
		case "", "null", "false", "0", `""`, "{}", "[]":
		default:
			return true
		}
	}
	return false
}

// deniedDelete returns an error if a 2xx response does not show that a delete was accepted: it
// is an HTML page, is about another record, or says in one of the usual ways that the delete
// failed.
func deniedDelete(id string, r *httpcall.Result) error {
	if class, _ := rules.Classify(rules.Response{Status: r.StatusCode, ContentType: r.Header.Get("Content-Type"), Body: r.Body}); class != rules.Service {
		return errors.New("the response to the delete is an HTML page, so it does not show that the delete was accepted")
	}
	body := jsonfield.Clean(r.Body)
	var said struct {
		Success, OK   json.RawMessage
		Status        json.RawMessage
		Code, Errcode json.RawMessage
		ServiceID     string `json:"service_id"`
		JobID         string `json:"job_id"`
	}
	_ = json.Unmarshal(body, &said)
	status := strings.ToLower(strings.Trim(string(said.Status), `" `))
	switch {
	case reportsError(body), isFalse(said.Success), isFalse(said.OK), failureCode(said.Code), failureCode(said.Errcode):
		return errDenied
	case said.ServiceID != "" && !same.ID(said.ServiceID, id), said.JobID != "" && !same.ID(said.JobID, id):
		return errOther
	case status == "error", status == "fail", status == "failed", status == "failure":
		return errDenied
	}
	return nil
}

func isFalse(b json.RawMessage) bool {
	return strings.Trim(string(b), `"`) == "false" || string(b) == "0"
}

// failureCode reports whether a value is a number other than 0 and 200 to 299.
func failureCode(b json.RawMessage) bool {
	n, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	return err == nil && n != 0 && (n < 200 || n > 299)
}

// hasKey reports whether body is a JSON object with that key.
func hasKey(body []byte, key string) bool {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(body, &object)
	_, ok := object[key]
	return ok
}

// room makes an empty list with capacity for the records of a response. It counts their ID
// fields. With this capacity, the decoder need not copy the large records as the list grows.
func room[T any](body []byte, field string) []T {
	const most = 1000
	return make([]T, 0, min(bytes.Count(body, []byte(`"`+field+`"`)), most))
}

var errTooMany = errors.New("it has more JSON objects than are accepted in a response of this size")

// tooMany reports whether a response consists of very many tiny objects, such as {} a million
// times. The decoded records would take a hundred times the memory of the response.
func tooMany(body []byte) bool {
	const large, least = 1 << 20, 32 // in a response above large bytes, an object must have at least this many bytes on average
	return len(body) > large && bytes.Count(body, []byte("{")) > len(body)/least
}

// notPromised makes the error for a 2xx response that is not what the service promises.
func (c *Client) notPromised(k *call, r *httpcall.Result, field string, err error) error {
	red := c.caller.Redactor()
	contentType := r.Header.Get("Content-Type")
	bounded, _ := red.Cut(jsonfield.TrimBOM(r.Body), 4<<10, false)
	e := &DecodeError{
		RequestInfo: k.info(r, red), StatusCode: r.StatusCode, ContentType: apierr.Label(contentType, red.String), Field: red.String(field),
		Excerpt: apierr.Excerpt(contentType, bounded, red.String), Err: red.Error(err),
	}
	_, e.foreign = c.classify(k, r)
	if r.Encoding() != "" {
		e.Excerpt = "" // the body is compressed or encoded, so nobody can read it
	}
	if k.Once {
		return c.unknown(k, r, e)
	}
	return e
}
