package valid

import (
	"net"
	"net/url"
	"strings"
)

// A Base is a base URL, to which paths are appended. Its path has no trailing slash. Its host has one
// spelling, since the ledger compares base URLs.
type Base struct{ url.URL }

// ParseBase reads and checks a base URL. If text is not valid, problem is the reason, which does not
// show text; otherwise it is empty. Plain http is valid only for a loopback host, or if insecure is
// true.
func ParseBase(text string, insecure bool) (base Base, problem string) {
	u, problem := URL(text)
	switch {
	case problem != "":
		return base, problem
	case u.RawQuery != "", u.ForceQuery:
		return base, "must not have a query"
	case strings.Contains(text, "#"):
		return base, "must not have a fragment"
	case u.Scheme == "https", insecure, strings.EqualFold(u.Hostname(), "localhost"), net.ParseIP(u.Hostname()).IsLoopback():
	default:
		return base, "plain http would show the token to everyone on the network: use https, or allow it with WithInsecureHTTP"
	}
	prefix := strings.TrimRight(u.EscapedPath(), "/")
	if problem := Path(prefix + "/"); problem != "" {
		return base, "its path " + problem
	}
	base.Scheme, base.Host = u.Scheme, host(u)
	base.Path, _ = url.PathUnescape(prefix)
	if base.EscapedPath() != prefix {
		base.RawPath = prefix
	}
	return base, ""
}

// URL reads an absolute URL with http or https. If text is not valid, problem is the reason, which
// does not show text; otherwise it is empty.
func URL(text string) (u *url.URL, problem string) {
	text = strings.TrimSpace(text)
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, "is empty"
	case err != nil:
		return nil, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, "must be an absolute URL that starts with https:// or http://"
	case u.User != nil:
		return nil, "must not hold a user or password"
	}
	return u, ""
}

// Join returns the base URL with an escaped path and a query appended. A parameter in the path, such as
// {file_id}, stands for the ID. If the ID cannot be sent, problem is the reason, and field is the name
// of the parameter.
func (b *Base) Join(path, id string, query url.Values) (u *url.URL, field, problem string) {
	before, rest, _ := strings.Cut(path, "{")
	if name, after, found := strings.Cut(rest, "}"); found {
		field, problem = name, ID(id)
		path = before + url.PathEscape(id) + after
	}
	plain, _ := url.PathUnescape(path)
	u = &url.URL{Scheme: b.Scheme, Host: b.Host, Path: b.Path + plain}
	if b.RawPath != "" || path != plain {
		u.RawPath = b.EscapedPath() + path
	}
	u.RawQuery = query.Encode()
	return u, field, problem
}

// Leaves reports whether a redirect leads to another host.
func (b *Base) Leaves(location string) bool {
	to, err := url.Parse(location)
	return err == nil && to.Host != "" && !SameOrigin(to, &b.URL)
}

// SameOrigin reports whether two addresses have scheme, host and port in common.
func SameOrigin(a, b *url.URL) bool {
	return b != nil && (a.Scheme == b.Scheme && a.Host == b.Host || origin(a) == origin(b))
}

func origin(u *url.URL) string { return strings.ToLower(u.Scheme) + "://" + host(u) }

// host returns the host of an address in lower case. It removes the default port of the scheme.
func host(u *url.URL) string {
	host, port := strings.ToLower(u.Host), u.Port()
	if port == "" || port == map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)] {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return host
}
