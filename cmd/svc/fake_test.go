package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake starts "svc fake", and sets the environment of the session to use it.
func (s *session) fake(args ...string) (cmd *exec.Cmd, stderr *buffer) {
	s.t.Helper()
	cmd, stderr = s.command(append([]string{"fake", "-o", "json"}, args...)...), new(buffer)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	s.start(cmd)
	var doc map[string]any
	require.NoError(s.t, json.NewDecoder(out).Decode(&doc), stderr.String())
	checkSchema(s.t, cmd.Args[1:], doc)
	require.NotContains(s.t, doc, "exit_code", "it is not known how the fake will end")
	env, _ := doc["env"].(map[string]any)
	want := []string{"SVC_API_TOKEN", "SVC_BASE_URL", "SVC_INFERENCE_URL", "SVC_LEDGER"}
	if slices.Contains(args, "--other-account") {
		want = append(want, "SVC_OTHER_API_TOKEN")
	}
	require.Equal(s.t, want, slices.Sorted(maps.Keys(env)))
	for name, value := range env {
		s.env[name] = value.(string)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd, stderr
}

func TestFakeServesUntilASignal(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	cmd, stderr := s.fake("--deploy-time", "0s", "--chat")
	require.DirExists(t, s.env["SVC_LEDGER"])
	resp, err := http.Post(s.env["SVC_BASE_URL"]+"/v1/inference-service", "application/json", nil)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 401, resp.StatusCode)
	id := s.create(t, `{"name": "chat"}`)
	require.Regexp(t, `available`, s.must(exitOK, "get", id).stdout)
	doc := s.must(exitOK, "get", id, "-o", "json").doc(t)
	resp, err = http.Post(doc["url"].(string)+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model": "chat", "messages": [{"role": "user", "content": "hello"}]}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(reply), "hello")

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "a signal is the normal end")
	require.Contains(t, stderr.String(), "a real service would bill: 1")
	require.NoDirExists(t, s.env["SVC_LEDGER"])
}

// create sends a create as a program of another kind would.
func (s *session) create(t *testing.T, body string) (id string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.env["SVC_BASE_URL"]+"/v1/inference-service", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.env["SVC_API_TOKEN"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var record struct {
		ServiceID string `json:"service_id"`
	}
	_ = json.NewDecoder(resp.Body).Decode(&record)
	return record.ServiceID
}

// TestFakeFailures: each flag of a failure has its effect.
func TestFakeFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"fail":             {[]string{"--fail"}, exitOK, "unavailable"},
		"image pull error": {[]string{"--image-pull-error", "--deploy-time", "0s"}, exitOK, "unavailable"},
		"deploy time":      {[]string{"--deploy-time", "1h"}, exitOK, "initializing"},
		"outage":           {[]string{"--outage", "1h"}, exitTryLater, "503"},
		"end of outage":    {[]string{"--outage", "1ms", "--deploy-time", "0s"}, exitOK, "available"},
		"create delay":     {[]string{"--create-delay", "200ms", "--deploy-time", "0s"}, exitOK, "available"},
		"lost response":    {[]string{"--lose-response", "--deploy-time", "0s"}, exitOK, "available"},
		"lost create":      {[]string{"--lose-create"}, exitNotFound, "404"},
		"first one fails":  {[]string{"--fail-nth", "1", "--deploy-time", "0s"}, exitOK, "unavailable"},
		"other one fails":  {[]string{"--fail-nth", "2", "--deploy-time", "0s"}, exitOK, " available"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.fake(tt.args...)
			id := s.create(t, `{"name": "chat"}`)
			require.Equal(t, strings.HasPrefix(name, "lost"), id == "")
			s.run("get", "svc-1", "--timeout", "30s") // the first poll
			e := s.run("get", "svc-1", "--timeout", "30s", "--verbose")
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Contains(t, e.stdout+e.stderr, tt.says)
		})
	}
}

