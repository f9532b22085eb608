package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestFlavorOfAnEndpointThatExists: flags that select a flavor are for a new endpoint. A dry run says the same as the
// command, with the same code.
func TestFlavorOfAnEndpointThatExists(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	args := with(deploy, "--key", "chat")
	s.must(exitOK, with(args, "--flavor", "flavor-2")...)
	for _, flags := range [][]string{{"--max-price", "0.01"}, {"--gpu", "none"}, {"--region", "nowhere"}, {"--min-cuda", "99"}, {"--flavor", "flavor-1,flavor-3"}} {
		for _, more := range [][]string{nil, {"--dry-run"}, {"--quiet"}} {
			e := s.must(exitOK, with(with(args, flags...), more...)...)
			require.Contains(t, e.stderr, "warning: svc-1 has the flavor flavor-2, which ", "%q %q", flags, more)
			require.Contains(t, e.stderr, "these flags are for a new endpoint", "%q %q", flags, more)
		}
	}
	for _, flags := range [][]string{{"--max-price", "100"}, {"--flavor", "flavor-1,flavor-2"}, {}} {
		require.NotContains(t, s.must(exitOK, with(args, flags...)...).stderr, "warning", "%q", flags)
		e := s.must(exitOK, with(with(args, flags...), "--dry-run")...)
		require.NotContains(t, e.stderr, "warning", "%q", flags)
		require.Contains(t, e.stdout, "flavor_id: flavor-2\n", "%q", flags)
		require.Contains(t, e.stderr, "the command would create nothing: the key chat has svc-1, of the same request, which is available")
	}
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: 403, Times: -1})
	require.Contains(t, s.must(exitOK, with(args, "--gpu", "none")...).stderr, "warning: it could not be checked whether flavor-2")
	require.Equal(t, 1, s.srv.RequestCount("POST", svctest.RouteEndpoints))
}

// TestDryRunForesees: it says what the command would do, whatever the state of the key.
func TestDryRunForesees(t *testing.T) {
	t.Parallel()
	args := with(deploy, "--key", "chat")
	for name, tt := range map[string]struct {
		before func(*session)
		more   []string
		code   int
		says   string
	}{
		"in doubt": {func(s *session) {
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
			s.must(exitUnknown, args...)
		}, nil, exitUnknown, "svc adopt chat ID"},
		"under way": {func(s *session) {
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Delay: time.Minute})
			b := s.background(args...)
			eventually(s.t, "the create is sent", func() bool { return s.srv.RequestCount("POST", svctest.RouteEndpoints) > 0 })
			b.signal(os.Kill)
			b.end()
		}, nil, exitOK, "or was killed during the create: the command would wait for the outcome until"},
		"unavailable": {func(s *session) {
			s.must(exitOK, args...)
			s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		}, nil, exitOK, "the command would create nothing, and fail: svc-1 is unavailable. With --replace, it would delete svc-1"},
		"replaced": {func(s *session) {
			s.must(exitOK, args...)
			s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		}, []string{"--replace"}, exitOK, "the command would delete svc-1, which is unavailable, and create another one"},
		"replaced by what does not fit": {func(s *session) {
			s.must(exitOK, args...)
			s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		}, []string{"--replace", "--max-price", "0.01"}, exitRunning, "no flavor fits"},
		"deleted elsewhere": {func(s *session) {
			s.must(exitOK, args...)
			require.NoError(s.t, s.srv.Client().InferenceServices.Delete(s.t.Context(), "svc-1"))
		}, nil, exitOK, "the service does not find svc-1: if the command finds out that it is deleted, it creates another one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			tt.before(s)
			posts := s.srv.RequestCount("POST", svctest.RouteEndpoints)
			e := s.must(tt.code, with(with(args, "--dry-run"), tt.more...)...)
			require.Contains(t, e.stderr, tt.says)
			require.Equal(t, posts, s.srv.RequestCount("POST", svctest.RouteEndpoints))
		})
	}
}

