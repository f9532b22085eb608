package svctest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// jsonObject reads a request body field by field. The methods that read a field remove it from
// the map, so that only unknown fields remain at the end. Their parameter absent is the value
// for a missing field. Problems are collected, so that one response names all of them.
type jsonObject struct {
	path     string // prefix of field names in problems: "" at the top level, "config." inside the field config
	fields   map[string]json.RawMessage
	problems *[]string
}

// parseJSON reads the top level of a body. If the body is not a JSON object, parseJSON
// returns the response with that error.
func parseJSON(body []byte) (jsonObject, response) {
	if !json.Valid(body) {
		return jsonObject{}, failure(http.StatusBadRequest, "malformed_json", "the body is not a single valid JSON value")
	}
	o := jsonObject{problems: new([]string)}
	if err := json.Unmarshal(body, &o.fields); err != nil || o.fields == nil {
		return jsonObject{}, failure(http.StatusUnprocessableEntity, "invalid_request", "the body must be a JSON object")
	}
	return o, response{}
}

// invalid returns the response to a body with problems, or the zero response.
func (o jsonObject) invalid() response {
	if len(*o.problems) == 0 {
		return response{}
	}
	return failure(http.StatusUnprocessableEntity, "invalid_request", "%s", strings.Join(*o.problems, "; "))
}

func (o jsonObject) problem(key, format string, args ...any) {
	*o.problems = append(*o.problems, o.path+key+" "+fmt.Sprintf(format, args...))
}

// done reports a problem for each field that was not taken.
func (o jsonObject) done() {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		o.problem(key, "is not a field of this request")
	}
}

// raw takes a field of any type, or returns nil if it is absent.
func (o jsonObject) raw(key string) json.RawMessage {
	raw := o.fields[key]
	delete(o.fields, key)
	return raw
}

// required reports a problem if the field is absent. It does not take the field.
func (o jsonObject) required(key string) {
	if _, ok := o.fields[key]; !ok {
		o.problem(key, "is required")
	}
}

func (o jsonObject) text(key, absent string) string {
	raw := o.raw(key)
	if raw == nil {
		return absent
	}
	var v *string
	if json.Unmarshal(raw, &v) != nil || v == nil {
		o.problem(key, "must be a string")
		return absent
	}
	return *v
}

func (o jsonObject) boolean(key string, absent bool) bool {
	switch string(o.raw(key)) {
	case "":
		return absent
	case "true":
		return true
	case "false":
		return false
	}
	o.problem(key, "must be true or false")
	return absent
}

// integer takes a field that is an integer. It also accepts the form 2.0.
func (o jsonObject) integer(key string, absent int64) int64 {
	raw := o.raw(key)
	if raw == nil {
		return absent
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err == nil {
		return n
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		o.problem(key, "must be an integer")
		return absent
	}
	return int64(f)
}

// nullable takes a field that is null or that the function read accepts, and returns its
// value unchanged. For an absent field it returns null.
func (o jsonObject) nullable(key string, read func(jsonObject, string)) json.RawMessage {
	raw, ok := o.fields[key]
	if !ok || string(raw) == "null" {
		delete(o.fields, key)
		return json.RawMessage("null")
	}
	read(o, key)
	return raw
}

// object takes a field that is an object. For an absent field it returns an empty object.
func (o jsonObject) object(key string) jsonObject {
	inner := jsonObject{path: o.path + key + ".", problems: o.problems}
	raw := o.raw(key)
	if raw == nil {
		return inner
	}
	if json.Unmarshal(raw, &inner.fields) != nil || inner.fields == nil {
		inner.fields = nil
		o.problem(key, "must be an object")
	}
	return inner
}
