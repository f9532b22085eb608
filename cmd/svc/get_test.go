package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestGetHasEachForm(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "chat\x1b[31m模型", Instances: 2, FlavorID: "flavor-1"})
	url := s.srv.InferenceURL() + "/inference-api/v1/inference_service/" + id

	e := s.must(exitOK, "get", id)
	lines := strings.Split(e.stdout, "\n")
	require.Regexp(t, `^ID +NAME +STATUS +INSTANCES +FLAVOR +AGE +URL$`, lines[0])
	require.Equal(t, []string{id, "chat\uFFFD[31m模型", "available", "2", "flavor-1", url}, slices.Delete(strings.Fields(lines[1]), 5, 6))
	require.Regexp(t, ` \d+s +http`, lines[1], "the age")
	require.Empty(t, e.stderr)
	require.NotContains(t, s.must(exitOK, "get", id, "--no-headers").stdout, "STATUS")
	require.Equal(t, id+"\n", s.must(exitOK, "get", id, "-o", "name").stdout)

	doc := s.must(exitOK, "get", id, "-o", "json").doc(t)
	require.Equal(t, "available", doc["status"])
	require.Equal(t, id, doc["service_id"])
	require.Equal(t, true, doc["may_be_running"])
	require.Equal(t, url, doc["url"])
	require.Equal(t, 2.0, doc["instances"])
	require.Contains(t, s.must(exitOK, "get", id, "-o", "yaml").stdout, "\nstatus: available\n")
}

// TestGetFailures: each failure has its exit code, and a document with the same fields.
func TestGetFailures(t *testing.T) {
	t.Parallel()
	get := svctest.RouteEndpoint
	for name, tt := range map[string]struct {
		args  []string
		env   map[string]string
		fault *svctest.Fault
		code  int
		kind  string
		says  string
	}{
		"not found":         {args: []string{"get", "svc-9"}, code: exitNotFound, kind: "not_found", says: "Check the ID"},
		"no argument":       {args: []string{"get"}, code: exitUsage, kind: "usage", says: "svc get --help"},
		"no such flag":      {args: []string{"get", "--colour", "svc-1"}, code: exitUsage, kind: "usage", says: "svc get --help"},
		"no such command":   {args: []string{"gte"}, code: exitUsage, kind: "usage", says: "but there is get"},
		"command and flag":  {args: []string{"depoly", "--key", "a"}, code: exitUsage, kind: "usage", says: "but there is deploy"},
		"command of others": {args: []string{"rm", "svc-1"}, code: exitUsage, kind: "usage", says: "but there is delete\n"},
		"negative duration": {args: []string{"extend", "chat", "-1h"}, code: exitUsage, kind: "usage", says: "DURATION"},
		"negative number":   {args: []string{"scale", "svc-1", "-1"}, code: exitUsage, kind: "usage", says: "INSTANCES"},
		"events":            {args: []string{"get", "--colour", "--progress", "json"}, code: exitUsage, kind: "usage", says: `{"event":"error","message":"svc: unknown flag: --colour"}`},
		"in a group":        {args: []string{"files", "uplod", "--purpose", "x"}, code: exitUsage, kind: "usage", says: "but there is upload"},
		"time out of range": {args: []string{"get", "svc-1", "--timeout", "5"}, code: exitUsage, kind: "usage", says: "must be a duration"},
		"no time":           {args: []string{"get", "svc-1", "--timeout", "0s"}, code: exitUsage, kind: "usage", says: "--timeout must be a duration longer than 0s"},
		"quiet and verbose": {args: []string{"get", "svc-1", "-q", "-v"}, code: exitUsage, kind: "usage", says: "cannot be used together"},
		"no address":        {args: []string{"get", "svc-1"}, env: map[string]string{"SVC_BASE_URL": ""}, code: exitUsage, kind: "usage", says: "--base-url"},
		"no token":          {args: []string{"get", "svc-1"}, env: map[string]string{"SVC_API_TOKEN": ""}, code: exitUsage, kind: "usage", says: "--token-file"},
		"plain http":        {args: []string{"get", "svc-1", "--base-url", "http://example.com"}, code: exitUsage, kind: "usage", says: "--insecure-http"},
		"wrong token":       {args: []string{"get", "svc-1"}, env: map[string]string{"SVC_API_TOKEN": "wrong-token"}, code: exitRefused, kind: "unauthorized", says: "Check the token"},
		"line break":        {args: []string{"get", "svc-1"}, env: map[string]string{"SVC_API_TOKEN": "half\nhalf"}, code: exitRefused, kind: "unauthorized", says: "Check the token"},
		"no text":           {args: []string{"wait", "svc-1"}, env: map[string]string{"SVC_API_TOKEN": "\xff\xfe"}, code: exitRefused, kind: "unauthorized", says: "SVC_API_TOKEN: the token holds"},
		"example":           {args: []string{"files", "ls"}, env: map[string]string{"SVC_API_TOKEN": "<your-token>"}, code: exitRefused, kind: "unauthorized", says: "an example"},
		"deploy, bad token": {args: deploy, env: map[string]string{"SVC_API_TOKEN": "half\nhalf"}, code: exitRefused, kind: "unauthorized", says: "Check the token"},
		"delete, bad token": {args: []string{"delete", "svc-1"}, env: map[string]string{"SVC_API_TOKEN": "half\nhalf"}, code: exitRunning, kind: "unauthorized", says: "To try again: svc delete svc-1"},
		"nobody listens":    {args: []string{"get", "svc-1", "--base-url", "http://127.0.0.1:1"}, code: exitTryLater, kind: "unreachable"},
		"overloaded":        {args: []string{"get", "svc-1"}, fault: &svctest.Fault{Status: 429, RetryAfter: "3600"}, code: exitTryLater, kind: "rate_limited", says: "asks to wait 1h0m0s"},
		"no record":         {args: []string{"get", "svc-1"}, fault: &svctest.Fault{Status: 200, Body: "[]"}, code: exitFailed, kind: "unexpected_response", says: "what the service promises: unexpected array"},
		"no number":         {args: []string{"get", "svc-1"}, fault: &svctest.Fault{Status: 200, Body: `{"service_id": "svc-1", "status": 7}`}, code: exitFailed, kind: "unexpected_response", says: "status: unexpected number"},
		"refused":           {args: []string{"get", "svc-1"}, fault: &svctest.Fault{Status: 418}, code: exitFailed, kind: "refused"},
		"no ledger":         {args: []string{"get", "--key", "chat"}, code: exitLedger, kind: "no_ledger", says: "svc ledger init"},
		"relative ledger":   {args: []string{"get", "svc-1"}, env: map[string]string{"SVC_LEDGER": "here"}, code: exitUsage, kind: "usage", says: "full path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			for k, v := range tt.env {
				s.env[k] = v
			}
			if tt.fault != nil {
				s.srv.Fault("GET", get, *tt.fault)
			}
			e := s.must(tt.code, append(slices.Clone(tt.args), "-o", "json")...)
			doc := e.doc(t)
			for _, field := range []string{"error", "error_kind", "exit_code", "may_be_running", "service_id", "key", "request_id"} {
				require.Contains(t, doc, field)
			}
			require.Equal(t, tt.kind, doc["error_kind"])
			require.Contains(t, e.stderr, tt.says)
			require.Contains(t, e.stderr, "svc: "+doc["error"].(string))
		})
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	file := filepath.Join(s.env["HOME"], "token")
	token := s.env["SVC_API_TOKEN"]
	s.env["SVC_API_TOKEN"] = "another-token"
	s.must(exitRefused, "get", id)
	for _, tt := range []struct {
		text, says string
		code       int
	}{
		{token + "\n", "", exitOK}, {"\n " + token + "\r\n\n", "", exitOK}, {"Bearer " + token, "", exitOK},
		{"", file + " is empty", exitUsage}, {" \n", file + " is empty", exitUsage},
		{"half\nhalf\n", "--token-file: the token holds", exitRefused}, {strings.Repeat("x", maxTokenFile+1), "has more than", exitUsage},
	} {
		require.NoError(t, os.WriteFile(file, []byte(tt.text), 0o600))
		require.Contains(t, s.must(tt.code, "get", id, "--token-file", file).stderr, tt.says)
	}
	require.Contains(t, s.must(exitUsage, "get", id, "--token-file", "/dev/zero").stderr, "has more than")
	require.Contains(t, s.must(exitUsage, "get", id, "--token-file", "none").stderr, "--token-file")
}

