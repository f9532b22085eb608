package main

import (
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

// recorded appends records to the entry of the key chat, as a program writes them that long ago.
func (s *session) recorded(records ...ledger.Record) {
	s.t.Helper()
	j := ledger.NewJournal(s.store(), s.srv.URL(), func(err error) error { return err })
	entries, _, err := j.Read(s.t.Context(), "chat")
	require.NoError(s.t, err)
	for _, r := range records {
		r.Event = ledger.Extended
		require.NoError(s.t, j.Change(s.t.Context(), "extend", entries[0], func(ledger.Entry) (ledger.Record, error) { return r, nil }))
	}
}

// marks returns records of a mark, and of leases that were set so long after it. ago is the age of the mark.
func marks(ago time.Duration, leases ...time.Duration) []ledger.Record {
	at := ledger.WallClock().Add(-ago)
	records := []ledger.Record{{Lease: 1, At: at, ServiceTime: at}}
	for _, after := range leases {
		records = append(records, ledger.Record{Lease: 8 * time.Hour, At: at.Add(after), ServiceTime: at.Add(after)})
	}
	return records
}

// TestLeaseThatWasSetSoonAfterAnAcceptedDeleteNeverCounts, whoever has set it, and however long ago that is. Each command
// goes by that, and a sweep goes on with the deletion.
func TestLeaseThatWasSetSoonAfterAnAcceptedDeleteNeverCounts(t *testing.T) {
	t.Parallel()
	none := marks(10*time.Minute, time.Second)
	none[1].Lease, none[1].ServiceTime = 0, time.Time{}
	for name, tt := range map[string]struct {
		records []ledger.Record
		deleted bool
	}{
		"soon":              {marks(10*time.Second, 5*time.Second), true},
		"soon, long ago":    {marks(10*time.Minute, time.Minute), true},
		"no lease":          {none, true},
		"twice":             {marks(20*time.Minute, time.Minute, 4*time.Minute), true},
		"later":             {marks(20*time.Minute, deleteSettles), false},
		"soon, and later":   {marks(20*time.Minute, time.Minute, 6*time.Minute), false},
		"deleted once more": {append(marks(20*time.Minute, 6*time.Minute), marks(time.Minute, time.Second)...), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1h")...)
			s.recorded(tt.records...)
			list := s.must(exitOK, "ls").stdout
			require.Equal(t, tt.deleted, strings.Contains(list, "created, being deleted"), list)
			require.Equal(t, tt.deleted, strings.Contains(list, " over since "), list)
			require.Equal(t, tt.deleted, strings.Contains(s.run("doctor").stdout, "the service has accepted a delete of svc-1, "))
			dry := s.must(exitOK, "sweep", "--dry-run")
			require.Equal(t, tt.deleted, strings.Contains(dry.stdout, "would be deleted"), dry.stdout)
			require.Zero(t, s.arrived("DELETE", svctest.RouteEndpoint))
			again := s.must(exitOK, with(deploy, "--key", "chat", "--lease", "4h", "--dry-run")...)
			require.Equal(t, tt.deleted, strings.Contains(again.stderr, "would wait until it is deleted"), again.stderr)
			records, err := s.store().List(t.Context(), "chat")
			require.NoError(t, err)
			require.Len(t, records, 2+len(tt.records), "a dry run changes nothing")
			e := s.must(exitOK, "sweep", "-o", "json")
			require.Len(t, e.doc(t)["entries"], map[bool]int{true: 1, false: 0}[tt.deleted])
			require.Equal(t, tt.deleted, s.arrived("DELETE", svctest.RouteEndpoint) > 0)
		})
	}
}

// TestMarkIsAboutOneEndpoint: a late record of the same create changes nothing, and another endpoint that is adopted is not
// being deleted.
func TestMarkIsAboutOneEndpoint(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Hour)
	created := ledger.Record{Event: ledger.Created, ServiceID: "svc-1", Adopted: true}
	undone := ledger.Record{Event: ledger.Unknown, ServiceID: "svc-1", Adopted: true}
	mark := ledger.Record{Event: ledger.Extended, Lease: 1}
	for name, tt := range map[string]struct {
		records []ledger.Record
		deleted bool
	}{
		"once":                   {[]ledger.Record{created, mark}, true},
		"the create is recorded": {[]ledger.Record{created, mark, {Event: ledger.Created, ServiceID: "svc-1"}}, true},
		"another endpoint":       {[]ledger.Record{created, mark, undone, {Event: ledger.Created, ServiceID: "svc-2"}}, false},
		"adopted once more":      {[]ledger.Record{created, mark, undone, created}, true},
		"in doubt":               {[]ledger.Record{created, mark, undone}, false},
		"deleted":                {[]ledger.Record{created, mark, {Event: ledger.Deleted, ServiceID: "svc-1"}}, false},
	} {
		records := append([]ledger.Record{{Event: ledger.Intended}}, tt.records...)
		for i := range records {
			records[i].Seq, records[i].Key, records[i].Intent, records[i].At = int64(i+1), "chat", "I", at.Add(time.Duration(i)*time.Second)
		}
		entries, err := ledger.Fold(records)
		require.NoError(t, err, name)
		require.Equal(t, tt.deleted, !deleteAccepted(entries[0]).IsZero(), name)
	}
}

