package transfer

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinkKnowsItsSecrets(t *testing.T) {
	const query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20240501T102030Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host" +
		"&X-Amz-Credential=AKIA%2F20240501%2Fs3&X-Amz-Signature=abcd&sp=rw&se=2024-05-01T00%3A00%3A00Z&sig=a%2Bb%3D%3D" +
		"&OSSAccessKeyId=LTAI5t&Policy=eyJ9&note=some-long-value&lang=de"
	link, problem := ParseLink("https://h/p?"+query, nil)
	require.Empty(t, problem)
	for text, want := range map[string]string{
		"signature abcd":               "signature REDACTED",
		"key AKIA/20240501/s3 unkown":  "key REDACTED unkown",
		"AKIA%2F20240501%2Fs3":         "REDACTED",
		"it was a+b==, or a%2Bb%3D%3D": "it was REDACTED, or REDACTED",
		"LTAI5t":                       "REDACTED",
		"eyJ9":                         "REDACTED",
		"some-long-value":              "REDACTED",
		"lookup host: de":              "lookup host: de",
		"AWS4-HMAC-SHA256 of 20240501T102030Z for 900": "AWS4-HMAC-SHA256 of 20240501T102030Z for 900",
		"the query " + query:                           "the query REDACTED",
	} {
		require.Equal(t, want, link.Redact.String(text))
	}
	link, problem = ParseLink("https://h/p", nil)
	require.Empty(t, problem)
	require.Equal(t, "https and h", link.Redact.String("https and h"))
}

// A parameter of a URL is secret if its name contains a certain word. If the name says
// nothing, the length of the value decides.
func TestLinkTellsSecretParameters(t *testing.T) {
	for parameter, secret := range map[string]bool{
		"sig=ab1c2": true, "X-Token=ab1c2": true, "AccessKeyId=ab1c2": true, "x-cred=ab1c2": true, "auth=ab1c2": true,
		"client_SECRET=ab1c2": true, "pass=ab1c2": true, "Policy=ab1c2": true, "hmac=ab1c2": true, "hash=ab1c2": true,
		"lang=ab1c2": false, "x=ab1c2d3": false, "x=ab1c2d3e": true, "x-date=ab1c2d3e": false,
	} {
		link, problem := ParseLink("https://h/p?a=b&"+parameter, nil)
		require.Empty(t, problem)
		_, value, _ := strings.Cut(parameter, "=")
		require.Equal(t, secret, link.Redact.String("it was "+value) == "it was REDACTED", parameter)
	}
}

// The target of a redirect may hold secrets in its user name, password and fragment. A
// presigned URL has them only in its query.
func TestLinkKnowsWhereItLeads(t *testing.T) {
	link, problem := ParseLink("https://h/p?sig=first", nil)
	require.Empty(t, problem)
	for address, texts := range map[string]map[string]string{
		"https://me:pass%2Fword@other/q?token=second":       {"first second pass/word pass%2Fword me:pass%2Fword me": "REDACTED REDACTED REDACTED REDACTED REDACTED me"},
		"https://ghp-0123456789:pw12@other/":                {"ghp-0123456789 pw12": "REDACTED REDACTED"},
		"https://key@other/#state=open&access_token=xy%3Dz": {"xy=z xy%3Dz state=open&access_token=xy=z open": "REDACTED REDACTED REDACTED open"},
		"/plain": {"plain": "plain"},
	} {
		to, err := url.Parse(address)
		require.NoError(t, err)
		link.hop(to)
		for text, want := range texts {
			require.Equal(t, want, link.Redact.String(text), address)
		}
	}
}

// Every secret of a redirect is kept in a dozen spellings and searched for in every
// response. A secret of megabytes would make that expensive, so it is not searched for.
func TestHugeSecretsOfHopsAreLeftOut(t *testing.T) {
	link, _ := ParseLink("https://h/p?sig=s1gn4ture", nil)
	size := 2 << 20
	if testing.Short() { // the race detector makes it slow
		size = 64 << 10
	}
	huge := strings.Repeat("x", size)
	fits := strings.Repeat("y", 10<<10)
	to, err := url.Parse("https://other/?token=" + huge + "&sig=" + fits + "&key=0ther")
	require.NoError(t, err)
	link.hop(to)
	require.Equal(t, "REDACTED REDACTED", link.Redact.String(fits+" 0ther"))
	require.Equal(t, huge, link.Redact.String(huge))
	require.Equal(t, "at https://other/?REDACTED s", link.Redact.String("at "+to.String()+" s"))
}

func TestContentRange(t *testing.T) {
	for text, want := range map[string]contentRange{
		"bytes 0-0/1":        {0, 0, 1},
		"bytes 500-999/1000": {500, 999, 1000},
		"Bytes 500-999/*":    {500, 999, -1},
		"bytes 0-9223372036854775806/9223372036854775807": {0, 9223372036854775806, 9223372036854775807},
	} {
		got, ok := parseContentRange(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "bytes", "bytes 1-2", "bytes 2-1/3", "bytes 0-3/3", "bytes 0-0/0", "bytes -1/3", "bytes 0-/3", "items 0-1/3", "bytes */*", "bytes */1000",
		"bytes +0-1/3", "bytes 0-1/+3", "bytes 0-1/9223372036854775808", "bytes a-b/c", "bytes 0-1/",
	} {
		_, ok := parseContentRange(text)
		require.False(t, ok, text)
	}
}

func FuzzParseLink(f *testing.F) {
	f.Add("https://h/p?X-Amz-Signature=abcd")
	f.Add("https://u:p@h/%zz?a=%")
	f.Add("http://[::1]:80/a b|é?q#f")
	f.Fuzz(func(t *testing.T, text string) {
		link, problem := ParseLink(text, nil)
		if (link == nil) == (problem == "") {
			t.Fatalf("%q: %v, %q", text, link, problem)
		}
		if link == nil {
			return
		}
		again, problem := ParseLink(link.URL.String(), nil)
		if problem != "" || again.URL.RequestURI() != link.URL.RequestURI() {
			t.Fatalf("%q: %q became %v %q", text, link.URL, again, problem)
		}
		for _, c := range []byte(link.URL.RequestURI()) {
			if c <= ' ' || c == 0x7f {
				t.Fatalf("%q: %q", text, link.URL.RequestURI())
			}
		}
	})
}
