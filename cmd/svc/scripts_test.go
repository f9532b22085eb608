package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/svc/svctest"
)

// shell prepares a run of bash, with the program in its path.
func (s *session) shell(script string, args ...string) *exec.Cmd {
	s.t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		s.t.Skip("there is no bash")
	}
	cmd := exec.CommandContext(s.t.Context(), bash, append([]string{"-euo", "pipefail", "-c", script, "bash"}, args...)...)
	cmd.Dir = s.env["HOME"]
	for name, value := range s.env {
		if name != "PATH" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+s.env["HOME"]+"/bin:"+filepath.Dir(binary)+":"+s.env["PATH"])
	return cmd
}

// tool makes a program that the scripts of a test can call.
func (s *session) tool(name, script string) {
	s.t.Helper()
	dir := filepath.Join(s.env["HOME"], "bin")
	require.NoError(s.t, os.MkdirAll(dir, 0o777))
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o777))
}

// script runs a script of scripts/.
func (s *session) script(name string, args ...string) ended {
	s.t.Helper()
	file, err := filepath.Abs(filepath.Join("scripts", name))
	require.NoError(s.t, err)
	return s.finish(s.shell(`"$0" "$@"`, append([]string{file}, args...)...))
}

// arrives waits until the service has received so many requests.
func arrives(method, route string, n int) func(*background) {
	return func(b *background) {
		b.s.t.Helper()
		eventually(b.s.t, method, func() bool { return b.s.arrived(method, route) >= n })
	}
}

// running are the images of the endpoints that are billed.
func (s *session) running() (images []string) {
	for _, e := range s.srv.Endpoints() {
		if !e.Deleted {
			images = append(images, e.ImageURL)
		}
	}
	return images
}

// scriptSession has a service that cannot pull the image bad:1, and whose endpoints serve a model.
func scriptSession(t *testing.T, opts ...svctest.Option) *session {
	t.Helper()
	return newSession(t, append(opts, svctest.WithImagePullError("bad:1"), svctest.WithChat(""))...)
}

func TestRolloutScript(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	for _, step := range []struct {
		image, old string
		lost       bool // the response to the create
		code       int
		running    []string
	}{
		{"app:1", "app:0", false, 0, []string{"app:1"}},
		{"app:2", "app:1", false, 0, []string{"app:2"}},
		{"app:2", "app:1", false, 0, []string{"app:2"}}, // again: nothing happens
		{"bad:1", "app:2", false, 1, []string{"app:2"}},
		{"app:3", "app:2", true, exitUnknown, []string{"app:3"}}, // in doubt, and nothing more is created
		{"app:3", "app:2", false, exitUnknown, []string{"app:3"}},
	} {
		if step.lost {
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		}
		e := s.script("rollout.sh", "app", step.image, step.old)
		require.Equal(t, step.code, e.code, "%s\n%s%s", step.image, e.stdout, e.stderr)
		require.NotContains(t, e.stderr, "in use", "what looks like a failure is none")
		require.Equal(t, step.running, s.running(), e.stderr)
	}
	for _, args := range [][]string{{"app"}, {"app", "", "app:2"}, {"app", "app:4", ""}, {"", "app:4", "app:3"}} {
		require.Equal(t, exitUsage, s.script("rollout.sh", args...).code, "1 means that the old one serves")
	}
	require.Equal(t, exitUsage, s.script("blue-green.sh", "app", "", "app:1", "switch").code)
	for _, flag := range []string{"--dry-run", "--dry-run=true", "--key=other", "--wait=false", "--help"} { // with them, a script would delete what serves
		before := s.srv.RequestCount("*", svctest.RouteAny)
		require.Equal(t, exitUsage, s.script("rollout.sh", "app", "app:4", "app:3", flag).code)
		require.Equal(t, exitUsage, s.script("blue-green.sh", "app", "r2", "app:2", "switch", flag).code)
		require.Equal(t, before, s.srv.RequestCount("*", svctest.RouteAny))
	}
	e := s.script("rollout.sh", "new", "app:1", "app:0")
	require.Equal(t, "svc-", e.stdout[:4], "only the ID")
	e = s.script("rollout.sh", "new", "app:2", "app:1", "--flavor", "missing")
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "no flavor fits")
	require.Contains(t, e.stderr, "nothing was changed")
	e = s.script("rollout.sh", "new", "app:2", "app:1", "--port", "0")
	require.Equal(t, exitUsage, e.code, e.stderr)
	require.Equal(t, []string{"app:3", "app:1"}, s.running(), "the old one serves")
	s.must(exitOK, "delete", "svc-6")

	e = s.script("rollout.sh", "other", "bad:1", "bad:1")
	require.Equal(t, exitDeleted, e.code, "neither runs")
	require.Contains(t, e.stderr, "going back to bad:1 failed too")
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 400, Times: -1})
	require.Equal(t, 20, s.script("rollout.sh", "other", "app:1", "app:0", "--flavor", "flavor-1").code, "1 means that the old one serves")
}