// TestLeaseOfAnEndpointThatIsDeleted does not jump back to what it was: not in a sweep, and not in the list.
func TestLeaseOfAnEndpointThatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ lease, shown string }{
		"a lease": {"1h", "over since"}, "none": {"0", "over since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			s := newSession(t, svctest.WithDeleteTime(3*time.Second))
			s.must(exitOK, with(deploy, "--key", "chat", "--lease", tt.lease)...)
			s.deleteThatIsKilled()
			time.Sleep(1100 * time.Millisecond) // the clock of the service has whole seconds
			e := s.must(exitOK, "sweep")
			require.Regexp(t, ` over since \d+s +deleted`, e.stdout)
			require.Contains(t, s.must(exitOK, "ls", "--all").stdout, tt.shown)
		})
	}
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1h")...)
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1"))
	time.Sleep(time.Second)
	s.must(exitOK, "delete", "--key", "chat")
	require.NotContains(t, s.must(exitOK, "ls", "--all").stdout, " in 59m")
}

// TestSweepKeepsAnEndpointWhoseLeaseWasExtendedMeanwhile, which is no failure.
func TestSweepKeepsAnEndpointWhoseLeaseWasExtendedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"8h", "0"} {
		s := newSession(t)
		s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
		time.Sleep(2100 * time.Millisecond)
		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: 5 * time.Second})
		reads := s.arrived("GET", svctest.RouteEndpoint)
		b := s.background("sweep", "-o", "json")
		eventually(t, "the read", func() bool { return s.arrived("GET", svctest.RouteEndpoint) > reads })
		s.must(exitOK, "extend", "chat", lease)
		e := b.end()
		require.Equal(t, exitOK, e.code, e.stderr)
		require.Contains(t, e.stderr, "svc-1 of the key chat is kept: its lease was extended")
		doc := e.doc(t)
		entry := doc["entries"].([]any)[0].(map[string]any)
		require.Equal(t, []any{true, true, false, "", true}, []any{doc["may_be_running"], entry["kept"], entry["deleted"], entry["error"], entry["open"]})
		require.Zero(t, s.arrived("DELETE", svctest.RouteEndpoint))
	}
}

// killed kills a program that runs.
func (b *background) killed() {
	b.signal(syscall.SIGKILL)
	b.end()
}

// TestDeleteThatIsAcceptedDuringACommand: success means that the endpoint stays. deploy creates another one, if it has not
// created this one itself.
func TestDeleteThatIsAcceptedDuringACommand(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithDeployTime(time.Hour), svctest.WithDeleteTime(time.Hour))
	creator := s.background(with(deploy, "--key", "chat", "-o", "json")...)
	creator.until("svc-1 is initializing")
	lines := [][]string{
		with(deploy, "--key", "chat", "-o", "json"), with(deploy, "--key", "chat", "--lease", "2h", "-o", "json"),
		{"wait", "--key", "chat", "-o", "json"}, {"wait", "svc-1", "-o", "json"}, {"scale", "--key", "chat", "1", "-o", "json"},
	}
	var all []*background
	for _, line := range lines {
		b := s.background(line...)
		b.until("svc-1 is initializing")
		all = append(all, b)
	}
	deleter := s.background("delete", "--key", "chat", "--timeout", "6s")
	require.Equal(t, exitRunning, deleter.end().code)
	s.srv.SetStatus("svc-1", svctest.StatusAvailable)
	require.Contains(t, s.must(exitOK, "ls").stdout, "being deleted")
	for _, b := range append(all[2:], creator) {
		e := b.end()
		doc := e.doc(t)
		require.Equal(t, exitRunning, e.code, "%s\n%s", e.args, e.stderr)
		require.Equal(t, []any{"being_deleted", "svc-1", true}, []any{doc["error_kind"], doc["service_id"], doc["may_be_running"]})
		require.Contains(t, e.stderr, "the service has accepted a delete of svc-1, ")
		require.Equal(t, b == creator, strings.Contains(e.stderr, "The same command waits until it is deleted, and creates another one.\n"))
	}
	for _, b := range all[:2] {
		b.until("waiting until it is deleted, to create another one")
	}
	s.srv.Delete("svc-1")
	eventually(t, "another endpoint", func() bool { return s.arrived("POST", svctest.RouteEndpoints) == 2 && len(s.srv.Endpoints()) == 2 })
	s.srv.SetStatus("svc-2", svctest.StatusAvailable)
	for _, b := range all[:2] {
		e := b.end()
		require.Equal(t, exitOK, e.code, e.stderr)
		require.Equal(t, "svc-2", e.doc(t)["service_id"])
	}
	require.Equal(t, 1, s.srv.RunningInstances())
}

