package transfer

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// contentRange is a parsed Content-Range header.
type contentRange struct {
	start, end int64
	total      int64 // size of the file; -1 if not known
}

var (
	rangeForm = regexp.MustCompile(`^\s*(?i:bytes) ([0-9]+)-([0-9]+)/([0-9]+|\*)\s*$`)
	sizeForm  = regexp.MustCompile(`^\s*(?i:bytes) \*/([0-9]+)\s*$`) // of a 416 response
)

// parseContentRange reads "bytes 500-999/1000" and "bytes 500-999/*".
func parseContentRange(text string) (c contentRange, ok bool) {
	m := rangeForm.FindStringSubmatch(text)
	if m == nil {
		return c, false
	}
	c = contentRange{number(m[1]), number(m[2]), number(m[3])}
	return c, c.start >= 0 && c.start <= c.end && (m[3] == "*" || c.end < c.total)
}

// partOf returns which part of the file a response holds. end is below zero if the size of the
// body is not known, or if it is empty.
func partOf(resp *http.Response) (c contentRange, ok bool) {
	switch resp.StatusCode {
	case http.StatusOK:
		return contentRange{0, resp.ContentLength - 1, resp.ContentLength}, true
	case http.StatusPartialContent:
		kind := strings.ToLower(resp.Header.Get("Content-Type"))
		if strings.HasPrefix(kind, "multipart/byteranges") { // several parts, each with a header
			return c, false
		}
		return parseContentRange(resp.Header.Get("Content-Range"))
	}
	return c, false
}

// fits reports whether c can be a part of a file of this size, which is -1 if it is not known.
func (c contentRange) fits(total int64) bool {
	if total < 0 {
		return true
	}
	return c.end < total && (c.total < 0 || c.total == total)
}

// number returns -1 if digits is not a number.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// tag returns the strong entity tag of a response, which identifies its exact bytes, or "" if
// it has none or several.
func tag(h http.Header) string {
	if tags := h["Etag"]; len(tags) == 1 && strings.HasPrefix(tags[0], `"`) && tags[0] != `""` {
		return tags[0]
	}
	return ""
}

// encoding returns the Content-Encoding of a response. The same file has other bytes in
// another encoding.
func encoding(h http.Header) string {
	if e := strings.ToLower(strings.Join(h["Content-Encoding"], ",")); e != "identity" {
		return e
	}
	return ""
}
