package errbody

import (
	"bytes"
	"strconv"
	"strings"
)

// fromXML reads <Error><Code/><Message/><RequestId/></Error>, at any depth and
// in any namespace. It reads by hand: the decoders of the standard library would
// add a tenth to a small program that never meets storage.
func fromXML(body []byte) Info {
	var (
		info Info
		into *string
	)
	text := func(b []byte, plain func(string) string) {
		if into != nil {
			*into += plain(string(b))
		}
	}
	for len(body) > 0 {
		before, rest, found := bytes.Cut(body, []byte("<"))
		text(before, unescape)
		if !found {
			break
		}
		if literal, ok := bytes.CutPrefix(rest, []byte("![CDATA[")); ok {
			before, body, _ = bytes.Cut(literal, []byte("]]>"))
			text(before, func(s string) string { return s })
			continue
		}
		if comment, ok := bytes.CutPrefix(rest, []byte("!--")); ok {
			_, body, _ = bytes.Cut(comment, []byte("-->"))
			continue
		}
		var tag []byte
		tag, body, _ = bytes.Cut(rest, []byte(">"))
		into = nil
		switch elementName(tag) {
		case "code":
			into = &info.Code
		case "message":
			into = &info.Message
		case "requestid":
			into = &info.RequestID
		}
		if into != nil && *into != "" {
			into = nil // the first one counts
		}
	}
	return info
}

// elementName is the name in an opening tag, in lower case and without its
// namespace; it is empty for a tag that opens nothing.
func elementName(tag []byte) string {
	if bytes.HasSuffix(tag, []byte("/")) {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(tag[:min(len(tag), 256)])), " ")
	if _, local, ok := strings.Cut(name, ":"); ok {
		name = local
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// unescape replaces the entities that errors are likely to hold.
func unescape(s string) string {
	if strings.IndexByte(s, '&') < 0 {
		return s
	}
	return numeric(named.Replace(s))
}

var named = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&apos;", "'", "&nbsp;", " ",
	"&#39;", "'", "&#34;", `"`, "&amp;", "&")

// numeric replaces &#111; and &#x6f;.
func numeric(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "&#")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		digits, after, ended := strings.Cut(rest[:min(len(rest), 10)], ";")
		base := 10
		if len(digits) > 0 && (digits[0] == 'x' || digits[0] == 'X') {
			digits, base = digits[1:], 16
		}
		n, err := strconv.ParseUint(digits, base, 21)
		if err != nil || !ended {
			b.WriteString("&#")
			s = rest
			continue
		}
		b.WriteRune(rune(n))
		s = after + rest[min(len(rest), 10):]
	}
}

func looksLikeHTML(media string, body []byte) bool {
	if media == "text/html" || media == "application/xhtml+xml" {
		return bytes.IndexByte(body, '<') >= 0
	}
	if body[0] != '<' {
		return false
	}
	head := lowerASCII(body[:min(len(body), 1024)])
	for _, tag := range []string{"<!doctype html", "<html", "<head", "<body", "<title"} {
		if bytes.Contains(head, []byte(tag)) {
			return true
		}
	}
	return false
}

// htmlMessage is the title of a page, else its first heading, else its text.
func htmlMessage(body []byte) string {
	low := lowerASCII(body)
	for _, tag := range []string{"title", "h1", "h2", "h3"} {
		if text := htmlText(element(body, low, tag)); Line(text) != "" {
			return text
		}
	}
	return htmlText(body)
}

// element returns what is in the first element of that name.
func element(body, low []byte, tag string) []byte {
	start := bytes.Index(low, []byte("<"+tag))
	if start < 0 {
		return nil
	}
	n := bytes.IndexByte(low[start:], '>')
	if n < 0 {
		return nil
	}
	start += n + 1
	n = bytes.Index(low[start:], []byte("</"+tag))
	if n < 0 {
		return nil
	}
	return body[start : start+n]
}

// htmlText returns the text between the tags, without scripts and styles.
func htmlText(body []byte) string {
	low := lowerASCII(body)
	var text strings.Builder
	for i := 0; i < len(body); {
		n := bytes.IndexByte(body[i:], '<')
		if n < 0 {
			text.Write(body[i:])
			break
		}
		text.Write(body[i : i+n])
		text.WriteByte(' ')
		i += n
		end := ">"
		switch rest := low[i:]; {
		case bytes.HasPrefix(rest, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(rest, []byte("<script")):
			end = "</script>"
		case bytes.HasPrefix(rest, []byte("<style")):
			end = "</style>"
		}
		n = bytes.Index(low[i:], []byte(end))
		if n < 0 {
			break
		}
		i += n + len(end)
	}
	return unescape(text.String())
}

// lowerASCII keeps every byte at its place, as bytes.ToLower does not.
func lowerASCII(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}