// TestDeployAfterACreateThatIsCleanedUp: the cleanup of the command that creates is an accepted delete like any other.
func TestDeployAfterACreateThatIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"waits": {"--lease", "1h"}, "does not wait": {"--lease", "1h", "--wait=false"}} {
		for _, killed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				patient(t)
				s := newSession(t, svctest.WithCreateTime(8*time.Second), svctest.WithDeleteTime(6*time.Second))
				first := s.background(with(with(deploy, "--key", "chat"), more...)...)
				eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
				second := s.background(with(with(deploy, "--key", "chat"), more...)...)
				second.until("an earlier command is creating the endpoint")
				second.signal(sigStop) // it goes on after the delete
				first.signal(syscall.SIGTERM)
				eventually(t, "the record", func() bool { return strings.Contains(s.must(exitOK, "ls").stdout, "being deleted") })
				if killed {
					first.killed()
				}
				second.signal(sigCont)
				e := second.end()
				require.Equal(t, exitOK, e.code, e.stderr)
				require.Equal(t, "svc-2\n", e.stdout, e.stderr)
				require.Equal(t, 2, s.arrived("POST", svctest.RouteEndpoints))
				require.Equal(t, 1, s.srv.RunningInstances())
				require.Equal(t, "svc-2", func() string { id, _ := s.lease(); return id }())
			})
		}
	}
}

// TestDeleteThatIsAcceptedDuringARead is told, by the commands that show an endpoint.
func TestDeleteThatIsAcceptedDuringARead(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"get --key chat", "get svc-1", "url --key chat", "adopt chat svc-1", "extend chat 5h"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeleteTime(time.Hour))
			s.must(exitOK, with(deploy, "--key", "chat")...)
			route := svctest.RouteEndpoint
			if strings.HasPrefix(line, "extend") {
				route = svctest.RouteFlavors // whose Date is that of the lease
			}
			s.srv.Fault("GET", route, svctest.Fault{AfterEffect: true, Delay: 6 * time.Second})
			reads := s.arrived("GET", route)
			b := s.background(append(strings.Fields(line), "-o", "json")...)
			eventually(t, "the read", func() bool { return s.arrived("GET", route) > reads })
			s.deleteThatIsKilled()
			e := b.end()
			require.Contains(t, e.stderr, "the service has accepted a delete of svc-1, ")
			if doc := e.doc(t); strings.HasPrefix(line, "extend") {
				require.Equal(t, []any{float64(exitRunning), "being_deleted"}, []any{doc["exit_code"], doc["error_kind"]})
				return
			}
			require.Equal(t, exitOK, e.code, e.stderr)
			require.Equal(t, 1, strings.Count(e.stderr, "warning: "), e.stderr)
		})
	}
}

// TestRunStartsNoProgramOnAnEndpointThatIsBeingDeleted, goes on with the deletion, and says so.
func TestRunStartsNoProgramOnAnEndpointThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithDeployTime(time.Hour), svctest.WithDeleteTime(15*time.Second))
	b := s.background("run", "--name", "demo", "--image", "i", "--result", "r.json", "--", "touch", "started")
	b.until("svc-1 is initializing")
	s.deleteThatIsKilled()
	s.srv.SetStatus("svc-1", svctest.StatusAvailable)
	e := b.end()
	require.Equal(t, exitDeleted, e.code, e.stderr)
	require.Contains(t, e.stderr, "another command has deleted svc-1, or has begun to, so CMD was not started")
	require.NoFileExists(t, filepath.Join(s.env["HOME"], "started"))
	text, err := os.ReadFile(filepath.Join(s.env["HOME"], "r.json"))
	require.NoError(t, err)
	for _, field := range []string{`"svc_exit_code": 11`, `"command_exit_code": null`, `"may_be_running": false`, `"error_kind": "being_deleted"`} {
		require.Contains(t, string(text), field)
	}
	require.Zero(t, s.srv.RunningInstances())
}

