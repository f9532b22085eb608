// Package rules decides who sent a response, when an endpoint is deleted, and what ends a
// wait. Its functions are pure, with the time as an argument. Their callers gather
// observations and act on the verdicts.
package rules

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// Class is the origin of the result of an attempt.
type Class int

// The classes of [Classify] are Service and Intermediary. The others are for attempts without
// a response.
const (
	Service      Class = iota // a complete response in the service's own form
	Intermediary              // a response of a proxy, a gateway or a router, or a part of a response
	Transport                 // no response: the connection, DNS or TLS failed, or the attempt timed out
	Local                     // nothing was sent: the token source, the rate limiter or another caller-supplied function failed
)

// Response holds the parts of a response that determine its class.
type Response struct {
	Status      int
	ContentType string
	Body        []byte
	Cut         bool     // Body is only the beginning
	Elsewhere   bool     // a redirect to another host
	Marks       []string // texts that all are in Body only if it shows the record that the request has made; nil if not known
}

// The reasons for which a response is not the service's own.
const (
	IsHTML      = "an HTML or XML page of a proxy or portal, not a response of the service"
	AsHTML      = "its Content-Type is HTML, so it comes from a proxy or portal, not from the service"
	IsCut       = "the body is cut off"
	IsElsewhere = "a redirect to another host"
	IsPlain     = "it is not JSON, so it may come from a proxy or router, not from the service"
)

// Classify returns the class of a response, and the reason if it is not the service's own.
//
// The service sends JSON. A response without JSON still counts as the service's own, unless it
// is a page, is cut off, or has a status that proxies and routers send by themselves: a "not
// found" or a server error.
func Classify(r Response) (Class, string) {
	body := bytes.TrimSpace(bytes.TrimPrefix(r.Body, []byte("\xef\xbb\xbf")))
	kind, _, _ := strings.Cut(r.ContentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch {
	case bytes.HasPrefix(body, []byte("<")):
		return Intermediary, IsHTML
	case kind == "text/html", kind == "application/xhtml+xml":
		return Intermediary, AsHTML
	case r.Cut:
		return Intermediary, IsCut
	case r.Elsewhere:
		return Intermediary, IsElsewhere
	case !NotFound(r.Status) && r.Status < 500, isJSON(body):
		return Service, ""
	}
	return Intermediary, IsPlain
}

// Replaced reports whether a response may have replaced the service's own: it is a page, or was cut
// off too early to tell. Plain text comes from the service, or from a router that did not forward the
// request. why is the reason that [Classify] returns.
func Replaced(why string, r Response) bool {
	if why == IsCut {
		return len(bytes.TrimSpace(r.Body)) == 0 && !strings.Contains(r.ContentType, "json")
	}
	return !slices.Contains([]string{"", IsPlain}, why)
}

// isJSON reports whether a body is a JSON object or array. A bare number or string is not,
// since plain text such as 404 is a valid number.
func isJSON(body []byte) bool {
	begins := bytes.HasPrefix(body, []byte("{")) || bytes.HasPrefix(body, []byte("["))
	return begins && json.Valid(body)
}

// NotFound reports whether a status is 404 or 410.
func NotFound(status int) bool { return status == http.StatusNotFound || status == http.StatusGone }

// Contact reports whether a response shows that the client reaches the service with a token that it
// accepts. A refused token is not a contact, since a deletion tolerates refused tokens only after a
// contact.
func Contact(class Class, status int) bool {
	switch {
	case class != Service, status == 0, status >= 500, RefusesToken(status):
		return false
	}
	return true
}

// RefusesToken reports whether a status means that the service does not accept the token.
func RefusesToken(status int) bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, status)
}

// MayHaveActed reports whether a request may have taken effect although its response has an error
// status. Proxies and portals send pages instead of a request, but also instead of the response to one
// that took effect. Some gateways send a 408 or a 499 after the service has acted. Others repeat
// a request, so that the service refuses the second one and may show the record of the first.
func MayHaveActed(r Response) bool {
	refusals := []int{http.StatusNotImplemented, http.StatusHTTPVersionNotSupported} // of the 5xx
	switch s := r.Status; {
	case s < 400, s == http.StatusProxyAuthRequired: // a proxy that sends 407 did not pass the request on
		return false
	case s == http.StatusRequestTimeout, s == 499, s >= 500 && !slices.Contains(refusals, s), r.showsRecord():
		return true
	}
	_, why := Classify(r)
	return Replaced(why, r)
}

// showsRecord reports whether the body holds all of the marks. If there are none, it returns false.
func (r Response) showsRecord() bool {
	missing := func(mark string) bool { return !bytes.Contains(r.Body, []byte(mark)) }
	return len(r.Marks) > 0 && !slices.ContainsFunc(r.Marks, missing)
}

// Inconclusive reports whether a status does not show if a create took effect. A redirect can
// mean that the record was created. The exceptions are 307 and 308, which request the same
// call again. A status below 200 is inconclusive.
func Inconclusive(status int) bool {
	return status < 400 && !slices.Contains([]int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, status)
}

// whateverFlavor lists the 4xx statuses that are about the caller, the connection or the form of a
// request.
var whateverFlavor = []int{401, 407, 408, 411, 413, 414, 415, 417, 421, 425, 426, 428, 429, 431}

// AboutFlavor reports whether a status may mean that the service refuses the flavor of a
// create.
func AboutFlavor(status int) bool { return status/100 == 4 && !slices.Contains(whateverFlavor, status) }

// Renamed reports whether given is a form that a service may have made of the name that was
// asked for: with another case, other punctuation, a part cut off, or something added to it.
// Any other name belongs to another record.
func Renamed(asked, given string) bool {
	a, g := letters(asked), letters(given)
	if a == "" || g == "" {
		return a == g
	}
	return strings.Contains(g, a) || strings.HasPrefix(a, g) && len(g) >= len(a)/2
}

// letters returns the letters and digits of a name, in lower case.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}
