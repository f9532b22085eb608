package jsonx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
)

// Locate finds out why json.Unmarshal(data, dst) failed: the path of the first
// value that does not fit, such as "flavor_list[3].available_num", and the error
// of decoding that value alone. The path is empty if the value as a whole is at
// fault, or if data is not JSON; both results are empty if there is no fault.
// It goes by the type of dst and leaves dst as it is.
func Locate(data []byte, dst any) (path string, err error) {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return "", err // not JSON
	}
	t := reflect.TypeOf(dst)
	if t == nil || t.Kind() != reflect.Pointer {
		return "", &json.InvalidUnmarshalError{Type: t}
	}
	return locate(child{data: whole, typ: t.Elem()})
}

// locate returns the path below c.
func locate(c child) (string, error) {
	err := json.Unmarshal(c.data, reflect.New(c.typ).Interface())
	if err == nil || c.leaf {
		return "", err
	}
	for part := range c.children() {
		if path, err := locate(part); err != nil {
			return join(part.name, path), err
		}
	}
	return "", err // no piece is to blame
}

// child is a piece of a value, with the name it has in a path.
type child struct {
	name string
	data json.RawMessage
	typ  reflect.Type
	leaf bool // has no pieces
}

// children yields the pieces of the value that go into the pieces of its type.
// For a type with its own UnmarshalJSON it is a guess, which does little harm: a
// piece only counts if it cannot be decoded.
func (c child) children() iter.Seq[child] {
	t := c.typ
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return func(yield func(child) bool) {
		switch t.Kind() {
		case reflect.Struct:
			fields := fieldsOf(t)
			eachMember(c.data, func(key string, value json.RawMessage) bool {
				f, ok := fields.find(key)
				return !ok || yield(f.child(value))
			})
		case reflect.Map:
			eachMember(c.data, func(key string, value json.RawMessage) bool {
				return yield(child{name: mapKey(key), data: value, typ: t.Elem()})
			})
		case reflect.Slice, reflect.Array:
			eachElement(c.data, func(i int, value json.RawMessage) bool {
				return yield(child{name: "[" + strconv.Itoa(i) + "]", data: value, typ: t.Elem()})
			})
		}
	}
}

func eachMember(data []byte, yield func(key string, value json.RawMessage) bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return
		}
		key, _ := token.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil || !yield(key, value) {
			return
		}
	}
}

func eachElement(data []byte, yield func(i int, value json.RawMessage) bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if token, err := dec.Token(); err != nil || token != json.Delim('[') {
		return
	}
	for i := 0; dec.More(); i++ {
		var value json.RawMessage
		if dec.Decode(&value) != nil || !yield(i, value) {
			return
		}
	}
}

// join puts two pieces of a path together.
func join(name, rest string) string {
	if rest == "" || strings.HasPrefix(rest, "[") {
		return name + rest
	}
	return name + "." + rest
}

// mapKey quotes a key that would not read as part of a path.
func mapKey(key string) string {
	const shown = 64
	plain := key != "" && len(key) <= shown
	for _, c := range key {
		plain = plain && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if plain {
		return key
	}
	if len(key) > shown {
		key = key[:shown] + "…"
	}
	return fmt.Sprintf("[%q]", key)
}
