package main

import (
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

// TestLeaseOfAnEndpointThatIsDeleted does not jump back to what it was: not in a sweep, and not in the list.
func TestLeaseOfAnEndpointThatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ lease, shown string }{
		"a lease": {"1h", "over since"}, "none": {"0", "over since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeleteTime(3*time.Second))
			s.must(exitOK, with(deploy, "--key", "chat", "--lease", tt.lease)...)
			s.deleteThatIsKilled()
			time.Sleep(1100 * time.Millisecond) // the clock of the service has whole seconds
			e := s.must(exitOK, "sweep")
			require.Regexp(t, ` over since \ds +deleted`, e.stdout)
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
		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Delay: 2 * time.Second})
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
