package svc

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// base is an address that paths are put behind.
type base struct {
	url.URL // its path has no trailing slash
}

// parseBase checks a base address. Its errors never show the text: what was
// given in its place may be a secret.
func parseBase(what, text string, insecure bool) (base, error) {
	fail := func(problem string) (base, error) { return base{}, errors.New("svc: " + what + ": " + problem) }
	text = strings.TrimSpace(text)
	if text == "" {
		return fail("is empty")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fail("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fail("must be an absolute URL that starts with https:// or http://")
	case u.User != nil:
		return fail("must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery:
		return fail("must not have a query")
	case strings.Contains(text, "#"):
		return fail("must not have a fragment")
	case u.Scheme == "http" && !insecure && !loopback(u.Hostname()):
		return fail("plain http would show the token to everyone on the way: use https, or WithInsecureHTTP if you mean it")
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	for i, segment := range strings.Split(prefix, "/") {
		if plain, _ := url.PathUnescape(segment); i > 0 && (plain == "" || plain == "." || plain == "..") {
			return fail("its path must not have empty or dot segments")
		}
	}
	b := base{url.URL{Scheme: u.Scheme, Host: u.Host}}
	b.Path, _ = url.PathUnescape(prefix)
	if b.EscapedPath() != prefix {
		b.RawPath = prefix
	}
	return b, nil
}

func loopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// join makes the address of a call.
func (b *base) join(k *call, query url.Values) (*url.URL, error) {
	path, escaped := k.route, k.route
	switch {
	case k.path != "":
		path, escaped = k.path, k.escaped
	case k.hasID:
		open, end := strings.IndexByte(k.route, '{'), strings.IndexByte(k.route, '}')
		if problem := idProblem(k.id); problem != "" {
			return nil, &ValidationError{Fields: []FieldError{{k.route[open+1 : end], problem}}}
		}
		path = k.route[:open] + k.id + k.route[end+1:]
		if id := url.PathEscape(k.id); id != k.id {
			escaped = k.route[:open] + id + k.route[end+1:]
		} else {
			escaped = path
		}
	}
	u := &url.URL{Scheme: b.Scheme, Host: b.Host, Path: b.Path + path}
	if b.RawPath != "" || escaped != path {
		u.RawPath = b.EscapedPath() + escaped
	}
	if len(k.query)+len(query) > 0 {
		all := make(url.Values, len(k.query)+len(query))
		for _, q := range []url.Values{k.query, query} {
			for key, values := range q {
				all[key] = values
			}
		}
		u.RawQuery = all.Encode()
	}
	return u, nil
}

// maxID is the longest id in bytes: a request line has to hold it.
const maxID = 1024

// idProblem says why an id cannot be one. Every other id is one segment of the
// path, whatever it holds.
func idProblem(id string) string {
	switch {
	case strings.TrimSpace(id) == "":
		return "is empty"
	case id == "." || id == "..":
		return "must not be a dot segment"
	case strings.ContainsAny(id, "/\\"):
		return "must not hold a slash"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "must not hold a line break or another control character"
	case !utf8.ValidString(id):
		return "is not valid UTF-8"
	case strings.ContainsRune(id, utf8.RuneError): // decoding makes it of bytes that are no text
		return "holds U+FFFD, which stands where a character was lost"
	case len(id) > maxID:
		return "is longer than an id can be"
	}
	return ""
}

// rawPath says what is wrong with the path that a caller of Do has escaped, or
// returns it without its escapes, and with those that are missing.
func rawPath(path string) (plain, escaped, problem string) {
	fail := func(problem string) (string, string, string) { return "", "", problem }
	if !strings.HasPrefix(path, "/") {
		return fail("must start with a slash: it is relative to the base URL")
	}
	if strings.ContainsAny(path, "?#\\") {
		return fail("must not hold a query or a fragment: use WithQuery, and escape ids with url.PathEscape")
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return fail("is not well escaped")
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments[1:] {
		text, _ := url.PathUnescape(segment)
		if text == "" || text == "." || text == ".." || strings.ContainsFunc(text, unicode.IsControl) {
			return fail("must not have empty segments, dot segments or control characters")
		}
		segments[1+i] = url.PathEscape(text)
	}
	// A URL escapes its whole path anew, slashes in segments lost, if what it is
	// given is not well escaped throughout.
	if u := (url.URL{Path: plain, RawPath: path}); u.EscapedPath() != path {
		path = strings.Join(segments, "/")
	}
	return plain, path, ""
}

// encode makes the body of a call. The errors of the caller's own encoders are
// scrubbed.
func (k *call) encode(fields []bodyField, scrub func(string) string) ([]byte, error) {
	raw, isRaw := k.body.(json.RawMessage)
	none := k.body == nil || isRaw && len(raw) == 0
	if none && len(fields) == 0 {
		return nil, nil
	}
	body := []byte("{}")
	switch {
	case none && (k.method == http.MethodGet || k.method == http.MethodHead || k.method == http.MethodDelete || k.method == http.MethodOptions):
		return nil, &ValidationError{Fields: []FieldError{{fields[0].path, "cannot be set: the call has no body"}}}
	case none:
	case isRaw && json.Valid(raw): // Marshal would compact and escape it
		body = raw
	default:
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			if k.err != nil {
				return nil, nil //nolint:nilerr // what is wrong with the request says more
			}
			return nil, &ValidationError{Fields: []FieldError{{"body", "cannot be written as JSON: " + scrub(err.Error())}}}
		}
	}
	for _, f := range fields {
		var err error
		if body, err = f.set(body, f.path, f.value); err != nil {
			return nil, &ValidationError{Fields: []FieldError{{f.path, "cannot be set: " + scrub(err.Error())}}}
		}
	}
	return body, nil
}

func headerName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return true
}

func headerValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
