package valid

import (
	"net"
	"net/url"
	"strings"
)

// BaseURL reads and checks a base URL, to which paths are appended. Its path has no trailing
// slash. problem says what is wrong with text, without showing it; empty if nothing is. Plain http is
// valid only for a loopback host, or if insecure is true.
func BaseURL(text string, insecure bool) (base url.URL, problem string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return base, "is empty"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return base, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return base, "must be an absolute URL that starts with https:// or http://"
	case u.User != nil:
		return base, "must not hold a user or password"
	case u.RawQuery != "", u.ForceQuery:
		return base, "must not have a query"
	case strings.Contains(text, "#"):
		return base, "must not have a fragment"
	case u.Scheme == "https", insecure, loopback(u.Hostname()):
	default:
		return base, "plain http would show the token to everyone on the network: use https, or allow it with WithInsecureHTTP"
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	for i, segment := range strings.Split(prefix, "/") {
		switch plain, _ := url.PathUnescape(segment); {
		case i == 0:
		case plain == "", plain == ".", plain == "..":
			return base, `its path must not have empty segments, "." or ".."`
		}
	}
	base = url.URL{Scheme: u.Scheme, Host: u.Host}
	base.Path, _ = url.PathUnescape(prefix)
	if base.EscapedPath() != prefix {
		base.RawPath = prefix
	}
	return base, ""
}

func loopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
