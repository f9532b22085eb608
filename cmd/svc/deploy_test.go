package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// deploy is the start of the command line of most tests.
var deploy = []string{"deploy", "--name", "demo", "--image", "registry.example/app:1"}

func with(args []string, more ...string) []string {
	return append(append([]string{}, args...), more...)
}

// open lists the IDs of the endpoints that may be running according to the ledger; "" stands for
// an ID that is not known.
func (s *session) open() (ids []string) {
	s.t.Helper()
	e := s.run("ls", "-o", "json")
	if e.code == exitLedger { // nothing was ever created
		return nil
	}
	for _, entry := range e.doc(s.t)["entries"].([]any) {
		ids = append(ids, entry.(map[string]any)["service_id"].(string))
	}
	return ids
}

// TestProbeOfAWrongPath: an endpoint that is available refuses it each time. That is said after a short time, with
// --quiet too, and at the end. The wait goes on: the application may get the path later.
func TestProbeOfAWrongPath(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithChat("m"))
	e := s.must(exitDeleted, with(deploy, "--probe", "/nope", "--timeout", "35s", "--quiet")...)
	require.Regexp(t, `(?m)^warning: the endpoint is available, and has refused each probe for 15s: GET /nope: status 404: .*--probe is wrong`, e.stderr)
	require.Contains(t, e.stderr, "check the path of --probe")
	s.must(exitOK, with(deploy, "--key", "chat")...)
	require.Contains(t, s.must(exitTimeout, "wait", "--key", "chat", "--probe", "/nope", "--timeout", "3s").stderr, "check the path of --probe")
	require.NotContains(t, s.must(exitTimeout, "wait", "svc-9", "--probe", "/nope", "--timeout", "3s").stderr, "--probe")
}

func TestDeploy(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	e := s.must(exitOK, with(deploy, "--instances", "2", "--command", "serve")...)
	require.Equal(t, "svc-1\n", e.stdout, "the ID and nothing else")
	require.Contains(t, e.stderr, "flavor flavor-2")
	require.Contains(t, e.stderr, "svc-1 is reached at "+s.srv.InferenceURL())
	require.Equal(t, []string{"svc-1"}, s.open())
	endpoint, ok := s.srv.Endpoint("svc-1")
	require.True(t, ok)
	require.Equal(t, "demo registry.example/app:1 serve", strings.Join([]string{endpoint.Name, endpoint.ImageURL, endpoint.Command}, " "))
	require.Equal(t, []int{2, 8000, 1}, []int{endpoint.Instances, endpoint.Port, endpoint.GPUNum})

	doc := s.must(exitOK, with(deploy, "-o", "json", "--flavor", "flavor-1")...).doc(t)
	require.Equal(t, "svc-2", doc["service_id"])
	require.Equal(t, "available", doc["status"])
	require.Equal(t, true, doc["may_be_running"])
	require.Equal(t, true, doc["created"])
	require.Nil(t, doc["request"])

	require.Empty(t, s.must(exitOK, with(deploy, "-q")...).stderr)
}

