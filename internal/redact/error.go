package redact

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const maxErrorText = 4 << 10

// Error returns err itself if no text in its tree holds anything to redact, and
// otherwise an error with redacted text of at most 4 KiB. errors.Is and
// errors.As on the result see the whole tree of err, except that errors.As gives
// no error whose text would show a secret: of a [*url.Error] it gives a redacted
// copy, others it passes over. Nothing unwraps to err.
func (r *Redactor) Error(err error) error {
	if err == nil || len(err.Error()) <= maxErrorText && !r.leaks(err) {
		return err
	}
	e := &safeError{
		text: r.errorText(err),
		is:   func(target error) bool { return errors.Is(err, target) },
		as:   func(target any) bool { return r.as(err, target) },
	}
	var netErr net.Error
	if errors.As(err, &netErr) {
		return &safeNetError{e, netErr.Timeout()}
	}
	return e
}

// safeError keeps the original error inside functions, where no formatting by
// reflection finds it.
type safeError struct {
	text string
	is   func(target error) bool
	as   func(target any) bool
}

func (e *safeError) Error() string                { return e.text }
func (e *safeError) Is(target error) bool         { return e.is(target) }
func (e *safeError) As(target any) bool           { return e.as(target) }
func (e *safeError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

// Format prints the text under every verb.
func (e *safeError) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.text)
}

// safeNetError is also a [net.Error], as something in the original tree was.
type safeNetError struct {
	*safeError
	timeout bool
}

func (e *safeNetError) Timeout() bool { return e.timeout }

// Temporary has no meaning of its own any more; it belongs to the interface.
func (e *safeNetError) Temporary() bool { return e.timeout }

// leaks reports whether any text in err's tree has something to redact.
func (r *Redactor) leaks(err error) bool {
	for e := range tree(err) {
		if u, ok := e.(*url.Error); ok && r.safeURL(u.URL) != u.URL {
			return true
		}
		if text := e.Error(); r.String(text) != text {
			return true
		}
	}
	return false
}

// errorText redacts links by what they are, where the tree still knows it, and
// then by what they look like.
func (r *Redactor) errorText(err error) string {
	text := err.Error()
	for e := range tree(err) {
		if u, ok := e.(*url.Error); ok {
			if safe := r.safeURL(u.URL); safe != u.URL {
				text = strings.ReplaceAll(text, strconv.Quote(u.URL), strconv.Quote(safe))
				text = strings.ReplaceAll(text, u.URL, safe)
			}
		}
	}
	out, cut := r.Cut([]byte(text), maxErrorText-len("…"), false)
	if cut {
		return string(out) + "…"
	}
	return string(out)
}

func (r *Redactor) safeURL(link string) string { return r.String(URL(link)) }

// as is errors.As without what must not be handed out.
func (r *Redactor) as(err error, target any) bool {
	for {
		if !r.leaks(err) {
			return errors.As(err, target)
		}
		if u, ok := err.(*url.Error); ok {
			safe := &url.Error{Op: r.String(u.Op), URL: r.safeURL(u.URL), Err: r.Error(u.Err)}
			if p, ok := target.(**url.Error); ok {
				*p = safe
				return true
			}
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if err = e.Unwrap(); err == nil {
				return false
			}
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if err != nil && r.as(err, target) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
}

// tree yields err and everything it wraps, as errors.Is visits it.
func tree(err error) func(yield func(error) bool) {
	return func(yield func(error) bool) { walk(err, yield) }
}

func walk(err error, yield func(error) bool) bool {
	for err != nil {
		if !yield(err) {
			return false
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				if !walk(err, yield) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// Header returns h with redacted values; those of headers that exist to carry a
// secret are replaced as a whole. It does not change h, and returns h itself if
// there is nothing to replace.
func (r *Redactor) Header(h http.Header) http.Header {
	var out http.Header
	for name, values := range h {
		for i, value := range values {
			clean := r.headerValue(name, value)
			if clean == value {
				continue
			}
			if out == nil {
				out = h.Clone()
			}
			out[name][i] = clean
		}
	}
	if out == nil {
		return h
	}
	return out
}

func (r *Redactor) headerValue(name, value string) string {
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie",
		"X-Amz-Security-Token", "X-Api-Key", "X-Auth-Token":
		return Mark
	case "Location", "Content-Location", "Referer", "Refresh", "Link":
		return r.String(withoutQuery(value))
	}
	return r.String(value)
}

// withoutQuery treats the whole value as a link, which may be a relative one.
func withoutQuery(s string) string {
	if i := strings.IndexAny(s, "?#"); i >= 0 && i+1 < len(s) {
		return s[:i+1] + Mark
	}
	return s
}
