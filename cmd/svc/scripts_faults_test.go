package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// What a script writes may be lost. It does the same, and ends with the same code.
func TestScriptsDoTheSameWhereverTheirOutputGoes(t *testing.T) {
	t.Parallel()
	lines := map[string]struct {
		line    []string
		code    int
		running []string
	}{
		"rollout":            {[]string{"rollout.sh", "app--1", "app:2", "app:1"}, 0, []string{"app:2"}},
		"rollout and back":   {[]string{"rollout.sh", "app--1", "bad:1", "app:1"}, 1, []string{"app:1"}},
		"refused":            {[]string{"rollout.sh", "app--1", "app:2", "app:0"}, exitLedger, []string{"app:1"}},
		"release":            {[]string{"blue-green.sh", "app", "2", "app:2", "switch"}, 0, []string{"app:2"}},
		"release that fails": {[]string{"blue-green.sh", "app", "2", "bad:1", "switch"}, exitDeleted, []string{"app:1"}},
		"switch that fails":  {[]string{"blue-green.sh", "app", "2", "app:2", "false"}, 20, []string{"app:1", "app:2"}},
		"sweep":              {[]string{"nightly-sweep.sh"}, 0, []string{"app:1"}},
		"sweep that fails":   {[]string{"nightly-sweep.sh"}, exitLedger, []string{"app:1"}},
	}
	shells := map[string]string{
		"good":          `"$0" "$@"`,
		"all closed":    `exec "$0" "$@" <&- >&- 2>&-`,
		"stderr closed": `exec "$0" "$@" 2>&-`,
		"input closed":  `exec "$0" "$@" <&-`,
		"gone at once":  `set +e; "$0" "$@" 2>&1 | true; exit ${PIPESTATUS[0]}`,
		"head":          `set +e; "$0" "$@" 2>&1 | head -1; exit ${PIPESTATUS[0]}`,
		"full":          `exec "$0" "$@" >/dev/full 2>/dev/full`,
		"full log":      `exec "$0" "$@" 2>>/dev/full`,
		"no TMPDIR":     `export TMPDIR=/nowhere; cd /; exec "$0" "$@"`,
	}
	for i, name := range slices.Sorted(maps.Keys(lines)) {
		for j, how := range slices.Sorted(maps.Keys(shells)) {
			tt, shell := lines[name], shells[how]
			if !tried(i, j) {
				continue
			}
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := scriptSession(t)
				s.env["DRAIN"] = "0"
				s.tool("switch", "true")
				s.must(exitOK, "deploy", "--key", "app--1", "--name", "app--1", "--image", "app:1", "--lease", "1h")
				if name == "sweep that fails" {
					s.env["KEEP"] = "90d"
					s.tool("svc", `[ "$1" != ledger ] || exit 9; exec `+binary+` "$@"`)
				}
				file, err := filepath.Abs(filepath.Join("scripts", tt.line[0]))
				require.NoError(t, err)
				e := s.finish(s.shell(shell, append([]string{file}, tt.line[1:]...)...))
				require.Equal(t, tt.code, e.code, e.stdout+e.stderr)
				require.Equal(t, tt.running, s.running(), e.stdout+e.stderr)
			})
		}
	}
}

// startGroup starts a script in a process group of its own.
func (s *session) startGroup(name string, args ...string) *background {
	s.t.Helper()
	file, err := filepath.Abs(filepath.Join("scripts", name))
	require.NoError(s.t, err)
	b := &background{s: s, cmd: s.shell(`set -m; "$@" & echo $! >pid; wait $!`, append([]string{file}, args...)...)}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	s.start(b.cmd)
	return b
}

// kill kills the script and all that it has started.
func (b *background) kill() ended {
	b.s.t.Helper()
	require.Zero(b.s.t, b.s.finish(b.s.shell(`kill -KILL -- "-$(cat pid)"`)).code)
	return b.end()
}

