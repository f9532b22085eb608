package svc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/jsonfield"
)

// call is what a method asks for. Its address, header and body are made when it is sent.
type call struct {
	httpcall.Call        // Route has {…} where the ID goes
	path, escaped string // of Do, whose route is a path already
	query         url.Values
	body          any
	err           error   // what is wrong with the request
	name          string  // of what is created, as it stands in the body
	sent          *string // where to write the name; nil: nowhere

	// begin gets the final body of a valid call before anything is sent, and may
	// replace it and the context. Nil: none.
	begin func(context.Context, []byte) (context.Context, []byte, error)
}

func newCall(method, route, id string, body any) call {
	return call{Call: httpcall.Call{Method: method, Route: route, ID: id, Auth: true}, body: body}
}

func get(route string) call          { return newCall(http.MethodGet, route, "", nil) }
func getID(route, id string) call    { return newCall(http.MethodGet, route, id, nil) }
func deleteID(route, id string) call { return newCall(http.MethodDelete, route, id, nil) }

// create is a POST that makes a record.
func create(route string, body any) call {
	k := newCall(http.MethodPost, route, "", body)
	k.Once = true
	return k
}

// checked is the call unless something is wrong with the request.
func (k call) checked(p problems) call {
	k.err = p.err()
	return k
}

// do makes a call and decodes the record that it promises.
func do[T any](ctx context.Context, c *Client, k call, opts []RequestOption) (*T, error) {
	r, err := c.send(ctx, &k, opts)
	if err != nil {
		return nil, err
	}
	return decoded[T](c, &k, r)
}

