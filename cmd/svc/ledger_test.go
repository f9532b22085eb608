package main

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// eachLedger runs f with a ledger of each kind, made by "svc ledger init".
func eachLedger(t *testing.T, f func(t *testing.T, s *session)) {
	t.Parallel()
	for kind, address := range map[string]func(t *testing.T) string{
		"folder":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "ledger") },
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a ledger?.db") },
		"postgres": postgres,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.env["SVC_LEDGER"] = address(t)
			f(t, s)
		})
	}
}

func TestLedgerOfEachKind(t *testing.T) {
	eachLedger(t, func(t *testing.T, s *session) {
		flag := s.must(exitLedger, "ls", "--ledger", s.env["SVC_LEDGER"])
		require.Equal(t, strings.HasPrefix(s.env["SVC_LEDGER"], "postgres:"), strings.Contains(flag.stderr, "SVC_LEDGER=postgres://… svc ledger init\n"), flag.stderr)
		for _, args := range [][]string{{"ls"}, deploy, {"sweep"}, {"adopt", "a", "svc-1"}, {"forget", "a"}, {"extend", "a", "1h"}} {
			e := s.must(exitLedger, args...)
			require.Contains(t, e.stderr, "there is no ledger at")
			require.Contains(t, e.stderr, "svc ledger init")
		}
		e := s.must(exitOK, "ledger", "init", "-o", "json")
		require.Equal(t, true, e.doc(t)["created"])
		require.NotContains(t, e.stdout+e.stderr, "secret")
		e = s.must(exitOK, "ledger", "init", "-o", "json")
		require.Equal(t, false, e.doc(t)["created"], "it stays as it is")
		require.Contains(t, s.must(exitOK, "ls").stderr, "no entries")

		s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...)
		e = s.must(exitOK, "ls")
		require.Regexp(t, `^KEY +STATE +NAME +ID +INSTANCES +AGE +TIME +LEASE +ADDRESS\nchat +created +demo +svc-1 +1 +\ds +\ds +in 7h59m +127\.0\.0\.1:\d+\n$`, e.stdout)
		s.must(exitOK, "extend", "chat", "2d")
		require.Contains(t, s.must(exitOK, "ls").stdout, "in 1d23h")
		require.Contains(t, s.must(exitOK, "doctor", "-o", "json").stdout, "readable and writable")
		s.must(exitOK, "delete", "--key", "chat")
		require.Contains(t, s.must(exitOK, "ls", "--all").stdout, "deleted")
		require.Equal(t, false, s.must(exitOK, "ls", "-o", "json").doc(t)["may_be_running"])

		s.must(exitOK, with(deploy, "--key", "other")...)
		s.must(exitUsage, "ledger", "prune")
		require.Equal(t, 0.0, s.must(exitOK, "ledger", "prune", "--older-than", "90d", "-o", "json").doc(t)["removed"])
		require.Equal(t, 1.0, s.must(exitOK, "ledger", "prune", "--older-than", "1ns", "-o", "json").doc(t)["removed"])
		require.Equal(t, []string{"svc-2"}, s.open(), "what may be running stays")
	})
}

// TestTwoCommandsUnderOneKey: at most one of them creates.
func TestTwoCommandsUnderOneKey(t *testing.T) {
	eachLedger(t, func(t *testing.T, s *session) {
		s.must(exitOK, "ledger", "init")
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				e := s.run(with(deploy, "--key", "chat", "--flavor", "flavor-1")...)
				if e.code != exitOK || e.stdout != "svc-1\n" {
					t.Errorf("code %d: %s%s", e.code, e.stdout, e.stderr)
				}
			})
		}
		both.Wait()
		require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))
	})
}

