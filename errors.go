package svc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/cause"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/paging"
	"example.com/svc/internal/transfer"
)

// The kinds of errors, for [errors.Is]. The error types of this package hold the facts, for
// [errors.As].
var (
	// ErrUnauthorized: the service did not accept the token (401).
	ErrUnauthorized = errors.New("svc: unauthorized")
	// ErrForbidden: the token may not do this (403).
	ErrForbidden = errors.New("svc: forbidden")
	// ErrNotFound: there is no such record (404 or 410), or a wait found that
	// the record is deleted. A record that was just created may not be readable yet. A 404
	// with an HTML page comes from a proxy and proves nothing.
	ErrNotFound = errors.New("svc: not found")
	// ErrConflict: the state of the record does not allow the call (409).
	ErrConflict = errors.New("svc: conflict")
	// ErrRateLimited: too many requests (429), still after all attempts.
	ErrRateLimited = errors.New("svc: rate limited")
	// ErrServer: the service failed (any 5xx), still after all attempts.
	ErrServer = errors.New("svc: server error")
	// ErrRedirect: the response is a redirect that is not followed (3xx).
	ErrRedirect = errors.New("svc: redirect not followed")
	// ErrRetired: an operation of the legacy job API no longer exists (404 or 410). The
	// service migrated it to a newer asynchronous inference API, which this
	// package does not cover.
	ErrRetired = errors.New("svc: the legacy job API is retired")
	// ErrOutcomeUnknown: a create or register call was sent, and whether it took
	// effect is not known. See [OutcomeUnknownError].
	ErrOutcomeUnknown = errors.New("svc: outcome unknown")
	// ErrNoToken: the call needs a token and the client has none. Nothing was
	// sent. See [WithToken].
	ErrNoToken = errors.New("svc: no token: set WithToken, WithTokenSource or SVC_API_TOKEN")
	// ErrNoInferenceURL: the address of endpoints is not known. See
	// [WithInferenceURL].
	ErrNoInferenceURL = errors.New("svc: the address of endpoints is not known: set WithInferenceURL or SVC_INFERENCE_URL")
	// ErrTimeout: one attempt took longer than [WithTimeout] allows, or no byte of a
	// transfer moved for too long. The end of the caller's own context is
	// [context.DeadlineExceeded] instead.
	ErrTimeout = errors.New("svc: attempt timed out")
	// ErrTooLarge: a response was larger than this package reads (32 MiB).
	ErrTooLarge = httpcall.ErrTooLarge
	// ErrUnavailable: a wait found the inference service in the state unavailable.
	ErrUnavailable = errors.New("svc: the inference service is unavailable")
	// ErrStopped: a wait found the inference service stopped.
	ErrStopped = errors.New("svc: the inference service is stopped")
	// ErrTruncated: a transfer ended before all announced bytes were received.
	ErrTruncated = errors.New("svc: truncated")
	// ErrLinkExpired: storage refused a presigned URL because its time is over. Ask
	// [FileClient.PresignedURL] for a new one.
	ErrLinkExpired = errors.New("svc: the presigned link has expired")
	// ErrChanged: the file changed while it was being downloaded. What has been written
	// is from before the change.
	ErrChanged = transfer.ErrChanged
	// ErrJobFailed: a wait found that the job has failed. See [Job.Failed].
	ErrJobFailed = errors.New("svc: the job failed")
	// ErrPagesRepeat: a list of jobs does not advance. Two pages in a row held only jobs
	// of earlier pages.
	ErrPagesRepeat = paging.ErrRepeat
)

// Error is a response with a status other than success. Its text can be logged: it
// holds no token, no query of a presigned URL, and of the body only the message. The
// service does not document its error bodies. Code, Message and RequestID are searched in
// the usual places, and may be empty.
type Error struct {
	Method     string        // "GET"
	Route      string        // "/v1/files/{file_id}": the path with its parameters by name
	ID         string        // that stood in the path; empty for a call without one
	StatusCode int           // 404
	Code       string        // the service's own code, from the body
	Message    string        // one line of text, from the body
	RequestID  string        // from a header such as X-Request-Id, or the body
	RetryAfter time.Duration // how long the service asked to wait; 0: it did not ask
	Attempts   int           // how often the call was sent
	NoBudget   bool          // it was not tried again because [RetryPolicy.Budget] was used up
	Header     http.Header   // of the response, without secrets
	Body       []byte        // the first 64 KiB; a token or the query of a presigned URL in it is replaced by REDACTED

	foreign     string // why the response is not the service's own, or not whole
	linkExpired bool   // storage refused a presigned URL because its time is over
}

