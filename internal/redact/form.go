package redact

import (
	"strings"

	"example.com/svc/internal/lazy"
)

// endOfWord lists characters that end a token or a link.
const endOfWord = " \t\r\n\"'<>`"

// inWord matches a character of a link or of a value. A backslash is part of the word in \/
// and \u0026, but not where it escapes a quote, a line break or a tab.
const inWord = "(?:[^\\x00-\\x20\\x7f\"'`<>\\\\]|\\\\[^\"'`nrt])"

// inValue is inWord without the characters that end the value of a parameter.
const inValue = "(?:[^\\x00-\\x20\\x7f\"'`<>\\\\&,;)\\]]|\\\\[^\"'`nrt&,;)\\]])"

var (
	// Links, from the colon on. JSON may have escaped the slashes, more than once.
	links = lazy.Regexp(`:\\*/\\*/` + inWord + `*`)

	// The word Bearer and the token after it.
	bearer = lazy.Regexp(`(?i)(?:^|[^a-z0-9])bearer(?:[ \t+]|%20)+` + inValue + `+`)

	// The parameters that carry a signature or a credential: key=value, key%3Dvalue,
	// key\u003dvalue, "key":"value", "key":["value"] and <key>value. A key may begin after an
	// escaped & or ?, as in %26sig. The form "key: value" is matched only for keys that begin
	// with x-amz- or x-goog-: the prose "signature: expired" stays as it is.
	parameters = lazy.Regexp(`(?i)((?:(?:^|[^a-z0-9]|26|3f)` +
		`(?:signature|credential|security-token|sig|(?:aws|oss)accesskeyid|googleaccessid|signatureprovided|api_token|access_token)` +
		`(?:=|>|%(?:25)*3d|\\+u003d|\\*["'] *: *)|x-(?:amz|goog)-(?:signature|credential|security-token): *)\[?\\*["']?)` + inValue + `+`)
)

// hideByForm replaces whatever has the form of a secret.
func hideByForm(s string) string {
	s = links().ReplaceAllStringFunc(s, hideInLink)
	s = parameters().ReplaceAllString(s, "${1}"+Mark)
	return bearer().ReplaceAllStringFunc(s, hideBearer)
}

// hideInLink replaces the user info and the query of a link. It replaces a fragment only if the
// fragment contains "=", as a query does.
func hideInLink(link string) string {
	rest := strings.TrimLeft(link, `:\/`)
	scheme := link[:len(link)-len(rest)]
	host := rest
	if i := strings.IndexAny(rest, `/?#\`); i >= 0 {
		host = rest[:i]
	}
	if at := strings.LastIndexByte(host, '@'); at > 0 {
		rest = Mark + rest[at:]
	}
	i := strings.IndexAny(rest, "?#")
	if i >= 0 && i+1 < len(rest) && (rest[i] == '?' || strings.Contains(rest[i:], "=")) {
		rest = rest[:i+1] + Mark
	}
	return scheme + rest
}

// hideBearer replaces the word after Bearer. It keeps a word that belongs to a sentence about
// tokens, such as "missing bearer token", or to a WWW-Authenticate challenge.
func hideBearer(s string) string {
	end := strings.LastIndexAny(s, " \t+")
	if i := strings.LastIndex(s, "%20"); i > end {
		end = i + len("%20") - 1
	}
	switch strings.ToLower(strings.Trim(s[end+1:], ".:!?([]")) {
	case "", "token", "tokens", "auth", "authentication", "authorization", "scheme", "credentials",
		"credential", "header", "required", "is", "was", "and", "or", "not", "realm=", "error=", "scope=":
		return s
	}
	return s[:end+1] + Mark
}