// TestDeployFailures: every failure has its exit code, shows the ID if there is one, and leaves
// running what the command line says.
func TestDeployFailures(t *testing.T) {
	t.Parallel()
	post := svctest.RouteEndpoints
	unavailable := []svctest.Option{svctest.WithStatusPath("initializing", "unavailable")}
	slow := []svctest.Option{svctest.WithDeployTime(time.Hour)}
	for name, tt := range map[string]struct {
		fake    []svctest.Option
		method  string
		route   string
		fault   svctest.Fault
		args    []string
		code    int
		kind    string
		id      string // what standard output holds
		running int
		advice  string
	}{
		"unavailable": {
			fake: unavailable, code: exitDeleted, kind: "unavailable", id: "svc-1\n", advice: "deleting svc-1 (Ctrl-C twice may leave it running)",
		},
		"unavailable, keep": {
			fake: unavailable, args: []string{"--keep"}, code: exitRunning, kind: "unavailable", id: "svc-1\n", running: 1, advice: "svc delete svc-1",
		},
		"too slow": {
			fake: slow, args: []string{"--timeout", "4s"}, code: exitDeleted, kind: "timeout", id: "svc-1\n", advice: "deleting svc-1",
		},
		"too slow, keep": {
			fake: slow, args: []string{"--timeout", "4s", "--keep"}, code: exitRunning, kind: "timeout", id: "svc-1\n", running: 1, advice: "svc delete svc-1",
		},
		"the response is lost": {
			method: "POST", route: post, fault: svctest.DropAfterEffect(), code: exitUnknown, kind: "outcome_unknown", running: 1, advice: `endpoint named "demo"`,
		},
		"a gateway responds in place of the service": {
			method: "POST", route: post, fault: svctest.GatewayErrorAfterEffect(), code: exitUnknown, kind: "outcome_unknown", running: 1, advice: "would create another endpoint",
		},
		"half of the response is lost, but not the ID": {
			method: "POST", route: post, fault: svctest.Fault{TruncateBody: true}, code: exitOK, id: "svc-1\n", running: 1, advice: "svc-1 is reached at",
		},
		"out of reach": {
			method: "POST", route: post, fault: svctest.RateLimited("3600"), code: exitTryLater, kind: "rate_limited", advice: "asks to wait 1h0m0s",
		},
		"nothing in stock": {
			args: []string{"--instances", "1000"}, code: exitNotFound, kind: "no_flavor", advice: "svc flavors",
		},
		"none so cheap": {
			args: []string{"--max-price", "0.01"}, code: exitNotFound, kind: "no_flavor", advice: "svc flavors",
		},
		"sold out": {
			args: []string{"--flavor", "flavor-3"}, code: exitNotFound, kind: "no_flavor", advice: "has fewer instances available than requested",
		},
		"sold out, although the list has it in stock": {
			method: "POST", route: post, fault: svctest.Fault{Status: 409, Body: `{"message":"no capacity"}`},
			args: []string{"--flavor", "flavor-1"}, code: exitNotFound, kind: "no_flavor", advice: "no capacity",
		},
		"refused": {
			method: "POST", route: post, fault: svctest.Fault{Status: 400, Body: `{"message":"no such image"}`},
			args: []string{"--flavor", "flavor-1"}, code: exitFailed, kind: "refused", advice: "no such image",
		},
		"the flavor that was named is too expensive": {
			args: []string{"--flavor", "flavor-1", "--max-price", "0.50"}, code: exitNotFound, kind: "no_flavor", advice: "svc flavors",
		},
		"replace without a key": {args: []string{"--replace"}, code: exitUsage, kind: "usage", advice: "--replace needs --key"},
		"an argument":           {args: []string{"--wait", "false"}, code: exitUsage, kind: "usage", advice: `"false" is one: it follows a flag with =, as in --wait=false`},
		"refused with each flavor": {
			method: "POST", route: post, fault: svctest.Fault{Status: 400, Body: `{"message":"no such image"}`, Times: -1},
			code: exitFailed, kind: "refused", advice: "no such image",
		},
		"sold out with each flavor": {
			method: "POST", route: post, fault: svctest.Fault{Status: 409, Body: `{"message":"no capacity"}`, Times: -1},
			code: exitNotFound, kind: "no_flavor", advice: "no capacity",
		},
		"a page with the status of a conflict": {
			method: "POST", route: post, fault: svctest.Fault{Status: 409, Body: "<html>conflict</html>", AfterEffect: true},
			args: []string{"--flavor", "flavor-1"}, code: exitUnknown, kind: "outcome_unknown", running: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, tt.fake...)
			if tt.method != "" {
				s.srv.Fault(tt.method, tt.route, tt.fault)
			}
			args := with(deploy, tt.args...)
			e := s.must(tt.code, args...)
			require.Equal(t, tt.id, e.stdout)
			require.Contains(t, e.stderr, strings.TrimSpace(tt.id))
			require.Contains(t, e.stderr, tt.advice)
			require.Equal(t, tt.running, s.srv.RunningInstances())
			if tt.fault.Times == 0 {
				require.LessOrEqual(t, s.srv.RequestCount("POST", post), 1, "created once at most")
			}
			require.Len(t, s.open(), tt.running, "the ledger knows what is running")
			lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
			switch last := lines[len(lines)-1]; {
			case tt.id == "" || tt.code == exitOK:
			case tt.running > 0:
				require.Equal(t, "svc-1 may still be running and billed. To delete it: svc delete svc-1", last)
			default:
				require.Equal(t, "Nothing is left running.", last)
			}

			s = newSession(t, tt.fake...) // the same with a document
			if tt.method != "" {
				s.srv.Fault(tt.method, tt.route, tt.fault)
			}
			doc := s.must(tt.code, with(args, "-o", "json")...).doc(t)
			require.Equal(t, tt.running > 0, doc["may_be_running"])
			if tt.code != exitOK {
				require.Equal(t, tt.kind, doc["error_kind"])
				require.Equal(t, strings.TrimSpace(tt.id), doc["service_id"])
			}
		})
	}
}