// TestTwoMachinesWithOneLedger: one is killed during a create, and then while it waits. The other one sees
// what may be running, adopts it, and deletes it when its lease is over.
func TestTwoMachinesWithOneLedger(t *testing.T) {
	eachLedger(t, func(t *testing.T, a *session) {
		b := &session{t: t, srv: a.srv, env: maps.Clone(a.env)}
		b.env["HOME"] = t.TempDir()
		a.must(exitOK, "ledger", "init")
		killed := func(key string, met func() bool) {
			cmd := a.command(with(deploy, "--key", key, "--flavor", "flavor-1", "--lease", "1s")...)
			a.start(cmd)
			eventually(t, "the deployment comes to this point", met)
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}
		a.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Delay: time.Hour, AfterEffect: true})
		killed("creating", func() bool { return len(a.srv.Endpoints()) > 0 })
		require.Regexp(t, `(?m)^creating +intended `, b.must(exitOK, "ls").stdout)
		require.Equal(t, "svc-1\n", b.must(exitOK, "adopt", "creating", "svc-1", "-o", "name").stdout)
		killed("waiting", func() bool { return slices.Contains(b.open(), "svc-2") })
		require.Equal(t, []string{"svc-1", "svc-2"}, b.open())
		time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
		require.Equal(t, "svc-1\nsvc-2\n", b.must(exitOK, "sweep", "-o", "name").stdout)
		require.Empty(t, a.open())
		require.Zero(t, a.srv.RunningInstances())
	})
}

func TestLedgerPlaces(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	home := s.env["HOME"]
	require.Contains(t, s.must(exitLedger, "ls").stderr, filepath.Join(home, ".local/state/svc-ledger"), "the default place")
	require.NoDirExists(t, filepath.Join(home, ".local"), "reading makes nothing")

	empty := t.TempDir()
	require.Contains(t, s.must(exitLedger, "ls", "--ledger", empty).stderr, "there is no ledger at "+empty, "the volume may not be mounted")
	s.env["SVC_LEDGER"] = "~/mine"
	require.Equal(t, filepath.Join(home, "mine")+"\n", s.must(exitOK, "ledger", "init").stdout)
	s.must(exitOK, "ls")
	require.Equal(t, filepath.Join(home, "relative")+"\n", s.must(exitOK, "ledger", "init", "--ledger", "relative").stdout, "the flag wins, and is shown in full")
	for text, want := range map[string]string{
		"here":                                  "full path",
		"sqlite:here.db":                        "full path",
		"~nobody/x":                             "full path",
		"postgres://u:5432/secret@db.invalid/x": "%XX",
		"postgres://u:5432?secret@db.invalid/x": "%XX",
		"postgres://u:secret word@db.invalid/x": "%XX",
	} {
		s.env["SVC_LEDGER"] = text
		e := s.must(exitUsage, "ls")
		require.Contains(t, e.stderr, want)
		require.NotContains(t, e.stderr, "secret")
	}
	s.env["SVC_LEDGER"] = "postgres://u:secret@127.0.0.1:1/x?password=secret2&connect_timeout=2"
	e := s.must(exitLedger, "ls", "-o", "json")
	require.NotContains(t, e.stdout+e.stderr, "secret")
	require.Contains(t, e.stderr, "open postgres://127.0.0.1:1/x: ")
	s.env["SVC_LEDGER"] = "postgres://u:secret@/x?host=" + empty + "/socket&password=secret2"
	e = s.must(exitLedger, "ls", "-o", "json")
	require.Equal(t, "ledger", e.doc(t)["error_kind"], "a server that does not run is no missing ledger")
	require.Contains(t, e.stderr, "open postgres:///x (host="+empty+"/socket): ")
	require.Contains(t, e.stderr, "The ledger is postgres:///x (host="+empty+"/socket). ")
	require.NotContains(t, e.stdout+e.stderr+s.run("doctor").stdout, "secret")
	require.NotContains(t, s.run("doctor").stdout, "ledger init")
	s.env["SVC_LEDGER"] = filepath.Join(home, "missing")
	require.Contains(t, s.must(exitLedger, "ls").stderr, "To make one: svc ledger init\n", "it is in SVC_LEDGER, perhaps with a password")
	require.Regexp(t, `or make a ledger: svc ledger init *\n`, s.run("doctor").stdout)
	require.Contains(t, s.must(exitLedger, "ls", "--ledger", "a b").stderr, "svc ledger init --ledger '"+filepath.Join(home, "a b")+"'\n")

	s.env["SVC_LEDGER"] = "none"
	s.must(exitUsage, "ls")
	e = s.must(exitOK, deploy...)
	require.Contains(t, e.stderr, "warning: there is no ledger")
	s.must(exitOK, "delete", "svc-1")

	s.env["SVC_LEDGER"] = "/dev/null/ledger" // a broken ledger does not keep an endpoint from being deleted
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	require.Contains(t, s.must(exitOK, "delete", id).stderr, "warning: the ledger cannot be read")
	require.NotEqual(t, exitOK, s.run(deploy...).code)
	require.Zero(t, s.srv.RunningInstances())
}

