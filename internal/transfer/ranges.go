package transfer

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// contentRange is what a Content-Range header says.
type contentRange struct {
	start, end int64
	total      int64 // -1: not known
}

var rangeForm = regexp.MustCompile(`^\s*(?i:bytes) ([0-9]+)-([0-9]+)/([0-9]+|\*)\s*$`)

// parseContentRange reads "bytes 500-999/1000" and "bytes 500-999/*".
func parseContentRange(text string) (c contentRange, ok bool) {
	m := rangeForm.FindStringSubmatch(text)
	if m == nil {
		return c, false
	}
	c = contentRange{number(m[1]), number(m[2]), number(m[3])}
	return c, c.start >= 0 && c.start <= c.end && (m[3] == "*" || c.end < c.total)
}

// number is -1 for what is none.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
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

// tag is the entity tag of a response; of one with several, none can be relied on.
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

// same reports whether a response about a part says that it is about the contents
// that the download began with. One that does not say is not believed: storage
// that ignores If-Range sends a part of whatever is there now. A weak entity tag says
// less than a strong one when it stays as it was, but as much when it does not.
func (g *Get) same(h http.Header) bool {
	etag := tag(h)
	if g.etag != "" && etag != "" && (strong(g.etag) || etag != g.etag) {
		return etag == g.etag
	}
	return g.modified != "" && h.Get("Last-Modified") == g.modified
}
