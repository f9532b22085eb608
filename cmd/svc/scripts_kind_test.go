package main

import (
	"fmt"
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

// instances are the number of instances of each image that is billed, or would be.
func (s *session) instances() map[string]int {
	found := map[string]int{}
	for _, e := range s.srv.Endpoints() {
		if !e.Deleted {
			found[e.ImageURL] += e.Instances
		}
	}
	return found
}

// A script that replaces an endpoint keeps the number of instances that "svc scale" has set, whatever its
// --instances says.
func TestScriptsKeepTheNumberOfInstances(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		line   func(release, image, before string) []string
		key    func(release string) string
		failed int // code of a release that does not become available
	}{
		"rollout.sh": {
			func(_, image, before string) []string { return []string{"app", image, before, "--instances", "1"} },
			func(string) string { return "app" }, 1,
		},
		"blue-green.sh": {
			func(release, image, _ string) []string {
				return []string{"app", release, image, "switch", "--instances", "1"}
			},
			func(release string) string { return "app--" + release }, exitDeleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t)
			s.env["DRAIN"] = "0"
			s.tool("switch", "true")
			release := func(code int, n, image, before string) string {
				t.Helper()
				e := s.script(name, tt.line(n, image, before)...)
				require.Equal(t, code, e.code, e.stdout+e.stderr)
				require.Regexp(t, `^(svc-\d+\n)*$`, e.stdout, "only IDs")
				return e.stderr
			}
			release(0, "1", "app:1", "app:0")
			s.must(exitOK, "scale", "--key", tt.key("1"), "2")
			release(0, "2", "app:2", "app:1")
			require.Equal(t, map[string]int{"app:2": 2}, s.instances())
			release(0, "2", "app:2", "app:1")
			require.Equal(t, map[string]int{"app:2": 2}, s.instances(), "again: nothing happens")

			s.must(exitOK, "scale", "--key", tt.key("2"), "3")
			release(tt.failed, "3", "bad:1", "app:2")
			require.Equal(t, map[string]int{"app:2": 3}, s.instances(), "what serves has as many as before")
			require.Contains(t, release(0, "4", "app:4", "app:2"), "as many instances as", "--instances 1 does not count")
			require.Equal(t, map[string]int{"app:4": 3}, s.instances())

			s.must(exitOK, "scale", "--key", tt.key("4"), "0")
			said := release(exitUnusable, "5", "app:5", "app:4")
			require.Equal(t, map[string]int{"app:4": 0}, s.instances(), "nothing is billed")
			require.Contains(t, said, "nothing was changed")
		})
	}
}

// A deployment under a key says so if a new endpoint does not get the instances that "svc scale" has set, and if
// an endpoint keeps others than the request has.
func TestDeployTellsOfInstancesThatWereScaled(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "app.yaml"), []byte("name: x\ndeploy_metadata: {image_url: app:1}\n"), 0o600))
	deploy := []string{"deploy", "--key", "app", "--file", "app.yaml"}
	s.must(exitOK, deploy...)
	s.must(exitOK, "scale", "--key", "app", "3")
	for _, more := range [][]string{nil, {"--dry-run"}} {
		e := s.must(exitOK, with(deploy, more...)...)
		require.Contains(t, e.stderr, "was scaled to 3 instances, and keeps them")
	}
	require.Equal(t, map[string]int{"app:1": 3}, s.instances())

	s.must(exitOK, "scale", "--key", "app", "0")
	for _, more := range []string{"--dry-run", "--quiet"} {
		e := s.must(exitOK, with(deploy, "--replace", more)...)
		require.Contains(t, e.stderr, "was scaled to 0 instances, and the new one")
		require.Contains(t, e.stderr, "svc scale --key app 0")
	}
	s.must(exitOK, "scale", "--key", "app", "2")
	s.must(exitOK, "delete", s.open()[0], "--ledger", "none") // elsewhere
	require.Contains(t, s.must(exitOK, deploy...).stderr, "was scaled to 2 instances, and the new one has 1")
}

