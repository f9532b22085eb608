package jsonfield

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Salvage finds a field of the object in a response, such as its ID, even if the response is
// broken. It reads up to the first syntax error. It ignores the fields of nested objects,
// since an ID there belongs to something else. It ignores a number at the end of a truncated
// response, since digits may be missing. If a field occurs twice, the last one is used, as in
// encoding/json.
func Salvage(response []byte, field string) (found string) {
	response = Clean(response)
	dec := json.NewDecoder(bytes.NewReader(response))
	if open, err := dec.Token(); field == "" || err != nil || open != json.Delim('{') {
		return ""
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return found
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return found
		}
		if key, _ := name.(string); strings.EqualFold(key, field) && string(value) != "null" {
			found = text(value, response[dec.InputOffset():])
		}
	}
	return found
}

// text returns a string, or an integer followed by another token.
func text(value, after []byte) (text string) {
	if value[0] == '"' {
		_ = json.Unmarshal(value, &text) // after an error, text is empty
		return text
	}
	whole := strings.Trim(string(value), "0123456789") == ""
	if !whole || len(after) == 0 || !strings.ContainsRune(",} \t\r\n", rune(after[0])) {
		return ""
	}
	return string(value)
}

// HasKey reports whether body is a JSON object with that key.
func HasKey(body []byte, key string) bool {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(body, &object)
	_, ok := object[key]
	return ok
}

// Swollen reports whether a response consists of very many tiny objects, such as a million {}.
// The decoded records would need a hundred times the memory of the response.
func Swollen(body []byte) bool {
	const large, least = 1 << 20, 32 // in a response above large bytes, an object must have at least this many bytes on average
	return len(body) > large && bytes.Count(body, []byte("{")) > len(body)/least
}
