package errbody

import "bytes"

// flat reads the shape that most answers have, an object of plain strings named
// code, message and request_id, without the cost of a JSON decoder. It is not ok
// for anything else, however little it differs.
func flat(body []byte) (info Info, ok bool) {
	if len(body) < 2 || body[0] != '{' || body[len(body)-1] != '}' {
		return Info{}, false
	}
	text := string(body) // what is found are parts of it
	at := 1
	word := func() (string, bool) { // a string without escapes
		if at >= len(text) || text[at] != '"' {
			return "", false
		}
		start := at + 1
		for at = start; at < len(text); at++ {
			switch c := text[at]; {
			case c == '"':
				at++
				return text[start : at-1], true
			case c == '\\' || c < ' ' || c > '~':
				return "", false
			}
		}
		return "", false
	}
	space := func() {
		for at < len(text) && bytes.IndexByte([]byte(" \t\r\n"), text[at]) >= 0 {
			at++
		}
	}
	is := func(c byte) bool {
		space()
		if at < len(text) && text[at] == c {
			at++
			space()
			return true
		}
		return false
	}
	space()
	for {
		name, ok := word()
		if !ok || !is(':') {
			return Info{}, false
		}
		value, ok := word()
		if !ok || value == "" {
			return Info{}, false
		}
		var field *string
		switch name {
		case "code":
			field = &info.Code
		case "message":
			field = &info.Message
		case "request_id":
			field = &info.RequestID
		}
		if field == nil || *field != "" {
			return Info{}, false
		}
		*field = value
		if !is(',') {
			return info, is('}') && at == len(text) && info.Message != "" && info.Code != ""
		}
	}
}