// Error reads "svc: GET /v1/files/{file_id}: 404 Not Found: message".
func (e *Error) Error() string { return apierr.Line(where(e.Method, e.Route) + e.detail()) }

func (e *Error) detail() string {
	var b strings.Builder
	status := strconv.Itoa(e.StatusCode)
	if text := http.StatusText(e.StatusCode); text != "" {
		status += " " + text
	}
	b.WriteString(status)
	if e.StatusCode >= 300 && e.StatusCode < 400 {
		b.WriteString(": the redirect is not followed")
		if to := e.Header.Get("Location"); to != "" {
			b.WriteString(": " + to)
		}
	}
	message := e.Message
	if e.foreign == isHTML {
		b.WriteString(": " + isHTML)
		message = strconv.Quote(message)
	}
	if e.Message != "" && !strings.HasSuffix(status, e.Message) { // an HTML page often says no more than its status
		b.WriteString(": " + message)
	}
	if e.retired() {
		b.WriteString(": the legacy job API is retired; the service migrated it to a newer asynchronous inference API")
	}
	var f facts
	f.add(e.ID != "", "id "+e.ID)
	f.add(e.Code != "" && e.Code != e.Message, "code "+e.Code)
	f.add(e.RequestID != "", "request "+e.RequestID)
	f.add(e.Attempts > 1, fmt.Sprintf("%d attempts", e.Attempts))
	f.add(e.RetryAfter > 0, "retry after "+e.RetryAfter.Round(time.Second).String())
	f.add(e.NoBudget, noBudget)
	return b.String() + f.text()
}

// Is reports whether the response is one of the kinds above.
func (e *Error) Is(target error) bool {
	s := e.StatusCode
	switch target {
	case ErrUnauthorized:
		return s == http.StatusUnauthorized
	case ErrForbidden:
		return s == http.StatusForbidden
	case ErrNotFound:
		return s == http.StatusNotFound || s == http.StatusGone
	case ErrConflict:
		return s == http.StatusConflict
	case ErrRateLimited:
		return s == http.StatusTooManyRequests
	case ErrServer:
		return s >= 500
	case ErrRedirect:
		return s >= 300 && s < 400
	case ErrRetired:
		return e.retired()
	case ErrLinkExpired:
		return e.linkExpired
	}
	return false
}

func (e *Error) retired() bool {
	return (e.StatusCode == http.StatusNotFound || e.StatusCode == http.StatusGone) &&
		(strings.HasPrefix(e.Route, videoJobs) || strings.HasPrefix(e.Route, imageJobs))
}

// TransportError says that a call got no response, or not a whole one: the connection
// failed, the attempt timed out, ctx ended, there was no token, or the rate limiter
// refused. A create or register that may have taken effect is an [OutcomeUnknownError]
// instead.
type TransportError struct {
	Method   string // "GET"
	Route    string // "/v1/files/{file_id}": the path with its parameters by name
	ID       string // that stood in the path; empty for a call without one
	Attempts int    // how often the call was sent; 0: nothing was sent
	NoBudget bool   // it was not tried again because [RetryPolicy.Budget] was used up
	Last     *Error // the response of the latest attempt, when ctx ended before the next one; nil: there was none
	Err      error  // the cause; context and network errors can be reached through it
}

// Error names the call and the cause.
func (e *TransportError) Error() string { return apierr.Line(where(e.Method, e.Route) + e.detail()) }

