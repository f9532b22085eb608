package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestEmptyValue: nothing is sent and nothing is recorded, for each argument and each flag of each command.
func TestEmptyValue(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("chat"))
	sent, before := len(s.srv.Requests()), s.must(exitOK, "ls", "--all").stdout
	for _, c := range allCommands(t) {
		path := strings.Fields(strings.TrimPrefix(c.CommandPath(), "svc "))
		var arguments []string
		for _, word := range strings.Fields(c.Use)[1:] {
			if !strings.Contains(c.Use, "CMD") {
				arguments = append(arguments, map[bool]string{true: "1h", false: "chat"}[word == "DURATION"])
			}
		}
		var lines [][]string
		for i := range arguments {
			for _, empty := range []string{"", " "} {
				line := with(path, arguments...)
				line[len(path)+i] = empty
				lines = append(lines, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if _, isChoice := f.Value.(*choice); !isChoice && strings.HasPrefix(f.Value.Type(), "string") {
				lines = append(lines, with(path, "--"+f.Name, ""), with(path, with(arguments, "--"+f.Name+"= \t\u200b")...))
			}
		})
		if c.Name() == "delete" {
			lines = append(lines, with(path, "--missing-ok", "--key", ""), with(path, "svc-1", ""))
		}
		for _, line := range lines {
			e := s.must(exitUsage, with(line, "-o", "json")...)
			doc := e.doc(t)
			require.Contains(t, doc["error"], "is empty", "%q", line)
			_, keyed := guessed(line, "key", "")
			require.Equal(t, []any{"usage", c.atStake(keyed)}, []any{doc["error_kind"], doc["may_be_running"]}, "%q", line)
		}
	}
	for says, line := range map[string][]string{
		"--base-url is empty":   {"get", "svc-1", "--base-url", " "},
		"--ledger is empty":     {"ls", "--ledger="},
		"--token-file is empty": {"get", "svc-1", "--token-file", ""},
		"--image holds a control character, such as a line break": with(deploy, "--image", "registry.example/app:1\n"),
		"--command holds a control character":                     with(deploy, "--command", "serve\x1b[2J"),
		"--flavor is empty":                                       with(deploy, "--flavor", "flavor-1, ,flavor-2"),
		"--name, here or in --file, holds a control character":    {"deploy", "--file", s.file("name: \"a\\nb\"\ndeploy_metadata: {image_url: i}\n")},
		"--image, here or in --file, is empty":                    {"deploy", "--file", s.file("name: a\ndeploy_metadata: {image_url: \" \"}\n")},
		"--flavor, here or in --file, is empty":                   {"deploy", "--file", s.file("name: a\ndeploy_metadata: {image_url: i}\nresource_metadata: {flavor_id: \"\\t\"}\n")},
	} {
		require.Contains(t, s.must(exitUsage, line...).stderr, says)
	}
	require.Len(t, s.srv.Requests(), sent)
	lines := "exec serve \\\n\t--port 8000\n"
	require.Contains(t, s.must(exitOK, with(deploy, "--command", lines, "--flavor", " flavor-1", "--dry-run")...).stdout, "flavor_id: flavor-1\n")
	require.Equal(t, strings.Fields(before)[:12], strings.Fields(s.must(exitOK, "ls", "--all").stdout)[:12])
	require.Contains(t, s.must(exitUsage, "delete", "svc-1,svc-2").stderr, "several are arguments of their own")
	require.Contains(t, s.must(exitUsage, "delete", "svc-1 svc-2").stderr, "several are arguments of their own")
	require.Contains(t, s.must(exitUsage, "delete", "../x").stderr, "must not hold a slash")
}

// file makes a file, and returns its path.
func (s *session) file(contents string) string {
	f, err := os.CreateTemp(s.env["HOME"], "")
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, f.Close()) }()
	_, err = f.WriteString(contents)
	require.NoError(s.t, err)
	return f.Name()
}

// TestKeyInPlaceOfID: also the reverse. Each command says so at once, and a delete does not succeed.
func TestKeyInPlaceOfID(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("chat"))
	const notKey, notID = "svc-1 is not a key: it is the ID of the endpoint of the key chat", "chat is not an ID: it is the key of an endpoint that may be running (svc-1); use --key chat"
	for line, says := range map[string]string{
		"delete --key svc-1 --missing-ok": notKey,
		"delete --key svc-1":              notKey,
		"get --key svc-1":                 notKey,
		"scale --key svc-1 0":             notKey,
		"forget svc-1":                    notKey,
		"extend svc-1 1h":                 notKey,
		"delete chat --missing-ok":        notID,
		"delete chat":                     notID,
		"get chat":                        notID,
		"url chat":                        notID,
		"wait chat":                       notID,
		"scale chat 0":                    notID,
	} {
		start := time.Now()
		e := s.must(exitNotFound, with(strings.Fields(line), "-o", "json")...)
		require.Less(t, time.Since(start), 20*time.Second, line)
		doc := e.doc(t)
		require.Contains(t, doc["error"], says, line)
		require.Equal(t, []any{"not_found", true}, []any{doc["error_kind"], doc["may_be_running"]}, line)
		require.Equal(t, 1, strings.Count(e.stderr, "\n"), e.stderr)
	}
	require.Equal(t, 1, s.srv.RunningInstances())
	s.must(exitOK, "delete", "svc-1")
	s.must(exitOK, "delete", "--key", "svc-1", "--missing-ok")
}

