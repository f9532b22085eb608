package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// TestMain lets the test binary act as the program, for the tests that start the program as a
// process. Those tests wait for most of their time, so many run at once.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
		return
	}
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// outcome is what a run of the program left behind.
type outcome struct {
	code           int
	stdout, stderr string
	json           []map[string]any
}

// last is the last line of JSON.
func (o outcome) last() map[string]any { return o.json[len(o.json)-1] }

// session runs the program against a fake in memory.
type session struct {
	t        *testing.T
	srv      *svctest.Server
	terminal bool
	stdout   io.Writer       // nil: a buffer whose contents become outcome.stdout
	giveUp   <-chan struct{} // nil: never
	options  []svc.Option
}

// lockedBuffer can be read while a run that was given up still writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// inBubble gives a test virtual time, and the environment of a user.
func inBubble(t *testing.T, test func(*testing.T, *session), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(opts...)
		t.Cleanup(srv.Close)
		t.Setenv("SVC_BASE_URL", srv.URL())
		t.Setenv("SVC_API_TOKEN", srv.Token())
		t.Setenv("SVC_INFERENCE_URL", srv.InferenceURL())
		t.Setenv("SVC_FAKE", "")
		t.Setenv("SVC_LEDGER", filepath.Join(t.TempDir(), "ledger"))
		test(t, &session{t: t, srv: srv})
	})
}

func (s *session) run(args ...string) outcome {
	s.t.Helper()
	return s.runCtx(s.t.Context(), args...)
}

func (s *session) runCtx(ctx context.Context, args ...string) outcome {
	s.t.Helper()
	var stdout, stderr lockedBuffer
	program := &tool{
		stdout: cmp.Or[io.Writer](s.stdout, &stdout), stderr: &stderr, terminal: s.terminal, giveUp: s.giveUp,
		options: append(s.options, svc.WithHTTPClient(s.srv.HTTPClient())),
	}
	o := outcome{code: program.run(ctx, append([]string{"deploy"}, args...))}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	require.NotContains(s.t, o.stdout+o.stderr, s.srv.Token(), "the token is shown")
	for line := range strings.Lines(o.stdout) {
		if strings.HasPrefix(line, "{") {
			var v map[string]any
			require.NoError(s.t, json.Unmarshal([]byte(line), &v), line)
			o.json = append(o.json, v)
		}
	}
	return o
}

// deploy runs the deploy command with the required flags and args.
func (s *session) deploy(args ...string) outcome {
	s.t.Helper()
	return s.run(append([]string{"deploy", "--name", "demo", "--image", "registry.example/app:1"}, args...)...)
}

// open lists the IDs of the endpoints that may be running according to the ledger; "" stands
// for an ID that is not known.
func (s *session) open() (ids []string) {
	s.t.Helper()
	var last struct{ Entries []entryLine }
	o := s.run("ls", "--json")
	require.Equal(s.t, exitOK, o.code, o.stderr)
	require.NoError(s.t, json.Unmarshal([]byte(o.stdout), &last))
	for _, e := range last.Entries {
		if slices.Contains([]string{"intended", "unknown", "created"}, e.State) {
			ids = append(ids, e.ServiceID)
		}
	}
	return ids
}

func TestCommandsOnARunningEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

		o := s.run("status", "svc-1")
		require.Equal(t, exitOK, o.code)
		require.Equal(t, "available\n", o.stdout)
		require.Empty(t, o.stderr)

		o = s.run("status", "--url", "svc-1")
		require.Equal(t, exitOK, o.code)
		require.Equal(t, s.srv.InferenceURL()+"/inference-api/v1/inference_service/svc-1\n", o.stdout)

		o = s.run("--json", "scale", "svc-1", "2")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Len(t, o.json, 1)
		require.Equal(t, map[string]any{
			"event": "result", "exit_code": 0.0, "service_id": "svc-1", "name": "demo", "status": "available",
			"may_be_running": true, "instances": 2.0, "url": s.srv.InferenceURL() + "/inference-api/v1/inference_service/svc-1",
		}, o.last())
		require.Equal(t, 2, s.srv.RunningInstances())

		o = s.run("wait", "svc-1")
		require.Equal(t, exitOK, o.code)
		require.Equal(t, "available\n", o.stdout)
		require.Equal(t, "svc-1 is available after 0s\n", o.stderr)

		o = s.run("scale", "svc-1", "0")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, "stopped\n", o.stdout)

		o = s.run("status", "--url", "svc-1")
		require.Equal(t, exitUnusable, o.code)
		require.Empty(t, o.stdout, "a stopped endpoint has no URL")
		require.Contains(t, o.stderr, "svc-1 cannot be reached while it is stopped")

		o = s.run("wait", "svc-1", "--json")
		require.Equal(t, exitUnusable, o.code)
		require.Equal(t, "stopped", o.last()["error_kind"])
		require.Equal(t, "stopped", o.last()["status"])

		o = s.run("delete", "--json", "svc-1")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, true, o.last()["deleted"])

		o = s.run("delete", "svc-1", "--json")
		require.Equal(t, exitNotFound, o.code)
		require.Equal(t, "svc-1", o.last()["service_id"])
		o = s.run("delete", "svc-1", "--missing-ok")
		require.Equal(t, exitOK, o.code)
	})
}

func TestDeleteWaitsUntilItIsDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		start := time.Now()
		o := s.run("delete", id)
		require.Equal(t, exitOK, o.code, o.stderr)
		require.GreaterOrEqual(t, time.Since(start), time.Minute)
		require.Contains(t, o.stderr, id+" is still there (available) after 0s\n")
		require.Contains(t, o.stderr, id+" is deleted after 1m")
		require.Zero(t, s.srv.RunningInstances())

		id = s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		s.srv.SetStatus(id, "unavailable")
		o = s.run("delete", id)
		require.Equal(t, exitOK, o.code)
		require.Regexp(t, `svc-2 is still there \(unavailable\) after [34]\ds\n`, o.stderr, "no failure")
		require.NotContains(t, o.stderr, "svc-2 is unavailable")
	}, svctest.WithDeleteTime(time.Minute))
}

// TestRecordThatIsDeleted: a service may keep the record and mark it as deleted.
func TestRecordThatIsDeleted(t *testing.T) {
	var log bytes.Buffer
	p := progress{w: &log, deleting: true}
	poll := svc.Poll{ID: "svc-1", Status: "stopped", Service: &svc.InferenceService{}, Next: time.Second, Changed: true}
	p.poll(poll)
	poll.Service, poll.Next, poll.Elapsed, poll.Changed = &svc.InferenceService{IsDeleted: true}, 0, time.Second, false
	p.poll(poll)
	require.Equal(t, "svc-1 is still there (stopped) after 0s\nsvc-1 is deleted after 1s\n", log.String())
}

// TestURLOfAnEndpoint: a script can wait until the endpoint has a URL.
func TestURLOfAnEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		o := s.deploy("--timeout", "5m")
		require.Equal(t, exitRunning, o.code)
		o = s.run("wait", "--url", "svc-1")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, s.srv.InferenceURL()+"/inference-api/v1/inference_service/svc-1\n", o.stdout)
		o = s.run("wait", "--url", "--json", "svc-1")
		require.Equal(t, s.srv.InferenceURL()+"/inference-api/v1/inference_service/svc-1", o.last()["url"])

		t.Setenv("SVC_INFERENCE_URL", "")
		s.srv.ResetRequests()
		o = s.run("wait", "--url", "svc-1")
		require.Equal(t, exitUsage, o.code)
		require.Contains(t, o.stderr, "SVC_INFERENCE_URL")
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	}, svctest.WithDeployTime(20*time.Minute))
}

func TestRetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("GET", svctest.RouteEndpoint, svctest.RateLimited("3600"))
		o := s.run("status", "--json", "svc-1")
		require.Equal(t, exitTryLater, o.code)
		require.Contains(t, o.stderr, "asks to wait 1h0m0s")
		require.Equal(t, 3600.0, o.last()["retry_after_seconds"])
	})
}

// TestInsecureHTTP: http needs a flag, and the error names the flag.
func TestInsecureHTTP(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		address := "http" + strings.TrimPrefix(s.srv.URL(), "https")
		o := s.run("flavors", "--base-url", address)
		require.Equal(t, exitUsage, o.code)
		require.Contains(t, o.stderr, "--insecure-http")
		o = s.run("flavors", "--base-url", address, "--insecure-http")
		require.NotEqual(t, exitUsage, o.code, o.stderr)
		require.NotZero(t, s.srv.RequestCount("GET", svctest.RouteFlavors))
	})
}

func TestFlavors(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		o := s.run("flavors", "--min-cuda", "12.0", "--instances", "1")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, "FLAVOR    GPU    CUDA  REGION  AVAILABLE  USD\nflavor-1  GPU A  12.4  other   8          1.05\n", o.stdout)

		o = s.run("flavors", "--json")
		require.Len(t, o.json, 1)
		require.Len(t, o.last()["flavors"], 3)
		require.Equal(t, map[string]any{
			"flavor_id": "flavor-2", "gpu": "GPU B", "cuda": "11.8", "region": "cn", "available": 4.0, "usd_price_unit": 0.42,
		}, o.last()["flavors"].([]any)[0])

		o = s.run("flavors", "--gpu", "none such")
		require.Equal(t, exitNotFound, o.code)
	})
}

