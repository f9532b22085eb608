package valid

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An ID without a problem is one segment of a path once it is escaped.
func TestProblemsOfAnID(t *testing.T) {
	for id, problem := range map[string]string{
		"svc-1": "", "名": "", "a b": "", "a%2Fb": "", "": "is empty", " ": "is empty", " a": "white space", "..": `"."`, "a/b": "slash", `a\b`: "slash",
		"a\nb": "control", "a\xff": "UTF-8", "a\ufffd": "UTF-8", strings.Repeat("a", maxID+1): "longer",
	} {
		got := ID(id)
		require.Equal(t, problem == "", got == "", "%q: %s", id, got)
		require.Contains(t, got, problem)
	}
}

func TestBaseURLs(t *testing.T) {
	for text, want := range map[string]string{
		" https://h/a%2Fb/ ": "https://h/a%2Fb", "http://127.0.0.1:80/": "http://127.0.0.1", "http://LOCALHOST": "http://localhost",
		"http://h": "", "ftp://h": "", "h": "", "": "", "https://u@h": "", "https://h?": "", "https://h#": "", "https://h/a//b": "", "https://h/../b": "", "https://h/%zz": "",
	} {
		u, problem := ParseBase(text, false)
		require.Equal(t, want == "", problem != "", "%q: %s", text, problem)
		require.Equal(t, want, strings.TrimPrefix(u.String(), "//"), text)
	}
	_, problem := ParseBase("http://h", true)
	require.Empty(t, problem)
}