// The old endpoint is brought back with what it was deployed with, or it is not deleted at all.
func TestRolloutBringsBackWhatServed_T02(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	served := func() svctest.Endpoint {
		for _, e := range s.srv.Endpoints() {
			if !e.Deleted {
				return e
			}
		}
		return svctest.Endpoint{}
	}
	require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
	first := served()
	require.Equal(t, "flavor-2", first.FlavorID)
	e := s.script("rollout.sh", "app", "app:1", "app:0", "--flavor", "flavor-2")
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, first.ID, served().ID, "the same request with the flavor that was picked")

	e = s.script("rollout.sh", "app", "bad:1", "app:1", "--flavor", "flavor-1")
	require.Equal(t, 1, e.code, e.stderr)
	require.Equal(t, "flavor-2", served().FlavorID)
	require.Equal(t, "app:1", served().ImageURL)

	second := served().ID
	e = s.script("rollout.sh", "app", "bad:1", "app:1", "--port", "9000")
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Contains(t, e.stderr, "OLD_FLAGS")
	require.Equal(t, exitLedger, s.script("rollout.sh", "app", "app:3", "app:2").code, "app:2 does not serve")
	require.Equal(t, second, served().ID, "nothing was changed")
	require.NotContains(t, e.stderr, "svc get --key app. Name", "it shows no image")
	require.Contains(t, e.stderr, "No command shows them")
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: 200, Times: -1, Body: `{"flavor_list":[{"flavor_id":"flavor-1","display_name":"x","available_num":9,"node_max_gpu":8,"billing":{"usd_price_unit":1}}]}`})
	e = s.script("rollout.sh", "app", "bad:1", "app:1")
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "the flavor flavor-2: for another one, FLAGS with --flavor")
	e = s.script("rollout.sh", "app", "bad:1", "app:1", "--flavor", "flavor-1")
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "the flavor flavor-2 of app:1 is not on offer any more")
	require.Equal(t, second, served().ID, "nothing was changed")
	s.srv.ClearFaults()
	s.env["OLD_FLAGS"] = "--port 8000"
	require.Equal(t, 1, s.script("rollout.sh", "app", "bad:1", "app:1", "--port", "9000", "--flavor=flavor-1").code)
	require.Equal(t, "flavor-2", served().FlavorID)
	require.Equal(t, "app:1", served().ImageURL)
}

// startScript starts a script of scripts/.
func (s *session) startScript(name string, args ...string) *background {
	s.t.Helper()
	file, err := filepath.Abs(filepath.Join("scripts", name))
	require.NoError(s.t, err)
	b := &background{s: s, cmd: s.shell(`exec "$0" "$@"`, append([]string{file}, args...)...)}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	s.start(b.cmd)
	return b
}

// A signal to a script alone reaches svc, and the old image is not rented.
func TestRolloutStopsAtASignal_T02(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := scriptSession(t)
		require.Zero(t, s.script("rollout.sh", "app", "app:1", "app:0").code)
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(500*time.Millisecond))
		b := s.startScript("rollout.sh", "app", "app:2", "app:1")
		eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 1 })
		b.signal(sig)
		e := b.end()
		require.Equal(t, exitDeleted, e.code, e.stderr)
		require.Contains(t, e.stderr, "app:1 is not deployed again")
		require.Contains(t, e.stderr, "svc delete --key app --missing-ok")
		require.Equal(t, 2, s.arrived("POST", svctest.RouteEndpoints), e.stderr)
		require.Empty(t, s.running())
	}
}