// TestLsNeedsNoAccount: what may be running can be seen without address and token.
func TestLsNeedsNoAccount(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, with(deploy, "--key", "other")...)
	s.env["SVC_BASE_URL"], s.env["SVC_API_TOKEN"] = "", ""
	require.Equal(t, "svc-1\nsvc-2\n", s.must(exitOK, "ls", "-o", "name").stdout)
	doc := s.must(exitOK, "ls", "-o", "json").doc(t)
	require.Equal(t, true, doc["may_be_running"])
	entry := doc["entries"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"chat", "created", true, false, ""}, []any{entry["key"], entry["state"], entry["open"], entry["in_doubt"], entry["lease_end"]})
	require.NotContains(t, s.must(exitOK, "ls", "--no-headers").stdout, "STATE")
}

// TestKeyOfAnotherAddress: the ID that a key has at another address may belong to another endpoint at
// this one. No command with --key touches it.
func TestKeyOfAnotherAddress(t *testing.T) {
	t.Parallel()
	here, there := newSession(t), newSession(t)
	there.must(exitOK, with(deploy, "--key", "there")...)
	here.env["SVC_LEDGER"] = filepath.Join(there.env["HOME"], ".local/state/svc-ledger")
	here.must(exitOK, with(deploy, "--key", "here")...) // both have the ID svc-1
	there.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropBeforeEffect())
	there.must(exitUnknown, with(deploy, "--key", "lost")...)
	for _, args := range [][]string{{"delete", "--key", "there"}, {"delete", "--key", "there", "--missing-ok"}, {"scale", "--key", "there", "0"}, {"get", "--key", "there"}, {"wait", "--key", "there"}, {"adopt", "lost", "svc-1"}, with(deploy, "--key", "there"), with(deploy, "--key", "there", "--dry-run")} {
		e := here.run(append(args, "-o", "json")...)
		require.Equal(t, exitLedger, e.code, "%q: %s", args, e.stderr)
		require.Equal(t, true, e.doc(t)["may_be_running"], "%q", args)
		require.Contains(t, e.stderr, "is at another address: repeat the command with --base-url "+there.env["SVC_BASE_URL"], "%q", args)
		require.Contains(t, e.stderr, "such as localhost and 127.0.0.1", "%q", args)
		require.NotContains(t, e.stderr, "svc doctor", "nothing is wrong with the ledger")
	}
	require.Contains(t, here.must(exitOK, "ls").stderr, "open at other addresses than "+here.env["SVC_BASE_URL"]+": 2.")
	require.Contains(t, here.must(exitOK, "delete", "svc-1", "--quiet").stderr, "at another address, and that entry stays open. If it is the same endpoint: svc delete --key there --base-url "+there.env["SVC_BASE_URL"])
	here.must(exitOK, with(deploy, "--key", "here")...)
	require.Equal(t, 1, here.srv.RunningInstances())
	require.Equal(t, 1, there.srv.RunningInstances())
}

// TestSpellingsOfOneAddress: an entry is at this address, however that is spelled.
func TestSpellingsOfOneAddress(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	address := s.env["SVC_BASE_URL"]
	s.env["SVC_BASE_URL"] = address + "/"
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...)
	for _, spelled := range []string{address, address + "//", " HTTP" + strings.TrimPrefix(address, "http")} {
		s.env["SVC_BASE_URL"] = spelled
		require.Empty(t, s.must(exitOK, "sweep", "-o", "json").doc(t)["elsewhere"], spelled)
		s.must(exitOK, "get", "--key", "chat")
		require.NotRegexp(t, `(?m)^address +problem`, s.run("doctor").stdout, spelled)
	}
	for spelled, one := range map[string]string{"HTTPS://API.example:443/": "https://api.example", "http://api.example:80/a/": "http://api.example/a", "http://api.example:443": "http://api.example:443"} {
		require.Equal(t, one, spelling(spelled))
	}
}