func TestDeployUsage(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	spec := filepath.Join(s.env["HOME"], "spec.yaml")
	require.NoError(t, os.WriteFile(spec, []byte("name: demo\nimage: x\n"), 0o600))
	for want, args := range map[string][]string{
		"--name is required":               {"deploy"},
		"--image is required":              {"deploy", "--name", "x"},
		"must be a whole number":           with(deploy, "--port", "1e9"),
		"--port must be":                   with(deploy, "--port", "70000"),
		"--instances must be":              with(deploy, "--instances", "0"),
		"--gpus must be":                   with(deploy, "--gpus", "-1"),
		"--lease must be":                  with(deploy, "--lease", "-1s"),
		"must be a duration":               with(deploy, "--lease", "8"),
		"--key must be":                    with(deploy, "--key", "A B"),
		"is not a price":                   with(deploy, "--max-price", "cheap"),
		`unknown field "image"`:            {"deploy", "--file", spec},
		"no such file":                     {"deploy", "--file", "none.yaml"},
		"--key and --lease need a ledger":  with(deploy, "--ledger", "none", "--key", "a"),
		"\"extra\" is one":                 with(deploy, "extra"),
		"unknown flag: --delete-on-failur": with(deploy, "--delete-on-failure"),
	} {
		e := s.must(exitUsage, args...)
		require.Contains(t, e.stderr, want)
		require.Contains(t, e.stderr, "svc deploy --help")
	}
	s.env["SVC_INFERENCE_URL"] = ""
	require.Contains(t, s.must(exitUsage, with(deploy, "--probe", "/health")...).stderr, "--inference-url")
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")
}

// TestDeployFileThatIsRefused: what is no single, complete create request rents nothing.
func TestDeployFileThatIsRefused(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const good = "name: demo\ndeploy_metadata: {image_url: x}\n"
	for _, tt := range []struct{ text, says string }{
		{good + "---\nname: other\n", "more than one document"},
		{good + "---\n", "more than one document"},
		{good + "...\n[junk", "more than one document"},
		{`{"name":"demo"} {"name":"other"}`, "more than one document"},
		{"", ": it is empty"}, {"# nothing\n", ": it is empty"}, {"null", ": it is empty"},
		{"- name: demo\n", "must hold the fields"}, {"demo\n", "must hold the fields"}, {good + "name: other\n", "each of them once"},
		{good + "NAME: other\n", "each of them once"}, {good + "resource_metadata: {target_instance_number: 2, Target_Instance_Number: 1}\n", "each of them once"},
		{good + "gpu_num: 2\n", `unknown field "gpu_num"`},
		{"name: demo\ndeploy_metadata: {image_url: x, gpus: 2}\n", `unknown field "gpus"`},
		{"name: 7\ndeploy_metadata: {image_url: x}\n", "name must be a string (in quotes), not number"},
		{"name: demo\ndeploy_metadata: {image_url: x, gpu_num: one}\n", "deploy_metadata.gpu_num must be a whole number, not string"},
		{"name: demo\ndeploy_metadata: {image_url: x, gpu_num: 1.5}\n", "must be a whole number"},
		{"name: demo\ndeploy_metadata: x\n", "deploy_metadata must be a list of fields"},
		{"name: demo\ndeploy_metadata: {1: x}\n", "JSON does not have"},
		{"name: demo\ndeploy_metadata: {image_url: x, port: 0}\n", "--port must be"},
		{good + "resource_metadata: {target_instance_number: 0}\n", "--instances must be"},
		{good + "description: " + strings.Repeat("x", maxSpec), "has more than 1.0 MB"},
	} {
		cmd := s.command("deploy", "--file", "-")
		cmd.Stdin = strings.NewReader(tt.text)
		e := s.finish(cmd)
		require.Equal(t, exitUsage, e.code, "%.80s: %s", tt.text, e.stderr)
		require.NotContains(t, e.stderr, "the file")
		require.Contains(t, e.stderr, tt.says, "%.80s", tt.text)
	}
	require.Contains(t, s.must(exitUsage, "deploy", "--file", "/dev/zero").stderr, "/dev/zero has more than 1.0 MB")
	require.Contains(t, s.must(exitUsage, "deploy", "--file", s.env["HOME"]).stderr, "is a directory")
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")
}

