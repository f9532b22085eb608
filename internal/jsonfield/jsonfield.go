// Package jsonfield extends encoding/json: it names the field that a value does not fit into,
// tolerates odd values in fields that need not fit, sets one field of a document, and reads
// numbers and times in all their forms.
package jsonfield

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/svc/internal/lazy"
)

// TrimBOM returns data without the UTF-8 byte order mark it may start with.
func TrimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// Clean returns data without the byte order mark. NaN, Infinity and -Infinity, which Python writes
// for numbers that JSON does not have, become null. In strings they stay.
func Clean(data []byte) []byte {
	data = TrimBOM(data)
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	return notNumbers().ReplaceAllFunc(data, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		return []byte("null")
	})
}

// notNumbers matches the words that Clean replaces, and whole strings, so that a word in a string
// does not match by itself.
var notNumbers = lazy.Regexp(`(?s)"(?:[^"\\]|\\.)*"?|-?\b(?:NaN|Infinity)\b`)

// A Field is a field that is set in a body: see [Set].
type Field struct {
	Path  string
	Value any
}

// Encode returns v as JSON, with the fields set. A json.RawMessage is not changed. The body is nil if v
// is nil or empty, unless there are fields. If err is not nil, path is the field that cannot be
// encoded, or "" for v.
func Encode(v any, may bool, fields []Field) (body []byte, path string, err error) {
	switch raw, isRaw := v.(json.RawMessage); {
	case v == nil, isRaw && len(raw) == 0:
	case isRaw && json.Valid(raw): // sent unchanged: json.Marshal would compact and escape it
		body = raw
	default:
		if body, err = json.Marshal(v); err != nil {
			return nil, "", fmt.Errorf("cannot be written as JSON: %w", err)
		}
	}
	for _, f := range fields {
		if body == nil && !may {
			return nil, f.Path, errors.New("cannot be set: the call has no body")
		}
		if body, err = Set(body, f.Path, f.Value); err != nil {
			return nil, f.Path, fmt.Errorf("cannot be set: %w", err)
		}
	}
	return body, "", nil
}

// Set returns the JSON object data with the value at path, such as "config.new_option". Set
// creates the objects on the path that are missing. Empty data counts as an empty object. If
// data, or a value on the way to the last name of path, is not an object, that is an error,
// for null too. All other fields keep their values, numbers to the last digit. Fields with a dot
// in their name cannot be set.
func Set(data []byte, path string, value any) ([]byte, error) {
	names := strings.Split(path, ".")
	if slices.Contains(names, "") || !utf8.ValidString(path) {
		return nil, errors.New("the path has an empty part, or is not UTF-8")
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return set(bytes.Trim(data, " \t\r\n"), names, encoded) // the white space of JSON
}

func set(data []byte, names []string, value []byte) ([]byte, error) {
	if len(names) == 0 {
		return value, nil
	}
	object := map[string]json.RawMessage{}
	if len(data) > 0 && json.Unmarshal(data, &object) != nil || object == nil {
		return nil, fmt.Errorf("the parent of the field %q is not a JSON object", names[0])
	}
	inner, err := set(object[names[0]], names[1:], value)
	if err != nil {
		return nil, err
	}
	object[names[0]] = inner
	return json.Marshal(object)
}

// Decode works like [json.Unmarshal]. If a field of data does not fit into dst, path names that
// field, such as "flavor_list[3].available_num". path is empty if data as a whole does not fit.
//
// must reports whether the value of a key has to fit. If nil, all values have to. Any other
// field accepts every value: a string field gets the JSON text of a value of another type, and
// all other fields stay zero. A field for whole numbers always requires a value that fits. A
// bool may come as 0, 1, "false" or "true".
//
// These rules apply only after json.Unmarshal has failed. If they fail too, dst holds what
// json.Unmarshal left in it.
func Decode(data []byte, dst any, must func(key string) bool) (path string, err error) {
	err = json.Unmarshal(data, dst)
	v := reflect.ValueOf(dst)
	switch {
	case err == nil, v.Kind() != reflect.Pointer, v.IsNil(), !json.Valid(data):
		return "", err
	}
	fresh := reflect.New(v.Type().Elem()).Elem()
	if path, err = (decoder{must}).fill(fresh, data, "", 0); err != nil {
		return strings.TrimPrefix(path, "."), err
	}
	v.Elem().Set(fresh)
	return "", nil
}

// maxDepth is the deepest level at which a field is searched, so that a type that holds
// itself does not multiply the work.
const maxDepth = 16

type decoder struct{ must func(key string) bool }

// fill decodes the value of a key into v, part by part if it does not fit as a whole.
func (d decoder) fill(v reflect.Value, data []byte, key string, depth int) (path string, err error) {
	misfit := json.Unmarshal(data, v.Addr().Interface())
	if misfit == nil || depth > maxDepth {
		return "", misfit
	}
	v.SetZero()
	var items []json.RawMessage
	var members map[string]json.RawMessage
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		path, err = d.fill(v.Elem(), data, key, depth+1)
	case kind == reflect.Slice && json.Unmarshal(data, &items) == nil:
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		for i := 0; i < len(items) && err == nil; i++ {
			path, err = d.fill(v.Index(i), items[i], key, depth+1)
			path = fmt.Sprintf("[%d]%s", i, path)
		}
	case kind == reflect.Struct && json.Unmarshal(data, &members) == nil:
		path, err = d.fillStruct(v, members, depth+1)
	case d.must == nil || !d.fillOdd(v, data, key):
		err = misfit
	}
	if err == nil && d.must == nil { // no single part is the cause
		return "", misfit
	}
	return path, err
}

func (d decoder) fillStruct(v reflect.Value, members map[string]json.RawMessage, depth int) (path string, err error) {
	fields := reflect.VisibleFields(v.Type())
	for _, key := range slices.Sorted(maps.Keys(members)) {
		// Each member is decoded into the whole struct, so that the options of the field's tag apply.
		err := json.Unmarshal(fmt.Appendf(nil, "{%q:%s}", key, members[key]), v.Addr().Interface())
		if err == nil {
			continue
		}
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return f.IsExported() && strings.EqualFold(cmp.Or(name, f.Name), key)
		})
		if i < 0 {
			continue
		}
		if field, embeddedNil := v.FieldByIndexErr(fields[i].Index); embeddedNil == nil {
			var inner error
			if path, inner = d.fill(field, members[key], key, depth); inner != nil || d.must != nil {
				err = inner
			}
		}
		if err != nil {
			return "." + key + path, err
		}
	}
	return "", nil
}

// fillOdd sets a field to a value of another type. It returns false if the field requires a
// value of its own type.
func (d decoder) fillOdd(v reflect.Value, data []byte, key string) bool {
	b, err := strconv.ParseBool(strings.Trim(string(data), `"`))
	switch {
	case v.Kind() == reflect.Bool && err == nil:
		v.SetBool(b)
		return true
	case v.CanInt() || d.must(key):
		return false
	case v.Kind() == reflect.String:
		v.SetString(string(data))
	}
	return true
}
