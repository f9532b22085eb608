package svc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/paging"
	"example.com/svc/internal/redact"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/transfer"
	"example.com/svc/ledger"
)

// These are the kinds of errors that [errors.Is] finds. The error types of this package, which
// [errors.As] finds, hold the details.
var (
	// ErrUnauthorized is returned when the service did not accept the token (401).
	ErrUnauthorized = errors.New("svc: unauthorized")
	// ErrForbidden is returned when the token does not allow the call (403).
	ErrForbidden = errors.New("svc: forbidden")
	// ErrNotFound is returned when there is no such record (404 or 410), or when a wait found
	// that the record is deleted. A record that was just created may not be readable yet. A 404
	// with an HTML page comes from a proxy and proves nothing.
	ErrNotFound = errors.New("svc: not found")
	// ErrConflict is returned when the state of the record does not allow the call (409).
	ErrConflict = errors.New("svc: conflict")
	// ErrRateLimited is returned when the response to the last attempt was 429 (too many
	// requests).
	ErrRateLimited = errors.New("svc: rate limited")
	// ErrServer is returned when the response to the last attempt was a 5xx: the service failed.
	ErrServer = errors.New("svc: server error")
	// ErrRetired is returned when an operation of the legacy job API no longer exists (404 or
	// 410). The service migrated this API to a newer asynchronous inference API, which this
	// package does not cover.
	ErrRetired = errors.New("svc: the legacy job API is retired")
	// ErrOutcomeUnknown is returned when a create or register call was sent, and it is not
	// known whether it took effect. See [OutcomeUnknownError].
	ErrOutcomeUnknown = errors.New("svc: outcome unknown")
	// ErrNoToken is returned when a call needs a token and the client has none. Nothing was
	// sent. See [WithToken].
	ErrNoToken = errors.New("svc: no token: set WithToken, WithTokenSource or SVC_API_TOKEN")
	// ErrNoInferenceURL is returned when the address of endpoints is not known. See
	// [WithInferenceURL].
	ErrNoInferenceURL = errors.New("svc: the address of endpoints is not known: set WithInferenceURL or SVC_INFERENCE_URL")
	// ErrTimeout is returned when an attempt took longer than [WithTimeout] allows, or no byte
	// of a transfer moved for too long. If the caller's own context ended, the error is
	// [context.DeadlineExceeded] or [context.Canceled] instead.
	ErrTimeout = errors.New("svc: attempt timed out")
	// ErrNoLedger is returned when a call needs a ledger and the client has none. Nothing was
	// sent. See [WithLedger].
	ErrNoLedger = errors.New("svc: no ledger: set WithLedger")
	// ErrKeyInUse is returned when the ledger has an endpoint of another request, or two
	// endpoints, under the key of a Deploy. Nothing was sent.
	ErrKeyInUse = ledger.ErrKeyInUse
	// ErrLedgerMark is returned when the description of an endpoint does not hold the mark of the
	// ledger entry, so that the endpoint may be somebody else's.
	ErrLedgerMark = ledger.ErrMark
	// ErrUnavailable is returned when a wait found the inference service in the state
	// unavailable.
	ErrUnavailable = errors.New("svc: the inference service is unavailable")
	// ErrStopped is returned when a wait found the inference service stopped.
	ErrStopped = errors.New("svc: the inference service is stopped")
	// ErrTruncated is returned when a download was cut off, or when the body of an upload had
	// fewer bytes than announced.
	ErrTruncated = errors.New("svc: truncated")
	// ErrLinkExpired is returned when storage refused an expired presigned URL. Ask
	// [FileClient.PresignedURL] for a new one.
	ErrLinkExpired = errors.New("svc: the presigned link has expired")
	// ErrChanged is returned when the file changed while it was being downloaded. The bytes that
	// were already written are those before the change.
	ErrChanged = transfer.ErrChanged
	// ErrJobFailed is returned when a wait found that the job has failed. See [Job.Failed].
	ErrJobFailed = errors.New("svc: the job failed")
	// ErrPagesRepeat is returned when a list of jobs does not advance: two pages in a row held
	// only jobs of earlier pages.
	ErrPagesRepeat = paging.ErrRepeat
)

// RequestInfo identifies the request that an error is about. The error types embed it.
type RequestInfo struct {
	Method    string // "GET"
	Route     string // "/v1/files/{file_id}": the path with its parameters by name
	ID        string // the ID in the path; of an [OutcomeUnknownError], the ID of the new record; empty if there is none
	RequestID string // the request ID of the service, from a header such as X-Request-Id, or from the body; may be empty
}

