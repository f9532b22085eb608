package apierr_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/testkit"
)

func same(s string) string { return s }

func parse(contentType string, body []byte) apierr.Info { return apierr.Parse(contentType, body, same) }

func excerpt(contentType string, body []byte) string {
	return apierr.Excerpt(contentType, body, same)
}

func TestParseJSON(t *testing.T) {
	for body, want := range map[string]apierr.Info{
		`{"message":"m"}`:                                                                 {Message: "m"},
		`{"msg":"m","code":40001}`:                                                        {Message: "m", Code: "40001"},
		`{"Message":"m","Code":"C","RequestId":"r"}`:                                      {Message: "m", Code: "C", RequestID: "r"},
		`{"error":"text with words"}`:                                                     {Message: "text with words"},
		`{"error":{"message":"m","type":"t","code":"c"}}`:                                 {Message: "m", Code: "c"},
		`{"error":{"message":"m","type":"t","code":null}}`:                                {Message: "m", Code: "t"},
		`{"error":{"reason":"m","type":"t","root_cause":[{}]},"status":404}`:              {Message: "m", Code: "t"},
		`{"error":"invalid_grant","error_description":"m"}`:                               {Message: "m", Code: "invalid_grant"},
		`{"error":"Not Found","message":"m","statusCode":404}`:                            {Message: "m"},
		`{"error":true,"message":"m"}`:                                                    {Message: "m"},
		`{"detail":"m"}`:                                                                  {Message: "m"},
		`{"detail":{"message":"m","code":"c"}}`:                                           {Message: "m", Code: "c"},
		`{"detail":[{"loc":["body","port"],"msg":"m","type":"value_error"},{"msg":"n"}]}`: {Message: "body.port: m; n", Code: "value_error"},
		`{"detail":[{"loc":["body","nodes",3],"msg":"m"}]}`:                               {Message: "body.nodes.3: m"},
		`{"errors":[{"message":"m","code":1003},{"message":"n"}],"success":false}`:        {Message: "m; n", Code: "1003"},
		`{"errors":[{"field":"port","message":"m"}]}`:                                     {Message: "port: m"},
		`{"errors":[{"field":"port","error":"required"}]}`:                                {Message: "port: required"},
		`{"errors":["m","n"]}`:                                                            {Message: "m; n"},
		`{"errors":"m"}`:                                                                  {Message: "m"},
		`{"title":"t","detail":"d","type":"about:blank","status":404}`:                    {Message: "d"},
		`{"title":"t","type":"https://e.test/out-of-credit"}`:                             {Message: "t", Code: "https://e.test/out-of-credit"},
		`{"reason":"m"}`:                                                                  {Message: "m"},
		`{"reason":"NotFound","message":"m","code":404}`:                                  {Message: "m", Code: "404"},
		`{"__type":"ResourceNotFound","message":"m"}`:                                     {Message: "m", Code: "ResourceNotFound"},
		`{"code":12345678901234567890,"message":"m"}`:                                     {Message: "m", Code: "12345678901234567000"},
		`{"code":1e3,"message":"m"}`:                                                      {Message: "m", Code: "1000"},
		`{"code":1,"msg":"","data":{"message":"m","request_id":"r"}}`:                     {Message: "m", Code: "1", RequestID: "r"},
		`{"fault":{"faultstring":"m","detail":{"errorcode":"c"}}}`:                        {Message: "m", Code: "c"},
		`{"x-request-id":"r","err":"m"}`:                                                  {Message: "m", RequestID: "r"},
		`{"requestID":"r","traceId":"t","message":"m"}`:                                   {Message: "m", RequestID: "r"},
		`{"message":{"text":"m"},"error":{"message":"n"}}`:                                {Message: "n"},
		`"m"`:                              {Message: "m"},
		`["m","n"]`:                        {Message: "m; n"},
		`["1","2","3","4","5","6"]`:        {Message: "1; 2; 3; 4; 5"},
		`[{"message":"m"}]`:                {Message: "m"},
		`{}`:                               {},
		`[]`:                               {},
		`{"unknown":"x"}`:                  {},
		"\xef\xbb\xbf {\"message\":\"m\"}": {Message: "m"},
		`{"message":"a\nb\tc  d\u0000\u001b[31m\u202e\u200b é"}`: {Message: "a b c d[31m é"},
		"{\"message\":\"m\",\n\"rest\":":                         {Message: `{"message":"m", "rest":`}, // the JSON is cut off
		`{"message":"m"} trailing`:                               {Message: `{"message":"m"} trailing`},
		`{"message":"first","message":"second"}`:                 {Message: "second"},
		`{"message":"m","deep":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `,"code":"c"}`: {Message: "m", Code: "c"},
	} {
		for _, contentType := range []string{"application/json", "text/html; charset=utf-8", "", ";;"} {
			require.Equal(t, want, parse(contentType, []byte(body)), body)
		}
	}
}

func TestParseXML(t *testing.T) {
	want := apierr.Info{Code: "SignatureDoesNotMatch", Message: "The signature & more.", RequestID: "4442587FB7D0A2F9"}
	for _, body := range []string{
		`<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The signature &amp; more.</Message>
<Resource>/b/k</Resource><RequestId>4442587FB7D0A2F9</RequestId><HostId>x</HostId></Error>`,
		`<ErrorResponse xmlns="urn:x"><Error><Code>SignatureDoesNotMatch</Code><Message><![CDATA[The signature & more.]]></Message></Error><RequestID>4442587FB7D0A2F9</RequestID></ErrorResponse>`,
		"\xef\xbb\xbf" + `<?xml version="1.0" encoding="ISO-8859-1"?><a:Error><a:Code>SignatureDoesNotMatch</a:Code><a:Message>The signature
&amp; more.</a:Message><a:RequestId>4442587FB7D0A2F9</a:RequestId><Code>another</Code></a:Error>`,
		`<Error><Code>SignatureDoesNotMatch</Code><Message>The signature &amp; more.</Message><RequestId>4442587FB7D0A2F9</RequestId><HostId>cut h`,
	} {
		for _, contentType := range []string{"application/xml", "text/plain", ""} {
			require.Equal(t, want, parse(contentType, []byte(body)), body)
		}
	}
}

func TestParseHTMLAndText(t *testing.T) {
	for body, want := range map[string]string{
		"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>Oops</h1></center></body></html>": "502 Bad Gateway",
		"<!DOCTYPE html><HTML><TITLE lang=en>\n  A &amp; B\n</TITLE>":                                                     "A & B",
		"<!doctype html><title> </title><h2>Second</h2><h1 class='x'>First <b>one</b></h1>":                               "Second",
		"<html><!-- no --><p>Some</p><p>text</p>":                                                                         "Some text",
		"<p>Some text":                   "Some text",
		"<html><title>never closed":      "never closed",
		"<html><script>never closed":     "never closed",
		"<html":                          "<html",
		"<":                              "<",
		"<<<>>>":                         ">>",
		"plain text\nsecond line":        "plain text",
		"\n\n  \r\n first\r\nsecond":     "first",
		"404":                            "404",
		"[error] upstream failed":        "[error] upstream failed",
		`"quoted" words`:                 `"quoted" words`,
		"{'error': 'python'}":            "{'error': 'python'}",
		"a\x00b":                         "", // binary data gives no message
		"caf\xe9 closed for the evening": "caf closed for the evening",
		"":                               "",
		"   ":                            "",
		"\xff\xfeE\x00r\x00r\x00":        "",
		"\xef\xbb\xbftext":               "text",
	} {
		require.Equal(t, apierr.Info{Message: want}, parse("", []byte(body)), body)
	}
	require.Equal(t, "Error: no such page", parse("text/html", []byte("Error:\n<b>no such page</b>")).Message)
	require.Equal(t, "a < b", parse("text/plain", []byte("a < b")).Message)
}

func TestParseIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1000)
	info := parse("", []byte(`{"message":"x`+long+`","code":"`+long+`","request_id":"`+long+`"}`))
	require.Equal(t, "x"+strings.Repeat("é", 254)+"…", info.Message)
	require.Len(t, info.Message, 512)
	require.Equal(t, strings.Repeat("é", 62)+"…", info.Code)
	require.Equal(t, info.Code, info.RequestID)
	require.Equal(t, strings.Repeat("y", 512), parse("", []byte(strings.Repeat("y", 512))).Message)
}

// Services, gateways and storage give the ID of a request under several names.
func TestRequestIDInAHeader(t *testing.T) {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Trace-Id", "Trace-Id", "X-Amz-Request-Id", "X-Ms-Request-Id"} {
		require.Equal(t, "r", apierr.RequestID(http.Header{name: {"r"}, "X-Other": {"x"}}, same), name)
	}
}

// A text is redacted before it is cut. Otherwise the cut could leave a part of a secret
// that is not recognized.
func TestScrubComesBeforeTheCut(t *testing.T) {
	scrub := func(s string) string { return strings.ReplaceAll(s, "secret-token", "REDACTED") }
	for n := range 40 {
		text := strings.Repeat("x", 490+n) + `secret-t\u006fken and more`
		info := apierr.Parse("", []byte(`{"message":"`+text+`","code":"`+text[480:]+`","request_id":"secret-t\noken"}`), scrub)
		require.NotContains(t, info.Message, "secr")
		require.NotContains(t, info.Code, "secr")
		page := "<p>" + strings.Repeat("x", 230+n) + "secret-t&#111;ken and more"
		require.NotContains(t, apierr.Excerpt("text/html", []byte(page), scrub), "secr")
		require.NotContains(t, apierr.Parse("text/html", []byte("<p>"+strings.Repeat("x", 250)+page), scrub).Message, "secr")
	}
}

func TestExcerpt(t *testing.T) {
	for body, want := range map[string]string{
		"":                          "empty body",
		" \r\n\t":                   "empty body",
		"\xef\xbb\xbf":              "empty body",
		"\u200b":                    "empty body",
		"\x89PNG\r\n\x1a\n\x00\x00": "binary data",
		"\xff\xfeE\x00r\x00":        "binary data",
		strings.Repeat("\xff", 9):   "empty body",
		"one\n two\x1b[0m":          "one two[0m",
		`{"a": 1}`:                  `{"a": 1}`,
		"<html><head><title>Log in</title></head><body>Please <b>log in</b>": "Log in Please log in",
		"<html>":                  "<html>",
		"<Error><Code>x</Code>":   "<Error><Code>x</Code>",
		strings.Repeat("ab ", 99): strings.Repeat("ab ", 84) + "a…",
	} {
		require.Equal(t, want, excerpt("", []byte(body)), body)
	}
	require.Equal(t, "a b", excerpt("text/html", []byte("<p>a</p><p>b</p>")))

	cutInCharacter := strings.Repeat("a", 1023) + "é"
	require.NotEqual(t, "binary data", excerpt("", []byte(cutInCharacter)))
}

// Each of these bodies takes quadratic time or longer in a parser that searches back or
// ahead at every position.
func TestHostileBodies(t *testing.T) {
	size := testkit.Shorter(256<<10, 8<<10)
	for _, piece := range []string{
		"[", "{", `{"a":`, `[{"error":`, `"`, `\`, "<", "<a>", "</a>", "<a", "<!--", "<script>", "<title>", "<h1>", "&", "&amp;", "<![CDATA[",
		" ", "\n", "\x00", "\xff", "é", "\u202e", "<?xml ", "<!DOCTYPE [", `{"errors":[`, `{"a":1,`,
	} {
		for _, prefix := range []string{"", `{"message":"m","x":`, "<html>", "<Error>"} {
			body := []byte(prefix + strings.Repeat(piece, size/len(piece)))
			requireSane(t, parse("", body), excerpt("", body))
		}
	}
}

func requireSane(t *testing.T, info apierr.Info, excerpt string) {
	t.Helper()
	for _, text := range []string{info.Message, info.Code, info.RequestID, excerpt} {
		require.True(t, utf8.ValidString(text))
		for _, r := range text {
			require.True(t, unicode.IsPrint(r), "%q in %q", r, text)
		}
	}
	require.LessOrEqual(t, len(info.Message), 512)
	require.LessOrEqual(t, len(info.Code), 128)
	require.LessOrEqual(t, len(info.RequestID), 128)
	require.LessOrEqual(t, len(excerpt), 256)
	require.NotEmpty(t, excerpt)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"m","code":1}}`, `{"detail":[{"loc":["a",1],"msg":"m"}]}`, `["a",{"b":1}]`, `"x"`,
		`<Error><Code>c</Code><Message>m</Message></Error>`, "<html><title>t</title><h1>h</h1><!-- x", "plain\ntext",
		"\xef\xbb\xbf{", "\xff\xfe\x00", "<script><style></", "{\"a\":" + strings.Repeat("[", 100), "&#x41;<>&;",
	} {
		f.Add("text/html; x=y", []byte(s))
		f.Add("", []byte(s))
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		before := string(body)
		requireSane(t, parse(contentType, body), excerpt(contentType, body))
		require.Equal(t, before, string(body), "Parse must not change the body")
	})
}