func TestBlueGreenScript(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.env["DRAIN"] = "0"
	s.tool("switch", `echo "$1" >traffic`)
	traffic := func() string {
		text, err := os.ReadFile(filepath.Join(s.env["HOME"], "traffic"))
		require.NoError(t, err)
		return string(text)
	}
	run := func(release, image string) ended {
		return s.script("blue-green.sh", "app", release, image, "switch", "--probe", "/v1/models")
	}
	e := run("1", "app:1")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, traffic(), "/svc-1\n")
	s.must(exitOK, "deploy", "--key", "application-of-another", "--name", "x", "--image", "other:1")
	e = run("2", "app:2")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, traffic(), "/svc-3\n")
	require.Equal(t, []string{"other:1", "app:2"}, s.running())
	require.Equal(t, exitDeleted, run("3", "bad:1").code)
	require.Contains(t, traffic(), "/svc-3\n", "the old release serves")
	require.Equal(t, []string{"other:1", "app:2"}, s.running())

	s.tool("switch", "exit 7")
	e = run("4", "app:4")
	require.Equal(t, 20, e.code, "a code of its own: SWITCH may end with any")
	require.Contains(t, e.stderr, "svc delete --key app--4")
	require.Equal(t, []string{"other:1", "app:2", "app:4"}, s.running(), "the old release is not deleted")
	s.tool("switch", `echo "$1" >traffic`)
	require.Zero(t, run("4", "app:4").code, "the same command goes on")
	require.Equal(t, []string{"other:1", "app:4"}, s.running())
}

// A signal to the script alone, at each of its stages: it says which keys may run, leaves what serves alone, and
// the same command goes on.
func TestBlueGreenStopsAtASignal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts    []svctest.Option
		prepare func(*session)
		reach   func(*background)
		code    int
		running []string
	}{
		"the create is sent": {
			prepare: func(s *session) { s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(500*time.Millisecond)) },
			reach: func(b *background) {
				eventually(t, "the create", func() bool { return b.s.arrived("POST", svctest.RouteEndpoints) > 1 })
			},
			code: exitDeleted, running: []string{"app:1"},
		},
		"the new release is deployed": {
			opts:  []svctest.Option{svctest.WithDeployTime(2 * time.Second)},
			reach: func(b *background) { b.until("created svc-2") },
			code:  exitDeleted, running: []string{"app:1"},
		},
		"the traffic is switched": {
			prepare: func(s *session) { s.tool("switch", "echo switching >&2; exec sleep 60") },
			reach:   func(b *background) { b.until("switching") },
			code:    20, running: []string{"app:1", "app:2"},
		},
		"both run": {
			prepare: func(s *session) { s.env["DRAIN"] = "60" },
			reach:   func(b *background) { b.until("blue-green: app--2 serves") },
			code:    20, running: []string{"app:1", "app:2"},
		},
		"the old release is deleted": {
			opts: []svctest.Option{svctest.WithDeleteTime(4 * time.Second)},
			reach: func(b *background) {
				eventually(t, "the delete", func() bool { return b.s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
			},
			code: 20, running: []string{"app:1", "app:2"},
		},
	} {
		if !sampled() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptSession(t, tt.opts...)
			s.env["DRAIN"] = "0"
			s.tool("switch", "true")
			args := func(n string) []string { return []string{"app", n, "app:" + n, "switch", "--timeout", "1m"} }
			require.Zero(t, s.script("blue-green.sh", args("1")...).code)
			if tt.prepare != nil {
				tt.prepare(s)
			}
			b := s.startScript("blue-green.sh", args("2")...)
			tt.reach(b)
			b.signal(syscall.SIGTERM)
			sent := time.Now()
			e := b.end()
			require.Less(t, time.Since(sent), 15*time.Second)
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Equal(t, tt.running, s.running(), e.stderr)
			require.Contains(t, e.stderr, "stopped by SIGTERM")
			said := e.stderr[strings.Index(e.stderr, "stopped by"):]
			for _, image := range tt.running {
				require.Contains(t, said, strings.Replace(image, ":", "--", 1), "its key")
			}
			require.Contains(t, said, "run the same command again")
			require.Equal(t, strings.Contains(e.stderr, "serves at"), !strings.Contains(said, "svc delete --key app--2"), said)

			s.env["DRAIN"] = "0"
			s.tool("switch", "true")
			require.Zero(t, s.script("blue-green.sh", args("2")...).code)
			require.Equal(t, []string{"app:2"}, s.running())
		})
	}
}