// A rollout that is killed goes on when it is run again with the same arguments: with the number of instances and the
// flavor that served, also on the way back.
func TestRolloutGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	deleted := func(b *background) {
		eventually(b.s.t, "the deletion", func() bool { return strings.Contains(b.s.run("ls", "--key", "app", "--all").stdout, "deleted ") })
	}
	for name, tt := range map[string]struct {
		opts   []svctest.Option
		reach  func(*background)
		waits  bool // a deployment is not begun
		images []string
		flags  []string
	}{
		"before the delete":      {reach: arrives("GET", svctest.RouteFlavors, 1)},
		"in the delete":          {opts: []svctest.Option{svctest.WithDeleteTime(3 * time.Second)}, reach: arrives("DELETE", svctest.RouteEndpoint, 1)},
		"after the delete":       {waits: true, reach: deleted},
		"in the deployment":      {opts: []svctest.Option{svctest.WithDeployTime(2 * time.Second)}, reach: func(b *background) { b.until("created svc-2") }},
		"in another deployment":  {opts: []svctest.Option{svctest.WithDeployTime(2 * time.Second)}, reach: func(b *background) { b.until("created svc-2") }, flags: []string{"--flavor", "flavor-2"}},
		"in the deployment back": {opts: []svctest.Option{svctest.WithDeployTime(2 * time.Second)}, reach: func(b *background) { b.until("created svc-3") }, images: []string{"bad:1"}},
	} {
		for _, image := range []string{"app:2", "bad:1"} {
			if tt.images != nil && !slices.Contains(tt.images, image) {
				continue
			}
			if !sampled() {
				continue
			}
			t.Run(name+" "+image, func(t *testing.T) {
				t.Parallel()
				s := scriptSession(t, tt.opts...)
				require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0", "--flavor", "flavor-1").code)
				s.must(exitOK, "scale", "--key", "app", "2")
				s.srv.ResetRequests()
				if tt.waits {
					s.tool("svc", `case "$*" in *--dry-run* | *--help*) ;; deploy*) [ -e "$HOME/again" ] || sleep 60 ;; esac; exec `+binary+` "$@"`)
				}
				line := append([]string{"app", image, "app:1", "--instances", "1"}, tt.flags...)
				b := s.startGroup("rollout.sh", line...)
				tt.reach(b)
				killed := b.kill()
				require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "again"), nil, 0o600))
				e := s.script("rollout.sh", line...)
				all := killed.stderr + "\nkilled\n" + e.stderr
				want, code, flavor := image, 0, "flavor-1"
				if image == "bad:1" {
					want, code = "app:1", 1
				} else if tt.flags != nil {
					flavor = tt.flags[1]
				}
				require.Equal(t, code, e.code, all)
				live := slices.Collect(maps.Values(s.live()))
				require.Len(t, live, 1, all)
				require.Equal(t, []any{want, 2, flavor}, []any{live[0].ImageURL, live[0].Instances, live[0].FlavorID}, all)
			})
		}
	}
}

// A rollout that was killed while it deleted a failed image of another flavor says which flavor the old image gets then:
// the ledger does not tell which image it had deleted. OLD_FLAGS name the right one.
func TestRolloutSaysTheFlavorOfTheWayBack(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"", "--flavor flavor-1"} {
		s := scriptSession(t, svctest.WithDeleteTime(3*time.Second))
		require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0", "--flavor", "flavor-1").code)
		line := []string{"app", "bad:1", "app:1", "--flavor", "flavor-2"}
		b := s.startGroup("rollout.sh", line...)
		b.until("deleting svc-2")
		eventually(t, "the delete", func() bool { return strings.Contains(s.run("ls", "--key", "app").stdout, "being deleted") })
		first := b.kill()
		require.Contains(t, first.stderr, "if bad:1 fails, app:1 is deployed again with the flavor flavor-1\n")
		s.env["OLD_FLAGS"] = flags
		e := s.script("rollout.sh", line...)
		require.Equal(t, 1, e.code, first.stderr+e.stderr)
		want := "flavor-2"
		if flags != "" {
			want = "flavor-1"
		} else {
			require.Contains(t, e.stderr, "app:1 is deployed again with the flavor flavor-2\n")
		}
		live := slices.Collect(maps.Values(s.live()))
		require.Len(t, live, 1, e.stderr)
		require.Equal(t, []string{"app:1", want}, []string{live[0].ImageURL, live[0].FlavorID})
	}
}

