package svctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// response is the result of an operation. The zero response is 200 with an empty
// body.
type response struct {
	status  int    // zero means 200
	value   any    // sent as JSON; nil sends an empty body
	code    string // code of the failure; empty for a success
	message string // message of the failure
	header  map[string]string
	delay   time.Duration // how long the response is held back
}

func failure(status int, code, format string, args ...any) response {
	return response{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func notFound(what string) response {
	return failure(http.StatusNotFound, "not_found", "there is no such %s", what)
}

// errorBody is the body of every failure of the JSON routes.
type errorBody struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	RequestID string `json:"request_id"`
}

// write sends the response a. The body of a failure contains the request ID. It never
// contains the token, even if the caller put the token into a path or a field name.
func (s *Server) write(w http.ResponseWriter, a response, requestID string) {
	status := max(a.status, http.StatusOK)
	if a.code != "" {
		message := a.message
		for token := range s.cfg.owners {
			message = strings.ReplaceAll(message, token, "[token]")
		}
		a.value = errorBody{Code: a.code, Message: message, RequestID: requestID}
	}
	var body []byte
	if a.value != nil {
		body = s.extend(encode(a.value))
		w.Header().Set("Content-Type", "application/json")
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the caller has left
}

// encode writes v as JSON. It does not escape &, so that a URL is readable in the body.
func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("svctest: " + err.Error()) // possible only with a value that a test added
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// The service writes times in UTC, without a zone, in these forms.
const (
	spacedTime   = "2006-01-02 15:04:05"
	isoTime      = "2006-01-02T15:04:05"
	isoMicroTime = "2006-01-02T15:04:05.000000"
)

func formatTime(t time.Time, layout string) string {
	return t.UTC().Format(layout)
}

// nullableTime returns nil for the zero time, so that the JSON is null.
func nullableTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := formatTime(t, spacedTime)
	return &s
}