// A signal ends the sweep, and the script says what may still run.
func TestNightlySweepStopsAtASignal(t *testing.T) {
	t.Parallel()
	s := scriptSession(t, svctest.WithDeleteTime(time.Hour))
	s.must(exitOK, "deploy", "--key", "over", "--name", "x", "--image", "app:1", "--lease", "1s")
	time.Sleep(2100 * time.Millisecond)
	b := s.startScript("nightly-sweep.sh")
	eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
	b.signal(syscall.SIGTERM)
	e := b.end()
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Regexp(t, `(?s)stopped by SIGTERM.*\nover .*to delete what is over: svc sweep`, e.stderr)
	require.Equal(t, []string{"app:1"}, s.running())
}

func TestNightlySweepScript(t *testing.T) {
	t.Parallel()
	s := scriptSession(t)
	s.env["SVC_INFERENCE_URL"] = "" // a sweep does not need it
	s.must(exitOK, "deploy", "--key", "kept", "--name", "x", "--image", "app:1")
	e := s.script("nightly-sweep.sh")
	require.Zero(t, e.code, e.stdout+e.stderr)
	require.Empty(t, e.stdout+e.stderr, "cron sends no mail if there is nothing to report")

	s.must(exitOK, "deploy", "--key", "over", "--name", "x", "--image", "app:2", "--lease", "1s")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	e = s.script("nightly-sweep.sh")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, e.stdout, "over")
	require.Equal(t, []string{"app:1"}, s.running())

	require.Contains(t, s.must(exitOK, "ls", "--all").stdout, "over")
	s.env["KEEP"] = "1ms"
	require.Zero(t, s.script("nightly-sweep.sh").code)
	require.NotContains(t, s.must(exitOK, "ls", "--all").stdout, "over", "what has ended is dropped")

	s.env["SVC_BASE_URL"] = "http://127.0.0.1:1"
	e = s.script("nightly-sweep.sh")
	require.NotZero(t, e.code)
	require.Contains(t, e.stdout, "kept", "the endpoint at another address is reported")
}

// document is a Markdown file of docs/.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	return string(text)
}

// blocks are the code blocks of a language.
func blocks(text, language string) (found []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// step is a step of a pipeline.
type step struct {
	Name, Run, Uses string
	If              string
}

// pipeline is a job of a pipeline: its settings, and its steps.
type pipeline struct {
	env   map[string]string
	steps []step
}

func githubJob(t *testing.T) (p pipeline) {
	t.Helper()
	var file struct {
		Jobs map[string]struct {
			Env   map[string]string
			Steps []step
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(blocks(document(t, "ci.md"), "yaml")[0]), &file))
	for _, job := range file.Jobs {
		p = pipeline{job.Env, job.Steps}
	}
	return p
}

func gitlabJob(t *testing.T) (p pipeline) {
	t.Helper()
	var file map[string]struct {
		Variables                                   map[string]string
		BeforeScript, Script, AfterScript, Services []string `yaml:",omitempty"`
	}
	text := blocks(document(t, "ci.md"), "yaml")[1]
	text = strings.NewReplacer("before_script", "beforescript", "after_script", "afterscript").Replace(text)
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	for _, job := range file {
		p = pipeline{env: job.Variables}
		for _, line := range slices.Concat(job.BeforeScript, job.Script) {
			p.steps = append(p.steps, step{Run: line})
		}
		for _, line := range job.AfterScript {
			p.steps = append(p.steps, step{Run: line, If: "always()"})
		}
	}
	return p
}

// run runs the steps as a runner does: after a failure only those that always run. before may
// change a step.
func (p pipeline) run(s *session, before func(string) string) (failed bool, log string) {
	s.t.Helper()
	given := regexp.MustCompile(`\$\{\{ *(?:vars|secrets)\.(\w+) *\}\}`)
	other := regexp.MustCompile(`\$\{\{[^}]*\}\}|\$CI_\w+`)
	for name, value := range p.env {
		if m := given.FindStringSubmatch(value); m != nil {
			require.Equal(s.t, name, m[1])
			continue // the session has it
		}
		s.env[name] = other.ReplaceAllString(value, "42")
	}
	s.tool("go", `[ "$*" = "install ./cmd/svc" ]`)
	for _, step := range p.steps {
		if step.Run == "" || failed && step.If != "always()" {
			continue
		}
		e := s.finish(s.shell(before(step.Run)))
		log += fmt.Sprintf("$ %s\n%s%s(%d)\n", step.Run, e.stdout, e.stderr, e.code)
		failed = failed || e.code != 0
	}
	return failed, log
}

// TestPipelines: each shell step of docs/ci.md runs, and nothing is left when a step fails or is
// killed.
func TestPipelines(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) func(string) string {
		return func(run string) string { return strings.ReplaceAll(run, old, new) }
	}
	for provider, read := range map[string]func(*testing.T) pipeline{"github": githubJob, "gitlab": gitlabJob} {
		for name, tt := range map[string]struct {
			before  func(string) string
			fails   bool
			created int
		}{
			"all is well":      {replace("", ""), false, 1},
			"image cannot run": {replace(`"$IMAGE"`, "bad:1"), true, 1},
			"test fails":       {replace("/models\"", "/nothing\""), true, 1},
			"install fails":    {replace("go install", "go remove"), true, 0},
			"killed in deploy": {killDeploy, true, 1},
		} {
			t.Run(provider+" "+name, func(t *testing.T) {
				t.Parallel()
				var opts []svctest.Option
				if name == "killed in deploy" {
					opts = append(opts, svctest.WithDeployTime(time.Hour))
				}
				s := scriptSession(t, opts...)
				s.env["SVC_LEDGER"] = "sqlite:" + filepath.Join(s.env["HOME"], "ledger.db")
				s.must(exitOK, "ledger", "init")
				failed, log := read(t).run(s, tt.before)
				require.Equal(t, tt.fails, failed, log)
				require.Len(t, s.srv.Endpoints(), tt.created, log)
				require.Empty(t, s.running(), log)
			})
		}
	}
}