// The report of nightly-sweep.sh goes to standard error if standard output cannot be written.
func TestNightlySweepReportsSomewhere(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{`"$1"`, `exec "$1" >&-`, `exec "$1" >/dev/full`, `set +e; { "$1"; echo $? >code; } | true; exit "$(cat code)"`} {
		s := scriptSession(t)
		s.must(exitOK, "deploy", "--key", "other", "--name", "x", "--image", "app:1")
		s.env["SVC_BASE_URL"] = strings.Replace(s.env["SVC_BASE_URL"], "127.0.0.1", "localhost", 1)
		file, err := filepath.Abs("scripts/nightly-sweep.sh")
		require.NoError(t, err)
		e := s.finish(s.shell(shell, file))
		require.Equal(t, 1, e.code, "%s\n%s%s", shell, e.stdout, e.stderr)
		report := e.stderr
		if shell == `"$1"` {
			report = e.stdout
		}
		require.Regexp(t, `(?s)address +problem.*\nother +created`, report, shell)
	}
}

// The scripts need nothing of bash that 3.2 does not have: that is the bash of macOS.
func TestScriptsNeedNoNewBash(t *testing.T) {
	t.Parallel()
	newer := regexp.MustCompile(`mapfile|readarray|coproc|wait -[np]|(declare|local) -[Ang]|\$\{[^}]*(\^|,,|@[A-Za-z])|\$\{[^}]*:[^-}]*: ?-|&>>|\|&|;;?&|printf '?%\(|\[\[? -[vR] |BASHPID|EPOCH|\$\([^()]*\bcase\b|inherit_errexit|globstar`)
	files, err := filepath.Glob("scripts/*.sh")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			require.False(t, !strings.HasPrefix(line, "#") && newer.MatchString(line), "%s: %s", file, line)
		}
		require.Contains(t, string(text), "bash 3.2 or later")
	}
}

// DELETE_TIMEOUT holds also for an endpoint that is being deleted already.
func TestRolloutLimitsADeletionThatHasBegun(t *testing.T) {
	t.Parallel()
	s := scriptSession(t, svctest.WithDeleteTime(time.Hour))
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	s.env["DELETE_TIMEOUT"] = "1s"
	for range 2 {
		began := time.Now()
		e := s.script("rollout.sh", "app", "app:2", "app:1")
		require.Equal(t, exitRunning, e.code, e.stderr)
		require.Less(t, time.Since(began), 30*time.Second)
		require.Contains(t, e.stderr, "svc-1 is not known to be deleted, so nothing is deployed")
	}
	require.Equal(t, []string{"app:1"}, s.running())
}

// An endpoint that was deleted long ago says nothing of the next one.
func TestRolloutForgetsWhatWasDeletedLongAgo(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.tool("date", `echo "2999-01-01T00:00:00Z"`)
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0", "--flavor", "flavor-1", "--instances", "3").code)
	s.must(exitOK, "delete", "--key", "app")
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	require.Equal(t, map[string]int{"app:1": 1}, s.instances())
}

