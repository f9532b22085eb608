package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// results are the results of doctor by the name of the check; a problem wins.
func results(t *testing.T, e ended) map[string]string {
	found := map[string]string{}
	for _, c := range e.doc(t)["checks"].([]any) {
		c := c.(map[string]any)
		if found[c["name"].(string)] != "problem" {
			found[c["name"].(string)] = c["result"].(string)
		}
		if c["result"] == "problem" {
			require.NotEmpty(t, c["advice"], "a problem has an advice")
			require.NotEmpty(t, c["detail"])
		}
	}
	return found
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	all := []string{"settings", "proxy", "service", "token", "flavors", "clock", "inference URL", "ledger"}
	for name, tt := range map[string]struct {
		fake     []svctest.Option
		change   func(*session)
		problems []string
		skipped  []string
		running  bool
		says     []string
	}{
		"nothing is wrong": {},
		"an empty ledger":  {change: func(s *session) { s.must(exitOK, "ledger", "init") }},
		"an endpoint runs": {change: func(s *session) { s.must(exitOK, with(deploy, "--lease", "8h")...) }, running: true},
		"no address": {
			change:   func(s *session) { s.env["SVC_BASE_URL"] = "" },
			problems: []string{"settings"}, skipped: []string{"service", "token", "flavors", "clock", "inference URL"},
		},
		"plain http": {
			change:   func(s *session) { s.env["SVC_BASE_URL"] = "http://service.invalid" },
			problems: []string{"settings"}, skipped: []string{"service", "token", "flavors", "clock", "inference URL"},
			says: []string{"use the https:// address"},
		},
		"no inference URL": {change: func(s *session) { s.env["SVC_INFERENCE_URL"] = "" }, skipped: []string{"inference URL"}},
		"no address and no token": {
			change:   func(s *session) { s.env["SVC_BASE_URL"], s.env["SVC_API_TOKEN"] = "", "" },
			problems: []string{"settings"}, skipped: []string{"service", "token", "flavors", "clock", "inference URL"},
			says: []string{"--base-url", "--token-file"},
		},
		"a token that cannot be one": {
			change:   func(s *session) { s.env["SVC_API_TOKEN"] = "half\nhalf" },
			problems: []string{"token"}, skipped: []string{"service", "flavors", "clock"},
		},
		"nobody listens": {
			change:   func(s *session) { s.env["SVC_BASE_URL"] = "http://127.0.0.1:1" },
			problems: []string{"service"}, skipped: []string{"token", "flavors", "clock"},
		},
		"wrong token": {
			change:   func(s *session) { s.env["SVC_API_TOKEN"] = "wrong-token" },
			problems: []string{"token"}, skipped: []string{"flavors"},
		},
		"a login page": {
			change: func(s *session) {
				page := svctest.ProxyPage(200)
				page.Times = -1
				s.srv.Fault("GET", svctest.RouteFlavors, page)
			},
			problems: []string{"flavors"}, skipped: []string{"token"},
		},
		"no flavors": {fake: []svctest.Option{svctest.WithFlavors()}, problems: []string{"flavors"}},
		"a wrong proxy": {
			change: func(s *session) {
				s.env["HTTPS_PROXY"] = "http://127.0.0.1:1"
				s.env["SVC_BASE_URL"] = "https://service.invalid"
			},
			problems: []string{"service"}, skipped: []string{"token", "flavors", "clock"},
		},
		"no ledger where there should be one": {
			change:   func(s *session) { s.env["SVC_LEDGER"] = filepath.Join(s.env["HOME"], "none") },
			problems: []string{"ledger"}, running: true,
		},
		"no place for the default ledger": {change: func(s *session) { s.env["XDG_STATE_HOME"] = "/proc/none" }, problems: []string{"ledger"}, says: []string{"cannot be made"}},
		"SVC_LEDGER=none":                 {change: func(s *session) { s.env["SVC_LEDGER"] = "none" }, problems: []string{"ledger"}, running: true},
		"a doubt": {
			change: func(s *session) {
				s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
				s.must(exitUnknown, deploy...)
			},
			problems: []string{"doubt"}, running: true,
		},
		"a lease is over": {
			change: func(s *session) {
				s.must(exitOK, with(deploy, "--lease", "1s")...)
				time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
			},
			problems: []string{"lease"}, running: true,
		},
		"an endpoint at another address": {
			change: func(s *session) {
				other := newSession(s.t)
				other.env["HOME"] = s.env["HOME"]
				other.must(exitOK, deploy...)
			},
			problems: []string{"address"}, running: true,
		},
		"a damaged ledger": {
			change: func(s *session) {
				s.must(exitOK, with(deploy, "--key", "chat")...)
				damaged := filepath.Join(s.env["HOME"], ".local/state/svc-ledger/chat@000002.json")
				require.NoError(s.t, os.WriteFile(damaged, []byte("{"), 0o600))
			},
			problems: []string{"ledger"}, skipped: []string{"entries"}, running: true,
		},
		"two open entries under one key": {
			change: func(s *session) {
				s.must(exitOK, with(deploy, "--key", "chat")...)
				dir := filepath.Join(s.env["HOME"], ".local/state/svc-ledger")
				for i, r := range []ledger.Record{
					{Event: ledger.Intended, BaseURL: s.srv.URL(), Name: "x", Instances: 1, SettleBy: time.Now()},
					{Event: ledger.Created, ServiceID: s.srv.AddEndpoint(svctest.Endpoint{Name: "x", Instances: 1}), ServiceTime: time.Now()},
				} {
					store, err := ledger.Dir(dir)
					require.NoError(s.t, err)
					r.Key, r.Seq, r.Intent, r.At = "chat", int64(i+3), "ABCDEFGHIJKLMNOPQRSTUVWXYZ", time.Now()
					require.NoError(s.t, store.Append(s.t.Context(), r))
				}
			},
			problems: []string{"key"}, running: true, says: []string{"svc delete ID"},
		},
		"the service's clock is a day behind": {
			fake:     []svctest.Option{svctest.WithClockOffset(-24 * time.Hour)},
			change:   func(s *session) { s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...) },
			problems: []string{"clock"}, running: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, tt.fake...)
			if tt.change != nil {
				tt.change(s)
			}
			code := exitOK
			if len(tt.problems) > 0 {
				code = exitFailed
			}
			e := s.must(code, "doctor", "-o", "json", "--timeout", "30s")
			want := map[string]string{}
			found := results(t, e)
			for _, name := range all {
				want[name] = "ok"
			}
			for _, name := range tt.problems {
				want[name] = "problem"
			}
			for _, name := range tt.skipped {
				want[name] = "skipped"
			}
			if tt.fake != nil && tt.running { // no lease is over by the service's clock
				want["lease"] = "none"
			}
			for name, result := range want {
				if result == "none" {
					require.Empty(t, found[name])
				} else if result != "ok" || found[name] != "" {
					require.Equal(t, result, found[name], "%s: %s", name, e.stdout)
				}
			}
			_, missing := os.Stat(s.record(""))
			require.Equal(t, tt.running || missing != nil, e.doc(t)["may_be_running"], "without a ledger nobody knows")
			if missing != nil && s.env["SVC_LEDGER"] == "" {
				require.Equal(t, true, s.run("ls", "-o", "json").doc(t)["may_be_running"], "as svc ls")
			}
			for _, text := range tt.says {
				require.Contains(t, e.stdout, text)
			}
			require.Equal(t, code, s.run("doctor", "--timeout", "30s").code)
			if tt.change == nil {
				left, err := os.ReadDir(s.env["HOME"])
				require.NoError(t, err)
				require.Empty(t, left, "it leaves nothing behind")
			}
		})
	}
}

