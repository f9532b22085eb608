package svc

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// Response is what [WithResponse] fills: a response as it was received. It may hold
// presigned URLs and other secrets, so its Body and Header do not show when it is
// printed, logged or encoded as JSON.
type Response struct {
	StatusCode int         // 0: there was no whole response
	Header     http.Header `json:"-"` // as received; nil if there was no response
	RequestID  string      // the service's, from a header; may be empty
	Attempts   int         // how often the call was sent
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
