package redact

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.com/svc/internal/cause"
)

const maxErrorText = 4 << 10

// Error returns err itself if no text in its tree holds anything to redact, and
// otherwise an error with redacted text of at most 4 KiB. errors.Is on the result
// sees the whole tree of err. It unwraps to those parts of the tree whose texts
// show no secret: of a [*url.Error] to a redacted copy, others that would show one
// are passed over.
func (r *Redactor) Error(err error) error {
	if err == nil || len(err.Error()) <= maxErrorText && !r.leaks(err) {
		return err
	}
	parts := r.parts(err)
	e := &safeError{
		text:  r.errorText(err),
		is:    func(target error) bool { return errors.Is(err, target) },
		parts: func() []error { return parts },
	}
	if netErr, ok := errors.AsType[net.Error](err); ok {
		return &safeNetError{e, netErr.Timeout()}
	}
	return e
}

// safeError keeps the original error inside functions, where no formatting by
// reflection finds it.
type safeError struct {
	text  string
	is    func(target error) bool
	parts func() []error
}

func (e *safeError) Error() string                { return e.text }
func (e *safeError) Is(target error) bool         { return e.is(target) }
func (e *safeError) Unwrap() []error              { return e.parts() }
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
	for e := range cause.Tree(err) {
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
	for e := range cause.Tree(err) {
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

// parts are the parts of err's tree that may be handed out, as large as possible.
func (r *Redactor) parts(err error) []error {
	if !r.leaks(err) {
		return []error{err}
	}
	switch e := err.(type) {
	case *url.Error:
		return []error{&url.Error{Op: r.String(e.Op), URL: r.safeURL(e.URL), Err: r.Error(e.Err)}}
	case interface{ Unwrap() error }:
		if err := e.Unwrap(); err != nil {
			return r.parts(err)
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, err := range e.Unwrap() {
			if err != nil {
				all = append(all, r.parts(err)...)
			}
		}
		return all
	}
	return nil
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
