package transfer

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/lazy"
	"example.com/svc/internal/redact"
	"example.com/svc/internal/valid"
)

// Route replaces a presigned URL, or the URL of media, in errors, logs and metrics.
const Route = "{presigned_url}"

// Link is a parsed presigned URL.
type Link struct {
	URL    *url.URL
	Redact *redact.Redactor // removes the secrets of the URL from strings
}

// Characters that a request line cannot hold, so they are escaped. Control characters are
// not listed: url.Parse refuses a link that has one.
var strayInPath = lazy.Regexp("[^\\x00-\\x7f]|[ \"<>\\\\^`{|}]")
var strayInQuery = lazy.Regexp(`[^\x00-\x7f]| `)

// ParseLink parses a link. A request sends the link byte for byte as it is in text; only
// characters that a request line cannot hold are escaped. If the link cannot be used, problem
// is the reason, which does not show the link. The Redactor of the link also removes the
// secrets of base.
func ParseLink(text string, base *redact.Redactor) (link *Link, problem string) {
	text = strings.TrimSpace(text)
	if redact.Lost(text) {
		return nil, "lost its signature when it was printed or encoded: ask the service for a new link, and store string(link)"
	}
	address, _, _ := strings.Cut(text, "#")
	path, query, hasQuery := strings.Cut(address, "?")
	path = strayInPath().ReplaceAllStringFunc(path, url.PathEscape)
	if hasQuery {
		path += "?" + strayInQuery().ReplaceAllStringFunc(query, url.PathEscape)
	}
	u, problem := valid.URL(path)
	if problem != "" {
		return nil, problem
	}
	return &Link{u, base.With(secrets(u)...)}, ""
}

// hop adds the secrets of a redirect's URL to the Redactor, since responses may quote them.
func (l *Link) hop(to *url.URL) {
	const most, longest = 20, 16 << 10 // a secret beyond these limits is removed only where it is part of a link
	all := slices.DeleteFunc(secrets(to), func(secret string) bool { return len(secret) > longest })
	l.Redact.Add(all[:min(len(all), most)]...)
}

// secrets returns the parts of a link that must not be shown: its query, and each value in it
// that may be a credential. The address of a redirect may also have user info and a fragment.
func secrets(u *url.URL) (all []string) {
	add := func(raw string) { // the secret as it is written in the link, and unescaped
		all = append(all, raw)
		if plain, err := url.QueryUnescape(raw); err == nil {
			all = append(all, plain)
		}
	}
	for _, list := range []string{u.RawQuery, u.EscapedFragment()} {
		add(list)
		for pair := range strings.SplitSeq(list, "&") {
			key, value, _ := strings.Cut(strings.ToLower(pair), "=")
			if !harmless().MatchString(key) && (telling().MatchString(key) || len(value) >= longValue) {
				add(pair[len(pair)-len(value):])
			}
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		all = append(all, u.User.String(), u.User.Username(), password)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// Names of parameters that hold a credential, and of parameters that hold none. A long value
// of any other parameter may be a credential.
var telling = lazy.Regexp(`sig|token|key|cred|auth|secret|pass|policy|hmac|hash`)
var harmless = lazy.Regexp(`(?:algorithm|date|expires|signedheaders|versionid|response-content-type)$`)

const longValue = 8 // bytes; a value of this length or more is long

// defaultIdle is the idle limit of a transfer that sets none.
const defaultIdle = 2 * time.Minute

// call returns a call to the link. If idle is 0, its idle limit is defaultIdle. If idle is negative,
// it has none.
func (l *Link) call(method string, header http.Header, idle time.Duration) *httpcall.Call {
	return &httpcall.Call{
		Method: method, Route: Route, URL: l.URL, Header: header,
		Transfer: true, Idle: cmp.Or(idle, defaultIdle), Redact: l.Redact, Hop: l.hop,
	}
}

// Header copies the caller's header for requests to storage, and reports to add what is wrong with it.
// It refuses the named headers too. The result is never nil.
func Header(header http.Header, add func(bad bool, field, problem string), refused ...string) http.Header {
	refused = append(refused, "Authorization", "Proxy-Authorization", "Cookie", "Host", "Content-Length",
		"Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade")
	out := make(http.Header, len(header)+1)
	for key, values := range header {
		if !valid.HeaderName(key) {
			add(true, "Header", "has a name that is not valid")
			continue
		}
		name := http.CanonicalHeaderKey(key)
		for _, r := range refused {
			add(name == r, "Header "+name, "cannot be set")
		}
		for _, v := range values {
			add(!valid.HeaderValue(v), "Header "+name, "has a value that cannot be sent")
		}
		add(out[name] != nil, "Header "+name, "is set twice, in two spellings")
		out[name] = append([]string(nil), values...)
	}
	return out
}

// Expired reports whether a response means that the link has expired. After a 401 or 403 it
// also checks the times in the link, since storage does not always send a reason.
func (l *Link) Expired(r *httpcall.Result) bool {
	switch r.StatusCode {
	case http.StatusGone:
		return true
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
	default:
		return false
	}
	info := apierr.Parse(r.Header.Get("Content-Type"), r.Body, l.Redact.String)
	switch {
	case expired().MatchString(info.Code), expired().MatchString(info.Message), strings.Contains(string(r.Body), azureExpired):
		return true
	}
	end, ok := l.end()
	date, _ := http.ParseTime(r.Header.Get("Date")) // storage compares with its own clock; zero if it did not send a Date
	return ok && r.StatusCode != http.StatusBadRequest && !cmp.Or(date, time.Now()).Before(end)
}

// A message with "expired" is about the link, unless it names something else, such as a
// subscription.
var expired = lazy.Regexp(`(?i)` + ours + `[ _-]*((has|have|is|was|are|been|already|now) )*(expired|out of date)` +
	`|expired[ _-]*(auth[ _-]*)?` + ours + `|^\W*((it|this|that) )?((has|is|was|been|already) )*expired\b`)

// azureExpired is in the response of Azure to a link that has expired.
const azureExpired = "not valid in the specified time frame"

const ours = `(request|token|link|ur[li]|signature|credentials?|policy|session|sas)`

// end returns the time at which the link expires according to its parameters.
func (l *Link) end() (end time.Time, ok bool) {
	query := map[string]string{}
	for key, values := range l.URL.Query() {
		query[strings.ToLower(key)] = values[0]
	}
	for key, from := range query { // X-Amz-Date with X-Amz-Expires, and the same pair of other vendors
		vendor, isDate := strings.CutSuffix(key, "-date")
		start, err := time.Parse("20060102T150405Z", from)
		seconds := number(query[vendor+"-expires"])
		if isDate && err == nil && seconds >= 0 {
			return start.Add(time.Duration(seconds) * time.Second), true
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} { // Azure
		if end, err := time.Parse(layout, query["se"]); err == nil {
			return end, true
		}
	}
	const first = 1e8 // a smaller number is not a date but a duration
	seconds := number(query["expires"])
	return time.Unix(seconds, 0), seconds >= first
}