// TestDeleteWithoutAHome: a command that needs no ledger works where its default place is not known.
func TestDeleteWithoutAHome(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("chat"))
	plain := func(args ...string) ended {
		cmd := s.command(args...)
		for i := len(cmd.Env) - 1; i >= 0; i-- {
			if strings.HasPrefix(cmd.Env[i], "HOME=") {
				cmd.Env = append(cmd.Env[:i], cmd.Env[i+1:]...)
			}
		}
		return s.finish(cmd)
	}
	require.Equal(t, exitOK, plain("get", "svc-1").code)
	e := plain("delete", "svc-1")
	require.Equal(t, exitOK, e.code, e.stderr)
	for _, args := range [][]string{{"ls"}, {"delete", "--key", "chat"}, deploy} {
		e := plain(args...)
		require.Equal(t, exitUsage, e.code, "%q needs a ledger", args)
		require.Contains(t, e.stderr, "set SVC_LEDGER or --ledger")
	}
}

// TestDeletionThatCannotBeRecorded: the endpoint is deleted, and it is said that its entry stays open.
func TestDeletionThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(t.TempDir(), "ledger.db")
	s.env["SVC_LEDGER"] = "sqlite:" + file
	s.must(exitOK, "ledger", "init")
	s.must(exitOK, with(deploy, "--key", "chat")...)
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON svc_ledger WHEN NEW.record LIKE '%deleted%' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	require.NoError(t, err)

	e := s.must(exitOK, "delete", "--key", "chat")
	require.Equal(t, 1, strings.Count(e.stderr, "warning: the ledger cannot record that svc-1 is deleted, so its entry (key chat) stays open: "), e.stderr)
	require.Contains(t, e.stderr, "When it can: svc delete svc-1 --missing-ok\n")
	require.Contains(t, e.stderr, "the disk is full")
	require.Equal(t, []string{"svc-1"}, s.open())
}

// TestErrorOfTwoDamagedRecordsIsOneLine: each error is one line, for grep and for logs.
func TestErrorOfTwoDamagedRecordsIsOneLine(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, key := range []string{"a", "b"} {
		s.deployed(key)
		damaged := filepath.Join(s.env["HOME"], ".local/state/svc-ledger", key+"@000002.json")
		require.NoError(t, os.WriteFile(damaged, []byte("{"), 0o600))
	}
	e := s.must(exitLedger, "ls", "-o", "json")
	text, _ := e.doc(t)["error"].(string)
	require.Contains(t, text, "a@000002.json")
	require.Contains(t, text, "b@000002.json")
	require.NotContains(t, text, "\n")
	require.NotContains(t, text, "svc: ")
	require.Contains(t, e.stderr, "svc: "+text+"\n")
}

// TestNewLedgerIsAnnounced: a default ledger that is lost would be replaced without a word.
func TestNewLedgerIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	made := "made a new ledger at " + filepath.Join(s.env["HOME"], ".local/state/svc-ledger") + ": there was none"
	require.Contains(t, s.must(exitOK, with(deploy, "--key", "chat", "--dry-run")...).stderr, "there is no ledger at ", "a dry run makes none")
	require.Equal(t, 1, strings.Count(s.must(exitOK, deploy...).stderr, made))
	require.NotContains(t, s.must(exitOK, deploy...).stderr, "made a new ledger")
	for _, ci := range []string{"", "true"} {
		quiet := newSession(t)
		quiet.env["CI"] = ci
		require.Contains(t, quiet.must(exitOK, with(deploy, "--quiet")...).stderr, "warning: made a new ledger")
	}
}

// TestAdoptOfAnotherEndpoint: that is no fault of the ledger.
func TestAdoptOfAnotherEndpoint(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat")...)
	for check, id := range map[string]string{
		"Check KEY and ID. ": s.srv.AddEndpoint(svctest.Endpoint{Name: "another", Instances: 1}),
		"Check that svc-":    s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1}),
	} {
		e := s.must(exitLedger, "adopt", "chat", id)
		require.Contains(t, e.stderr, "\n"+check)
		require.NotContains(t, e.stderr, "what is wrong with it", check)
	}
	s.must(exitOK, "adopt", "chat", "svc-1")
}

// TestProbeThatFails: the endpoint was read, and it is available by its record.
func TestProbeThatFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	s.srv.Fault("GET", svctest.RouteInference, svctest.Fault{Status: 404, Times: -1})
	e := s.must(exitTimeout, "wait", id, "--probe", "/nowhere", "--timeout", "12s")
	require.Regexp(t, id+` is available, but not ready after \d+s: `, e.stderr)
	require.NotContains(t, e.stderr, "could not be read")
}

// TestFlagsOfAnInvalidCommandLine: the document has the form that was asked for, however that is written.
func TestFlagsOfAnInvalidCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line, value string
		found       bool
	}{
		{"get --nope -o json", "json", true},
		{"get -ojson --nope", "json", true},
		{"get -o=json", "json", true},
		{"get --output=json", "json", true},
		{"get --output json --output yaml", "yaml", true},
		{"get -o", "", true},
		{"get --outputs=json", "", false},
		{"run --nope -- prog -o json", "", false},
	} {
		value, found := guessed(strings.Fields(tt.line), "output", "o")
		require.Equal(t, tt.value, value, tt.line)
		require.Equal(t, tt.found, found, tt.line)
	}
	_, keyed := guessed([]string{"files", "upload", "-"}, "key", "")
	require.False(t, keyed)
	s := newSession(t)
	doc := s.must(exitUsage, "delete", "svc-1", "--nope", "-ojson").doc(t)
	require.Equal(t, true, doc["may_be_running"], "nothing is known of svc-1")
	doc = s.must(exitUsage, "deploy", "--name", "x", "--nope", "-ojson").doc(t)
	require.Equal(t, false, doc["may_be_running"], "it would have created one")
}
