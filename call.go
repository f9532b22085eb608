package svc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/rules"
)

// call describes one API call of a method. A call has three steps: prepare checks and encodes
// it, Do of the Caller sends it, and verdict converts the result into a record or an error.
type call struct {
	httpcall.Call         // Route has a placeholder, such as {file_id}, where the ID goes
	path          string  // escaped path passed to Do; if empty, the path is Route with the ID
	opts          request // the options of the call
	body          any
	problems      problems                    // problems that the method found in the request
	pick          func(context.Context) error // chooses the flavor of a create and prepares the call again; called when something has to be created
	start         time.Time                   // when prepare was called
	class         rules.Class                 // class of the response; verdict sets it
	foreign       string                      // why the response is not the service's own; empty if it is
	done          bool                        // the call has succeeded
}

// newCall returns a call with its options, and with the problems that were found in its request. If
// there are any, prepare fails.
func newCall(method, route, id string, body any, p problems, opts []RequestOption) *call {
	k := &call{Call: httpcall.Call{Method: method, Route: route, ID: id, Auth: true}, body: body, problems: p}
	k.pick = func(context.Context) error { return nil }
	for _, opt := range opts {
		if opt != nil {
			opt(&k.opts)
		}
	}
	return k
}

func get(route, id string, opts []RequestOption) *call {
	return newCall(http.MethodGet, route, id, nil, nil, opts)
}

// carryOut sends a call and decodes its response into out, as verdict does.
func (c *Client) carryOut(ctx context.Context, k *call, out any) (err error) {
	ctx = c.begin(ctx, k)
	defer c.report(ctx, k, &err)
	if err := k.prepare(c); err != nil {
		return err
	}
	c.caller.Do(ctx, &k.Call)
	return c.verdict(k, out)
}

// do sends a call and decodes the record in its response.
func do[T any](ctx context.Context, c *Client, k *call) (*T, error) {
	out := new(T)
	if err := c.carryOut(ctx, k, out); err != nil {
		return nil, err
	}
	return out, nil
}

// doList sends a call whose response is an array of records.
func doList[T any, P record[T]](ctx context.Context, c *Client, k *call) ([]T, error) {
	list, err := do[records[T, P]](ctx, c, k)
	return orZero(list), err
}

// doDelete sends a DELETE and checks that it was accepted.
func doDelete(ctx context.Context, c *Client, route, id string, opts []RequestOption) error {
	return c.carryOut(ctx, newCall(http.MethodDelete, route, id, nil, nil, opts), accepted{})
}

// accepted is the response to a delete. A 2xx response may have any body, unless the body shows that
// the delete may have failed: see denied.
type accepted struct{}

// prepare checks the call, encodes its body, and fills in the embedded httpcall.Call. Nothing
// changes the bytes of the body after that. If prepare fails, the call must not be sent. A method that
// is not safe to repeat, such as POST, must not be carried out twice.
func (k *call) prepare(c *Client) error {
	req := &k.opts
	k.Once = !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions}, k.Method)
	k.start = time.Now()
	if req.response != nil {
		*req.response = Response{} // removes the response of an earlier call
	}
	p := slices.Clip(k.problems)
	u, field, problem := c.base.Join(cmp.Or(k.path, k.Route), k.ID, req.query)
	p.add(problem != "", field, problem)
	body, field, err := jsonfield.Encode(k.body, k.Once || k.Method == http.MethodPut, req.fields)
	if err != nil { // texts of the JSON encoders of the caller's types may hold secrets
		p.add(field != "" || len(k.problems) == 0, cmp.Or(field, "body"), c.safe(err).Error())
	}
	if err := append(p, req.problems...).err(); err != nil {
		return err
	}
	k.URL, k.Body, k.MaxAttempts = u, body, req.attempts
	k.Urgent = k.Urgent || req.urgent
	if k.Auth && !c.hasToken {
		k.Result.Fail = ErrNoToken
		return c.transportError(k)
	}
	k.Header = make(http.Header, 4+len(c.header())+len(req.header))
	k.Header["Accept"] = inJSON
	if body != nil {
		k.Header["Content-Type"] = inJSON
	}
	maps.Copy(k.Header, c.header())
	maps.Copy(k.Header, req.header)
	return nil
}

var inJSON = []string{"application/json"} // all requests share it, so nothing may change it

// maxKept is the maximum number of bytes of a response that an OutcomeUnknownError keeps.
const maxKept = 64 << 10

