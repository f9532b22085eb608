package main

import (
	"net/http"
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

// predicament is what a user meets. Every command that its commands advise must work in it.
type predicament struct {
	opts  []svctest.Option
	make  func(*session)
	codes map[string][]int // exit codes other than 0 with which a command may end that was advised
	skip  []string         // commands that are not run, since they take too long or succeed and change it
}

var predicaments = map[string]predicament{
	"open":            {make: func(s *session) { s.must(exitOK, with(deploy, "--key", "chat")...) }},
	"in doubt, there": {make: loseChat(svctest.DropAfterEffect())},
	"in doubt, none":  {make: loseChat(svctest.DropBeforeEffect()), codes: map[string][]int{"adopt": {exitNotFound}}, skip: []string{"delete"}},
	"damaged":         {make: damage("chat@000002.json"), codes: map[string][]int{"ls": {exitLedger}}},
	"damaged whole":   {make: damage("chat@000001.json"), codes: map[string][]int{"ls": {exitLedger}}},
	"another damaged": {make: func(s *session) {
		damage("chat@000002.json")(s)
		require.NoError(s.t, os.Rename(s.record("chat@000002.json"), s.record("kept")))
		s.must(exitOK, "adopt", "chat", "svc-1")
		s.must(exitOK, with(deploy, "--key", "other")...)
		require.NoError(s.t, os.WriteFile(s.record("other@000002.json"), []byte("{"), 0o600))
	}, codes: map[string][]int{"ls": {exitLedger}}},
	"deleted":           {make: func(s *session) { s.must(exitOK, with(deploy, "--key", "chat")...); s.must(exitOK, "delete", "svc-1") }, skip: []string{"deploy"}},
	"deleted elsewhere": {make: func(s *session) { s.deletedElsewhere() }, codes: map[string][]int{"get": {exitNotFound}}, skip: []string{"deploy", "wait"}},
	"lease over":        {make: overdue},
	"delete accepted": {opts: []svctest.Option{svctest.WithDeleteTime(time.Hour)}, make: func(s *session) {
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.deleteThatIsKilled()
		s.acceptedBefore(deleteSettles)
	}, codes: map[string][]int{"delete": {exitRunning}, "sweep": {exitRunning}}, skip: []string{"sweep"}},
	"other address": {make: func(s *session) {
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.env["SVC_BASE_URL"] = strings.Replace(s.env["SVC_BASE_URL"], "127.0.0.1", "localhost", 1)
	}},
	"other token": {opts: []svctest.Option{svctest.WithForeignToken(foreign)}, make: func(s *session) {
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.env["own"], s.env["SVC_API_TOKEN"] = s.env["SVC_API_TOKEN"], foreign
	}, codes: map[string][]int{"get": {exitNotFound}}},
	"read-only":   {make: func(s *session) { s.must(exitOK, with(deploy, "--key", "chat")...) }, codes: map[string][]int{}},
	"unavailable": {make: func(s *session) { s.useless(svctest.StatusUnavailable) }},
	"stopped": {make: func(s *session) {
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.must(exitOK, "scale", "svc-1", "0")
	}},
	"adopted without the mark": {make: func(s *session) {
		loseChat(svctest.DropBeforeEffect())(s)
		s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
		s.must(exitOK, "adopt", "chat", "svc-1", "--unmarked")
	}},
}

func loseChat(fault svctest.Fault) func(*session) {
	return func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, fault)
		s.must(exitUnknown, with(deploy, "--key", "chat")...)
		later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
		s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // so that forget need not wait
	}
}

// record is the path of a record in the ledger of a session.
func (s *session) record(name string) string {
	return filepath.Join(s.env["HOME"], ".local/state/svc-ledger", name)
}

// TestDoctorOnADamagedKey advises neither adopt nor forget, which refuse it.
func TestDoctorOnADamagedKey(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
	damage("chat@000002.json")(s)
	time.Sleep(2100 * time.Millisecond)
	e := s.must(exitFailed, "doctor")
	require.NotContains(t, e.stdout, "svc adopt chat ID, or")
	require.Regexp(t, `(?m)^key +problem +the records of the key chat are damaged.*look for an endpoint named "demo", with \[svc:\w+\].*svc delete ID$`, e.stdout)
	e = s.must(exitRunning, "sweep")
	require.NotContains(t, e.stderr, "svc adopt chat ID, or")
	require.Regexp(t, `no command with the key works.*\n.*look for an endpoint named "demo"`, e.stderr)
	s.must(exitOK, "delete", "svc-1")
}

