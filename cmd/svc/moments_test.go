package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

var moments = flag.Int("moments", 24, "TestSignalsAtRandomMoments: number of programs that get a signal")

// anchors are the points in a deployment near which a signal is sent.
var anchors = map[string]func(*story) bool{
	"begin":       func(*story) bool { return true },
	"first read":  func(s *story) bool { return s.srv.RequestCount("GET", svctest.RouteFlavors) > 0 },
	"intent":      func(s *story) bool { return s.records("*@000001.json") },
	"create":      func(s *story) bool { return s.srv.RequestCount("POST", svctest.RouteEndpoints) > 0 },
	"effect":      func(s *story) bool { return len(s.srv.Endpoints()) > 0 },
	"entry":       func(s *story) bool { return s.records("*@000002.json") },
	"first poll":  func(s *story) bool { return s.srv.RequestCount("GET", svctest.RouteEndpoint) > 0 },
	"CMD":         func(s *story) bool { return s.exists("log") },
	"end of CMD":  func(s *story) bool { return strings.Contains(s.logOfCMD(), "exit") },
	"delete":      func(s *story) bool { return s.srv.RequestCount("DELETE", svctest.RouteEndpoint) > 0 },
	"no endpoint": func(s *story) bool { return len(s.srv.Endpoints()) > 0 && s.srv.RunningInstances() == 0 },
}

func (s *story) exists(name string) bool {
	_, err := os.Stat(filepath.Join(s.env["HOME"], name))
	return err == nil
}

func (s *story) records(pattern string) bool {
	found, _ := filepath.Glob(s.record(pattern))
	return len(found) > 0
}

// logOfCMD is what CMD knows of its own life.
func (s *story) logOfCMD() string {
	text, _ := os.ReadFile(filepath.Join(s.env["HOME"], "log"))
	return string(text)
}

// TestSignalsAtRandomMoments: a signal reaches deploy and run near each point of their work. Their code, their document and
// the ledger are compared with what the service runs, and what the result of run has about CMD with what CMD knows itself.
func TestSignalsAtRandomMoments(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	t.Logf("%d programs: %v", *moments, inRounds(t, 6, 1, *moments, func() bool { return !t.Failed() }, (*story).moment))
}

// inRounds plays as many rounds as are asked for, several at a time, and returns how many of them ended in which way. Each has a
// service and a ledger of its own, and random numbers of its own stream.
func inRounds(t *testing.T, atOnce int, stream uint64, rounds int, goesOn func() bool, play func(*story) (end, wrong string)) map[string]int {
	var next atomic.Uint64
	next.Store(*seed)
	var mu sync.Mutex
	ends := map[string]int{}
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for n := next.Add(1) - 1; n < *seed+uint64(rounds) && goesOn(); n = next.Add(1) - 1 {
				rnd := rand.New(rand.NewPCG(n, stream))
				s := &story{rnd: rnd, seed: n, session: newSession(t, svctest.WithDeployTime(pick(rnd, 0, 0, 300*time.Millisecond)), svctest.WithDeleteTime(pick(rnd, 0, time.Second)))}
				delete(s.env, "GOMAXPROCS")
				end, wrong := play(s)
				mu.Lock()
				ends[end]++
				mu.Unlock()
				if wrong != "" {
					t.Errorf("seed %d: %s\n%s", n, wrong, strings.Join(s.log, "\n"))
				}
				s.srv.Close()
			}
		})
	}
	all.Wait()
	return ends
}