// A script refuses what it cannot do before anything is deleted, and with a code that says so.
func TestScriptsRefuseBeforeTheyChangeAnything(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.tool("switch", "true")
	s.must(exitOK, "deploy", "--key", "app--1", "--name", "app--1", "--image", "app:1", "--lease", "1h")
	rollout, bluegreen := []string{"rollout.sh", "app--1", "app:2", "app:1"}, []string{"blue-green.sh", "app", "2", "app:2", "switch"}
	for _, tt := range []struct {
		line []string
		env  string
		code int
	}{
		{with(rollout, "--ledger", "/other"), "", exitUsage},
		{with(bluegreen, "--ledger=none"), "", exitUsage},
		{with(rollout, "--base-url", "https://other.example"), "", exitUsage},
		{with(rollout, "--inference-url=https://other.example"), "", exitUsage},
		{with(rollout, "--token-file", "/token"), "", exitUsage},
		{with(rollout, "--insecure-http"), "", exitUsage},
		{rollout, "SVC_INSECURE_HTTP=yes", exitUsage},
		{with(bluegreen, "--output", "json"), "", exitUsage},
		{with(rollout, "-o=json"), "", exitUsage},
		{with(rollout, "-qh"), "", exitUsage},
		{with(rollout, "--keep"), "", exitUsage},
		{with(rollout, "--image", "app:9"), "", exitUsage},
		{with(rollout, "--lease", "1h"), "", exitUsage},
		{with(rollout, "--timeout", "soon"), "", exitUsage},
		{with(rollout, "--file", "-"), "", exitUsage},
		{with(rollout, "--"), "", exitUsage},
		{with(rollout, "more"), "", exitUsage},
		{rollout, "LEASE=soon", exitUsage},
		{bluegreen, "LEASE=soon", exitUsage},
		{rollout, "DELETE_TIMEOUT=soon", exitUsage},
		{bluegreen, "DELETE_TIMEOUT=soon", exitUsage},
		{bluegreen, "DELETE_TIMEOUT=0", exitUsage},
		{bluegreen, "DRAIN=soon", exitUsage},
		{rollout, `OLD_FLAGS=--command "a b"`, exitUsage},
		{rollout, `OLD_FLAGS=--key x`, exitUsage},
		{[]string{"rollout.sh", "a key", "app:2", "app:1"}, "", exitUsage},
		{[]string{"rollout.sh", "$(touch x)*", "app:2", "app:1"}, "", exitUsage},
		{[]string{"blue-green.sh", "a p p", "2", "app:2", "switch"}, "", exitUsage},
		{[]string{"blue-green.sh", "app", "2", "app:2", "no-such-program"}, "", exitUsage},
		{rollout, "SVC_LEDGER=/nowhere", exitLedger},
		{bluegreen, "SVC_LEDGER=/nowhere", exitLedger},
		{rollout, "SVC_BASE_URL=", exitUsage},
		{rollout, "PATH=/usr/bin:/bin", exitNoCommand},
		{bluegreen, "PATH=/usr/bin:/bin", exitNoCommand},
	} {
		file, err := filepath.Abs(filepath.Join("scripts", tt.line[0]))
		require.NoError(t, err)
		cmd := s.shell(`"$0" "$@"`, append([]string{file}, tt.line[1:]...)...)
		if tt.env != "" {
			cmd.Env = append(cmd.Env, tt.env)
		}
		e := s.finish(cmd)
		require.Equal(t, tt.code, e.code, "%q %s\n%s%s", tt.line, tt.env, e.stdout, e.stderr)
		require.Regexp(t, `(?i)nothing was (created or )?changed`, e.stderr, "%q %s", tt.line, tt.env)
		if name, value, _ := strings.Cut(tt.env, "="); value == "soon" {
			require.Contains(t, e.stderr, strings.Replace(name, "LEASE", "--lease", 1))
		}
		require.Zero(t, s.arrived("DELETE", svctest.RouteEndpoint)+s.arrived("POST", svctest.RouteEndpoints)-1, "%q %s", tt.line, tt.env)
	}
	e := s.script("rollout.sh", "app--1", "-image", "app:1")
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, []string{"-image"}, s.running())
}

