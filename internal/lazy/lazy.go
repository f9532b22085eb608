// Package lazy compiles regular expressions when they are used, so that a program that imports the library begins fast.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles an expression the first time it is called.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
