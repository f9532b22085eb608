package faults_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/errno"
)

// matrixKind classifies a fault. matrixRules says what each kind means for a call.
type matrixKind int

const (
	matrixUnsent          matrixKind = iota // failed before anything was sent
	matrixHopeless                          // nothing was sent, and a retry would fail as well
	matrixLost                              // the connection was lost
	matrixLate                              // an attempt took longer than its limit
	matrixLimited                           // 429
	matrixOverload                          // 500, 502, 503, 504
	matrixRefusal                           // a status that refuses the request
	matrixDoubt                             // a status that does not say whether the request had an effect
	matrixTooLong                           // 429 with a Retry-After that is too long
	matrixTooLongOverload                   // 503 with a Retry-After that is too long
	matrixJunk                              // 2xx with an HTML page
	matrixNoRecord                          // 2xx with something other than a record
	matrixTooLarge                          // 2xx with more than 32 MiB
	matrixHeaders                           // 2xx whose body is cut off or too slow
)

// matrixFault is a fault that a request meets.
type matrixFault struct {
	name   string
	kind   matrixKind
	status int           // status of the response, if the response is complete
	acts   bool          // the request takes effect before the fault
	relays bool          // the responses come from the service itself, cut off
	stalls bool          // the fault lasts until the attempt's timeout
	cause  error         // errors.Is(err, cause) must be true
	only   []string      // operations that the fault applies to; nil: all
	wait   time.Duration // delay that Retry-After asks for
	most   time.Duration // latest time of the next attempt, if Retry-After is set
	do     func(c *matrixCell, req *http.Request) (*http.Response, error)
}

// leak returns a text with all secrets that the cell knows. A careless service might send
// such a text back.
func (c *matrixCell) leak(req *http.Request) string {
	return fmt.Sprintf("Authorization: %s; token=%s; link %s; query %s; signature provided: %s", req.Header.Get("Authorization"),
		matrixToken, string(c.link), req.URL.RawQuery, req.URL.Query().Get("X-Amz-Signature"))
}

// answer makes a complete response.
func (c *matrixCell) answer(req *http.Request, status int, contentType, body string) *http.Response {
	return c.track(&http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {contentType}, "X-Request-Id": {"req " + string(c.link) + " " + matrixToken}, "X-Echo": {c.leak(req)}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: req,
	})
}

// matrixSend reads the request body, as a connection that sends the request does.
func matrixSend(req *http.Request) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
}

// matrixBroken is a response body that fails with err. If err is nil, it blocks until the
// request ends.
type matrixBroken struct {
	io.Reader
	req *http.Request
	err error // nil: Read blocks
}

func (b *matrixBroken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != io.EOF {
		return n, err
	}
	if b.err != nil {
		return n, b.err
	}
	<-b.req.Context().Done()
	return n, b.req.Context().Err()
}

func (b *matrixBroken) Close() error { return nil }

