package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
				require.Equal(t, entry["deleted"] == true || entry["kept"] == true, entry["error"] == "", "%v", entry)
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

// TestScaleOfAnEndpointThatIsDeletedMeanwhile: its document has that the endpoint is deleted (see contradiction).
func TestScaleOfAnEndpointThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(3*time.Second))
	require.Equal(t, "svc-1", s.deployed("chat"))
	b := s.background("scale", "--key", "chat", "3", "-o", "json")
	b.until("svc-1 is initializing")
	s.must(exitOK, "delete", "svc-1")
	e := b.end()
	require.Equal(t, exitNotFound, e.code, e.stderr)
	doc := e.doc(t)
	require.Equal(t, []any{true, false, "name-of-chat"}, []any{doc["deleted"], doc["may_be_running"], doc["name"]})
}

// TestDocumentsSayWhatTheRequestOrTheLedgerKnows: whatever stops a command (see unsaid).
func TestDocumentsSayWhatTheRequestOrTheLedgerKnows(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("chat"))
	file := filepath.Join(s.env["HOME"], "chat.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: n\nresource_metadata: {flavor_id: flavor-2, target_instance_number: 2}\ndeploy_metadata: {image_url: i}\n"), 0o600))
	lines := []string{
		"deploy --name n --image i --flavor flavor-2 --instances 2", "deploy --key new --name n --image i --flavor flavor-2 --instances 2",
		"deploy --name n --image i --flavor flavor-2 --instances 2 --dry-run", "deploy --file chat.yaml", "deploy --file chat.yaml --dry-run",
		"get --key chat", "get svc-1", "wait svc-1", "wait --key chat", "url --key chat", "url svc-1", "scale --key chat 0", "scale svc-1 2", "adopt chat svc-1",
	}
	for name, more := range map[string][]string{
		"no ledger": {"--ledger", "missing"}, "no time": {"--timeout", "1ns"}, "unreachable": {"--base-url", "http://127.0.0.1:1", "--timeout", "1s"},
		"a wrong token": {"--token-file", "wrong"}, "all is well": nil,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "wrong"), []byte("wrong-token"), 0o600))
		for _, line := range lines {
			if name == "all is well" && strings.HasPrefix(line, "deploy") && !strings.Contains(line, "--dry-run") {
				continue
			}
			e := s.run(append(strings.Fields(line), append(more, "-o", "json")...)...)
			doc := e.doc(t)
			if strings.HasPrefix(line, "deploy") {
				require.Equal(t, []any{"n", "flavor-2", 2.0, strings.Contains(line, "--dry-run")},
					[]any{doc["name"], doc["flavor_id"], doc["instances"], doc["dry_run"]}, "%s: %s", name, line)
			}
		}
	}
}

// TestKeyThatGotAnotherEndpointMeanwhile: what is said about the endpoint of the key is of that endpoint, and not of the one
// that the key had when the command began.
func TestKeyThatGotAnotherEndpointMeanwhile(t *testing.T) {
	t.Parallel()
	patient(t)
	var hold atomic.Bool // the next read of an endpoint
	held, release := make(chan struct{}), make(chan struct{})
	s := newSession(t, svctest.WithRequestHook(func(r svctest.Request) {
		if r.Method == "GET" && r.Route == svctest.RouteEndpoint && hold.CompareAndSwap(true, false) {
			close(held)
			<-release
		}
	}))
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "scale", "--key", "chat", "3")
	hold.Store(true)
	b := s.background(with(deploy, "--key", "chat", "--replace", "-o", "json")...)
	<-held
	s.must(exitOK, "delete", "svc-1")
	s.must(exitOK, "deploy", "--key", "chat", "--name", "other", "--image", "other:1", "--instances", "2")
	close(release)
	e := b.end()
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.NotContains(t, e.stderr, "has asked for")
	require.NotContains(t, e.stderr, "svc-1")
	doc := e.doc(t)
	require.Equal(t, []any{"svc-2", "other", 2.0}, []any{doc["service_id"], doc["name"], doc["instances"]})
}
