package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
				return []string{"app", release, image, "switch", "--instances", "1", "--max-price", "100"}
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
		require.Contains(t, e.stderr, "svc-1 has 3 instances, and keeps that number: --instances 1 is for a new endpoint. To scale it: svc scale --key app N\n")
	}
	require.Equal(t, map[string]int{"app:1": 3}, s.instances())

	s.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 503, Times: -1})
	s.must(exitRunning, "scale", "--key", "app", "5", "--timeout", "5s") // the ledger has 5, for all that is known
	s.srv.ClearFaults()
	for _, more := range [][]string{nil, {"--dry-run"}, {"--wait=false"}} {
		require.Contains(t, s.must(exitOK, with(deploy, more...)...).stderr, "svc-1 has 3 instances, and keeps that number", "by its record_B10")
	}
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
		})
	}
}

// stub puts a program in the place of svc, whose commands write nothing, or a line about the key app, and end with
// these codes. The other commands end with 0.
func (s *session) stub(codes map[string]int) {
	script := "echo \"$*\" >>\"$HOME/calls\"\ncase \"$*\" in\ndeploy*--help*) exit ;;\n"
	for _, words := range slices.Backward(slices.Sorted(maps.Keys(codes))) { // the longer one first
		script += fmt.Sprintf("%s*) echo 'error_kind: key_in_use'; exit %d ;;\n", strings.ReplaceAll(words, " ", "\\ "), codes[words])
	}
	s.tool("svc", script+`url*) printf '%s\n' 'service_id: svc-9' 'url: https://app.example' ;;
ls\ *-o\ yaml*) echo entries:; for key in app app--1 app--2 $(grep -q "^deploy --key" "$HOME/calls" && echo app--3); do
	printf '  - %s\n' "key: $key" "state: created" "service_id: svc-9" "open: true" "instances: 1" "created_instances: 1" "flavor_id: flavor-9"
done ;;
get*) echo 'instances: 1'; echo 'flavor_id: flavor-9' ;;
flavors*) echo flavor-9 ;;
esac`)
}

// The code of a script is that of its step which says that something may run, whatever the other steps end with.
func TestScriptsEndWithTheCodeThatMatters(t *testing.T) {
	t.Parallel()
	nightly, bluegreen, rollout := []string{"nightly-sweep.sh"}, []string{"blue-green.sh", "app", "3", "app:3", "true", "--instances", "1", "--flavor", "flavor-9"}, []string{"rollout.sh", "app", "app:2", "app:1"}
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
		{bluegreen, map[string]int{"delete --missing-ok --key app--1": 10}, 20},
		{bluegreen, map[string]int{"delete --missing-ok --key app--2": 7}, 20},
		{bluegreen, map[string]int{"extend": 10}, 20},
		{bluegreen, map[string]int{"deploy": 11}, 11},
		{bluegreen, map[string]int{"url": 7}, 20},
		{rollout, map[string]int{"deploy": 10}, 10},
		{rollout, map[string]int{"deploy": 1}, 10}, // 1 would mean that the old image serves
		{rollout, map[string]int{"ls": 1}, 10},
		{rollout, map[string]int{"deploy --quiet --timeout 2m --key app --name app --image app:2 --lease 24h --flavor flavor-9 --instances 1 --dry-run": 9, "delete": 1}, 10},
		{rollout, map[string]int{"deploy --quiet --timeout 2m --key app --name app --image app:2 --lease 24h --flavor flavor-9 --instances 1 --dry-run": 9, "delete": 10}, 10},
		{rollout, map[string]int{"deploy --quiet --timeout 2m --key app --name app --image app:2 --lease 24h --flavor flavor-9 --instances 1 --dry-run": 9, "get": 7}, 10},
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
		for _, line := range regexp.MustCompile(`(?m)(?:^|[^-])\btimeout .*\bsvc\b.*`).FindAllString(string(text), -1) {
			require.Contains(t, line, "timeout --preserve-status -k", file)
			lines++
		}
	}
	require.Greater(t, lines, 3)
}