// TestVerbose: each attempt is a line on standard error, and shows no secret.
func TestVerbose(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	s.srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(1))
	e := s.must(exitOK, "get", id, "-v")
	require.Regexp(t, `(?m)^GET /v1/inference-service/\{service_id\} svc-1: 503 in [\d.]+m?s.*, again in .*\n^GET .*: 200 in .*, attempt 2$`, e.stderr)

	e = s.must(exitOK, "get", id, "-v", "--progress", "json")
	var event map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.stderr), &event))
	require.Equal(t, "attempt", event["event"])
	require.Equal(t, 200.0, event["status_code"])
}

// TestStdoutThatCannotBeWritten: a full disk is a failure, and a reader that has gone away is none.
func TestStdoutThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	for _, args := range [][]string{{"get", id}, {"get", id, "-o", "json"}, {"version"}, {"--help"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := s.command(args...)
		cmd.Stdout = full
		e := s.finish(cmd)
		require.Equal(t, exitFailed, e.code, args)
		require.Contains(t, e.stderr, "no space left")
		full.Close()

		r, w, err := os.Pipe()
		require.NoError(t, err)
		r.Close()
		cmd = s.command(args...)
		cmd.Stdout = w
		e = s.finish(cmd)
		require.Equal(t, exitOK, e.code, e.stderr)
		require.Empty(t, e.stderr)
		w.Close()
	}
}

// TestAddressWithAWrongPath: every "not found" names the address, since it may be the reason.
func TestAddressWithAWrongPath(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.env["SVC_BASE_URL"] += "/api"
	for _, args := range [][]string{{"get", "svc-1"}, {"flavors"}, {"files", "ls"}, {"files", "link", "file-1"}, deploy} {
		e := s.must(exitNotFound, args...)
		require.Contains(t, e.stderr, "Check the path of the address: "+s.env["SVC_BASE_URL"])
		require.Equal(t, strings.HasSuffix(args[len(args)-1], "-1"), strings.Contains(e.stderr, "Check the ID"), e.stderr)
	}
}

// TestKeyInDoubtIsNotARequest: nothing was sent, so the error does not begin with a request.
func TestKeyInDoubtIsNotARequest(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	loseResponse(s)
	for _, args := range [][]string{{"get"}, {"url"}, {"scale", "2"}, {"wait"}, {"delete"}} {
		e := s.must(exitUnknown, append(args, "--key", "chat", "-o", "json")...)
		require.Regexp(t, `^svc: the ledger has no ID for the key chat, since the outcome of its create is not known\n`, e.stderr)
		require.Equal(t, "outcome_unknown", e.doc(t)["error_kind"])
		require.Equal(t, "chat", e.doc(t)["unknown_create"].(map[string]any)["key"])
	}
}