func TestFakePrintsShellCode(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	cmd := s.command("fake", "--timeout", "1s")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s.start(cmd)
	text, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^export SVC_API_TOKEN='\S+' SVC_BASE_URL='http://\S+' SVC_INFERENCE_URL='http://\S+' SVC_LEDGER='\S+'\n$`, text)
	require.Error(t, cmd.Wait())
	require.Equal(t, exitTimeout, cmd.ProcessState.ExitCode(), "the time limit is not the normal end")
	s.must(exitUsage, "fake", "--lose-create", "--lose-response", "-o", "json").doc(t)
}

// send sends a request of another kind of program, and returns the response with its body.
func (s *session) send(method, path, body, token string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.env["SVC_BASE_URL"]+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp, string(text)
}

func TestFakeLosesTheFirstCreateOnlyBeforeItsEffect(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.fake("--lose-create", "--deploy-time", "0s")
	deploy := []string{"deploy", "--name", "demo", "--image", "registry.example/app:1", "--key", "demo"}
	lost := s.must(exitUnknown, append(deploy, "-o", "json")...).doc(t)
	require.Equal(t, true, lost["may_be_running"], "nobody can tell that nothing was created")
	require.Empty(t, lost["service_id"])
	s.must(exitUnknown, deploy...) // sends nothing
	s.must(exitNotFound, "get", "svc-1", "--timeout", "30s")
	require.Equal(t, "svc-1", s.create(t, `{"name": "second"}`), "the next create takes effect")
}

func TestFakeFailsTheNthEndpointOfARollout(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.fake("--fail-nth", "2", "--deploy-time", "0s")
	deploy := []string{"deploy", "--name", "demo", "--image", "registry.example/app:1"}
	require.Equal(t, "svc-1\n", s.must(exitOK, deploy...).stdout)
	require.Equal(t, "svc-2\n", s.must(exitDeleted, deploy...).stdout)
	require.Equal(t, "svc-3\n", s.must(exitOK, deploy...).stdout)
	require.Contains(t, s.must(exitOK, "get", "svc-1").stdout, " available")
}

func TestFakeHidesEndpointsFromTheOtherAccount(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.fake("--other-account", "--deploy-time", "0s")
	id, other := s.create(t, `{"name": "mine"}`), s.env["SVC_OTHER_API_TOKEN"]
	resp, body := s.send("GET", "/v1/inference-service/"+id, "", other)
	require.Equal(t, 404, resp.StatusCode)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.True(t, json.Valid([]byte(body)), body)
	resp, _ = s.send("DELETE", "/v1/inference-service/"+id, "", other)
	require.Equal(t, 404, resp.StatusCode)
	resp, body = s.send("POST", "/v1/inference-service", `{"name": "theirs"}`, other)
	require.Equal(t, 200, resp.StatusCode, body)
	s.must(exitNotFound, "get", "svc-2", "--timeout", "30s")
	require.Contains(t, s.must(exitOK, "get", id).stdout, " available", "the delete had no effect")
	s.env["SVC_API_TOKEN"] = other
	s.must(exitNotFound, "get", id, "--timeout", "30s")
	require.Contains(t, s.must(exitOK, "get", "svc-2").stdout, " available")
}

func TestFakeHasAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	for offset, want := range map[string]time.Duration{"48h": 48 * time.Hour, "-90m": -90 * time.Minute} {
		t.Run(offset, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.fake("--clock-offset", offset)
			id := s.create(t, `{"name": "demo"}`)
			resp, _ := s.send("GET", "/v1/inference-service/"+id, "", s.env["SVC_API_TOKEN"])
			date, err := http.ParseTime(resp.Header.Get("Date"))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(want), date, time.Minute)
			created, _ := s.must(exitOK, "get", id, "-o", "json").doc(t)["created_at"].(string)
			at, err := time.Parse(time.RFC3339, created)
			require.NoError(t, err)
			require.WithinDuration(t, date, at, time.Minute)
			require.Contains(t, s.must(exitFailed, "doctor").stdout, "away from the service's clock")
		})
	}
}

func TestFakeLogsRequestsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"file", "standard error"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			file := "-"
			if where == "file" {
				file = filepath.Join(t.TempDir(), "log")
				require.NoError(t, os.WriteFile(file, []byte("kept\n"), 0o600))
			}
			cmd, stderr := s.fake("--request-log", file, "--lose-create", "--other-account")
			token, other := s.env["SVC_API_TOKEN"], s.env["SVC_OTHER_API_TOKEN"]
			require.Empty(t, s.create(t, `{"name": "lost"}`))
			require.Equal(t, "svc-1", s.create(t, `{"name": "demo"}`))
			s.send("GET", "/v1/inference-service/svc-1?sig=hush", "", token)
			s.send("GET", "/v1/inference-service/"+token+other, "", token)
			s.send("GET", "/v1/inference-service/a%1B%0Ab", "", "hush")
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.NoError(t, cmd.Wait())
			log := stderr.String()
			if where == "file" {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				log = strings.TrimPrefix(string(text), "kept\n")
				require.NotEqual(t, string(text), log, "lines are added to a file that exists")
			}
			require.NotContains(t, log, "hush")
			require.NotContains(t, log, token)
			require.NotContains(t, log, other)
			var lines []string
			for line := range strings.Lines(log) {
				if at, line, ok := strings.Cut(line, " "); ok && strings.Contains(line, "/v1/") {
					_, err := time.Parse(time.RFC3339, at)
					require.NoError(t, err, line)
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			require.Equal(t, []string{
				"POST /v1/inference-service cut",
				"POST /v1/inference-service 200",
				"GET /v1/inference-service/svc-1 400",
				"GET /v1/inference-service/REDACTEDREDACTED 404",
				"GET /v1/inference-service/a%1B%0Ab 401",
			}, lines)
		})
	}
}

func TestFakeTellsOnceThatItsLogCannotBeWritten(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	s := newSession(t)
	cmd, stderr := s.fake("--request-log", "/dev/full", "--quiet")
	require.Equal(t, "svc-1", s.create(t, `{"name": "demo"}`), "the fake itself works")
	require.Equal(t, "svc-2", s.create(t, `{"name": "demo"}`))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	require.Equal(t, 1, strings.Count(stderr.String(), "/dev/full cannot be written"), stderr.String())
}

func TestFakeRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for want, args := range map[string][]string{
		"cannot be used together":                                   {"--lose-create", "--lose-response"},
		"--fail-nth and --fail cannot be used together":             {"--fail", "--fail-nth", "2"},
		"--fail-nth and --image-pull-error cannot be used together": {"--image-pull-error", "--fail-nth", "2"},
		"must be a whole number":                                    {"--fail-nth", "-1"},
		"no such file or directory":                                 {"--request-log", filepath.Join(t.TempDir(), "missing", "log")},
	} {
		require.Contains(t, s.must(exitUsage, append([]string{"fake"}, args...)...).stderr, want)
	}
}