func (e *TransportError) detail() string {
	var f facts
	f.add(e.Last == nil && e.ID != "", "id "+e.ID)
	f.add(e.Attempts > 1, fmt.Sprintf("%d attempts", e.Attempts))
	f.add(e.NoBudget, noBudget)
	text := detail(e.Err) + f.text()
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

// Is reports ErrTimeout for an attempt that took too long.
func (e *TransportError) Is(target error) bool {
	return target == ErrTimeout && cause.Has[*httpcall.TimeoutError](e.Err)
}

// OutcomeUnknownError says that a create was sent and that its outcome is not known: the
// response was lost, cut off, late or not the promised record. What was to be created may
// exist, and an instance is billed from its creation. Do not repeat the call. The service
// has no call that lists endpoints: keep Name and ID, read Body, and find out first.
type OutcomeUnknownError struct {
	Method     string // "POST"
	Route      string // "/v1/inference-service"
	Name       string // that was sent: of the endpoint, or of the file
	ID         string // of the new record, if a part of the response shows it; empty otherwise
	RequestID  string // the service's, if there was a response; may be empty
	StatusCode int    // of the response; 0: there was none
	Body       []byte // what was received of the response, at most 64 KiB, without secrets
	Err        error  // why the outcome is not known
	Key        string // of the ledger entry; empty without [WithLedger]
	Intent     string // of the ledger entry; the mark in the endpoint's description holds it

	earlier bool // the create of an earlier call is in doubt, and this call sent nothing
}

// Error says what may exist and why that is not known.
func (e *OutcomeUnknownError) Error() string {
	var b strings.Builder
	b.WriteString(where(e.Method, e.Route))
	name := "the record"
	if e.Name != "" {
		name = strconv.Quote(e.Name)
	}
	switch {
	case e.earlier:
		fmt.Fprintf(&b, "nothing was sent, since an earlier create under the key %s may or may not have created %s: ", e.Key, name)
	case e.created():
		fmt.Fprintf(&b, "the response is broken, but %s was created, with the ID %s: ", name, e.ID)
	case e.ID != "":
		fmt.Fprintf(&b, "outcome unknown: %s may or may not have been created, with the ID %s: ", name, e.ID)
	case e.Name == "" && idField[e.Route] == "": // a call through Do
		b.WriteString("outcome unknown: the call may or may not have taken effect: ")
	default:
		fmt.Fprintf(&b, "outcome unknown: %s may or may not have been created: ", name)
	}
	b.WriteString(detail(e.Err))
	if !e.earlier && !e.created() {
		b.WriteString("; do not repeat the call before you know the outcome")
	}
	return apierr.Line(b.String())
}

// created reports whether the response, although broken, shows that the record was
// created, and its ID.
func (e *OutcomeUnknownError) created() bool {
	return e.ID != "" && e.StatusCode >= 200 && e.StatusCode < 300
}

// Unwrap returns the cause.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrOutcomeUnknown) true.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// DecodeError says that the service reported success, but sent something other
// than what it promises: not JSON, empty, a record without its ID, a record
// with another ID, or a value of the wrong type.
type DecodeError struct {
	Method      string // "GET"
	Route       string // "/v1/files/{file_id}": the path with its parameters by name
	ID          string // that stood in the path; empty for a call without one
	StatusCode  int    // 200 to 299
	ContentType string // of the response
	RequestID   string // the service's; may be empty
	Field       string // "flavor_list[3].available_num"; empty when the whole response is not as promised
	Excerpt     string // the beginning of the response, one line, without secrets
	Err         error  // of the decoder, or what is missing

	foreign string // why the response is not the service's own
}

// Error names the call, the field and the problem.
func (e *DecodeError) Error() string { return apierr.Line(where(e.Method, e.Route) + e.detail()) }

func (e *DecodeError) detail() string {
	text := fmt.Sprintf("the response (%d, %s) is not what the service promises: ", e.StatusCode, cmp.Or(e.ContentType, "no content type"))
	switch {
	case e.foreign == isHTML && cause.Has[*json.SyntaxError](e.Err):
		text += isHTML
	case e.Field != "":
		text += e.Field + ": " + detail(e.Err)
	default:
		text += detail(e.Err)
	}
	if shown := e.Field == "" || errors.Is(e.Err, errMissing); shown && e.Excerpt != "" && !errors.Is(e.Err, io.ErrUnexpectedEOF) {
		text += ": " + strconv.Quote(e.Excerpt)
	}
	var f facts
	f.add(e.ID != "", "id "+e.ID)
	f.add(e.RequestID != "", "request "+e.RequestID)
	return text + f.text()
}

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// Cleanup says what became of what a failed [InferenceServiceClient.Deploy] or
// [FileClient.Upload] had created.
type Cleanup string

const (
	// CleanupNone: nothing was deleted, since no cleanup was asked for. What was created still exists.
	CleanupNone Cleanup = ""
	// CleanupDeleted: it was deleted, and was seen to be deleted.
	CleanupDeleted Cleanup = "deleted"
	// CleanupAccepted: the service accepted the delete, but nothing showed yet that it took effect.
	CleanupAccepted Cleanup = "accepted"
	// CleanupFailed: the delete failed. What was created may still exist.
	CleanupFailed Cleanup = "failed"
)

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Field   string // as in the request body, "deploy_metadata.port", or the name of the option or argument
	Problem string // "must be between 1 and 65535"
}

