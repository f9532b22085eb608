package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/redact"
	"example.com/svc/internal/testkit"
)

const token = `~~~>>?tok/en+1&2<3>"4"=é` // holds every character that an encoding changes; its base64 form holds + and /

func TestSecretsInEveryForm(t *testing.T) {
	r := redact.New(token)
	quoted, err := json.Marshal(map[string]string{"token": token})
	require.NoError(t, err)
	again, err := json.Marshal(strings.ReplaceAll(token, `"`, ""))
	require.NoError(t, err)

	for text, want := range map[string]string{
		"no secret here":           "no secret here",
		"":                         "",
		token:                      "REDACTED",
		token + token:              "REDACTEDREDACTED",
		"a" + token + "b " + token: "aREDACTEDb REDACTED",
		string(quoted):             `{"token":"REDACTED"}`,
		`{"token":"~~~>>?tok\/en+1&2<3>\"4\"=é"}`:         `{"token":"REDACTED"}`,
		strings.ReplaceAll(string(quoted), "+", `\u002B`): `{"token":"REDACTED"}`,
		string(again):                                                   string(again), // not the token: it has no quotes
		"a=" + url.QueryEscape(token) + "&b":                            "a=REDACTED&b",
		"/" + url.PathEscape(token) + "/x":                              "/REDACTED/x",
		base64.StdEncoding.EncodeToString([]byte(token)):                "REDACTED",
		base64.URLEncoding.EncodeToString([]byte(token)):                "REDACTED",
		"x" + base64.RawURLEncoding.EncodeToString([]byte(token)) + "y": "xREDACTEDy",
	} {
		got := r.String(text)
		require.Equal(t, strings.TrimRight(want, "="), strings.TrimRight(got, "="), text)
		require.Equal(t, got, r.String(got), "redacting a redacted text must not change it")
	}
}

func TestSeveralSecrets(t *testing.T) {
	r := redact.New("secret-one", "secret-one-and-more", "abcabc", "abc", "Dxyz", "the REDACTED one", "DACT")
	for text, want := range map[string]string{
		"secret-one-and-more, secret-one": "REDACTED, REDACTED",
		"abcabcx":                         "REDACTEDx",
		"abc":                             "abc", // too short to be treated as a secret
		"secret-onexyz":                   "REDACTEDxyz",
		"REDACTEDxyz":                     "REDACTEDxyz", // "Dxyz" is a secret, but its D belongs to REDACTED here
		"the REDACTED one":                "the REDACTED one",
		"DACT":                            "DACT",
	} {
		require.Equal(t, want, r.String(text), text)
		require.Equal(t, want, r.String(want))
	}
}

func TestLinks(t *testing.T) {
	var r *redact.Redactor // a nil Redactor knows no secrets and finds them by their form only
	for text, want := range map[string]string{
		`Put "https://h/p?a=1&b=2": refused`:       `Put "https://h/p?REDACTED": refused`,
		`see https://h/p?q.`:                       `see https://h/p?REDACTED`,
		`'https://h/p?q' x`:                        `'https://h/p?REDACTED' x`,
		"`https://h/p?q` x":                        "`https://h/p?REDACTED` x",
		`<a href=https://h/p?q>x</a>`:              `<a href=https://h/p?REDACTED>x</a>`,
		`HTTPS://h?q`:                              `HTTPS://h?REDACTED`,
		`https://h/p?a=https://i/p?b c`:            `https://h/p?REDACTED c`,
		"https://h/p?q\nhttps://i/p?r":             "https://h/p?REDACTED\nhttps://i/p?REDACTED",
		`https://h/p`:                              `https://h/p`,
		`https://h/p?`:                             `https://h/p?`,
		`https://h/p#f`:                            `https://h/p#f`,
		`https://h/p#f?q`:                          `https://h/p#f?q`,
		`https://h/p#a=1&f`:                        `https://h/p#REDACTED`,
		`https://h/p?q#f`:                          `https://h/p?REDACTED`,
		`https://user:pw@h/p`:                      `https://REDACTED@h/p`,
		`https://user:p@w@h`:                       `https://REDACTED@h`,
		`https://token@h:80/p?q`:                   `https://REDACTED@h:80/p?REDACTED`,
		`https://h/p@v1`:                           `https://h/p@v1`,
		`https:\/\/h\/p?a=1\u0026b=\/2" x`:         `https:\/\/h\/p?REDACTED" x`,
		`"{\"u\":\"https:\\/\\/h\\/p?a\\u0026b\"}`: `"{\"u\":\"https:\\/\\/h\\/p?REDACTED\"}`,
		`"https://h/p?a\u0026b\nnext"`:             `"https://h/p?REDACTED\nnext"`,
		`https:\/\/user:pw@h\/p`:                   `https:\/\/REDACTED@h\/p`,
		`socks5://user:pw@proxy:1080`:              `socks5://REDACTED@proxy:1080`,
		`what? nothing: a/b?c`:                     `what? nothing: a/b?c`,
		`://?q`:                                    `://?REDACTED`,
	} {
		require.Equal(t, want, r.String(text), text)
		require.Equal(t, want, r.String(want))
	}
}