// TestDeployAfterScale: the request of the key is the one of its create, and the error says so.
func TestDeployAfterScale(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "scale", "--key", "chat", "2")
	e := s.must(exitLedger, with(deploy, "--key", "chat", "--instances", "2")...)
	require.Contains(t, e.stderr, `was created with the number of instances "1", and this call asks for "2"`)
	require.Contains(t, e.stderr, "svc-1 was created with --instances 1, and \"svc scale\" has asked for 2 since. To go on with it, repeat --instances 1, which does not scale it. To scale it: svc scale --key chat 2\n")
	s.must(exitOK, with(deploy, "--key", "chat", "--instances", "1")...)
	require.Equal(t, 2, s.srv.RunningInstances())
}

// TestKeyOfAnotherRequest: what differs is named by the record of the endpoint, if the service shows it. For another
// number of instances the way is a scale and not a delete.
func TestKeyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	hidden := func(s *session) { s.srv.SetField("svc-1", "deploy_metadata", map[string]any{}) }
	for name, tt := range map[string]struct {
		before func(*session)
		flags  []string
		says   string
	}{
		"image":           {nil, []string{"--image", "other:1"}, "By its record, it has another image (registry.example/app:1, not other:1).\n"},
		"several":         {nil, []string{"--command", "secret", "--port", "9", "--gpus", "2"}, "By its record, it has another port (8000, not 9), another number of GPUs (1, not 2), another command.\n"},
		"of a silent one": {hidden, []string{"--image", "other:1"}, "The ledger does not have its image, command, port and GPUs, and the service does not show them: look where it was deployed from.\n"},
		"description":     {nil, []string{"--file", "more.yaml"}, "the same: another field differs, in --file perhaps the description.\n"},
		"name":            {nil, []string{"--name", "other"}, "By its record, its image, command, port and GPUs are the same.\n"},
		"instances":       {nil, []string{"--instances", "3"}, "Only the number of instances differs. svc-1 was created with --instances 1. To go on with it, repeat --instances 1, which does not scale it. To scale it: svc scale --key chat 3\n"},
		"instances, more": {nil, []string{"--instances", "3", "--image", "other:1"}, "By its record, it has another image (registry.example/app:1, not other:1).\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "more.yaml"), []byte("description: another\n"), 0o600))
			s.must(exitOK, with(deploy, "--key", "chat")...)
			if tt.before != nil {
				tt.before(s)
			}
			for _, more := range [][]string{nil, {"--dry-run"}} {
				e := s.must(exitLedger, with(with(deploy, "--key", "chat"), append(tt.flags, more...)...)...)
				require.Contains(t, e.stderr, tt.says)
				require.NotContains(t, e.stderr, "secret")
				require.Equal(t, name != "instances", strings.Contains(e.stderr, "svc delete --key chat"), e.stderr)
			}
		})
	}
}

// TestDeployAfterAdopt: nobody takes an adopted endpoint for one that a command created.
func TestDeployAfterAdopt(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	args := with(deploy, "--key", "chat")
	s.must(exitUnknown, args...)
	other := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1, Description: "[svc:ABCDEFGHIJKLMNOPQRSTUVWXYZ]"})
	require.NotContains(t, s.must(exitLedger, "adopt", "chat", other).stderr, "--unmarked", "it is of another entry")
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	require.Contains(t, s.must(exitUsage, "adopt", "chat", id, "--undo").stderr, "wrong number of arguments (2): svc adopt KEY --undo\n")
	require.Contains(t, s.must(exitLedger, "adopt", "chat", id).stderr, "If it is: svc adopt chat "+id+" --unmarked")
	s.must(exitOK, "adopt", "chat", id, "--unmarked")
	e := s.must(exitOK, args...)
	require.Contains(t, e.stderr, "the key chat has adopted "+id+": waiting until it is available\n")
	require.NotContains(t, e.stderr, "an earlier command has created")
	require.Contains(t, e.stderr, "warning: "+id+" was adopted, and has no mark of the ledger, so its image")
	require.Contains(t, s.must(exitOK, with(args, "--dry-run")...).stderr, "warning: "+id+" was adopted, and has no mark")
	s.must(exitOK, "adopt", "chat", "--undo")
	s.must(exitOK, "adopt", "chat", "svc-1")
	require.NotContains(t, s.must(exitOK, args...).stderr, "warning", "the mark proves that it is of the request")
}
