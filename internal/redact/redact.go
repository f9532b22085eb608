// Package redact keeps secrets out of text: bearer tokens, and the queries that
// turn a presigned link into a key.
package redact

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Mark stands where a secret stood.
const Mark = "REDACTED"

// BadURL stands for a link that is not an absolute URL, so that nobody can say
// which part of it is secret.
const BadURL = "[unparsable link REDACTED]"

const (
	minSecret = 4  // a shorter secret would tear ordinary words apart
	maxRecent = 8  // how many added secrets are remembered
	maxGroups = 24 // likewise of groups: all hops of two attempts
)

// URL returns link without user info, query and fragment. A query leaves
// "?REDACTED" behind; what is no absolute URL becomes [BadURL], and so does what
// net/url reads in one way and writes in another. URL of what it returned
// changes nothing.
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

// Redactor removes a set of secrets, and whatever looks like part of a signed
// link or a bearer token, from text. A nil Redactor knows no secrets and
// removes the rest. It is safe for concurrent use.
//
// A secret shorter than 4 bytes, or one that has to do with the word REDACTED
// itself, is not searched for.
type Redactor struct {
	// The secrets live in what these functions have captured, where no
	// formatting by reflection can reach them.
	load   func() *secrets
	change func(to func(*secrets) *secrets)
}

// secrets is one version of what a Redactor knows; it never changes.
type secrets struct {
	fixed, recent []string
	groups        [][]string
	needles       func() [][]byte // every text form of them, longest first
}

func newSecrets(fixed, recent []string, groups [][]string) *secrets {
	s := &secrets{fixed: fixed, recent: recent, groups: groups}
	s.needles = sync.OnceValue(func() [][]byte {
		all := append(fixed[:len(fixed):len(fixed)], recent...)
		for _, group := range groups {
			all = append(all, group...)
		}
		return forms(all)
	})
	return s
}

func (s *secrets) knows(secret string) bool {
	return slices.Contains(s.recent, secret) || slices.Contains(s.fixed, secret)
}

// New returns a Redactor that never forgets these secrets.
func New(fixed ...string) *Redactor {
	var (
		mu      sync.Mutex
		current atomic.Pointer[secrets]
	)
	current.Store(newSecrets(append([]string(nil), fixed...), nil, nil))
	return &Redactor{
		load: current.Load,
		change: func(to func(*secrets) *secrets) {
			mu.Lock()
			defer mu.Unlock()
			current.Store(to(current.Load()))
		},
	}
}

// Add makes r look for one more secret, such as a token that replaced another.
// The last 8 added are remembered. Adding a known one costs next to nothing.
func (r *Redactor) Add(secret string) {
	if r == nil || r.load == nil || len(secret) < minSecret || r.load().knows(secret) {
		return
	}
	r.change(func(s *secrets) *secrets {
		if s.knows(secret) {
			return s
		}
		recent := append(s.recent[:len(s.recent):len(s.recent)], secret)
		return newSecrets(s.fixed, recent[max(0, len(recent)-maxRecent):], s.groups)
	})
}

// AddGroup makes r look for more secrets, such as those of another link. The last
// 24 groups added are remembered. The caller does not change group any more.
func (r *Redactor) AddGroup(group []string) {
	if r == nil || r.change == nil || len(group) == 0 {
		return
	}
	r.change(func(s *secrets) *secrets {
		same := func(g []string) bool { return slices.Equal(g, group) }
		groups := append(slices.DeleteFunc(slices.Clone(s.groups), same), group)
		return newSecrets(s.fixed, s.recent, groups[max(0, len(groups)-maxGroups):])
	})
}

func (r *Redactor) needles() [][]byte {
	if r == nil || r.load == nil {
		return nil
	}
	return r.load().needles()
}

// String returns s with every secret replaced by REDACTED.
func (r *Redactor) String(s string) string {
	if out, changed := r.redact([]byte(s), false); changed {
		return string(out)
	}
	return s
}

// Bytes returns b with every secret replaced by REDACTED. It does not change b,
// and returns b itself if there is nothing to replace.
func (r *Redactor) Bytes(b []byte) []byte {
	out, _ := r.redact(b, false)
	return out
}

// Cut returns at most limit bytes from the start of b, redacted before they are
// cut, so that no piece of a secret of 4 bytes or more is left at the end.
// inputCut says that b is itself the start of something longer. The result ends
// between two characters and may share memory with b; cut reports whether
// anything is missing from it.
func (r *Redactor) Cut(b []byte, limit int, inputCut bool) (out []byte, cut bool) {
	const window = 64 << 10 // what redaction may shorten, beyond the limit
	if limit = max(limit, 0); len(b)-window > limit {
		b, inputCut = b[:limit+window], true
	}
	out, _ = r.redact(b, inputCut)
	cut = inputCut
	if len(out) > limit {
		out, cut = trimRune(out[:wholeMark(out, limit)]), true
	} else if inputCut {
		out = trimRune(out)
	}
	return out[:len(out):len(out)], cut
}

// wholeMark moves a cut at limit to the start of the mark that it would split.
func wholeMark(b []byte, limit int) int {
	start := max(0, limit-len(Mark)+1)
	end := min(len(b), limit+len(Mark)-1)
	if i := bytes.Index(b[start:end], []byte(Mark)); i >= 0 && start+i < limit {
		return start + i
	}
	return limit
}

// trimRune removes the beginning of a character from the end of b.
func trimRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}