// TestLeaseThatIsOverAtTheEnd of a command that waits is named once: the next sweep deletes the endpoint.
func TestLeaseThatIsOverAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(5*time.Second))
	creator := s.background(with(deploy, "--key", "chat", "--lease", "2s")...)
	creator.until("svc-1 is initializing")
	others := []*background{creator, s.background("wait", "--key", "chat"), s.background(with(deploy, "--key", "chat")...)}
	time.Sleep(3 * time.Second)
	for _, b := range append(others, s.background(with(deploy, "--key", "chat")...), s.background("wait", "svc-1")) {
		e := b.end()
		require.Equal(t, exitOK, e.code, e.stderr)
		require.Equal(t, 1, strings.Count(e.stderr, "warning: the lease of svc-1 is over since"), "%s\n%s", e.args, e.stderr)
	}
}

// TestLeaseThatEndsWhileTheProgramOfRunRuns is in the result, whatever the lease was before.
func TestLeaseThatEndsWhileTheProgramOfRunRuns(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]string{"shortened": "1h", "none before": "0"} {
		for _, swept := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				patient(t)
				s := newSession(t)
				script := fmt.Sprintf(`svc=%s; key=$($svc ls -o json | sed -n 's/.*"key": "\(.\{5,\}\)".*/\1/p'); $svc extend "$key" 1s && sleep 2.5 && %v && $svc sweep; exit 3`, binary, swept)
				b := s.background("run", "--name", "demo", "--image", "i", "--lease", lease, "--result", "r.json", "--", "sh", "-c", script)
				e := b.end()
				require.Equal(t, 3, e.code, e.stderr)
				require.Equal(t, swept, strings.Contains(e.stdout, "deleted"), e.stdout)
				require.Contains(t, e.stderr, "warning: the lease of svc-1 was over at ")
				text, err := os.ReadFile(filepath.Join(s.env["HOME"], "r.json"))
				require.NoError(t, err)
				require.Contains(t, string(text), `"lease_over": true`)
				require.Contains(t, string(text), `"svc_exit_code": 0`)
			})
		}
	}
}

// TestDeleteSettlesAnEntryInDoubt: the mark of the endpoint names the entry, so that its deletion is recorded, and a sweep
// goes on with it. An endpoint without the mark of such an entry is deleted as before.
func TestDeleteSettlesAnEntryInDoubt(t *testing.T) {
	t.Parallel()
	lost := func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		s.must(exitUnknown, with(deploy, "--key", "chat", "--lease", "1h")...)
	}
	killed := func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: time.Minute})
		b := s.background(with(deploy, "--key", "chat", "--lease", "1h")...)
		eventually(s.t, "the endpoint", func() bool { return len(s.srv.Endpoints()) > 0 })
		b.killed()
	}
	for name, create := range map[string]func(*session){"its response is lost": lost, "its program is killed": killed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeleteTime(time.Hour))
			create(s)
			b := s.deleting("delete", "svc-1", "-o", "json")
			require.Contains(t, s.must(exitOK, "ls").stdout, "created, being deleted")
			e := s.must(exitOK, "adopt", "chat", "svc-1")
			require.Contains(t, e.stderr, "the key chat has svc-1 already")
			require.Contains(t, e.stderr, "warning: the service has accepted a delete of svc-1")
			s.must(exitRunning, "extend", "chat", "8h")
			s.must(exitRunning, "scale", "--key", "chat", "2")
			s.srv.Delete("svc-1")
			e = b.end()
			require.Equal(t, exitOK, e.code, e.stderr)
			require.Contains(t, e.stderr, "svc-1 has the mark of the entry in doubt of the key chat: it is adopted now, so that its deletion settles the entry")
			endpoint := e.doc(t)["endpoints"].([]any)[0].(map[string]any)
			require.Equal(t, []any{"chat", true}, []any{endpoint["key"], endpoint["deleted"]})
			require.Empty(t, s.must(exitOK, "ls", "-o", "json").doc(t)["entries"])
			require.Equal(t, "svc-2", s.must(exitOK, with(deploy, "--key", "chat", "-o", "json")...).doc(t)["service_id"])
		})
	}
	t.Run("a sweep goes on", func(t *testing.T) {
		t.Parallel()
		s := newSession(t, svctest.WithDeleteTime(time.Hour))
		lost(s)
		s.deleteThatIsKilled()
		require.Contains(t, s.must(exitOK, "ls").stdout, "created, being deleted")
		time.Sleep(1100 * time.Millisecond) // the clock of the service has whole seconds
		require.Contains(t, s.must(exitOK, "sweep", "--dry-run").stdout, "would be deleted")
	})
	t.Run("another endpoint", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		lost(s)
		s.must(exitOK, with(deploy, "--ledger", "none")...)
		require.NotContains(t, s.must(exitOK, "delete", "svc-2").stderr, "adopted")
		require.Contains(t, s.must(exitOK, "ls").stdout, "in doubt")
	})
	t.Run("the ledger fails", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		lost(s)
		s.readOnly()
		e := s.must(exitOK, "delete", "svc-1")
		require.Contains(t, e.stderr, "warning: the entry of the key chat stays in doubt")
		require.Zero(t, s.srv.RunningInstances())
	})
}