func TestPairs(t *testing.T) {
	r := redact.New()
	for text, want := range map[string]string{
		`X-Amz-Signature=abc&x=1`:                         `X-Amz-Signature=REDACTED&x=1`,
		`/p?x-amz-credential=a/b/c&X-Amz-Date=1`:          `/p?x-amz-credential=REDACTED&X-Amz-Date=1`,
		`X-Amz-Security-Token=a%2Bb%3D`:                   `X-Amz-Security-Token=REDACTED`,
		`X-Goog-Signature=abc`:                            `X-Goog-Signature=REDACTED`,
		`AWSAccessKeyId=AKIA&Signature=ab%2Bc=&Expires=1`: `AWSAccessKeyId=REDACTED&Signature=REDACTED&Expires=1`,
		`GoogleAccessId=a@b.test`:                         `GoogleAccessId=REDACTED`,
		`OSSAccessKeyId=x;`:                               `OSSAccessKeyId=REDACTED;`,
		`sig=abc, se=1`:                                   `sig=REDACTED, se=1`,
		`?sv=1\u0026sig=abc\u0026x`:                       `?sv=1\u0026sig=REDACTED`,
		`sig\u003dabc"`:                                   `sig\u003dREDACTED"`,
		`%3FX-Amz-Signature%3Dabc%26x%3D1 y`:              `%3FX-Amz-Signature%3DREDACTED y`,
		`u%253Fsv%253D1%2526sig%253dabc`:                  `u%253Fsv%253D1%2526sig%253dREDACTED`,
		`a&amp;Signature=abc&amp;b`:                       `a&amp;Signature=REDACTED&amp;b`,
		`keyId="k",signature="abc=="`:                     `keyId="k",signature="REDACTED"`,
		`<SignatureProvided>abc</SignatureProvided>`:      `<SignatureProvided>REDACTED</SignatureProvided>`,
		`<AWSAccessKeyId>AKIA</AWSAccessKeyId>`:           `<AWSAccessKeyId>REDACTED</AWSAccessKeyId>`,
		`{"api_token": "abc", "api_token_id": 7}`:         `{"api_token": "REDACTED", "api_token_id": 7}`,
		`{\"access_token\":\"abc\"}`:                      `{\"access_token\":\"REDACTED\"}`,
		`{"X-Amz-Security-Token":["abc"]}`:                `{"X-Amz-Security-Token":["REDACTED"]}`,
		`map[X-Amz-Security-Token:[abc]]`:                 `map[X-Amz-Security-Token:[REDACTED]]`,
		`X-Amz-Security-Token: abc`:                       `X-Amz-Security-Token: REDACTED`,
		`signature: the request is too old`:               `signature: the request is too old`,
		`design=1 assign=2 x_sig=3`:                       `design=1 assign=2 x_sig=REDACTED`,
		`Signature=`:                                      `Signature=`,
		`<signature></signature>`:                         `<signature></signature>`,
		`=`:                                               `=`,
	} {
		require.Equal(t, want, r.String(text), text)
		require.Equal(t, want, r.String(want))
	}
}

func TestBearer(t *testing.T) {
	r := redact.New()
	for text, want := range map[string]string{
		`Authorization: Bearer abc.def-ghi`:  `Authorization: Bearer REDACTED`,
		`"authorization":"bearer  abc"`:      `"authorization":"bearer  REDACTED"`,
		`Bearer%20abc, x`:                    `Bearer%20REDACTED, x`,
		`Bearer+abc`:                         `Bearer+REDACTED`,
		`missing bearer token`:               `missing bearer token`,
		`bearer authentication is required`:  `bearer authentication is required`,
		`WWW-Authenticate: Bearer realm="x"`: `WWW-Authenticate: Bearer realm="x"`,
		`the forbearer abc`:                  `the forbearer abc`,
		`bearer`:                             `bearer`,
		`bearer `:                            `bearer `,
	} {
		require.Equal(t, want, r.String(text), text)
		require.Equal(t, want, r.String(want))
	}
}