// A script that ignores SIGINT when it starts, as one does that another script has started with &, goes on as svc does.
func TestScriptsAndProgramIgnoreTheSameSignals(t *testing.T) {
	t.Parallel()
	s := scriptSession(t, svctest.WithDeployTime(2*time.Second))
	file, err := filepath.Abs(filepath.Join("scripts", "rollout.sh"))
	require.NoError(t, err)
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	b := &background{s: s, cmd: s.shell(`set -m; trap "" INT; "$1" app app:2 app:1 & echo $! >pid; wait $!`, file)}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	s.start(b.cmd)
	b.until("created svc-2")
	require.Zero(t, s.finish(s.shell(`kill -INT -- "-$(cat pid)"`)).code) // the script, and svc
	e := b.end()
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, []string{"app:2"}, s.running(), e.stderr)
}

// A script rents and deletes nothing more once svc has ended by a signal that the script itself did not get.
func TestScriptsStopAfterASignalToTheProgramAlone(t *testing.T) {
	t.Parallel()
	const dry = "deploy --quiet --timeout 2m --key app --name app --image app:2 --lease 24h --flavor flavor-9 --instances 1 --dry-run"
	rollout, bluegreen := []string{"rollout.sh", "app", "app:2", "app:1"}, []string{"blue-green.sh", "app", "3", "app:3", "true", "--instances", "1", "--flavor", "flavor-9"}
	for _, tt := range []struct {
		line  []string
		codes map[string]int
		last  string // the last call that may change something; empty if there is none
	}{
		{rollout, map[string]int{"ls": 130}, ""},
		{rollout, map[string]int{"deploy": 129}, ""},
		{rollout, map[string]int{dry: 9, "get": 143}, ""},
		{rollout, map[string]int{dry: 9, "flavors": 130}, ""},
		{rollout, map[string]int{dry: 9, "delete": 143}, "delete --missing-ok --timeout 10m -- svc-9"},
		{rollout, map[string]int{dry: 0, "deploy --key app --name app --image app:2 --lease 24h": 130}, "deploy --key app --name app --image app:2 --lease 24h --flavor flavor-9 --instances 1"},
		{bluegreen, map[string]int{"ls": 130}, ""},
		{bluegreen, map[string]int{"get --quiet --timeout 2m --key app--1": 143}, ""},
		{bluegreen, map[string]int{"get --quiet --timeout 2m --key app--2": 143}, ""},
		{bluegreen, map[string]int{"deploy": 129}, "deploy --key app--3 --name app--3 --image app:3 --lease 720h --instances 1 --flavor flavor-9"},
		{bluegreen, map[string]int{"url": 130}, "deploy --key app--3 --name app--3 --image app:3 --lease 720h --instances 1 --flavor flavor-9"},
		{bluegreen, map[string]int{"delete --missing-ok --key app--1": 143}, "delete --missing-ok --key app--1 --timeout 10m"},
		{[]string{"nightly-sweep.sh"}, map[string]int{"sweep": 143}, "sweep --quiet"},
	} {
		s := newSession(t)
		s.env["DRAIN"] = "0"
		s.stub(tt.codes)
		e := s.script(tt.line[0], tt.line[1:]...)
		require.NotZero(t, e.code, "%v\n%s", tt.codes, e.stderr)
		require.Contains(t, e.stderr, "stopped by a signal", "%v %v", tt.line, tt.codes)
		calls, err := os.ReadFile(filepath.Join(s.env["HOME"], "calls"))
		require.NoError(t, err)
		last := ""
		for call := range strings.Lines(string(calls)) {
			if regexp.MustCompile(`^(deploy|delete|sweep|ledger prune)`).MatchString(call) && !regexp.MustCompile(`--dry-run|--help`).MatchString(call) {
				last = strings.TrimSpace(call)
			}
		}
		require.Equal(t, tt.last, last, "%v %v\n%s", tt.line, tt.codes, e.stderr)
	}
}

