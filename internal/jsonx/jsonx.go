// Package jsonx does what encoding/json leaves out: it finds the field that a
// value did not fit into, and changes one value in a text without touching the
// rest.
package jsonx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// TrimBOM returns data without the UTF-8 byte order mark it may start with.
func TrimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// Set returns a copy of the JSON object data in which the member at path, such
// as "config.new_option", has the given value. Objects that are missing on the
// way are made, every other byte stays as it is, and empty data counts as an
// empty object. A name on the way that holds something else than an object, null
// included, is an error. Names with a dot in them cannot be reached.
func Set(data []byte, path string, value any) ([]byte, error) {
	if !utf8.ValidString(path) {
		return nil, fmt.Errorf("field path %q is not UTF-8", path)
	}
	names := strings.Split(path, ".")
	for _, name := range names {
		if name == "" {
			return nil, fmt.Errorf("field path %q has an empty part", path)
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("field %q: %w", path, err)
	}
	encoded := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))

	if len(bytes.TrimSpace(data)) == 0 {
		return nest(names, encoded), nil
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("field %q: %w", path, errNotJSON)
	}
	start, end := 0, len(data) // the value that names[0] is looked up in
	for i, name := range names {
		object := skipSpace(data, start)
		if data[object] != '{' {
			return nil, fmt.Errorf("field %q: %s is not an object", path, where(names[:i]))
		}
		m := find(data, object, name)
		if !m.found {
			member := append(quote(name), ':')
			member = append(member, nest(names[i+1:], encoded)...)
			if m.comma {
				member = append([]byte{','}, member...)
			}
			return splice(data, m.start, m.start, member), nil
		}
		start, end = m.start, m.end
	}
	return splice(data, start, end, encoded), nil
}

var errNotJSON = errors.New("the body is not JSON")

// where names the value that path leads to.
func where(names []string) string {
	if len(names) == 0 {
		return "the body"
	}
	return fmt.Sprintf("%q", strings.Join(names, "."))
}

// nest wraps value into objects, the first name outermost.
func nest(names []string, value []byte) []byte {
	for i := len(names) - 1; i >= 0; i-- {
		object := append([]byte{'{'}, quote(names[i])...)
		object = append(object, ':')
		object = append(object, value...)
		value = append(object, '}')
	}
	return value
}

func quote(name string) []byte {
	b, _ := json.Marshal(name) // a string never fails
	return b
}

func splice(data []byte, start, end int, middle []byte) []byte {
	out := make([]byte, 0, len(data)-(end-start)+len(middle))
	out = append(out, data[:start]...)
	out = append(out, middle...)
	return append(out, data[end:]...)
}

// member is where a value stands, or where it would have to be inserted.
type member struct {
	found      bool
	start, end int
	comma      bool // an inserted member needs one in front
}

// find looks up a name in the object that starts at data[i], which is valid
// JSON. Of members with the same name the last one counts, as it does for most
// decoders.
func find(data []byte, i int, name string) member {
	m := member{}
	end := i + 1 // of the last member
	for i = skipSpace(data, i+1); data[i] != '}'; i = skipSpace(data, i) {
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
		keyEnd := skipValue(data, i)
		var key string
		_ = json.Unmarshal(data[i:keyEnd], &key)
		start := skipSpace(data, skipSpace(data, keyEnd)+1) // past the colon
		end = skipValue(data, start)
		if key == name {
			m = member{found: true, start: start, end: end}
		}
		m.comma = true
		i = end
	}
	if !m.found {
		m.start = end
	}
	return m
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && strings.IndexByte(" \t\r\n", data[i]) >= 0 {
		i++
	}
	return i
}

// skipValue returns the end of the value that starts at data[i], which is valid
// JSON.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		default: // a number or a word
			for i < len(data) && strings.IndexByte(" \t\r\n,:]}", data[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}
