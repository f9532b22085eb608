package errbody

// RequestID finds the id that a service gave to a request in the header of its
// answer.
func RequestID(header map[string][]string, scrub func(string) string) string {
	for _, name := range [...]string{"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Trace-Id", "Trace-Id", "X-Amz-Request-Id", "X-Ms-Request-Id"} {
		if v := header[name]; len(v) > 0 {
			return Label(v[0], scrub)
		}
	}
	return ""
}

// Label makes a text of a header fit to be printed: one line of at most 128
// bytes, without its secrets.
func Label(text string, scrub func(string) string) string {
	return bound(scrub(Line(text)), maxCode)
}