// A signal to the script alone, at each stage of a rollout: what it prints is about its key, and its code says
// what runs.
func TestRolloutSaysWhatRunsAfterASignal(t *testing.T) {
	t.Parallel()
	arrives := func(method, route string, n int) func(*background) {
		return func(b *background) {
			eventually(t, method, func() bool { return b.s.arrived(method, route) >= n })
		}
	}
	for name, tt := range map[string]struct {
		opts    []svctest.Option
		image   string
		slow    [2]string // the request that takes a second
		reach   func(*background)
		code    int
		running []string
	}{
		"the new request is checked": {
			slow: [2]string{"GET", svctest.RouteFlavors}, reach: arrives("GET", svctest.RouteFlavors, 1),
			code: exitRunning, running: []string{"app:1"},
		},
		"the old endpoint is read": {
			slow: [2]string{"GET", svctest.RouteEndpoint}, reach: arrives("GET", svctest.RouteEndpoint, 1),
			code: exitRunning, running: []string{"app:1"},
		},
		"the old endpoint is deleted": {
			opts: []svctest.Option{svctest.WithDeleteTime(time.Minute)}, reach: arrives("DELETE", svctest.RouteEndpoint, 1),
			code: exitRunning, running: []string{"app:1"},
		},
		"the create is sent": {
			slow: [2]string{"POST", svctest.RouteEndpoints}, reach: arrives("POST", svctest.RouteEndpoints, 1), code: exitDeleted,
		},
		"the new endpoint is deployed": {
			opts:  []svctest.Option{svctest.WithDeployTime(2 * time.Second)},
			reach: func(b *background) { b.until("created svc-3") }, code: exitDeleted,
		},
		"the old image is deployed again": {
			image: "bad:1", opts: []svctest.Option{svctest.WithDeployTime(2 * time.Second)},
			reach: func(b *background) { b.until("created svc-4") }, code: exitDeleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t, tt.opts...)
			require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
			s.must(exitOK, "deploy", "--key", "other", "--name", "other", "--image", "other:1")
			if tt.slow[0] != "" {
				s.srv.Fault(tt.slow[0], tt.slow[1], svctest.Fault{Delay: time.Second, Times: -1})
			}
			s.srv.ResetRequests()
			image := tt.image
			if image == "" {
				image = "app:2"
			}
			b := s.startScript("rollout.sh", "app", image, "app:1")
			tt.reach(b)
			b.signal(syscall.SIGTERM)
			e := b.end()
			s.srv.ClearFaults()
			require.Equal(t, tt.code, e.code, e.stderr)
			require.ElementsMatch(t, append(tt.running, "other:1"), s.running(), e.stderr)
			said := e.stderr[strings.Index(e.stderr, "stopped by SIGTERM"):]
			require.NotContains(t, said, "other", "it is about another key")
			require.Equal(t, len(tt.running) > 0, strings.Contains(said, "\napp "), said)
			require.Contains(t, said, "svc delete --key app --missing-ok")
			if tt.image == "" && len(tt.running) == 0 {
				require.Contains(t, said, "--instances 1", "nothing else knows how many there were")
			}
		})
	}
}

// stub puts a program in the place of svc, whose commands write nothing, or a line about the key app, and end with
// these codes. The other commands end with 0.
func (s *session) stub(codes map[string]int) {
	script := "echo \"$*\" >>\"$HOME/calls\"\ncase \"$*\" in\n"
	for words, code := range codes {
		script += fmt.Sprintf("%s*) exit %d ;;\n", strings.ReplaceAll(words, " ", "\\ "), code)
	}
	s.tool("svc", script+"url*) echo https://app.example ;;\nls\\ --no-headers) echo 'app--1 created'; echo 'app--2 created' ;;\nesac")
}