func (r *RequestInfo) where() string { return "svc: " + r.Method + " " + r.Route + ": " }

// An Error describes a response with a status other than success. Its text can be logged: it holds no
// token and no query of a presigned URL. The text includes only the message, the code and the request
// ID of the body. The service does not document its error bodies. The client searches the usual
// fields for Code, Message and RequestID, so each of them may be empty.
type Error struct {
	RequestInfo
	StatusCode int           // 404
	Code       string        // the error code of the service, from the body
	Message    string        // one line of text, from the body
	RetryAfter time.Duration // how long the service asked to wait; 0 if it did not ask
	Attempts   int           // number of attempts that were sent
	NoBudget   bool          // the call was not tried again because [RetryPolicy.Budget] was used up
	Header     http.Header   // the header of the response, without secrets
	Body       []byte        // the first 64 KiB of the body; tokens and the queries of presigned URLs in it are replaced by REDACTED

	foreign     string      // why the response is not from the service, or not complete; empty if it is a complete response of the service or of storage
	class       rules.Class // origin of the response
	linkExpired bool        // storage refused an expired presigned URL
}

// Error reads "svc: GET /v1/files/{file_id}: 404 Not Found: message".
func (e *Error) Error() string { return apierr.Line(e.where() + e.detail()) }

func (e *Error) detail() string {
	var b strings.Builder
	status := strings.TrimSpace(strconv.Itoa(e.StatusCode) + " " + http.StatusText(e.StatusCode))
	b.WriteString(status)
	if slices.Contains([]int{300, 301, 302, 303, 305, 307, 308}, e.StatusCode) {
		b.WriteString(strings.TrimSuffix(": the redirect is not followed: "+e.Header.Get("Location"), ": "))
	}
	message := e.Message
	switch e.foreign {
	case rules.IsHTML, rules.AsHTML:
		b.WriteString(": " + e.foreign)
		message = strconv.Quote(message)
	}
	if !strings.HasSuffix(status, e.Message) { // the message of an HTML page is often the same as the status
		b.WriteString(": " + message)
	}
	if e.retired() {
		b.WriteString(": the legacy job API is retired; the service migrated it to a newer asynchronous inference API")
	}
	var f apierr.Facts
	f.Add(e.ID != "", "id "+e.ID)
	f.Add(e.Code != "" && e.Code != e.Message, "code "+e.Code)
	f.Add(e.RequestID != "", "request "+e.RequestID)
	f.Add(e.Attempts > 1, fmt.Sprintf("%d attempts", e.Attempts))
	f.Add(e.RetryAfter > 0, "retry after "+e.RetryAfter.Round(time.Second).String())
	f.Add(e.NoBudget, noBudget)
	return b.String() + f.String()
}

// Is reports whether the response is of the kind that target names, such as [ErrNotFound].
func (e *Error) Is(target error) bool {
	s := e.StatusCode
	switch target {
	case ErrUnauthorized:
		return s == http.StatusUnauthorized
	case ErrForbidden:
		return s == http.StatusForbidden
	case ErrNotFound:
		return rules.NotFound(s)
	case ErrConflict:
		return s == http.StatusConflict
	case ErrRateLimited:
		return s == http.StatusTooManyRequests
	case ErrServer:
		return s >= 500
	case ErrRetired:
		return e.retired()
	case ErrLinkExpired:
		return e.linkExpired
	}
	return false
}

func (e *Error) retired() bool {
	return rules.NotFound(e.StatusCode) &&
		(strings.HasPrefix(e.Route, videoJobs) || strings.HasPrefix(e.Route, imageJobs))
}

// A TransportError records that a call got no response, or only a part of one: the connection
// failed, the attempt timed out, ctx ended, there was no token, or the token source or the
// rate limiter failed. If a create or register may have taken effect, the error is an
// [OutcomeUnknownError] instead.
type TransportError struct {
	RequestInfo
	Attempts int    // number of attempts that were sent; 0 if nothing was sent
	NoBudget bool   // the call was not tried again because [RetryPolicy.Budget] was used up
	Last     *Error // the response of the last attempt, if the call ended before the next attempt; nil if there was no response
	Err      error  // the cause; errors.Is and errors.As find context and network errors in it
}

// Error returns the call and the cause, in one line.
func (e *TransportError) Error() string { return apierr.Line(e.where() + e.detail()) }