// TestSweep: what is over is deleted, what is elsewhere is named, and may_be_running is false only
// when nothing is open.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "short", "--lease", "1s")...)
	s.must(exitOK, with(deploy, "--key", "long", "--lease", "8h")...)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	require.Len(t, s.must(exitOK, "sweep", "--dry-run", "-o", "json").doc(t)["entries"], 1)
	require.Equal(t, 2, s.srv.RunningInstances())
	require.Contains(t, s.must(exitOK, "sweep", "--dry-run").stdout, "would be deleted")

	other := newSession(t)
	other.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], ".local/state/svc-ledger")
	doc := other.must(exitOK, "sweep", "-o", "json").doc(t)
	require.Empty(t, doc["entries"])
	require.Len(t, doc["elsewhere"], 2)
	require.Equal(t, true, doc["may_be_running"])
	e := other.must(exitOK, "sweep")
	require.Contains(t, e.stderr, "svc-1 of the key short, whose lease is over, is at another address")
	require.Contains(t, e.stderr, "svc-2 of the key long is at another address")

	quiet := other.must(exitOK, "sweep", "--quiet").stderr
	require.Equal(t, 2, strings.Count(quiet, "\n"), quiet)
	require.Contains(t, quiet, "warning: svc-2 of the key long is at another address ("+s.srv.URL()+"), where this sweep deletes nothing: svc sweep --base-url "+s.srv.URL()+"\n")

	e = s.must(exitOK, "sweep")
	require.Equal(t, "deleting svc-1\nsvc-1 of the key short is deleted\n", e.stderr)
	require.Regexp(t, `KEY .*\nshort +demo +svc-1 .* deleted\n$`, e.stdout)
	require.Equal(t, 1, s.srv.RunningInstances())
	require.Equal(t, true, s.must(exitOK, "sweep", "-o", "json").doc(t)["may_be_running"], "svc-2 runs")
	s.must(exitOK, "delete", "--key", "long")
	doc = s.must(exitOK, "sweep", "-o", "json").doc(t)
	require.Equal(t, false, doc["may_be_running"])
	require.Empty(t, doc["entries"])
}

// TestSweepWithADamagedKey: the others are listed and deleted, and that is said.
func TestSweepWithADamagedKey(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "good", "--lease", "1s")...)
	s.must(exitOK, with(deploy, "--key", "bad")...)
	file := filepath.Join(s.env["HOME"], ".local/state/svc-ledger/bad@000002.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	time.Sleep(2100 * time.Millisecond)
	e := s.must(exitLedger, "ls")
	require.Regexp(t, `(?m)^good +created +demo +svc-1 `, e.stdout)
	require.Contains(t, e.stderr, "key bad")
	require.Contains(t, s.must(exitLedger, "sweep", "--dry-run").stderr, "Nothing was created or changed.")
	e = s.run("sweep")
	require.Regexp(t, `(?m)^good +demo +svc-1 .* deleted$`, e.stdout)
	require.Contains(t, e.stderr, "key bad")
	require.NotContains(t, e.stderr, "Nothing was created or changed")
	require.Equal(t, 1, s.srv.RunningInstances())
}

