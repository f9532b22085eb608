package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestEndpointThatIsNotAvailable: wait and url end with 8, and url prints nothing.
func TestEndpointThatIsNotAvailable(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	require.Contains(t, s.must(exitOK, "wait", id).stdout, "available")

	doc := s.must(exitOK, "scale", id, "0", "-o", "json").doc(t)
	require.Equal(t, []any{"stopped", false}, []any{doc["status"], doc["may_be_running"]})
	e := s.must(exitUnusable, "url", id)
	require.Empty(t, e.stdout)
	require.Contains(t, e.stderr, id+" cannot be reached while it is stopped")
	doc = s.must(exitUnusable, "wait", id, "-o", "json").doc(t)
	require.Equal(t, []any{"stopped", "stopped"}, []any{doc["error_kind"], doc["status"]})

	s.must(exitUsage, "scale", id, "many")
	s.must(exitUsage, "scale", id, "-1")
	s.env["SVC_INFERENCE_URL"] = ""
	require.Contains(t, s.must(exitUsage, "url", id).stderr, "--inference-url")
}

// TestScaleThatFails ends with 10, since the endpoint runs. Its advice and the ledger have the number that may be
// billed: the old one if the change certainly had no effect, and else the new one.
func TestScaleThatFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault   svctest.Fault
		flags   []string
		changed bool
	}{
		"refused":       {svctest.Fault{Status: 409, Times: -1}, nil, false},
		"wrong token":   {svctest.Fault{Status: 401, Times: -1}, nil, false},
		"not sent":      {svctest.Fault{}, []string{"--timeout", "1ns"}, false},
		"no response":   {svctest.Fault{Delay: time.Hour, Times: -1}, []string{"--timeout", "1s"}, true},
		"page":          {svctest.Fault{Status: 403, Body: "<html>", Times: -1}, nil, true},
		"not available": {svctest.Fault{Delay: time.Millisecond}, []string{"--timeout", "1s"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeployTime(3*time.Second))
			s.must(exitOK, with(deploy, "--key", "chat")...)
			s.srv.Fault("PUT", svctest.RouteEndpoint, tt.fault)
			e := s.must(exitRunning, with([]string{"scale", "svc-1", "2"}, tt.flags...)...)
			text, number := "The number of instances was not changed: as many as before may be running and billed. To see how many: svc get svc-1", 1.0
			if tt.changed {
				text, number = "Up to 2 instances of svc-1 may be running and billed, or as many as before", 2
			}
			require.Contains(t, e.stderr, text)
			require.Equal(t, tt.changed, !strings.Contains(e.stderr, "not changed"))
			entry := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)[0].(map[string]any)
			require.Equal(t, number, entry["instances"])
		})
	}
}

// TestScaleToZeroThatFails does not speak of up to 0 instances.
func TestScaleToZeroThatFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Delay: time.Hour})
	e := s.must(exitRunning, "scale", "--key", "chat", "0", "--timeout", "1s")
	require.Contains(t, e.stderr, "As many instances of svc-1 as before may be running and billed, or 0. To see how many: svc get svc-1\n")
}

// TestDeleteOfAnEndpointThatIsDeletedMeanwhile has one result: the ledger has its create, so it was deleted.
func TestDeleteOfAnEndpointThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1"))
	e := s.must(exitOK, "delete", "svc-1")
	require.Equal(t, "ID     RESULT\nsvc-1  deleted\n", e.stdout)
	require.Contains(t, e.stderr, "svc-1 is deleted after ")
	require.Empty(t, s.open())
}

// TestDeleteSeveral: each endpoint has its result, and the 404s that prove a deletion are not shown.
func TestDeleteSeveral(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeleteTime(time.Second))
	one, two := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1}), s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	e := s.must(exitOK, "delete", two, one, one)
	require.Equal(t, "ID     RESULT\n"+one+"  deleted\n"+two+"  deleted\n", e.stdout)
	require.NotRegexp(t, `\b404\b`, e.stderr)
	require.Contains(t, e.stderr, one+" is deleted")
	require.Zero(t, s.srv.RunningInstances())
}

