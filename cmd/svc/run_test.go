package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

var runDemo = []string{"run", "--name", "demo", "--image", "registry.example/app:1", "--"}

// TestRun: the program gets the endpoint, and its exit code is that of the command. The endpoint
// is deleted on every way out.
func TestRun(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	e := s.run(with(runDemo, "sh", "-c", `echo "$SVC_SERVICE_ID $SVC_SERVICE_URL"; test -n "$SVC_API_TOKEN"; cat; exit 7`)...)
	require.Equal(t, 7, e.code, e.stderr)
	require.Equal(t, "svc-1 "+s.srv.InferenceURL()+"/inference-api/v1/inference_service/svc-1\n", e.stdout)
	require.NotContains(t, e.stderr, "svc: ", "a program that fails is no failure of svc")
	require.Zero(t, s.srv.RunningInstances())

	s.must(exitOK, with(runDemo, "true")...)
	s.must(128+9, with(runDemo, "sh", "-c", "kill -9 $$")...)
	require.Zero(t, s.srv.RunningInstances())
	require.Empty(t, s.open())

	posts := s.srv.RequestCount("POST", svctest.RouteEndpoints)
	for _, program := range []string{"no-such-program", "./no-such-program", os.DevNull} {
		require.Contains(t, s.must(exitNoCommand, with(runDemo, program)...).stderr, program)
	}
	s.must(exitUsage, runDemo...)
	s.must(exitUsage, "run", "-o", "json", "--name", "demo", "--image", "x", "--", "true")
	s.must(exitUsage, "run", "--", "true")
	require.Equal(t, posts, s.srv.RequestCount("POST", svctest.RouteEndpoints), "nothing was created")
}

// TestRunThatIsInterrupted: the signal is passed on, and the endpoint is deleted.
func TestRunThatIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		signal syscall.Signal
		code   int
		says   string
	}{
		"the program ends":           {`trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done`, syscall.SIGTERM, 128 + 15, "caught"},
		"the program ignores it":     {`trap '' INT; echo ready; while :; do sleep 0.1; done`, syscall.SIGINT, 128 + 2, "killing it"},
		"the program ends by signal": {`echo ready; exec sleep 60`, syscall.SIGHUP, 128 + 1, "interrupted by SIGHUP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			b := s.background(with(runDemo, "sh", "-c", tt.script)...)
			b.until("ready")
			b.signal(tt.signal)
			e := b.end()
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Contains(t, e.stdout+e.stderr, tt.says)
			require.Zero(t, s.srv.RunningInstances())
		})
	}
}

// TestRunWhoseDeletionFails ends with 10.
func TestRunWhoseDeletionFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 400, Times: -1})
	e := s.run(with(runDemo, "true")...)
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stderr, "svc-1 may still be running and billed. To delete it: svc delete svc-1")
}

// TestRunWhoseDeploymentFails runs nothing.
func TestRunWhoseDeploymentFails(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(time.Hour))
	e := s.run("run", "--name", "demo", "--image", "x", "--timeout", "4s", "--", "echo", "started")
	require.Equal(t, exitDeleted, e.code, e.stderr)
	require.Empty(t, e.stdout)
	require.Zero(t, s.srv.RunningInstances())
}
