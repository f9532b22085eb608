package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestUnknownKeyIsNotFound: each command that takes a key says the same of one that the ledger does not have, and of one that
// cannot be a key.
func TestUnknownKeyIsNotFound(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.deployed("chat")
	for _, line := range []string{
		"adopt KEY svc-1", "adopt KEY --undo", "forget KEY", "forget KEY --id svc-1", "extend KEY 1h",
		"get --key KEY", "url --key KEY", "wait --key KEY", "scale --key KEY 1", "delete --key KEY",
	} {
		e := s.must(exitNotFound, strings.Fields(strings.Replace(line, "KEY", "nokey", 1)+" -o json")...)
		doc := e.doc(t)
		require.Equal(t, "not_found", doc["error_kind"], line)
		require.Equal(t, "the key \"nokey\" has no open entry in the ledger. To see which keys have one: svc ls", doc["error"], line)
		require.Equal(t, line == "adopt KEY svc-1", doc["may_be_running"], "%s: svc-1 runs", line)
		require.Equal(t, 1, strings.Count(e.stderr, "\n"), "%s: nothing else is to check: %s", line, e.stderr)

		e = s.must(exitUsage, strings.Fields(strings.Replace(line, "KEY", "No.Key", 1)+" -o json")...)
		require.Equal(t, "usage", e.doc(t)["error_kind"], line)
		require.Contains(t, e.stderr, "must be "+keyRule, line)
	}
	require.Contains(t, s.must(exitNotFound, "forget", "chat", "--id", "svc-9").stderr, `no open entry of the key "chat" has the ID "svc-9"`)
	s.must(exitOK, "delete", "--key", "nokey", "--missing-ok")
	require.Contains(t, s.must(exitOK, "ls", "--key", "nokey").stderr, "no entries of the key nokey", "a list may be empty")
}

// TestUnknownCreateIsNamed: a document whose error is about exactly one create in doubt names it, whatever the exit code.
func TestUnknownCreateIsNamed(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	doc := s.must(exitUnknown, with(deploy, "--key", "chat", "--lease", "1s", "-o", "json")...).doc(t)
	want := doc["unknown_create"].(map[string]any)
	require.Equal(t, "chat", want["key"])
	eventually(t, "the lease is over", func() bool { return s.run("sweep", "--dry-run").code != exitOK })
	for _, line := range []string{"forget chat --timeout 1s", "adopt chat svc-9", "sweep", "get --key chat"} {
		doc := s.run(append(strings.Fields(line), "-o", "json")...).doc(t)
		require.NotNil(t, doc["error"], line)
		got, _ := doc["unknown_create"].(map[string]any)
		require.Equal(t, want["intent"], got["intent"], line)
		require.NotEmpty(t, got["name"], line)
	}
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "more", "--lease", "1s")...)
	eventually(t, "the lease is over", func() bool {
		doc := s.run("sweep", "-o", "json").doc(t)
		return len(doc["entries"].([]any)) == 2 && doc["unknown_create"] == nil
	})
	require.Nil(t, s.must(exitUsage, "forget", "chat", "--nope", "-o", "json").doc(t)["unknown_create"])
}

// TestDocumentSaysThatADeleteIsAccepted: of each command about one endpoint, as the entry of ls.
func TestDocumentSaysThatADeleteIsAccepted(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeleteTime(time.Hour))
	id := s.deployed("chat")
	require.Empty(t, s.must(exitOK, "get", id, "-o", "json").doc(t)["delete_accepted_at"])
	s.must(exitRunning, "delete", id, "--timeout", "2s")
	want := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)[0].(map[string]any)["delete_accepted_at"]
	require.NotEmpty(t, want)
	for _, line := range []string{"get " + id, "get --key chat", "url " + id, "wait " + id, "scale " + id + " 2", "scale --key chat 0"} {
		doc := s.run(append(strings.Fields(line), "-o", "json")...).doc(t)
		require.Equal(t, want, doc["delete_accepted_at"], line)
		require.NotEmpty(t, doc["status"], "%s: the record can be read", line)
	}
}

