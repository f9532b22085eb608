package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// result reads the file of --result, which only its user may read.
func (s *session) result(e ended, file string) map[string]any {
	s.t.Helper()
	info, err := os.Stat(file)
	require.NoError(s.t, err, e.stderr)
	require.Equal(s.t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(file)
	require.NoError(s.t, err)
	var doc map[string]any
	require.NoError(s.t, json.Unmarshal(text, &doc), string(text))
	checkSchema(s.t, []string{"run"}, doc)
	require.EqualValues(s.t, e.code, doc["exit_code"])
	require.NotContains(s.t, string(text), s.srv.Token())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".svc-result-*"))
	require.NoError(s.t, err)
	require.Empty(s.t, left)
	return doc
}

// TestResultOfACommandThatCannotStart: the kind tells a program that is missing from one that may not be executed.
func TestResultOfACommandThatCannotStart(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(s.env["HOME"], "r.json")
	for program, kind := range map[string]string{"./no-such-program": "command_not_found", "no-such-program": "command_not_found", os.DevNull: "command_not_executable"} {
		e := s.must(exitNoCommand, "run", "--result", file, "--name", "demo", "--image", "i", "--", program)
		require.Equal(t, kind, s.result(e, file)["error_kind"], program)
	}
	require.Zero(t, s.srv.RequestCount("POST", svctest.RouteEndpoints))
}

// TestResultOfRun: a script can tell the exit code of CMD from one of svc, on every way out.
func TestResultOfRun(t *testing.T) {
	t.Parallel()
	keepsRunning := func(s *session) {
		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 400, Times: -1})
	}
	for name, tt := range map[string]struct {
		setup   func(*session)
		fake    []svctest.Option
		args    []string
		cmd     string // for the shell
		code    int
		svc     int
		command any
		signal  any
		may     bool
		kind    any
	}{
		"all is well":                 {cmd: "exit 0", command: 0.0},
		"CMD ends with a code of svc": {cmd: "exit 10", code: 10, command: 10.0},
		"CMD is killed":               {cmd: "kill -9 $$", code: 137, signal: 9.0},
		"the deletion fails":          {setup: keepsRunning, cmd: "exit 0", code: exitRunning, svc: exitRunning, command: 0.0, may: true, kind: "refused"},
		"CMD and the deletion fail":   {setup: keepsRunning, cmd: "exit 11", code: exitRunning, svc: exitRunning, command: 11.0, may: true, kind: "refused"},
		"the deployment fails":        {fake: []svctest.Option{svctest.WithImagePullError("registry.example/app:1")}, cmd: "exit 0", code: exitDeleted, svc: exitDeleted, kind: "unavailable"},
		"the create is lost": {
			setup: func(s *session) { s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect()) },
			cmd:   "exit 0", code: exitUnknown, svc: exitUnknown, may: true, kind: "outcome_unknown",
		},
		"the token is refused": {setup: func(s *session) { s.env["SVC_API_TOKEN"] = "wrong-token" }, cmd: "exit 0", code: exitRefused, svc: exitRefused, kind: "unauthorized"},
		"no address":           {setup: func(s *session) { s.env["SVC_BASE_URL"] = "" }, cmd: "exit 0", code: exitUsage, svc: exitUsage, kind: "usage"},
		"no such flag":         {args: []string{"--nope"}, cmd: "exit 0", code: exitUsage, svc: exitUsage, kind: "usage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, tt.fake...)
			if tt.setup != nil {
				tt.setup(s)
			}
			file := filepath.Join(s.env["HOME"], "result.json")
			require.NoError(t, os.WriteFile(file, []byte(`{"svc_exit_code": 1}`), 0o666))
			args := append([]string{"run"}, tt.args...)
			args = append(args, "--name", "demo", "--image", "registry.example/app:1", "--result", file, "--", "sh", "-c", tt.cmd)
			e := s.must(tt.code, args...)
			doc := s.result(e, file)
			require.Equal(t, []any{float64(tt.svc), tt.command, tt.signal, tt.may, tt.kind},
				[]any{doc["svc_exit_code"], doc["command_exit_code"], doc["command_signal"], doc["may_be_running"], doc["error_kind"]}, "%v", doc)
			require.Equal(t, s.srv.RunningInstances() > 0, doc["may_be_running"])
			if tt.code == exitUnknown {
				unknown := doc["unknown_create"].(map[string]any)
				require.Equal(t, []any{"demo", doc["key"]}, []any{unknown["name"], unknown["key"]})
			}
		})
	}
}