// A release of blue-green.sh has the flavor of the one that serves, unless the caller names another or a price.
func TestBlueGreenKeepsTheFlavor(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.env["DRAIN"] = "0"
	s.tool("switch", "true")
	flavor := func() (id string) {
		for _, e := range s.srv.Endpoints() {
			if !e.Deleted {
				id = e.FlavorID
			}
		}
		return id
	}
	release := func(code int, n string, flags ...string) string {
		t.Helper()
		e := s.script("blue-green.sh", append([]string{"app", n, "app:" + n, "switch"}, flags...)...)
		require.Equal(t, code, e.code, e.stdout+e.stderr)
		return e.stderr
	}
	release(0, "1", "--flavor", "flavor-1")
	require.Equal(t, "flavor-1", flavor())
	said := release(0, "2")
	require.Equal(t, "flavor-1", flavor(), "a cheaper one is in stock")
	require.Regexp(t, `app--1 serves, with the flavor flavor-1 at [0-9.]+ USD`, said)
	require.Regexp(t, `app--2 has the flavor flavor-1 at [0-9.]+ USD`, said)
	s.env["DRAIN"] = "0"
	release(0, "2")
	said = release(exitNotFound, "3", "--gpu", "no such GPU")
	require.Contains(t, said, "--flavor or --max-price")
	require.Equal(t, "flavor-1", flavor(), "nothing was changed")
	release(0, "4", "--flavor=flavor-2")
	require.Equal(t, "flavor-2", flavor())
	release(0, "5", "--max-price", "100")
	require.Equal(t, "flavor-2", flavor(), "the cheapest")
	require.Len(t, s.running(), 1)
}

// Nobody but the user knows which of two releases the traffic points to: blue-green.sh does not guess, and says how to go on.
func TestBlueGreenDoesNotGuessWhichReleaseServes(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.env["DRAIN"] = "0"
	s.tool("switch", "true")
	require.Zero(t, s.script("blue-green.sh", "app", "1", "app:1", "switch").code)
	s.tool("switch", "false")
	require.Equal(t, 20, s.script("blue-green.sh", "app", "2", "app:2", "switch").code)
	s.tool("switch", "true")
	for _, n := range []string{"3", "0"} {
		s.must(exitOK, "scale", "--key", "app--2", n)
		e := s.script("blue-green.sh", "app", "3", "app:3", "switch", "--flavor", "flavor-2")
		require.Equal(t, exitLedger, e.code, e.stderr)
		require.Contains(t, e.stderr, " run, and it is not known which one serves")
		require.NotContains(t, e.stderr, " serves, with")
	}
	require.Equal(t, 2, s.arrived("POST", svctest.RouteEndpoints), "nothing was changed")
	e := s.script("blue-green.sh", "app", "3", "app:3", "switch", "--flavor", "flavor-2", "--instances", "2")
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, map[string]int{"app:3": 2}, s.instances())
}

// The stock of a flavor that is named in FLAGS is checked before anything is deleted.
func TestRolloutToAFlavorThatIsSoldOut(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	e := s.script("rollout.sh", "app", "app:2", "app:1", "--flavor", "flavor-3")
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "nothing was changed")
	require.Zero(t, s.arrived("DELETE", svctest.RouteEndpoint))
}

// A rollout says so if the new endpoint has a shorter lease than the old one.
func TestRolloutSaysThatItShortensTheLease(t *testing.T) {
	t.Parallel()
	for lease, want := range map[string]string{"720h": "the lease of app was until ", "0": "the lease of app is 24h now", "1h": ""} {
		t.Run(lease, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t)
			s.must(exitOK, "deploy", "--key", "app", "--name", "app", "--image", "app:1", "--lease", lease)
			e := s.script("rollout.sh", "app", "app:2", "app:1")
			require.Zero(t, e.code, e.stderr)
			require.Contains(t, e.stderr, want)
			require.Equal(t, want != "", strings.Contains(e.stderr, "warning: the lease of app"), e.stderr)
		})
	}
}

