package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// span is a piece of text to be replaced by the mark.
type span struct{ start, end int }

// redact returns b itself, and false, if there is nothing to replace. Its time
// is linear in len(b): no scan goes back over what it has passed, at most over a
// short needle's length of it.
func (r *Redactor) redact(b []byte, inputCut bool) (out []byte, changed bool) {
	const passes = 4 // a mark may complete what looks like a link; one pass more finds it
	needles := r.needles()
	out = b
	for range passes {
		next := pass(out, needles, inputCut)
		if next == nil {
			break
		}
		out, changed = next, true
	}
	return out, changed
}

// pass returns nil if there is nothing to replace.
func pass(b []byte, needles [][]byte, inputCut bool) []byte {
	spans := secretSpans(nil, b, needles, inputCut)
	spans = linkSpans(spans, b, inputCut)
	spans = pairSpans(spans, b)
	spans = bearerSpans(spans, b)
	if len(spans) == 0 {
		return nil
	}
	covered := make([]bool, len(b)) // spans come in no order, and overlap
	for _, s := range spans {
		for i := s.start; i < s.end; i++ {
			covered[i] = true
		}
	}
	out := make([]byte, 0, len(b))
	for i, c := range b {
		switch {
		case !covered[i]:
			out = append(out, c)
		case i == 0 || !covered[i-1]:
			out = append(out, Mark...)
		}
	}
	if bytes.Equal(out, b) {
		return nil
	}
	return out
}

// escapePage is html.EscapeString: with that package, its table of all named
// characters would be part of every program.
var escapePage = strings.NewReplacer("&", "&amp;", "'", "&#39;", "<", "&lt;", ">", "&gt;", `"`, "&#34;")

// forms returns the spellings in which secrets may turn up, longest first.
func forms(all []string) [][]byte {
	var list []string
	for _, s := range all {
		if len(s) < minSecret {
			continue
		}
		query, path := url.QueryEscape(s), url.PathEscape(s)
		page := escapePage.Replace(s)
		list = append(list, s, query, path, lowerHex(query), lowerHex(path),
			page, strings.ReplaceAll(page, "+", "&#43;"), // as html/template does
			base64.RawStdEncoding.EncodeToString([]byte(s)),
			base64.RawURLEncoding.EncodeToString([]byte(s)))
		if quoted, err := json.Marshal(s); err == nil {
			safe := string(quoted[1 : len(quoted)-1]) // with < as \u003c
			plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(safe)
			list = append(list, safe, plain, strings.ReplaceAll(plain, "/", `\/`))
		}
	}
	slices.SortFunc(list, func(x, y string) int {
		if len(x) != len(y) {
			return len(y) - len(x)
		}
		return strings.Compare(x, y)
	})
	needles := make([][]byte, 0, len(list))
	for _, s := range slices.Compact(list) {
		if !strings.Contains(Mark, s) && !strings.Contains(s, Mark) {
			needles = append(needles, []byte(s))
		}
	}
	return needles
}

// lowerHex turns %2F into %2f.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = lower(b[i+1]), lower(b[i+2])
		}
	}
	return string(b)
}

// secretSpans finds the needles. A mark that stands in the text already is one
// thing: a needle that shares only some letters with it is not one.
func secretSpans(spans []span, b []byte, needles [][]byte, inputCut bool) []span {
	if len(needles) == 0 {
		return spans
	}
	var marks []int // where marks start, found once for all needles
	for i := 0; ; {
		j := bytes.Index(b[i:], []byte(Mark))
		if j < 0 {
			break
		}
		marks = append(marks, i+j)
		i += j + len(Mark)
	}
	end := 0 // of the last mark
	if len(marks) > 0 {
		end = marks[len(marks)-1] + len(Mark)
	}
	for _, needle := range needles {
		next, first := 0, len(spans) // next is the first mark that may end after a place
		found := func(start int) {
			s := span{start, start + len(needle)}
			for next < len(marks) && marks[next]+len(Mark) <= s.start {
				next++
			}
			switch last := len(spans) - 1; {
			case next < len(marks) && marks[next] < s.end:
			case last >= first && s.start <= spans[last].end:
				spans[last].end = s.end
			default:
				spans = append(spans, s)
			}
		}
		n := 0 // bytes at the end that are the beginning of needle
		if len(needle) >= longNeedle {
			n = longPlaces(b, needle, end, found)
		} else if places(b, needle, found); inputCut {
			n = partial(b[end:], needle)
		}
		if inputCut && n > 0 {
			spans = append(spans, span{len(b) - n, len(b)})
		}
	}
	return spans
}