// killDeploy kills a deployment as soon as its endpoint exists.
func killDeploy(run string) string {
	if !strings.HasPrefix(run, "svc deploy") {
		return run
	}
	return run + " & until [ -n \"$(svc ls -o name)\" ]; do sleep 0.05; done; kill -9 $!; wait $!"
}

// TestSweepTimers: the lines for cron and the unit of systemd run, with their settings in a file.
func TestSweepTimers(t *testing.T) {
	t.Parallel()
	text := document(t, "ci.md")
	s := scriptSession(t)
	s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "a&b;c$d") // as a connection string may have them
	s.must(exitOK, "ledger", "init")
	ini := blocks(text, "ini")
	require.Len(t, ini, 3)
	settings := regexp.MustCompile(`(?m)^(\w+)=.*$`).ReplaceAllStringFunc(ini[0], func(line string) string {
		name, value, _ := strings.Cut(line, "=")
		require.Regexp(t, "^'.*'$", value)
		return name + "='" + s.env[name] + "'"
	})
	etc := filepath.Join(s.env["HOME"], "env")
	require.NoError(t, os.WriteFile(etc, []byte(settings), 0o600))
	scripts, err := filepath.Abs("scripts")
	require.NoError(t, err)
	here := strings.NewReplacer("/etc/svc/env", etc, "/usr/local/lib/svc", scripts, "/usr/local/bin/svc", binary)

	var lines []string
	for line := range strings.Lines(blocks(text, "cron")[0]) {
		m := regexp.MustCompile(`^((?:[\d*/]+ ){4}[\d*/]+) +svc +(.*)\n$`).FindStringSubmatch(line)
		require.NotNil(t, m, line)
		require.NotContains(t, m[2], "%", "cron reads it as the end of the command")
		lines = append(lines, m[2])
	}
	require.Len(t, lines, 2)
	exec := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(ini[1])
	require.NotNil(t, exec)
	require.Contains(t, ini[1], "EnvironmentFile=/etc/svc/env\n")
	lines = append(lines, "set -a; . /etc/svc/env; exec "+exec[1])
	for i, line := range lines {
		s.must(exitOK, "deploy", "--key", "over", "--name", "x", "--image", "app:1", "--lease", "1s")
		time.Sleep(2100 * time.Millisecond)
		for _, first := range []bool{true, false} {
			cmd := s.shell(here.Replace(line))
			cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "SVC_") })
			e := s.finish(cmd)
			require.Zero(t, e.code, "%s\n%s%s", line, e.stdout, e.stderr)
			require.Empty(t, s.running(), i)
			if !first {
				require.Empty(t, e.stdout+e.stderr, "%s: nothing is left to report", line)
			}
		}
	}
}