// TestResultOfRunThatIsInterrupted: also after two signals, and never an old one after a kill.
func TestResultOfRunThatIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal  syscall.Signal
		twice   bool
		code    int
		svc     int
		command any
		killed  any // command_signal
		may     bool
	}{
		"once":   {syscall.SIGTERM, false, 128 + 15, 0, 3.0, nil, false},
		"twice":  {syscall.SIGTERM, true, exitRunning, exitRunning, nil, 9.0, true},
		"killed": {syscall.SIGKILL, false, -1, 0, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			file := filepath.Join(s.env["HOME"], "result.json")
			require.NoError(t, os.WriteFile(file, []byte(`{"svc_exit_code": 1}`), 0o666))
			script := `trap "exit 3" TERM; echo ready; while kill -0 $PPID; do sleep 0.1; done` // not longer than svc
			if tt.twice {
				script = strings.Replace(script, "exit 3", ":", 1)
			}
			b := s.background("run", "--result", "result.json", "--name", "demo", "--image", "i", "--", "sh", "-c", script)
			b.until("ready")
			b.signal(tt.signal)
			if tt.twice {
				time.Sleep(sameSignal + 200*time.Millisecond)
				b.signal(tt.signal)
			}
			e := b.end()
			require.Equal(t, tt.code, e.code, e.stderr)
			if tt.code < 0 {
				require.NoFileExists(t, file)
				return
			}
			doc := s.result(e, file)
			require.Equal(t, []any{float64(tt.svc), tt.command, tt.killed, tt.may}, []any{doc["svc_exit_code"], doc["command_exit_code"], doc["command_signal"], doc["may_be_running"]})
		})
	}
}

// TestResultThatCannotBeWritten: that is found out before anything is created, and at the end it is a
// failure.
func TestResultThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	dir := filepath.Join(s.env["HOME"], "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(dir, dir+"-link"))
	run := func(file, script string) []string {
		return []string{"run", "--name", "demo", "--image", "i", "--result", file, "--", "sh", "-c", script}
	}
	for _, file := range []string{"dir", "dir-link", "none/result.json", "/dev/stdout"} {
		require.Contains(t, s.must(exitUsage, run(file, "true")...).stderr, "--result: ", file)
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")

	e := s.must(exitFailed, run("dir/result.json", "rmdir dir; exit 7")...)
	require.Contains(t, e.stderr, "svc: --result cannot be written")
	require.Zero(t, s.srv.RunningInstances())
	require.Empty(t, s.open())
}

// TestResultReplacesNothingElse: a file that is no result stays, also after a wrong command line.
func TestResultReplacesNothingElse(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(s.env["HOME"], "file")
	for name, tt := range map[string]struct {
		text string
		kept bool
	}{
		"a program":    {"#!/bin/sh\n", true},
		"another JSON": {`{"a": 1}`, true},
		"a list":       {`[1]`, true},
		"empty":        {"", false},
		"a result":     {`{"svc_exit_code": 0}`, false},
	} {
		for _, line := range [][]string{{"--name", "demo", "--image", "i", "--", "true"}, {"--nope", "--", "true"}, {"--name", "demo", "--image", "i"}} {
			require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
			e := s.run(append([]string{"run", "--result", "file"}, line...)...)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, tt.kept, string(text) == tt.text, "%s %v: %s", name, line, e.stderr)
			if tt.kept {
				require.Equal(t, exitUsage, e.code, "%s %v: %s", name, line, e.stderr)
			}
		}
	}
	require.Equal(t, 2, s.srv.RequestCount("POST", svctest.RouteEndpoints))
}