// places finds all places of a needle: they may overlap.
func places(b, needle []byte, found func(start int)) {
	for i := 0; ; i++ {
		j := bytes.Index(b[i:], needle)
		if j < 0 {
			return
		}
		i += j
		found(i)
	}
}

const (
	longNeedle = 256 // comparing more than that at every place would take its time
	needleHead = 64  // of a long one, which hardly any text has
)

// longPlaces is places and partial for a long needle, however that repeats itself:
// from where its head stands for the first time it goes by Knuth, Morris and Pratt.
// What is partial begins at tail or later.
func longPlaces(b, needle []byte, tail int, found func(start int)) (n int) {
	at := bytes.Index(b, needle[:needleHead])
	if at < 0 {
		return partial(b[tail:], needle[:needleHead])
	}
	// Of the first i+1 bytes of needle, the last borders[i] are its beginning too.
	borders := make([]int, min(len(needle), len(b)-at))
	for i := 1; i < len(borders); i++ {
		for n > 0 && needle[i] != needle[n] {
			n = borders[n-1]
		}
		if needle[i] == needle[n] {
			n++
		}
		borders[i] = n
	}
	n = 0
	for i := at; i < len(b); i++ {
		for n > 0 && b[i] != needle[n] {
			n = borders[n-1]
		}
		if b[i] == needle[n] {
			n++
		}
		if n == len(needle) {
			found(i + 1 - n)
			n = borders[n-1]
		}
	}
	for n > len(b)-tail {
		n = borders[n-1]
	}
	if n < minSecret {
		return 0
	}
	return n
}

// partial returns how many bytes at the end of b are the beginning of needle, 0
// if fewer than a secret has at least.
func partial(b, needle []byte) int {
	for n := min(len(b), len(needle)-1); n >= minSecret; n-- {
		if bytes.HasSuffix(b, needle[:n]) {
			return n
		}
	}
	return 0
}

