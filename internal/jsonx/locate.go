package jsonx

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
)

// maxAround is how much may have to stand around a value that is tried: no type
// of use comes near it, and a hostile answer does not get far with long keys.
const maxAround = 8 << 10

// Locate finds out why json.Unmarshal(data, dst) failed: the path of the first
// value that does not fit, such as "flavor_list[3].available_num", and the error
// of decoding that value alone. The path has the keys as they are in data. It is
// empty if the value as a whole is at fault, or if data is not JSON; both results
// are empty if there is no fault. It goes by the type of dst and leaves dst as it
// is.
//
// Which key belongs to which field is for encoding/json to say: each value is
// tried at its place, but without its neighbours, as in
// {"flavor_list":[{"available_num":"two"}]}.
//
// Secrets are taken out of a key by scrub before it is cut to a length.
func Locate(data []byte, dst any, scrub func(string) string) (path string, err error) {
	t := reflect.TypeOf(dst)
	if t == nil || t.Kind() != reflect.Pointer {
		return "", &json.InvalidUnmarshalError{Type: t}
	}
	l := locator{typ: t.Elem(), scrub: scrub}
	if err = l.try("", data, ""); err == nil || !json.Valid(data) {
		return "", err
	}
	return l.below("", data, "", err)
}

type locator struct {
	typ   reflect.Type
	scrub func(string) string
	buf   []byte
}

// try decodes a value between what has to stand around it. The error is that of
// the value alone.
func (l *locator) try(before string, value []byte, after string) error {
	l.buf = append(append(append(l.buf[:0], before...), value...), after...)
	err := json.Unmarshal(l.buf, reflect.New(l.typ).Interface())
	if e, ok := err.(*json.UnmarshalTypeError); ok && before != "" { //nolint:errorlint // what another error wraps is its own business
		alone := *e
		alone.Struct, alone.Field, alone.Offset = "", "", e.Offset-int64(len(before))
		return &alone
	}
	return err
}

// below returns the path from the value, which failed with err, to the first of
// its parts that fails, and the error of that part.
func (l *locator) below(before string, value []byte, after string, err error) (string, error) {
	open, end := "[", "]"
	switch value[skipSpace(value, 0)] {
	case '[':
	case '{':
		open, end = "{", "}"
	default:
		return "", err
	}
	before, after = before+open, end+after
	if len(before)+len(after) > maxAround {
		return "", err
	}
	i := 0
	for key, part := range parts(value) {
		start := before
		if key != nil {
			start += string(key) + ":"
		}
		if failed := l.try(start, part, after); failed != nil {
			if l.try(start, []byte("null"), after) != nil {
				break // that would do for any type: it is the object or array that does not fit
			}
			path, err := l.below(start, part, after, failed)
			return join(l.name(key, i), path), err
		}
		i++
	}
	return "", err // no part is to blame
}

// parts yields the elements of an array, without keys, or the members of an
// object, of valid JSON.
func parts(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := skipSpace(data, 0)
		object := data[i] == '{'
		for i = skipSpace(data, i+1); data[i] != '}' && data[i] != ']'; i = skipSpace(data, i) {
			if data[i] == ',' {
				i = skipSpace(data, i+1)
			}
			var key []byte
			if object {
				end := skipValue(data, i)
				key, i = data[i:end], skipSpace(data, skipSpace(data, end)+1) // past the colon
			}
			end := skipValue(data, i)
			if !yield(key, data[i:end]) {
				return
			}
			i = end
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

// name is what a part is called in a path: a key is quoted if it would not read
// well there.
func (l *locator) name(key []byte, index int) string {
	if key == nil {
		return "[" + strconv.Itoa(index) + "]"
	}
	var text string
	_ = json.Unmarshal(key, &text)
	text = l.scrub(text)
	const shown = 64
	plain := text != "" && len(text) <= shown
	for _, c := range text {
		plain = plain && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if plain {
		return text
	}
	if len(text) > shown {
		text = text[:shown] + "…"
	}
	return fmt.Sprintf("[%q]", text)
}
