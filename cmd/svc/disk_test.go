package main

import (
	"bytes"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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
		{with(deploy, "--key", "other"), exitLedger, "", "Nothing was created."},
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
		"gets a lease":         {func(*session) {}, []string{"--lease", "1h"}, exitLedger},
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
	require.Contains(t, e.stderr, "If it still has the entry of the key chat, that stays in doubt until you run: svc forget chat\nNothing is left running.")
	require.Zero(t, s.srv.RunningInstances())

	e = s.must(exitOK, "doctor", "-o", "json")
	require.Equal(t, "pending", results(t, e)["create"])
	require.Equal(t, true, e.doc(t)["may_be_running"])
	for _, says := range []string{"the create of the key chat has no outcome yet", "look for \\\"demo\\\"", "svc forget chat"} {
		require.Contains(t, e.stdout, says)
	}
}

// TestRefusalThatTheLedgerCannotRecord: the key is blocked, and the command says so.
func TestRefusalThatTheLedgerCannotRecord(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 422, Body: `{"message":"no such image"}`, Delay: 2 * time.Second})
	e := s.createWithoutOutcome(with(deploy, "--key", "chat", "-o", "json")...)
	require.Equal(t, exitFailed, e.code, e.stderr)
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "no such image")
	require.Contains(t, e.stderr, "\nThe ledger could not record that. If it still has the entry of the key chat, that stays in doubt until you run: svc forget chat\n")
}

// TestLedgerThatIsBackDuringTheCleanup: what the cleanup has recorded is not in doubt.
func TestLedgerThatIsBackDuringTheCleanup(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithCreateTime(2*time.Second), svctest.WithDeleteTime(3*time.Second))
	mark := filepath.Join(s.env["HOME"], ".local/state/svc-ledger/.svc-ledger")
	b := s.background(with(deploy, "--key", "chat")...)
	eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
	require.NoError(t, os.Rename(mark, mark+"-gone"))
	eventually(t, "the cleanup", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
	require.NoError(t, os.Rename(mark+"-gone", mark))
	e := b.end()
	require.Equal(t, exitDeleted, e.code, e.stderr)
	require.NotContains(t, e.stderr, "in doubt")
	require.Empty(t, s.open())
}

// TestCleanupWithoutTheLedger: the endpoint is deleted, and it is said that its entry stays open.
func TestCleanupWithoutTheLedger(t *testing.T) {
	t.Parallel()
	const warning = `warning: the ledger cannot record that svc-1 is deleted, so its entry \(key \w+\) stays open: .*\. When it can: svc delete svc-1 --missing-ok`
	t.Run("deploy", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, svctest.WithDeployTime(time.Hour))
		dir := filepath.Join(s.env["HOME"], ".local")
		b := s.background(with(deploy, "--key", "chat", "--quiet")...)
		eventually(t, "the endpoint exists", func() bool { return s.arrived("GET", svctest.RouteEndpoint) > 0 })
		require.NoError(t, os.Rename(dir, dir+"-away"))
		b.signal(syscall.SIGTERM)
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

// TestFileThatIsNoLedger: what it is, what to do, and that the file stays as it is. Nothing is created.
func TestFileThatIsNoLedger(t *testing.T) {
	t.Parallel()
	const damaged = "is damaged, or is not a ledger. Keep the file, and restore a copy"
	for name, tt := range map[string]struct {
		make func(s *session, file string)
		says string // ls and deploy
		init string // ledger init; if empty, it makes a ledger
	}{
		"text":             {func(s *session, file string) { s.write(file, []byte("hello\n")) }, damaged, damaged},
		"random bytes":     {func(s *session, file string) { s.write(file, bytes.Repeat([]byte("\xee\x01"), 10000)) }, damaged, damaged},
		"a damaged page":   {func(s *session, file string) { s.overwrite(file, 4096) }, damaged, "there is a ledger at"},
		"a damaged header": {func(s *session, file string) { s.overwrite(file, 0) }, damaged, damaged},
		"cut off":          {func(s *session, file string) { s.sqlite(file); require.NoError(s.t, os.Truncate(file, 4096)) }, damaged, damaged},
		"empty":            {func(s *session, file string) { s.write(file, nil) }, ": the file is empty\nIf there should be one, check --ledger and SVC_LEDGER; if it is lost, restore a copy", ""},
		"of another program": {func(s *session, file string) { s.query(file, "CREATE TABLE other (x)") },
			": the file is a database without one\n", ""},
		"a table of another program": {func(s *session, file string) { s.query(file, "CREATE TABLE svc_ledger (x)") }, "no such column", "no such column"},
		"a folder":                   {func(s *session, file string) { require.NoError(s.t, os.Mkdir(file, 0o700)) }, "it is a folder", "it is a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			file := filepath.Join(s.env["HOME"], "l.db")
			tt.make(s, file)
			s.env["SVC_LEDGER"] = "sqlite:" + file
			before, _ := os.ReadFile(file)
			created := s.srv.RequestCount("POST", svctest.RouteEndpoints)
			for _, args := range [][]string{{"ls"}, {"sweep"}, {"get", "--key", "chat"}, deploy, with(deploy, "--key", "chat")} {
				require.Contains(t, s.must(exitLedger, args...).stderr, tt.says, args)
			}
			e := s.must(exitFailed, "doctor", "-o", "json")
			require.Equal(t, "problem", results(t, e)["ledger"])
			require.Equal(t, tt.says == damaged, strings.Contains(e.stdout, damaged), e.stdout)
			require.NotContains(t, e.stdout, "check that it exists and")
			after, _ := os.ReadFile(file)
			require.True(t, bytes.Equal(before, after), "the file is as it was")
			require.Equal(t, created, s.srv.RequestCount("POST", svctest.RouteEndpoints))
			id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
			s.must(exitOK, "delete", id)
			if tt.init == "" {
				s.must(exitOK, "ledger", "init")
				s.must(exitOK, "ls")
				return
			}
			require.Contains(t, s.run("ledger", "init").stderr, tt.init)
		})
	}
	s := newSession(t)
	file := filepath.Join(s.env["HOME"], "l.db")
	s.sqlite(file)
	require.Contains(t, s.must(exitLedger, "ls", "--ledger", file).stderr, "it is a file, and not a folder: sqlite:"+file+" names")
}

func (s *session) write(file string, text []byte) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(file, text, 0o600))
}

// query runs a statement in an SQLite database.
func (s *session) query(file, statement string) {
	s.t.Helper()
	db, err := sql.Open("sqlite", file)
	require.NoError(s.t, err)
	defer db.Close()
	_, err = db.ExecContext(s.t.Context(), statement)
	require.NoError(s.t, err)
}

// sqlite makes a ledger in an SQLite database.
func (s *session) sqlite(file string) {
	s.t.Helper()
	s.must(exitOK, "ledger", "init", "--ledger", "sqlite:"+file)
	s.must(exitOK, with(deploy, "--key", "chat", "--wait=false", "--ledger", "sqlite:"+file)...)
}

// overwrite makes a ledger in an SQLite database, and damages its file from a place on.
func (s *session) overwrite(file string, from int64) {
	s.t.Helper()
	s.sqlite(file)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(s.t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte{0xee}, 4000), from)
	require.NoError(s.t, err)
}