// verdict judges a call that was sent, and decodes a successful response into out. If out is a
// *json.RawMessage, it gets the body unchanged. If out is nil, the body is ignored. A delete also
// succeeds if an attempt before the last one took effect; out is then unchanged. The ID of an endpoint
// that was read is known for the token that was sent.
func (c *Client) verdict(k *call, out any) (err error) {
	r := &k.Result
	k.class, k.foreign = rules.Classify(rules.Response{
		Status: r.StatusCode, ContentType: r.Header.Get("Content-Type"), Body: r.Body, Cut: r.Cut,
		Elsewhere: r.StatusCode/100 == 3 && c.base.Leaves(r.Header.Get("Location")),
	})
	if k.class == rules.Service && c.Ledger.journal != nil {
		if date := dateOf(r.Header); !date.IsZero() {
			c.Ledger.latest.Store(&dateSample{date, k.start})
		}
	}
	if rules.Contact(k.class, r.StatusCode) {
		c.contacts.Add(1)
	}
	if k.opts.response != nil {
		*k.opts.response = Response{
			StatusCode: r.StatusCode, Header: r.Header, RequestID: apierr.RequestID(r.Header, c.clean),
			Attempts: r.Attempts, Body: r.Body,
		}
	}
	raw, asIs := out.(*json.RawMessage)
	switch {
	case !r.OK():
		err = c.failure(k)
	case out == nil:
	case out == accepted{}:
		err = c.denied(k)
	case asIs:
		*raw = bytes.Clone(r.Body)
	default:
		err = c.decode(k, out)
	}
	if k.done = err == nil; k.done && k.Method == http.MethodGet && k.Route == service {
		c.endpoints.Read(k.ID, r.TokenCheck)
	}
	return err
}

// failure returns the error of a call that did not succeed, or nil if an attempt before the last one did.
func (c *Client) failure(k *call) error {
	if k.Result.Fail != nil {
		e := c.transportError(k)
		if k.Once && k.Result.Acted {
			return c.unknown(k, e)
		}
		return e
	}
	e := c.newError(k)
	if k.Once && (k.Result.Acted || rules.Inconclusive(e.StatusCode)) {
		return c.unknown(k, e)
	}
	if c.deletedBefore(k, e) {
		return nil
	}
	return e
}

// deletedBefore reports whether the "not found" e of a delete means that an attempt before it
// deleted the record, and that only its response was lost.
func (c *Client) deletedBefore(k *call, e *Error) bool {
	switch {
	case k.Method != http.MethodDelete, !k.Result.Lost, !rules.NotFound(e.StatusCode),
		rules.Replaced(k.foreign, rules.Response{ContentType: k.Result.Header.Get("Content-Type"), Body: k.Result.Body}):
		return false
	}
	return k.start.Sub(c.endpoints.CreatedAt(path.Base(k.URL.Path))) >= rules.Grace // a new record may not be readable yet
}

// transportError returns the error of a call that ended with Fail. If the call had a complete
// response and was waiting for its next attempt, Last of the error holds that response.
func (c *Client) transportError(k *call) *TransportError {
	r := &k.Result
	e := &TransportError{RequestInfo: k.info(c.caller.Redactor()), Attempts: r.Attempts, NoBudget: r.NoBudget, Err: r.Fail}
	if r.StatusCode != 0 {
		e.Last = c.newError(k)
	}
	return e
}

// unknown returns the error of a create that may or may not have taken effect.
func (c *Client) unknown(k *call, cause error) error {
	r, info := &k.Result, k.info(c.caller.Redactor())
	body, _ := c.caller.Redactor().Cut(r.Body, maxKept, r.Cut)
	status := max(r.StatusCode, r.Broken)
	info.ID = c.salvageID(k.Route, status, r.Body)
	return &OutcomeUnknownError{RequestInfo: info, Name: k.name(), StatusCode: status, Body: body, Err: cause}
}

// name returns the name of the record to create, from the request body.
func (k *call) name() string {
	return cmp.Or(jsonfield.Salvage(k.Body, "name"), jsonfield.Salvage(k.Body, "file_name"))
}

// Response is a response as it was received. [WithResponse] fills it. It may hold presigned
// URLs and other secrets, so printing, logging or encoding a Response as JSON does not show
// its Body and Header.
type Response struct {
	StatusCode int         // status of the last response; 0 if that response was not complete, or there was none
	Header     http.Header `json:"-"` // header of the last response, as received; nil if there was none
	RequestID  string      // request ID that the service sent in a response header; empty if there was none
	Attempts   int         // number of attempts that were sent
	Body       []byte      `json:"-"` // body as received; of a failed call it may be only the first 64 KiB
}

// String returns the status, the size of the body, the request ID and the number of attempts.
func (r Response) String() string {
	return fmt.Sprintf("%d %s (%d bytes, request %q, %d attempts)", r.StatusCode, http.StatusText(r.StatusCode), len(r.Body), r.RequestID, r.Attempts)
}

// Format prints the text of String for every verb.
func (r Response) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue returns the text of String.
func (r Response) LogValue() slog.Value { return slog.StringValue(r.String()) }