// ValidationError says that a request was not sent because it cannot be right.
// It names everything that is wrong with it.
type ValidationError struct {
	Fields []FieldError // everything that is wrong, in the order of the request
}

// Error lists all fields.
func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + " " + f.Problem
	}
	return apierr.Line("svc: not sent: " + strings.Join(parts, "; "))
}

// problems collects what is wrong with a request.
type problems []FieldError

func (p *problems) add(bad bool, field, problem string) {
	if bad {
		*p = append(*p, FieldError{field, problem})
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &ValidationError{Fields: p}
}

// allProblems makes one error of what is wrong with the parts of a request.
func allProblems(errs ...error) error {
	var all problems
	for _, err := range errs {
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*ValidationError](err)
		if !ok {
			return err
		}
		all = append(all, e.Fields...)
	}
	return all.err()
}

func where(method, route string) string { return "svc: " + method + " " + route + ": " }

const noBudget = "no retry: the retry budget of the client is used up"

// facts stand in brackets at the end of the text of an error.
type facts []string

func (f *facts) add(known bool, fact string) {
	if known {
		*f = append(*f, fact)
	}
}

func (f facts) text() string {
	if len(f) == 0 {
		return ""
	}
	return " (" + strings.Join(f, ", ") + ")"
}

// detail is the text of an error for use within another: one line, without "svc: " and
// without the call.
func detail(err error) string {
	if err == nil {
		return "no reason is given"
	}
	if d, ok := err.(interface{ detail() string }); ok {
		return apierr.Line(d.detail())
	}
	return apierr.Line(strings.TrimPrefix(err.Error(), "svc: "))
}

// safe takes the secrets out of an error that came from the caller's side: from ctx, from
// one of its functions, or from a body or writer. It returns err itself when there is
// nothing to hide.
func (c *Client) safe(err error) error { return c.caller.Redactor().Error(err) }

// orZero is what p points to, and the zero value without it.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// newError makes an Error of a response.
func (c *Client) newError(k *call, r *httpcall.Result) *Error {
	red := cmp.Or(k.Redact, c.caller.Redactor())
	contentType := r.Header.Get("Content-Type")
	body, _ := red.Cut(r.Body, len(r.Body), r.Cut)
	info := apierr.Parse(contentType, body, red.String)
	e := &Error{
		Method: k.Method, Route: k.Route, ID: red.String(k.ID), StatusCode: r.StatusCode,
		Code: info.Code, Message: info.Message,
		RequestID:  cmp.Or(apierr.RequestID(r.Header, red.String), info.RequestID),
		RetryAfter: r.RetryAfter, Attempts: r.Attempts, NoBudget: r.NoBudget,
		Header: red.Header(r.Header), Body: body,
	}
	if e.Message == "" && e.Code == "" && len(r.Body) > 0 {
		e.Message = apierr.Excerpt(contentType, body, red.String)
	}
	if encoded := r.Encoding(); encoded != "" {
		e.Code, e.Message = "", encoded
	}
	if k.Route == transfer.Route {
		return e // storage writes XML
	}
	e.foreign = foreign(contentType, r.Body, r.Cut)
	if to, err := url.Parse(r.Header.Get("Location")); e.foreign == "" && err == nil && r.StatusCode < 400 && to.Host != "" && !httpcall.SameOrigin(to, &c.base.URL) {
		e.foreign = "a redirect to another host"
	}
	return e
}