// TestLsShowsWhatDamagedRecordsTell, also where the first record of a create is not one. No sweep deletes its endpoint,
// since neither its address nor its lease is certain.
func TestLsShowsWhatDamagedRecordsTell(t *testing.T) {
	eachLedger(t, func(t *testing.T, s *session) {
		s.must(exitOK, "ledger", "init")
		for _, key := range []string{"first", "only", "ended", "again"} {
			s.must(exitOK, with(deploy, "--key", key, "--lease", "8h")...)
		}
		s.must(exitOK, "extend", "first", "1s")
		s.must(exitOK, "delete", "svc-3")
		s.must(exitOK, "delete", "svc-4")
		s.must(exitOK, with(deploy, "--key", "again")...)
		intents := map[any]any{}
		for _, e := range s.must(exitOK, "ls", "--all", "-o", "json").doc(t)["entries"].([]any) {
			intents[e.(map[string]any)["service_id"]] = e.(map[string]any)["intent"]
		}
		for record, text := range map[string]string{"first@1": "{", "only@1": "", "only@2": "", "ended@1": "[]", "again@1": "{"} {
			s.damageRecord(record, text)
		}
		time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
		show := func(e ended) (all [][]any) {
			for _, one := range e.doc(t)["entries"].([]any) {
				e := one.(map[string]any)
				all = append(all, []any{e["key"], e["state"], e["service_id"], e["intent"], e["open"], e["in_doubt"], e["lease_end"] != ""})
				for _, number := range []string{"instances", "created_instances", "instance_seconds"} {
					require.Equal(t, e["service_id"] == "svc-5", e[number] != nil, "%s %s: the first record has the number", e["key"], number)
				}
			}
			return all
		}
		e := s.must(exitLedger, "ls", "-o", "json")
		first := []any{"first", "damaged", "svc-1", intents["svc-1"], true, true, true}
		only := []any{"only", "damaged", "", "", true, true, false}
		again := []any{"again", "created", "svc-5", intents["svc-5"], true, false, false}
		require.ElementsMatch(t, [][]any{first, only, again}, show(e), "the other one has ended")
		require.Equal(t, true, e.doc(t)["may_be_running"])
		require.Contains(t, show(s.must(exitLedger, "ls", "--all", "-o", "json")), []any{"ended", "deleted", "svc-3", intents["svc-3"], false, false, true}, "its lease was over at the delete")
		require.Equal(t, [][]any{first}, show(s.must(exitLedger, "ls", "--key", "first", "-o", "json")))
		require.Regexp(t, `(?m)^first +damaged, in doubt +- +svc-1 +- +\S+ +- +over since .*\n(.*\n)*only +damaged, in doubt +- +- +- +- +- `, s.must(exitLedger, "ls").stdout)

		e = s.must(exitLedger, "sweep", "-o", "json")
		require.Subset(t, show(e), [][]any{first, only})
		require.Regexp(t, `the records of the key first are damaged, so no sweep deletes its endpoint \(ID svc-1, lease until \S+Z or later\)`, e.stderr)
		require.Equal(t, 3, s.srv.RunningInstances(), "svc-1, svc-2 and svc-5")
		s.must(exitOK, "delete", "svc-1")
	})
}

// damageRecord replaces the text of a record, such as chat@1.
func (s *session) damageRecord(record, text string) {
	s.t.Helper()
	key, seq, _ := strings.Cut(record, "@")
	place, err := findLedger(s.env["SVC_LEDGER"])
	require.NoError(s.t, err)
	switch place.driver {
	case "sqlite", "postgres":
		driver, name := "pgx", place.name
		if place.driver == "sqlite" {
			driver, name = "sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: name}).String()
		}
		db, err := sql.Open(driver, name)
		require.NoError(s.t, err)
		defer db.Close()
		_, err = db.Exec(`UPDATE svc_ledger SET record = $1 WHERE "key" = $2 AND seq = $3`, text, key, seq)
		require.NoError(s.t, err)
	default:
		folder := s.record("")
		if place.explicit {
			folder = place.name
		}
		require.NoError(s.t, os.WriteFile(filepath.Join(folder, key+"@00000"+seq+".json"), []byte(text), 0o600))
	}
}

// TestSweepChecksTheToken, also if no lease is over: a timer that sweeps with a wrong token must not say that all is well.
func TestSweepChecksTheToken(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, "ledger", "init")
	good := s.env["SVC_API_TOKEN"]
	for _, lease := range []string{"", "8h", "0"} {
		code := exitRefused
		if lease != "" {
			s.env["SVC_API_TOKEN"] = good
			s.must(exitOK, with(deploy, "--lease", lease)...)
			code = exitRunning
		}
		s.env["SVC_API_TOKEN"] = "wrong-token"
		for _, args := range [][]string{{"sweep", "-o", "json"}, {"sweep", "-o", "json", "--dry-run"}} {
			e := s.must(code, args...)
			require.Equal(t, "unauthorized", e.doc(t)["error_kind"])
			require.Contains(t, e.stderr, "Check the token")
		}
		s.env["SVC_API_TOKEN"] = good
		s.must(exitOK, "sweep")
		for _, id := range s.open() {
			s.must(exitOK, "delete", id)
		}
	}
}

// TestSweepThatFails ends with 10, and names what may be running.
func TestSweepThatFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "short", "--lease", "1s")...)
	s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 400, Times: -1})
	var e ended
	eventually(t, "the lease is over", func() bool {
		e = s.run("sweep", "--timeout", "20s")
		return strings.Contains(e.stderr, "400")
	})
	require.Equal(t, exitRunning, e.code, e.stderr)
	require.Contains(t, e.stdout, "NOT deleted")
	require.Contains(t, e.stderr, "may still be running and billed")
	require.Regexp(t, `^svc-1 is not known to be deleted: .*400`, e.stderr, "at once, and not only in the table")
	require.Equal(t, 1, strings.Count(e.stderr, "svc-1 is not known to be deleted"), e.stderr)

	for _, token := range []string{"wrong-token", "half\nhalf"} {
		s.env["SVC_API_TOKEN"] = token
		e = s.must(exitRunning, "sweep", "-o", "json", "--timeout", "20s")
		doc := e.doc(t)
		require.Equal(t, []any{"unauthorized", true}, []any{doc["error_kind"], doc["may_be_running"]}, "and not a timeout")
		require.Contains(t, e.stderr, "Check the token")
	}
}

