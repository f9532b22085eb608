package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// stalled makes the ledger of a session a PostgreSQL server that takes connections and never answers.
func (s *session) stalled() {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = listener.Close() })
	s.env["SVC_LEDGER"] = "postgres://u:secret@" + listener.Addr().String() + "/x"
}

// TestStalledLedgerDoesNotKeepTheBillHigh: what lowers the bill waits for it only for some seconds, and then works without it.
func TestStalledLedgerDoesNotKeepTheBillHigh(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 2})
	s.stalled()
	for _, n := range []string{"1", "0"} {
		e := s.must(exitOK, "scale", id, n)
		require.Equal(t, 1, strings.Count(e.stderr, "warning: "), e.stderr)
		require.Contains(t, e.stderr, "the ledger did not respond within ")
	}
	require.Zero(t, s.srv.RunningInstances())

	before := s.changes()
	e := s.must(exitLedger, "scale", id, "3", "-o", "json")
	require.Equal(t, "ledger", e.doc(t)["error_kind"], e.stdout)
	require.Contains(t, e.stderr, "works without one")
	require.Equal(t, before, s.changes(), "more instances need a record")

	e = s.must(exitOK, "delete", id)
	require.Equal(t, 1, strings.Count(e.stderr, "warning: the ledger cannot be read"), e.stderr)
	require.Contains(t, e.stderr, "the ledger did not respond within ")
}

// TestDeleteThatIsNotSent: nothing says that it was.
func TestDeleteThatIsNotSent(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	e := s.must(exitRunning, "delete", id, "--timeout", "1ms", "--ledger", "none")
	require.Contains(t, e.stderr, "svc: no delete of "+id+" was sent: the time limit is over\n")
	require.NotContains(t, e.stderr, "to be deleted")
	require.Equal(t, 1, s.srv.RunningInstances(), "%+v", s.srv.Requests())
}

// TestStalledLedgerIsBlamed: a command that needs it ends with 9, and does not name a request to the service.
func TestStalledLedgerIsBlamed(t *testing.T) {
	t.Parallel()
	blamed := func(t *testing.T, s *session, lines ...string) {
		t.Helper()
		for _, line := range lines {
			before, began := s.changes(), time.Now()
			e := s.must(exitLedger, append(strings.Fields(line), "--timeout", "3s", "-o", "json")...)
			require.Less(t, time.Since(began), 20*time.Second, line)
			require.Contains(t, strings.ReplaceAll(e.stdout, " ", ""), `"error_kind":"ledger"`, line) // doc would read the ledger
			require.Contains(t, e.stderr, "the ledger did not respond within ", line)
			require.NotContains(t, e.stderr, "/v1/", line)
			require.NotContains(t, e.stdout+e.stderr, "secret")
			require.Equal(t, before, s.changes(), line)
		}
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
		s.stalled()
		blamed(t, s, "ls", "sweep", "deploy --name n --image i:1", "deploy --name n --image i:1 --key k", "adopt k "+id, "forget k", "extend k 1h",
			"get --key k", "delete --key k", "scale --key k 2", "ledger init")
		e := s.run("doctor", "--timeout", "3s", "-o", "json")
		require.Equal(t, "problem", results(t, e)["ledger"])
		require.Contains(t, e.stdout, "it did not respond in time")
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		s.must(exitOK, "ledger", "init")
		fifo := filepath.Join(s.env["HOME"], ".local/state/svc-ledger/chat@000001.json")
		makeFifo(t, fifo)
		blamed(t, s, "ls", "sweep", "sweep --dry-run", "extend chat 1h", "get --key chat", "delete --key chat")
		require.NoError(t, os.Remove(fifo))
		s.must(exitOK, "sweep")
	})
}