// TestDeleteThatFails ends with 10, and names what is left.
func TestDeleteThatFails(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	one, two := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1}), s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 400, Times: -1})
	e := s.must(exitRunning, "delete", one, two, "-o", "json")
	require.Contains(t, e.stderr, "To try again: svc delete "+one+" "+two)
	doc := e.doc(t)
	require.Equal(t, true, doc["may_be_running"])
	for i, d := range doc["endpoints"].([]any) {
		d := d.(map[string]any)
		require.Equal(t, []any{[]string{one, two}[i], false, false}, []any{d["service_id"], d["deleted"], d["missing"]})
		require.NotEmpty(t, d["error"])
	}
}

// TestUnknownIDProvesNothing: a "not found" says nothing about other accounts, but a ledger without an
// entry says that nothing runs under the key.
func TestUnknownIDProvesNothing(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	for _, tt := range []struct {
		args string
		may  bool
	}{
		{"get svc-9", true}, {"url svc-9", true}, {"scale svc-9 2", true}, {"scale svc-9 0", true},
		{"get --key none", false}, {"url --key none", false}, {"wait --key none", false}, {"scale --key none 2", false}, {"delete --key none", false},
	} {
		e := s.must(exitNotFound, append(strings.Fields(tt.args), "-o", "json")...)
		require.Equal(t, []any{"not_found", tt.may}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"]}, tt.args)
		require.NotContains(t, e.stderr, "may still be running")
		require.Equal(t, tt.may, strings.Contains(e.stderr, "Check the ID"), e.stderr)
	}
}

// TestDeleteWhoseTokenIsRefused: it ends long before its --timeout, also if the token was accepted before.
func TestDeleteWhoseTokenIsRefused(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	id := s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	s.srv.Fault("*", svctest.RouteEndpoint, svctest.Fault{Status: 409}, svctest.Fault{Status: 401, Times: -1})
	e := s.must(exitRunning, "delete", id, "-o", "json")
	require.Equal(t, []any{"unauthorized", true}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"]}, e.stdout)
	require.Contains(t, e.stderr, "the service did not accept the token for 30s")
	require.Contains(t, e.stderr, "Check the token")
	require.Contains(t, e.stderr, "To try again: svc delete "+id)
}

// TestLeaseOfDeployAndExtend: both take days, and 0 is no lease.
func TestLeaseOfDeployAndExtend(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "2d")...)
	lease := func() string { return strings.Fields(s.must(exitOK, "ls", "--no-headers").stdout)[7] }
	require.Equal(t, "in", lease())
	require.Contains(t, s.must(exitOK, "extend", "chat", "3d").stdout, "in 2d23h")
	require.NotContains(t, s.must(exitOK, "extend", "chat", "0").stdout, "in ")
	require.Equal(t, "-", lease())
	s.must(exitOK, with(deploy, "--key", "other", "--lease", "0")...)
	for _, bad := range []string{"-1h", "8", "soon", "1.5d"} {
		require.Contains(t, s.must(exitUsage, "extend", "--", "chat", bad).stderr, "DURATION must be a duration")
	}
	s.env["SVC_API_TOKEN"] = "wrong-token"
	require.Contains(t, s.must(exitRefused, "extend", "chat", "1h").stderr, "Check the token")
	s.env["SVC_API_TOKEN"] = "half\nhalf"
	require.Contains(t, s.must(exitRefused, "extend", "chat", "1h").stderr, "Check the token")
}

