package main

import (
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// lease returns the ID of the only open entry, and how long its lease still takes, or 0 if it has none.
func (s *session) lease() (id string, left time.Duration) {
	s.t.Helper()
	entries := s.must(exitOK, "ls", "-o", "json").doc(s.t)["entries"].([]any)
	require.Len(s.t, entries, 1)
	e := entries[0].(map[string]any)
	if end := e["lease_end"].(string); end != "" {
		at, err := time.Parse(time.RFC3339, end)
		require.NoError(s.t, err)
		left = time.Until(at)
	}
	return e["service_id"].(string), left
}

// deletedElsewhere is an endpoint of the key that somebody has deleted without the ledger.
func (s *session) deletedElsewhere(more ...string) {
	s.must(exitOK, with(with(deploy, "--key", "chat"), more...)...)
	require.NoError(s.t, s.srv.Client().InferenceServices.Delete(s.t.Context(), "svc-1"))
}

// useless is an endpoint of the key that --replace deletes.
func (s *session) useless(status string, more ...string) {
	s.must(exitOK, with(with(deploy, "--key", "chat"), more...)...)
	s.srv.SetStatus("svc-1", status)
}

// unfinished is a create under the key that another process has sent, and that takes effect.
func (s *session) unfinished(more ...string) {
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: 2 * time.Second})
	s.background(with(with(deploy, "--key", "chat"), more...)...)
	eventually(s.t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
}

// adopted is an endpoint of the key whose create was in doubt.
func (s *session) adopted(more ...string) {
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(with(deploy, "--key", "chat"), more...)...)
	s.must(exitOK, "adopt", "chat", "svc-1")
}

// leases lists where --lease and the lease of the ledger meet. Each is also run as a dry run before.
var leases = map[string]struct {
	before func(*session)
	flags  []string
	code   int
	left   time.Duration // of the lease that counts afterwards; 0 if there is none
	says   string        // a regular expression; if empty, nothing is said about a lease
	dry    string        // the same for the dry run
}{
	"a new endpoint, none":     {nil, nil, exitOK, 0, "", ""},
	"a new endpoint, --lease":  {nil, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, "", ""},
	"a new endpoint, no Date":  {undated, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `warning: the lease of svc-1 cannot be enforced, .*: svc extend chat 4h`, ""},
	"unfinished, --lease":      {func(s *session) { s.unfinished() }, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `the lease of svc-1 now ends in 3h59m`, ""},
	"unfinished, its lease":    {func(s *session) { s.unfinished("--lease", "4h") }, []string{"--lease", "1h"}, exitOK, 4 * time.Hour, `the lease of svc-1 \w+ ends in 3h59m: --lease .* does not shorten`, ""},
	"exists, none":             {leased("4h"), nil, exitOK, 4 * time.Hour, "", ""},
	"exists, shorter":          {leased("4h"), []string{"--lease", "1h"}, exitOK, 4 * time.Hour, `the lease of svc-1 still ends in 3h59m: .* svc extend chat 1h`, `still ends in 3h59m`},
	"exists, longer":           {leased("4h"), []string{"--lease", "8h"}, exitOK, 8 * time.Hour, `the lease of svc-1 now ends in 7h59m: --lease counts from the create of the endpoint\. To`, `the lease of svc-1 would then end in 7h59m: --lease counts from the create of the endpoint\. To`},
	"exists, 0":                {leased("4h"), []string{"--lease", "0"}, exitOK, 4 * time.Hour, `still ends in 3h59m: --lease 0 does not end it. To end it: svc extend chat 0`, `--lease 0 does not end it`},
	"exists without, --lease":  {leased("0"), []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `the key chat had no lease: it ends in 4h0m0s now`, `it has no lease: the command would set one that ends in 4h0m0s`},
	"exists without, 0":        {leased("0"), []string{"--lease", "0"}, exitOK, 0, "", ""},
	"exists without, fails":    {func(s *session) { s.useless(svctest.StatusUnavailable) }, []string{"--lease", "4h"}, exitRunning, 4 * time.Hour, `had no lease: it ends in 4h0m0s now`, ""},
	"exists, fails":            {func(s *session) { s.useless(svctest.StatusUnavailable, "--lease", "1h") }, []string{"--lease", "4h"}, exitRunning, 4 * time.Hour, `the lease of svc-1 now ends in 3h59m`, ""},
	"exists, another request":  {leased("0"), []string{"--lease", "4h", "--image", "other:1"}, exitLedger, 0, "", ""},
	"replaced, --lease":        {func(s *session) { s.useless(svctest.StatusUnavailable, "--lease", "1h") }, []string{"--replace", "--lease", "4h"}, exitOK, 4 * time.Hour, "", ""},
	"replaced, had none":       {func(s *session) { s.useless(svctest.StatusStopped) }, []string{"--replace", "--lease", "4h"}, exitOK, 4 * time.Hour, "", ""},
	"replaced, none":           {func(s *session) { s.useless(svctest.StatusUnavailable, "--lease", "1h") }, []string{"--replace"}, exitOK, 0, `warning: svc-1 had a lease, which has ended with it, and svc-2 has none.*: svc extend chat 8h`, `would have no lease without --lease`},
	"replaced, 0":              {func(s *session) { s.useless(svctest.StatusStopped, "--lease", "1h") }, []string{"--replace", "--lease", "0"}, exitOK, 0, `warning: svc-1 had a lease`, `would have no lease`},
	"replaced, neither":        {func(s *session) { s.useless(svctest.StatusStopped) }, []string{"--replace"}, exitOK, 0, "", ""},
	"--replace of a good one":  {leased("4h"), []string{"--replace"}, exitOK, 4 * time.Hour, "", ""},
	"deleted, --lease":         {func(s *session) { s.deletedElsewhere("--lease", "1h") }, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `the lease of svc-1 now ends in 3h59m`, ""},
	"deleted, had none":        {func(s *session) { s.deletedElsewhere() }, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `had no lease: it ends in 4h0m0s now`, ""},
	"deleted, none":            {func(s *session) { s.deletedElsewhere("--lease", "1h") }, nil, exitOK, 0, `warning: svc-1 had a lease, which has ended with it, and svc-2 has none`, `would have no lease without --lease`},
	"adopted, none":            {func(s *session) { s.adopted("--lease", "4h") }, nil, exitOK, 4 * time.Hour, "", ""},
	"adopted, longer":          {func(s *session) { s.adopted("--lease", "4h") }, []string{"--lease", "8h"}, exitOK, 8 * time.Hour, `the lease of svc-1 now ends in 7h59m`, `would then end`},
	"adopted without, --lease": {func(s *session) { s.adopted() }, []string{"--lease", "4h"}, exitOK, 4 * time.Hour, `had no lease: it ends in 4h0m0s now`, `it has no lease`},
}