// The code of a script is that of its step which says that something may run, whatever the other steps end with.
func TestScriptsEndWithTheCodeThatMatters(t *testing.T) {
	t.Parallel()
	nightly, bluegreen, rollout := []string{"nightly-sweep.sh"}, []string{"blue-green.sh", "app", "3", "app:3", "true"}, []string{"rollout.sh", "app", "app:2", "app:1"}
	tested := map[string]bool{}
	for _, tt := range []struct {
		line  []string
		codes map[string]int
		want  int
	}{
		{nightly, map[string]int{"sweep": 10, "ledger prune": 9, "doctor": 1, "ls": 9}, 10},
		{nightly, map[string]int{"sweep": 7, "ledger prune": 9}, 7},
		{nightly, map[string]int{"sweep": 10, "doctor": 1, "ls": 9}, 10},
		{nightly, map[string]int{"ledger prune": 9, "doctor": 1, "ls": 3}, 9},
		{nightly, map[string]int{"doctor": 1, "ls": 9}, 1},
		{nightly, nil, 0},
		{bluegreen, map[string]int{"delete --key app--1": 10, "delete --key app--2": 9}, 10},
		{bluegreen, map[string]int{"delete --key app--1": 9, "delete --key app--2": 10}, 10},
		{bluegreen, map[string]int{"delete --key app--1": 4, "delete --key app--2": 7}, 4},
		{bluegreen, map[string]int{"delete --key app--1": 5}, 5},
		{bluegreen, map[string]int{"deploy": 11}, 11},
		{bluegreen, map[string]int{"url": 7}, 20},
		{rollout, map[string]int{"deploy": 10}, 10},
		{rollout, map[string]int{"deploy --key app --name app --image app:2 --lease 24h --dry-run": 9, "delete": 10}, 10},
		{rollout, map[string]int{"deploy --key app --name app --image app:2 --lease 24h --dry-run": 9, "get": 7}, 10},
	} {
		s := newSession(t)
		s.env["DRAIN"] = "0"
		s.stub(tt.codes)
		tested[tt.line[0]] = true
		e := s.script(tt.line[0], tt.line[1:]...)
		require.Equal(t, tt.want, e.code, "%v %v\n%s", tt.line, tt.codes, e.stdout+e.stderr)
	}
	all, err := filepath.Glob("scripts/*.sh")
	require.NoError(t, err)
	for _, file := range all {
		require.True(t, tested[filepath.Base(file)], file)
	}
}

// A signal at each step of nightly-sweep.sh ends it, and what the sweep has said counts.
func TestNightlySweepStopsAtEachStep(t *testing.T) {
	t.Parallel()
	for i, step := range []string{"sweep", "ledger prune", "doctor"} {
		for _, swept := range []int{0, exitRunning} {
			if i == 0 && swept != 0 {
				continue
			}
			s := newSession(t)
			s.tool("svc", fmt.Sprintf("echo \"$*\" >>\"$HOME/calls\"\ncase \"$*\" in\n%s*) trap 'kill $!; exit 130' TERM; echo waiting >&2; sleep 60 & wait ;;\nsweep*) exit %d ;;\nesac",
				strings.ReplaceAll(step, " ", "\\ "), swept))
			b := s.startScript("nightly-sweep.sh")
			eventually(t, step, func() bool {
				calls, _ := os.ReadFile(filepath.Join(s.env["HOME"], "calls"))
				return strings.Contains(string(calls), step)
			})
			time.Sleep(100 * time.Millisecond) // until the trap of the stub is set
			b.signal(syscall.SIGTERM)
			e := b.end()
			want := exitInterrupted
			if swept != 0 {
				want = swept
			}
			require.Equal(t, want, e.code, "%s: %s", step, e.stderr)
			require.Contains(t, e.stderr, "stopped by SIGTERM", step)
			calls, err := os.ReadFile(filepath.Join(s.env["HOME"], "calls"))
			require.NoError(t, err)
			require.Equal(t, i+2, strings.Count(string(calls), "\n"), "nothing is started after it but ls: %s", calls)
		}
	}
}

// Each line for a shell in which timeout runs svc keeps the code of svc: without --preserve-status it is 124.
func TestTimeoutKeepsTheCode(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	scripts, err := filepath.Glob("scripts/*")
	require.NoError(t, err)
	lines := 0
	for _, file := range append(append(files, scripts...), "../../README.md", "README.md", "help.go") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`\btimeout .*\bsvc\b.*`).FindAllString(string(text), -1) {
			require.Contains(t, line, "timeout --preserve-status -k", file)
			lines++
		}
	}
	require.Greater(t, lines, 3)
}