// TestNoCommandAdvisesToSettleADamagedKey, whichever record is damaged and how, and whatever the state of the entry was. The restored
// records work again, as the advice says.
func TestNoCommandAdvisesToSettleADamagedKey(t *testing.T) {
	t.Parallel()
	settles := regexp.MustCompile(`svc (adopt|forget)\b.*\bchat\b`)
	for name, makeEntry := range map[string]func(*session){
		"created":  func(s *session) { s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...) },
		"in doubt": loseChat(svctest.DropAfterEffect()),
		"adopted": func(s *session) {
			loseChat(svctest.DropAfterEffect())(s)
			s.must(exitOK, "adopt", "chat", "svc-1", "--unmarked")
		},
	} {
		for how, text := range map[string]string{"cut": `{"key":"ch`, "empty": "", "zeros": strings.Repeat("\x00", 100)} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := newSession(t)
				makeEntry(s)
				s.must(exitOK, with(deploy, "--key", "other")...)
				files, err := filepath.Glob(s.record("chat@*.json"))
				require.NoError(t, err)
				last := files[len(files)-1]
				if name == "in doubt" {
					last = files[0]
				}
				whole, err := os.ReadFile(last)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(last, []byte(text), 0o600))
				lines := append(slices.Clone(triedCommands), []string{"scale", "svc-1", "2"}, []string{"delete", "svc-1"}, []string{"delete", "svc-1", "--missing-ok"})
				for _, args := range lines {
					e := s.run(with(args, "--timeout", "5s")...)
					require.NotRegexp(t, settles, e.stdout+e.stderr, "%s: %s", args, e.stderr)
					if args[0] == "delete" && args[1] == "svc-1" {
						require.Contains(t, e.stderr, "the records of the key chat are damaged, so the entry of what is deleted may stay open; run the same command again when they are restored from a copy")
					}
				}
				require.NoError(t, os.WriteFile(last, whole, 0o600))
				require.NotContains(t, s.must(exitOK, "ls").stderr, "damaged")
			})
		}
	}
}

// TestTheAdviceOnADamagedKeyHasItsEndpoint: also if the first record of the create is damaged, so that the key has no entry.
func TestTheAdviceOnADamagedKeyHasItsEndpoint(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	damage("chat@000001.json")(s)
	for _, e := range []ended{s.must(exitLedger, "ls"), s.must(exitLedger, "get", "--key", "chat"), s.must(exitLedger, with(deploy, "--key", "chat")...), s.must(exitFailed, "doctor")} {
		require.Regexp(t, `look for an endpoint, with \[svc:\w+\] in its description, .*: svc delete svc-1\n`, e.stdout+e.stderr, e.args)
		require.NotContains(t, e.stdout+e.stderr, "INTENT")
	}
	require.NoError(t, os.Remove(s.record("chat@000002.json")))
	require.Contains(t, s.must(exitLedger, "ls").stderr, "in no other entry of the ledger")
}

func damage(name string) func(*session) {
	return func(s *session) {
		s.must(exitOK, with(deploy, "--key", "chat")...)
		require.NoError(s.t, os.WriteFile(s.record(name), []byte("{"), 0o600))
	}
}

// triedCommands are run in each situation, in this order: those that change it come last.
var triedCommands = [][]string{
	{"ls"}, {"doctor"}, {"get", "--key", "chat"}, {"get", "svc-1"}, {"get", "chat"}, {"url", "--key", "chat"}, {"wait", "--key", "chat"},
	{"adopt", "chat", "svc-1"}, {"forget", "chat"}, {"forget", "svc-1"}, {"deploy", "--name", "demo", "--image", "other:1", "--key", "chat"},
	with(deploy, "--key", "chat", "--dry-run"), with(deploy, "--key", "chat"), {"extend", "chat", "1h"}, {"scale", "--key", "chat", "1"}, {"sweep"}, {"delete", "--key", "chat"},
}

// advised finds the commands that a text names.
var advised = regexp.MustCompile(`\bsvc (?:ls|get|url|wait|scale|delete|sweep|adopt|forget|extend|doctor|deploy|ledger init)\b(?: (?:--?[a-z][a-z-]*|/[\w.,/-]*\w|[A-Za-z0-9][\w./:-]*\b))*`)

