package main

import (
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

const deployChat = "deploy --key chat --name chat --image registry.example/chat:3"

// chat runs the deployment of docs/recovery.md.
func (s *session) chat(code int, more ...string) ended {
	s.t.Helper()
	return s.must(code, append(strings.Fields(deployChat), more...)...)
}

// situation is one of docs/recovery.md: how it comes about, and what is true after its commands.
type situation struct {
	title   string // of the section, and the name of the block of commands
	options []svctest.Option
	arise   func(*session)
	code    int // exit code of the commands
	after   func(*session, ended)
}

var situations = []situation{
	{"1. The outcome of a create is unknown, with a key: found", nil, loseResponse, exitOK, oneRunning("svc-1")},
	{"1. The outcome of a create is unknown, with a key: missing", nil, func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 502})
		require.Contains(s.t, s.chat(exitUnknown).stderr, "svc forget chat")
		later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
		s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // the service's clock moves on
	}, exitOK, noneOpen},
	{"2. The outcome of a create is unknown, without a key: found", nil, func(s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		s.must(exitUnknown, "deploy", "--name", "chat", "--image", "registry.example/chat:3")
	}, exitOK, noneOpen},
	{"2. The outcome of a create is unknown, without a key: found", []svctest.Option{svctest.WithCreateTime(5 * time.Second)}, func(s *session) {
		require.Equal(s.t, exitUnknown, givenUpDuringCreate(s).code)
		time.Sleep(5 * time.Second) // the endpoint appears
	}, exitOK, noneOpen},
	{"2. The outcome of a create is unknown, without a key: found", []svctest.Option{svctest.WithCreateTime(2 * time.Second)}, func(s *session) {
		b := s.background("deploy", "--name", "chat", "--image", "registry.example/chat:3")
		eventually(s.t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
		b.signal(syscall.SIGKILL)
		b.end()
		eventually(s.t, "the endpoint exists", func() bool { return len(s.srv.Endpoints()) > 0 })
	}, exitOK, noneOpen},
	{"3. The process was killed during a create: found", []svctest.Option{svctest.WithCreateTime(time.Second)}, func(s *session) {
		killed(s, func() bool { return len(s.srv.Endpoints()) > 0 })
		require.Contains(s.t, s.must(exitOK, "ls").stdout, "intended")
	}, exitOK, oneRunning("svc-1")},
	{"3. The process was killed during a create: waiting", []svctest.Option{svctest.WithDeployTime(2 * time.Second)}, func(s *session) {
		killed(s, func() bool { return s.run("ls", "-o", "name").stdout == "svc-1\n" })
	}, exitOK, oneRunning("svc-1")},
	{"4. The cleanup failed", []svctest.Option{svctest.WithDeployTime(time.Hour)}, func(s *session) {
		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Delay: time.Hour, Times: -1})
		cmd := s.command(strings.Fields(deployChat)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		s.start(cmd)
		eventually(s.t, "the endpoint exists", func() bool { return s.srv.RequestCount("GET", svctest.RouteEndpoint) > 0 })
		require.NoError(s.t, cmd.Process.Signal(os.Interrupt))
		time.Sleep(sameSignal + 200*time.Millisecond)
		require.NoError(s.t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		require.Equal(s.t, exitRunning, cmd.ProcessState.ExitCode())
		require.Contains(s.t, stderr.String(), "svc-1 may still be running")
		s.srv.ClearFaults()
	}, exitOK, noneOpen},
	{"5. The endpoint of a key is unavailable or stopped", nil, func(s *session) {
		s.chat(exitOK)
		s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		require.Equal(s.t, "unavailable", s.chat(exitRunning, "-o", "json").doc(s.t)["error_kind"])
	}, exitOK, oneRunning("svc-2")},
	{"6. The endpoint was deleted elsewhere: again", nil, deletedElsewhere, exitOK, func(s *session, e ended) {
		oneRunning("svc-2")(s, e)
		require.Equal(s.t, "svc-2\n", e.stdout, "only the ID of the new endpoint")
		require.Contains(s.t, e.stderr, "checking whether svc-1 is deleted (up to a minute)")
		require.NotRegexp(s.t, `\b404\b`, e.stderr)
		require.Equal(s.t, []string{"svc-2"}, s.open())
	}},
	{"6. The endpoint was deleted elsewhere: done", nil, deletedElsewhere, exitOK, noneOpen},
	{"7. The token is wrong", []svctest.Option{svctest.WithForeignToken("token-of-another")}, func(s *session) {
		s.chat(exitOK)
		s.env["RIGHT_TOKEN"], s.env["SVC_API_TOKEN"] = s.env["SVC_API_TOKEN"], "no-token-at-all"
		s.must(exitRefused, "get", "svc-1")
		require.Equal(s.t, "unauthorized", s.must(exitRunning, "delete", "svc-1", "-o", "json", "--timeout", "20s").doc(s.t)["error_kind"])
		s.env["SVC_API_TOKEN"] = "token-of-another"
		s.must(exitNotFound, "get", "svc-1")
		s.must(exitRunning, "delete", "svc-1", "--timeout", "5s") // exitNotFound comes after 40 s: see TestDeleteOfAnIDThatDoesNotExist
		require.Equal(s.t, "svc-1\n", s.must(exitOK, "ls", "-o", "name").stdout, "the entry stays open")
	}, exitOK, noneOpen},
	{"8. The address is wrong", nil, func(s *session) {
		s.chat(exitOK)
		another := svctest.NewServer(svctest.WithToken(s.srv.Token()))
		s.t.Cleanup(another.Close)
		s.env["OLD_ADDRESS"], s.env["SVC_BASE_URL"] = s.env["SVC_BASE_URL"], another.URL()
		require.Contains(s.t, s.must(exitOK, "ls").stdout, strings.TrimPrefix(s.env["OLD_ADDRESS"], "http://"))
		require.Contains(s.t, s.must(exitOK, "sweep").stderr, "at another address")
	}, exitOK, noneOpen},
	{"9. The ledger is lost", nil, func(s *session) {
		s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "ledger")
		s.must(exitOK, "ledger", "init")
		s.chat(exitOK)
		endpoint, _ := s.srv.Endpoint("svc-1")
		require.Regexp(s.t, `\[svc:\w+\]$`, endpoint.Description)
		require.NoError(s.t, os.RemoveAll(s.env["SVC_LEDGER"]))
		require.Contains(s.t, s.must(exitLedger, "ls").stderr, "there is no ledger")
		s.chat(exitLedger)
	}, exitOK, noneOpen},
	{"10. The lease is over: keep", nil, leaseOver, exitOK, oneRunning("svc-1")},
	{"10. The lease is over: sweep", nil, leaseOver, exitOK, noneOpen},
	{"11. A clock is wrong", []svctest.Option{svctest.WithClockOffset(24 * time.Hour)}, func(s *session) {
		s.chat(exitOK, "--lease", "1s")
		time.Sleep(2100 * time.Millisecond)
		require.Regexp(s.t, `(?m)^clock +problem`, s.must(exitFailed, "doctor").stdout)
	}, exitOK, noneOpen},
	{"12. The records of a key are damaged", nil, func(s *session) {
		s.chat(exitOK)
		require.NoError(s.t, os.WriteFile(s.record("chat@000002.json"), []byte("{"), 0o600))
		e := s.chat(exitLedger)
		require.Contains(s.t, e.stderr, "is damaged")
		require.Regexp(s.t, `look for an endpoint named "chat", with \[svc:\w+\] in its description, .*: svc delete ID\n`, e.stderr)
	}, exitOK, func(s *session, e ended) {
		require.Contains(s.t, e.stdout, "svc-2\n")
		require.Equal(s.t, 1, s.srv.RunningInstances())
	}},
	{"13. The file of the ledger is damaged: restore", nil, malformed, exitOK, oneRunning("svc-1")},
	{"13. The file of the ledger is damaged: delete", nil, malformed, exitOK, func(s *session, _ ended) { require.Zero(s.t, s.srv.RunningInstances()) }},
}