// TestDeployFile: the file is the create request, flags win over it, and a dry run prints a
// request that can be used as a file.
func TestDeployFile(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	spec := filepath.Join(s.env["HOME"], "spec.yaml")
	require.NoError(t, os.WriteFile(spec, []byte(`
name: from-file
description: "a chat"
resource_metadata: {flavor_id: flavor-1, target_instance_number: 2}
deploy_metadata:
  image_url: registry.example/app:1
  port: 9000
  gpu_num: 0
`), 0o600))
	e := s.must(exitOK, "deploy", "--file", spec, "--name", "from-flag", "--dry-run")
	require.Zero(t, s.srv.RequestCount("POST", svctest.RouteEndpoints))
	require.Contains(t, e.stdout, "name: from-flag\n")
	doc := s.must(exitOK, "deploy", "--file", spec, "--dry-run", "-o", "json").doc(t)
	require.Equal(t, false, doc["may_be_running"])
	request := doc["request"].(map[string]any)
	require.Equal(t, map[string]any{"image_url": "registry.example/app:1", "port": 9000.0, "gpu_num": 0.0}, request["deploy_metadata"])

	cmd := s.command("deploy", "--file", "-")
	cmd.Stdin = strings.NewReader(e.stdout)
	require.Equal(t, "svc-1\n", s.finish(cmd).stdout)
	endpoint, _ := s.srv.Endpoint("svc-1")
	require.Equal(t, []any{"from-flag", 2, 9000, 0, "flavor-1"}, []any{endpoint.Name, endpoint.Instances, endpoint.Port, endpoint.GPUNum, endpoint.FlavorID})
	require.Contains(t, endpoint.Description, "] a chat")

	require.NoError(t, os.WriteFile(spec, []byte("name: short\ndeploy_metadata: {image_url: x}\n...\n"), 0o600))
	request = s.must(exitOK, "deploy", "--file", spec, "--dry-run", "-o", "json").doc(t)["request"].(map[string]any)
	require.Equal(t, map[string]any{"image_url": "x", "port": 8000.0, "gpu_num": 1.0}, request["deploy_metadata"], "the defaults of the flags")
	require.Equal(t, 1.0, request["resource_metadata"].(map[string]any)["target_instance_number"])
	doc = s.must(exitNotFound, "deploy", "--file", spec, "--flavor", "none", "--dry-run", "-o", "json").doc(t)
	require.Equal(t, []any{"no_flavor", false}, []any{doc["error_kind"], doc["may_be_running"]})
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: 403})
	require.Contains(t, s.must(exitOK, "deploy", "--file", spec, "--flavor", "none", "--dry-run").stderr, "not checked whether none exists")
	s.srv.ClearFaults()
	doc = s.must(exitNotFound, "deploy", "--file", spec, "--flavor", "none", "-o", "json").doc(t)
	require.Equal(t, "no_flavor", doc["error_kind"], "the code of the dry run")
	require.Equal(t, false, doc["may_be_running"])
	s.must(exitNotFound, "deploy", "--file", spec, "--flavor", "flavor-3", "-o", "json") // sold out
	request = s.must(exitOK, "deploy", "--file", spec, "--gpus", "0", "--dry-run", "-o", "json").doc(t)["request"].(map[string]any)
	require.Equal(t, 0.0, request["deploy_metadata"].(map[string]any)["gpu_num"], "the flag wins")
}