// inWords are words after a command that are not its arguments.
var inWords = regexp.MustCompile(` (?:shows|and|or|again|when|works|once|to|is|goes|deletes|has|names|with|until|asks|settles|such)\b.*`)

// onlyFlags gives all further commands of a session their settings as flags, and none in the environment. The default
// ledger is another one then, which does not exist.
func (s *session) onlyFlags() (tokenFile string) {
	s.t.Helper()
	tokenFile = filepath.Join(s.env["HOME"], "token")
	require.NoError(s.t, os.WriteFile(tokenFile, []byte(s.env["SVC_API_TOKEN"]), 0o644))
	s.flags = []string{
		"--ledger", filepath.Join(s.env["HOME"], ".local/state/svc-ledger"),
		"--base-url", s.env["SVC_BASE_URL"], "--inference-url", s.env["SVC_INFERENCE_URL"], "--token-file", tokenFile,
	}
	for _, name := range []string{"SVC_BASE_URL", "SVC_API_TOKEN", "SVC_INFERENCE_URL"} {
		delete(s.env, name)
	}
	s.env["HOME"] = s.t.TempDir()
	return tokenFile
}

// own replaces what is of this session alone in a text, and into puts it into such a text.
func (s *session) own() *strings.Replacer {
	return strings.NewReplacer(filepath.Dir(s.flags[len(s.flags)-1]), "@home", s.port(), "@port")
}

func (s *session) into(text string) string {
	return strings.NewReplacer("@home", filepath.Dir(s.flags[len(s.flags)-1]), "@port", s.port()).Replace(text)
}

func (s *session) port() string { return s.srv.URL()[strings.LastIndex(s.srv.URL(), ":")+1:] }

// commands returns the command lines that a command names, complete with what the user knows.
func (e ended) commands() (lines []string) {
	said := e.stderr
	if e.args[0] == "doctor" {
		said = e.stdout
	}
	for _, found := range advised.FindAllString(said, -1) {
		found = inWords.ReplaceAllString(strings.TrimRight(found, ".:"), "")
		found = strings.TrimPrefix(strings.NewReplacer(" KEY", " chat", " ID", " svc-1", " N", " 1").Replace(found), "svc ")
		lines = append(lines, found)
	}
	if strings.Contains(e.stderr, "the same command with --replace") {
		line := with(deploy, "--key", "chat", "--replace")
		if i := slices.Index(e.args, "--ledger"); i >= 0 {
			line = with(line, e.args[i:]...)
		}
		lines = append(lines, strings.Join(line, " "))
	}
	return lines
}

// TestAdviceWorks runs each command that a message names, in the situation in which it was named. All settings are flags,
// and the commands have no others than those that are printed.
func TestAdviceWorks(t *testing.T) {
	t.Parallel()
	for name, tt := range predicaments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			start := func(t *testing.T) (s *session, tokenFile string) {
				s = newSession(t, tt.opts...)
				tt.make(s)
				if name == "read-only" {
					s.readOnly()
				}
				return s, s.onlyFlags()
			}
			s, _ := start(t)
			named := map[string]string{} // the output that names a command
			for _, args := range triedCommands {
				if slices.Contains(tt.skip, args[0]) {
					continue
				}
				e := s.run(with(args, "--timeout", "5s")...)
				for _, line := range e.commands() {
					named[s.own().Replace(line)] = "svc " + strings.Join(args, " ") + "\n" + e.stderr
				}
				if settles := args[0] == "forget" || args[0] == "adopt"; settles && e.code == exitOK {
					s, _ = start(t) // the situation is another one now
				}
			}
			require.NotEmpty(t, named)
			for line, text := range named {
				args := strings.Fields(line)
				if name == "in doubt, none" && args[0] == "delete" {
					continue // it is for an endpoint that is there
				}
				if len(args) == 1 {
					continue // the name of a command
				}
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					patient(t)
					limit := "15s"
					if name == "deleted elsewhere" {
						limit = "1m" // the proof takes 40 s
					}
					s, tokenFile := start(t)
					if args[0] != "forget" {
						s.srv.ClearFaults() // a service whose time stands still proves nothing
					}
					if strings.Contains(text, "token of the account") && s.env["own"] != "" && args[0] == "delete" {
						require.NoError(t, os.WriteFile(tokenFile, []byte(s.env["own"]), 0o644))
					}
					e := s.finish(s.shell("svc " + s.into(line) + " --timeout " + limit))
					codes := append([]int{exitOK}, tt.codes[args[0]]...)
					if args[0] == "doctor" {
						codes = append(codes, exitFailed)
					}
					require.Contains(t, codes, e.code, "svc %s: %s\nnamed by %s", line, e.stderr, text)
				})
			}
		})
	}
}

