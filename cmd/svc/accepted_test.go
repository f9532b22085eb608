package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// deleting starts a command that deletes svc-1, and returns once the service has accepted the delete.
func (s *session) deleting(args ...string) *background {
	s.t.Helper()
	b := s.background(args...)
	b.until("svc-1 is still there")
	return b
}

// deleteThatIsKilled is a delete that was accepted. Its program has ended with nothing but that.
func (s *session) deleteThatIsKilled() {
	s.t.Helper()
	b := s.deleting("delete", "svc-1")
	b.signal(syscall.SIGKILL)
	b.end()
}

// store opens the ledger of the session.
func (s *session) store() ledger.Store {
	s.t.Helper()
	store, err := ledger.Dir(s.record(""), ledger.MustExist())
	require.NoError(s.t, err)
	return store
}

// acceptedBefore makes the accepted delete of the key chat, which is its latest record, older.
func (s *session) acceptedBefore(age time.Duration) {
	s.t.Helper()
	records, err := s.store().List(s.t.Context(), "chat")
	require.NoError(s.t, err)
	last := records[len(records)-1]
	require.True(s.t, isMark(last), "%+v", last)
	last.At = last.At.Add(-age)
	text, err := ledger.Encode(last)
	require.NoError(s.t, err)
	file := s.record(fmt.Sprintf("chat@%06d.json", last.Seq))
	require.NoError(s.t, os.Remove(file))
	require.NoError(s.t, os.WriteFile(file, text, 0o600))
}

// TestAcceptedDeleteIsRecordedAtOnce: whichever command has sent the delete, and also if it is killed then, the others
// know that the endpoint is being deleted.
func TestAcceptedDeleteIsRecordedAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, args []string
	}{
		"delete":  {with(deploy, "--key", "chat", "--lease", "8h"), []string{"delete", "svc-1"}},
		"key":     {with(deploy, "--key", "chat"), []string{"delete", "--key", "chat"}},
		"sweep":   {with(deploy, "--key", "chat", "--lease", "1s"), []string{"sweep"}},
		"run":     {nil, []string{"run", "--name", "demo", "--image", "i", "--lease", "8h", "--", "true"}},
		"replace": {with(deploy, "--key", "chat"), with(deploy, "--key", "chat", "--replace")},
		"cleanup": {nil, with(deploy, "--key", "chat", "--lease", "8h", "--timeout", "5s")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []svctest.Option{svctest.WithDeleteTime(time.Hour)}
			if name == "cleanup" {
				opts = append(opts, svctest.WithDeployTime(time.Hour))
			}
			s := newSession(t, opts...)
			if tt.first != nil {
				s.must(exitOK, tt.first...)
			}
			switch name {
			case "sweep":
				time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
			case "replace":
				s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
			}
			b := s.background(tt.args...)
			eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
			eventually(t, "the record", func() bool {
				list := s.must(exitOK, "ls").stdout
				return strings.Contains(list, "created, being deleted") && strings.Contains(list, "over since")
			})
			b.signal(syscall.SIGKILL)
			b.end()
			entry := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)[0].(map[string]any)
			require.NotEmpty(t, entry["delete_accepted_at"])
			key := entry["key"].(string)
			doctor := s.run("doctor").stdout
			require.Contains(t, doctor, "the service has accepted a delete of svc-1, ")
			time.Sleep(1100 * time.Millisecond)
			swept := s.must(exitOK, "sweep", "--dry-run", "-o", "json").doc(t)["entries"].([]any)
			require.Len(t, swept, 1, "a sweep goes on with it")
			for _, args := range [][]string{{"extend", key, "8h"}, {"scale", "svc-1", "2"}, {"scale", "--key", key, "2"}} {
				e := s.must(exitRunning, with(args, "-o", "json")...)
				require.Equal(t, []any{"being_deleted", true}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"]})
				require.Regexp(t, `the service has accepted a delete of svc-1, \d+s ago, .*If it still runs at \d\d:\d\d:\d\d \S+, this command works then\. Only a lease keeps it: svc extend \S+ 8h\n`, e.stderr)
			}
			require.Zero(t, s.arrived("PUT", svctest.RouteEndpoint))
			for _, args := range [][]string{{"get", "svc-1"}, {"get", "--key", key}, {"url", "--key", key}, {"wait", "svc-1", "--timeout", "1s"}} {
				require.Regexp(t, `warning: the service has accepted a delete of svc-1, .* To keep it, if it still runs at \d\d:\d\d:\d\d \S+: svc extend \S+ 8h\n`, s.run(with(args, "--quiet")...).stderr)
			}
		})
	}
}