// TestDeployUnderAKey: a second command with the key creates nothing.
func TestDeployUnderAKey(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	args := with(deploy, "--key", "chat")
	s.must(exitOK, args...)
	e := s.must(exitOK, args...)
	require.Equal(t, "svc-1\n", e.stdout)
	require.Contains(t, e.stderr, "an earlier command has created svc-1: waiting until it is available\n")
	require.NotContains(t, e.stderr, "billed", "it may have been scaled to 0 instances")
	require.Contains(t, s.must(exitOK, with(args, "--wait=false")...).stderr, "an earlier command has created svc-1\n")
	doc := s.must(exitOK, with(args, "-o", "json")...).doc(t)
	require.Equal(t, []any{"svc-1", "chat", false}, []any{doc["service_id"], doc["key"], doc["created"]})
	require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))

	doc = s.must(exitLedger, "deploy", "--name", "demo", "--image", "another", "--key", "chat", "-o", "json").doc(t)
	require.Equal(t, []any{"key_in_use", true}, []any{doc["error_kind"], doc["may_be_running"]})

	require.Contains(t, s.must(exitOK, "get", "--key", "chat").stdout, "svc-1")
	require.Equal(t, "svc-1\n", s.must(exitOK, "wait", "--key", "chat", "-o", "name").stdout)
	require.Contains(t, s.must(exitOK, "url", "--key", "chat").stdout, "/svc-1\n")
	require.Equal(t, 2.0, s.must(exitOK, "scale", "--key", "chat", "2", "-o", "json").doc(t)["instances"])
	require.Equal(t, "svc-1\n", s.must(exitOK, "delete", "--key", "chat", "-o", "name").stdout)
	require.Empty(t, s.open())
	s.must(exitNotFound, "delete", "--key", "chat")
	s.must(exitOK, "delete", "--key", "chat", "--missing-ok")
	require.Equal(t, "svc-2\n", s.must(exitOK, args...).stdout, "the key is free again")
}

// TestUnusableEndpointUnderAKey: it is said at once what to run, and --replace creates a new one.
func TestUnusableEndpointUnderAKey(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"unavailable", "stopped"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			args := with(deploy, "--key", "chat")
			s.must(exitOK, args...)
			s.srv.SetStatus("svc-1", status)
			e := s.must(exitRunning, with(args, "-o", "json")...)
			doc := e.doc(t)
			require.Equal(t, []any{status, true, "svc-1"}, []any{doc["error_kind"], doc["may_be_running"], doc["service_id"]})
			require.Contains(t, e.stderr, "--replace")
			require.Contains(t, e.stderr, "svc delete --key chat")

			e = s.must(exitOK, with(args, "--replace")...)
			require.Equal(t, "svc-2\n", e.stdout)
			require.Equal(t, []string{"svc-2"}, s.open())
			require.Equal(t, 1, s.srv.RunningInstances())
			require.Equal(t, "svc-2\n", s.must(exitOK, with(args, "--replace")...).stdout, "an available endpoint stays")
		})
	}
}

// TestReplaceChecksBeforeItDeletes: an endpoint whose place no other one can take stays.
func TestReplaceChecksBeforeItDeletes(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"no such GPU":              {"--gpu", "nosuch"},
		"no such flavor":           {"--flavor", "nosuch"},
		"none of the flavors":      {"--flavor", "nosuch,neither"},
		"another flavor, sold out": {"--flavor", "flavor-3"},
		"others, all sold out":     {"--flavor", "flavor-3,nosuch"},
		"too many instances":       {"--flavor", "flavor-1", "--instances", "1000"},
		"more than it gives back":  {"--flavor", "flavor-2", "--instances", "1000"},
		"more than any has":        {"--instances", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.useless(svctest.StatusUnavailable)
			e := s.must(exitRunning, with(with(deploy, "--key", "chat", "--replace", "-o", "json"), flags...)...)
			require.Equal(t, []any{"no_flavor", "svc-1", ""}, []any{e.doc(t)["error_kind"], e.doc(t)["service_id"], e.doc(t)["replaced"]}, e.stderr)
			require.Zero(t, s.srv.RequestCount("DELETE", svctest.RouteEndpoint))
		})
	}
}