var (
	postgresOnce sync.Once
	postgresDSN  string // of the database "postgres" of the server; empty: there is none
	postgresWhy  string // why there is none
	postgresStop = func() {}
)

// postgres makes a new database in a server that lives as long as the tests, and returns its
// address. If no server can be started here, the test is skipped.
func postgres(t *testing.T) string {
	t.Helper()
	postgresOnce.Do(startPostgres)
	if postgresDSN == "" {
		t.Skip("no PostgreSQL server can be started here: " + postgresWhy)
	}
	name := fmt.Sprintf("ledger%d", time.Now().UnixNano())
	out, err := exec.CommandContext(t.Context(), "psql", postgresDSN, "-c", "CREATE DATABASE "+name).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Replace(postgresDSN, "/postgres?", "/"+name+"?", 1)
}

func startPostgres() {
	bin, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bin) == 0 {
		postgresWhy = "initdb is not installed"
		return
	}
	dir, err := os.MkdirTemp("", "svc-postgres")
	if err != nil {
		postgresWhy = err.Error()
		return
	}
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			postgresWhy = err.Error()
			return
		}
		var uid, gid int
		_, _ = fmt.Sscan(u.Uid+" "+u.Gid, &uid, &gid)
		attr = asUser(uid, gid)
		_ = os.Chown(dir, uid, gid)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		postgresWhy = err.Error()
		return
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin[len(bin)-1], name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		if out, err := cmd.CombinedOutput(); err != nil {
			postgresWhy = fmt.Sprintf("%s: %v: %s", name, err, out)
			return err
		}
		return nil
	}
	if run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N") != nil {
		return
	}
	options := fmt.Sprintf("-p %d -k %s -c listen_addresses=127.0.0.1", port, dir)
	if run("pg_ctl", "-D", data, "-l", filepath.Join(dir, "log"), "-o", options, "-w", "start") != nil {
		return
	}
	postgresStop = func() {
		_ = run("pg_ctl", "-D", data, "-m", "immediate", "stop")
		_ = os.RemoveAll(dir)
	}
	postgresDSN = fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// A connection string that is not understood may hold a password, so it is not shown.
func TestLedgerThatIsNotUnderstoodIsNotShown(t *testing.T) {
	s := newSession(t)
	for _, value := range []string{
		`"postgres://u:S3cr3t@h/db"`, " postgres://u:S3cr3t@h/db", "Postgres:/u:S3cr3t@h", "mysql://u:S3cr3t@h", "host=h password=S3cr3t", "sqlite:postgres://u:S3cr3t@h",
		"u:S3cr3t@127.0.0.1/db", "postgres//u:S3cr3t@h/db", "sqlite:u:S3cr3t@h", "sqlite:u@S3cr3t", "u:S3cr3t", "host=h user=S3cr3t", "h//S3cr3t", "S3cr3t@h", "~S3cr3t@h",
		"postgres://u:5432/S3cr3t@h/db",
	} {
		for _, line := range [][]string{{"ls"}, {"ledger", "init"}} {
			e := s.must(exitUsage, with(line, "--ledger", value)...)
			require.NotContains(t, e.stderr+e.stdout, "S3cr3t", value)
			s.env["SVC_LEDGER"] = value
			e = s.must(exitUsage, line...)
			require.NotContains(t, e.stderr+e.stdout, "S3cr3t", value)
			s.env["SVC_LEDGER"] = ""
		}
	}
	s.env["SVC_LEDGER"] = "S3cr3t"
	require.NotContains(t, s.must(exitUsage, "ls").stderr, "S3cr3t")
	made, err := filepath.Glob(filepath.Join(s.env["HOME"], "*"))
	require.NoError(t, err)
	require.Empty(t, made, "a database becomes no folder")
	s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "a@b:c")
	s.must(exitOK, "ledger", "init")
}

