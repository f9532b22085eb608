package transfer

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// contentRange is what a Content-Range header says.
type contentRange struct {
	start, end int64 // start -1: nothing, the range asked for does not exist
	total      int64 // -1: not known
}

// parseContentRange reads "bytes 500-999/1000", "bytes 500-999/*" and "bytes
// */1000".
func parseContentRange(text string) (c contentRange, ok bool) {
	unit, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	span, total, _ := strings.Cut(rest, "/")
	if !strings.EqualFold(unit, "bytes") {
		return c, false
	}
	c = contentRange{start: -1, end: -1, total: -1}
	if total != "*" {
		if c.total, ok = number(total); !ok {
			return c, false
		}
	}
	if span == "*" {
		return c, c.total >= 0
	}
	first, last, _ := strings.Cut(span, "-")
	var okStart, okEnd bool
	c.start, okStart = number(first)
	c.end, okEnd = number(last)
	return c, okStart && okEnd && c.start <= c.end && (c.total < 0 || c.end < c.total)
}

func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && s[0] != '+'
}

// strong reports whether an entity tag stands for exactly the same bytes.
func strong(etag string) bool { return strings.HasPrefix(etag, `"`) && etag != `""` }

// datesStrongly reports whether Last-Modified stands for exactly the same bytes:
// it must be older than the answer, since contents can change twice in one second.
func datesStrongly(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false
	}
	date, err := http.ParseTime(h.Get("Date"))
	return err == nil && date.Sub(modified) >= time.Second
}

// validator is what a request for the rest is tied to; empty: nothing is known
// that could hold two parts together.
func (g *Get) validator() string {
	if strong(g.etag) {
		return g.etag
	}
	return g.modified
}

// tag is the entity tag of an answer; of one with several, none can be relied on.
func tag(h http.Header) string {
	if tags := h["Etag"]; len(tags) == 1 {
		return tags[0]
	}
	return ""
}

// encoding is what the contents of an answer are stored in: the same contents in
// another one are other bytes.
func encoding(h http.Header) string {
	if e := strings.ToLower(strings.Join(h["Content-Encoding"], ",")); e != "identity" {
		return e
	}
	return ""
}

// manyParts reports whether an answer holds parts with heads of their own, which
// are none of the contents.
func manyParts(h http.Header) bool {
	const kind = "multipart/byteranges"
	t := strings.TrimSpace(h.Get("Content-Type"))
	return len(t) >= len(kind) && strings.EqualFold(t[:len(kind)], kind)
}

// retagged reports whether an answer names another entity tag than the first one.
// A weak one says less than a strong one when it stays as it was, but as much when
// it does not.
func (g *Get) retagged(h http.Header) bool {
	etag := tag(h)
	return g.etag != "" && etag != "" && etag != g.etag
}

// same reports whether an answer about a part says that it is about the contents
// that the download began with. One that does not say is not believed: storage
// that takes no notice of If-Range sends a part of whatever is there now.
func (g *Get) same(h http.Header) bool {
	switch {
	case g.retagged(h):
		return false
	case strong(g.etag) && tag(h) != "":
		return true
	}
	return g.modified != "" && h.Get("Last-Modified") == g.modified
}

// other reports whether an answer without contents says that there are others now.
func (g *Get) other(h http.Header) bool {
	switch modified := h.Get("Last-Modified"); {
	case g.retagged(h):
		return true
	case strong(g.etag) && tag(h) != "":
		return false
	default:
		return g.modified != "" && modified != "" && modified != g.modified
	}
}