// TestReplaceThatCreatesNothing: however it ends after the delete, it says that the old endpoint is deleted, with
// --quiet too, and its code says that nothing runs.
func TestReplaceThatCreatesNothing(t *testing.T) {
	t.Parallel()
	post := func(status int, body string) func(*session) {
		return func(s *session) {
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: status, Body: body, Times: -1})
		}
	}
	for name, tt := range map[string]struct {
		fault func(*session)
		then  func(*session, *background)
		kind  string
		says  string
	}{
		"refused":      {post(400, `{"message":"no such image"}`), nil, "refused", "no such image"},
		"rate limited": {func(s *session) { s.srv.Fault("POST", svctest.RouteEndpoints, svctest.RateLimited("3600")) }, nil, "rate_limited", "asks to wait 1h0m0s"},
		"interrupted": {func(s *session) { s.srv.Fault("POST", svctest.RouteEndpoints, svctest.RateLimited("8")) }, func(s *session, b *background) {
			eventually(s.t, "a create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 1 })
			b.signal(syscall.SIGTERM)
		}, "interrupted", "svc: "},
		"no ledger any more": {func(s *session) { s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Slow(6*time.Second)) }, func(s *session, _ *background) {
			eventually(s.t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
			require.NoError(s.t, os.Rename(filepath.Join(s.env["HOME"], ".local"), filepath.Join(s.env["HOME"], "away")))
		}, "ledger", "svc doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.useless(svctest.StatusStopped)
			tt.fault(s)
			b := s.background(with(deploy, "--key", "chat", "--replace", "--flavor", "flavor-1", "-o", "json", "--quiet", "--timeout", "60s")...)
			if tt.then != nil {
				tt.then(s, b)
			}
			e := b.end()
			require.Equal(t, exitDeleted, e.code, e.stderr)
			doc := e.doc(t)
			require.Equal(t, []any{tt.kind, "", "svc-1", false}, []any{doc["error_kind"], doc["service_id"], doc["replaced"], doc["may_be_running"]}, e.stderr)
			require.Contains(t, e.stderr, "svc-1, which the key chat had, is deleted (--replace), and this command has created no other one.\n")
			require.Contains(t, e.stderr, tt.says)
			require.True(t, strings.HasSuffix(e.stderr, "Nothing is left running.\n"), e.stderr)
			require.Zero(t, s.srv.RunningInstances())
		})
	}
}

// TestFlavorThatIsRefused: the next one is tried, and the key does not depend on it.
func TestFlavorThatIsRefused(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409})
	args := with(deploy, "--key", "chat", "--flavor", "flavor-2,flavor-1")
	e := s.must(exitOK, args...)
	require.Contains(t, e.stderr, "flavor flavor-2 was refused")
	endpoint, _ := s.srv.Endpoint("svc-1")
	require.Equal(t, "flavor-1", endpoint.FlavorID)
	require.Equal(t, "svc-1\n", s.must(exitOK, args...).stdout)

	page := svctest.Fault{Status: 409, Times: -1}
	s.srv.Fault("POST", svctest.RouteEndpoints, page)
	require.Contains(t, s.must(exitFailed, with(deploy, "--flavor", "flavor-2,flavor-1")...).stderr, "was refused")
	require.Equal(t, 1, s.srv.RunningInstances())
}

// TestRefusalThatIsNotAboutTheFlavor: no dearer flavor is tried, the error is that of the service, and nothing is said
// of the stock unless the service or its list says so.
func TestRefusalThatIsNotAboutTheFlavor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status       int
		body         string
		args         []string
		code         int
		kind         string
		posts        int
		flavor, says string
	}{
		"the image":                {400, `{"message":"image_url is invalid"}`, nil, exitFailed, "refused", 1, "", "image_url is invalid"},
		"the balance":              {402, `{"message":"not enough balance"}`, nil, exitFailed, "refused", 1, "", "not enough balance"},
		"the port":                 {422, `{"message":"port is taken"}`, []string{"--flavor", "flavor-2,flavor-1"}, exitFailed, "refused", 1, "", "port is taken"},
		"the name, of each flavor": {409, `{"message":"name taken"}`, nil, exitFailed, "refused", 2, "", "name taken"},
		"the name, of one flavor":  {409, `{"message":"name taken"}`, []string{"--flavor", "flavor-1"}, exitFailed, "refused", 1, "", "name taken"},
		"the stock, of each":       {409, `{"code":"out_of_stock"}`, nil, exitNotFound, "no_flavor", 2, "", "although its list of flavors has them in stock"},
		"the stock, of one":        {409, `{"code":"out_of_stock"}`, []string{"--flavor", "flavor-1"}, exitNotFound, "no_flavor", 1, "", "flavor-1 is not in stock"},
		"the flavor":               {422, `{"message":"flavor-2 is for other accounts"}`, nil, exitOK, "", 2, "flavor-1", "flavor flavor-2 was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			times := -1
			if tt.code == exitOK {
				times = 1
			}
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: tt.status, Body: tt.body, Times: times})
			e := s.must(tt.code, with(with(deploy, "--key", "chat", "-o", "json"), tt.args...)...)
			require.Equal(t, tt.posts, s.srv.RequestCount("POST", svctest.RouteEndpoints), e.stderr)
			require.Contains(t, e.stderr, tt.says)
			endpoint, _ := s.srv.Endpoint("svc-1")
			require.Equal(t, tt.flavor, endpoint.FlavorID)
			if tt.code != exitOK {
				require.Equal(t, tt.kind, e.doc(t)["error_kind"])
			}
			if tt.kind == "refused" {
				require.NotContains(t, e.stderr, "in stock")
			}
			if tt.posts == 1 {
				require.NotContains(t, e.stderr, "was refused")
			}
		})
	}
}

