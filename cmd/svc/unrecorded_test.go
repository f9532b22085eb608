package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestRecordThatTheLedgerCannotTake: whatever the command, it says which entry the ledger cannot bring up to date, and what
// does so later; its document does not contradict itself.
func TestRecordThatTheLedgerCannotTake(t *testing.T) {
	t.Parallel()
	const (
		accepted = "warning: the ledger cannot record that the service has accepted the delete of svc-1, so no sweep goes on with its entry (key chat) if this program is killed: "
		deleted  = "warning: the ledger cannot record that svc-1 is deleted, so its entry (key chat) stays open: "
		again    = "svc delete svc-1 --missing-ok"
	)
	for name, tt := range map[string]struct {
		before []string
		method string // of the request during which the ledger gets lost
		args   []string
		code   int
		says   []string
		later  string // settles the entry
	}{
		"delete":  {nil, "DELETE", []string{"delete", "--key", "chat"}, exitOK, []string{accepted, deleted}, again},
		"of ID":   {nil, "DELETE", []string{"delete", "svc-1"}, exitOK, []string{accepted, deleted}, again},
		"sweep":   {[]string{"extend", "chat", "1s"}, "DELETE", []string{"sweep"}, exitLedger, []string{accepted, deleted, "Deleted: svc-1. Other endpoints may"}, again},
		"replace": {nil, "DELETE", with(deploy, "--key", "chat", "--replace"), exitDeleted, []string{accepted, deleted, "svc-1, which the key chat had, is deleted (--replace)"}, again},
		"scale":   {nil, "PUT", []string{"scale", "svc-1", "1"}, exitOK, []string{"warning: the ledger cannot record that svc-1 has 1 instance, so its entry (key chat) keeps the number from before: "}, "svc scale svc-1 1"},
		"to zero": {nil, "PUT", []string{"scale", "--key", "chat", "0"}, exitOK, []string{"warning: the ledger cannot record that svc-1 has 0 instances, so its entry (key chat) keeps"}, "svc scale svc-1 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			held, release := until(tt.method)
			s := newSession(t, held)
			s.must(exitOK, with(deploy, "--key", "chat", "--instances", "2")...)
			if name == "replace" {
				s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
			}
			if tt.before != nil {
				s.must(exitOK, tt.before...)
				time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
			}
			dir := filepath.Join(s.env["HOME"], ".local")
			b := s.background(with(tt.args, "-o", "json", "--quiet")...)
			eventually(t, "the change", func() bool { return s.arrived(tt.method, svctest.RouteEndpoint) > 0 })
			require.NoError(t, os.Rename(dir, dir+"-away"))
			release()
			e := b.end()
			require.Equal(t, tt.code, e.code, e.stderr)
			e.doc(t)
			for _, says := range tt.says {
				require.Equal(t, 1, strings.Count(e.stderr, says), "%s\n%s", says, e.stderr)
			}
			require.Contains(t, e.stderr, tt.later+"\n")
			if strings.Contains(tt.says[len(tt.says)-1], "Deleted:") {
				require.NotContains(t, e.stderr, "The service has accepted the delete of svc-1. ")
			}
			require.NoError(t, os.Rename(dir+"-away", dir))
			s.must(exitOK, strings.Fields(tt.later)[1:]...)
			if tt.method == "PUT" {
				row := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)[0].(map[string]any)
				require.Equal(t, strings.Fields(tt.later)[3], fmt.Sprint(row["instances"]))
			} else {
				require.Empty(t, s.open())
			}
		})
	}
}

// TestScaleWithoutTheLedger: what lowers the bill works, with a warning, and what raises it says how it works.
func TestScaleWithoutTheLedger(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--instances", "2")...)
	for name, place := range map[string]string{"folder": filepath.Join(t.TempDir(), "lost"), "file": "sqlite:" + filepath.Join(t.TempDir(), "lost.db")} {
		s.env["SVC_LEDGER"] = place
		require.Contains(t, s.must(exitOK, "scale", "svc-1", "1").stderr, "warning: the ledger cannot record that svc-1 has 1 instance, so its entry, if it has one, keeps", name)
		e := s.must(exitLedger, "scale", "svc-1", "2", "-o", "json")
		require.Equal(t, true, e.doc(t)["may_be_running"])
		require.Contains(t, e.stderr, "The same command with --ledger none works without one", name)
		require.Equal(t, 1, s.srv.RunningInstances())
		s.must(exitOK, "scale", "svc-1", "2", "--ledger", "none")
		require.Equal(t, 2, s.srv.RunningInstances())
	}
}

// TestDeletionWithoutTheDatabase: a database that is gone in the middle of a delete is told, and what is printed settles the
// entry later.
func TestDeletionWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	patient(t)
	held, release := until("DELETE")
	s := newSession(t, held)
	dsn := postgres(t)
	s.env["SVC_LEDGER"] = dsn
	query := func(text string) {
		out, err := exec.CommandContext(t.Context(), "psql", dsn, "-v", "ON_ERROR_STOP=1", "-c", text).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	s.must(exitOK, "ledger", "init")
	s.must(exitOK, with(deploy, "--key", "chat")...)
	b := s.background("delete", "--key", "chat", "--quiet")
	eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
	query("ALTER TABLE svc_ledger RENAME TO away")
	release()
	e := b.end()
	require.Equal(t, exitOK, e.code, e.stderr)
	require.Contains(t, e.stderr, "warning: the ledger cannot record that svc-1 is deleted, so its entry (key chat) stays open: ")
	query("ALTER TABLE away RENAME TO svc_ledger")
	require.Equal(t, []string{"svc-1"}, s.open())
	s.must(exitOK, "delete", "svc-1", "--missing-ok")
	require.Empty(t, s.open())
}