// malformed is a ledger in SQLite that is damaged after a copy of it was made.
func malformed(s *session) {
	file := filepath.Join(s.env["HOME"], "ledger.db")
	s.env["SVC_LEDGER"], s.env["FILE"], s.env["COPY"] = "sqlite:"+file, file, file+".copy"
	s.must(exitOK, "ledger", "init")
	s.chat(exitOK)
	text, err := os.ReadFile(file)
	require.NoError(s.t, err)
	s.write(s.env["COPY"], text)
	s.write(file, []byte("no database"))
	require.Contains(s.t, s.chat(exitLedger).stderr, "is damaged, or is not a ledger. Keep the file, and restore a copy")
	require.Equal(s.t, "problem", results(s.t, s.must(exitFailed, "doctor", "-o", "json"))["ledger"])
}

func loseResponse(s *session) {
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	require.Contains(s.t, s.chat(exitUnknown).stderr, "svc adopt chat ID")
	s.chat(exitUnknown) // sends nothing
	require.Equal(s.t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))
}

// givenUpDuringCreate ends a deployment with SIGQUIT while its create is under way.
func givenUpDuringCreate(s *session, more ...string) ended {
	s.t.Helper()
	if signal.Ignored(syscall.SIGQUIT) {
		s.t.Skip("this process was started to ignore the signal")
	}
	b := s.background(append([]string{"deploy", "--name", "chat", "--image", "registry.example/chat:3"}, more...)...)
	eventually(s.t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
	b.signal(syscall.SIGQUIT)
	return b.end()
}

// TestEntryOfACreateThatIsGivenUpIsInDoubt: what ends with 4 is in doubt in the ledger, and for doctor, at once.
func TestEntryOfACreateThatIsGivenUpIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{nil, {"--key", "chat"}} {
		s := newSession(t, svctest.WithCreateTime(time.Hour))
		e := givenUpDuringCreate(s, append(more, "-o", "json")...)
		require.Equal(t, exitUnknown, e.code, e.stderr)
		entries := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)
		require.Len(t, entries, 1)
		entry := entries[0].(map[string]any)
		require.Equal(t, []any{e.doc(t)["key"], "unknown", true, true}, []any{entry["key"], entry["state"], entry["open"], entry["in_doubt"]})
		require.Contains(t, s.must(exitOK, "ls").stdout, " unknown, in doubt ")
		require.Equal(t, "problem", results(t, s.must(exitFailed, "doctor", "-o", "json"))["doubt"])
	}
}

