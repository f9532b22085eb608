package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// Each flag with a number or a duration refuses a value outside of its range and a word: with 64, and a text that names
// the flag and what is allowed. No flag is left out.
func TestEachRangeIsNamed(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	seen := map[string]bool{}
	for _, c := range allCommands(t) {
		c.InheritedFlags() // adds the global ones
		c.Flags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if kind != "int" && kind != "duration" || seen[f.Name+schemaName(c)] || f.Name == "timeout" && seen[f.Name] {
				return
			}
			seen[f.Name], seen[f.Name+schemaName(c)] = true, true
			r, has := ranges[f.Name]
			require.True(t, has, "--%s has no range", f.Name)
			wrong := []string{"many", "99999999999999999999", "1.5.2"}
			if kind == "duration" {
				wrong = []string{"soon", "5", "999999999d", "-1d"}
				if r.least >= 0 {
					wrong = append(wrong, "-1s")
				}
				require.IsType(t, new(days), f.Value, "--%s: each duration may be in days", f.Name)
			} else {
				wrong = append(wrong, "-1")
			}
			if r.least > 0 {
				wrong = append(wrong, "0")
			}
			if f.Name == "port" {
				wrong = append(wrong, "65536")
			}
			name := strings.Split(schemaName(c), "-")
			line := append(name, strings.Fields(strings.TrimPrefix(successes[schemaName(c)], "-"))...)
			if schemaName(c) == "deploy" || schemaName(c) == "run" {
				line = append(line[:1:1], "--name", "n", "--image", "i")
			}
			for _, value := range wrong {
				words := append(append(line[:len(name):len(name)], "--"+f.Name+"="+value), line[len(name):]...)
				if name[0] == "run" {
					words = append(words, "--", "true")
				}
				e := s.must(exitUsage, words...)
				require.Contains(t, e.stderr, "--"+f.Name, words)
				require.Contains(t, e.stderr, "must be "+r.text, words)
			}
		})
	}
	require.Len(t, ranges, 13, "no range is of a flag that does not exist")
	for name := range ranges {
		require.True(t, seen[name], name)
	}
}

// An argument that looks like a negative number is named, and what the command takes in its place.
func TestNegativeArgumentIsNamed(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for line, takes := range map[string]string{
		"delete -1": "ID...", "get -1": "svc get ID", "scale svc-1 -1": "INSTANCES", "extend chat -1h": "KEY DURATION", "files rm -1": "ID...", "ls -1": "svc ls [flags]",
	} {
		e := s.must(exitUsage, strings.Fields(line)...)
		require.Contains(t, e.stderr, " is neither a flag nor an argument", line)
		require.Contains(t, e.stderr, takes, line)
		require.NotContains(t, e.stderr, "argument, which", line)
	}
}

// With -o json or yaml, standard output holds a document or nothing, whatever the command line.
func TestNoHelpInPlaceOfADocument(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, line := range []string{"", "files", "jobs", "ledger", "help", "help deploy", "help exit-codes"} {
		for _, form := range []string{"json", "yaml"} {
			e := s.must(exitUsage, append(strings.Fields(line), "-o", form)...)
			require.Contains(t, e.stderr, "document of -o "+form, line)
			require.Contains(t, e.stdout, "exit_code", line)
			require.NotContains(t, e.stdout, "Usage:", line)
		}
		if _, isGroup := map[string]bool{"files": true, "jobs": true, "ledger": true}[line]; !isGroup {
			require.NotEmpty(t, s.must(exitOK, strings.Fields(line)...).stdout)
		}
	}
}

// A command that has only subcommands does nothing without one, so it does not end as if it had.
func TestAGroupNeedsACommand(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for group, command := range map[string]string{"files": "svc files upload", "jobs": "svc jobs get", "ledger": "svc ledger init", "completion": "svc completion bash"} {
		e := s.must(exitUsage, group)
		require.Contains(t, e.stderr, command)
		require.Empty(t, e.stdout)
		require.NotEmpty(t, s.must(exitOK, group, "--help").stdout)
		require.NotEmpty(t, s.must(exitOK, "help", group).stdout)
	}
	require.Contains(t, s.must(exitUsage, with(deploy, "--wait=false", "--probe", "/x")...).stderr, "is not probed")
	require.Zero(t, s.srv.RequestCount("POST", svctest.RouteEndpoints))
}

func TestVersionIsAFlagToo(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, more := range [][]string{nil, {"-o", "json"}, {"-o", "name"}, {"-q"}} {
		require.Equal(t, s.must(exitOK, append([]string{"version"}, more...)...).stdout, s.must(exitOK, append([]string{"--version"}, more...)...).stdout)
	}
	require.Contains(t, s.must(exitUsage, "--version", "nosh").stderr, `no command "svc nosh"`)
	require.Contains(t, s.must(exitOK, "--help").stdout, "--version")
}

// A dry run and the deployment end with the same code if a flavor is sold out, however it is selected.
func TestSoldOutHasOneCode(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, more := range [][]string{
		{"--flavor", "flavor-3"}, {"--flavor", "flavor-3,flavor-9"}, {"--instances", "1000"}, {"--flavor", "flavor-2", "--instances", "1000"}, {"--key", "new", "--flavor", "flavor-3"},
		{"--flavor", "flavor-3", "--max-price", "1000"},
	} {
		real, dry := s.run(with(deploy, more...)...), s.run(with(deploy, append([]string{"--dry-run"}, more...)...)...)
		require.Equal(t, exitNotFound, real.code, "%v: %s", more, real.stderr)
		require.Equal(t, exitNotFound, dry.code, "%v: %s", more, dry.stderr)
		require.Contains(t, dry.stderr, "in stock", more)
	}
}

// No command outlasts its --timeout for long if the ledger hangs, and each says so.
func TestTimeoutHoldsWithAHangingLedger(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeleteTime(time.Millisecond))
	s.deployed("chat")
	s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], ".local", "state", "svc-ledger")
	makeFifo(t, filepath.Join(s.env["SVC_LEDGER"], "hang@000001.json"))
	for _, c := range allCommands(t) {
		if c.ledger == noLedger && schemaName(c) != "doctor" {
			continue
		}
		name := schemaName(c)
		line := append(strings.Split(name, "-"), strings.Fields(strings.TrimPrefix(successes[name]+badLines[name], "-"))...)
		if name == "run" {
			line = []string{"run", "--name", "n", "--image", "i", "--", "true"}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := s.background(append([]string{line[0], "--timeout", "2s"}, line[1:]...)...)
			began := time.Now()
			stop := time.AfterFunc(45*time.Second, func() { _ = b.cmd.Process.Kill() })
			defer stop.Stop()
			b.end()
			require.Less(t, time.Since(began), 40*time.Second)
		})
	}
}