// TestReplaceThatIsInterruptedSaysThatItsDeleteWasAccepted, up to its last line.
func TestReplaceThatIsInterruptedSaysThatItsDeleteWasAccepted(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		s := newSession(t, svctest.WithDeleteTime(time.Hour))
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.srv.SetStatus("svc-1", svctest.StatusStopped)
		b := s.deleting(with(deploy, "--key", "chat", "--replace")...)
		b.signal(map[bool]os.Signal{false: syscall.SIGTERM, true: syscall.SIGQUIT}[twice])
		e := b.end()
		require.Equal(t, exitRunning, e.code, e.stderr)
		require.NotContains(t, e.stderr, "goes on as before")
		require.Contains(t, e.stderr, "svc-1 of the key chat is not deleted yet. It may be running and billed.\nTo delete it once more: svc delete --key chat")
	}
}

// TestDeleteDuringADeployThatNeverTakesEffect: the command ends with 10, and writes no ID to a script.
func TestDeleteDuringADeployThatNeverTakesEffect(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithDeployTime(time.Hour), svctest.WithDeleteTime(time.Hour))
	s.must(exitOK, with(deploy, "--key", "chat", "--wait=false")...)
	again := with(deploy, "--key", "chat", "--lease", "1h", "--timeout", "25s")
	b, doc := s.background(again...), s.background(with(again, "-o", "json")...)
	b.until("svc-1 is initializing")
	doc.until("svc-1 is initializing")
	s.deleteThatIsKilled()
	s.srv.SetStatus("svc-1", svctest.StatusAvailable)
	e := b.end()
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Empty(t, e.stdout)
	require.Contains(t, e.stderr, "waiting until it is deleted, to create another one")
	require.Contains(t, e.stderr, "Nothing was created: svc-1 of the key chat is not deleted yet. It may be running and billed.")
	fields := doc.end().doc(t)
	require.Equal(t, []any{"svc-1", true, false, "timeout"}, []any{fields["service_id"], fields["may_be_running"], fields["created"], fields["error_kind"]})
	require.Equal(t, 1, s.arrived("POST", svctest.RouteEndpoints))
}

// claimed appends the claim of a sweep, which was made that long ago, to the entry of the key chat.
func (s *session) claimed(ago time.Duration) {
	s.t.Helper()
	at := ledger.WallClock().Add(-ago)
	s.recorded(ledger.Record{Lease: claimLease, At: at, ServiceTime: at})
}

// TestDeployWaitsForASweepThatHasBegun: it goes on with the endpoint if the sweep does not delete it, and creates another
// one if it does.
func TestDeployWaitsForASweepThatHasBegun(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...)
			s.claimed(claimSettles - 12*time.Second)
			dry := s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h", "--dry-run")...)
			require.Contains(t, dry.stderr, "the command would wait until it is known whether that takes effect")
			b := s.background(with(deploy, "--key", "chat", "--lease", "8h")...)
			b.until("a sweep has begun to delete svc-1")
			want := "svc-1\n"
			if deleted {
				s.must(exitOK, "delete", "svc-1")
				want = "svc-2\n"
			}
			e := b.end()
			require.Equal(t, []any{exitOK, want}, []any{e.code, e.stdout}, e.stderr)
			require.Len(t, s.open(), 1)
		})
	}
}

// TestDeployThatIsStoppedBeforeASweepHasDeleted says that the endpoint may run.
func TestDeployThatIsStoppedBeforeASweepHasDeleted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...)
	s.claimed(0)
	e := s.must(exitRunning, with(deploy, "--key", "chat", "--lease", "8h", "--timeout", "2s", "-o", "json")...)
	require.Equal(t, []any{"timeout", true, "svc-1"}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"], e.doc(t)["service_id"]})
	require.Contains(t, e.stderr, "svc-1 of the key chat is not deleted yet")
}