// TestUnknownOutcome: the way out of a doubt, as the advice says it.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	args := with(deploy, "--key", "chat")
	e := s.must(exitUnknown, args...)
	adopt, remove := strings.Index(e.stderr, "svc adopt chat ID"), strings.Index(e.stderr, "svc delete")
	require.True(t, adopt > 0 && remove > adopt, "adopt before delete: %s", e.stderr)
	require.Regexp(t, `svc forget chat \(from \d\d:\d\d:\d\d \S+ on\)`, e.stderr)
	require.Contains(t, e.stderr, "the same command sends nothing")

	e = s.must(exitUnknown, args...)
	require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))
	require.Contains(t, e.stderr, "svc adopt chat ID")
	s.must(exitUnknown, "get", "--key", "chat")
	require.Contains(t, s.must(exitOK, "ls").stdout, "unknown, in doubt")
	s.must(exitNotFound, "adopt", "other", "svc-1")
	s.must(exitNotFound, "adopt", "chat", "svc-9")
	require.Regexp(t, `can certainly no longer take effect, for (5m\d+|6m0)s at most`, s.must(exitTimeout, "forget", "chat", "--timeout", "3s").stderr)

	require.Equal(t, "svc-1\n", s.must(exitOK, "adopt", "chat", "svc-1", "-o", "name").stdout)
	require.Equal(t, "svc-1\n", s.must(exitOK, args...).stdout)
	s.must(exitOK, "delete", "--key", "chat")
	require.Zero(t, s.srv.RunningInstances())

	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	e = s.must(exitUnknown, with(deploy, "-o", "json")...) // without a key
	key := regexp.MustCompile(`svc adopt (\w+) ID`).FindStringSubmatch(e.stderr)
	require.NotNil(t, key, e.stderr)
	require.Contains(t, e.stderr, "would create another endpoint")
	doc := e.doc(t) // has what standard error says
	unknown := doc["unknown_create"].(map[string]any)
	require.Equal(t, []any{key[1], key[1], "demo"}, []any{doc["key"], unknown["key"], unknown["name"]})
	require.Contains(t, e.stderr, fmt.Sprintf("[svc:%s]", unknown["intent"]))
	from, err := time.Parse(time.RFC3339, unknown["forget_from"].(string))
	require.NoError(t, err)
	require.Contains(t, e.stderr, "(from "+clock(from)+" on)")
	unknown = s.must(exitUnknown, "get", "--key", key[1], "-o", "json").doc(t)["unknown_create"].(map[string]any)
	require.Equal(t, doc["unknown_create"], unknown, "the same from any command")
	s.must(exitOK, "adopt", key[1], "svc-2")
}

// TestFilterOfANamedFlavor: what is rented fits, and an endpoint of the key with another flavor is not taken for it.
func TestFilterOfANamedFlavor(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitNotFound, with(deploy, "--flavor", "flavor-1", "--gpu", "GPU B")...)
	file := s.file("resource_metadata: {flavor_id: flavor-1}\n")
	s.must(exitNotFound, with(deploy, "--file", file, "--max-price", "1")...)
	s.must(exitNotFound, with(deploy, "--file", file, "--max-price", "1", "--dry-run")...)
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: 403})
	s.must(exitRefused, with(deploy, "--flavor", "flavor-1", "--max-price", "2")...) // the price is not known
	require.Empty(t, s.srv.Endpoints())
	s.must(exitOK, with(deploy, "--flavor", "flavor-1", "--max-price", "2", "--key", "chat")...)
	s.must(exitOK, with(deploy, "--flavor", "flavor-1", "--max-price", "1", "--key", "chat")...) // it runs already
	s.must(exitLedger, with(deploy, "--flavor", "flavor-2", "--max-price", "2", "--key", "chat")...)
	s.must(exitOK, with(deploy, "--flavor", "flavor-1", "--max-price", "1", "--key", "chat", "--replace")...)
	s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
	s.must(exitRunning, with(deploy, "--flavor", "flavor-1", "--max-price", "1", "--key", "chat", "--replace")...)
	require.Equal(t, []string{"svc-1"}, s.open(), "nothing is deleted before it is known that a new one fits")
}