// TestScriptsReadNamesAsNames: a name that looks like an entry of the ledger is none.
func TestScriptsReadNamesAsNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x - key: app--zz", "x  - key: app--ZZ", "- key: app--zz", "'- key: app--zz", "key: app--zz"} {
		if !sampled() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			s := scriptSession(t)
			s.tool("switch", "")
			s.env["DRAIN"] = "0"
			s.must(exitOK, "deploy", "--key", "other", "--name", name, "--image", "other:1", "--instances", "2", "--flavor", "flavor-1")
			for _, release := range []string{"r1", "r2"} {
				e := s.script("blue-green.sh", "app", release, "app:1", "switch", "--instances", "1")
				require.Equal(t, exitOK, e.code, e.stderr)
				require.NotContains(t, strings.ToLower(e.stderr), "zz")
			}
			for _, image := range []string{"app:1", "app:2"} {
				e := s.script("rollout.sh", "one", image, "app:1", "--name="+name)
				require.Equal(t, exitOK, e.code, e.stderr)
			}
			require.Equal(t, []string{"other:1", "app:1", "app:2"}, s.running())
		})
	}
}

// TestBlueGreenDoesNotCallAReleaseInDoubtServing: it waits until somebody has settled it.
func TestBlueGreenDoesNotCallAReleaseInDoubtServing(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.tool("switch", "")
	s.env["DRAIN"] = "0"
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	require.Equal(t, exitUnknown, s.script("blue-green.sh", "app", "r1", "app:1", "switch").code)
	e := s.script("blue-green.sh", "app", "r2", "app:2", "switch")
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Contains(t, e.stderr, "the outcome of the create of app--r1 is not known")
	require.Contains(t, e.stderr, "nothing was changed")
	s.must(exitOK, "adopt", "app--r1", "svc-1")
	e = s.script("blue-green.sh", "app", "r2", "app:2", "switch")
	require.Equal(t, exitOK, e.code, e.stderr)
	require.Equal(t, []string{"app:2"}, s.running())
}

// TestScriptsCheckFlagsFirst: no flag of a user may take what the script adds for its value, such as --dry-run, and none is
// found to be wrong only after the endpoint that serves is deleted.
func TestScriptsCheckFlagsFirst(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--command"}, {"--name"}, {"--max-price", "9", "--command"}, {"--timeout", "0"}, {"--timeout=-5s"}, {"--probe", "/%zz"}, {"--"}, {"x"}} {
		for _, serves := range []bool{false, true} {
			t.Run(fmt.Sprint(flags, serves), func(t *testing.T) {
				t.Parallel()
				s := scriptSession(t)
				running := 0
				if serves {
					s.must(exitOK, "deploy", "--key", "app", "--name", "app", "--image", "app:1", "--lease", "24h")
					running = 1
				}
				before := s.changes()
				for _, line := range [][]string{{"rollout.sh", "app", "app:2", "app:1"}, {"blue-green.sh", "app", "2", "app:2", "true"}} {
					e := s.script(line[0], append(line[1:], flags...)...)
					require.Equal(t, exitUsage, e.code, "%s: %s", line[0], e.stderr)
					require.Contains(t, e.stderr, "nothing was changed")
				}
				s.env["OLD_FLAGS"] = strings.Join(flags, " ")
				if e := s.script("rollout.sh", "app", "app:2", "app:1"); serves {
					require.Equal(t, exitUsage, e.code, e.stderr)
				}
				if serves {
					require.Equal(t, before, s.changes())
					require.Equal(t, running, s.srv.RunningInstances())
				}
			})
		}
	}
}

// TestScriptsDoNotInheritIFS: BASH_ENV may hold the settings of its user's own scripts.
func TestScriptsDoNotInheritIFS(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	file := filepath.Join(s.env["HOME"], "settings")
	require.NoError(t, os.WriteFile(file, []byte("IFS=$'\\n\\t'\n"), 0o600))
	s.env["BASH_ENV"] = file
	require.Equal(t, "svc-1\n", s.script("rollout.sh", "app", "app:1", "app:0").stdout)
	require.Equal(t, "svc-2\n", s.script("blue-green.sh", "web", "1", "app:1", "true").stdout)
	e := s.script("nightly-sweep.sh")
	require.Empty(t, e.stderr)
}
