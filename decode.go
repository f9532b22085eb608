package svc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
	"example.com/svc/internal/transfer"
	"example.com/svc/internal/valid"
)

// identified is a record with an ID. identity returns the ID and the name of its JSON field.
type identified interface {
	identity() (field, id string)
}

type record[T any] interface {
	*T
	identified
}

// promised is a response that is not a record with an ID, such as a list of records. grow makes room
// for as many records as the body has. check fails if the decoded response is not what the service
// promises. field is the name of the field that is missing; empty if the response is wrong for
// another reason.
type promised interface {
	grow(body []byte)
	check(body []byte) (field string, err error)
}

// records is a response that is an array of records.
type records[T any, P record[T]] []T

// UnmarshalJSON keeps the name of this type out of error messages.
func (l *records[T, P]) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*[]T)(l)) }

func (l *records[T, P]) grow(body []byte) { *l = room[T](body, "id") }

func (l *records[T, P]) check(body []byte) (string, error) {
	return checkList[T, P]("", *l, body, false)
}

// checkList returns an error if an entry of the list is not a record. With strict, each entry
// must have an ID. Without strict, an entry fails only if all its fields are empty. An empty
// list is valid if the response has the key name and reports no error. name is empty if the
// response is the list itself.
func checkList[T any, P record[T]](name string, list []T, body []byte, strict bool) (field string, err error) {
	for i := range list {
		if field, id := P(&list[i]).identity(); id == "" && (strict || reflect.ValueOf(&list[i]).Elem().IsZero()) {
			return fmt.Sprintf("%s[%d].%s", name, i, field), errMissing
		}
	}
	switch {
	case len(list) > 0:
		return "", nil
	case apierr.Reported(body):
		return "", apierr.ErrDenied
	case name != "" && !jsonfield.HasKey(body, name):
		return name, errMissing
	}
	return "", nil
}

// checkRecord returns an error if a record has no ID, if its ID is not the one in the path of
// the call, or if a new record has an ID that is not valid or that holds a secret, so that clean
// changes it.
func (k *call) checkRecord(r identified, clean func(string) string) (field string, err error) {
	field, id := r.identity()
	switch problem := valid.ID(id); {
	case id == "":
		return field, errMissing
	case k.ID != "" && !same.ID(id, k.ID):
		return field, apierr.ErrOther
	case !k.Once:
	case problem != "":
		return field, errors.New(problem)
	case clean(id) != id: // it cannot be shown or recorded
		return field, errors.New("it holds the token or another secret")
	}
	return "", nil
}

// idField maps each route that creates a record to the name of the ID field.
var idField = map[string]string{services: "service_id", files: "id", videoJobs: "job_id", imageJobs: "job_id"}

// salvageID finds the ID of a created record in a broken response. It ignores an ID that holds
// a secret. It uses a field named "id" only in a 2xx response: in any other response, the
// field may be the ID of the error.
func (c *Client) salvageID(route string, status int, response []byte) string {
	id := jsonfield.Salvage(response, idField[route])
	switch {
	case valid.ID(id) != "", c.clean(id) != id, idField[route] == "id" && status/100 != 2:
		return ""
	}
	return id
}

// decode reads a 2xx response into out. It returns an error if the response is not the
// documented one, for example if it holds the record of another ID.
func (c *Client) decode(k *call, out any) error {
	if encoded := k.Result.Encoding(); encoded != "" {
		return c.notPromised(k, "", errors.New(encoded))
	}
	body := jsonfield.Clean(k.Result.Body)
	record, isRecord := out.(identified)
	other, isPromised := out.(promised)
	if isPromised {
		if jsonfield.Swollen(body) {
			return c.notPromised(k, "", errors.New("the response has more JSON objects than are accepted for its size"))
		}
		other.grow(body)
	}
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
		field, err = k.checkRecord(record, c.clean)
	case isPromised:
		field, err = other.check(body)
	}
	if err == nil {
		return nil
	}
	return c.notPromised(k, field, err)
}

var errMissing = errors.New("missing from the response")

// denied returns an error if a 2xx response does not show that a delete was accepted.
func (c *Client) denied(k *call) error {
	switch err := apierr.DeniedDelete(k.ID, k.Result.Body); {
	case k.class != rules.Service:
		return c.notPromised(k, "", errors.New("the response to the delete is an HTML page, so it does not show that the delete was accepted"))
	case err != nil:
		return c.notPromised(k, "", err)
	}
	return nil
}

// room returns an empty list with capacity for the records of a response. It counts their ID
// fields. With this capacity, the decoder need not copy the large records as the list grows.
func room[T any](body []byte, field string) []T {
	return make([]T, 0, min(bytes.Count(body, []byte(`"`+field+`"`)), 1000))
}

// notPromised returns the error for a 2xx response that is not what the service promises.
func (c *Client) notPromised(k *call, field string, err error) error {
	r, red := &k.Result, c.caller.Redactor()
	contentType := r.Header.Get("Content-Type")
	bounded, _ := red.Cut(jsonfield.TrimBOM(r.Body), 4<<10, false)
	e := &DecodeError{
		RequestInfo: k.info(red), StatusCode: r.StatusCode, ContentType: apierr.Label(contentType, red.String), Field: red.String(field),
		Excerpt: apierr.Excerpt(contentType, bounded, red.String), Err: red.Error(err),
		foreign: k.foreign, class: k.class,
	}
	if r.Encoding() != "" {
		e.Excerpt = "" // the body is compressed or encoded, so an error would show nothing useful of it
	}
	if k.Once {
		return c.unknown(k, e)
	}
	return e
}

// newError returns an Error from a response.
func (c *Client) newError(k *call) *Error {
	r, red := &k.Result, cmp.Or(k.Redact, c.caller.Redactor())
	contentType := r.Header.Get("Content-Type")
	body, _ := red.Cut(r.Body, len(r.Body), r.Cut)
	info := apierr.Parse(contentType, body, red.String)
	e := &Error{
		RequestInfo: k.info(red), StatusCode: r.StatusCode, Code: info.Code, Message: info.Message,
		RetryAfter: r.RetryAfter, Attempts: r.Attempts, NoBudget: r.NoBudget,
		Header: red.Header(r.Header), Body: body,
	}
	e.RequestID = cmp.Or(e.RequestID, info.RequestID)
	if e.Message == "" && e.Code == "" && len(r.Body) > 0 {
		e.Message = apierr.Excerpt(contentType, body, red.String)
	}
	if encoded := r.Encoding(); encoded != "" {
		e.Code, e.Message = "", encoded
	}
	if k.Route == transfer.Route {
		return e // foreign stays empty, since the XML of storage would count as a page of a proxy
	}
	if e.class = k.class; k.foreign != rules.IsPlain { // the service may send plain text, but it proves less
		e.foreign = k.foreign
	}
	return e
}