// TestValuesThatNoEndpointHas: they are refused before anything is sent.
func TestValuesThatNoEndpointHas(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := s.file("deploy_metadata: {image_url: \"r/ x\"}\n")
	for want, args := range map[string][]string{
		"--image holds white space":                                                       {"deploy", "--name", "demo", "--image", "r/ x"},
		"--image, here or in --file, holds white space":                                   {"deploy", "--name", "demo", "--file", file},
		"--probe has a % that begins no escape, such as %20: write %25":                   with(deploy, "--probe", "/%zz"),
		"--probe must be a path that begins with /, such as /health":                      with(deploy, "--probe", "http://evil/x"),
		"--probe must be a path that begins with /, such as /health: the":                 {"wait", "svc-1", "--probe", "//evil/x"},
		"must be a duration, such as 90s, 8h or 2d, and at most 106751d":                  with(deploy, "--lease", "99999999d"),
		"must be a duration, such as 90s, 8h or 2d, and at most 106751d; 0 for none\nSee": with(deploy, "--lease", "9999999h"),
	} {
		require.Contains(t, s.must(exitUsage, args...).stderr, want)
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "99999d")...)
	require.Contains(t, s.must(exitUsage, "extend", "chat", "106752d").stderr, "such as 8h or 2d, and at most 106751d, or 0 for no lease")
	require.Contains(t, s.must(exitOK, "deploy", "--help").stdout, "the service accepts 0 too")
}

// TestDocumentHasTheRandomKey: an endpoint that was deployed without --key can be found by the key of its entry.
func TestDocumentHasTheRandomKey(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	key, _ := s.must(exitOK, with(deploy, "-o", "json")...).doc(t)["key"].(string)
	require.True(t, ledger.ValidKey(key), key)
	s.must(exitOK, "delete", "--key", key)
	require.Equal(t, "", s.must(exitOK, with(deploy, "--ledger", "none", "-o", "json")...).doc(t)["key"])
}

// TestProbeThatIsCutOff: the time limit cuts off the last probe, which says nothing about the path.
func TestProbeThatIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithChat("m"))
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.srv.Fault("GET", svctest.RouteInference, svctest.Fault{Status: http.StatusNotFound}, svctest.Fault{Delay: time.Minute, Times: -1})
	e := s.must(exitTimeout, "wait", "--key", "chat", "--probe", "/nope", "--timeout", "6s")
	require.Contains(t, e.stderr, "the time limit is over; ")
	require.Contains(t, e.stderr, "check the path of --probe")
}

// TestReplaceWithoutItsLedger: a ledger that is gone meanwhile is not made anew.
func TestReplaceWithoutItsLedger(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"", "sqlite:"} {
		var place string
		var gone sync.Once
		s := newSession(t, svctest.WithRequestHook(func(r svctest.Request) {
			if r.Method == http.MethodGet && r.Route == svctest.RouteEndpoint && place != "" {
				gone.Do(func() {
					if err := os.Rename(place, place+"-gone"); err != nil {
						t.Error(err)
					}
				})
			}
		}))
		file := filepath.Join(s.env["HOME"], "ledger")
		s.env["SVC_LEDGER"] = form + file
		s.must(exitOK, "ledger", "init")
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		place = file
		s.must(exitLedger, with(deploy, "--key", "chat", "--replace")...)
		require.NoFileExists(t, file)
		require.NoDirExists(t, file)
		require.Equal(t, 1, s.srv.RunningInstances(), "nothing was deleted that cannot be recorded")
		require.Contains(t, s.must(exitLedger, "ls").stderr, "there is no ledger at")
	}
}
