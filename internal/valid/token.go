package valid

import (
	"regexp"
	"strings"
)

// placeholder matches texts that are not real tokens: a text in quotes, the name of a
// variable, <your-token>, changeme, xxxx, tok-***, sk-1...f.
var placeholder = regexp.MustCompile("(?i)^[\"'`]|[\"'`]$|^<.*>$|^\\$\\w+$|^\\$?[{(\\[].*[})\\]]$|^%.*%$" +
	`|\*\*\*|\.\.\.|^x{4,}$|^(svc[-_])?api[-_]?(token|key)$|^(change|replace)[-_]?me$|^placeholder$|^your[a-z_-]*(token|key|secret)[a-z_-]*$`)

// Token returns the token in a text, without white space and "Bearer " before it. problem says why it
// cannot be a token, without showing it.
func Token(text string) (token, problem string) {
	t := strings.TrimSpace(text)
	if len(t) >= 7 && strings.EqualFold(t[:7], "Bearer ") {
		t = strings.TrimSpace(t[7:])
	}
	switch {
	case strings.EqualFold(t, "Bearer"):
		return "", ""
	case placeholder.MatchString(t):
		problem = "is in quotes, or it is an example or a masked copy of a token"
	case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		problem = "holds a space, a control character or a character that is not ASCII"
	}
	return t, problem
}