// breakOff returns the service's own response, but cuts its body off and ends it with
// err.
func breakOff(c *matrixCell, req *http.Request, keep func(n int) int, err error) (*http.Response, error) {
	resp, failed := c.pass(req)
	if failed != nil {
		return nil, failed
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if len(b) == 0 { // a delete has an empty body; give it one that can be cut off
		b = []byte("{}")
	}
	resp.ContentLength = int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	resp.Body = &matrixBroken{bytes.NewReader(b[:keep(len(b))]), req, err}
	return c.track(resp), nil
}

func matrixFails(before func(*matrixCell, *http.Request), err error) func(*matrixCell, *http.Request) (*http.Response, error) {
	return func(c *matrixCell, req *http.Request) (*http.Response, error) {
		before(c, req)
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
}

func matrixSays(status int, contentType, body string) func(*matrixCell, *http.Request) (*http.Response, error) {
	return func(c *matrixCell, req *http.Request) (*http.Response, error) {
		matrixSend(req)
		return c.answer(req, status, contentType, strings.ReplaceAll(body, "LEAK", c.leak(req))), nil
	}
}

// matrixSaysHalf returns an error response whose body is cut off with err.
func matrixSaysHalf(status int, err error) func(*matrixCell, *http.Request) (*http.Response, error) {
	return func(c *matrixCell, req *http.Request) (*http.Response, error) {
		matrixSend(req)
		text := `{"message":"` + c.leak(req)
		resp := c.answer(req, status, "application/json", "")
		resp.ContentLength = int64(2 * len(text))
		resp.Body.(*matrixBody).ReadCloser = &matrixBroken{strings.NewReader(text), req, err}
		return resp, nil
	}
}

// after passes the request to the service first, and then returns the response of f.
func after(f func(*matrixCell, *http.Request) (*http.Response, error)) func(*matrixCell, *http.Request) (*http.Response, error) {
	return func(c *matrixCell, req *http.Request) (*http.Response, error) {
		if resp, err := c.pass(req); err == nil {
			resp.Body.Close()
		}
		req.Body = nil
		return f(c, req)
	}
}

func matrixRetryAfter(status int, value func() string) func(*matrixCell, *http.Request) (*http.Response, error) {
	return func(c *matrixCell, req *http.Request) (*http.Response, error) {
		matrixSend(req)
		resp := c.answer(req, status, "application/json", `{"message":"later"}`)
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		resp.Header.Set("Retry-After", value())
		return resp, nil
	}
}

func dialError(err error) error  { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
func readError(err error) error  { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
func writeError(err error) error { return &net.OpError{Op: "write", Net: "tcp", Err: err} }

func nothing(*matrixCell, *http.Request)     {}
func sends(_ *matrixCell, req *http.Request) { matrixSend(req) }
func sendsHalf(_ *matrixCell, req *http.Request) {
	if req.Body != nil {
		_, _ = io.CopyN(io.Discard, req.Body, max(req.ContentLength/2, 1))
	}
}
func takesEffect(c *matrixCell, req *http.Request) {
	if resp, err := c.pass(req); err == nil {
		resp.Body.Close()
	}
}

func stalls(c *matrixCell, req *http.Request) (*http.Response, error) {
	matrixSend(req)
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func half(n int) int { return n / 2 }
func none(int) int   { return 0 }

// matrixFaults are the faults that can be simulated without a network.
var matrixFaults = slices.Concat([]matrixFault{
	{name: "refused", kind: matrixUnsent, cause: errno.ConnRefused, do: matrixFails(nothing, dialError(errno.ConnRefused))},
	{name: "no such host", kind: matrixUnsent, do: matrixFails(nothing, dialError(&net.DNSError{Err: "no such host", Name: "svc.test", IsNotFound: true}))},
	{name: "certificate", kind: matrixHopeless, do: matrixFails(nothing, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})},
	{name: "closed without answer", kind: matrixLost, cause: io.EOF, do: matrixFails(sends, io.EOF)},
	{name: "closed while sending", kind: matrixLost, cause: errno.Pipe, do: matrixFails(sendsHalf, writeError(errno.Pipe))},
	{name: "closed after effect", kind: matrixLost, acts: true, cause: io.EOF, do: matrixFails(takesEffect, io.EOF)},
	{name: "reset", kind: matrixLost, cause: errno.ConnReset, do: matrixFails(sends, readError(errno.ConnReset))},
	{name: "reset after effect", kind: matrixLost, acts: true, cause: errno.ConnReset, do: matrixFails(takesEffect, readError(errno.ConnReset))},
	{name: "malformed", kind: matrixLost, acts: true, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		takesEffect(c, req)
		return nil, fmt.Errorf("net/http: HTTP/1.x transport connection broken: malformed HTTP status code %q", c.leak(req))
	}},
	{name: "reset in the answer", kind: matrixHeaders, acts: true, relays: true, cause: errno.ConnReset, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		return breakOff(c, req, half, readError(errno.ConnReset))
	}},
	{name: "answer cut", kind: matrixHeaders, acts: true, relays: true, cause: io.ErrUnexpectedEOF, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		return breakOff(c, req, half, io.ErrUnexpectedEOF)
	}},
	{name: "slow headers", kind: matrixLate, stalls: true, do: stalls},
	{name: "slow headers after effect", kind: matrixLate, stalls: true, acts: true, do: after(stalls)},
	{name: "slow body", kind: matrixHeaders, acts: true, relays: true, stalls: true, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		return breakOff(c, req, none, nil)
	}},

	{name: "404 cut", kind: matrixRefusal, status: 404, do: matrixSaysHalf(404, io.ErrUnexpectedEOF)},
	{name: "503 reset", kind: matrixOverload, status: 503, do: matrixSaysHalf(503, readError(errno.ConnReset))},
	{name: "403 that stalls", kind: matrixRefusal, status: 403, stalls: true, do: matrixSaysHalf(403, nil)},
	{name: "503 that stalls", kind: matrixOverload, status: 503, stalls: true, do: matrixSaysHalf(503, nil)},

	{name: "429", kind: matrixLimited, status: 429, do: matrixSays(429, "application/json", `{"error":{"message":"LEAK"}}`)},
	{name: "429 with seconds", kind: matrixLimited, status: 429, wait: 3 * time.Second, most: 3300 * time.Millisecond, do: matrixRetryAfter(429, func() string { return "3" })},
	{name: "429 with a date", kind: matrixLimited, status: 429, wait: 3 * time.Second, most: 3300 * time.Millisecond, do: matrixRetryAfter(429, func() string {
		return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
	})},
	{name: "429 with an hour", kind: matrixTooLong, status: 429, wait: time.Hour, do: matrixRetryAfter(429, func() string { return "3600" })},
	{name: "503 with seconds", kind: matrixOverload, status: 503, wait: 3 * time.Second, most: 3300 * time.Millisecond, do: matrixRetryAfter(503, func() string { return "3" })},
	{name: "503 with a date", kind: matrixOverload, status: 503, wait: 3 * time.Second, most: 3300 * time.Millisecond, do: matrixRetryAfter(503, func() string {
		return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
	})},
	{name: "503 with an hour", kind: matrixTooLongOverload, status: 503, wait: time.Hour, do: matrixRetryAfter(503, func() string { return "3600" })},
	{name: "503 with a date tomorrow", kind: matrixTooLongOverload, status: 503, wait: 24 * time.Hour, do: matrixRetryAfter(503, func() string {
		return time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)
	})},
	{name: "503 with nonsense", kind: matrixOverload, status: 503, do: matrixRetryAfter(503, func() string { return "soon" })},
	{name: "503 with less than nothing", kind: matrixOverload, status: 503, do: matrixRetryAfter(503, func() string { return "-7" })},
	{name: "429 with a date gone by", kind: matrixLimited, status: 429, do: matrixRetryAfter(429, func() string {
		return time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	})},
	{name: "429 with eternity", kind: matrixTooLong, status: 429, do: matrixRetryAfter(429, func() string { return "99999999999999999999" })},
	{name: "502 after effect", kind: matrixOverload, acts: true, status: 502, do: after(matrixSays(502, "text/html", "<html><h1>LEAK</h1></html>"))},

	{name: "page of markup", kind: matrixJunk, status: 200, do: matrixSays(200, "text/html", "<!DOCTYPE html><html><title>Sign in LEAK</title></html>")},
	{name: "page of markup after effect", kind: matrixJunk, acts: true, status: 200, do: after(matrixSays(200, "text/html", "<!DOCTYPE html><html><title>Sign in LEAK</title></html>"))},
	{name: "empty", kind: matrixNoRecord, acts: true, status: 200, do: after(matrixSays(200, "application/json", ""))},
	{name: "half of the JSON", kind: matrixNoRecord, acts: true, status: 200, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		resp, err := breakOff(c, req, half, io.EOF)
		if err == nil {
			resp.ContentLength /= 2
		}
		return resp, err
	}},
	{name: "JSON of another shape", kind: matrixNoRecord, acts: true, status: 200, do: after(matrixSays(200, "application/json", `"LEAK"`))},
	{name: "record without an id", kind: matrixNoRecord, acts: true, status: 200, only: []string{
		"InferenceServices.Create", "InferenceServices.Get", "InferenceServices.Update", "VideoJobs.Create", "VideoJobs.Get",
		"ImageJobs.Create", "ImageJobs.Get", "Files.Register", "Files.Get", "Files.PresignedURL", "Files.Upload register", "Files.Download link", "Files.Replace link",
	}, do: after(matrixSays(200, "application/json", `{"status":"available","name":"LEAK"}`))},
	{name: "record of another id", kind: matrixNoRecord, acts: true, status: 200, only: []string{
		"InferenceServices.Get", "InferenceServices.Update", "VideoJobs.Get", "ImageJobs.Get", "Files.Get",
	}, do: after(matrixSays(200, "application/json", `{"service_id":"x","job_id":"x","id":"x","status":"available","name":"LEAK"}`))},
	{name: "record and more", kind: matrixNoRecord, acts: true, status: 200, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		resp, err := c.pass(req)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			b = append(b, " and "+c.leak(req)...)
			resp.ContentLength = int64(len(b))
			resp.Body.(*matrixBody).ReadCloser = io.NopCloser(bytes.NewReader(b))
		}
		return resp, err
	}},
	{name: "too large", kind: matrixTooLarge, acts: true, status: 200, do: func(c *matrixCell, req *http.Request) (*http.Response, error) {
		takesEffect(c, req)
		req.Body = nil
		resp := c.answer(req, 200, "application/json", "")
		resp.ContentLength = 33 << 20
		resp.Body.(*matrixBody).ReadCloser = io.NopCloser(io.LimitReader(matrixSpaces{}, 33<<20))
		return resp, nil
	}},
}, matrixStatuses())

