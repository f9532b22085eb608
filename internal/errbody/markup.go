package errbody

import (
	"bytes"
	"encoding/xml"
	"html"
	"io"
	"strings"
)

// fromXML reads <Error><Code/><Message/><RequestId/></Error>, at any depth and
// in any namespace.
func fromXML(body []byte) Info {
	dec := xml.NewDecoder(bytes.NewReader(body))
	dec.Strict = false
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var (
		info Info
		into *string
	)
	for {
		token, err := dec.RawToken()
		if err != nil {
			return info
		}
		switch token := token.(type) {
		case xml.StartElement:
			into = nil
			switch strings.ToLower(token.Name.Local) {
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
		case xml.CharData:
			if into != nil {
				*into += string(token)
			}
		case xml.EndElement:
			into = nil
		}
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
		if text := htmlText(element(body, low, tag)); line(text) != "" {
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
	return html.UnescapeString(text.String())
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
