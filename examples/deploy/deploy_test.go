package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestDeploy(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		start := time.Now()
		o := s.deploy("--instances", "2", "--command", "serve")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, "svc-1\n", o.stdout, "the ID and nothing else")
		require.Contains(t, o.stderr, "flavor flavor-2")
		require.Contains(t, o.stderr, "svc-1 is reached at "+s.srv.InferenceURL())
		require.GreaterOrEqual(t, time.Since(start), 20*time.Minute)

		require.Equal(t, []string{"svc-1"}, s.open())

		endpoint, ok := s.srv.Endpoint("svc-1")
		require.True(t, ok)
		require.Equal(t, "demo registry.example/app:1 serve 8000",
			strings.Join([]string{endpoint.Name, endpoint.ImageURL, endpoint.Command, "8000"}, " "))
		require.Equal(t, 2, endpoint.Instances)
		require.Equal(t, 8000, endpoint.Port)
		require.Equal(t, 1, endpoint.GPUNum)
	}, svctest.WithDeployTime(20*time.Minute))
}

func TestDeployJSON(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		o := s.deploy("--json", "--flavor", "flavor-1")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, []map[string]any{
			{"event": "created", "service_id": "svc-1", "name": "demo", "may_be_running": true},
			{
				"event": "result", "exit_code": 0.0, "service_id": "svc-1", "name": "demo", "status": "available", "may_be_running": true,
				"instances": 1.0, "url": s.srv.InferenceURL() + "/inference-api/v1/inference_service/svc-1",
			},
		}, o.json)
	})
}

// TestDeployFailures: every failure has its exit code, shows the ID if there is one, and
// leaves running what the command line says.
func TestDeployFailures(t *testing.T) {
	post, get := svctest.RouteEndpoints, svctest.RouteEndpoint
	tests := map[string]struct {
		fake    []svctest.Option
		method  string
		route   string
		fault   svctest.Fault
		args    []string
		code    int
		id      string // what standard output holds
		running int
		advice  string
	}{
		"unavailable": {
			fake: []svctest.Option{svctest.WithStatusPath("initializing", "unavailable")},
			code: exitRunning, id: "svc-1\n", running: 1, advice: "deploy delete svc-1",
		},
		"unavailable, delete": {
			fake: []svctest.Option{svctest.WithStatusPath("initializing", "unavailable")}, args: []string{"--delete-on-failure"},
			code: exitDeleted, id: "svc-1\n", advice: "deleting svc-1 (Ctrl-C twice may leave it running)",
		},
		"too slow": {
			fake: []svctest.Option{svctest.WithDeployTime(time.Hour)}, args: []string{"--timeout", "10m"},
			code: exitRunning, id: "svc-1\n", running: 1, advice: "deploy delete svc-1",
		},
		"too slow, delete": {
			fake: []svctest.Option{svctest.WithDeployTime(time.Hour)}, args: []string{"--timeout", "10m", "--delete-on-failure"},
			code: exitDeleted, id: "svc-1\n", advice: "deleting svc-1 (Ctrl-C twice may leave it running)",
		},
		"unavailable, and the cleanup fails": {
			fake: []svctest.Option{svctest.WithStatusPath("unavailable")}, args: []string{"--delete-on-failure"},
			method: "DELETE", route: get, fault: svctest.ServiceUnavailable(-1),
			code: exitRunning, id: "svc-1\n", running: 1, advice: "deploy delete svc-1",
		},
		"the token is revoked meanwhile": {
			method: "GET", route: get, fault: svctest.Fault{Status: 401, Times: -1},
			code: exitRunning, id: "svc-1\n", running: 1, advice: "deploy delete svc-1",
		},
		"the service no longer knows the call": {
			method: "GET", route: get, fault: svctest.Fault{Status: 501, Times: -1},
			code: exitRunning, id: "svc-1\n", running: 1, advice: "deploy delete svc-1",
		},
		"the response is lost": {
			method: "POST", route: post, fault: svctest.DropAfterEffect(),
			code: exitUnknown, running: 1, advice: `endpoint named "demo"`,
		},
		"a gateway responds in place of the service": {
			method: "POST", route: post, fault: svctest.GatewayErrorAfterEffect(),
			code: exitUnknown, running: 1, advice: "Do NOT run the command again",
		},
		"half of the response is lost, but not the ID": {
			method: "POST", route: post, fault: svctest.Fault{TruncateBody: true},
			code: exitOK, id: "svc-1\n", running: 1, advice: "svc-1 is reached at",
		},
		"out of reach": {
			method: "POST", route: post, fault: svctest.RateLimited("3600"), code: exitTryLater, advice: "asks to wait 1h0m0s",
		},
		"overloaded until the time is over": {
			method: "GET", route: get, fault: svctest.Fault{Status: 429, RetryAfter: "120", Times: -1}, args: []string{"--timeout", "5m"},
			code: exitRunning, id: "svc-1\n", running: 1, advice: "asks to wait 2m0s",
		},
		"nothing in stock": {
			args: []string{"--instances", "1000"}, code: exitNotFound, advice: "deploy flavors",
		},
		"refused": {
			args: []string{"--flavor", "flavor-3"}, code: exitFailed,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				if tt.method != "" {
					s.srv.Fault(tt.method, tt.route, tt.fault)
				}
				o := s.deploy(tt.args...)
				require.Equal(t, tt.code, o.code, o.stderr)
				require.Equal(t, tt.id, o.stdout)
				require.Contains(t, o.stderr, strings.TrimSpace(tt.id))
				require.Contains(t, o.stderr, tt.advice)
				require.Equal(t, tt.running, s.srv.RunningInstances())
				switch lines := strings.Split(strings.TrimSpace(o.stderr), "\n"); {
				case tt.id == "" || tt.code == exitOK:
				case tt.running > 0:
					require.Equal(t, "svc-1 may still be running and billed. To delete it: deploy delete svc-1", lines[len(lines)-1])
				default:
					require.Equal(t, "Nothing is left running.", lines[len(lines)-1])
				}
				require.LessOrEqual(t, s.srv.RequestCount("POST", post), 1, "created once at most")

				require.Len(t, s.open(), tt.running, "the ledger knows what is running")
			}, tt.fake...)
		})
	}
}

func TestExitCodesOfOtherCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		o := s.run("wait", "svc-9")
		require.Equal(t, exitNotFound, o.code)
		require.Contains(t, o.stderr, "404")
		require.Contains(t, "\n"+o.stderr, "\ndeploy: svc: waiting for svc-9", o.stderr)
		require.Equal(t, exitNotFound, s.run("scale", "svc-9", "1").code)

		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		require.Equal(t, exitTryLater, s.run("status", "svc-9").code)
		s.srv.ClearFaults()
		require.Equal(t, exitTimeout, s.run("status", "svc-9", "--timeout", "0s").code)

		t.Setenv("SVC_API_TOKEN", "another-token")
		o = s.run("status", "svc-9")
		require.Equal(t, exitRefused, o.code)
		require.NotContains(t, o.stderr, "another-token")
		require.Contains(t, o.stderr, "SVC_API_TOKEN")
	})
}

// TestReasonIsNotThatOfTheCleanup: error_kind says why the deployment failed, not why the
// cleanup failed.
func TestReasonIsNotThatOfTheCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 401, Times: -1})
		o := s.deploy("--delete-on-failure", "--json")
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Equal(t, "unavailable", o.last()["error_kind"])
		require.Contains(t, o.stderr, "deploy delete svc-1")
	}, svctest.WithStatusPath("initializing", "unavailable"))
}

// fullDisk is a file to which nothing can be written.
type fullDisk struct{}

var errDiskFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errDiskFull }

// TestIDThatCannotBeWritten: the program fails at once, not after twenty minutes.
func TestIDThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.stdout = fullDisk{}
		for i, args := range [][]string{{}, {"--json"}, {"--delete-on-failure"}} {
			start := time.Now()
			o := s.deploy(args...)
			require.Equal(t, []int{exitRunning, exitRunning, exitDeleted}[i], o.code, o.stderr)
			require.Less(t, time.Since(start), time.Minute)
			require.Contains(t, o.stderr, errDiskFull.Error())
			require.Contains(t, o.stderr, fmt.Sprintf("created svc-%d", i+1))
			require.Equal(t, i == 2, strings.Contains(o.stderr, "Nothing is left running"))
		}
		require.Equal(t, 2, s.srv.RunningInstances())
		require.Equal(t, exitFailed, s.run("status", "svc-1").code)
		require.Equal(t, exitFailed, s.run("status", "--json", "svc-1").code)
	}, svctest.WithDeployTime(20*time.Minute))
}

func TestProgress(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{}, svctest.ServiceUnavailable(10))
		o := s.deploy()
		require.Equal(t, exitOK, o.code)
		require.Regexp(t, `\nsvc-1 could not be read after \d+s: svc: GET /v1/inference-service/\{service_id\}: 503`, o.stderr, "an outage is no secret")
		require.NotContains(t, o.stderr, "\r", "a log gets whole lines")
		lines := strings.Count(o.stderr, "svc-1 is initializing")
		require.Greater(t, lines, 2, "a log shows that the program is alive")
		require.Less(t, lines, 12, "and not every poll")

		s.terminal = true
		o = s.deploy()
		require.Equal(t, exitOK, o.code)
		require.Contains(t, o.stderr, "\r")
		require.Contains(t, o.stderr, "svc-2 is initializing")
		require.Contains(t, o.stderr, "\nsvc-2 is reached at")
		require.Equal(t, "svc-2\n", o.stdout)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		o = s.runCtx(ctx, "deploy", "--name", "demo", "--image", "x")
		require.Equal(t, exitDeleted, o.code)
		require.Contains(t, o.stderr, "\rdeleting svc-3 (another Ctrl-C may", "the moving line is taken away first")
		time.Sleep(time.Second) // the goroutine of the bar ends at its next tick
	}, svctest.WithDeployTime(4*time.Minute))
}