// moment runs a program, sends a signal to it, and returns how it ended, and what is wrong with that.
func (s *story) moment() (end, wrong string) {
	args := []string{"deploy", "--key", "keyed", "--name", "keyed", "--image", "x", "-o", "json"}
	script := pick(s.rnd, "", "", `echo $$ >log; echo exit >>log; exit 7`, `echo $$ >log; sleep 0.05; echo exit >>log`, `echo $$ >log; exec sleep 1`,
		`trap "echo exit >>log; exit 3" INT TERM HUP; echo $$ >log; for i in $(seq 20); do sleep 0.05; done; echo exit >>log; exit 3`)
	near := pick(s.rnd, "begin", "first read", "intent", "create", "effect", "entry", "first poll")
	if script != "" {
		args = []string{"run", "--name", "keyed", "--image", "x", "--result", "result.json", "--", "sh", "-c", script}
		near = pick(s.rnd, "create", "entry", "first poll", "CMD", "CMD", "end of CMD", "delete", "no endpoint")
	}
	if s.rnd.IntN(2) == 0 {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: s.rnd.IntN(2) == 0, Delay: time.Duration(s.rnd.IntN(60)) * time.Millisecond})
	}
	sig := pick(s.rnd, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGQUIT)
	delay := time.Duration(s.rnd.IntN(30_000)) * time.Microsecond
	cmd := s.command(args...)
	var stdout, stderr buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		return "", err.Error()
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	twice := s.disturbNear(cmd, ended, anchors[near], delay, sig)
	s.log = append(s.log, fmt.Sprintf("svc %s: %v %v after %s, twice %v", strings.Join(args, " "), sig, delay, near, twice))
	select {
	case <-ended:
	case <-time.After(3 * time.Minute):
		_ = cmd.Process.Kill()
		return "", "it hangs"
	}
	e := endedOf(cmd, stdout.String(), stderr.String())
	time.Sleep(100 * time.Millisecond) // a request that was on its way may still take effect
	s.log = append(s.log, fmt.Sprintf("code %d", e.code), e.stdout, e.stderr)
	if e.code == 2 && strings.HasPrefix(e.stderr, "SIGQUIT: quit\n") { // it came before the program handles signals
		return "before", ""
	}
	after := s.look()
	wrong = cmp.Or(claim{s, act{args: args, name: "keyed"}, e, moment{}, after, true}.wrong(), s.judgeLedger(after))
	if script != "" {
		wrong = cmp.Or(wrong, s.judgeResult(e, script))
	}
	return fmt.Sprint(args[0], " ", e.code), cmp.Or(wrong, s.judgeLitter())
}

// disturbNear sends a signal some time after a point of the work, and sometimes another one, if the program runs so long.
func (s *story) disturbNear(cmd *exec.Cmd, ended <-chan struct{}, reached func(*story) bool, after time.Duration, sig syscall.Signal) (twice bool) {
	over := func(wait time.Duration) bool {
		select {
		case <-ended:
			return true
		case <-time.After(wait):
			return false
		}
	}
	for !reached(s) {
		if over(500 * time.Microsecond) {
			return false
		}
	}
	if over(after) {
		return false
	}
	_ = cmd.Process.Signal(sig)
	if sig == syscall.SIGQUIT || s.rnd.IntN(3) > 0 || over(sameSignal+100*time.Millisecond) {
		return false
	}
	_ = cmd.Process.Signal(sig)
	return true
}

func endedOf(cmd *exec.Cmd, stdout, stderr string) ended {
	return ended{args: cmd.Args[1:], code: cmd.ProcessState.ExitCode(), stdout: stdout, stderr: stderr}
}