func TestAdd(t *testing.T) {
	r := redact.New("fixed-secret")
	for i := range 140 {
		r.Add(fmt.Sprintf("token-%03d", i))
		r.Add("fixed-secret")
		r.Add(fmt.Sprintf("token-%03d", i))
	}
	require.Equal(t, "token-038 REDACTED REDACTED REDACTED abc", r.String("token-038 token-040 token-139 fixed-secret abc"))
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Add("token-139") }), "adding a known secret must not allocate")

	var none *redact.Redactor
	require.Equal(t, "token-00", none.String("token-00"))
}

func TestAddWhileInUse(t *testing.T) {
	r := redact.New("fixed-secret")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			own := fmt.Sprintf("token-%d", i)
			for range 200 {
				r.Add(own)
				if got := r.String("fixed-secret " + own); got != "REDACTED REDACTED" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	wg.Wait()
}

func TestRedactorItselfShowsNothing(t *testing.T) {
	r := redact.New("fixed-secret")
	r.Add("added-secret")
	_ = r.String("x") // builds the internal table of spellings
	holder := struct {
		R *redact.Redactor
		v redact.Redactor
	}{r, *r}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p"} {
		for _, v := range []any{r, *r, holder, &holder} {
			text := fmt.Sprintf(verb, v)
			for _, secret := range []string{"fixed", "added"} {
				require.NotContains(t, text, secret, verb)
				require.NotContains(t, text, fmt.Sprintf("%x", secret), verb)
			}
		}
	}
}

func TestCut(t *testing.T) {
	r := redact.New("secret-token-1")
	for _, tt := range []struct {
		name, text string
		limit      int
		inputCut   bool
		want       string
		cut        bool
	}{
		{"short", "abc", 10, false, "abc", false},
		{"exact", "abc", 3, false, "abc", false},
		{"longer", "abcd", 3, false, "abc", true},
		{"nothing", "", 3, false, "", false},
		{"no room", "abc", 0, false, "", true},
		{"negative", "abc", -1, false, "", true},
		{"input was cut", "abc, def", 10, true, "abc, def", true},
		{"secret before the cut", "a secret-token-1 b", 12, false, "a REDACTED b", false},
		{"redaction makes room", "secret-token-1 secret-token-1 abc", 21, false, "REDACTED REDACTED abc", false},
		{"half a mark", "ab secret-token-1", 6, false, "ab RED", true},
		{"whole mark", "ab secret-token-1 c", 11, false, "ab REDACTED", true},
		{"cut secret", "ab secret-tok", 99, true, "ab ", true},
		{"cut secret in JSON", `{"ab":"secret-tok`, 99, true, `{"ab":"`, true},
		{"uncut text like it", "ab secret-tok", 99, false, "ab secret-tok", false},
		{"cut link", "ab https://h/p?X-Amz-Sig", 99, true, "ab ", true},
		{"cut user info in JSON", `{"u":"https:\/\/user:pa`, 99, true, `{"u":"`, true},
		{"cut user info", "ab https://user:pa", 99, true, "ab ", true},
		{"between characters", "aé", 2, false, "a", true},
		{"too little of a secret", "ab sec", 99, true, "ab sec", true},
		{"odd byte", "a\xc3", 99, false, "a\xc3", false},
		{"four bytes", "a\U0001f600", 4, false, "a", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, cut := r.Cut([]byte(tt.text), tt.limit, tt.inputCut)
			require.Equal(t, tt.want, string(out))
			require.Equal(t, tt.cut, cut)
		})
	}
}

// Wherever a text was cut off, and however much of it is kept, no part of a secret
// remains.
func TestCutAnywhere(t *testing.T) {
	const secret = "s3cr3t/t0k3n+9="
	r := redact.New(secret)
	text := "é " + secret + " " + url.QueryEscape(secret) + ` {"t":"s3cr3t\/t0k3n+9="} ` +
		base64.StdEncoding.EncodeToString([]byte(secret)) +
		" https://us3r:p4ss@host/path?qu3ry1=qu3ry2 sig=s1gn4 Bearer b34r3r " + secret
	pieces := []string{"s3cr", base64.StdEncoding.EncodeToString([]byte("s3cr3t"))[:4], "us3r:", "p4ss", "qu3ry", "s1gn", "b34r"}
	for end := range len(text) {
		for limit := 0; limit < end+40; limit += testkit.Shorter(1, 31) {
			in := []byte(text[:end])
			out, cut := r.Cut(in, limit, true)
			require.LessOrEqual(t, len(out), limit)
			require.True(t, cut)
			for _, piece := range pieces {
				require.NotContains(t, string(out), piece, "%q to %d", in, limit)
			}
		}
	}
}

