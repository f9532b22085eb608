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

// number returns -1 if digits is not a number.
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
// it must be older than the response, since a file can change twice in one second.
func datesStrongly(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false
	}
	date, err := http.ParseTime(h.Get("Date"))
	return err == nil && date.Sub(modified) >= time.Second
}

// validator returns the If-Range of a request for the rest of the file: storage sends the rest
// only if the file has not changed. It returns "" if nothing can prove that two parts belong to
// the same file.
func (g *Get) validator() string {
	if strong(g.etag) {
		return g.etag
	}
	return g.modified
}

// tag is the entity tag of a response. If there are several, none can be relied on.
func tag(h http.Header) string {
	if tags := h["Etag"]; len(tags) == 1 {
		return tags[0]
	}
	return ""
}

// encoding is the Content-Encoding of a response. The same file has other bytes in another
// encoding.
func encoding(h http.Header) string {
	if e := strings.ToLower(strings.Join(h["Content-Encoding"], ",")); e != "identity" {
		return e
	}
	return ""
}

// same reports whether a response with a part proves that the file has not changed. Without
// that proof the part may be from a new file, since some storage ignores If-Range. A weak
// entity tag can prove that the file has changed, but not that it is unchanged.
func (g *Get) same(h http.Header) bool {
	etag := tag(h)
	if g.etag != "" && etag != "" && (strong(g.etag) || etag != g.etag) {
		return etag == g.etag
	}
	return g.modified != "" && h.Get("Last-Modified") == g.modified
}
