// Package apierr finds the code, the message and the request ID of a failed response. The
// bodies are not documented: they are JSON in one of the usual shapes, the XML of object
// storage, HTML pages of proxies, or plain text. Any body is read in linear time.
package apierr

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"html"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/lazy"
)

// Info holds the details that were found; each field may be empty. Each is one line without
// control characters.
type Info struct {
	Code      string // error code; at most 128 bytes
	Message   string // at most 512 bytes
	RequestID string // at most 128 bytes
}

const (
	maxBody    = 256 << 10 // bytes of a body that are read; the rest is ignored
	maxMessage = 512
	maxCode    = 128
	maxExcerpt = 256
)

// Parse reads an error body. The content type is only a hint: bodies are often mislabelled.
// scrub removes the secrets from each string, after it was decoded and before it is truncated.
func Parse(contentType string, body []byte, scrub func(string) string) Info {
	info := parse(contentType, body)
	return Info{
		Code:      Label(info.Code, scrub),
		Message:   bound(scrub(Line(info.Message)), maxMessage),
		RequestID: Label(info.RequestID, scrub),
	}
}

// Excerpt returns the beginning of the body as one line of at most 256 bytes:
// "empty body" if there is none, "binary data" if it is not text. The text is scrubbed
// before it is cut.
func Excerpt(contentType string, body []byte, scrub func(string) string) string {
	body = trim(body)
	text := string(body)
	switch {
	case len(body) == 0:
		return "empty body"
	case isBinary(body):
		return "binary data"
	case isHTML(contentType, body):
		text = cmp.Or(Line(pageText(body)), text)
	}
	if text = bound(scrub(Line(text)), maxExcerpt); text == "" {
		return "empty body"
	}
	return text
}

func parse(contentType string, body []byte) Info {
	body = trim(body)
	if len(body) == 0 || isBinary(body) {
		return Info{}
	}
	var value any
	switch {
	case json.Unmarshal(jsonfield.Clean(body), &value) == nil: // the whole body is one JSON value
		return fromValue(value)
	case isHTML(contentType, body):
		return Info{Message: pageMessage(body)}
	case body[0] == '<':
		info := fromXML(body)
		if info == (Info{}) {
			info.Message = pageText(body)
		}
		return info
	case body[0] == '{' || body[0] == '[': // JSON that is cut off, for example
		return Info{Message: string(body)}
	}
	first, _, _ := bytes.Cut(body, []byte("\n")) // the first line is not blank, since the body is trimmed
	return Info{Message: string(first)}
}

// fromXML reads <Error><Code/><Message/><RequestId/></Error>, at any depth and in any
// namespace, up to where it is cut off or is no longer XML.
func fromXML(body []byte) (info Info) {
	dec := xml.NewDecoder(bytes.NewReader(bytes.ToValidUTF8(body, nil)))
	dec.Strict = false
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // read as UTF-8: most error texts are ASCII
	for {
		token, err := dec.Token()
		if err != nil {
			return info
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		into := map[string]*string{"code": &info.Code, "message": &info.Message, "requestid": &info.RequestID}[strings.ToLower(start.Name.Local)]
		if into != nil && *into == "" { // of several elements with the same name, the first counts
			_ = dec.DecodeElement(into, &start)
		}
	}
}

// These patterns take linear time only because no part of them can match beyond what ends it.
var pageStart = lazy.Regexp(`(?i)<(?:!doctype html|html|head|body|title)`)
var pageHeading = lazy.Regexp(`(?i)<(?:title|h[1-3])(?:\s[^>]*)?>((?:[^<]|<[^/]|</[^th])*)</(?:title|h[1-3])`)
var pageTag = lazy.Regexp(`<[^>]*>`)

func isHTML(contentType string, body []byte) bool {
	if body[0] == '<' && pageStart().Match(body[:min(len(body), 1024)]) {
		return true
	}
	return strings.Contains(strings.ToLower(contentType), "html") && bytes.IndexByte(body, '<') >= 0
}

// pageMessage returns the title or the first heading of a page, or the text of the whole page if it
// has neither.
func pageMessage(body []byte) string {
	for _, match := range pageHeading().FindAllSubmatch(body, 3) {
		if text := Line(pageText(match[1])); text != "" {
			return text
		}
	}
	return pageText(body)
}

// pageText returns the text between the tags of a page.
func pageText(body []byte) string {
	return html.UnescapeString(string(pageTag().ReplaceAll(body, []byte(" "))))
}

// trim removes a byte order mark, white space, and everything after maxBody.
func trim(body []byte) []byte {
	body = bytes.TrimPrefix(body[:min(len(body), maxBody)], []byte("\xef\xbb\xbf"))
	return bytes.TrimSpace(body)
}

// isBinary reports whether the body does not begin like text, or holds a zero byte.
func isBinary(body []byte) bool {
	return !strings.HasPrefix(http.DetectContentType(body), "text/") || bytes.IndexByte(body, 0) >= 0
}

// Line returns s as one line: runs of white space become one space, and characters that cannot
// be printed are removed.
func Line(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !strconv.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// bound truncates s to at most limit bytes, including the mark at the end.
func bound(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	return strings.TrimRight(strings.ToValidUTF8(s[:limit-len(mark)], ""), " ") + mark
}

// RequestID finds the ID that the service gave to a request, in the header of the response.
func RequestID(header http.Header, scrub func(string) string) string {
	for _, name := range [...]string{"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Trace-Id", "Trace-Id", "X-Amz-Request-Id", "X-Ms-Request-Id"} {
		if v := header.Get(name); v != "" {
			return Label(v, scrub)
		}
	}
	return ""
}

// Label returns a value, such as that of a header, in a form that is safe to print: one line of
// at most 128 bytes, without secrets.
func Label(text string, scrub func(string) string) string {
	return bound(scrub(Line(text)), maxCode)
}

// Facts are details of an error. They stand in brackets at the end of its text.
type Facts []string

// Add adds a fact if it is known.
func (f *Facts) Add(known bool, fact string) {
	if known {
		*f = append(*f, fact)
	}
}

// String returns the facts in brackets, after a space; empty if there are none.
func (f Facts) String() string {
	if len(f) == 0 {
		return ""
	}
	return " (" + strings.Join(f, ", ") + ")"
}