func (e *TransportError) detail() string {
	var f apierr.Facts
	f.Add(e.Last == nil && e.ID != "", "id "+e.ID)
	f.Add(e.Attempts > 1, fmt.Sprintf("%d attempts", e.Attempts))
	f.Add(e.NoBudget, noBudget)
	text := detail(e.Err) + f.String()
	if e.Last != nil {
		text += ", while waiting to try again after " + e.Last.detail()
	}
	return text
}

// Unwrap returns the cause, and the last response if there was one.
func (e *TransportError) Unwrap() []error {
	if e.Last != nil {
		return []error{e.Err, e.Last}
	}
	return []error{e.Err}
}

// Is makes errors.Is(err, ErrTimeout) true if an attempt took too long.
func (e *TransportError) Is(target error) bool {
	return target == ErrTimeout && cause.Has[*httpcall.TimeoutError](e.Err)
}

// An OutcomeUnknownError records that a create or register was sent and that its outcome is not
// known: the response was lost, cut off, late, or not the promised record. A page of a proxy or
// portal (HTML or XML) with a status from 400, except for 407, does not show the outcome either.
// Nor does a refusal whose body shows the new record with the mark of the ledger. The redirects 307
// and 308 are refusals, since they request the same call again. The endpoint or file record may
// exist, and an instance is billed from its creation. Do not repeat the call before you know whether
// the record exists. To find out, use Name, ID and Body: the service has no call that lists endpoints. With
// [WithLedger], the unknown outcome can be that of an earlier create under the same Key. Then
// this call sent nothing.
//
// [errors.Is] finds only [ErrOutcomeUnknown] and the cause, such as an error of ctx, but no
// other error variable of this package: code that tries again after an [ErrServer] must not
// create twice. [errors.As] finds the types of all errors in Err.
type OutcomeUnknownError struct {
	RequestInfo        // ID is the ID of the new record, if the response (even a broken one) or the ledger shows it
	Name        string // the name of the endpoint or file, as it was sent
	StatusCode  int    // the status of the response; 0 if there was no response
	Body        []byte // the part of the response body that was received, at most 64 KiB, without secrets
	Err         error  // why the outcome is not known
	Key         string // the key of the ledger entry; empty without [WithLedger]
	Intent      string // the Intent of the ledger entry; the mark in the description of the endpoint holds it

	earlier bool // the create of an earlier call is in doubt, and this call sent nothing
}

// Error returns what may have been created, and why the outcome is not known.
func (e *OutcomeUnknownError) Error() string {
	var b strings.Builder
	b.WriteString(e.where())
	name := "the record"
	if e.Name != "" {
		name = strconv.Quote(e.Name)
	}
	switch {
	case e.earlier:
		fmt.Fprintf(&b, "nothing was sent, since an earlier create under the key %s may or may not have created %s: ", e.Key, name)
	case e.created():
		fmt.Fprintf(&b, "%s was created with the ID %s, but the response is broken: ", name, e.ID)
	case e.ID != "":
		fmt.Fprintf(&b, "outcome unknown: %s may or may not have been created, with the ID %s: ", name, e.ID)
	case e.Name == "" && idField[e.Route] == "": // a call of Client.Do, so it is not known what it creates
		b.WriteString("outcome unknown: the call may or may not have taken effect: ")
	default:
		fmt.Fprintf(&b, "outcome unknown: %s may or may not have been created: ", name)
	}
	b.WriteString(detail(e.Err))
	if !e.earlier && !e.created() { // a 4xx is a page of a proxy or portal: the text of Err says so
		b.WriteString("; do not repeat the call before you know the outcome: look for the record at the provider")
		if e.Key != "" {
			b.WriteString(", then call Ledger.Adopt or Ledger.Forget")
		}
	}
	return apierr.Line(b.String())
}

// created reports whether the response shows that the record was created: it is broken, but
// has a 2xx status and shows the ID.
func (e *OutcomeUnknownError) created() bool {
	return e.ID != "" && e.StatusCode/100 == 2
}

// sentinels are the reasons for a failed call. An OutcomeUnknownError matches none of them.
var sentinels = []error{
	ErrUnauthorized, ErrForbidden, ErrNotFound, ErrConflict, ErrRateLimited, ErrServer, ErrRetired, ErrNoToken, ErrNoInferenceURL,
	ErrTimeout, ErrNoLedger, ErrKeyInUse, ErrLedgerMark, ErrUnavailable, ErrStopped, ErrTruncated, ErrLinkExpired, ErrChanged,
	ErrJobFailed, ErrPagesRepeat,
}

