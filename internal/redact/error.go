package redact

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

const maxErrorText = 4 << 10

// Error returns an error with the redacted message of err, of at most 4 KiB. It returns err
// itself if nothing in its tree needs to be redacted. errors.Is on the result matches the
// whole tree of err. errors.As finds the errors of the tree that show no secret, and a
// redacted copy of a [*url.Error].
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	_, safe := r.wrap(err)
	return safe
}

// wrap returns an error with the same tree as err, without the secrets. If there is nothing to
// redact, it returns err itself, and changed is false.
func (r *Redactor) wrap(err error) (changed bool, safe error) {
	if u, ok := err.(*url.Error); ok && u.Err != nil {
		changed, inner := r.wrap(u.Err)
		safe := &url.Error{Op: r.String(u.Op), URL: r.String(URL(u.URL)), Err: inner}
		if !changed && safe.Op == u.Op && safe.URL == u.URL {
			return false, err
		}
		return true, safe
	}
	var under, parts []error
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		under = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		under = e.Unwrap()
	}
	text := err.Error()
	for _, e := range under {
		if e == nil {
			continue
		}
		partChanged, part := r.wrap(e)
		if partChanged {
			text, changed = strings.ReplaceAll(text, e.Error(), part.Error()), true
		}
		parts = append(parts, part)
	}
	short, cut := r.Cut([]byte(text), maxErrorText-len("…"), false)
	if text = string(short); cut {
		text += "…"
	}
	if text == err.Error() && !changed {
		return false, err
	}
	return true, &safeError{
		text:  text,
		is:    func(target error) bool { return errors.Is(err, target) },
		parts: func() []error { return parts },
	}
}

// safeError holds the original error only in closures. A formatter that prints fields by
// reflection, such as %+v, cannot see it there.
type safeError struct {
	text  string
	is    func(target error) bool
	parts func() []error
}

func (e *safeError) Error() string        { return e.text }
func (e *safeError) Is(target error) bool { return e.is(target) }
func (e *safeError) Unwrap() []error      { return e.parts() }

// Header returns a copy of h with redacted values. The value of a header that always holds a
// secret, such as Cookie, is replaced as a whole.
func (r *Redactor) Header(h http.Header) http.Header {
	out := h.Clone()
	for name, values := range out {
		for i, value := range values {
			values[i] = r.headerValue(name, value)
		}
	}
	return out
}

func (r *Redactor) headerValue(name, value string) string {
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie",
		"X-Amz-Security-Token", "X-Api-Key", "X-Auth-Token":
		return Mark
	case "Location", "Content-Location", "Referer", "Refresh", "Link": // may hold a relative link
		if i := strings.IndexAny(value, "?#"); i >= 0 && i+1 < len(value) {
			value = value[:i+1] + Mark
		}
	}
	return r.String(value)
}
