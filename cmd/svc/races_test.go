package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// Commands that settle the same endpoints at once write documents that do not contradict themselves (see
// contradiction), and each of them says that they are deleted.
func TestDocumentsOfCommandsAtOnceAreConsistent(t *testing.T) {
	t.Parallel()
	for _, together := range [][]string{
		{"sweep", "sweep", "sweep", "ls --all"},
		{"sweep", "delete --key over --missing-ok", "sweep --dry-run"},
		{"delete svc-1 --missing-ok", "delete --key over --missing-ok", "ls --all", "sweep"},
		{"sweep", "deploy --key over --name x --image app:1 --lease 8h", "ls --all"},
		{"sweep", "forget over", "ls --all"},
		{"sweep", "extend over 8h", "delete svc-1 --missing-ok"},
	} {
		t.Run(strings.Join(together, ", "), func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeleteTime(500*time.Millisecond))
			s.must(exitOK, "deploy", "--key", "over", "--name", "x", "--image", "app:1", "--lease", "1s")
			time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
			var all sync.WaitGroup
			ended := make([]ended, len(together))
			for i, line := range together {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 150 * time.Millisecond)
					ended[i] = s.run(append(strings.Fields(line), "-o", "json")...)
				})
			}
			all.Wait()
			for i, e := range ended {
				doc := e.doc(t)
				entries, _ := doc["entries"].([]any)
				if !strings.HasPrefix(together[i], "sweep") || len(entries) == 0 || strings.Contains(together[i], "--dry-run") {
					continue
				}
				entry := entries[0].(map[string]any)
				require.Equal(t, entry["deleted"], entry["error"] == "", "%v", entry)
				if entry["deleted"] == true {
					require.Equal(t, "deleted", entry["state"], "the ledger has it")
					require.NotEmpty(t, entry["deleted_at"])
				}
			}
		})
	}
}

// A sweep that gives up on an endpoint which another command has deleted meanwhile does not fail.
func TestSweepGoesByWhatTheLedgerHasAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, "deploy", "--key", "over", "--name", "x", "--image", "app:1", "--lease", "1s")
	time.Sleep(2100 * time.Millisecond)
	s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 400, Delay: 6 * time.Second}) // the read of the sweep
	b := s.background("sweep", "-o", "json")
	eventually(t, "the read", func() bool { return s.arrived("GET", svctest.RouteEndpoint) > 1 })
	s.must(exitOK, "delete", "svc-1")
	e := b.end()
	require.Equal(t, exitOK, e.code, e.stderr)
	doc := e.doc(t)
	entry := doc["entries"].([]any)[0].(map[string]any)
	require.Equal(t, "deleted", entry["state"])
	require.Equal(t, true, entry["deleted"])
	require.Equal(t, false, doc["may_be_running"])
}