func leased(lease string) func(*session) {
	return func(s *session) { s.must(exitOK, with(deploy, "--key", "chat", "--lease", lease)...) }
}

func undated(s *session) {
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Header: map[string][]string{"Date": {"-"}}})
}

var aboutLease = regexp.MustCompile(`(?m)^.*\blease\b.*$`)

// TestLeaseThatCounts: what the ledger has afterwards, and one line if that is not what was asked for. A dry run says so
// before, and changes nothing.
func TestLeaseThatCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range leases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			began := time.Now()
			s := newSession(t)
			s.must(exitOK, "ledger", "init")
			if tt.before != nil {
				tt.before(s)
			}
			args := with(with(deploy, "--key", "chat"), tt.flags...)
			if name[:5] != "unfin" && tt.code == exitOK {
				records := s.must(exitOK, "ls", "-o", "json", "--all").doc(t)["entries"]
				says := aboutLease.FindAllString(s.must(exitOK, with(args, "--dry-run")...).stderr, -1)
				if len(says) > 0 || tt.dry != "" {
					require.Len(t, says, 1)
					require.Regexp(t, tt.dry, says[0])
					require.NotEmpty(t, tt.dry, says)
				}
				after := s.must(exitOK, "ls", "-o", "json", "--all").doc(t)["entries"]
				for i, e := range after.([]any) {
					require.Equal(t, records.([]any)[i].(map[string]any)["lease_end"], e.(map[string]any)["lease_end"])
				}
			}
			e := s.must(tt.code, args...)
			says := aboutLease.FindAllString(e.stderr, -1)
			if len(says) > 0 || tt.says != "" {
				require.Len(t, says, 1, e.stderr)
				require.Regexp(t, tt.says, says[0])
				require.NotEmpty(t, tt.says, says)
			}
			_, left := s.lease()
			require.InDelta(t, tt.left.Seconds(), left.Seconds(), 10+time.Since(began).Seconds(), "left: %v", left)
			require.Equal(t, tt.left == 0, left == 0)
		})
	}
}

