package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// TestResume: a key has one endpoint at a time, and a command does not delete an endpoint that
// an earlier command created.
func TestResume(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		args := []string{"--key", "chat", "--instances", "4", "--json"}
		o := s.deploy(append(args, "--timeout", "5m")...)
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Equal(t, "created", o.json[0]["event"])

		o = s.deploy(append(args, "--timeout", "1m", "--delete-on-failure")...)
		require.Equal(t, exitRunning, o.code, "the other command may wait for it")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o = s.runCtx(ctx, append([]string{"deploy", "--name", "demo", "--image", "registry.example/app:1"}, args...)...)
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Equal(t, []string{"svc-1"}, s.open())

		s.srv.ResetRequests()
		o = s.deploy(append(args, "--image", "another")...)
		require.Equal(t, exitLedger, o.code, o.stderr)
		require.Equal(t, keyInUse, o.last()["error_kind"])
		require.Equal(t, true, o.last()["may_be_running"])
		require.Contains(t, o.stderr, "choose another --key")
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))

		o = s.deploy(args...) // it uses the flavor of the endpoint, which is out of stock now
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Equal(t, "resumed", o.json[0]["event"])
		require.Equal(t, "svc-1", o.last()["service_id"])
		require.Equal(t, "chat", o.last()["key"])
		require.Equal(t, 4, s.srv.RunningInstances())

		require.Equal(t, exitOK, s.run("delete", "svc-1").code)
		require.Empty(t, s.open())
		require.Equal(t, "svc-2", s.deploy(args...).last()["service_id"], "the key is free again")
	}, svctest.WithDeployTime(20*time.Minute))
}

// TestDoubt: after exit code 4 nothing is created under the key until somebody has
// settled the entry. That holds even if no endpoint exists, since the program cannot know.
func TestDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   svctest.Fault
		timeout string
		running int
	}{
		"the response is lost":      {svctest.DropAfterEffect(), "30m", 1},
		"a gateway responds":        {svctest.GatewayErrorAfterEffect(), "30m", 1},
		"a gateway, and no service": {svctest.Fault{Status: 502}, "30m", 0},
		"no response in time":       {svctest.Fault{AfterEffect: true, Delay: time.Hour}, "10s", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *session) {
				s.srv.Fault("POST", svctest.RouteEndpoints, tt.fault)
				for range 2 {
					o := s.deploy("--key", "chat", "--timeout", tt.timeout)
					require.Equal(t, exitUnknown, o.code, o.stderr)
					require.Equal(t, "demo", s.run("deploy", "--name", "other", "--image", "i", "--key", "chat", "--json").last()["name"], "of the create in doubt")
					require.Equal(t, tt.running, s.srv.RunningInstances())
					require.Regexp(t, `endpoint named "demo", with \[svc:[A-Z2-7]{26}\] in its description, where`, o.stderr)
					require.Contains(t, o.stderr, "Until then nothing is created under the key chat")
					require.Equal(t, []string{""}, s.open())
				}
				require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))
				require.Regexp(t, `\nchat  unknown  demo  -   1          \d+`, s.run("ls").stdout)
				require.Equal(t, exitNotFound, s.run("adopt", "chat", "svc-9").code)
				if tt.running == 0 {
					o := s.run("forget", "chat")
					require.Equal(t, exitLedger, o.code, o.stderr)
					require.Contains(t, o.stderr, "too early")
					require.Contains(t, o.stderr, "Nothing was recorded")
					time.Sleep(10 * time.Minute)
					require.Equal(t, exitOK, s.run("forget", "chat").code)
					require.Empty(t, s.open())
				} else {
					other := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo"})
					o := s.run("adopt", "chat", other)
					require.Equal(t, exitLedger, o.code, o.stderr)
					require.Contains(t, o.stderr, "it has no mark")
					o = s.run("adopt", "chat", "svc-1")
					require.Equal(t, exitOK, o.code, o.stderr)
					require.Contains(t, []string{"initializing\n", "available\n"}, o.stdout)
					require.Equal(t, []string{"svc-1"}, s.open())
				}
				o := s.run("adopt", "chat", "svc-9")
				require.Equal(t, tt.running == 0, o.code == exitNotFound, "a forgotten entry can be adopted")
				o = s.run("forget", "chat")
				require.Equal(t, exitUsage, o.code)
				require.Contains(t, o.stderr, `no entry of the key "chat" is in doubt`)
			})
		})
	}
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		o := s.deploy()
		require.Equal(t, exitUnknown, o.code)
		require.Contains(t, o.stderr, "if it is not there, run the command again.", "without a key it is possible")
	})
}

