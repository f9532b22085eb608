package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// inBubble gives a test virtual time and a service in which a deployment takes
// twenty minutes.
func inBubble(t *testing.T, test func(t *testing.T, srv *svctest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
		t.Cleanup(srv.Close)
		test(t, srv)
	})
}

// secrets lists what must not appear in any output: the token, and the signature and the whole
// query of each presigned URL that was used.
func secrets(t *testing.T, srv *svctest.Server) []string {
	t.Helper()
	all := []string{srv.Token(), "X-Amz-"}
	for _, r := range srv.Requests() {
		if signature := r.Query.Get("X-Amz-Signature"); signature != "" {
			all = append(all, signature, r.RawQuery)
		}
	}
	require.GreaterOrEqual(t, len(all), 4, "no presigned URL was used")
	return all
}

func debugLog(w io.Writer) *slog.Logger {
	return slog.New(withTraceID{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

// lockedBuffer can be written to by two exporters at once, as os.Stdout can.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func nothing(http.Handler) error { return nil }

// TestNoSecretIsExported searches all output of a run that succeeds, and of one in
// which storage fails.
func TestNoSecretIsExported(t *testing.T) {
	for name, faults := range map[string][]svctest.Fault{
		"success": nil,
		"failure": {svctest.DropBeforeEffect(), {Status: 503, Times: 2}, {Status: 403, Body: "<Error><Code>AccessDenied</Code></Error>", Times: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *svctest.Server) {
				var out, log lockedBuffer
				srv.Fault("PUT", svctest.RouteStorage, faults...)
				err := run(t.Context(), srv, &out, debugLog(&log), nothing)
				require.Equal(t, faults != nil, err != nil, "%v", err)

				require.Contains(t, out.String(), `"PUT {presigned_url}"`, "the upload is not in the traces")
				require.Contains(t, out.String(), "http.client.request.duration", "no metrics")
				require.Contains(t, log.String(), "svc: exchange")
				for _, secret := range secrets(t, srv) {
					require.NotContains(t, out.String(), secret)
					require.NotContains(t, log.String(), secret)
				}
			})
		})
	}
}

// TestNoSecretIsExportedOnTheNetwork does the same with the library's own connections, and
// with the errors of net/http about a broken connection.
func TestNoSecretIsExportedOnTheNetwork(t *testing.T) {
	srv := svctest.NewServer(svctest.WithDeployTime(0))
	defer srv.Close()
	srv.Fault("*", svctest.RouteStorage, svctest.DropBeforeEffect(), svctest.Fault{}, svctest.Fault{TruncateAfter: 1})
	var out, log lockedBuffer
	require.NoError(t, run(t.Context(), srv, &out, debugLog(&log), nothing))
	require.Zero(t, srv.PendingFaults())
	for _, secret := range secrets(t, srv) {
		require.NotContains(t, out.String()+log.String(), secret)
	}
}

// TestLogsNameTheirTrace checks that each line of the log has the ID of a trace that is exported.
func TestLogsNameTheirTrace(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		var out, log lockedBuffer
		require.NoError(t, run(t.Context(), srv, &out, debugLog(&log), nothing))
		traces := map[string]int{}
		unknown := 0
		for line := range strings.Lines(log.String()) {
			var v struct {
				Level, Msg string
				TraceID    string `json:"trace_id"`
			}
			require.NoError(t, json.Unmarshal([]byte(line), &v))
			require.Contains(t, out.String(), v.TraceID)
			traces[v.TraceID]++
			if v.Level == "WARN" {
				unknown++
			}
		}
		require.Len(t, traces, 3, "deploy, file, lost: %v", traces)
		require.NotContains(t, traces, "")
		require.Equal(t, 1, unknown, "the unknown outcome is a warning")
	})
}
