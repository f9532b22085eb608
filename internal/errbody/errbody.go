// Package errbody finds what a failed answer wants to say, in bodies that nobody
// has documented: JSON of any of the usual shapes, the XML of object storage,
// HTML pages of proxies, plain text. It survives any body at all, in linear time.
package errbody

import (
	"bytes"
	"mime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Info is what was found; each field may be empty. Every text is one line
// without control characters.
type Info struct {
	Code      string // at most 128 bytes
	Message   string // at most 512 bytes
	RequestID string // at most 128 bytes
}

const (
	maxBody    = 256 << 10 // nothing beyond it is looked at
	maxMessage = 512
	maxCode    = 128
	maxExcerpt = 256
)

// Parse reads an error body. The content type is only a hint: bodies are often
// mislabelled.
func Parse(contentType string, body []byte) Info {
	return ParseScrubbed(contentType, body, func(s string) string { return s })
}

// ParseScrubbed is Parse with a function that takes the secrets out of each
// text, once it is decoded and before it is cut to its length.
func ParseScrubbed(contentType string, body []byte, scrub func(string) string) Info {
	info := parse(contentType, body)
	return Info{
		Code:      Label(info.Code, scrub),
		Message:   bound(scrub(Line(info.Message)), maxMessage),
		RequestID: Label(info.RequestID, scrub),
	}
}

// Excerpt returns the beginning of the body as one line of at most 256 bytes:
// "empty body" if there is none, "binary data" if it is not text.
func Excerpt(contentType string, body []byte) string {
	return ExcerptScrubbed(contentType, body, func(s string) string { return s })
}

// ExcerptScrubbed is Excerpt with a function that takes the secrets out of the
// text before it is cut.
func ExcerptScrubbed(contentType string, body []byte, scrub func(string) string) string {
	body = trim(body)
	text := string(body)
	switch {
	case len(body) == 0:
		return "empty body"
	case isBinary(body):
		return "binary data"
	case looksLikeHTML(mediaType(contentType), body):
		if page := htmlText(body); Line(page) != "" {
			text = page
		}
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
	switch body[0] {
	case '{', '[', '"':
		if info, ok := fromJSON(body); ok {
			return info
		}
	case '<':
		if !looksLikeHTML(mediaType(contentType), body) {
			if info := fromXML(body); info != (Info{}) {
				return info
			}
		}
		return Info{Message: htmlMessage(body)}
	}
	if looksLikeHTML(mediaType(contentType), body) {
		return Info{Message: htmlMessage(body)}
	}
	first, _, _ := bytes.Cut(body, []byte("\n")) // not blank: the body is trimmed
	return Info{Message: string(first)}
}

// trim takes off what surrounds the text, and whatever is beyond reason.
func trim(body []byte) []byte {
	body = bytes.TrimPrefix(body[:min(len(body), maxBody)], []byte("\xef\xbb\xbf"))
	return bytes.TrimSpace(body)
}

func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
	}
	return strings.ToLower(strings.TrimSpace(media))
}

// isBinary judges by the first bytes: text has hardly any control characters
// and is UTF-8, or some other encoding of mostly ASCII.
func isBinary(body []byte) bool {
	head := body[:min(len(body), 1024)]
	odd, total := 0, 0
	for i := 0; i < len(head); total++ {
		r, size := utf8.DecodeRune(head[i:])
		i += size
		if r == 0 {
			return true
		}
		if r == utf8.RuneError && size == 1 && utf8.FullRune(head[i-1:]) || r < ' ' && !unicode.IsSpace(r) && r != 0x1b {
			odd++
		}
	}
	return odd*4 > total
}

// Line makes one line of s: runs of white space become one space, and what
// cannot be printed is left out.
func Line(s string) string {
	if isLine(s) {
		return s
	}
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
		case r == utf8.RuneError || !strconv.IsPrint(r):
		default:
			if space {
				b.WriteByte(' ')
				space = false
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isLine reports whether s is plain enough to be one line already.
func isLine(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' ') {
			return false
		}
	}
	return true
}

// bound cuts s to at most limit bytes, its mark included.
func bound(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + mark
}