// TestDeployWaitsForADeletion that another command has begun, and creates another endpoint then, also of another request.
func TestDeployWaitsForADeletion(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"same":    with(deploy, "--key", "chat", "--lease", "8h"),
		"another": with(deploy, "--key", "chat", "--image", "other:2"),
		"no wait": with(deploy, "--key", "chat", "--wait=false", "--replace"),
	} {
		for _, killed := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				patient(t)
				s := newSession(t, svctest.WithDeleteTime(time.Hour))
				s.must(exitOK, with(deploy, "--key", "chat", "--lease", "4h")...)
				if killed {
					s.deleteThatIsKilled()
				} else {
					s.deleting("delete", "svc-1")
				}
				before := len(s.srv.Requests())
				dry := s.must(exitOK, with(args, "--dry-run")...)
				require.Contains(t, dry.stderr, "the command would wait until it is deleted, and create another one")
				b := s.background(with(args, "-o", "json")...)
				b.until("waiting until it is deleted, to create another one")
				b.until("svc-1 is still there")
				s.srv.Delete("svc-1")
				e := b.end()
				require.Equal(t, exitOK, e.code, e.stderr)
				doc := e.doc(t)
				require.Equal(t, []any{"svc-2", true}, []any{doc["service_id"], doc["created"]})
				for _, r := range s.srv.Requests()[before:] {
					require.False(t, killed && r.Method == "DELETE", "deploy deletes no endpoint of another command")
				}
				require.Equal(t, 1, s.srv.RunningInstances())
				require.Equal(t, strings.Contains(name, "another") || name == "no wait", strings.Contains(e.stderr, "warning: svc-1 had a lease"))
			})
		}
	}
}

// TestDeleteThatNeverTakesEffect: deploy ends with 10 and creates nothing; extend keeps the endpoint, but not in the first
// minutes after the delete was accepted; until then, a sweep goes on with it.
func TestDeleteThatNeverTakesEffect(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithDeleteTime(time.Hour))
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "4h")...)
	s.deleteThatIsKilled()
	e := s.must(exitRunning, with(deploy, "--key", "chat", "--lease", "8h", "--timeout", "2s", "-o", "json")...)
	doc := e.doc(t)
	require.Equal(t, []any{"svc-1", true, false, "timeout"}, []any{doc["service_id"], doc["may_be_running"], doc["created"], doc["error_kind"]})
	require.Contains(t, e.stderr, "To delete it once more: svc delete --key chat, and deploy again. To keep it, if it still runs five minutes after the delete: svc extend chat 8h, and deploy again")
	require.Equal(t, 1, s.arrived("POST", svctest.RouteEndpoints))

	s.acceptedBefore(deleteSettles)
	require.Contains(t, s.must(exitOK, "ls").stdout, "being deleted", "however long ago")
	require.Equal(t, "problem", results(t, s.run("doctor", "-o", "json"))["delete"])
	e = s.must(exitOK, "extend", "chat", "8h")
	require.Contains(t, e.stderr, "warning: the service has accepted a delete of svc-1, 5m ago")
	require.NotContains(t, s.must(exitOK, "ls").stdout, "being deleted")
	s.srv.SetStatus("svc-1", svctest.StatusAvailable)
	e = s.must(exitOK, with(deploy, "--key", "chat", "-o", "json")...)
	require.Equal(t, "svc-1", e.doc(t)["service_id"])
	require.Empty(t, s.must(exitOK, "sweep", "-o", "json").doc(t)["entries"])
}