// TestLeaseOfAnEndpointWithoutOneCountsFromNow: counted from the create, it could be over at once, and the
// next sweep would delete an endpoint that serves.
func TestLeaseOfAnEndpointWithoutOneCountsFromNow(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	time.Sleep(2500 * time.Millisecond) // the clock of the service counts
	require.Contains(t, s.must(exitOK, with(deploy, "--key", "chat", "--lease", "2s", "--dry-run")...).stderr, "the command would set one that ends in 2s")
	require.Contains(t, s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1h")...).stderr, "had no lease: it ends in 1h")
	require.Contains(t, s.must(exitOK, "ls").stdout, "in 59m")

	s.must(exitOK, with(deploy, "--key", "other")...)
	time.Sleep(9 * time.Second)
	e := s.must(exitOK, with(deploy, "--key", "other", "--lease", "8s")...)
	require.NotContains(t, e.stderr, "is over")
}

// TestDeleteOfWhatTheLedgerHasAsDeleted ends at once: the deletion is proven, and one read is enough. If
// the endpoint is there, it is deleted.
func TestDeleteOfWhatTheLedgerHasAsDeleted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "delete", "svc-1")
	for args, code := range map[string]int{"": exitNotFound, "--missing-ok": exitOK} {
		began := time.Now()
		e := s.must(code, append([]string{"delete", "svc-1", "-o", "json"}, strings.Fields(args)...)...)
		require.Less(t, time.Since(began), 20*time.Second, "not known IDs take 40 s")
		doc := e.doc(t)
		one := doc["endpoints"].([]any)[0].(map[string]any)
		require.Equal(t, []any{false, true, true}, []any{doc["may_be_running"], one["deleted"], one["missing"]})
		require.Contains(t, e.stderr, "svc-1 is deleted already: the ledger has its deletion of ")
		require.NotContains(t, e.stderr, "Check the ID", "nothing is wrong with it")
	}
	require.Contains(t, s.must(exitNotFound, "delete", "svc-1").stdout, "deleted before")

	another := newSession(t) // another service with the same ID, which the entry is not about
	another.env["HOME"] = s.env["HOME"]
	require.Equal(t, "svc-1", another.srv.AddEndpoint(svctest.Endpoint{Instances: 1}))
	another.must(exitOK, "delete", "svc-1")
	require.Zero(t, another.srv.RunningInstances())
}

// TestMayBeRunningOfAParkedEndpoint: all commands that read its record say the same of an endpoint with 0
// instances. The ledger alone does not know.
func TestMayBeRunningOfAParkedEndpoint(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat", "--instances", "2")...)
	parked := func(code int, may bool, args ...string) ended {
		t.Helper()
		e := s.must(code, with(args, "-o", "json")...)
		require.Equal(t, may, e.doc(t)["may_be_running"], "%v: %s", args, e.stdout)
		return e
	}
	parked(exitOK, false, "scale", "--key", "chat", "0")
	parked(exitOK, false, "get", "svc-1")
	parked(exitOK, false, "get", "--key", "chat")
	parked(exitUnusable, false, "url", "--key", "chat")
	require.Contains(t, parked(exitUnusable, false, "wait", "svc-1").stderr, "To start it: svc scale svc-1 1")
	parked(exitOK, true, "ls")
	parked(exitOK, true, "sweep")
	e := parked(exitUnusable, false, with(deploy, "--key", "chat", "--instances", "2")...)
	require.Contains(t, e.stderr, "To start it: svc scale svc-1 2\n")
	require.Contains(t, e.stderr, "--replace")
	s.srv.SetStatus("svc-1", "unavailable")
	parked(exitOK, true, "get", "svc-1")
	s.srv.SetStatus("svc-1", "stopped")

	parked(exitOK, true, "scale", "svc-1", "2")
	parked(exitOK, true, "get", "svc-1")
	parked(exitOK, true, with(deploy, "--key", "chat", "--instances", "2")...)
	s.must(exitOK, "delete", "svc-1")
	parked(exitOK, false, "ls")
	parked(exitOK, false, "ledger", "prune", "--older-than", "90d")
}