// matrixSpaces is an endless reader of spaces.
type matrixSpaces struct{}

func (matrixSpaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// matrixStatuses returns a fault for each of many error statuses.
func matrixStatuses() (faults []matrixFault) {
	kinds := map[int]matrixKind{
		500: matrixOverload, 502: matrixOverload, 503: matrixOverload, 504: matrixOverload,
		300: matrixDoubt, 304: matrixDoubt, 408: matrixDoubt, 507: matrixDoubt, 511: matrixDoubt, 520: matrixDoubt, 599: matrixDoubt,
	}
	for _, status := range []int{300, 304, 400, 401, 403, 404, 405, 408, 409, 410, 413, 418, 422, 425, 451, 500, 501, 502, 503, 504, 505, 507, 511, 520, 599} {
		kind, ok := kinds[status]
		if !ok {
			kind = matrixRefusal
		}
		body, contentType := `{"code":"c","message":"LEAK"}`, "application/json"
		if status%2 == 1 {
			body, contentType = "<html><body>LEAK</body></html>", "text/html"
			if kind == matrixRefusal { // the page may stand in place of the response of the service
				kind = matrixDoubt
			}
		}
		faults = append(faults, matrixFault{name: strconv.Itoa(status), kind: kind, status: status, do: matrixSays(status, contentType, body)})
	}
	return faults
}