// A service that does not respond leaves the ledger its time, and is no damage of the ledger.
func TestDoctorWithAHangingService_T04(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	hang := svctest.Slow(time.Hour)
	hang.Times = -1
	s.srv.Fault("GET", svctest.RouteFlavors, hang)
	began := time.Now()
	found := results(t, s.must(exitFailed, "doctor", "-o", "json", "--timeout", "4s"))
	require.Greater(t, time.Since(began), 4*time.Second, "it has all of its time")
	require.Equal(t, "problem", found["service"])
	require.Equal(t, "ok", found["ledger"])
	require.Equal(t, "ok", found["entries"])
}

// After a sweep, the advice names another sweep only if that helps.
func TestAdviceAfterASweep_T05(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "8h")...)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	b := &background{s: s, cmd: s.command("sweep", "-o", "json")}
	b.cmd.Stdout, b.cmd.Stderr = full, &b.stderr
	s.start(b.cmd)
	e := b.end()
	require.Equal(t, exitRunning, e.code)
	require.Contains(t, e.stderr, "No endpoint whose lease is over was left")

	e = s.must(exitRunning, with(deploy, "--key", "chat", "--dry-run", "--command", "other", "--max-price", "0.01")...)
	require.Contains(t, e.stderr, "svc get --key chat")
	require.NotContains(t, e.stderr, "svc delete")

	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "lost", "--lease", "1s")...)
	time.Sleep(2100 * time.Millisecond)
	e = s.run("sweep")
	require.NotZero(t, e.code)
	require.Contains(t, e.stderr, "svc forget lost")
	require.NotContains(t, e.stderr, "To try again: svc sweep")
}