// TestFailedScaleShowsTheRecord: a document of a failure has the record that was read last, or that can be read.
func TestFailedScaleShowsTheRecord(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.deployed("chat")
	shows := func(code int, args ...string) {
		t.Helper()
		doc := s.must(code, append(args, "-o", "json")...).doc(t)
		require.Equal(t, "available", doc["status"], args)
		require.NotEmpty(t, doc["created_at"], args)
		require.Contains(t, doc["url"], id, args)
		require.Equal(t, 1.0, doc["instances"], args)
	}
	s.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 418, Times: -1})
	shows(exitRunning, "scale", id, "3")
	s.srv.ClearFaults()
	other := s.srv.AddEndpoint(svctest.Endpoint{Name: "other", Instances: 1})
	doc := s.must(exitUsage, "adopt", "chat", other, "-o", "json").doc(t)
	require.Empty(t, doc["status"], "nothing was read")
	s.readOnly()
	shows(exitLedger, "scale", id, "3")
}

// TestLedgerIsShownInOneForm: each text has the same form of the place, and none has the user, the password or a parameter.
func TestLedgerIsShownInOneForm(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	place := regexp.MustCompile(`\S*(postgres://|REDACTED)[^\s,;"]*`)
	for dsn, shown := range map[string]string{
		"postgres://u:secret@127.0.0.1:1/x?connect_timeout=2":       "postgres://127.0.0.1:1/x",
		"postgres://u@127.0.0.1:1/x?password=secret":                "postgres://127.0.0.1:1/x",
		"postgresql://u@127.0.0.1:1/x":                              "postgresql://127.0.0.1:1/x",
		"postgres://u@/y?port=1&host=127.0.0.1&connect_timeout=2":   "postgres:///y",
		"postgres://u@127.0.0.1:1/x?SSLPassword=secret&sslmode=off": "postgres://127.0.0.1:1/x",
	} {
		for _, line := range []string{"ls", "doctor", "ledger init", "get --key k", "scale svc-1 2", "adopt k svc-1", "extend k 1h", "sweep", "delete svc-9 --timeout 1s", "deploy --name n --image i"} {
			for _, byFlag := range []bool{true, false} {
				args := append(strings.Fields(line), "-o", "json")
				if s.env["SVC_LEDGER"] = dsn; byFlag {
					delete(s.env, "SVC_LEDGER")
					args = append(args, "--ledger", dsn)
				}
				e := s.run(args...)
				require.NotContains(t, e.stdout+e.stderr, "secret", args)
				if e.code == exitLedger && shown == "postgres:///y" {
					require.Contains(t, e.stderr, shown+" (host=127.0.0.1, port=1)", args)
				}
				for _, text := range place.FindAllString(e.stdout+e.stderr, -1) {
					text = strings.TrimRight(strings.ReplaceAll(strings.TrimSuffix(text, ":"), `\u0026`, "&"), "'.")
					text = strings.TrimPrefix(text, "'")
					advised := text == dsn
					if strings.Contains(dsn, "secret") {
						advised = text == "SVC_LEDGER=postgres://…"
					}
					require.True(t, strings.TrimSuffix(text, ".") == shown || advised && byFlag, "%q\n%s", text, e.stderr)
				}
			}
		}
	}
}

// TestOneLedgerIsMadeByOneCommand: of several that make it at once, one says so.
func TestOneLedgerIsMadeByOneCommand(t *testing.T) {
	eachLedger(t, func(t *testing.T, s *session) {
		made := make([]bool, 8)
		var all sync.WaitGroup
		for i := range made {
			all.Go(func() { made[i] = s.must(exitOK, "ledger", "init", "-o", "json").doc(t)["created"] == true })
		}
		all.Wait()
		require.Len(t, slices.DeleteFunc(made, func(is bool) bool { return !is }), 1)
	})
}

