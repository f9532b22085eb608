package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestInterrupt: Ctrl-C leaves nothing running, unless --keep is given.
func TestInterrupt(t *testing.T) {
	tests := map[string]struct {
		after   time.Duration
		args    []string
		running int
		deleted any
	}{
		"while waiting":                 {5 * time.Minute, nil, 0, true},
		"before the ID is readable":     {time.Second, nil, 0, true},
		"with --keep":                   {5 * time.Minute, []string{"--keep"}, 1, nil},
		"with --delete-on-failure":      {5 * time.Minute, []string{"--delete-on-failure"}, 0, true},
		"early, --delete-on-failure":    {time.Second, []string{"--delete-on-failure"}, 0, true},
		"while the create is under way": {0, nil, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				ctx, cancel := context.WithCancel(t.Context())
				if tt.after == 0 {
					s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: 2 * time.Second})
					tt.after = time.Second
				}
				time.AfterFunc(tt.after, cancel)
				o := s.runCtx(ctx, append([]string{"deploy", "--json", "--name", "demo", "--image", "x"}, tt.args...)...)
				require.Equal(t, []int{exitDeleted, exitRunning}[tt.running], o.code, o.stderr)
				require.Equal(t, "interrupted", o.last()["error_kind"])
				require.Len(t, o.json, 2)
				require.Equal(t, "svc-1", o.json[0]["service_id"])
				require.Equal(t, tt.deleted, o.last()["deleted"])
				require.Equal(t, tt.running, s.srv.RunningInstances())
				require.Equal(t, tt.running == 0, strings.Contains(o.stderr, "Nothing is left running"))
			}, svctest.WithDeployTime(time.Hour), svctest.WithCreateVisibilityDelay(4*time.Second))
		})
	}
}

// TestInterruptedCreate: the response never comes, so the outcome is unknown.
func TestInterruptedCreate(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		o := s.runCtx(ctx, "deploy", "--json", "--name", "demo", "--image", "x")
		require.Equal(t, exitUnknown, o.code, o.stderr)
		require.Equal(t, []string{""}, s.open())
		require.Contains(t, o.stderr, "Do NOT run the command again")
		require.Len(t, o.json, 1)
		require.Equal(t, "demo", o.last()["name"])
	})
}

// TestCleanupTakes40SecondsAtMost, as the help says: the response to the create comes at
// the last moment, and the delete has none.
func TestCleanupTakes40SecondsAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: time.Second + 9900*time.Millisecond})
		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Delay: time.Hour, Times: -1})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		o := s.runCtx(ctx, "deploy", "--name", "demo", "--image", "x")
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Contains(t, o.stderr, "svc-1 may still be running")
		require.InDelta(t, 40, (time.Since(start) - time.Second).Seconds(), 1)
		require.Contains(t, s.run("--help").stdout, "40 s at most")
	})
}

// TestInterrupts: which signals end the cleanup.
func TestInterrupts(t *testing.T) {
	for name, tt := range map[string]struct {
		after  []time.Duration // time before each signal
		giveUp bool
	}{
		"one":                      {[]time.Duration{time.Minute}, false},
		"twice at once":            {[]time.Duration{time.Minute, 0}, false},
		"many in short order":      {[]time.Duration{0, sameSignal / 2, sameSignal / 2}, false},
		"a second one later":       {[]time.Duration{0, sameSignal + 1}, true},
		"twice at once, and later": {[]time.Duration{0, 0, time.Minute}, true},
		"and many more":            {[]time.Duration{0, time.Minute, 0, 0, 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 9)
				defer close(signals)
				ctx, giveUp := interrupts(signals)
				synctest.Wait()
				require.NoError(t, ctx.Err())
				for _, d := range tt.after {
					time.Sleep(d)
					signals <- os.Interrupt
					synctest.Wait()
					require.ErrorIs(t, ctx.Err(), context.Canceled)
				}
				if tt.giveUp {
					<-giveUp
					return
				}
				select {
				case <-giveUp:
					t.Fatal("given up")
				default:
				}
			})
		})
	}
}

