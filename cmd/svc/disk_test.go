package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// readOnly makes the ledger of a session one that can be read and not written. Root may write everywhere, so the program
// runs as another user from then on.
func (s *session) readOnly() {
	s.t.Helper()
	dir := filepath.Join(s.env["HOME"], ".local")
	require.NoError(s.t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		mode := map[bool]fs.FileMode{true: 0o555, false: 0o444}[err == nil && e.IsDir()]
		return os.Chmod(path, mode)
	}))
	require.NoError(s.t, os.Chmod(filepath.Dir(s.env["HOME"]), 0o755)) // another user must get there
	s.t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "state/svc-ledger"), 0o700) })
	s.user = 65534
}

// TestLedgerThatCannotBeWritten: it is read all the same, what is in it can be deleted, and nothing is created.
func TestLedgerThatCannotBeWritten_D13(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.readOnly()
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"ls", "-o", "name"}, exitOK, "svc-1\n", ""},
		{[]string{"get", "--key", "chat", "-o", "name"}, exitOK, "svc-1\n", ""},
		{[]string{"wait", "--key", "chat", "-o", "name"}, exitOK, "svc-1\n", ""},
		{[]string{"__complete", "get", "--key", ""}, exitOK, "chat\tdemo svc-1\n", ""},
		{[]string{"doctor"}, exitFailed, "it cannot be written: ", ""},
		{with(deploy, "--key", "other"), exitLedger, "", "permission denied"},
		{[]string{"extend", "chat", "8h"}, exitLedger, "", "permission denied"},
		{with(deploy, "--key", "chat"), exitOK, "svc-1\n", ""},
		{[]string{"delete", "--key", "chat", "--quiet"}, exitOK, "deleted", "warning: the ledger cannot record that svc-1 is deleted"},
	} {
		e := s.run(tt.args...)
		require.Equal(t, tt.code, e.code, "%q: %s%s", tt.args, e.stdout, e.stderr)
		require.Contains(t, e.stdout, tt.stdout, "%q", tt.args)
		require.Contains(t, e.stderr, tt.stderr, "%q", tt.args)
	}
	require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints), "nothing is created without a record")
	require.Zero(t, s.srv.RunningInstances())
}

// TestDeployWithALedgerThatCannotBeWritten ends at once if the endpoint of the key is deleted, or has to be: that could not
// be recorded.
func TestDeployWithALedgerThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(*session)
		flags  []string
		code   int
	}{
		"deleted elsewhere":    {(*session).remove, nil, exitLedger},
		"deleted, with lease":  {(*session).remove, []string{"--lease", "1h"}, exitLedger},
		"deleted, not waiting": {(*session).remove, []string{"--wait=false"}, exitLedger},
		"replaced":             {func(s *session) { s.srv.SetStatus("svc-1", svctest.StatusUnavailable) }, []string{"--replace"}, exitLedger},
		"another request":      {func(*session) {}, []string{"--image", "other:1"}, exitLedger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.must(exitOK, with(deploy, "--key", "chat")...)
			tt.before(s)
			changes, running := s.changes(), s.srv.RunningInstances()
			s.readOnly()
			began := time.Now()
			e := s.run(with(with(deploy, "--key", "chat", "-o", "json"), tt.flags...)...)
			require.Less(t, time.Since(began), 10*time.Second)
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Equal(t, []int{changes, running}, []int{s.changes(), s.srv.RunningInstances()}, "nothing is changed")
			require.Equal(t, name == "another request", e.doc(t)["error_kind"] == "key_in_use", e.stdout)
			require.Contains(t, e.stderr, "Nothing was created or changed.")
		})
	}
}

// TestDoctorOnAFullDisk: an empty file fits, and a record does not.
func TestDoctorOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	cmd := s.shell("ulimit -f 0; svc doctor -o json")
	e := s.finish(cmd)
	require.Equal(t, exitFailed, e.code, e.stderr)
	require.Contains(t, e.stdout, "it cannot be written: ")
	require.Contains(t, e.stdout, "check the space on its disk")
	left, err := filepath.Glob(filepath.Join(s.env["HOME"], ".local/state/svc-ledger/.ledger-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// createWithoutOutcome runs a deployment while the ledger fails: the intent is written, and the outcome is not.
func (s *session) createWithoutOutcome(args ...string) ended {
	s.t.Helper()
	mark := filepath.Join(s.env["HOME"], ".local/state/svc-ledger/.svc-ledger")
	before := s.arrived("POST", svctest.RouteEndpoints)
	b := s.background(args...)
	eventually(s.t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > before })
	require.NoError(s.t, os.Rename(mark, mark+"-gone"))
	e := b.end()
	require.NoError(s.t, os.Rename(mark+"-gone", mark))
	return e
}

// TestStoreThatFailsDuringACreate: the command and doctor name the key and what to run.
func TestStoreThatFailsDuringACreate(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithCreateTime(2*time.Second))
	e := s.createWithoutOutcome(with(deploy, "--key", "kept", "--keep")...)
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "svc adopt kept svc-1\nsvc-1 may still be running and billed. To delete it: svc delete svc-1\n")
	s.must(exitOK, "adopt", "kept", "svc-1")
	s.must(exitOK, "delete", "--key", "kept")

	e = s.createWithoutOutcome(with(deploy, "--key", "chat")...)
	require.Equal(t, exitDeleted, e.code, e.stderr)
	require.Contains(t, e.stderr, "The entry of the key chat stays in doubt until you run: svc forget chat\nNothing is left running.")
	require.Zero(t, s.srv.RunningInstances())

	e = s.must(exitOK, "doctor", "-o", "json")
	require.Equal(t, "pending", results(t, e)["create"])
	require.Equal(t, true, e.doc(t)["may_be_running"])
	for _, says := range []string{"the create of the key chat has no outcome yet", "look for \\\"demo\\\"", "svc forget chat"} {
		require.Contains(t, e.stdout, says)
	}
}

// TestCleanupWithoutTheLedger: the endpoint is deleted, and it is said that its entry stays open.
func TestCleanupWithoutTheLedger(t *testing.T) {
	t.Parallel()
	const warning = `warning: the ledger cannot record that svc-1 is deleted, so its entry \(key \w+\) stays open: .*\. When it can: svc delete svc-1 --missing-ok`
	t.Run("deploy", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, svctest.WithDeployTime(time.Hour))
		dir := filepath.Join(s.env["HOME"], ".local")
		b := s.background(with(deploy, "--key", "chat", "--timeout", "5s", "--quiet")...)
		eventually(t, "the endpoint exists", func() bool { return s.arrived("GET", svctest.RouteEndpoint) > 0 })
		require.NoError(t, os.Rename(dir, dir+"-away"))
		e := b.end()
		require.Equal(t, exitDeleted, e.code, e.stderr)
		require.Len(t, regexp.MustCompile(warning).FindAllString(e.stderr, -1), 1, e.stderr)
		require.NoError(t, os.Rename(dir+"-away", dir))
		require.Equal(t, []string{"svc-1"}, s.open())
		s.must(exitOK, "delete", "svc-1", "--missing-ok")
		require.Empty(t, s.open())
	})
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		e := s.must(exitOK, with([]string{"run"}, with(deploy[1:], "--", "mv", ".local", "away")...)...)
		require.Len(t, regexp.MustCompile(warning).FindAllString(e.stderr, -1), 1, e.stderr)
		require.Zero(t, s.srv.RunningInstances())
	})
}