// judgeResult compares the file of --result with what CMD knows, and with the service.
func (s *story) judgeResult(e ended, script string) string {
	text, err := os.ReadFile(filepath.Join(s.env["HOME"], "result.json"))
	if err != nil {
		return err.Error()
	}
	s.log = append(s.log, string(text), "log of CMD: "+s.logOfCMD())
	var doc struct {
		ExitCode        int    `json:"exit_code"`
		SvcExitCode     int    `json:"svc_exit_code"`
		CommandExitCode *int   `json:"command_exit_code"`
		CommandSignal   *int   `json:"command_signal"`
		MayBeRunning    bool   `json:"may_be_running"`
		ServiceID       string `json:"service_id"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return err.Error()
	}
	began, finished := s.logOfCMD() != "", strings.Contains(s.logOfCMD(), "exit") || strings.Contains(script, "exec")
	var own int
	_, _ = fmt.Sscanf(script[strings.LastIndex(script, "exit")+len("exit"):], "%d", &own)
	running := s.look().running("keyed")
	switch {
	case doc.ExitCode != e.code:
		return "the code is another one"
	case began && doc.CommandExitCode == nil && doc.CommandSignal == nil:
		return "CMD was started, and nothing is known of its end"
	case doc.CommandExitCode != nil && (doc.CommandSignal != nil || !finished || *doc.CommandExitCode != own):
		return "CMD has not ended with command_exit_code"
	case len(running) > 0 && (!doc.MayBeRunning || doc.SvcExitCode == 0 || doc.ServiceID != "" && doc.ServiceID != running[0]):
		return fmt.Sprintf("%v are running", running)
	case doc.SvcExitCode == 0 && doc.MayBeRunning:
		return "svc_exit_code is 0, and may_be_running"
	case len(s.srv.Endpoints()) > 0 && doc.ServiceID == "" && e.code != exitUnknown:
		return "the ID is not in the result"
	}
	if pid, err := strconv.Atoi(strings.Fields(s.logOfCMD() + " x")[0]); err == nil && alive(pid) {
		return "CMD still runs"
	}
	return ""
}

// judgeLitter reports temporary files.
func (s *story) judgeLitter() string {
	left, _ := filepath.Glob(filepath.Join(s.env["HOME"], ".svc-*"))
	return strings.Join(left, ", ")
}

// TestSweepThatIsGivenUp: its document has what it has deleted, and what is left.
func TestSweepThatIsGivenUp(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	s := newSession(t)
	for _, key := range []string{"a", "b", "c"} {
		lease := map[string]string{"a": "1s", "b": "1s", "c": "8h"}[key]
		s.must(exitOK, "deploy", "--key", key, "--name", key, "--image", "i", "--lease", lease)
	}
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-2")) // the proof takes longer
	time.Sleep(2100 * time.Millisecond)                                               // the clock of the service has whole seconds
	b := s.background("sweep", "-o", "json")
	b.until("svc-1 of the key a is deleted")
	b.signal(syscall.SIGQUIT)
	e := b.end()
	require.Equal(t, exitRunning, e.code, e.stderr)
	doc := e.doc(t)
	require.Equal(t, true, doc["may_be_running"])
	var has [][]any
	for _, entry := range doc["entries"].([]any) {
		one := entry.(map[string]any)
		has = append(has, []any{one["key"], one["service_id"], one["state"], one["deleted"], one["error"]})
	}
	require.Equal(t, [][]any{
		{"a", "svc-1", "deleted", true, ""}, {"b", "svc-2", "created", false, "not known to be deleted when the program was ended"},
	}, has)
}

// TestFilesThatAreGivenUp: no temporary file stays, and the document has what is known.
func TestFilesThatAreGivenUp(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddFile("contents", "fine-tune", make([]byte, 1<<20))
	s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Rate: 50_000})
	b := s.background("files", "download", id, "got", "-o", "json")
	eventually(t, "a part of the contents", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.env["HOME"], ".svc-download-*", "*"))
		return len(found) > 0
	})
	b.signal(syscall.SIGQUIT)
	require.Equal(t, id, b.end().doc(t)["file_id"])
	left, err := filepath.Glob(filepath.Join(s.env["HOME"], ".svc-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	s.srv.Fault("DELETE", svctest.RouteFile, svctest.Fault{}, svctest.Fault{Delay: time.Hour})
	other := s.srv.AddFile("other", "fine-tune", []byte("x"))
	b = s.background("files", "rm", id, other, "-o", "json")
	eventually(t, "both deletes", func() bool { return s.arrived("DELETE", svctest.RouteFile) == 2 })
	b.signal(syscall.SIGQUIT)
	files := b.end().doc(t)["files"].([]any)
	require.Len(t, files, 2)
	require.Equal(t, []any{true, false}, []any{files[0].(map[string]any)["deleted"], files[1].(map[string]any)["deleted"]})
}

// TestEndedBeforeTheCommandLineIsRead: what may be running then is what the command line is about. It is not parallel, since a
// program that is given up removes the temporary files of its process.
func TestEndedBeforeTheCommandLineIsRead(t *testing.T) {
	for line, want := range map[string]struct {
		code    int
		running bool
	}{
		"deploy --key keyed --name n --image i": {exitRunning, true},
		"deploy --name n --image i":             {exitInterrupted, false},
		"delete svc-1":                          {exitRunning, true},
		"scale --key keyed 1":                   {exitRunning, true},
		"sweep":                                 {exitRunning, true},
		"get svc-1":                             {exitInterrupted, true},
		"files rm file-1":                       {exitInterrupted, false},
	} {
		var out [2]*os.File
		for i := range out {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			out[i] = f
		}
		quit := make(chan struct{})
		close(quit)
		tool := newTool(nil, out[0], out[1], signals{t.Context(), quit})
		for _, c := range tool.all {
			c.PreRun = func(*cobra.Command, []string) { select {} }
		}
		code := tool.main(append(strings.Fields(line), "-o", "json"))
		stdout, err := os.ReadFile(out[0].Name())
		require.NoError(t, err)
		stderr, err := os.ReadFile(out[1].Name())
		require.NoError(t, err)
		require.Equal(t, want.code, code, "%s: %s", line, stderr)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(stdout, &doc))
		require.Equal(t, want.running, doc["may_be_running"], line)
		require.Equal(t, want.code == exitRunning, strings.Contains(string(stderr), "may be running and billed. To see what the ledger has: svc ls"), line)
	}
}

// TestEndedWhileTheCommandLineIsRead: reading it changes the commands and their flags, in another goroutine.
func TestEndedWhileTheCommandLineIsRead(t *testing.T) {
	quit := make(chan struct{})
	close(quit)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	for range 300 {
		code := newTool(nil, null, null, signals{t.Context(), quit}).main([]string{"get", "svc-1", "--base-url", "-"})
		require.Contains(t, []int{exitInterrupted, exitUsage}, code)
	}
}