// TestAdviceForAKeyThatLooksLikeAFlag: it runs as it is printed, with all settings as flags.
func TestAdviceForAKeyThatLooksLikeAFlag(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`svc (?:adopt|forget|extend|get|delete)\b(?: --?[a-z-]*| /\S*\w| http://[\w.:]*\w| ID| 8h)*`)
	for _, key := range []string{"-x", "-h"} {
		created := func(s *session) { s.must(exitOK, with(deploy, "--key", key, "--lease", "1s")...) }
		lost := func(fault svctest.Fault) func(*session) {
			return func(s *session) {
				s.srv.Fault("POST", svctest.RouteEndpoints, fault)
				s.must(exitUnknown, with(deploy, "--key", key)...)
				later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
				s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // so that forget need not wait
			}
		}
		for name, tt := range map[string]struct {
			make  func(*session)
			tried []string
		}{
			"adopt":  {lost(svctest.DropAfterEffect()), deploy},
			"forget": {lost(svctest.DropBeforeEffect()), deploy},
			"extend": {created, deploy},
			"get":    {created, with(deploy, "--port", "1")},
			"delete": {created, with(deploy, "--port", "1")},
		} {
			t.Run(name+key, func(t *testing.T) {
				t.Parallel()
				patient(t)
				s := newSession(t)
				tt.make(s)
				s.onlyFlags()
				if name == "extend" {
					time.Sleep(1100 * time.Millisecond) // the clock of the service has whole seconds
				}
				e := s.run(with(tt.tried, "--key", key)...)
				for _, line := range words.FindAllString(e.stderr, -1) {
					if strings.HasPrefix(line, "svc "+name) && strings.Contains(line, key) {
						e := s.finish(s.shell(strings.Replace(line, " ID", " svc-1", 1)))
						require.Equal(t, exitOK, e.code, "%s: %s", line, e.stderr)
						require.NotContains(t, e.stdout, "Usage:", line)
						return
					}
				}
				require.Fail(t, "no such advice", e.stderr)
			})
		}
	}
}

// TestAdviceNamesTheLedgerWithoutItsSecrets: a connection string that holds a password belongs into SVC_LEDGER.
func TestAdviceNamesTheLedgerWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for ledger, want := range map[string]string{
		"postgres://u:secret@127.0.0.1:1/x?connect_timeout=2": "SVC_LEDGER=postgres://… svc doctor\n",
		"postgres://127.0.0.1:1/x?sslkey=secret":              "SVC_LEDGER=postgres://… svc doctor\n",
		"postgres://u@127.0.0.1:1/x":                          "svc doctor --ledger postgres://u@127.0.0.1:1/x\n",
		"sqlite:a b/it's.db":                                  "svc ledger init --ledger 'sqlite:" + s.env["HOME"] + "/a b/it'\\''s.db'\n",
	} {
		e := s.must(exitLedger, "ls", "--ledger", ledger)
		require.NotContains(t, e.stdout+e.stderr, "secret")
		require.Contains(t, e.stderr, ": "+want)
	}
	e := s.must(exitFailed, "doctor", "--base-url", "http://u:secret@host", "--inference-url", "http://u:secret@host")
	require.NotContains(t, e.stdout+e.stderr, "secret")
}

// TestDoctorAdvisesTheSweepOfAnotherAddress: a sweep deletes nothing at an address that is not its own.
func TestDoctorAdvisesTheSweepOfAnotherAddress(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	here := svctest.NewServer(svctest.WithToken(s.srv.Token()))
	t.Cleanup(here.Close)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	there := s.env["SVC_BASE_URL"]
	s.env["SVC_BASE_URL"] = here.URL()
	for _, e := range []ended{s.must(exitFailed, "doctor"), s.must(exitOK, "sweep", "--quiet")} {
		require.Contains(t, e.stdout+e.stderr, "svc sweep --base-url "+there)
	}
	s.must(exitOK, "sweep", "--base-url", there)
	require.Zero(t, s.srv.RunningInstances())
}