func TestCutOfHugeText(t *testing.T) {
	secret := strings.Repeat("k3y", 100)
	r := redact.New(secret)
	in := []byte(strings.Repeat(secret+" ", 1<<16)) // 20 MB
	out, cut := r.Cut(in, 100, false)
	require.True(t, cut)
	require.Equal(t, strings.Repeat("REDACTED ", 11)+"R", string(out))

	in = append(make([]byte, 0, 1<<20), "https://h/p?"...)
	out, cut = r.Cut(append(in, strings.Repeat("k", 1<<20)...), 100, false)
	require.True(t, cut)
	require.Equal(t, "https://h/p?REDACTED", string(out))
}

// Each of these texts takes quadratic time or longer in a scanner that searches back or
// ahead at every position.
func TestHostileTextTakesLinearTime(t *testing.T) {
	r := redact.New(strings.Repeat("a", 64)+"b", strings.Repeat("ab", 40), "REDACTEX", "\\\\\\\\")
	size := testkit.Shorter(1<<18, 1<<12)
	for _, piece := range []string{
		"a", "ab", "<", ":", "://", `:\`, `\`, `"`, `sig"`, `sig\`, "sig=", `sig" `, `sig":[`, "%25", "%3D", "sig%25",
		"bearer", "bearer ", "Bearer%20", "Bearer+", "https://", "https://@", "https://a:b@h?", "REDACTED", "REDACTE", "\xff", "?#", "é",
	} {
		text := strings.Repeat(piece, size/len(piece))
		out := r.String(text)
		require.Equal(t, out, r.String(out), "%q", piece)
	}
	r.String("sig" + strings.Repeat(`\`, size))
	r.String("sig%" + strings.Repeat(`25`, size))
	r.String(`sig"` + strings.Repeat(` `, size))
}

func TestHeader(t *testing.T) {
	r := redact.New("secret-token-1")
	in := http.Header{
		"Authorization":        {"Basic abc"},
		"Proxy-Authorization":  {"x"},
		"Cookie":               {"a=1"},
		"Set-Cookie":           {"a=1", "b=2"},
		"X-Amz-Security-Token": {"x"},
		"x-api-key":            {"lower case"},
		"Location":             {"/p?sig=1&token=2"},
		"Link":                 {"<https://h/p?q>; rel=next"},
		"X-Note":               {"secret-token-1 and https://h/p?q", "plain"},
		"X-Empty":              nil,
	}
	before := in.Clone()
	require.Equal(t, http.Header{
		"Authorization":        {"REDACTED"},
		"Proxy-Authorization":  {"REDACTED"},
		"Cookie":               {"REDACTED"},
		"Set-Cookie":           {"REDACTED", "REDACTED"},
		"X-Amz-Security-Token": {"REDACTED"},
		"x-api-key":            {"REDACTED"},
		"Location":             {"/p?REDACTED"},
		"Link":                 {"<https://h/p?REDACTED"},
		"X-Note":               {"REDACTED and https://h/p?REDACTED", "plain"},
		"X-Empty":              nil,
	}, r.Header(in))
	require.Equal(t, before, in)
	require.Nil(t, r.Header(nil))
}

func FuzzString(f *testing.F) {
	for _, s := range []string{
		"", "s3cr3t-token", `https://u:p@h/p?q`, `"sig":"x"`, "X-Amz-Signature=a&b", "Bearer x", `https:\/\/h?\u0026`, "REDACTED", "sig%253Dx",
		"s3cr3t-tokenREDACTED", "ht\\://", "Bearer token s3cr3t-tok",
	} {
		f.Add(s, s, 10)
	}
	r := redact.New("s3cr3t-token", "token://", "sig=", "D=&x", "bearer Z", `a"b\`, "\xffaaa")
	f.Fuzz(func(t *testing.T, a, b string, limit int) {
		text := a + "s3cr3t-token" + b
		out := r.String(text)
		require.NotContains(t, out, "s3cr3t-token")
		require.Equal(t, out, r.String(out), "of %q", text)

		link := r.String(a + " https://host/path?s3cr3t=" + strings.Map(func(c rune) rune {
			if c <= ' ' || c == 0x7f || strings.ContainsRune("\"'`<>\\", c) {
				return '.'
			}
			return c
		}, b) + "s3cr3t")
		require.NotContains(t, link[min(len(link), len(r.String(a))):], "s3cr3t")

		limit %= 64
		kept, cut := r.Cut([]byte(text), limit, false)
		require.LessOrEqual(t, len(kept), max(limit, 0))
		require.Equal(t, cut, string(kept) != out)
		require.True(t, strings.HasPrefix(out, string(kept)))
		for end := range len("s3cr3t-token") {
			kept, _ := r.Cut([]byte(a+"s3cr3t-token"[:end]), len(text)+8, true)
			if !strings.Contains(a, "s3cr") {
				require.NotContains(t, string(kept), "s3cr")
			}
		}
	})
}
