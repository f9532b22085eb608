package main

import (
	"net/http"
	"os"
	"os/exec"
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
	{"ls"}, {"get", "--key", "chat"}, {"get", "svc-1"}, {"get", "chat"}, {"url", "--key", "chat"}, {"wait", "--key", "chat"},
	{"adopt", "chat", "svc-1"}, {"forget", "chat"}, {"forget", "svc-1"}, {"deploy", "--name", "demo", "--image", "other:1", "--key", "chat"},
	with(deploy, "--key", "chat", "--dry-run"), with(deploy, "--key", "chat"), {"extend", "chat", "1h"}, {"scale", "--key", "chat", "1"}, {"sweep"}, {"delete", "--key", "chat"},
}

// advised finds the commands that a text names.
var advised = regexp.MustCompile(`\bsvc (?:ls|get|url|wait|scale|delete|sweep|adopt|forget|extend|doctor|deploy|ledger init)\b(?: (?:--?[a-z][a-z-]*|[A-Za-z0-9][\w./:-]*\b))*`)

// inWords are words after a command that are not its arguments.
var inWords = regexp.MustCompile(` (?:shows|and|or|again|when|works|once|to|is|goes|deletes|has|names|with|until|asks|settles|such)\b.*`)

// commands returns the command lines that the standard error of a command names, complete with what the user knows.
func (e ended) commands() (lines []string) {
	for _, found := range advised.FindAllString(e.stderr, -1) {
		found = inWords.ReplaceAllString(strings.TrimRight(found, ".:"), "")
		found = strings.TrimPrefix(strings.NewReplacer(" KEY", " chat", " ID", " svc-1", " N", " 1").Replace(found), "svc ")
		lines = append(lines, found)
	}
	if strings.Contains(e.stderr, "the same command with --replace") {
		lines = append(lines, strings.Join(with(deploy, "--key", "chat", "--replace"), " "))
	}
	return lines
}

// TestAdviceWorks runs each command that a message names, in the situation in which it was named.
func TestAdviceWorks(t *testing.T) {
	t.Parallel()
	for name, tt := range predicaments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patient(t)
			start := func(t *testing.T) (*session, func(args ...string) *exec.Cmd) {
				s := newSession(t, tt.opts...)
				tt.make(s)
				if name == "read-only" {
					return s, s.readOnly()
				}
				return s, s.command
			}
			s, command := start(t)
			named := map[string]string{} // the output that names a command
			for _, args := range triedCommands {
				if slices.Contains(tt.skip, args[0]) {
					continue
				}
				e := s.finish(command(with(args, "--timeout", "5s")...))
				for _, line := range e.commands() {
					named[line] = "svc " + strings.Join(args, " ") + "\n" + e.stderr
				}
				if settles := args[0] == "forget" || args[0] == "adopt"; settles && e.code == exitOK {
					s, command = start(t) // the situation is another one now
				}
			}
			require.NotEmpty(t, named)
			for line, text := range named {
				args := strings.Fields(line)
				if name == "in doubt, none" && args[0] == "delete" {
					continue // it is for an endpoint that is there
				}
				if len(args) == 1 && !slices.Contains([]string{"ls", "sweep", "doctor"}, args[0]) {
					continue // the name of a command, without arguments
				}
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					patient(t)
					limit := "15s"
					if name == "deleted elsewhere" {
						limit = "1m" // the proof takes 40 s
					}
					s, command := start(t)
					if args[0] != "forget" {
						s.srv.ClearFaults() // a service whose time stands still proves nothing
					}
					if strings.Contains(text, "token of the account") && s.env["own"] != "" && args[0] == "delete" {
						s.env["SVC_API_TOKEN"] = s.env["own"]
					}
					if found := regexp.MustCompile(`--base-url|SVC_BASE_URL to (http\S+)`).FindStringSubmatch(text); len(found) > 1 && found[1] != "" {
						s.env["SVC_BASE_URL"] = strings.Replace(s.env["SVC_BASE_URL"], "localhost", "127.0.0.1", 1)
					}
					e := s.finish(command(with(args, "--timeout", limit)...))
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
