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

// Mark stands where a secret stood.
const Mark = "REDACTED"

// BadURL stands for a link that is not an absolute URL, so that nobody can say
// which part of it is secret.
const BadURL = "[unparsable link REDACTED]"

const (
	minSecret = 4        // a shorter secret would tear ordinary words apart
	maxAdded  = 24       // how many additions are remembered: all hops of two attempts
	maxSecret = 16 << 10 // no secret that is cut off is longer
	ahead     = 64 << 10 // what is scrubbed beyond a cut
)

// URL returns link without user info, query and fragment. In place of a query stands
// "?REDACTED". A link that is no absolute URL becomes [BadURL], and so does one that
// net/url reads in one way and writes in another. URL does not change what it returned.
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
	origin := url.URL{Scheme: u.Scheme, Host: u.Host}
	s := origin.String() + path
	if query {
		s += "?" + Mark
	}
	return s
}

// Redactor removes a set of secrets, and whatever looks like part of a presigned
// URL or a bearer token, from text. A nil Redactor knows no secrets and removes
// the rest. It is safe for concurrent use.
//
// A secret shorter than 4 bytes, or one that has to do with the word REDACTED
// itself, is not searched for.
type Redactor struct {
	parent *Redactor       // whose secrets it removes too
	known  func() *secrets // a function, so that no formatting by reflection finds them
}

type secrets struct {
	mu        sync.Mutex
	groups    [][]string // the fixed ones first
	spellings []string
	replacer  *strings.Replacer // nil: it is to be made, and spellings too
}

// New returns a Redactor that never forgets these secrets.
func New(fixed ...string) *Redactor { return (*Redactor)(nil).With(fixed...) }

// With returns a Redactor that removes these secrets too. Secrets that are added to it are
// not added to r.
func (r *Redactor) With(fixed ...string) *Redactor {
	s := &secrets{groups: [][]string{slices.Clone(fixed)}}
	return &Redactor{r, func() *secrets { return s }}
}

// Add makes r look for more secrets: a token that replaced another, or those of
// another link. The last 24 additions are remembered. To add the latest again costs
// next to nothing.
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

// search is what there is to search for, and what replaces it.
func (s *secrets) search() ([]string, *strings.Replacer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replacer == nil {
		pairs := []string{Mark, Mark} // no part of a mark in the text is taken for a secret
		s.spellings = spell(slices.Concat(s.groups...))
		for _, spelling := range s.spellings {
			pairs = append(pairs, spelling, Mark)
		}
		s.replacer = strings.NewReplacer(pairs...)
	}
	return s.spellings, s.replacer
}

// spell lists the spellings of secrets, a long one before a short one.
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

// dropPart drops what may be the beginning of a secret from the end of a text that
// was cut: of a known one, or of the user info in a link.
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

// Cut returns at most limit bytes from the start of b, redacted before they are
// cut, so that no piece of a secret is left at the end. inputCut says that b is
// itself the start of something longer: what may be the beginning of a secret at its
// end is dropped. cut reports whether anything is missing from the result.
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
