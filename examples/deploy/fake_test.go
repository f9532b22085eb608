package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// bash returns a command that runs bash, with the path of the program in $DEPLOY.
func bash(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("no bash here")
	}
	cmd := exec.CommandContext(t.Context(), shell, args...)
	cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "DEPLOY="+os.Args[0],
		"SVC_BASE_URL=", "SVC_API_TOKEN=", "SVC_INFERENCE_URL=", "SVC_LEDGER="+t.TempDir(), "SVC_FAKE=")
	return cmd
}

// TestScript runs each part of a deploy script. All commands of a part share one fake.
func TestScript(t *testing.T) {
	for _, part := range []string{"life", "missing", "timeout", "broken", "unknown", "outage", "killed"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			output, err := bash(t, "testdata/rollout.sh", t.TempDir(), part).CombinedOutput()
			require.NoError(t, err, "%s", output)
			require.Empty(t, string(output))
		})
	}
}

// readme returns the first block of shell code below a heading of the README.
func readme(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, session, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found)
	_, session, _ = strings.Cut(session, "```sh\n")
	session, _, found = strings.Cut(session, "```\n")
	require.True(t, found)
	return session
}

// TestFailuresOfTheReadme runs the README's example of exit codes with each kind of failure.
func TestFailuresOfTheReadme(t *testing.T) {
	t.Parallel()
	script := readme(t, "## Failures on demand")
	for flag, want := range map[string]struct{ stdout, stderr string }{
		"--lose-response":                 {"look for demo\n", "Do NOT run the command again"},
		"--fail":                          {"", "svc-1 is deleted after "},
		"--outage 1s":                     {"svc-1 is available\n", "could not be read after 0s: "},
		"--deploy-time 0s":                {"svc-1 is available\n", "is available after 0s"},
		"--fail --delete-time 200ms":      {"", "svc-1 is still there (unavailable) after 0s"},
		"--lose-response --outage 1000ms": {"look for demo\n", "Do NOT run the command again"},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.Equal(t, 1, strings.Count(script, "--lose-response"))
			cmd := bash(t, "-euc", `PATH=$dir:$PATH`+"\n"+strings.Replace(script, "--lose-response", flag, 1))
			cmd.Env = append(cmd.Env, "dir="+dir)
			require.NoError(t, os.Symlink(os.Args[0], filepath.Join(dir, "deploy")))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			require.NoError(t, cmd.Run(), stderr.String())
			require.Contains(t, stderr.String(), want.stderr)
			if want.stdout == "" {
				require.Empty(t, stdout.String())
			}
			require.Contains(t, stdout.String(), want.stdout)
		})
	}
}

// TestOutageOfTheFake: the outage begins before the first poll, and ends in time.
func TestOutageOfTheFake(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		go endOutage(t.Context(), s.srv, 5*time.Minute)
		time.Sleep(time.Hour)
		start := time.Now()
		o := s.deploy()
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Contains(t, o.stderr, "svc-1 could not be read after 0s")
		require.InDelta(t, 5*time.Minute, time.Since(start), float64(20*time.Second))
		require.Equal(t, exitOK, s.run("status", "svc-1").code)
	}, svctest.WithDeployTime(time.Second))
	inBubble(t, func(t *testing.T, s *session) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Minute); s.deploy("--timeout", "10s"); cancel() }()
		endOutage(ctx, s.srv, time.Hour)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		endOutage(ctx, s.srv, time.Hour)
	}, svctest.WithDeployTime(time.Minute))
}

// TestSessionOfTheReadme runs the session of the README.
func TestSessionOfTheReadme(t *testing.T) {
	t.Parallel()
	session := readme(t, "## A shell session")
	built := `go() { [ "$1 $2 $4" = "build -o ./examples/deploy" ] && ln -s "$DEPLOY" "$3"; }` + "\n"
	cmd := bash(t, "-euc", built+session)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/\S*/svc-1\navailable\n$`, stdout.String())
	require.Contains(t, stderr.String(), "svc-1 is deleted")
	require.NotContains(t, stderr.String(), "still running", "no instance is left")
}

// TestFake: a client finds the fake with the variables that the program prints.
func TestFake(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "fake", "--json", "--deploy-time", "0s")
	cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	var first struct {
		Event string
		Env   map[string]string
	}
	require.NoError(t, json.Unmarshal(lines.Bytes(), &first))
	require.Equal(t, "fake", first.Event)
	require.Len(t, first.Env, 5)
	for name, value := range first.Env {
		t.Setenv(name, value)
	}

	run := func(args ...string) (code int, stdout string) {
		var out, log bytes.Buffer
		code = (&tool{stdout: &out, stderr: &log}).run(t.Context(), append([]string{"deploy"}, args...))
		require.Zero(t, code, log.String())
		return code, out.String()
	}
	run("deploy", "--name", "demo", "--image", "x")
	_, status := run("status", "svc-1")
	require.Equal(t, "available\n", status, "the fake remembers what the previous command did")

	if runtime.GOOS == "windows" {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		return
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.True(t, lines.Scan())
	require.JSONEq(t, `{"event": "result", "exit_code": 0}`, lines.Text())
	require.NoError(t, cmd.Wait(), "Ctrl-C is the normal end")
	require.Contains(t, stderr.String(), "a real service would bill: 1")
	require.NoDirExists(t, first.Env["SVC_LEDGER"])
}

func TestFakeWithALimit(t *testing.T) {
	var stdout, stderr bytes.Buffer
	start := time.Now()
	code := (&tool{stdout: &stdout, stderr: &stderr}).run(t.Context(), []string{"deploy", "fake", "--timeout", "50ms"})
	require.Equal(t, exitTimeout, code, stderr.String())
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	require.Regexp(t, `^export SVC_BASE_URL='http://\S+' SVC_API_TOKEN='\S+' SVC_INFERENCE_URL='http://\S+' SVC_LEDGER='\S+' SVC_FAKE=\n$`, stdout.String())
	require.NotContains(t, stderr.String(), "would bill")
}
