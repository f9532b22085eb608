package apierr

import "strings"

// Facts are details of an error. They stand in brackets at the end of its text.
type Facts []string

// Add adds a fact if it is known.
func (f *Facts) Add(known bool, fact string) {
	if known {
		*f = append(*f, fact)
	}
}

// String returns the facts in brackets, after a space; empty if there are none.
func (f Facts) String() string {
	if len(f) == 0 {
		return ""
	}
	return " (" + strings.Join(f, ", ") + ")"
}
