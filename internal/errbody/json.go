package errbody

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

const (
	maxDepth  = 8 // deeper values are skipped
	maxLevels = 2 // objects around the one that has the message
	maxErrors = 5 // messages of one body that are joined
	separator = "; "
)

// object keeps its members under keys that do not tell requestId, request_id and
// RequestID apart, and their names in the order of the body.
type object struct {
	names  []string
	values map[string]any
}

var separators = strings.NewReplacer("_", "", "-", "")

func key(name string) string { return strings.ToLower(separators.Replace(name)) }

// fromJSON reads as much of an object as is valid, and other values only whole.
// It is not ok if the body is not JSON after all.
func fromJSON(body []byte) (info Info, ok bool) {
	if info, ok := flat(body); ok {
		return info, true
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	value, err := readValue(dec, 0)
	o, isObject := value.(*object)
	if isObject && len(o.names) > 0 {
		return o.info(maxLevels), true
	}
	if err == nil {
		_, err = dec.Token()
	}
	if !errors.Is(err, io.EOF) {
		return Info{}, false // text that looked like JSON
	}
	return fromValue(value, maxLevels), true
}

// readValue reads the next value, at an error what there was before it.
func readValue(dec *json.Decoder, depth int) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == maxDepth {
		return nil, skip(dec)
	}
	if delim == '[' {
		var list []any
		for dec.More() {
			v, err := readValue(dec, depth+1)
			if v != nil {
				list = append(list, v)
			}
			if err != nil {
				return list, err
			}
		}
		_, err = dec.Token()
		return list, err
	}
	o := &object{values: map[string]any{}}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return o, err
		}
		name, _ := token.(string)
		v, err := readValue(dec, depth+1)
		o.set(name, v)
		if err != nil {
			return o, err
		}
	}
	_, err = dec.Token()
	return o, err
}

// skip reads to the end of the value that has just been opened.
func skip(dec *json.Decoder) error {
	for open := 1; open > 0; {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			open++
		case json.Delim('}'), json.Delim(']'):
			open--
		}
	}
	return nil
}

func (o *object) set(name string, v any) {
	o.names = append(o.names, name)
	if v != nil {
		o.values[key(name)] = v
	}
}

// text returns the first of the named members that is a string or a number.
func (o *object) text(names ...string) string {
	for _, name := range names {
		if s := scalar(o.values[name]); s != "" {
			return s
		}
	}
	return ""
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	default:
		return ""
	}
}

// fromValue looks into objects nested up to so many levels.
func fromValue(v any, levels int) Info {
	switch v := v.(type) {
	case *object:
		return v.info(levels)
	case []any:
		return fromList(v, levels)
	default:
		return Info{Message: scalar(v)}
	}
}

func fromList(list []any, levels int) Info {
	var info Info
	var messages []string
	for _, v := range list {
		one := fromValue(v, levels)
		if one.Message != "" && len(messages) < maxErrors {
			messages = append(messages, one.Message)
		}
		info = info.or(Info{Code: one.Code, RequestID: one.RequestID})
	}
	info.Message = strings.Join(messages, separator)
	return info
}

// or fills the empty fields of i.
func (i Info) or(other Info) Info {
	return Info{
		Code:      cmp.Or(i.Code, other.Code),
		Message:   cmp.Or(i.Message, other.Message),
		RequestID: cmp.Or(i.RequestID, other.RequestID),
	}
}

func (o *object) info(levels int) Info {
	info := Info{
		Code:      o.text("code", "errorcode", "errcode"),
		Message:   o.text("message", "msg", "errormessage", "errmsg", "errormsg", "errordescription", "detail"),
		RequestID: o.text("requestid", "xrequestid", "reqid", "traceid", "correlationid"),
	}
	if levels > 0 {
		for _, name := range []string{"error", "errors", "detail", "details", "fault", "data", "response"} {
			switch v := o.values[name].(type) {
			case *object:
				nested := v.info(levels - 1)
				if nested.Message == "" && name == "errors" {
					nested.Message = v.fields()
				}
				info = info.or(nested)
			case []any:
				info = info.or(fromList(v, levels-1))
			}
		}
	}
	word := o.text("error", "err", "errors")
	if info.Message == "" {
		info.Message = cmp.Or(word, o.text("reason", "title", "description", "faultstring"))
	}
	for _, code := range []string{word, o.text("type"), o.text("reason")} {
		// OAuth has it as {"error": "invalid_grant", "error_description": …}.
		if info.Code == "" && code != info.Message && code != "about:blank" && !strings.ContainsAny(code, " \n") {
			info.Code = code
		}
	}
	if where := o.where(); where != "" && info.Message != "" {
		info.Message = where + ": " + info.Message
	}
	return info
}

// where names the part of the request that the object complains about.
func (o *object) where() string {
	if list, ok := o.values["loc"].([]any); ok {
		var names []string
		for _, part := range list {
			names = append(names, scalar(part))
		}
		return strings.Join(names, ".")
	}
	return o.text("field")
}

// fields joins {"name": ["is required"], "port": "is too big"}.
func (o *object) fields() string {
	var messages []string
	for _, name := range o.names {
		if text := fromValue(o.values[key(name)], 0).Message; text != "" && len(messages) < maxErrors {
			messages = append(messages, name+": "+text)
		}
	}
	return strings.Join(messages, separator)
}