// TestLeaseOfANewEndpointIsThereAtOnce: a command that is killed afterwards leaves no endpoint without the lease that was
// asked for.
func TestLeaseOfANewEndpointIsThereAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(*session)
		until  string
	}{
		"new":                {func(*session) {}, "created svc-1"},
		"exists without":     {initializing, "svc-1 is initializing"},
		"replaced":           {func(s *session) { initializing(s); s.srv.SetStatus("svc-1", svctest.StatusStopped) }, "created svc-2"},
		"deleted, had none":  {func(s *session) { initializing(s); s.remove() }, "created svc-2"},
		"deleted, had lease": {func(s *session) { initializing(s); s.must(exitOK, "extend", "chat", "1h"); s.remove() }, "created svc-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			began := time.Now()
			s := newSession(t, svctest.WithDeployTime(time.Hour))
			tt.before(s)
			b := s.background(with(deploy, "--key", "chat", "--lease", "4h", "--replace")...)
			b.until(tt.until)
			b.signal(syscall.SIGKILL)
			b.end()
			_, left := s.lease()
			require.InDelta(t, (4 * time.Hour).Seconds(), left.Seconds(), 10+time.Since(began).Seconds())
		})
	}
}

func (s *session) remove() {
	require.NoError(s.t, s.srv.Client().InferenceServices.Delete(s.t.Context(), "svc-1"))
}

// TestLeaseOfAnAdoptedEndpoint is that of its create, and may be over.
func TestLeaseOfAnAdoptedEndpoint(t *testing.T) {
	t.Parallel()
	for lease, says := range map[string]string{"4h": "the lease of svc-1 ends in 3h59m\n", "1s": "warning: the lease of svc-1 is over since ", "0": ""} {
		s := newSession(t)
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		s.must(exitUnknown, with(deploy, "--key", "chat", "--lease", lease)...)
		time.Sleep(2100 * time.Millisecond)
		e := s.must(exitOK, "adopt", "chat", "svc-1")
		require.Contains(t, e.stderr, says)
		require.Equal(t, says != "", aboutLease.MatchString(e.stderr))
		again := s.must(exitOK, "adopt", "chat", "svc-1", "-o", "json")
		require.Equal(t, "the key chat has svc-1 already\n", again.stderr)
		require.Equal(t, []any{"svc-1", "chat", true}, []any{again.doc(t)["service_id"], again.doc(t)["key"], again.doc(t)["may_be_running"]})
	}
}

// TestDeletionByAnotherCommandIsNamed: a sweep, or a delete, has deleted the endpoint of a command that waits for it.
func TestDeletionByAnotherCommandIsNamed(t *testing.T) {
	t.Parallel()
	sweep := func(s *session) {
		time.Sleep(2100 * time.Millisecond)
		s.must(exitOK, "sweep")
	}
	remove := func(s *session) { s.must(exitOK, "delete", "--key", "chat") }
	const lease, other = `its lease was over at \d\d:\d\d:\d\d \S+, and "svc sweep" deletes such endpoints`, `the ledger has its deletion, by another command, of \d\d:\d\d:\d\d`
	start := with(deploy, "--key", "chat", "--lease", "1s")
	for name, tt := range map[string]struct {
		first, args []string
		ends        func(*session)
		code        int
		says        string
	}{
		"deploy, sweep":        {nil, start, sweep, exitDeleted, lease},
		"deploy again, sweep":  {with(start, "--wait=false"), start, sweep, exitOK, ""}, // the key is free, and another one is created
		"deploy, delete":       {nil, with(deploy, "--key", "chat"), remove, exitDeleted, other},
		"wait, sweep":          {with(start, "--wait=false"), []string{"wait", "--key", "chat"}, sweep, exitNotFound, lease},
		"wait ID, delete":      {with(deploy, "--key", "chat", "--wait=false"), []string{"wait", "svc-1"}, remove, exitNotFound, other},
		"scale, sweep":         {with(start, "--wait=false"), []string{"scale", "svc-1", "2"}, sweep, exitNotFound, lease},
		"run, sweep, no CMD":   {nil, []string{"run", "--name", "demo", "--image", "i", "--lease", "1s", "--", "true"}, sweep, exitDeleted, lease},
		"get afterwards":       {with(start, "--wait=false"), []string{"get", "svc-1"}, nil, exitNotFound, lease},
		"run, sweep after CMD": {nil, []string{"run", "--name", "demo", "--image", "i", "--lease", "1s", "--", "sleep", "4"}, sweep, exitOK, `warning: the lease of svc-1 was over at .* while CMD ran`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			takes := 20 * time.Second
			if name == "run, sweep after CMD" {
				takes = 0
			}
			s := newSession(t, svctest.WithDeployTime(takes))
			if tt.first != nil {
				s.must(exitOK, tt.first...)
			}
			args := tt.args
			if args[0] != "run" {
				args = with(args, "-o", "json")
			}
			var e ended
			if tt.ends == nil {
				sweep(s)
				e = s.run(args...)
			} else {
				b := s.background(args...)
				eventually(t, "the endpoint is read", func() bool { return s.arrived("GET", svctest.RouteEndpoint) > 0 })
				tt.ends(s)
				e = b.end()
			}
			require.Equal(t, tt.code, e.code, e.stderr)
			if tt.says != "" {
				require.Regexp(t, tt.says, e.stderr)
			}
			if args[0] != "run" && tt.says != "" {
				doc := e.doc(t)
				require.Equal(t, []any{false, true, "svc-1"}, []any{doc["may_be_running"], doc["deleted"], doc["service_id"]}, "the ledger knows")
			}
		})
	}
}

