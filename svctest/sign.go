package svctest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query parameters of a presigned URL. They look like the parameters of common object
// storage. Only paramMethods, with the methods that the URL allows, is special to the
// fake.
const (
	paramAlgorithm = "X-Amz-Algorithm"
	paramDate      = "X-Amz-Date"
	paramExpires   = "X-Amz-Expires" // time in seconds for which the URL is valid
	paramHeaders   = "X-Amz-SignedHeaders"
	paramMethods   = "X-Svctest-Methods"
	paramSignature = "X-Amz-Signature"

	signingAlgorithm = "SVCTEST-HMAC-SHA256"
	signingDate      = "20060102T150405.000Z"
)

// signingKey is not a secret. It is fixed, so that presigned URLs are the same in every
// run of a test with virtual time.
var signingKey = []byte("svctest signing key")

// link returns a presigned URL of an object. The URL allows the methods in methods, and HEAD
// if it allows GET. A request to the URL has to send the headers in signed with exactly the
// same values.
func (s *Server) link(key string, now time.Time, signed http.Header, methods ...string) string {
	u, err := url.Parse(s.storage + "/storage/" + key)
	if err != nil {
		panic("svctest: " + err.Error())
	}
	names := []string{"host"}
	for k := range signed {
		names = append(names, strings.ToLower(k))
	}
	slices.Sort(names)
	q := url.Values{
		paramAlgorithm: {signingAlgorithm},
		paramDate:      {now.UTC().Format(signingDate)},
		paramExpires:   {strconv.FormatFloat(s.cfg.linkTTL.Seconds(), 'f', -1, 64)},
		paramHeaders:   {strings.Join(names, ";")},
		paramMethods:   {strings.Join(methods, ",")},
	}
	q.Set(paramSignature, signature(u.Host, u.EscapedPath(), q, names, signed))
	u.RawQuery = q.Encode()
	return u.String()
}

// signature returns the signature of a presigned URL. It covers the host, the path, the
// headers in names, and all parameters except the signature itself.
func signature(host, path string, q url.Values, names []string, h http.Header) string {
	mac := hmac.New(sha256.New, signingKey)
	unsigned := url.Values{}
	for k, v := range q {
		if k != paramSignature {
			unsigned[k] = v
		}
	}
	lines := []string{path, unsigned.Encode()}
	for _, name := range names {
		value := strings.Join(h.Values(name), ",")
		if name == "host" {
			value = host
		}
		lines = append(lines, name+":"+value)
	}
	mac.Write([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(mac.Sum(nil))
}

// checkLink checks whether the presigned URL of r is valid, has not expired, and allows
// r. If so, it returns the zero storageError.
func checkLink(r *http.Request, now time.Time) storageError {
	q, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case len(r.Header.Values("Authorization"))+len(r.Header.Values("Cookie")) > 0:
		return storageError{http.StatusBadRequest, "InvalidRequest", "Only one authentication mechanism is allowed: send a presigned URL without Authorization and Cookie"}
	case err != nil || q.Get(paramSignature) == "":
		return storageError{http.StatusForbidden, "AccessDenied", "The request is not signed"}
	}
	names := strings.Split(q.Get(paramHeaders), ";")
	path, _, _ := strings.Cut(r.RequestURI, "?")
	want := signature(r.Host, path, q, names, r.Header)
	methods := strings.Split(q.Get(paramMethods), ",")
	method := strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1)
	date, _ := time.Parse(signingDate, q.Get(paramDate))
	seconds, _ := strconv.ParseFloat(q.Get(paramExpires), 64)
	switch {
	case !hmac.Equal([]byte(want), []byte(q.Get(paramSignature))), !slices.Contains(methods, method):
		return storageError{http.StatusForbidden, "SignatureDoesNotMatch", "The signature does not match method, address and signed headers of the request"}
	case now.After(date.Add(time.Duration(seconds * float64(time.Second)))):
		return storageError{http.StatusForbidden, "AccessDenied", "Request has expired"}
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(names, lower) {
			return storageError{http.StatusForbidden, "AccessDenied", "There were headers present in the request which were not signed: " + lower}
		}
	}
	return storageError{}
}