// linkSpans finds the user info, and the query or fragment, of every link.
func linkSpans(spans []span, b []byte, inputCut bool) []span {
	for i := 0; i < len(b); {
		j := bytes.IndexByte(b[i:], ':')
		if j < 0 {
			break
		}
		i += j + 1
		start, ok := skipSlashes(b, i)
		if !ok {
			continue
		}
		end := start
		for end < len(b) && !endsLink(b, end) {
			end++
		}
		link := b[start:end]
		host := len(link)
		if n := bytes.IndexAny(link, `/?#\`); n >= 0 {
			host = n
		}
		at := bytes.LastIndexByte(link[:host], '@')
		if at > 0 {
			spans = append(spans, span{start, start + at})
		} else if inputCut && start+host == len(b) && bytes.IndexByte(link, ':') > 0 {
			spans = append(spans, span{start, end}) // may have been cut before its @
		}
		if n := bytes.IndexAny(link, "?#"); n >= 0 && n+1 < len(link) {
			spans = append(spans, span{start + n + 1, end})
		}
		i = end
	}
	return spans
}

// skipSlashes steps over the two slashes of a link, which JSON may have escaped
// any number of times.
func skipSlashes(b []byte, i int) (next int, ok bool) {
	for range 2 {
		i = skip(b, i, `\`)
		if i == len(b) || b[i] != '/' {
			return 0, false
		}
		i++
	}
	return i, true
}

// endsLink reports whether a link or a value ends before b[i]. A backslash ends
// it where it escapes a quote or a line end, and not in \/ or \u0026.
func endsLink(b []byte, i int) bool {
	switch c := b[i]; c {
	case '"', '\'', '`', '<', '>', 0x7f:
		return true
	case '\\':
		return i+1 < len(b) && strings.IndexByte("\"'`nrt", b[i+1]) >= 0
	default:
		return c <= ' '
	}
}

// keys are the parameters that carry a signature or a credential, in lower case.
var keys = []string{
	"signature", // also X-Amz-Signature, X-Goog-Signature and their like
	"credential",
	"security-token",
	"sig",
	"awsaccesskeyid",
	"ossaccesskeyid",
	"googleaccessid",
	"signatureprovided",
	"api_token",
	"access_token",
}

// headerKeys are those that are also headers, and clear enough to be followed by
// a bare colon: in prose, "signature: expired" keeps its words.
var headerKeys = []string{"x-amz-security-token", "x-amz-signature", "x-amz-credential", "x-goog-signature"}

// pairSpans finds the values of key=value, key%3Dvalue, key\u003dvalue,
// "key":"value", key:[value] and <key>value.
func pairSpans(spans []span, b []byte) []span {
	for i := 0; i < len(b); {
		width := separator(b, i)
		if width == 0 {
			i++
			continue
		}
		start := skipQuote(b, i+width)
		end := start
		for end < len(b) && !endsLink(b, end) && strings.IndexByte("&,;)]", b[end]) < 0 {
			end++
		}
		if end > start {
			spans = append(spans, span{start, end})
		}
		i = end
	}
	return spans
}

// separator returns the width of what divides one of the keys, which ends before
// b[i], from its value; 0 if nothing does.
func separator(b []byte, i int) int {
	switch b[i] {
	case '=', '>', '%', '\\', '"', '\'':
		if !endsInKey(b[:i], keys) {
			return 0
		}
	case ':':
		if !endsInKey(b[:i], headerKeys) {
			return 0
		}
	default:
		return 0
	}
	rest := b[i:]
	switch rest[0] {
	case '=', '>':
		return 1
	case '%': // %3D, %253D, …
		n := 1
		for bytes.HasPrefix(rest[n:], []byte("25")) {
			n += 2
		}
		if n+1 < len(rest) && rest[n] == '3' && lower(rest[n+1]) == 'd' {
			return n + 2
		}
		return 0
	}
	// What is left is \u003d, or a colon after a quote that may be escaped, and
	// before the list that a header's values are.
	n := skip(rest, 0, "\\")
	if n > 0 && n+5 <= len(rest) && strings.EqualFold(string(rest[n:n+5]), "u003d") {
		return n + 5
	}
	if n < len(rest) && (rest[n] == '"' || rest[n] == '\'') {
		n = skip(rest, n+1, " ")
	}
	if n == len(rest) || rest[n] != ':' {
		return 0
	}
	return skip(rest, n+1, " [")
}

// skip steps over any of these characters.
func skip(b []byte, i int, chars string) int {
	for i < len(b) && strings.IndexByte(chars, b[i]) >= 0 {
		i++
	}
	return i
}

// skipQuote steps over a quote, escaped or not, if there is one.
func skipQuote(b []byte, i int) int {
	if n := skip(b, i, "\\"); n < len(b) && (b[n] == '"' || b[n] == '\'') {
		return n + 1
	}
	return i
}

// endsInKey reports whether the last word of b is one of the keys. A word may
// begin after an escaped & or ?, as in %26sig.
func endsInKey(b []byte, keys []string) bool {
	for _, key := range keys {
		start := len(b) - len(key)
		if start < 0 || !strings.EqualFold(string(b[start:]), key) {
			continue
		}
		before := b[:start]
		if start == 0 || !isAlnum(before[start-1]) || bytes.HasSuffix(before, []byte("26")) ||
			bytes.HasSuffix(before, []byte("3F")) || bytes.HasSuffix(before, []byte("3f")) {
			return true
		}
	}
	return false
}

// bearerSpans finds what follows the word Bearer.
func bearerSpans(spans []span, b []byte) []span {
	const word = "bearer"
	for i := 0; i+len(word) < len(b); {
		if lower(b[i]) != 'b' || !strings.EqualFold(string(b[i:i+len(word)]), word) || i > 0 && isAlnum(b[i-1]) {
			i++
			continue
		}
		i += len(word)
		start := i
		for start < len(b) {
			if b[start] == ' ' || b[start] == '\t' || b[start] == '+' {
				start++
			} else if bytes.HasPrefix(b[start:], []byte("%20")) {
				start += 3
			} else {
				break
			}
		}
		if start == i {
			continue
		}
		end := start
		for end < len(b) && !endsLink(b, end) && b[end] != ',' && b[end] != ';' {
			end++
		}
		if end > start && !prose(string(b[start:end])) {
			spans = append(spans, span{start, end})
		}
		i = end
	}
	return spans
}

// prose reports whether a word after "bearer" belongs to a sentence about
// tokens, such as "missing bearer token", or to a challenge.
func prose(word string) bool {
	switch strings.ToLower(strings.Trim(word, ".:!?()[]")) {
	case "", "token", "tokens", "auth", "authentication", "authorization", "scheme", "credentials",
		"credential", "header", "required", "is", "was", "and", "or", "not", "realm=", "error=", "scope=":
		return true
	}
	return false
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= lower(c) && lower(c) <= 'z'
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
