// Package valid checks what a request is made of, and puts its URL together: base URLs, IDs, paths,
// tokens, header names and values. A problem is a predicate for the name of the value, such as "is
// empty".
package valid

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/svc/internal/lazy"
)

// maxID is the largest length of an ID in bytes. A request line has to hold the ID.
const maxID = 1024

// ID returns why a string cannot be an ID, or "" if it can. An ID without a problem can be sent as
// exactly one segment of the path, once it is escaped.
func ID(id string) string {
	switch trimmed := strings.TrimSpace(id); {
	case trimmed == "":
		return "is empty"
	case trimmed != id: // a proxy may remove the white space
		return "must not begin or end with white space"
	case id == "." || id == "..":
		return `must not be "." or ".."`
	case strings.ContainsAny(id, "/\\"):
		return "must not hold a slash"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "must not hold a line break or another control character"
	case strings.ContainsRune(id, utf8.RuneError): // bytes that are not UTF-8, or the U+FFFD that JSON decoding puts in their place
		return "is not valid UTF-8"
	case len(id) > maxID:
		return fmt.Sprintf("is longer than %d bytes", maxID)
	}
	return ""
}

// Path returns why an escaped path is not valid, or "" if it is.
func Path(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "must start with a slash: it is relative to the base URL"
	}
	if strings.ContainsAny(path, "?#\\") {
		return "must not hold a query or a fragment: use WithQuery, and escape IDs with url.PathEscape"
	}
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if u := (url.URL{Path: "/" + text, RawPath: "/" + segment}); err != nil || u.EscapedPath() != "/"+segment {
			return "is not escaped: escape IDs with url.PathEscape"
		}
		switch last := i == len(segments)-1; {
		case text == "" && !last, text == ".", text == "..", strings.ContainsFunc(text, unicode.IsControl):
			return `must not hold an empty segment, "." or ".." as a segment, or a control character`
		}
	}
	return ""
}

// HeaderName reports whether s can be the name of a header.
func HeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// HeaderValue reports whether s can be the value of a header.
func HeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// placeholder matches strings that are not real tokens: a quoted string, the name of a
// variable, <your-token>, changeme, xxxx, tok-***, sk-1...f.
var placeholder = lazy.Regexp("(?i)^[\"'`]|[\"'`]$|^<.*>$|^\\$\\w+$|^\\$?[{(\\[].*[})\\]]$|^%.*%$" +
	`|\*\*\*|\.\.\.|^x{4,}$|^(svc[-_])?api[-_]?(token|key)$|^(change|replace)[-_]?me$|^placeholder$|^your[a-z_-]*(token|key|secret)[a-z_-]*$`)

// Token returns s without white space around it and without a leading "Bearer ". If the result cannot
// be a token, problem is the reason, which does not show it.
func Token(text string) (token, problem string) {
	t := strings.TrimSpace(text)
	if len(t) >= 7 && strings.EqualFold(t[:7], "Bearer ") {
		t = strings.TrimSpace(t[7:])
	}
	switch {
	case strings.EqualFold(t, "Bearer"):
		return "", ""
	case placeholder().MatchString(t):
		problem = "is in quotes, or it is an example or a masked copy of a token"
	case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		problem = "holds a space, a control character or a character that is not ASCII"
	}
	return t, problem
}
