package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestC28_EachExitCodeHasOneMeaning: the code alone tells a script whether something may
// be running and billed, and JSON says the same, with the kind of the error.
func TestC28_EachExitCodeHasOneMeaning(t *testing.T) {
	post, get := svctest.RouteEndpoints, svctest.RouteEndpoint
	broken, slow := svctest.WithStatusPath("initializing", "unavailable"), svctest.WithDeployTime(time.Hour)
	refused := svctest.Fault{Status: 401, Times: -1, Header: map[string][]string{"X-Request-Id": {"req-77"}}}
	tests := map[string]struct {
		fake      []svctest.Option
		method    string
		route     string
		fault     svctest.Fault
		args      []string
		interrupt time.Duration // 0: never
		code      int
		kind      string
		left      int // endpoints of this command that run afterwards
	}{
		"usage":                   {args: []string{"--port", "70000"}, code: exitUsage, kind: "usage"},
		"usage, no GPUs":          {args: []string{"--gpus", "-1"}, code: exitUsage, kind: "usage"},
		"usage, no instances":     {args: []string{"--instances", "0"}, code: exitUsage, kind: "usage"},
		"usage, no text":          {args: []string{"--command", "\xff"}, code: exitUsage, kind: "usage"},
		"refused":                 {args: []string{"--flavor", "flavor-3"}, code: exitFailed, kind: "refused"},
		"no flavor":               {args: []string{"--gpu", "none such"}, code: exitNotFound, kind: "no_flavor"},
		"token, at once":          {method: "POST", route: post, fault: refused, code: exitRefused, kind: "unauthorized"},
		"token, later":            {method: "GET", route: get, fault: refused, code: exitRunning, kind: "unauthorized", left: 1},
		"overloaded":              {method: "POST", route: post, fault: svctest.RateLimited("3600"), code: exitTryLater, kind: "rate_limited"},
		"timeout, at once":        {args: []string{"--timeout", "0s"}, code: exitTimeout, kind: "timeout"},
		"timeout, later":          {fake: []svctest.Option{slow}, args: []string{"--timeout", "9m"}, code: exitRunning, kind: "timeout", left: 1},
		"timeout, deleted":        {fake: []svctest.Option{slow}, args: []string{"--timeout", "9m", "--delete-on-failure"}, code: exitDeleted, kind: "timeout"},
		"unavailable":             {fake: []svctest.Option{broken}, code: exitRunning, kind: "unavailable", left: 1},
		"unavailable, deleted":    {fake: []svctest.Option{broken}, args: []string{"--delete-on-failure"}, code: exitDeleted, kind: "unavailable"},
		"outcome unknown":         {method: "POST", route: post, fault: svctest.DropAfterEffect(), code: exitUnknown, kind: "outcome_unknown", left: 1},
		"interrupted, at once":    {method: "GET", route: svctest.RouteFlavors, fault: svctest.Slow(time.Hour), interrupt: time.Second, code: exitInterrupted, kind: "interrupted"},
		"interrupted, later":      {fake: []svctest.Option{slow}, interrupt: time.Minute, code: exitDeleted, kind: "interrupted"},
		"interrupted, with keep":  {fake: []svctest.Option{slow}, args: []string{"--keep"}, interrupt: time.Minute, code: exitRunning, kind: "interrupted", left: 1},
		"interrupted, not proven": {fake: []svctest.Option{slow}, method: "DELETE", route: get, fault: refused, interrupt: time.Minute, code: exitRunning, kind: "interrupted", left: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				if tt.method != "" {
					s.srv.Fault(tt.method, tt.route, tt.fault)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if tt.interrupt > 0 {
					time.AfterFunc(tt.interrupt, cancel)
				}
				o := s.runCtx(ctx, append([]string{"deploy", "--json", "--name", "demo", "--image", "x"}, tt.args...)...)
				cancel()
				require.Equal(t, tt.code, o.code, o.stderr)
				require.Equal(t, tt.kind, o.last()["error_kind"])
				require.Equal(t, tt.left, s.srv.RunningInstances())
				require.Equal(t, tt.left > 0, slices.Contains([]int{exitUnknown, exitRunning}, o.code), "the code says it")
				require.Equal(t, tt.left > 0, o.last()["may_be_running"] == true, "so does the JSON")
				require.Len(t, s.open(), tt.left, "so does the ledger")
				if tt.code == exitUsage {
					require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")
				}
				if tt.kind == "unauthorized" {
					require.Equal(t, "req-77", o.last()["request_id"])
				}
			}, tt.fake...)
		})
	}
	t.Run("what is not known may be running", notKnown)
}

func notKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		deploy := []string{"deploy", "--name", "demo", "--image", "x", "--key", "k", "--lease", "1h"}
		require.Equal(t, exitRunning, s.run(append(deploy, "--timeout", "5m")...).code)
		check := func(ctx context.Context, code int, args ...string) {
			t.Helper()
			o := s.runCtx(ctx, append(args, "--json")...)
			require.Equal(t, code, o.code, o.stderr)
			require.Equal(t, true, o.last()["may_be_running"])
			require.True(t, code == exitOK || strings.Contains(o.stderr[strings.LastIndex(o.stderr[:len(o.stderr)-1], "\n"):], " may "), o.stderr)
			require.Equal(t, 1, s.srv.RunningInstances())
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(2 * time.Hour)
		check(t.Context(), exitOK, "sweep", "--dry-run")
		for _, args := range [][]string{{"sweep"}, deploy} {
			check(canceled, exitRunning, args...)
			check(t.Context(), exitRunning, append(args, "--timeout", "0s")...)
		}
		record := filepath.Join(os.Getenv("SVC_LEDGER"), "k@000001.json")
		text, err := os.ReadFile(record)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(record, nil, 0o600)) // a crash of the machine can leave an empty file
		check(t.Context(), exitLedger, "sweep")
		check(t.Context(), exitLedger, deploy...)
		require.NoError(t, os.WriteFile(record, text, 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(record), "k@000003.json"), 0o700))
		check(t.Context(), exitLedger, append(deploy, "--lease", "9h")...)
	}, svctest.WithDeployTime(time.Hour))
	inBubble(t, func(t *testing.T, s *session) { // somebody else deletes the endpoint
		require.Equal(t, exitRunning, s.deploy("--key", "k", "--timeout", "5m").code)
		time.AfterFunc(time.Minute, func() { _ = s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1") })
		o := s.deploy("--key", "k", "--json")
		require.Equal(t, exitDeleted, o.code, o.stderr)
		require.Equal(t, false, o.last()["may_be_running"])
	}, svctest.WithDeployTime(time.Hour))
}

func always(f svctest.Fault) svctest.Fault { f.Times = -1; return f }

// TestC28_Delete: the exit code is 10 unless the endpoint was seen to be deleted.
func TestC28_Delete(t *testing.T) {
	for name, tt := range map[string]struct {
		method  string
		fault   svctest.Fault
		args    []string
		code    int
		kind    any
		running bool
	}{
		"success":                 {code: exitOK},
		"a delete without effect": {"DELETE", always(svctest.Fault{Status: 202}), nil, exitRunning, "timeout", true},
		"an outage":               {"*", svctest.Fault{Status: 503, For: 24 * time.Hour}, nil, exitRunning, "timeout", true},
		"refused":                 {"*", always(svctest.Fault{Status: 403}), nil, exitRunning, "forbidden", true},
		"the time is over":        {"", svctest.Fault{}, []string{"--timeout", "0s"}, exitRunning, "timeout", true},
		"an early 404":            {"GET", svctest.Fault{Status: 404, Body: `{"code":"not_found"}`}, nil, exitOK, nil, false},
		"another early 404":       {"DELETE", svctest.Fault{Status: 404, Body: `{"code":"not_found"}`}, nil, exitOK, nil, false},
		"a lost response":         {"DELETE", svctest.DropAfterEffect(), nil, exitOK, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				if tt.method != "" {
					s.srv.Fault(tt.method, svctest.RouteEndpoint, tt.fault)
				}
				o := s.run(append([]string{"delete", "--json", id}, tt.args...)...)
				require.Equal(t, tt.code, o.code, o.stderr)
				require.Equal(t, tt.kind, o.last()["error_kind"])
				require.Equal(t, tt.running, o.last()["may_be_running"])
				require.Equal(t, tt.running, s.srv.RunningInstances() > 0)
				require.Equal(t, tt.code == exitOK, o.last()["deleted"] == true)
			})
		})
	}
	inBubble(t, func(t *testing.T, s *session) { // a new endpoint that nobody can read yet
		giveUp := make(chan struct{})
		s.giveUp = giveUp
		time.AfterFunc(time.Second, func() { close(giveUp) })
		o := s.run("delete", "--json", "svc-1")
		require.Equal(t, exitRunning, o.code, "a 404 is no proof within 30 s")
		require.Equal(t, true, o.last()["may_be_running"])
		time.Sleep(time.Minute)
	})
}

