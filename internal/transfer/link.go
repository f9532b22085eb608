package transfer

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/chain"
	"example.com/svc/internal/errbody"
	"example.com/svc/internal/redact"
)

// Link is a presigned link: an address that is a secret.
type Link struct {
	URL    *url.URL
	Redact *redact.Redactor // knows what is secret about it
}

// ParseLink takes a link apart so that it goes out byte for byte as it came,
// save for what no request line can hold, which is escaped. If it cannot be
// used, problem says why without showing it.
func ParseLink(text string) (link *Link, problem string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, "is empty"
	}
	address, _, _ := strings.Cut(text, "#")
	path, query, hasQuery := strings.Cut(address, "?")
	path = escape(path, "\"<>\\^`{|} ")
	if hasQuery {
		path += "?" + escape(query, " ")
	}
	u, err := url.Parse(path)
	switch {
	case err != nil:
		return nil, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, "must be an absolute URL that starts with https:// or http://"
	case u.User != nil:
		return nil, "must not hold a user or password"
	}
	return &Link{u, redact.New(secrets(u)...)}, ""
}

// escape writes the bytes of set, and those that are not ASCII, as %XX.
func escape(s, set string) string {
	stray := func(c byte) bool { return c >= 0x80 || strings.IndexByte(set, c) >= 0 }
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; stray(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// hop notes the secrets of an address that a redirect leads to: whoever sent it
// there, and who is there, like to quote it too.
func (l *Link) hop(to *url.URL) {
	const (
		most = 100       // of other people's parameters; the rest is known as a whole
		room = 128 << 10 // bytes for them; what is longer is known by standing in a link
	)
	left := room
	all := slices.DeleteFunc(secrets(to), func(secret string) bool {
		fits := len(secret) <= left
		if fits {
			left -= len(secret)
		}
		return !fits
	})
	l.Redact.Add(all[:min(len(all), most)]...)
}

// secrets are the parts of a link that must not turn up in any text: its query,
// and each value in it that may be a credential; likewise what the addresses of
// redirects may have beside it, user info and a fragment.
func secrets(u *url.URL) (all []string) {
	for _, list := range []string{u.RawQuery, u.EscapedFragment()} {
		if list == "" {
			continue
		}
		all = append(all, spellings(list)...)
		for pair := range strings.SplitSeq(list, "&") {
			if key, raw, _ := strings.Cut(pair, "="); secretParameter(strings.ToLower(key), raw) {
				all = append(all, spellings(raw)...)
			}
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		all = append(all, u.User.String(), password)
		if name := u.User.Username(); secretParameter("", name) || password == "" {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// spellings are a text as it stands in a link, and as it is meant.
func spellings(raw string) []string {
	if plain, err := url.QueryUnescape(raw); err == nil && plain != raw {
		return []string{raw, plain}
	}
	return []string{raw}
}

// secretParameter tells a key from what is merely said about it.
func secretParameter(key, value string) bool {
	for _, known := range []string{"algorithm", "date", "expires", "signedheaders", "versionid", "response-content-type"} {
		if strings.HasSuffix(key, known) {
			return false
		}
	}
	for _, word := range []string{"sig", "token", "key", "cred", "auth", "secret", "pass", "policy", "hmac", "hash"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return len(value) >= 8
}

// clean takes the link's secrets out of what storage sent: it likes to quote the
// request.
func (l *Link) clean(r *chain.Result) *chain.Result {
	r.Header = l.Redact.Header(r.Header)
	r.Body, _ = l.Redact.Cut(r.Body, len(r.Body), r.Cut)
	return r
}

// Expired reports whether a response says that the link has run out. On a 401 or
// 403 the link's own times say so too: storage is not always as clear.
func (l *Link) Expired(r *chain.Result) bool {
	switch r.StatusCode {
	case http.StatusGone:
		return true
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
	default:
		return false
	}
	info := errbody.Parse(r.Header.Get("Content-Type"), r.Body)
	if expired.MatchString(info.Code) || expired.MatchString(info.Message) || timeframe.Match(r.Body) {
		return true
	}
	end, ok := l.end()
	now, err := http.ParseTime(r.Header.Get("Date")) // storage judges by its own clock
	if err != nil {
		now = time.Now()
	}
	return ok && r.StatusCode != http.StatusBadRequest && !now.Before(end)
}

// A text that says "expired" counts if that is said of a link, or of nothing in
// particular: it may be about a subscription.
var (
	expired = regexp.MustCompile(`(?i)` + ours + `[ _-]*((has|have|is|was|are|been|already|now) )*(expired|out of date)` +
		`|expired[ _-]*(auth[ _-]*)?` + ours + `|^\W*((it|this|that) )?((has|is|was|been|already) )*expired\b`)
	timeframe = regexp.MustCompile(`not valid in the specified time frame`) // Azure
)

const ours = `(request|token|link|ur[li]|signature|credentials?|policy|session|sas)`

// end is when the link says that it ends, in any of the ways in which links do.
func (l *Link) end() (end time.Time, ok bool) {
	query := map[string]string{}
	for key, values := range l.URL.Query() {
		query[strings.ToLower(key)] = values[0]
	}
	for key, from := range query { // X-Amz-Date with X-Amz-Expires, and so with other vendors
		vendor, isDate := strings.CutSuffix(key, "-date")
		start, err := time.Parse("20060102T150405Z", from)
		seconds, isNumber := number(query[vendor+"-expires"])
		if isDate && err == nil && isNumber {
			return start.Add(time.Duration(seconds) * time.Second), true
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} { // Azure
		if end, err := time.Parse(layout, query["se"]); err == nil {
			return end, true
		}
	}
	const first = 1e8 // a smaller number is no date but a duration
	seconds, isNumber := number(query["expires"])
	return time.Unix(seconds, 0), isNumber && seconds >= first
}
