package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// live are the endpoints that are billed, by their IDs.
func (s *session) live() map[string]svctest.Endpoint {
	found := map[string]svctest.Endpoint{}
	for _, e := range s.srv.Endpoints() {
		if !e.Deleted {
			found[e.ID] = e
		}
	}
	return found
}

// Two releases of an app at once, whatever the second one finds the first one doing: the release that the traffic
// points to is never deleted, and one more run, alone, leaves its release only.
func TestReleasesAtOnceNeverDeleteTheOneThatServes(t *testing.T) {
	t.Parallel()
	says := func(text string) func(*background) { return func(b *background) { b.until(text) } }
	drains := func(b *background) {
		b.until("app--2 serves")
		time.Sleep(2500 * time.Millisecond) // until it has claimed its release
	}
	for name, tt := range map[string]struct {
		opts   []svctest.Option
		drain  string
		slow   string            // the ID of the endpoint whose switch takes four seconds
		second string            // release of the second run
		reach  func(*background) // when the second run begins
	}{
		"at the same moment":     {second: "3", reach: func(*background) {}},
		"the same release":       {second: "2", reach: func(*background) {}},
		"the first one deploys":  {opts: []svctest.Option{svctest.WithDeployTime(2 * time.Second)}, second: "3", reach: says("created svc-2")},
		"the first one switches": {slow: "svc-2", drain: "1", second: "3", reach: says("switching")},
		"the first one switches, and the second one deploys for long": {opts: []svctest.Option{svctest.WithDeployTime(4 * time.Second)}, slow: "svc-2", drain: "1", second: "3", reach: says("switching")},
		"the first one drains":                   {drain: "10", second: "3", reach: drains},
		"the first one drains, and is given up":  {drain: "14", second: "1", reach: drains},
		"the first one deletes":                  {opts: []svctest.Option{svctest.WithDeleteTime(3 * time.Second)}, second: "3", reach: arrives("DELETE", svctest.RouteEndpoint, 1)},
		"the first one deletes, and is given up": {opts: []svctest.Option{svctest.WithDeleteTime(3 * time.Second)}, second: "1", reach: arrives("DELETE", svctest.RouteEndpoint, 1)},
		"the second switch is slow":              {slow: "svc-3", drain: "1", second: "3", reach: says("app--2 serves")},
	} {
		if !sampled() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t, tt.opts...)
			s.env["DRAIN"] = "0"
			traffic := filepath.Join(s.env["HOME"], "traffic")
			s.tool("switch", fmt.Sprintf(`case $1 in */%s) echo switching >&2; sleep 4 ;; esac; echo "$1" >"$HOME/traffic"`, tt.slow))
			args := func(n string) []string { return []string{"app", n, "app:" + n, "switch"} }
			serves := func() string {
				text, err := os.ReadFile(traffic)
				require.NoError(t, err)
				url := strings.TrimSpace(string(text))
				return url[strings.LastIndex(url, "/")+1:]
			}
			require.Zero(t, s.script("blue-green.sh", args("1")...).code)
			if tt.drain != "" {
				s.env["DRAIN"] = tt.drain
			}
			first := s.startScript("blue-green.sh", args("2")...)
			tt.reach(first)
			second := s.startScript("blue-green.sh", args(tt.second)...)
			a, b := first.end(), second.end()
			all := fmt.Sprintf("%d:\n%s\n%d:\n%s", a.code, a.stderr, b.code, b.stderr)
			require.Contains(t, s.live(), serves(), all)
			for _, e := range []ended{a, b} {
				require.Contains(t, []int{0, exitLedger, 20}, e.code, all)
				switch e.code {
				case exitLedger:
					require.Contains(t, e.stderr, "it is not known which one serves")
					require.Contains(t, e.stderr, "nothing was changed")
				case 20:
					require.Regexp(t, `another run has begun: app--\d is new|another command deletes app--1|the lease of app--1 cannot be set`, e.stderr)
					require.Contains(t, e.stderr, "run the same command again, when no other one runs for app")
				}
			}
			if a.code == 0 && b.code == 0 {
				require.Len(t, s.live(), 1, all)
			}
			if b.code == exitLedger {
				require.Zero(t, s.script("blue-green.sh", args("2")...).code, all)
			}
			e := s.script("blue-green.sh", args(tt.second)...)
			require.Zero(t, e.code, "%s\n%s", all, e.stderr)
			require.Equal(t, []string{"app:" + tt.second}, s.running())
			require.Contains(t, s.live(), serves())
		})
	}
}