func decoded[T any](c *Client, k *call, r *httpcall.Result) (*T, error) {
	out := new(T)
	if err := c.decode(k, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// doList makes a call whose response is an array of records.
func doList[T any, P record[T]](ctx context.Context, c *Client, k call, opts []RequestOption) ([]T, error) {
	list, err := do[records[T, P]](ctx, c, k, opts)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// doDelete makes a call whose response may hold anything, except an error or an HTML
// page: after those the record may still exist.
func doDelete(ctx context.Context, c *Client, k call, opts []RequestOption) error {
	r, err := c.send(ctx, &k, opts)
	if err != nil || !r.OK() {
		return err
	}
	if err := deniedDelete(k.ID, r); err != nil {
		return c.notPromised(&k, r, "", err)
	}
	return nil
}

// send checks a call, sends it, and returns an error for everything but success. There is
// one response without an error that is not OK: the 404 of a repeated delete.
func (c *Client) send(ctx context.Context, k *call, opts []RequestOption) (*httpcall.Result, error) {
	req := options(opts)
	if req.response != nil {
		*req.response = Response{} // what an earlier call left
	}
	u, pathErr := c.base.join(k, req.query)
	body, bodyErr := k.encode(req.fields, c.caller.Redactor().String)
	if err := allProblems(k.err, pathErr, bodyErr, req.problems.err()); err != nil {
		return nil, err
	}
	if k.Once {
		k.name = nameIn(body)
	}
	if k.sent != nil {
		*k.sent = k.name
	}
	if k.Auth && !c.hasToken {
		return nil, c.transportError(k, &httpcall.Result{Fail: ErrNoToken})
	}
	if k.begin != nil {
		begun, marked, err := k.begin(ctx, body)
		if cause.Has[*LedgerError](err) && ctx.Err() != nil { // the ledger was not to blame
			return nil, c.transportError(k, &httpcall.Result{Fail: fmt.Errorf("%w: nothing was sent", c.safe(cause.Of(ctx)))})
		} else if err != nil {
			return nil, err
		}
		ctx, body = begun, marked
	}
	header := make(http.Header, 4+len(c.header)+len(req.header))
	header["Accept"] = inJSON
	if body != nil {
		header["Content-Type"] = inJSON
	}
	maps.Copy(header, c.header)
	maps.Copy(header, req.header)
	start := time.Now()
	k.URL, k.Header, k.Body, k.MaxAttempts = u, header, body, req.attempts
	r := c.caller.Do(ctx, &k.Call)
	if req.response != nil {
		*req.response = Response{
			StatusCode: r.StatusCode, Header: r.Header, RequestID: apierr.RequestID(r.Header, c.caller.Redactor().String),
			Attempts: r.Attempts, Body: r.Body,
		}
	}
	return r, c.verdict(k, r, start)
}

var inJSON = []string{"application/json"} // never written to

// nameIn is the name of an endpoint or a file in the body of a create.
func nameIn(body []byte) string {
	var sent struct {
		Name     string
		FileName string `json:"file_name"`
	}
	_ = json.Unmarshal(body, &sent)
	return cmp.Or(sent.Name, sent.FileName)
}

// maxKept is how much of the response to a create of unknown outcome is kept.
const maxKept = 64 << 10

// options applies the options of a call.
func options(opts []RequestOption) *request {
	r := new(request)
	for _, opt := range opts {
		if opt != nil {
			opt(r)
		}
	}
	return r
}

// verdict turns what happened to a call into its error, nil for success. The call
// began at start.
func (c *Client) verdict(k *call, r *httpcall.Result, start time.Time) error {
	switch {
	case r.OK():
		return nil
	case r.Fail != nil:
		e := c.transportError(k, r)
		if k.Once && r.Acted {
			return c.unknown(k, r, e)
		}
		return e
	}
	e := c.newError(k, r)
	// After a create, a redirect can mean that the record was created. 307 and 308 do not:
	// they ask for the same request again. A status below 200 says nothing.
	odd := e.StatusCode < 400 && e.StatusCode != http.StatusTemporaryRedirect && e.StatusCode != http.StatusPermanentRedirect
	if k.Once && (r.Acted || odd) {
		return c.unknown(k, r, e)
	}
	missing := notFound(e) || errors.Is(e, ErrNotFound) && e.foreign == isCut && strings.Contains(r.Header.Get("Content-Type"), "json")
	if k.Method == http.MethodDelete && r.Lost && missing && start.Sub(c.recent.created(cmp.Or(k.ID, path.Base(k.path)))) >= newIDGrace {
		return nil // an attempt before this one deleted the record, and its response was lost
	}
	return e
}

// transportError makes an error of a call without a (whole) response.
func (c *Client) transportError(k *call, r *httpcall.Result) *TransportError {
	e := &TransportError{
		Method: k.Method, Route: k.Route, ID: c.caller.Redactor().String(k.ID), Attempts: r.Attempts, NoBudget: r.NoBudget, Err: r.Fail,
	}
	if r.StatusCode != 0 {
		e.Last = c.newError(k, r)
	}
	return e
}

// unknown says that a create may or may not have taken effect.
func (c *Client) unknown(k *call, r *httpcall.Result, cause error) error {
	body, _ := c.caller.Redactor().Cut(r.Body, maxKept, r.Cut)
	status := max(r.StatusCode, r.Broken)
	return &OutcomeUnknownError{
		Method: k.Method, Route: k.Route, Name: k.name, ID: c.salvageID(k.Route, status, r.Body),
		RequestID:  apierr.RequestID(r.Header, c.caller.Redactor().String),
		StatusCode: status, Body: body, Err: cause,
	}
}

// join makes the address of a call.
func (b *base) join(k *call, query url.Values) (*url.URL, error) {
	path, escaped := k.Route, k.Route
	if open, end := strings.IndexByte(k.Route, '{'), strings.IndexByte(k.Route, '}'); k.path != "" {
		path, escaped = k.path, k.escaped
	} else if open >= 0 {
		if problem := idProblem(k.ID); problem != "" {
			return nil, &ValidationError{Fields: []FieldError{{k.Route[open+1 : end], problem}}}
		}
		path = k.Route[:open] + k.ID + k.Route[end+1:]
		escaped = k.Route[:open] + url.PathEscape(k.ID) + k.Route[end+1:]
	}
	u := &url.URL{Scheme: b.Scheme, Host: b.Host, Path: b.Path + path}
	if b.RawPath != "" || escaped != path {
		u.RawPath = b.EscapedPath() + escaped
	}
	if len(k.query)+len(query) > 0 {
		all := make(url.Values, len(k.query)+len(query))
		for _, q := range []url.Values{k.query, query} {
			for key, values := range q {
				all[key] = values
			}
		}
		u.RawQuery = all.Encode()
	}
	return u, nil
}

// maxID is the longest id in bytes: a request line has to hold it.
const maxID = 1024

// idProblem says why an id cannot be one. Every other id is one segment of the
// path, whatever it holds.
func idProblem(id string) string {
	switch trimmed := strings.TrimSpace(id); {
	case trimmed == "":
		return "is empty"
	case trimmed != id: // a proxy may trim it on the way
		return "must not begin or end with white space"
	case id == "." || id == "..":
		return `must not be "." or ".."`
	case strings.ContainsAny(id, "/\\"):
		return "must not hold a slash"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "must not hold a line break or another control character"
	case !utf8.ValidString(id):
		return "is not valid UTF-8"
	case strings.ContainsRune(id, utf8.RuneError): // decoding makes it of bytes that are no text
		return "holds U+FFFD, which stands where a character was lost"
	case len(id) > maxID:
		return "is longer than an id can be"
	}
	return ""
}

// rawPath returns the path of Do without its escapes, or says what is wrong with it.
func rawPath(path string) (plain, problem string) {
	if !strings.HasPrefix(path, "/") {
		return "", "must start with a slash: it is relative to the base URL"
	}
	if strings.ContainsAny(path, "?#\\") {
		return "", "must not hold a query or a fragment: use WithQuery, and escape IDs with url.PathEscape"
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		text, err := url.PathUnescape(segment)
		if u := (url.URL{Path: "/" + text, RawPath: "/" + segment}); err != nil || u.EscapedPath() != "/"+segment {
			return "", "is not escaped: escape IDs with url.PathEscape"
		}
		if text == "" || text == "." || text == ".." || strings.ContainsFunc(text, unicode.IsControl) {
			return "", `must not have empty segments, ".", ".." or control characters`
		}
		plain += "/" + text
	}
	return plain, ""
}

// encode makes the body of a call. The errors of the caller's own encoders are
// scrubbed.
func (k *call) encode(fields []bodyField, scrub func(string) string) ([]byte, error) {
	raw, isRaw := k.body.(json.RawMessage)
	none := k.body == nil || isRaw && len(raw) == 0
	if none && len(fields) == 0 {
		return nil, nil
	}
	body := []byte("{}")
	switch {
	case none && (k.Method == http.MethodGet || k.Method == http.MethodHead || k.Method == http.MethodDelete || k.Method == http.MethodOptions):
		return nil, &ValidationError{Fields: []FieldError{{fields[0].path, "cannot be set: the call has no body"}}}
	case none:
	case isRaw && json.Valid(raw): // Marshal would compact and escape it
		body = raw
	default:
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			if k.err != nil {
				return nil, nil //nolint:nilerr // what is wrong with the request says more
			}
			return nil, &ValidationError{Fields: []FieldError{{"body", "cannot be written as JSON: " + scrub(err.Error())}}}
		}
	}
	for _, f := range fields {
		var err error
		if body, err = jsonfield.Set(body, f.path, f.value); err != nil {
			return nil, &ValidationError{Fields: []FieldError{{f.path, "cannot be set: " + scrub(err.Error())}}}
		}
	}
	asWritten := isRaw && len(fields) == 0 && utf8.Valid(body)
	if asWritten || !bytes.ContainsRune(body, utf8.RuneError) && !bytes.Contains(body, []byte(`\ufffd`)) { // bytes that are not UTF-8 count as RuneError
		return body, nil
	}
	if bad := lost.FindSubmatch(body); bad != nil {
		return nil, &ValidationError{Fields: []FieldError{{cmp.Or(string(bad[1]), "body"), "is not valid UTF-8, or holds U+FFFD in place of a lost character"}}}
	}
	return body, nil
}

// lost finds a text with bytes that are not UTF-8, or with U+FFFD, which encoding/json
// writes in place of them, and the name of its field.
var lost = regexp.MustCompile(`(?:"([^"\\]*)": *\[?)?"(?:[^"\\]|\\.)*?(?:\\ufffd|\x{FFFD})`)

func headerName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func headerValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// Response is what [WithResponse] fills: a response as it was received. It may hold
// presigned URLs and other secrets, so its Body and Header do not show when it is
// printed, logged or encoded as JSON.
type Response struct {
	StatusCode int         // 0: there was no whole response
	Header     http.Header `json:"-"` // as received; nil if there was no response
	RequestID  string      // the service's, from a header; may be empty
	Attempts   int         // how often the call was sent
	Body       []byte      `json:"-"` // as received; with another status than success at most 64 KiB
}

// String tells the status, the size and the id of the request.
func (r Response) String() string {
	return fmt.Sprintf("%d %s (%d bytes, request %q, %d attempts)", r.StatusCode, http.StatusText(r.StatusCode), len(r.Body), r.RequestID, r.Attempts)
}

// Format prints String for every verb.
func (r Response) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue logs what String tells.
func (r Response) LogValue() slog.Value { return slog.StringValue(r.String()) }
