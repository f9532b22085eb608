// Package redact keeps secrets out of text: bearer tokens, and the queries that
// turn a presigned URL into a key.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Mark replaces a secret.
const Mark = "REDACTED"

// BadURL replaces a link that is not an absolute URL, since its secret part is not known.
const BadURL = "[unparsable link REDACTED]"

const (
	minSecret = 4        // shorter secrets are not redacted, since they may occur in ordinary words
	maxAdded  = 100      // number of calls of Add whose secrets are kept: a token source may return a new token for each of many calls at a time
	maxSecret = 16 << 10 // number of bytes at the end of truncated text that are compared with secrets
	ahead     = 64 << 10 // number of bytes beyond the limit that are redacted as well
)

// URL returns link without user info, query and fragment. A query is replaced by "?REDACTED".
// The result is [BadURL] if link is not an absolute URL, or if URL would change the result
// when it is called with the result.
func URL(link string) string {
	if link == "" {
		return ""
	}
	s := strip(link)
	if strip(s) != s {
		return BadURL
	}
	return s
}

// Lost reports whether link is a result of [URL] that hides a query, so that it gives no access.
func Lost(link string) bool { return strings.HasSuffix(link, "?"+Mark) || link == BadURL }

func strip(link string) string {
	u, err := url.Parse(link)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return BadURL
	}
	path := u.EscapedPath()
	query := u.RawQuery != "" || u.ForceQuery
	if i := strings.Index(strings.ToUpper(path), "%3F"); i >= 0 {
		path, query = path[:i], true // a query that was escaped along with the path
	}
	s := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() + path
	if query {
		s += "?" + Mark
	}
	return s
}

// Redactor removes a set of secrets from text. It also removes whatever looks like the secret
// part of a presigned URL or like a bearer token. A nil Redactor has no secrets and removes
// only what looks like one. A Redactor is safe for concurrent use.
//
// A secret is ignored if it is shorter than 4 bytes, contains the word REDACTED, or is a part
// of that word.
type Redactor struct {
	parent *Redactor       // its secrets are removed as well; nil if there is none
	known  func() *secrets // returns the secrets; a function, so that formatting by reflection does not show them
}

type secrets struct {
	mu        sync.Mutex
	groups    [][]string // first the secrets of With, then one group for each Add
	spellings []string
	replacer  *strings.Replacer // nil if replacer and spellings have to be made
}

// New returns a Redactor that removes these secrets.
func New(fixed ...string) *Redactor { return (*Redactor)(nil).With(fixed...) }

// With returns a Redactor that removes these secrets and those of r. Secrets that are added to
// the new Redactor are not added to r.
func (r *Redactor) With(fixed ...string) *Redactor {
	s := &secrets{groups: [][]string{slices.Clone(fixed)}}
	return &Redactor{r, func() *secrets { return s }}
}

// Add makes r remove a group of further secrets, such as a new token, or the secrets of another
// link. The last 100 groups are kept. Adding the latest group again is cheap.
func (r *Redactor) Add(group ...string) {
	s := r.known()
	s.mu.Lock()
	defer s.mu.Unlock()
	isGroup := func(g []string) bool { return slices.Equal(g, group) }
	if len(group) == 0 || isGroup(s.groups[0]) || isGroup(s.groups[len(s.groups)-1]) {
		return
	}
	added := append(slices.DeleteFunc(s.groups[1:], isGroup), slices.Clone(group))
	s.groups = append(s.groups[:1], added[max(0, len(added)-maxAdded):]...)
	s.replacer = nil
}

// search returns the spellings of all secrets, and the replacer for them.
func (s *secrets) search() ([]string, *strings.Replacer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replacer == nil {
		pairs := []string{Mark, Mark} // so that no part of a mark in the text is taken for a secret
		s.spellings = spell(slices.Concat(s.groups...))
		for _, spelling := range s.spellings {
			pairs = append(pairs, spelling, Mark)
		}
		s.replacer = strings.NewReplacer(pairs...)
	}
	return s.spellings, s.replacer
}

// spell lists the spellings of secrets, the longest first.
func spell(all []string) (spellings []string) {
	for _, s := range all {
		if len(s) < minSecret {
			continue
		}
		spellings = append(spellings, s, url.QueryEscape(s), url.PathEscape(s),
			base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
		if quoted, err := json.Marshal(s); err == nil {
			safe := string(quoted[1 : len(quoted)-1]) // with < as \u003c
			plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(safe)
			spellings = append(spellings, safe, plain, strings.ReplaceAll(plain, "/", `\/`))
			spellings = append(spellings, strings.ReplaceAll(safe, "+", `\u002B`)) // as .NET writes it
		}
	}
	slices.SortFunc(spellings, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(spellings, func(s string) bool { return strings.Contains(Mark, s) || strings.Contains(s, Mark) })
}

// String returns s with every secret replaced by REDACTED.
func (r *Redactor) String(s string) string {
	for ; r != nil; r = r.parent {
		_, replacer := r.known().search()
		s = replacer.Replace(s)
	}
	return hideByForm(s)
}

// dropPart removes from the end of truncated text what may be the beginning of a secret: of a
// known secret, or of a link that may hold user info.
func (r *Redactor) dropPart(s string) string {
	tail := max(0, len(s)-maxSecret)
	word := s[tail+1+strings.LastIndexAny(s[tail:], endOfWord):]
	if strings.Contains(word, ":/") || strings.Contains(word, `:\`) {
		return strings.TrimSuffix(s, word)
	}
	for ; r != nil; r = r.parent {
		spellings, _ := r.known().search()
		for _, secret := range spellings {
			for n := min(len(secret)-1, len(s), maxSecret); n >= minSecret; n-- {
				if strings.HasSuffix(s, secret[:n]) {
					s = s[:len(s)-n]
					break
				}
			}
		}
	}
	return s
}

// Cut returns at most limit bytes from the start of b. It redacts b before it truncates it, so
// that no part of a secret remains at the end. If inputCut is true, b is only the beginning of
// a longer text, and Cut removes from its end what may be the beginning of a secret. cut
// reports whether the result was truncated.
func (r *Redactor) Cut(b []byte, limit int, inputCut bool) (out []byte, cut bool) {
	limit = max(limit, 0)
	if len(b)-ahead > limit {
		b, inputCut = b[:limit+ahead], true
	}
	s := string(b)
	if inputCut {
		s = r.dropPart(s)
	}
	s = r.String(s)
	if len(s) <= limit {
		return []byte(s), inputCut
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return []byte(s[:limit]), true
}