// A release whose records are damaged is not passed over: it may be the one that serves.
func TestBlueGreenWithDamagedRecords(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "ledger")
	s.must(exitOK, "ledger", "init")
	for _, key := range []string{"app--1", "other"} {
		s.must(exitOK, "deploy", "--key", key, "--name", "x", "--image", "app:1", "--lease", "1h")
	}
	s.env["DRAIN"] = "0"
	damage := func(key string) {
		require.NoError(t, os.WriteFile(filepath.Join(s.env["SVC_LEDGER"], key+"@000001.json"), []byte("garbage"), 0o600))
	}
	damage("other")
	require.Zero(t, s.script("blue-green.sh", "app", "2", "app:2", "true").code, "the records of another app do not matter")
	damage("app--2")
	e := s.script("blue-green.sh", "app", "3", "app:4", "true")
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Contains(t, e.stderr, "the records of the key app--2 are damaged")
	e = s.script("rollout.sh", "app--2", "app:4", "app:2")
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Equal(t, []string{"app:1", "app:2"}, s.running())
}

// Users copy one script, so each one has all that it needs. What they have in common is the same to the letter.
func TestScriptsShareTheirParts(t *testing.T) {
	t.Parallel()
	parts := func(name string) []string {
		text, err := os.ReadFile(filepath.Join("scripts", name))
		require.NoError(t, err)
		return regexp.MustCompile(`(?s)# The lines up to the next bar.*?\n# -+\n.*?\n# -+\n`).FindAllString(string(text), -1)
	}
	bluegreen := parts("blue-green.sh")
	require.Len(t, bluegreen, 2)
	require.Equal(t, bluegreen, parts("rollout.sh"))
	require.Equal(t, bluegreen[:1], parts("nightly-sweep.sh"))
}

// A signal to svc alone: one that kills it stops the script, and one that it catches is a failure as any other. It does
// not matter that svc is suspended for a while.
func TestScriptsAfterASignalToOneProgram(t *testing.T) {
	t.Parallel()
	rollout, bluegreen := []string{"rollout.sh", "app--1", "app:2", "app:1"}, []string{"blue-green.sh", "app", "2", "app:2", "switch"}
	for _, tt := range []struct {
		line    []string
		step    string // command of svc
		signals string
		code    int
		running []string
		after   []string // another run
	}{
		{rollout, "deploy", "KILL", exitRunning, []string{"app:2"}, []string{"app:2"}},
		{rollout, "deploy", "TERM", 1, []string{"app:1"}, []string{"app:2"}},
		{rollout, "deploy", "STOP CONT", 0, []string{"app:2"}, []string{"app:2"}},
		{rollout, "delete", "KILL", exitRunning, []string{"app:1"}, []string{"app:2"}},
		{rollout, "delete", "TERM", exitRunning, []string{"app:1"}, []string{"app:2"}},
		{rollout, "delete", "STOP CONT", 0, []string{"app:2"}, []string{"app:2"}},
		{bluegreen, "deploy", "KILL", exitRunning, []string{"app:1", "app:2"}, []string{"app:2"}},
		{bluegreen, "deploy", "TERM", exitDeleted, []string{"app:1"}, []string{"app:2"}},
		{bluegreen, "delete", "KILL", 20, []string{"app:1", "app:2"}, []string{"app:2"}},
		{bluegreen, "delete", "TERM", 20, []string{"app:1", "app:2"}, []string{"app:2"}},
		{bluegreen, "delete", "STOP CONT", 0, []string{"app:2"}, []string{"app:2"}},
	} {
		if !sampled() {
			continue
		}
		t.Run(strings.Join([]string{tt.line[0], tt.step, tt.signals}, " "), func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t, svctest.WithDeployTime(2*time.Second), svctest.WithDeleteTime(4*time.Second))
			s.env["DRAIN"] = "0"
			s.tool("switch", "true")
			s.must(exitOK, "deploy", "--key", "app--1", "--name", "app--1", "--image", "app:1", "--lease", "1h")
			s.srv.ResetRequests()
			s.tool("svc", `case "$*" in *--dry-run*) ;; *) echo $$ >"$HOME/$1" ;; esac; exec `+binary+` "$@"`)
			b := s.startScript(tt.line[0], tt.line[1:]...)
			method, route := "POST", svctest.RouteEndpoints
			if tt.step == "delete" {
				method, route = "DELETE", svctest.RouteEndpoint
			}
			eventually(t, method, func() bool { return s.arrived(method, route) > 0 })
			time.Sleep(500 * time.Millisecond) // until the response is recorded
			for i, signal := range strings.Fields(tt.signals) {
				time.Sleep(time.Duration(i) * 3 * time.Second)
				require.Zero(t, s.finish(s.shell(`kill -`+signal+` "$(cat "$1")"`, tt.step)).code)
			}
			e := b.end()
			require.Equal(t, tt.code, e.code, e.stderr)
			require.ElementsMatch(t, tt.running, s.running(), e.stderr)
			again := s.script(tt.line[0], tt.line[1:]...)
			require.Zero(t, again.code, e.stderr+again.stderr)
			require.Equal(t, tt.after, s.running())
		})
	}
}