func TestFakeNeedsNoEnvironment(t *testing.T) {
	for _, name := range []string{"SVC_BASE_URL", "SVC_API_TOKEN", "SVC_INFERENCE_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("SVC_FAKE", "1")
	var stdout, stderr bytes.Buffer
	program := &tool{stdout: &stdout, stderr: &stderr}
	require.Equal(t, exitOK, program.run(t.Context(), []string{"deploy", "status", "svc-1"}), stderr.String())
	require.Equal(t, "available\n", stdout.String())

	stderr.Reset()
	program = &tool{stdout: &stdout, stderr: &stderr}
	require.Equal(t, exitOK, program.run(t.Context(), []string{"deploy", "deploy", "--name", "demo", "--image", "x"}), stderr.String())
	require.Contains(t, stderr.String(), "svc-2 is available")
	require.NotContains(t, stderr.String(), "is reached at", "the fake has ended")
}

// TestWrongValues: the error says what the value must be, in words of this program.
func TestWrongValues(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		for want, args := range map[string][]string{
			`"many" for argument INSTANCES: must be a whole number`: {"scale", "svc-1", "many"},
			`"1e9" for flag -port: must be a whole number`:          {"deploy", "--port", "1e9"},
			`flag -gpus: is out of range`:                           {"deploy", "--gpus", "99999999999999999999"},
			`flag -json: must be true or false`:                     {"status", "svc-1", "--json=perhaps"},
			`flag -timeout: must be a duration, such as 90s`:        {"status", "svc-1", "--timeout", "5"},
		} {
			o := s.run(args...)
			require.Equal(t, exitUsage, o.code, o.stderr)
			require.Contains(t, o.stderr, want)
			require.NotContains(t, o.stderr, "strconv")
		}
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	})
}

func TestUsageErrorsSendNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		for name, args := range map[string][]string{
			"no name":              {"deploy", "--image", "x"},
			"no image":             {"deploy", "--name", "x"},
			"no such flag":         {"deploy", "--nome", "x"},
			"no such command":      {"dploy"},
			"no id":                {"wait"},
			"one word too many":    {"status", "svc-1", "svc-2"},
			"not a number":         {"scale", "svc-1", "many"},
			"a negative number":    {"scale", "svc-1", "--", "-1"},
			"an impossible port":   {"deploy", "--name", "x", "--image", "x", "--port", "70000"},
			"an impossible key":    {"deploy", "--name", "x", "--image", "x", "--key", "A"},
			"an impossible lease":  {"deploy", "--name", "x", "--image", "x", "--lease", "-1s"},
			"no name at all":       {"deploy", "--name", "", "--image", "x"},
			"an impossible id":     {"delete", "a/b"},
			"contradiction":        {"deploy", "--name", "x", "--image", "x", "--keep", "--delete-on-failure"},
			"an impossible limit":  {"status", "svc-1", "--timeout", "soon"},
			"an address over http": {"status", "svc-1", "--base-url", "http://service.example"},
		} {
			o := s.run(append([]string{"--json"}, args...)...)
			require.Equal(t, exitUsage, o.code, "%s: %s", name, o.stderr)
			require.NotEmpty(t, o.stderr, name)
			require.Len(t, o.json, 1, name)
			require.Equal(t, 2.0, o.last()["exit_code"], name)
			require.NotEmpty(t, o.last()["error"], name)
		}
		t.Setenv("SVC_API_TOKEN", "")
		o := s.run("status", "svc-1")
		require.Equal(t, exitUsage, o.code)
		require.Contains(t, o.stderr, "set SVC_API_TOKEN")
		t.Setenv("SVC_BASE_URL", "")
		o = s.run("status", "svc-1")
		require.Equal(t, exitUsage, o.code)
		require.Contains(t, o.stderr, "set SVC_BASE_URL")
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	})
}

func TestHelpTellsTheExitCodes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		o := s.run("--help")
		require.Equal(t, exitOK, o.code)
		for _, code := range []string{"0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10 ", "11 ", "130 "} {
			require.Contains(t, o.stdout, "\n     "+code)
		}
		require.Contains(t, o.stdout, "SVC_API_TOKEN")
		o = s.run("deploy", "--help")
		require.Regexp(t, "--keep .*; not with --delete-on-failure", o.stdout)
		require.Regexp(t, "--delete-on-failure .*; not with --keep", o.stdout)
		require.Contains(t, o.stdout, "After a kill, \"deploy ls\" shows")
		o = s.run("fake", "--help")
		for _, flag := range []string{"deploy-time", "delete-time", "fail", "lose-response", "outage"} {
			require.Contains(t, o.stdout, "--"+flag)
		}
	})
}