// TestFlagsThatCannotBeTogether: what is given twice, in two ways, is a usage error.
func TestFlagsThatCannotBeTogether(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.deployed("ended")
	s.must(exitOK, "delete", "--key", "ended")
	s.deployed("open")
	for _, line := range []string{"ls --all --open", "ls --all --open=false", "ls -q -v", "adopt k --undo --unmarked", "fake --fail --fail-nth 2", "version -q -v"} {
		require.Contains(t, s.must(exitUsage, strings.Fields(line)...).stderr, "cannot be used together", line)
	}
	for line, want := range map[string][]string{
		"ls": {"svc-2"}, "ls --open": {"svc-2"}, "ls --open=true": {"svc-2"}, "ls --open=false": {"svc-1"}, "ls --all": {"svc-2", "svc-1"}, "ls --all=false --open": {"svc-2"}, "ls -q -v=false": {"svc-2"},
	} {
		require.ElementsMatch(t, want, strings.Fields(s.must(exitOK, append(strings.Fields(line), "-o", "name")...).stdout), line)
	}
	require.Contains(t, s.must(exitOK, "ls", "--open=false", "--key", "open").stderr, "no entries of the key open in ")
	require.Contains(t, s.must(exitOK, "ls", "--help").stdout, "--open=false: only the others, which have ended")
}

// TestRefusedFlagIsNotOffered: no help and no completion has a flag that the command refuses, and each other one is there.
func TestRefusedFlagIsNotOffered(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, c := range allCommands(t) {
		usage := c.UsageString()
		for _, name := range []string{"base-url", "inference-url", "token-file", "ledger", "timeout", "insecure-http", "output", "progress", "no-headers", "quiet", "verbose"} {
			require.Equal(t, c.refuses[name] == "", strings.Contains(usage, "--"+name+" "), "%s --%s", c.CommandPath(), name)
		}
	}
	for _, form := range []string{"-o", "--output"} {
		require.Contains(t, s.must(exitUsage, "run", form, "json", "--name", "n", "--image", "i", "--", "true").stderr, "svc: -o cannot be used: standard output belongs to CMD\n")
	}
	require.NotContains(t, s.must(exitOK, "__complete", "run", "--").stdout, "--output")
	require.Contains(t, s.must(exitOK, "__complete", "run", "--").stdout, "--quiet")
}

// TestDoctorNamesTheWrongSetting: the one that is wrong, where it was given, and no other.
func TestDoctorNamesTheWrongSetting(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"SVC_BASE_URL=": "set SVC_BASE_URL or --base-url", "SVC_API_TOKEN=": "set SVC_API_TOKEN or --token-file",
		"SVC_BASE_URL=no.address": "correct SVC_BASE_URL", "SVC_BASE_URL=https://u:p@host": "correct SVC_BASE_URL", "SVC_INFERENCE_URL=no.address": "correct SVC_INFERENCE_URL",
		"--base-url=no.address": "correct --base-url", "--inference-url=no.address": "correct --inference-url", "--token-file=/missing": "correct --token-file",
	} {
		s := newSession(t)
		name, value, _ := strings.Cut(set, "=")
		args := []string{"doctor", "-o", "json"}
		if strings.HasPrefix(name, "--") {
			args = append(args, set)
		} else {
			s.env[name] = value
		}
		first := s.must(exitFailed, args...).doc(t)["checks"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"settings", "problem", want}, []any{first["name"], first["result"], first["advice"]}, set)
	}
}

// TestProbeBeginsWithASlash: by each command that has it, before anything is sent.
func TestProbeBeginsWithASlash(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, args := range [][]string{with(deploy, "--probe", "health"), {"wait", "svc-1", "--probe", "health"}, {"run", "--name", "n", "--image", "i", "--probe", "health", "--", "true"}} {
		require.Contains(t, s.must(exitUsage, args...).stderr, "--probe must be a path that begins with /, such as /health", args)
		require.Contains(t, s.must(exitOK, args[0], "--help").stdout, "which begins with /", args)
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
}

// TestDoctorCountsTheFilesOfACreate: a ledger into which one more file fits has no room for the records of an endpoint.
func TestDoctorCountsTheFilesOfACreate(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	dir := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.Mkdir(dir, 0o755))
	const inodes = 12
	script := `mount -t tmpfs -o nr_inodes=%d small "$1" || exit 99
svc ledger init --ledger "$1/l" >&2
while touch "$1/$((i = ${i:-0} + 1))" 2>/dev/null; do :; done
for left in 1 2 3 4; do rm "$1/$left"; svc doctor -o name --ledger "$1/l" >/dev/null 2>&1 && echo "$left ok" || echo "$left problem"; done`
	if exec.CommandContext(t.Context(), "unshare", "-m", "true").Run() != nil {
		t.Skip("no file system can be mounted here")
	}
	inner := s.shell(fmt.Sprintf(script, inodes), dir)
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"-m"}, inner.Args...)...)
	cmd.Env, cmd.Dir = inner.Env, inner.Dir
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == 99 {
		t.Skip("no file system can be mounted here")
	}
	require.NoError(t, err, "%s", out)
	require.Equal(t, "1 problem\n2 problem\n3 problem\n4 ok\n", string(out))
}

