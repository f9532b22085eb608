package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// hold makes the service hold requests for longer than the test takes.
func hold(method, route string) func(*session) {
	return func(s *session) { s.srv.Fault(method, route, svctest.Fault{Delay: time.Hour, Times: -1}) }
}

// interrupted is a command that waits or changes something, and what is true after a signal. That of
// deploy and run is in TestSignals and TestRunThatIsInterrupted.
var interrupted = []struct {
	args  []string
	setup func(*session)
	// The command has come to the point of the signal when it has sent this request, or has said this.
	method, route, says string

	code int
	may  bool     // may_be_running
	open []string // IDs in the ledger, before and after
}{
	{[]string{"wait", "svc-1"}, initializing, "", "", "svc-1 is initializing", exitInterrupted, true, []string{"svc-1"}},
	{[]string{"get", "--key", "chat"}, both(initializing, hold("GET", svctest.RouteEndpoint)), "GET", svctest.RouteEndpoint, "", exitInterrupted, true, []string{"svc-1"}},
	{[]string{"scale", "--key", "chat", "2"}, both(initializing, hold("PUT", svctest.RouteEndpoint)), "PUT", svctest.RouteEndpoint, "", exitRunning, true, []string{"svc-1"}},
	{[]string{"scale", "svc-1", "2"}, initializing, "", "", "svc-1 is initializing", exitRunning, true, []string{"svc-1"}},
	{[]string{"delete", "svc-1"}, initializing, "", "", "svc-1 is still there", exitRunning, true, []string{"svc-1"}},
	{[]string{"delete", "--key", "chat"}, both(initializing, hold("DELETE", svctest.RouteEndpoint)), "DELETE", svctest.RouteEndpoint, "", exitRunning, true, []string{"svc-1"}},
	{[]string{"sweep"}, overdue, "DELETE", svctest.RouteEndpoint, "", exitRunning, true, []string{"svc-1"}},
	{[]string{"flavors", "--wait", "--gpu", "none"}, initializing, "GET", svctest.RouteFlavors, "", exitInterrupted, false, []string{"svc-1"}},
	{[]string{"adopt", "chat", "svc-1"}, both(loseResponse, hold("GET", svctest.RouteEndpoint)), "GET", svctest.RouteEndpoint, "", exitInterrupted, true, []string{""}},
	{[]string{"forget", "chat"}, loseResponse, "", "", "waiting until the create", exitInterrupted, true, []string{""}},
	{[]string{"extend", "chat", "1h"}, both(initializing, hold("GET", svctest.RouteFlavors)), "GET", svctest.RouteFlavors, "", exitInterrupted, true, []string{"svc-1"}},
	{[]string{"files", "upload", "data.jsonl"}, both(withContents, hold("POST", svctest.RouteFiles)), "POST", svctest.RouteFiles, "", exitFailed, false, nil},
	{[]string{"files", "upload", "data.jsonl"}, both(withContents, hold("PUT", svctest.RouteStorage)), "PUT", svctest.RouteStorage, "", exitInterrupted, false, nil},
	{[]string{"files", "download", "file-1", "got"}, both(withContents, hold("GET", svctest.RouteStorage)), "GET", svctest.RouteStorage, "", exitInterrupted, false, nil},
	{[]string{"files", "rm", "file-1"}, both(withContents, hold("DELETE", svctest.RouteFile)), "DELETE", svctest.RouteFile, "", exitInterrupted, false, nil},
}

func both(a, b func(*session)) func(*session) {
	return func(s *session) {
		a(s)
		b(s)
	}
}

func initializing(s *session) { s.must(exitOK, with(deploy, "--key", "chat", "--wait=false")...) }

func overdue(s *session) {
	s.must(exitOK, with(deploy, "--key", "chat", "--wait=false", "--lease", "1s")...)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
}

func withContents(s *session) {
	s.srv.AddFile("contents", "fine-tune", []byte("contents"))
	s.contents(10)
}

// requireKnown requires that the document of a command about svc-1, or about the entry of the key chat, has all that is
// known of it, although the command has not read its record.
func (s *session) requireKnown(doc map[string]any, open []string) {
	t := s.t
	t.Helper()
	if _, ok := doc["flavor_id"]; ok {
		truth, _ := s.srv.Endpoint("svc-1")
		require.Equal(t, []any{"svc-1", "chat", truth.Name, truth.FlavorID}, []any{doc["service_id"], doc["key"], doc["name"], doc["flavor_id"]})
		require.GreaterOrEqual(t, doc["instances"], float64(truth.Instances), "that of the ledger is never too low")
	}
	if endpoints, ok := doc["endpoints"].([]any); ok {
		require.Len(t, endpoints, 1)
		d := endpoints[0].(map[string]any)
		require.Equal(t, []any{"svc-1", "chat", false, false}, []any{d["service_id"], d["key"], d["deleted"], d["missing"]})
		require.NotEmpty(t, d["error"])
	}
	if len(open) > 0 && doc["elsewhere"] == nil && doc["flavors"] == nil {
		require.Equal(t, "chat", doc["key"])
	}
}

// TestInterrupted: what each signal does to each command. All of them end at once, so there is no second
// stage for a second signal. SIGPIPE does nothing.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range interrupted {
		t.Run(strings.Join(tt.args, " ")+" "+tt.method, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeployTime(time.Hour), svctest.WithDeleteTime(time.Hour))
			tt.setup(s)
			for _, signals := range [][]syscall.Signal{
				{syscall.SIGINT}, {syscall.SIGPIPE, syscall.SIGTERM}, {syscall.SIGHUP}, {syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGQUIT}, {syscall.SIGKILL},
			} {
				count := func() int {
					if tt.method == "" {
						return 0
					}
					return s.arrived(tt.method, tt.route)
				}
				before := count()
				b := s.background(append(tt.args, "-o", "json")...)
				if tt.says != "" {
					b.until(tt.says)
				} else {
					eventually(t, "the request", func() bool { return count() > before })
				}
				for _, sig := range signals {
					_ = b.cmd.Process.Signal(sig) // it may have ended already
					if sig == syscall.SIGPIPE {
						time.Sleep(50 * time.Millisecond)
					}
				}
				sent := time.Now()
				e := b.end()
				require.Less(t, time.Since(sent), 15*time.Second, "%v: the command ends at once", signals)
				if signals[0] == syscall.SIGKILL {
					require.Equal(t, -1, e.code)
				} else {
					require.Equal(t, tt.code, e.code, "%v: %s", signals, e.stderr)
					doc := e.doc(t)
					if tt.route == svctest.RouteStorage && tt.method == "PUT" { // the record has an ID by then
						require.Regexp(t, `^file-\d+$`, doc["file_id"], "%v", signals)
						require.Contains(t, e.stderr, fmt.Sprintf("To upload to it again: svc files upload --id %s data.jsonl\n", doc["file_id"]), "%v", signals)
					}
					require.Equal(t, tt.may, doc["may_be_running"], "%v: %s", signals, e.stdout)
					s.requireKnown(doc, tt.open)
					require.NotContains(t, e.stderr, "was not changed", "%v: it has been sent", signals)
					parts, err := filepath.Glob(filepath.Join(s.env["HOME"], ".svc-download-*"))
					require.NoError(t, err)
					require.Empty(t, parts, "of a download")
				}
				if tt.open != nil {
					require.Equal(t, tt.open, s.open(), "%v: nothing is lost", signals)
				}
			}
			require.NoFileExists(t, filepath.Join(s.env["HOME"], "got"))
		})
	}
}
