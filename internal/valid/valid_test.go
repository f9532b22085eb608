package valid

import (
	"net/url"
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

// An ID is one segment of the path, whatever it holds, and a later query overrides an earlier one.
func TestJoin(t *testing.T) {
	base, problem := ParseBase("https://H:443/a%2Fb/", false)
	require.Empty(t, problem)
	for path, want := range map[string]string{
		"/v1/files":                         "https://h/a%2Fb/v1/files?k=2",
		"/v1/files/{file_id}":               "https://h/a%2Fb/v1/files/x%20%3F%25?k=2",
		"/v1/files/{file_id}/presigned_url": "https://h/a%2Fb/v1/files/x%20%3F%25/presigned_url?k=2",
		"/v1/a%2Fb":                         "https://h/a%2Fb/v1/a%2Fb?k=2",
	} {
		u, _, problem := base.Join(path, "x ?%", url.Values{"k": {"2"}})
		require.Empty(t, problem)
		require.Equal(t, want, u.String())
	}
	u, field, problem := base.Join("/v1/files/{file_id}", "..", nil)
	require.Equal(t, "file_id", field)
	require.NotEmpty(t, problem)
	require.NotNil(t, u)
	require.True(t, base.Leaves("https://other/"))
	require.False(t, base.Leaves("/login"))
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