// TestDeleteOfAnIDThatDoesNotExist ends with 5, or with 0 if that is allowed. It proves nothing: the
// token may be that of another account.
func TestDeleteOfAnIDThatDoesNotExist(t *testing.T) {
	t.Parallel()
	for args, code := range map[string]int{"": exitNotFound, "--missing-ok": exitOK} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			patient(t)
			s := newSession(t)
			e := s.must(code, append([]string{"delete", "svc-9", "-o", "json"}, strings.Fields(args)...)...)
			require.Equal(t, true, e.doc(t)["may_be_running"])
			if code == exitNotFound {
				require.Equal(t, "not_found", e.doc(t)["error_kind"])
				require.Contains(t, e.stderr, "Check the ID, and the account of the token")
			}
		})
	}
}

// TestTwoDeletesAtOnce: the second command finds nothing. It is done when the first one has proved the
// deletion, which the ledger says.
func TestTwoDeletesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	first := s.command("delete", "--key", "chat")
	s.start(first)
	eventually(t, "the first delete is sent", func() bool { return s.srv.RequestCount("DELETE", svctest.RouteEndpoint) > 0 })
	began := time.Now()
	e := s.must(exitOK, "delete", "svc-1", "-o", "json")
	require.Less(t, time.Since(began), 25*time.Second)
	require.Equal(t, true, e.doc(t)["endpoints"].([]any)[0].(map[string]any)["deleted"])
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.NoError(t, first.Wait())
}

// TestLinesOfADeleteNameTheRequestThatFailed: the "not found" of a read is no failure of the delete.
func TestLinesOfADeleteNameTheRequestThatFailed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method string
		fault  svctest.Fault
		says   string
	}{
		{"", svctest.Fault{}, "svc-1 is not found: checking that it is deleted after "},
		{"DELETE", svctest.Fault{Status: 503}, "svc-1 is still there (available), and its delete failed after "},
		{"GET", svctest.Fault{Status: 503, Times: 3}, ""},
	} {
		s := newSession(t)
		s.must(exitOK, deploy...)
		if tt.method != "" {
			s.srv.Fault(tt.method, svctest.RouteEndpoint, tt.fault)
		}
		e := s.must(exitOK, "-v", "delete", "svc-1")
		require.Contains(t, e.stderr, tt.says)
		require.NotRegexp(t, `its delete failed.* GET `, e.stderr)
	}
}

// TestWaitThatEndsBeforeItsProof says that the endpoint was not found, and that this proves nothing yet.
func TestWaitThatEndsBeforeItsProof(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1"))
	for _, id := range []string{"svc-1", "svc-9"} {
		e := s.must(exitTimeout, "wait", id, "--timeout", "3s")
		require.Contains(t, e.stderr, "The service did not find "+id+" at the last poll. That proves nothing yet: ")
	}
	require.Contains(t, s.must(exitTimeout, "wait", "--key", "chat", "--timeout", "3s", "--quiet").stderr, "Try again with a longer --timeout.")
	s.must(exitOK, "delete", "--key", "chat")
	s.srv.ResetRequests()
	e := s.must(exitNotFound, "wait", "svc-1", "-o", "json")
	require.Contains(t, e.stderr, "the ledger has its deletion")
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.Equal(t, 1, s.srv.RequestCount("GET", svctest.RouteEndpoint), "the ledger has it as deleted")
	there := s.srv.AddEndpoint(svctest.Endpoint{Status: svctest.StatusInitializing, Instances: 1})
	require.NotContains(t, s.must(exitTimeout, "wait", there, "--timeout", "1s").stderr, "did not find")
}

// TestDeleteInAnotherSpelling: an ID in another case finds the entry, so it deletes its endpoint, as get and scale find it.
func TestDeleteInAnotherSpelling(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "get", "SVC-1")
	e := s.must(exitOK, "delete", "SVC-1", "svc-1", "-o", "json")
	endpoints := e.doc(t)["endpoints"].([]any)
	require.Len(t, endpoints, 1)
	require.Equal(t, "svc-1", endpoints[0].(map[string]any)["service_id"])
	require.Zero(t, s.srv.RunningInstances())
	require.Empty(t, s.open())
}