// TestExtendDoesNotHideAnAcceptedDelete: a lease that another program sets soon after it, such as an earlier version of
// this one, changes nothing.
func TestExtendDoesNotHideAnAcceptedDelete(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeleteTime(time.Hour))
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.deleteThatIsKilled()
	j := ledger.NewJournal(s.store(), s.srv.URL(), func(err error) error { return err })
	entries, _, err := j.Read(context.Background(), "chat")
	require.NoError(t, err)
	require.NoError(t, j.Change(t.Context(), "extend", entries[0], func(ledger.Entry) (ledger.Record, error) {
		return ledger.Record{Event: ledger.Extended, Lease: 8 * time.Hour, ServiceTime: ledger.WallClock()}, nil
	}))
	list := s.must(exitOK, "ls").stdout
	require.Contains(t, list, "being deleted")
	require.Contains(t, list, "over since", "no lease of it counts")
	s.must(exitRunning, "extend", "chat", "8h")
}

// TestOvertakenScaleEndsAtOnce, with what is true then.
func TestOvertakenScaleEndsAtOnce(t *testing.T) {
	t.Parallel()
	for other, tt := range map[string]struct {
		code    int
		running bool
		advice  string
	}{
		"1": {exitRunning, true, "svc-1 has 1 instance, by another command, which may be running and billed."},
		"0": {exitFailed, false, ""},
	} {
		s := newSession(t, svctest.WithDeployTime(3*time.Second))
		s.must(exitOK, with(deploy, "--key", "chat")...)
		b := s.background("scale", "--key", "chat", "3", "-o", "json")
		b.until("svc-1 is initializing")
		s.must(exitOK, "scale", "svc-1", other)
		e := b.end()
		require.Equal(t, tt.code, e.code, e.stderr)
		require.Contains(t, e.stderr, "another command has set the number of instances of svc-1 to "+other+", after this one set it to 3")
		require.Contains(t, e.stderr, tt.advice)
		doc := e.doc(t)
		require.Equal(t, []any{"overtaken", tt.running}, []any{doc["error_kind"], doc["may_be_running"]})
		require.Equal(t, other, fmt.Sprint(doc["instances"]))
	}
}

// TestResultOfRunHasThatTheLeaseWasOver, also if CMD has ended with 0: the endpoint may have been deleted before.
func TestResultOfRunHasThatTheLeaseWasOver(t *testing.T) {
	t.Parallel()
	for lease, over := range map[string]bool{"1s": true, "8h": false} {
		s := newSession(t)
		b := s.background("run", "--name", "demo", "--image", "i", "--lease", lease, "--result", "r.json", "--", "sleep", "4")
		eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
		time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
		s.must(exitOK, "sweep")
		require.Equal(t, exitOK, b.end().code)
		text, err := os.ReadFile(filepath.Join(s.env["HOME"], "r.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), fmt.Sprintf("\"lease_over\": %v", over))
	}
}

// TestDeleteDoesNotEndASweep of the same endpoint: what it records is no longer lease.
func TestDeleteDoesNotEndASweep(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeleteTime(time.Hour))
	overdue(s)
	_, left := s.lease()
	before := time.Now().Add(left)
	s.deleteThatIsKilled()
	require.Contains(t, s.must(exitOK, "ls").stdout, "being deleted")
	_, left = s.lease()
	require.WithinDuration(t, before, time.Now().Add(left), 500*time.Millisecond)
	s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: 3 * time.Second}) // the read of the sweep
	s.acceptedBefore(deleteSettles)
	b := s.background("sweep")
	time.Sleep(time.Second)
	s.deleteThatIsKilled() // which records it once more
	b.until("deleting svc-1")
	b.signal(syscall.SIGTERM)
	require.NotContains(t, b.end().stderr, "the lease was extended")
}