// TestC28_Scale: once the PUT may have been sent, the code says that instances may be billed.
func TestC28_Scale(t *testing.T) {
	for name, tt := range map[string]struct {
		method  string
		fault   svctest.Fault
		args    []string
		code    int
		kind    any
		running int
	}{
		"success":            {args: []string{"5"}, running: 5},
		"success, none":      {args: []string{"0"}},
		"too slow":           {args: []string{"5", "--timeout", "1m"}, code: exitRunning, kind: "timeout", running: 5},
		"an effect, and 503": {"PUT", svctest.Fault{Status: 503, AfterEffect: true, Times: -1}, []string{"5"}, exitRunning, "server_error", 5},
		"a lost response":    {"PUT", svctest.Fault{DropAfter: true, Times: -1}, []string{"5"}, exitRunning, "unreachable", 5},
		"refused":            {"PUT", svctest.Fault{Status: 401, Times: -1}, []string{"0"}, exitRunning, "unauthorized", 1},
		"not found":          {"PUT", svctest.Fault{Status: 404}, []string{"5"}, exitNotFound, "not_found", 1},
		"usage":              {args: []string{"--", "-1"}, code: exitUsage, kind: "usage", running: 1},
		"forbidden":          {"*", svctest.Fault{Status: 403, Times: -1}, []string{"5"}, exitRunning, "forbidden", 1},
		"a page of a proxy":  {"PUT", svctest.ProxyPage(404), []string{"5"}, exitRunning, "not_found", 1},
		"a page, later":      {"GET", always(svctest.ProxyPage(404)), []string{"5"}, exitRunning, "not_found", 5},
		"not found, later":   {"GET", always(svctest.Fault{Status: 404, Body: "{}"}), []string{"5"}, exitRunning, "not_found", 5},
		"deleted, later":     {"GET", always(svctest.Fault{Body: `{"service_id":"svc-1","is_deleted":true}`}), []string{"5"}, exitNotFound, "not_found", 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				id := s.srv.AddEndpoint(svctest.Endpoint{FlavorID: "flavor-1", Instances: 1})
				if tt.method != "" {
					s.srv.Fault(tt.method, svctest.RouteEndpoint, tt.fault)
				}
				o := s.run(append([]string{"scale", "--json", id}, tt.args...)...)
				require.Equal(t, tt.code, o.code, o.stderr)
				require.Equal(t, tt.kind, o.last()["error_kind"])
				require.Equal(t, tt.running, s.srv.RunningInstances())
				require.Equal(t, tt.code == exitRunning || tt.code == exitOK && tt.running > 0, o.last()["may_be_running"] == true)
				require.Equal(t, tt.code == exitRunning, strings.HasSuffix(o.stderr, " may be running and billed, or as many as before. To see how many: deploy status --json svc-1\n"))
				require.NotContains(t, o.stderr, "deploy delete")
			}, svctest.WithDeployTime(2*time.Minute))
		})
	}
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.AddEndpoint(svctest.Endpoint{FlavorID: "flavor-1", Instances: 1})
		s.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 503, AfterEffect: true}, svctest.Fault{Status: 404})
		require.Equal(t, exitRunning, s.run("scale", "svc-1", "5").code, "the 404 does not show what the first attempt did")

		giveUp := make(chan struct{})
		s.giveUp = giveUp
		time.AfterFunc(time.Second, func() { close(giveUp) })
		o := s.run("scale", "svc-1", "6")
		require.Equal(t, exitRunning, o.code)
		require.Contains(t, o.stderr, "Up to 6 instances of svc-1 may be running and billed")
		time.Sleep(time.Hour)
	}, svctest.WithDeployTime(10*time.Minute))
}

// TestC28_ReadmeAndHelp: the README and the help name the same codes.
func TestC28_ReadmeAndHelp(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	codes := func(form, text string) (all []string) {
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	help := codes(`(?m)^  (\d+) `, exitCodes)
	require.Len(t, help, 13)
	require.Equal(t, help, codes(`(?m)^\| (\d+) \|`, string(text)))
	for _, k := range kinds {
		require.Contains(t, string(text), "`"+k.name+"`")
	}
}
