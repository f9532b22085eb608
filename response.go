package svc

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// Response is what [WithResponse] fills: an answer as it was received. It may
// hold links and other secrets, so its Body and Header do not show when it is
// printed, logged or written as JSON.
type Response struct {
	StatusCode int         // 0: no whole answer
	Header     http.Header `json:"-"`
	RequestID  string      // the service's, from a header
	Attempts   int         // how often the call was tried
	Body       []byte      `json:"-"` // as received; of a failed call at most 64 KiB
}

// String tells the status, the size and the id of the request.
func (r Response) String() string {
	return fmt.Sprintf("%d %s (%d bytes, request %q, %d attempts)", r.StatusCode, http.StatusText(r.StatusCode), len(r.Body), r.RequestID, r.Attempts)
}

// Format prints String for every verb.
func (r Response) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }

// LogValue logs what String tells.
func (r Response) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("status", r.StatusCode), slog.Int("bytes", len(r.Body)),
		slog.String("request_id", r.RequestID), slog.Int("attempts", r.Attempts))
}
