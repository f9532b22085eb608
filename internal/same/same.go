// Package same compares texts that a service may write in more than one way.
package same

import "strings"

// Text reports whether two texts differ at most in case and white space.
func Text[S ~string](a, b S) bool { return strings.EqualFold(words(a), words(b)) }

func words[S ~string](s S) string { return strings.Join(strings.Fields(string(s)), " ") }