// TestLeaseByTheServicesClock: what is said about the end of a lease is by the clock that decides it.
func TestLeaseByTheServicesClock(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithClockOffset(offset))
			s.must(exitOK, with(deploy, "--key", "chat", "--lease", "4h")...)
			for _, more := range [][]string{{"--lease", "1h"}, {"--lease", "1h", "--dry-run"}, {"--lease", "0"}} {
				require.Regexp(t, "the lease of svc-1 still ends in (3h59m|4h0m)", s.must(exitOK, with(with(deploy, "--key", "chat"), more...)...).stderr, more)
			}
			require.Regexp(t, `(?m)^chat .* in (2h59m|3h0m) `, s.must(exitOK, "extend", "chat", "3h").stdout)
			require.Regexp(t, `(?m)^ID .*AGE.*\nsvc-1 .* \d+s `, s.must(exitOK, "get", "svc-1").stdout)
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
			s.must(exitUnknown, with(deploy, "--key", "lost", "--lease", "4h")...)
			require.Regexp(t, "the lease of svc-2 ends in (3h59m|4h0m)", s.must(exitOK, "adopt", "lost", "svc-2").stderr)
			s.must(exitOK, "extend", "lost", "1s")
			time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
			require.Contains(t, s.must(exitOK, with(deploy, "--key", "lost")...).stderr, "the lease of svc-2 is over since")
			require.Regexp(t, `(?m)^lost .* over since \d+s +deleted`, s.must(exitOK, "sweep").stdout)
			require.Equal(t, 1, s.srv.RunningInstances())
		})
	}
}

// TestLeaseThatNoSweepEnforces is said to be one, by each command that sets or shows it.
func TestLeaseThatNoSweepEnforces(t *testing.T) {
	t.Parallel()
	const says = "svc-1 was adopted without the mark, so no sweep deletes it, whatever its lease. To delete it: svc delete svc-1\n"
	s := newSession(t)
	loseChat(svctest.DropBeforeEffect())(s)
	s.srv.ClearFaults() // the clock of the service is right
	s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	require.Contains(t, s.must(exitOK, "adopt", "chat", "svc-1", "--unmarked", "--quiet").stderr, says)
	require.Contains(t, s.must(exitOK, "extend", "chat", "8h", "--quiet").stderr, says)
	require.NotContains(t, s.must(exitOK, "extend", "chat", "0").stderr, "sweep")
	require.Contains(t, s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...).stderr, "No sweep deletes it, whatever its lease")
	s.must(exitOK, "extend", "chat", "1s")
	time.Sleep(2100 * time.Millisecond)
	require.Contains(t, s.must(exitRunning, "sweep").stderr, "no sweep deletes it")
}

// TestShortLeaseIsNoDelete: a lease that is over before it is recorded does not look like a delete that was accepted.
func TestShortLeaseIsNoDelete(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	require.NotContains(t, s.must(exitOK, "extend", "chat", "1ns").stdout, "being deleted")
	require.NotContains(t, s.must(exitOK, "ls").stdout, "being deleted")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	s.must(exitOK, "sweep")
	require.Zero(t, s.srv.RunningInstances())
}