// TestSweepSaysEachReason: also one that is no failure of a call, such as another name.
func TestSweepSaysEachReason(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "short", "--lease", "1s")...)
	s.srv.SetField("svc-1", "name", "renamed")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	e := s.must(exitRunning, "sweep", "-o", "json")
	reason := e.doc(t)["entries"].([]any)[0].(map[string]any)["error"].(string)
	require.Contains(t, e.stderr, "svc-1 is not known to be deleted: "+reason)
	require.Equal(t, 1, s.srv.RunningInstances())
}

// TestTwoSweepsAtOnce: the second one says what it waits for, and ends when the first has proved the deletion.
func TestTwoSweepsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "short", "--lease", "1s")...)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	first := s.background("sweep")
	eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
	began := time.Now()
	e := s.must(exitOK, "sweep", "-o", "json")
	require.Less(t, time.Since(began), 20*time.Second)
	require.Equal(t, exitOK, first.end().code)
	require.Contains(t, e.stderr, "svc-1 is not found, and this sweep has not deleted it: checking")
	require.Equal(t, true, e.doc(t)["entries"].([]any)[0].(map[string]any)["deleted"])
	require.Equal(t, false, e.doc(t)["may_be_running"])
}

// TestSweepNamesWhatAPersonMustSettle: an endpoint whose ID is not known cannot be deleted, whatever
// its lease.
func TestSweepNamesWhatAPersonMustSettle(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, "deploy", "--key", "lost", "--name", "n", "--image", "app:1", "--lease", "1s")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	require.Contains(t, s.must(exitRunning, "sweep").stderr, `look for "n" at the provider, then: svc adopt lost ID`)
	e := s.must(exitFailed, "doctor")
	require.NotContains(t, e.stdout+e.stderr, "the lease of", "svc sweep would not settle it")
}

// What "svc ls" says of nothing is only what the ledger knows: one without any entry may have lost them.
func TestLsSaysOnlyWhatTheLedgerKnows(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	dir := filepath.Join(s.env["HOME"], ".local", "state", "svc-ledger")
	s.deployed("chat")
	s.deployed("other")
	require.NotContains(t, s.must(exitOK, "ls", "--key", "chat").stdout, "other")
	s.must(exitOK, "delete", "--key", "chat")
	e := s.must(exitOK, "ls", "--key", "chat", "-o", "json")
	require.Contains(t, e.stderr, "no open entries of the key chat in "+dir+": as far as this ledger knows, nothing is running")
	require.Equal(t, false, e.doc(t)["may_be_running"], "it is about the key")
	require.Equal(t, true, s.must(exitOK, "ls", "-o", "json").doc(t)["may_be_running"])
	require.Contains(t, s.must(exitOK, "ls", "--key", "missing").stderr, "no entries of the key missing in "+dir+"\n")

	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
	require.Equal(t, "no entries in "+dir+"\n", s.must(exitOK, "ls").stderr)
}

// A SVC_LEDGER that is set and empty, as a secret that a pipeline does not have, is never passed over, whatever the
// command and its flags.
func TestAnEmptySVC_LEDGERIsNamed(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.env["SVC_LEDGER"] = ""
	const warning = "warning: SVC_LEDGER is set, but empty: the ledger is the default one, "
	for _, c := range allCommands(t) {
		line := append(strings.Split(schemaName(c), "-"), strings.Fields(successes[schemaName(c)])...)
		switch {
		case c.ledger == noLedger && schemaName(c) != "doctor":
			continue
		case schemaName(c) == "run":
			line = []string{"run", "--name", "n", "--image", "i", "--", "true"}
		case line[len(line)-1] == "-":
			line = append(strings.Split(schemaName(c), "-"), strings.Fields(badLines[schemaName(c)])...)
		}
		for _, more := range [][]string{nil, {"--quiet"}} {
			words := append(append([]string{line[0], "--timeout", "300ms"}, more...), line[1:]...)
			require.Equal(t, 1, strings.Count(s.run(words...).stderr, warning), words)
		}
		require.NotContains(t, s.run(append(line[:1:1], append([]string{"--ledger", "none", "--timeout", "300ms"}, line[1:]...)...)...).stderr, warning, line)
	}
	require.NotContains(t, s.must(exitOK, "__complete", "get", "--key", "").stderr, warning)
}
