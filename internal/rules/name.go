package rules

import (
	"strings"
	"unicode"
)

// Renamed reports whether given is a form that a service may have made of the name that was
// asked for: with another case, other punctuation, a part cut off, or something added to it.
// Any other name belongs to another record.
func Renamed(asked, given string) bool {
	a, g := letters(asked), letters(given)
	if a == "" || g == "" {
		return a == g
	}
	return strings.Contains(g, a) || strings.HasPrefix(a, g) && len(g) >= len(a)/2
}

// letters returns the letters and digits of a name, in lower case.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}