// Is reports whether target is [ErrOutcomeUnknown], or an error in Err that is not one of the
// other error variables of this package.
func (e *OutcomeUnknownError) Is(target error) bool {
	if target == ErrOutcomeUnknown {
		return true
	}
	return !slices.Contains(sentinels, target) && errors.Is(e.Err, target)
}

// As finds the first error in Err that matches target. OutcomeUnknownError has no Unwrap
// method, since errors.Is would then find every error in Err.
func (e *OutcomeUnknownError) As(target any) bool { return errors.As(e.Err, target) }

// A DecodeError records that a response had a 2xx status but was not the documented one. For
// example, its body was empty, was not JSON, held an error, held the record of another ID, or had a
// value of the wrong type.
type DecodeError struct {
	RequestInfo
	StatusCode  int    // 200 to 299
	ContentType string // the Content-Type of the response
	Field       string // "flavor_list[3].available_num": the field that is wrong; empty if the whole response is wrong
	Excerpt     string // the beginning of the response as one line, without secrets
	Err         error  // the error of the JSON decoder, or a description of what else is wrong

	foreign string      // why the response is not the service's own; empty if it is the service's
	class   rules.Class // origin of the response
}

// Error names the call, the field and the problem.
func (e *DecodeError) Error() string { return apierr.Line(e.where() + e.detail()) }

func (e *DecodeError) detail() string {
	text := fmt.Sprintf("the response (%d, %s) is not what the service promises: ", e.StatusCode, cmp.Or(e.ContentType, "no content type"))
	switch {
	case e.foreign == rules.IsHTML && cause.Has[*json.SyntaxError](e.Err):
		text += rules.IsHTML
	case e.Field != "":
		text += e.Field + ": " + detail(e.Err)
	default:
		text += detail(e.Err)
	}
	if shown := e.Field == "" || errors.Is(e.Err, errMissing); shown && e.Excerpt != "" && !errors.Is(e.Err, io.ErrUnexpectedEOF) {
		text += ": " + strconv.Quote(e.Excerpt)
	}
	var f apierr.Facts
	f.Add(e.ID != "", "id "+e.ID)
	f.Add(e.RequestID != "", "request "+e.RequestID)
	return text + f.String()
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// A FieldProblem describes one thing that is wrong with a request.
type FieldProblem struct {
	Field   string // "deploy_metadata.port": the place in the request body; or the name of an option or argument
	Problem string // "must be between 1 and 65535"
}

// A ValidationError records that a request was not sent because something in it is invalid.
type ValidationError struct {
	Fields []FieldProblem // everything that is wrong, in the order of the request
}

// Error lists all Fields with their problems.
func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + " " + f.Problem
	}
	return apierr.Line("svc: not sent: " + strings.Join(parts, "; "))
}

// problems collects what is wrong with a request.
type problems []FieldProblem

func (p *problems) add(bad bool, field, problem string) {
	if bad {
		*p = append(*p, FieldProblem{field, problem})
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &ValidationError{Fields: p}
}

// invalid returns a ValidationError with one problem.
func invalid(field, problem string) error {
	return &ValidationError{Fields: []FieldProblem{{field, problem}}}
}

const noBudget = "no retry: the retry budget of the client is used up"

// detail returns the text of err for use inside the text of another error: one line, without
// the prefix "svc: ", and without the method and route if err has a method detail.
func detail(err error) string {
	if err == nil {
		return "no reason is given"
	}
	if d, ok := err.(interface{ detail() string }); ok {
		return apierr.Line(d.detail())
	}
	return apierr.Line(strings.TrimPrefix(err.Error(), "svc: "))
}

// An explained error has a text of its own, and matches the errors that it holds.
type explained struct {
	text string
	errs []error
}

func (e *explained) Error() string   { return apierr.Line("svc: " + e.text) }
func (e *explained) detail() string  { return e.text }
func (e *explained) Unwrap() []error { return e.errs }

// safe removes the secrets from an error that came from the caller's code: from ctx, from a
// caller-supplied function, or from the caller's reader or writer. It returns err itself if
// err holds no secret.
func (c *Client) safe(err error) error { return c.caller.Redactor().Error(err) }

// clean returns s without secrets.
func (c *Client) clean(text string) string { return c.caller.Redactor().String(text) }

// orZero returns *p, or the zero value if p is nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// info identifies the last request of a call.
func (k *call) info(red *redact.Redactor) RequestInfo {
	return RequestInfo{Method: k.Method, Route: k.Route, ID: red.String(k.ID), RequestID: apierr.RequestID(k.Result.Header, red.String)}
}
