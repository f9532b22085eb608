package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
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

	result := filepath.Join(s.env["HOME"], "result.json")
	for _, code := range []int{exitUnknown, exitRunning, exitDeleted, exitLedger} { // codes of svc with a meaning of their own
		s.must(code, "run", "--result", result, "--name", "demo", "--image", "i", "--", "sh", "-c", fmt.Sprint("exit ", code))
		text, err := os.ReadFile(result)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(text, &doc))
		require.Equal(t, []any{false, 0.0, float64(code)}, []any{doc["may_be_running"], doc["svc_exit_code"], doc["command_exit_code"]})
	}

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
	e := s.run("run", "--name", "demo", "--image", "x", "--timeout", "8s", "--", "echo", "started")
	require.Equal(t, exitDeleted, e.code, e.stderr)
	require.Empty(t, e.stdout)
	require.Zero(t, s.srv.RunningInstances())

	b := s.background("run", "--name", "demo", "--image", "x", "--", "echo", "started")
	b.until("svc-2 is initializing")
	b.signal(syscall.SIGTERM)
	e = b.end()
	require.Equal(t, exitDeleted, e.code, "a signal during the deployment: %s", e.stderr)
	require.Empty(t, e.stdout)
}

// TestRunStopsWhatItsProgramHasStarted: a signal reaches the children of the program too, and those that
// do not end are killed before the endpoint is deleted.
func TestRunStopsWhatItsProgramHasStarted(t *testing.T) {
	t.Parallel()
	for name, child := range map[string]string{
		"it ends":    `trap 'echo caught; exit' TERM; echo $$ >pid; echo ready; for i in $(seq 300); do sleep 0.1; done`,
		"it ignores": `trap '' TERM; echo $$ >pid; echo ready; for i in $(seq 300); do sleep 0.1; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tty, err := os.Open("/dev/tty"); err == nil {
				tty.Close()
				t.Skip("on a terminal, the program shares it")
			}
			s := newSession(t)
			s.env["CHILD"] = child
			b := s.background(with(runDemo, "sh", "-c", `sh -c "$CHILD" & wait`)...)
			b.until("ready")
			b.signal(syscall.SIGTERM)
			e := b.end()
			require.Equal(t, 128+15, e.code, e.stderr)
			require.Zero(t, s.srv.RunningInstances())
			if name == "it ends" {
				require.Contains(t, e.stdout, "caught")
			} else {
				require.Contains(t, e.stderr, "killing it")
			}
			text, err := os.ReadFile(filepath.Join(s.env["HOME"], "pid"))
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			eventually(t, "the child has ended", func() bool { return !alive(pid) })
		})
	}
}

// TestSignalsThatTheProgramOfRunIgnores: they are those that were ignored when svc was started, and no other one. So
// the writer of a pipeline ends when its reader has gone.
func TestSignalsThatTheProgramOfRunIgnores(t *testing.T) {
	t.Parallel()
	for _, trap := range []string{"", "trap '' HUP; ", "trap '' INT; ", "trap '' INT HUP TSTP; "} {
		t.Run(trap, func(t *testing.T) {
			t.Parallel()
			const ignored = "grep SigIgn /proc/self/status"
			if _, err := os.Stat("/proc/self/status"); err != nil {
				t.Skip("only Linux shows them")
			}
			s := newSession(t)
			e := s.finish(s.shell(trap + ignored + `; exec svc run --name demo --image i -- ` + ignored))
			require.Equal(t, exitOK, e.code, e.stderr)
			lines := strings.Split(e.stdout, "\n")
			require.Len(t, lines, 3)
			require.Equal(t, lines[0], lines[1])
		})
	}
	t.Run("a pipeline ends", func(t *testing.T) {
		t.Parallel()
		s := newSession(t)
		e := s.must(exitOK, with(runDemo, "sh", "-c", `{ seq 1000000; echo "seq: $?" >&2; } | head -n 1`)...)
		require.Equal(t, "1\n", e.stdout)
		require.Contains(t, e.stderr, "seq: 141\n")
		require.Zero(t, s.srv.RunningInstances())
	})
}

// TestRunThatIsKilledTakesItsProgramAlong: on Linux, CMD does not outlive a killed svc.
func TestRunThatIsKilledTakesItsProgramAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do that")
	}
	s := newSession(t)
	b := s.background(with(runDemo, "sh", "-c", `echo $$ >pid; echo ready; exec sleep 300`)...)
	b.until("ready")
	text, err := os.ReadFile(filepath.Join(s.env["HOME"], "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	time.Sleep(500 * time.Millisecond) // threads of svc come and go
	require.True(t, alive(pid))
	b.signal(syscall.SIGKILL)
	eventually(t, "CMD has ended", func() bool { return !alive(pid) })
	require.Equal(t, []string{"svc-1"}, s.open(), "it runs")
}

// alive reports whether a process runs. One that has ended may wait for its parent to read its code.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return isProcess(pid)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// TestRunOnATerminal: the program can read what is typed, and Ctrl-C reaches it and what it has
// started, once.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	cmd := s.command(with(runDemo, "sh", "-c", `
		trap 'echo "CMD has caught it"; exit 3' INT
		sh -c 'trap "echo the child too; exit" INT; while :; do sleep 0.1; done' &
		read -r line; echo "read <$line>"
		while :; do sleep 0.1; done`)...)
	master, err := pty.Start(cmd)
	require.NoError(t, err)
	defer master.Close()
	var shown buffer
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(&shown, master)
	}()
	says := func(text string) {
		t.Helper()
		eventually(t, text, func() bool { return strings.Contains(shown.String(), text) })
	}
	says("svc-1 is reached at")
	_, err = master.WriteString("hello\n")
	require.NoError(t, err)
	says("read <hello>")
	_, err = master.WriteString("\x03")
	require.NoError(t, err)
	_ = cmd.Wait()
	<-over
	require.Equal(t, 128+2, cmd.ProcessState.ExitCode(), shown.String())
	require.Equal(t, 1, strings.Count(shown.String(), "CMD has caught it"), shown.String())
	require.Zero(t, s.srv.RunningInstances())
}

var runLong = []string{"run", "--name", "demo", "--image", "i", "--lease", "8h", "--", "sh", "-c", "echo ready; exec sleep 60"}

// TestDeletionThatIsNotProvedEndsTheLease: the service has accepted the delete, and the time for the proof is over, or another signal ends it.
// The ledger says so: the lease is over, and the next sweep goes on at once.
func TestDeletionThatIsNotProvedEndsTheLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args  []string
		takes time.Duration // to become available
		until string
		more  syscall.Signal // ends the program before the time for the proof is over; 0 if none does
	}{
		"run":              {runLong, 0, "ready", 0},
		"run, given up":    {runLong, 0, "ready", syscall.SIGTERM},
		"deploy":           {deploy, time.Hour, "svc-1 is initializing", 0},
		"deploy, given up": {with(deploy, "--lease", "8h"), time.Hour, "svc-1 is initializing", syscall.SIGTERM},
		"deploy, quit":     {deploy, time.Hour, "svc-1 is initializing", syscall.SIGQUIT},
		"delete, quit":     {[]string{"delete", "svc-1"}, 0, "svc-1 is still there", syscall.SIGQUIT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			s := newSession(t, svctest.WithDeployTime(tt.takes), svctest.WithDeleteTime(time.Hour))
			if tt.args[0] == "delete" {
				s.must(exitOK, with(deploy, "--lease", "8h")...)
			}
			b := s.background(tt.args...)
			b.until(tt.until)
			if tt.more == 0 {
				s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 401, Times: -1}) // the deletion of run takes less time then
			}
			if tt.args[0] != "delete" {
				b.signal(syscall.SIGTERM)
			}
			if tt.more != 0 {
				eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
				time.Sleep(sameSignal + 200*time.Millisecond)
				b.signal(tt.more)
			}
			e := b.end()
			s.srv.ClearFaults()
			require.Equal(t, exitRunning, e.code, e.stderr)
			require.Contains(t, e.stderr, "the service has accepted the delete of svc-1: its lease is over now")
			time.Sleep(1100 * time.Millisecond) // the clock of the service has whole seconds
			swept := s.must(exitOK, "sweep", "--dry-run", "-o", "json").doc(t)["entries"].([]any)
			require.Len(t, swept, 1)
			require.Equal(t, "svc-1", swept[0].(map[string]any)["service_id"])
		})
	}
}

// TestQuitOfRun: SIGQUIT ends svc run at once, like every command: CMD and what it has started are killed, no delete is
// sent, and the last line says what to run.
func TestQuitOfRun(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	for name, tt := range map[string]struct {
		takes time.Duration // to become available
		first syscall.Signal
		until string
		want  int // deletes that are sent
	}{
		"deployment":        {time.Hour, 0, "svc-1 is initializing", 0},
		"CMD":               {0, 0, "ready", 0},
		"CMD, that ignores": {0, syscall.SIGTERM, "ready", 0},
		"deletion":          {0, 0, "svc-1 is still there", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeployTime(tt.takes), svctest.WithDeleteTime(time.Hour))
			script := "trap '' TERM; sleep 61 & echo $! >child; echo ready; wait; sleep 60"
			if name == "deletion" {
				script = "true"
			}
			b := s.background("run", "--name", "demo", "--image", "i", "--lease", "8h", "--result", "r.json", "--", "sh", "-c", script)
			b.until(tt.until)
			if tt.first != 0 {
				b.signal(tt.first)
				time.Sleep(100 * time.Millisecond)
			}
			b.signal(syscall.SIGQUIT)
			sent := time.Now()
			e := b.end()
			require.Less(t, time.Since(sent), 5*time.Second)
			require.Equal(t, exitRunning, e.code, e.stderr)
			require.Equal(t, name == "deletion", strings.Contains(e.stderr, "deleting svc-1"), e.stderr)
			require.Regexp(t, `svc delete svc-1\n$`, e.stderr)
			require.Equal(t, tt.want, s.arrived("DELETE", svctest.RouteEndpoint))
			require.Equal(t, 1, s.srv.RunningInstances())
			text, err := os.ReadFile(filepath.Join(s.env["HOME"], "r.json"))
			require.NoError(t, err)
			var doc map[string]any
			require.NoError(t, json.Unmarshal(text, &doc))
			require.Equal(t, []any{"svc-1", true, 10.0}, []any{doc["service_id"], doc["may_be_running"], doc["svc_exit_code"]})
			has := map[string][]any{"deployment": {nil, nil}, "deletion": {0.0, nil}}[name]
			if has == nil {
				has = []any{nil, 9.0} // CMD was killed
			}
			require.Equal(t, has[0], doc["command_exit_code"])
			require.Equal(t, has[1], doc["command_signal"])
			require.NotEmpty(t, doc["key"])
			if pid, err := os.ReadFile(filepath.Join(s.env["HOME"], "child")); err == nil {
				eventually(t, "the child of CMD has ended", func() bool {
					number, _ := strconv.Atoi(strings.TrimSpace(string(pid)))
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", number))
					return err != nil || strings.Contains(string(stat), ") Z ")
				})
			}
			if tt.want > 0 {
				require.Contains(t, e.stderr, "its lease is over now")
			}
		})
	}
}

// TestTimeoutOfRunIsNotForCMD: CMD may take longer than the deployment.
func TestTimeoutOfRunIsNotForCMD(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	e := s.must(exitOK, "run", "--name", "demo", "--image", "i", "--timeout", "3s", "--", "sh", "-c", "sleep 15; echo done") // 3 s, and 10 s to kill it
	require.Equal(t, "done\n", e.stdout)
	require.Zero(t, s.srv.RunningInstances())
}

// TestSignalBeforeTheStartOfCMD: after a signal between the deployment and the start of CMD, CMD is not started, the endpoint
// is deleted, and the result says that nothing was given back to CMD.
func TestSignalBeforeTheStartOfCMD(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	token, started := filepath.Join(s.env["HOME"], "token"), filepath.Join(s.env["HOME"], "started")
	require.NoError(t, os.WriteFile(token, []byte(s.env["SVC_API_TOKEN"]), 0o600))
	stderr, err := os.Create(filepath.Join(s.env["HOME"], "stderr"))
	require.NoError(t, err)
	defer stderr.Close()
	tool := newTool(nil, stderr, stderr, signals{ctx: t.Context()})
	tool.client, tool.flags.tokenFile = s.srv.Client(), token
	tool.note(func(f *facts) { f.ID, f.Created, f.Running = id, true, true })
	tool.result.name = filepath.Join(s.env["HOME"], "r.json")
	service, err := tool.client.InferenceServices.Get(t.Context(), id)
	require.NoError(t, err)

	ctx, signal := context.WithCancelCause(t.Context())
	signal(interruption{syscall.SIGTERM})
	err = tool.runAndDelete(ctx, &deployment{tool: tool}, service, exec.CommandContext(t.Context(), "touch", started))
	require.EqualError(t, err, "interrupted by SIGTERM before CMD was started")
	require.NoFileExists(t, started)
	require.Zero(t, s.srv.RunningInstances())

	code := exitCode(err, changes, tool.facts())
	require.Equal(t, exitDeleted, code)
	require.NoError(t, tool.saveResult(err, code, &command{empty: emptyRun}, tool.facts()))
	text, err := os.ReadFile(tool.result.name)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(text, &doc))
	require.Equal(t, []any{float64(exitDeleted), nil, false}, []any{doc["svc_exit_code"], doc["command_exit_code"], doc["may_be_running"]})
}

// TestCMDWithoutAnInterpreter: a text without one is run by sh, as a shell does. A CMD that certainly cannot be executed is
// refused before anything is rented, and one that the system refuses is no success.
func TestCMDWithoutAnInterpreter(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	for name, tt := range map[string]struct {
		text   string
		code   int
		stdout string
		rented int
	}{
		"no first line":  {"echo $0 $1; exit 7\n", 7, "./cmd a b\n", 1},
		"empty":          {"", exitOK, "", 1},
		"an interpreter": {"#! /bin/sh -e\necho $1; exit 7\n", 7, "a b\n", 1},
		"missing":        {"#!/no/such/sh\n", exitNoCommand, "", 0},
		"no program":     {"#!/etc/passwd\n", exitNoCommand, "", 0},
		"a folder":       {"#! /tmp\n", exitNoCommand, "", 0},
		"CRLF":           {"#!/bin/sh\r\necho a\r\n", exitNoCommand, "", 0},
		"binary":         {"\x7fELF\x00\x01", exitDeleted, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "cmd"), []byte(tt.text), 0o700))
			e := s.must(tt.code, "run", "--name", "demo", "--image", "i", "--result", "r.json", "--", "./cmd", "a b")
			require.Equal(t, tt.stdout, e.stdout)
			require.Equal(t, tt.rented, s.srv.RequestCount("POST", svctest.RouteEndpoints))
			require.Zero(t, s.srv.RunningInstances())
			text, err := os.ReadFile(filepath.Join(s.env["HOME"], "r.json"))
			require.NoError(t, err)
			var doc map[string]any
			require.NoError(t, json.Unmarshal(text, &doc))
			require.Equal(t, tt.code == exitOK || tt.code == 7, doc["svc_exit_code"] == 0.0, "%s", text)
			require.Equal(t, doc["svc_exit_code"] == 0.0, doc["command_exit_code"] != nil, "%s", text)
			if tt.code == exitNoCommand || tt.code == exitDeleted {
				require.Equal(t, "command_not_executable", doc["error_kind"])
			}
		})
	}
}