// TestGivenUpAfterARefusal: nothing is in doubt if the ledger has the outcome of the create, and no other was sent.
func TestGivenUpAfterARefusal(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409, Body: `{"message":"no capacity"}`})
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{}, svctest.Fault{Delay: time.Hour})
	b := s.background("deploy", "--name", "chat", "--image", "i", "--key", "chat", "-o", "json")
	eventually(t, "the choice of another flavor", func() bool { return s.arrived("GET", svctest.RouteFlavors) == 2 })
	b.signal(syscall.SIGQUIT)
	e := b.end()
	require.Equal(t, exitInterrupted, e.code, e.stderr)
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.NotContains(t, e.stderr, "not known")
	require.Empty(t, s.open())
}

// killed kills the deployment when a condition is met.
func killed(s *session, met func() bool) {
	cmd := s.command(strings.Fields(deployChat)...)
	s.start(cmd)
	eventually(s.t, "the deployment comes to this point", met)
	require.NoError(s.t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
}

func deletedElsewhere(s *session) {
	s.chat(exitOK)
	require.NoError(s.t, s.srv.Client().InferenceServices.Delete(s.t.Context(), "svc-1"))
}

func leaseOver(s *session) {
	s.chat(exitOK, "--lease", "1s")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	require.Contains(s.t, s.must(exitOK, "ls").stdout, "over since")
}

func oneRunning(id string) func(*session, ended) {
	return func(s *session, _ ended) {
		require.Equal(s.t, 1, s.srv.RunningInstances())
		endpoint, _ := s.srv.Endpoint(id)
		require.Equal(s.t, svctest.StatusAvailable, endpoint.Status)
		require.Equal(s.t, id+"\n", s.must(exitOK, "ls", "-o", "name").stdout)
	}
}

func noneOpen(s *session, _ ended) {
	require.Zero(s.t, s.srv.RunningInstances())
	require.Empty(s.t, s.must(exitOK, "ls", "-o", "name").stdout)
}

// TestRecovery brings about each situation of docs/recovery.md, and runs its commands.
func TestRecovery(t *testing.T) {
	t.Parallel()
	text := document(t, "recovery.md")
	commands := map[string]string{}
	title := ""
	parts := regexp.MustCompile("(?ms)^## (.*?)$|^```sh(?: (\\w+))?\n(.*?)^```$")
	for _, m := range parts.FindAllStringSubmatch(text, -1) {
		switch {
		case m[1] != "":
			title = m[1]
		case title == "":
			require.Equal(t, "svc "+deployChat, strings.TrimSpace(m[3]))
		case m[2] != "":
			commands[title+": "+m[2]] = m[3]
		default:
			commands[title] = m[3]
		}
	}
	for title := range commands {
		require.True(t, slices.ContainsFunc(situations, func(tt situation) bool { return tt.title == title }), "no test runs the commands of %s", title)
	}
	for _, tt := range situations {
		script, ok := commands[tt.title]
		require.True(t, ok, tt.title)
		t.Run(tt.title, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(tt.title, "6.") || strings.HasPrefix(tt.title, "7.") {
				patient(t)
			}
			s := newSession(t, tt.options...)
			tt.arise(s)
			e := s.finish(s.shell(script))
			require.Equal(t, tt.code, e.code, "%s\n%s%s", script, e.stdout, e.stderr)
			tt.after(s, e)
		})
	}
}