// A ledger that breaks in the middle: the script does not claim that something serves.
func TestScriptsWithALedgerThatBreaks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line    []string
		before  string // command of svc
		code    int
		running []string
	}{
		{[]string{"rollout.sh", "app--1", "app:2", "app:1"}, "get", exitRunning, []string{"app:1"}},
		{[]string{"rollout.sh", "app--1", "app:2", "app:1"}, "deploy --key app--1 --name app--1 --image app:2 --lease 24h --flavor flavor-2 --instances 1", 20, nil},
		{[]string{"blue-green.sh", "app", "2", "app:2", "switch"}, "url", 20, []string{"app:1", "app:2"}},
		{[]string{"blue-green.sh", "app", "2", "app:2", "switch"}, "extend", 20, []string{"app:1", "app:2"}},
	} {
		t.Run(tt.line[0]+" "+tt.before, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t)
			s.env["DRAIN"] = "0"
			s.tool("switch", "true")
			s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "ledger")
			s.must(exitOK, "ledger", "init")
			s.must(exitOK, "deploy", "--key", "app--1", "--name", "app--1", "--image", "app:1", "--lease", "1h")
			s.tool("svc", `case "$*" in *--dry-run*) ;; `+strings.ReplaceAll(tt.before, " ", `\ `)+`*) mv "$SVC_LEDGER" "$SVC_LEDGER.gone" ;; esac 2>/dev/null; exec `+binary+` "$@"`)
			e := s.script(tt.line[0], tt.line[1:]...)
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Equal(t, tt.running, s.running(), e.stderr)
		})
	}
}

// TestScriptsNeverEndWithTwo: that is the code of a svc that has crashed, and of a bash that fails by itself, so it must
// not be one that says what serves.
func TestScriptsNeverEndWithTwo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"rollout.sh": {"app", "app:2", "app:1"}, "blue-green.sh": {"app", "2", "app:2", "true"}, "nightly-sweep.sh": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.tool("svc", "exit 2")
			e := s.script(name, args...)
			require.Equal(t, exitRunning, e.code, e.stderr)
			require.Contains(t, e.stderr, "stopped by a crash of svc")
		})
	}
}

// TestRolloutWhoseRecordsAreDamaged: what served is deleted by then, so that 9 would be wrong.
func TestRolloutWhoseRecordsAreDamaged(t *testing.T) {
	t.Parallel()
	s := scriptSession(t, svctest.WithCreateTime(2*time.Second))
	s.must(exitOK, "deploy", "--key", "app", "--name", "app", "--image", "app:1", "--lease", "24h")
	b := s.startScript("rollout.sh", "app", "app:2", "app:1")
	eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) == 2 })
	require.NoError(t, os.Truncate(filepath.Join(s.env["HOME"], ".local/state/svc-ledger/app@000001.json"), 0))
	e := b.end()
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.NotContains(t, s.running(), "app:1")
}