func TestSweep(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		require.Equal(t, exitOK, s.deploy("--key", "short", "--lease", "1h").code)
		require.Equal(t, exitOK, s.deploy("--key", "long", "--lease", "9h").code)
		require.Equal(t, exitOK, s.deploy("--key", "none").code)
		time.Sleep(2 * time.Hour)

		o := s.run("sweep", "--dry-run")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Regexp(t, `^KEY .* LEASE END\nshort  created  demo  svc-1  1          2h\d\S+  \S+Z  would be deleted\n$`, o.stdout)
		require.Equal(t, 3, s.srv.RunningInstances())

		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 403, Times: -1})
		o = s.run("sweep", "--json")
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Equal(t, "forbidden", o.last()["error_kind"])
		require.Equal(t, true, o.last()["may_be_running"])
		require.Contains(t, o.last()["entries"].([]any)[0].(map[string]any)["result"], "NOT deleted: svc: ")
		require.Contains(t, o.stderr, "may still be running and billed: see the list")

		s.srv.ClearFaults()
		o = s.run("sweep")
		require.Equal(t, exitOK, o.code, o.stderr)
		require.Regexp(t, `short .* deleted\n$`, o.stdout)
		require.Equal(t, []string{"svc-2", "svc-3"}, s.open())
		o = s.run("sweep", "--json")
		require.Equal(t, []map[string]any{{"event": "result", "exit_code": 0.0, "may_be_running": false}}, o.json)
	})
}

// TestLedgerThatCannotBeUsed: commands that could raise the bill send nothing. Commands that
// lower the bill work.
func TestLedgerThatCannotBeUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		id := s.srv.AddEndpoint(svctest.Endpoint{FlavorID: "flavor-1", Instances: 2})
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		for _, dir := range []string{filepath.Join(file, "ledger"), file} {
			for _, args := range [][]string{{"deploy", "--name", "x", "--image", "x", "--ledger", dir}, {"ls", "--ledger", dir}, {"sweep", "--ledger", dir}} {
				s.srv.ResetRequests()
				o := s.run(append(args, "--json")...)
				require.Equal(t, exitLedger, o.code, o.stderr)
				require.Equal(t, "ledger", o.last()["error_kind"])
				require.Equal(t, args[0] == "sweep", o.last()["may_be_running"] == true)
				require.Contains(t, o.stderr, "Repair the ledger")
				require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
			}
		}
		for _, name := range []string{"SVC_LEDGER", "XDG_STATE_HOME", "HOME", "AppData"} {
			t.Setenv(name, "")
		}
		require.Contains(t, s.run("ls").stderr, "set SVC_LEDGER or --ledger", "the folder is not known")
		require.NotContains(t, s.run("ls").stderr, `in ""`)
		t.Setenv("SVC_LEDGER", filepath.Join(file, "ledger"))
		o := s.run("scale", id, "3", "--json")
		require.Equal(t, exitLedger, o.code, o.stderr)
		require.Equal(t, true, o.last()["may_be_running"], "as many as before")
		require.Zero(t, s.srv.RequestCount("PUT", svctest.RouteAny))
		require.Equal(t, exitOK, s.run("status", id).code)
		require.Equal(t, exitOK, s.run("scale", id, "1").code)
		require.Equal(t, exitOK, s.run("delete", id).code)
	})
}

// behind is a ledger that cannot record that an endpoint was created.
type behind struct{ ledger.Store }

func (b behind) Append(ctx context.Context, r ledger.Record) error {
	if r.Event == ledger.Created {
		return errors.New("disk full")
	}
	return b.Store.Append(ctx, r)
}

func TestLedgerThatIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.options = []svc.Option{svc.WithLedger(behind{ledger.Memory()})}
		o := s.deploy("--json")
		require.Equal(t, exitRunning, o.code, o.stderr)
		require.Equal(t, "ledger", o.last()["error_kind"])
		require.Contains(t, o.stderr, "could not record the ID: keep it yourself.\nsvc-1 may still be running")
		o = s.deploy("--delete-on-failure")
		require.Equal(t, exitDeleted, o.code, o.stderr)
	})
}