// TestKeyThatAnotherCommandTakesMeanwhile: the endpoint that the document names runs.
func TestKeyThatAnotherCommandTakesMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Slow(4*time.Second))
	b := s.background("deploy", "--key", "chat", "--name", "other", "--image", "other:1", "-o", "json")
	eventually(t, "the list", func() bool { return s.arrived("GET", svctest.RouteFlavors) > 0 })
	s.must(exitOK, with(deploy, "--key", "chat", "--flavor", "flavor-1")...)
	e := b.end()
	doc := e.doc(t)
	require.Equal(t, []any{exitLedger, "key_in_use", "svc-1", true}, []any{e.code, doc["error_kind"], doc["service_id"], doc["may_be_running"]}, e.stderr)
}

// TestAdviceWithoutAnID: a command that ends before it has read the ledger names the key.
func TestAdviceWithoutAnID(t *testing.T) {
	t.Parallel()
	tool, known := &tool{}, facts{Key: "chat", Target: 2}
	require.Equal(t, []string{"The endpoint of the key chat may still be running and billed. To delete it: svc delete --key chat"}, tool.stillRuns(known))
	require.Equal(t, []string{"The endpoint of the key chat may still be running and billed. To try again: svc delete --key chat"}, tool.deleteCommand().left(known))
	require.Contains(t, tool.scaleLeft(known)[0], "To see how many: svc get --key chat")
	known.Changed = true
	require.Equal(t, []string{"Up to 2 instances of the endpoint of the key chat may be running and billed, or as many as before. To see how many: svc get --key chat"}, tool.scaleLeft(known))
	known.ID = "svc-1"
	require.Contains(t, tool.stillRuns(known)[0], "svc-1 may still be running and billed. To delete it: svc delete svc-1")
}

// TestNumberThatTheLedgerCannotRecord is named, also if the endpoint is only in a part of the ledger that this command cannot
// change.
func TestNumberThatTheLedgerCannotRecord(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	here := s.env["SVC_BASE_URL"]
	s.env["SVC_BASE_URL"] = strings.Replace(here, "127.0.0.1", "localhost", 1)
	require.Contains(t, s.must(exitOK, "scale", "svc-1", "2").stderr, "warning: the ledger has svc-1, of the key chat, at another address, and that entry keeps its number of instances. If it is the same endpoint: svc scale --key chat 2 --base-url "+here+"\n")
	s.env["SVC_BASE_URL"] = here
	damage("chat@000001.json")(s)
	require.Contains(t, s.must(exitOK, "scale", "svc-1", "3").stderr, "warning: the records of the key chat, which has svc-1, are damaged")
}

// TestCommandThatCannotBeginMakesNoLedger: the next command would take it for one that was there.
func TestCommandThatCannotBeginMakesNoLedger(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SVC_BASE_URL", "SVC_API_TOKEN"} {
		s := newSession(t)
		delete(s.env, name)
		s.must(exitUsage, deploy...)
		require.NoDirExists(t, filepath.Join(s.env["HOME"], ".local"))
	}
}

// TestScaleThatCannotBeWritten says what it did in one whole sentence.
func TestScaleThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	e := s.finish(s.shell("svc scale --key chat 2 >/dev/full"))
	require.Equal(t, exitRunning, e.code)
	require.Contains(t, e.stderr, "The number of instances was changed to 2. They may be running and billed. To see how many: svc get svc-1\n")
}

// TestDeletionThatThisCommandFindsOut is not said to be that of another command.
func TestDeletionThatThisCommandFindsOut(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.remove()
	e := s.must(exitNotFound, "wait", "svc-1")
	require.NotContains(t, e.stderr, "another command")
	require.Empty(t, s.open())
}