// TestGivingUp: a second Ctrl-C ends the cleanup, and the program says what may be running.
func TestGivingUp(t *testing.T) {
	slow := svctest.Fault{Delay: time.Hour, Times: -1}
	for name, tt := range map[string]struct {
		method, route string
		code          int
		id            string
		says          string
		known         map[string]any
	}{
		"the delete": {
			"DELETE", svctest.RouteEndpoint, exitRunning, "svc-1\n", "svc-1 may still be running and billed",
			map[string]any{"event": "result", "exit_code": 10.0, "error_kind": "interrupted", "may_be_running": true, "name": "demo", "service_id": "svc-1"},
		},
		"the create": {
			"POST", svctest.RouteEndpoints, exitUnknown, "", `endpoint named "demo"`,
			map[string]any{"event": "result", "exit_code": 4.0, "error_kind": "outcome_unknown", "may_be_running": true, "name": "demo"},
		},
	} {
		for _, format := range []string{"text", "json"} {
			t.Run(name+", "+format, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *session) {
					s.srv.Fault(tt.method, tt.route, slow)
					ctx, cancel := context.WithCancel(t.Context())
					giveUp := make(chan struct{})
					s.giveUp = giveUp
					time.AfterFunc(10*time.Second, cancel)
					time.AfterFunc(13*time.Second, func() { close(giveUp) })
					args := []string{"deploy", "--name", "demo", "--image", "x"}
					if format == "json" {
						args = append(args, "--json")
					}
					start := time.Now()
					o := s.runCtx(ctx, args...)
					require.Equal(t, 13*time.Second, time.Since(start))
					require.Equal(t, tt.code, o.code, o.stderr)
					require.Contains(t, o.stderr, tt.says)
					if format == "json" {
						require.NotEmpty(t, o.last()["error"])
						delete(o.last(), "error")
						require.Equal(t, tt.known, o.last())
					} else {
						require.Equal(t, tt.id, o.stdout)
					}
					s.giveUp = nil
					require.Equal(t, []string{strings.TrimSpace(tt.id)}, s.open())
					time.Sleep(time.Minute) // lets the cleanup end; in a real process it ends with the process
				}, svctest.WithDeployTime(time.Hour))
			})
		}
	}
}

// TestGivingUpWithNothingAtStake: the program ends although nobody reads its output.
func TestGivingUpWithNothingAtStake(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		unread, stdout := io.Pipe()
		defer unread.Close()
		s.stdout = stdout
		giveUp := make(chan struct{})
		s.giveUp = giveUp
		time.AfterFunc(time.Minute, func() { close(giveUp) })
		o := s.run("status", "svc-1")
		require.Equal(t, exitInterrupted, o.code)
		require.NotContains(t, o.stderr, "running")
	})
}

// TestSignal sends real signals to a real process.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no process can be sent a Ctrl-C here")
	}
	for name, tt := range map[string]struct {
		signal os.Signal
		times  int
		deaf   bool // nobody reads standard error
	}{
		"Ctrl-C":            {os.Interrupt, 1, false},
		"Ctrl-C twice":      {os.Interrupt, 2, false},
		"timeout":           {syscall.SIGTERM, 2, false},
		"a terminal closes": {syscall.SIGHUP, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			if signal.Ignored(tt.signal) {
				t.Skip("this process was started to ignore the signal, as nohup does, and so would the program")
			}
			t.Parallel()
			srv := svctest.NewServer(svctest.WithDeployTime(time.Hour))
			defer srv.Close()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "deploy", "--name", "demo", "--image", "x")
			cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "SVC_BASE_URL="+srv.URL(), "SVC_API_TOKEN="+srv.Token(), "SVC_LEDGER="+t.TempDir(), "SVC_FAKE=")
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())

			id := make([]byte, len("svc-1\n"))
			_, err = io.ReadFull(stdout, id) // the endpoint exists now
			require.NoError(t, err)
			require.Equal(t, "svc-1\n", string(id))
			require.Equal(t, 1, srv.RunningInstances())
			if tt.deaf {
				require.NoError(t, stdout.Close())
				require.NoError(t, stderr.Close())
			}
			for range tt.times {
				require.NoError(t, cmd.Process.Signal(tt.signal))
			}
			log := new(bytes.Buffer)
			if !tt.deaf {
				_, err = bufio.NewReader(stderr).WriteTo(log)
				require.NoError(t, err)
				require.Contains(t, log.String(), "Nothing is left running")
			}
			require.Error(t, cmd.Wait())
			require.Equal(t, exitDeleted, cmd.ProcessState.ExitCode(), log.String())
			require.Zero(t, srv.RunningInstances())
		})
	}
}
