package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// exampleSession has what the examples of the help name.
func exampleSession(t *testing.T) *session {
	s := newSession(t, svctest.WithFlavors(
		svctest.Flavor{ID: "flavor-a", DisplayName: "A100", USDPrice: 1.5, Stock: 50, MaxGPU: 8},
		svctest.Flavor{ID: "flavor-h", DisplayName: "H100", USDPrice: 3.5, Stock: 50, MaxGPU: 8},
	))
	s.srv.AddFile("data.jsonl", "fine-tune", []byte("contents"))
	s.srv.AddFile("more.jsonl", "fine-tune", []byte("more"))
	s.srv.AddVideoJobs(1)
	s.tool("produce", "echo data")
	for name, text := range map[string]string{
		"chat.yaml": "name: chat\ndeploy_metadata: {image_url: \"registry.example/chat:3\"}\n",
		"test.sh":   "#!/bin/sh\ntest -n \"$SVC_SERVICE_URL\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], name), []byte(text), 0o700))
	}
	return s
}

// chatOf makes the endpoint of the key chat, with the request of the examples.
func chatOf(s *session) {
	s.must(exitOK, "deploy", "--name", "chat", "--image", "registry.example/chat:3", "--key", "chat", "--lease", "8h")
	s.must(exitOK, "deploy", "--name", "other", "--image", "registry.example/app:1", "--key", "other")
}

// before has what has to be true for the examples of a command.
var before = map[string]func(*session){
	"adopt": func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		s.must(exitUnknown, "deploy", "--name", "chat", "--image", "registry.example/chat:3", "--key", "chat")
	},
	"deploy": nil, "run": nil, "ls": chatOf, "ledger-prune": chatOf, "sweep": chatOf,
	"delete": chatOf, "extend": chatOf, "get": chatOf, "scale": chatOf, "url": chatOf, "wait": chatOf,
	"files-upload": func(s *session) {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.env["HOME"], "data.jsonl"), []byte("x"), 0o600))
	},
}

// TestExamplesOfTheHelp: each line does what its help says, and ends with 0.
func TestExamplesOfTheHelp(t *testing.T) {
	t.Parallel()
	others := map[string]int{ // and with another code on a fresh fake
		"svc adopt chat --undo": exitLedger, // svc-1 has the mark
		"svc forget chat":       -1,         // takes minutes: see TestRecovery
		"SVC_LEDGER=postgres://db.example/svc svc ledger init": -1,
	}
	contents := sha256.Sum256([]byte("contents"))
	for _, c := range allCommands(t) {
		t.Run(schemaName(c), func(t *testing.T) {
			t.Parallel()
			s := exampleSession(t)
			if arise := before[schemaName(c)]; arise != nil {
				arise(s)
			}
			for line := range strings.Lines(c.Example) {
				line = strings.TrimSpace(line)
				code := others[line]
				if code < 0 || c.Name() == "fake" {
					continue
				}
				cmd := s.shell(strings.NewReplacer("/srv/", s.env["HOME"]+"/", "$sum", hex.EncodeToString(contents[:])).Replace(line))
				e := s.finish(cmd)
				require.Equal(t, code, e.code, "%s\n%s%s", line, e.stdout, e.stderr)
			}
		})
	}
}

// TestScriptsOfTheHelp: the session of README.md, and the scripts of the topics.
func TestScriptsOfTheHelp(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	s := exampleSession(t)
	e := s.finish(s.shell(blocks(string(readme), "sh")[1]))
	require.Zero(t, e.code, "%s%s", e.stdout, e.stderr)
	require.Regexp(t, `(?s)^http://.*/svc-1\n.*\nKEY .*\ndemo  created .* 2 .*\nsvc-1  deleted\n$`, e.stdout)

	// indented are the lines of a topic that a reader copies.
	indented := func(topic string) (lines []string) {
		for line := range strings.Lines(s.must(exitOK, "help", topic).stdout) {
			if code, ok := strings.CutPrefix(line, "  "); ok {
				lines = append(lines, code)
			}
		}
		return lines
	}
	scripting := indented("scripting")
	end := slices.Index(scripting, "esac\n") + 1
	require.Positive(t, end)
	script := strings.Join(scripting[:end], "")
	e = s.finish(s.shell(script))
	require.Zero(t, e.code, "%s%s", e.stdout, e.stderr)
	require.Contains(t, e.stdout, "svc-1", "the endpoint responds")
	s.must(exitOK, "delete", "--key", "chat")
	for fault, says := range map[*svctest.Fault]string{
		{DropAfter: true}:                              "somebody has to look: svc ls",
		{Status: 429, RetryAfter: "3600"}:              "nothing is running: try again later",
		{Status: 409, Body: `{"code":"out_of_stock"}`}: "no flavor fits, or none is in stock",
		{Status: 400, Body: "{}"}:                      "see svc help exit-codes, and svc ls",
	} {
		s := exampleSession(t)
		fault.Times = -1
		s.srv.Fault("POST", svctest.RouteEndpoints, *fault)
		e := s.finish(s.shell(script))
		require.Zero(t, e.code, e.stderr)
		require.Contains(t, e.stderr, says)
	}
	rest := append(scripting[end:], indented("exit-codes")...)
	whole := strings.NewReplacer("run --lease 2h …", "run --lease 2h --name n --image i", "run --result r.json …", "run --result r.json --name n --image i",
		"…", "--name n --image i --key n", "*/5 * * * *  ", "")
	if _, err := exec.LookPath("jq"); err != nil {
		s.tool("jq", `grep -q '"svc_exit_code": 0,' "$3"`)
	}
	require.Len(t, rest, 6)
	e = s.finish(s.shell(whole.Replace(strings.Join(rest, ""))))
	require.Zero(t, e.code, "%s%s", e.stdout, e.stderr)
	require.Equal(t, []string{"i"}, s.running(), "that of timeout svc deploy")
}
