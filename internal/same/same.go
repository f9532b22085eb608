// Package same compares strings that a service may write in more than one way.
package same

import (
	"strings"

	"example.com/svc/internal/lazy"
)

// Text reports whether two strings differ at most in case and white space.
func Text[S ~string](a, b S) bool { return strings.EqualFold(words(a), words(b)) }

func words[S ~string](s S) string { return strings.Join(strings.Fields(string(s)), " ") }

// ID reports whether two IDs name the same record.
func ID(a, b string) bool { return Canonical(a) == Canonical(b) }

// Canonical returns the one spelling of an ID that is used to compare it: a UUID in lower case,
// and any other ID as it is.
func Canonical(id string) string {
	if uuid().MatchString(id) {
		return strings.ToLower(id)
	}
	return id
}

var uuid = lazy.Regexp(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
