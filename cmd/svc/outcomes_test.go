package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/svc/svctest"
)

// successes has a command line for each command, which succeeds in the session of outcomesSession.
var successes = map[string]string{
	"adopt": "-", "forget": "-", // they need an entry in doubt
	"fake": "-", // ends with a signal: see TestFakeServesUntilASignal
	"run":  "-", // has no document

	"delete":         "svc-1",
	"deploy":         "--key new --name n --image i",
	"doctor":         "",
	"extend":         "chat 1h",
	"files-download": "file-1 --force",
	"files-link":     "file-1",
	"files-ls":       "",
	"files-rm":       "file-1",
	"files-upload":   "data.jsonl",
	"flavors":        "",
	"get":            "--key chat",
	"jobs-download":  "job-1 --force",
	"jobs-get":       "job-1",
	"jobs-ls":        "",
	"ledger-init":    "--ledger fresh",
	"ledger-prune":   "--older-than 90d",
	"ls":             "--all",
	"scale":          "svc-1 2",
	"sweep":          "",
	"url":            "svc-1",
	"version":        "",
	"wait":           "svc-1",
}

// badLines has a command line for the commands that need arguments and have no success above.
var badLines = map[string]string{"adopt": "chat svc-1", "forget": "chat", "run": "--key new --name n --image i -- true"}

// outcomesSession has an endpoint under the key chat, a file and a job.
func outcomesSession(t *testing.T) *session {
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("chat"))
	s.srv.AddFile("contents", "fine-tune", []byte("contents"))
	s.srv.AddVideoJobs(1)
	s.contents(10)
	return s
}

// TestOutcomesHaveTheSchemaOfTheirCommand: success and each kind of failure of each command. All
// other tests that read a document check its schema as well.
func TestOutcomesHaveTheSchemaOfTheirCommand(t *testing.T) {
	t.Parallel()
	type setup struct {
		args  []string
		env   [2]string
		fault *svctest.Fault
		kinds []string // at least one command must fail in this way
	}
	failures := map[string]setup{
		"usage":       {args: []string{"--nope"}, kinds: []string{"usage"}},
		"no time":     {args: []string{"--timeout", "1ns"}, kinds: []string{"timeout"}},
		"wrong token": {env: [2]string{"SVC_API_TOKEN", "wrong-token"}, kinds: []string{"unauthorized"}},
		"unreachable": {env: [2]string{"SVC_BASE_URL", "http://127.0.0.1:1"}, kinds: []string{"unreachable"}},
		"no ledger":   {args: []string{"--ledger", "missing"}, kinds: []string{"no_ledger"}},
		"refused":     {fault: &svctest.Fault{Status: 418}, kinds: []string{"refused"}},
		"forbidden":   {fault: &svctest.Fault{Status: 403}, kinds: []string{"forbidden"}},
		"overloaded":  {fault: &svctest.Fault{Status: 429, RetryAfter: "3600"}, kinds: []string{"rate_limited"}},
		"failing":     {fault: &svctest.Fault{Status: 503}, kinds: []string{"server_error", "outcome_unknown"}},
		"junk":        {fault: &svctest.Fault{Status: 200, Body: "7"}, kinds: []string{"unexpected_response"}},
	}
	seen := make(chan string, 1000)
	t.Run("all", func(t *testing.T) {
		for _, c := range allCommands(t) {
			name := schemaName(c)
			rest, known := successes[name]
			require.True(t, known, "%s is in no test of outcomes", name)
			line := append(strings.Split(name, "-"), strings.Fields(rest)...)
			if rest == "-" {
				line = append(strings.Split(name, "-"), strings.Fields(badLines[name])...)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := outcomesSession(t)
				run := func(more []string) map[string]any {
					words := append(line[:len(line):len(line)], "-o", "json", "--timeout", "300ms")
					if name == "run" { // the flags stand before CMD
						words = []string{"run", "-o", "json"}
					}
					e := s.run(append(words, more...)...)
					doc := e.doc(t)
					require.Equal(t, e.code != exitOK, doc["error"] != nil, "%v", doc)
					if i := slices.IndexFunc(exitCodes, func(row []string) bool { return row[0] == strconv.Itoa(e.code) }); c.stake == changes {
						switch said := exitCodes[i][1]; {
						case strings.HasPrefix(said, "yes"):
							require.Equal(t, true, doc["may_be_running"], "%v", doc)
						case strings.HasPrefix(said, "no "), said == "no":
							require.Equal(t, false, doc["may_be_running"], "%v", doc)
						}
					}
					return doc
				}
				if rest != "-" {
					require.Zero(t, run([]string{"--timeout", "30s"})["exit_code"])
				}
				for _, f := range failures {
					if c.client == noClient && f.args == nil || name == "fake" && f.kinds[0] != "usage" {
						continue
					}
					before := s.env[f.env[0]]
					if f.env[0] != "" {
						s.env[f.env[0]] = f.env[1]
					}
					if f.fault != nil {
						fault := *f.fault
						fault.Times = -1
						s.srv.Fault("*", svctest.RouteAny, fault)
					}
					if kind := run(f.args)["error_kind"]; kind != nil {
						seen <- kind.(string)
					}
					s.srv.ClearFaults()
					if f.env[0] != "" {
						s.env[f.env[0]] = before
					}
				}
			})
		}
	})
	close(seen)
	kinds := map[string]bool{}
	for kind := range seen {
		kinds[kind] = true
	}
	for name, f := range failures {
		for _, kind := range f.kinds {
			require.True(t, kinds[kind], "%s: no command has ended with %s", name, kind)
		}
	}
}

// TestDocumentIsOneInYAMLToo: both forms have the same fields.
func TestDocumentIsOneInYAMLToo(t *testing.T) {
	t.Parallel()
	s := outcomesSession(t)
	text := s.must(exitOK, "files", "ls", "-o", "yaml").stdout
	require.Contains(t, text, "\nfiles:\n  - file_id: file-1\n    name: contents\n")
	require.Contains(t, text, "\n    bytes: null\n")
	require.NoFileExists(t, filepath.Join(s.env["HOME"], "contents"))
}

// TestYAMLHasEachValueOnOneLine: the scripts read lines, and a text may look like another field.
func TestYAMLHasEachValueOnOneLine(t *testing.T) {
	t.Parallel()
	texts := []string{"a\nkey: b", "a\r\n- key: b\n", "\u2028key: b\u0085key: c", "\u007f\u0080\ufeff\u009b\u200b", "\t", strings.Repeat("many words ", 40) + "\n" + strings.Repeat("- key: b ", 40), "x - key: b"}
	text, err := json.Marshal(texts)
	require.NoError(t, err)
	written, err := toYAML(text)
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(written), "\n"), len(texts), written)
	var read []string
	require.NoError(t, yaml.Unmarshal([]byte(written), &read))
	require.Equal(t, texts, read)
}
