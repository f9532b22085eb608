package apierr

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const maxErrors = 5 // maximum number of messages of a list that are joined

// fromValue reads an object, each value of a list, or a bare string or number.
func fromValue(v any) Info {
	switch v := v.(type) {
	case map[string]any:
		return fold(v).info()
	case []any:
		return fromList(v)
	default:
		return Info{Message: scalar(v)}
	}
}

func fromList(list []any) Info {
	var info Info
	var messages []string
	for _, v := range list {
		one := fromValue(v)
		if one.Message != "" && len(messages) < maxErrors {
			messages = append(messages, one.Message)
		}
		info = info.or(Info{Code: one.Code, RequestID: one.RequestID})
	}
	info.Message = strings.Join(messages, "; ")
	return info
}

// or returns i with its empty fields taken from other.
func (i Info) or(other Info) Info {
	return Info{
		Code:      cmp.Or(i.Code, other.Code),
		Message:   cmp.Or(i.Message, other.Message),
		RequestID: cmp.Or(i.RequestID, other.RequestID),
	}
}

// object is a JSON object whose keys are in lower case, without _ and -: requestId,
// request_id and RequestID are the same key.
type object map[string]any

var separators = strings.NewReplacer("_", "", "-", "")

func fold(members map[string]any) object {
	o := make(object, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if key := strings.ToLower(separators.Replace(name)); o[key] == nil {
			o[key] = members[name]
		}
	}
	return o
}

// text returns the first of the named members that is a string or a number.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s := scalar(o[name]); s != "" {
			return s
		}
	}
	return ""
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func (o object) info() Info {
	info := Info{
		Code:      o.text("code", "errorcode", "errcode"),
		Message:   o.text("message", "msg", "errormessage", "errmsg", "errormsg", "errordescription", "detail"),
		RequestID: o.text("requestid", "xrequestid", "reqid", "traceid", "correlationid"),
	}
	for _, name := range []string{"error", "errors", "detail", "details", "fault", "data", "response"} {
		switch v := o[name].(type) {
		case map[string]any:
			info = info.or(fold(v).info())
		case []any:
			info = info.or(fromList(v))
		}
	}
	word := o.text("error", "err", "errors")
	info.Message = cmp.Or(info.Message, word, o.text("reason", "title", "description", "faultstring"))
	for _, code := range []string{word, o.text("type"), o.text("reason")} {
		// OAuth sends the code in this form: {"error": "invalid_grant", "error_description": …}.
		if info.Code == "" && code != info.Message && code != "about:blank" && !strings.ContainsAny(code, " \n") {
			info.Code = code
		}
	}
	if where := o.where(); where != "" && info.Message != "" {
		info.Message = where + ": " + info.Message
	}
	return info
}

// where returns the part of the request that the object reports as wrong.
func (o object) where() string {
	var names []string
	list, _ := o["loc"].([]any)
	for _, part := range list {
		names = append(names, scalar(part))
	}
	return cmp.Or(strings.Join(names, "."), o.text("field"))
}
