package secrets_test

import (
	"encoding/json"
	"encoding/xml"
	"expvar"
	"html/template"
	"log"
	"log/slog"
	"strings"
	"testing"
	texttemplate "text/template"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// encoded has presigned URLs and secrets in every kind of field where they can be hidden.
type encoded struct {
	Link    svc.SignedURL
	Secret  svc.Secret
	Pointer *svc.SignedURL
	Links   []svc.SignedURL
	Secrets map[string]svc.Secret
	Empty   svc.SignedURL
}

func newEncoded() encoded {
	link := svc.SignedURL(testkit.SecretLink)
	return encoded{
		Link: link, Secret: "SIGN-PASSWORD", Pointer: &link,
		Links: []svc.SignedURL{link, ""}, Secrets: map[string]svc.Secret{"a": "SIGN-TOKEN"},
	}
}

func TestXMLHidesSecrets(t *testing.T) {
	link, secret := svc.SignedURL(testkit.SecretLink), svc.Secret("SIGN-TOKEN")
	for _, v := range []any{
		struct {
			XMLName xml.Name       `xml:"r"`
			Attr    svc.SignedURL  `xml:"link,attr"`
			Pointer *svc.SignedURL `xml:"pointer,attr"`
			Secret  svc.Secret     `xml:"secret,attr,omitempty"`
			Element svc.SignedURL  `xml:"a>b"`
			Many    []svc.Secret   `xml:"many"`
		}{Attr: link, Pointer: &link, Secret: secret, Element: link, Many: []svc.Secret{secret}},
		struct {
			XMLName xml.Name      `xml:"r"`
			Text    svc.SignedURL `xml:",chardata"`
		}{Text: link},
		struct {
			XMLName xml.Name   `xml:"r"`
			Text    svc.Secret `xml:",cdata"`
		}{Text: secret},
		struct {
			XMLName xml.Name      `xml:"r"`
			Inner   svc.SignedURL `xml:",innerxml"`
		}{Inner: link},
		struct {
			XMLName xml.Name `xml:"r"`
			Any     any      `xml:",any"`
		}{Any: link},
	} {
		b, err := xml.Marshal(v)
		require.NoError(t, err)
		requireHidden(t, string(b), string(b))
		require.Contains(t, string(b), "REDACTED")
	}
}

func TestJSONOptionsHideSecrets(t *testing.T) {
	link, secret := svc.SignedURL(testkit.SecretLink), svc.Secret("SIGN-TOKEN")
	b, err := json.Marshal(struct {
		Quoted  svc.SignedURL `json:",string"`
		Secret  svc.Secret    `json:",string,omitempty"`
		NonZero svc.SignedURL `json:",omitzero"`
	}{link, secret, link})
	require.NoError(t, err)
	requireHidden(t, "json", string(b))
}

// Templates print values through fmt, and in scripts through JSON.
func TestTemplatesHideSecrets(t *testing.T) {
	const text = `{{.Link}} {{.Secret}} {{.Pointer}} {{.Links}} {{.Secrets}} {{print .Link}} {{html .Link}} {{js .Link}} {{urlquery .Link}} {{slice .Secret 0 4}} {{len .Link}}`
	const page = `<p title="{{.Link}}" title={{.Link}}>{{.Link}} {{.}}</p><a href="{{.Link}}">x</a><a href="/?q={{.Link}}">x</a>` +
		`<a onclick="f({{.Link}}, {{.}}, '{{.Link}}')">x</a><script>f({{.Link}}, {{.Secret}}, {{.}}, "{{.Link}}")</script>` +
		`<style>a { background: url("{{.Link}}"); color: {{.Secret}} }</style><img srcset="{{.Link}}"><!-- {{.Link}} -->`
	var b strings.Builder
	require.NoError(t, texttemplate.Must(texttemplate.New("").Parse(text)).Execute(&b, newEncoded()))
	requireHidden(t, "text/template", b.String())
	b.Reset()
	require.NoError(t, template.Must(template.New("").Parse(page)).Execute(&b, newEncoded()))
	requireHidden(t, "html/template", b.String())
}

func TestLogsAndVariablesHideSecrets(t *testing.T) {
	v := newEncoded()
	var b strings.Builder
	log.New(&b, "", 0).Print(v, &v, v.Link, v.Secret)
	slog.New(slog.NewTextHandler(&b, nil)).Info("", "v", v, "keys", map[svc.SignedURL]svc.Secret{v.Link: v.Secret})
	slog.New(slog.NewJSONHandler(&b, nil)).Info("", "v", v, "p", &v)
	b.WriteString(expvar.Func(func() any { return v }).String())
	requireHidden(t, "logs", b.String())
}