// Two rollouts of a key at once, whatever the second one finds the first one doing: one endpoint runs at most, both end,
// and a code that says what serves is true.
func TestRolloutsAtOnceRentOne(t *testing.T) {
	t.Parallel()
	slow := []svctest.Option{svctest.WithDeployTime(2 * time.Second), svctest.WithDeleteTime(2 * time.Second)}
	moments := map[string]func(*background){
		"at the same moment":     func(*background) {},
		"the first one deletes":  arrives("DELETE", svctest.RouteEndpoint, 1),
		"the first one creates":  arrives("POST", svctest.RouteEndpoints, 2),
		"the first one deploys":  func(b *background) { b.until("created svc-2") },
		"the first one is ahead": func(b *background) { time.Sleep(300 * time.Millisecond) },
	}
	for i, when := range slices.Sorted(maps.Keys(moments)) {
		for j, images := range [][2]string{{"app:2", "app:3"}, {"app:2", "app:2"}, {"bad:1", "app:3"}, {"bad:1", "bad:1"}} {
			reach := moments[when]
			if !tried(i, j) {
				continue
			}
			t.Run(fmt.Sprint(when, images), func(t *testing.T) {
				t.Parallel()
				s := scriptSession(t, slow...)
				require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
				first := s.startScript("rollout.sh", "app", images[0], "app:1")
				reach(first)
				second := s.startScript("rollout.sh", "app", images[1], "app:1")
				a, b := first.end(), second.end()
				all := fmt.Sprintf("%v %d:\n%s\n%d:\n%s", s.running(), a.code, a.stderr, b.code, b.stderr)
				require.Len(t, s.running(), 1, all)
				for i, e := range []ended{a, b} {
					switch e.code {
					case 0:
						require.Equal(t, []string{images[i]}, s.running(), all)
					case 1:
						require.Equal(t, []string{"app:1"}, s.running(), all)
					default:
						require.Contains(t, []int{exitLedger, exitRunning}, e.code, all)
					}
				}
			})
		}
	}
}

// A rollout deletes the endpoint that it has checked, and no other one that has the key by then.
func TestRolloutDeletesWhatItHasChecked(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	s.tool("svc", `[ "$1$LATE" != deleteyes ] || { touch "$HOME/deletes"; until [ -e "$HOME/go" ]; do sleep 0.1; done; }; exec `+binary+` "$@"`)
	s.env["LATE"] = "yes"
	late := s.startScript("rollout.sh", "app", "app:3", "app:1")
	eventually(t, "the delete", func() bool { _, err := os.Stat(filepath.Join(s.env["HOME"], "deletes")); return err == nil })
	s.env["LATE"] = "no"
	require.Zero(t, s.script("rollout.sh", "app", "app:2", "app:1").code)
	require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "go"), nil, 0o600))
	e := late.end()
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Equal(t, []string{"app:2"}, s.running(), e.stderr)
}

// A switch that is slower than a whole other run ends with 20: the release that it points the traffic to was deleted
// meanwhile, also if its key has another endpoint by then.
func TestSwitchThatIsSlowerThanOtherRuns(t *testing.T) {
	t.Parallel()
	for _, others := range [][]string{{"3"}, {"3", "2"}} {
		s := scriptSession(t)
		s.env["DRAIN"] = "0"
		s.tool("switch", `case $1 in */svc-2) echo switching >&2; until [ -e "$HOME/go" ]; do sleep 0.1; done ;; esac`)
		args := func(n string) []string {
			return []string{"app", n, "app:" + n, "switch", "--instances", "1", "--flavor", "flavor-2"}
		}
		require.Zero(t, s.script("blue-green.sh", args("1")...).code)
		slow := s.startScript("blue-green.sh", args("2")...)
		slow.until("switching")
		for _, n := range others {
			e := s.script("blue-green.sh", args(n)...)
			require.Zero(t, e.code, e.stderr)
		}
		require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "go"), nil, 0o600))
		e := slow.end()
		require.Equal(t, 20, e.code, e.stderr)
		require.Contains(t, e.stderr, "another command deletes app--2, or has deleted it: nothing more is deleted, and the traffic may point to what is deleted")
		last := others[len(others)-1]
		require.Equal(t, []string{"app:" + last}, s.running(), e.stderr)
		require.Zero(t, s.script("blue-green.sh", args(last)...).code)
	}
}
