package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake starts "svc fake", and sets the environment of the session to use it.
func (s *session) fake(args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	s.t.Helper()
	cmd, stderr = s.command(append([]string{"fake", "-o", "json"}, args...)...), new(bytes.Buffer)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	s.start(cmd)
	var doc map[string]any
	require.NoError(s.t, json.NewDecoder(out).Decode(&doc), stderr.String())
	checkSchema(s.t, cmd.Args[1:], doc)
	env, _ := doc["env"].(map[string]any)
	require.Len(s.t, env, 4)
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.fake(tt.args...)
			id := s.create(t, `{"name": "chat"}`)
			require.Equal(t, name == "lost response", id == "")
			limit := "30s"
			if tt.code != exitOK {
				limit = "1s"
			}
			s.run("get", "svc-1", "--timeout", limit) // the first poll
			e := s.run("get", "svc-1", "--timeout", limit, "--verbose")
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Contains(t, e.stdout+e.stderr, tt.says)
		})
	}
}

func TestFakePrintsShellCode(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	cmd := s.command("fake", "--timeout", "100ms")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s.start(cmd)
	text, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^export SVC_API_TOKEN='\S+' SVC_BASE_URL='http://\S+' SVC_INFERENCE_URL='http://\S+' SVC_LEDGER='\S+'\n$`, text)
	require.Error(t, cmd.Wait())
	require.Equal(t, exitTimeout, cmd.ProcessState.ExitCode(), "the time limit is not the normal end")
}
