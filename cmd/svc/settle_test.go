package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestWayOutOfTwoOpenEntries: somebody forgets an entry whose endpoint exists, deploys again, and adopts the
// first endpoint. Each step says what to do next, and that leads to one endpoint.
func TestWayOutOfTwoOpenEntries(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	args := with(deploy, "--key", "chat")
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, args...)
	later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // the service's clock moves on
	e := s.must(exitOK, "forget", "chat")
	require.Equal(t, "the key chat is free again: on your word, no endpoint of it is running\n", e.stderr, "there was nothing to wait for")
	s.srv.ClearFaults()
	s.must(exitOK, args...)
	wrong := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	s.must(exitOK, "adopt", "chat", wrong, "--unmarked")
	s.must(exitOK, "adopt", "chat", "--undo")
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), wrong))
	require.Contains(t, s.must(exitOK, "adopt", "chat", "svc-1").stderr, "the key chat has 2 open entries now")

	for _, args := range [][]string{args, {"get", "--key", "chat"}, {"delete", "--key", "chat"}, {"forget", "chat"}, {"extend", "chat", "1h"}} {
		e := s.must(exitLedger, args...)
		require.Contains(t, e.stderr, "Open under the key chat: svc-1, svc-2.", "%q", args)
		require.Contains(t, e.stderr, "delete each other one by its ID: svc delete ID", "%q", args)
		require.NotContains(t, e.stderr, "--key", "%q: it does not work now", args)
	}
	require.Equal(t, 2, s.srv.RunningInstances())
	s.must(exitOK, "delete", "svc-2")
	require.Equal(t, "svc-1\n", s.must(exitOK, args...).stdout)
	s.must(exitOK, "delete", "--key", "chat")
	require.Empty(t, s.open())
}

// TestForgetOneOfTwoOpenEntries: an endpoint that does not exist can be forgotten by its ID.
func TestForgetOneOfTwoOpenEntries(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat")...)
	later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1})
	s.must(exitOK, "forget", "chat")
	s.srv.ClearFaults()
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "adopt", "chat", "svc-1")
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-2"))
	s.must(exitNotFound, "forget", "chat", "--id", "svc-3")
	doc := s.must(exitOK, "forget", "chat", "--id", "svc-2", "-o", "json").doc(t)
	require.Equal(t, true, doc["may_be_running"], "svc-1 runs")
	require.Equal(t, []string{"svc-1"}, s.open())
	s.must(exitOK, "get", "--key", "chat")
}

// TestUndoneAdoptionLeavesNothing: a lease, an accepted delete and a number of instances are of the wrong endpoint. The right one has those of its create.
func TestUndoneAdoptionLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"extend chat 1s", "extend chat 720h", "delete --key chat --timeout 2s", "scale --key chat 3"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeleteTime(time.Hour))
			s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
			s.must(exitUnknown, with(deploy, "--key", "chat", "--lease", "8h")...)
			wrong := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
			s.must(exitOK, "adopt", "chat", wrong, "--unmarked")
			s.run(strings.Fields(line)...)
			s.must(exitOK, "adopt", "chat", "--undo")
			require.Contains(t, s.must(exitOK, "adopt", "chat", "svc-1").stderr, "the lease of svc-1 ends in ")
			entry := s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any)[0].(map[string]any)
			end, err := time.Parse(time.RFC3339, entry["lease_end"].(string))
			require.NoError(t, err)
			require.InDelta(t, 8, time.Until(end).Hours(), 0.1)
			require.Equal(t, []any{"svc-1", 1.0, ""}, []any{entry["service_id"], entry["instances"], entry["delete_accepted_at"]})
			time.Sleep(time.Second)
			require.Empty(t, s.must(exitOK, "sweep", "-o", "json").doc(t)["entries"])
			require.Contains(t, s.live(), "svc-1")
		})
	}
}

// TestDeleteOfAMarkedEndpointAtAnotherAddress: the entry stays in doubt, and the command says so.
func TestDeleteOfAMarkedEndpointAtAnotherAddress(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat")...)
	own := s.env["SVC_BASE_URL"]
	s.env["SVC_BASE_URL"] = strings.Replace(own, "127.0.0.1", "localhost", 1)
	require.Contains(t, s.must(exitOK, "delete", "svc-1").stderr, "warning: svc-1 has the mark of the entry in doubt of the key chat, which is at another address and stays in doubt. Once it is deleted: svc forget chat --base-url "+own)
}

// TestAdoptionOfTheWrongEndpoint: it is undone, and nothing is deleted. The message of the second adopt shows the way.
func TestAdoptionOfTheWrongEndpoint_D22(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat")...)
	wrong := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	require.Contains(t, s.must(exitUsage, "adopt", "chat", "--undo").stderr, "has not adopted an endpoint")
	s.must(exitOK, "adopt", "chat", wrong, "--unmarked")
	require.Contains(t, s.must(exitUsage, "adopt", "chat", "svc-1").stderr, "it has adopted "+wrong+". If that is the wrong endpoint: svc adopt chat --undo")
	s.must(exitUsage, "adopt", "chat", wrong, "--undo")
	e := s.must(exitOK, "adopt", "chat", "--undo", "-o", "json")
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "the key chat is in doubt again, and "+wrong+" is as before")
	require.Equal(t, []string{""}, s.open())
	s.must(exitUnknown, "delete", "--key", "chat")
	s.must(exitOK, "adopt", "chat", "svc-1")
	e = s.must(exitLedger, "adopt", "chat", "--undo")
	require.Contains(t, e.stderr, "carries the mark")
	require.Contains(t, e.stderr, "svc-1 is the right endpoint, so nothing was undone. If you do not need it: svc delete --key chat\n", "C15")
	require.NotContains(t, e.stderr, "svc doctor")
	e = s.must(exitUsage, "adopt", "chat", wrong)
	require.Contains(t, e.stderr, "it has adopted svc-1, whose mark proves that the create of this entry made it. To see all entries: svc ls --all\n")
	require.NotContains(t, e.stderr, "--undo", "it would be refused_C15")
	s.must(exitOK, "delete", "--key", "chat")
	require.Equal(t, 1, s.srv.RunningInstances(), "of somebody else")
}

// TestForgetOfAnEndpointThatRuns: that is no fault of the ledger.
func TestForgetOfAnEndpointThatRuns(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	e := s.must(exitLedger, "forget", "chat", "-o", "json")
	require.Equal(t, []any{"endpoint_exists", true}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"]})
	require.Contains(t, e.stderr, "svc-1 is not forgotten: it may be running and billed. To delete it: svc delete svc-1")
	require.NotContains(t, e.stderr, "svc doctor")
}

// TestForgetNeedsTheProofOfADelete: one "not found" frees no key of an endpoint that runs. The proof is recorded as a
// deletion, and no delete is sent.
func TestForgetNeedsTheProofOfADelete(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: http.StatusNotFound, Body: `{"code":"not_found"}`, Times: 2})
	e := s.must(exitLedger, "forget", "chat", "-o", "json")
	require.Equal(t, []any{"endpoint_exists", true, "svc-1"}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"], e.doc(t)["service_id"]})
	require.Contains(t, e.stderr, "checking that it is deleted, for 40 s to a minute\n")
	require.Equal(t, []string{"svc-1"}, s.open())

	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1"))
	deletes := s.srv.RequestCount("DELETE", svctest.RouteEndpoint)
	e = s.must(exitTimeout, "forget", "chat", "--timeout", "3s", "-o", "json")
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "The entry of the key chat is as before. To go on: svc forget chat\n")
	e = s.must(exitOK, "forget", "chat", "-o", "json")
	require.Contains(t, e.stderr, "svc-1 is deleted, and the ledger has that now\nthe key chat is free again\n")
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.Equal(t, deletes, s.srv.RequestCount("DELETE", svctest.RouteEndpoint))
	require.Contains(t, s.must(exitOK, "ls", "--all").stdout, "deleted")
	require.Empty(t, s.open())
}

// TestForgetOfACreateThatEnds: it does not go on waiting when a live deployment has settled the entry, and names the
// endpoint.
func TestForgetOfACreateThatEnds(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{AfterEffect: true, Delay: 8 * time.Second})
	s.background(with(deploy, "--key", "chat")...)
	eventually(t, "the create", func() bool { return s.arrived("POST", svctest.RouteEndpoints) > 0 })
	b := s.background("forget", "chat", "--timeout", "30s", "-o", "json")
	require.Contains(t, s.must(exitTimeout, "forget", "chat", "--timeout", "1s").stderr, "The entry of the key chat is as before. To go on: svc forget chat\n")
	e := b.end()
	require.Equal(t, exitLedger, e.code, e.stderr)
	require.Equal(t, []any{"overtaken", true, "svc-1"}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"], e.doc(t)["service_id"]})
	require.Contains(t, e.stderr, "meanwhile: it is created, with the endpoint svc-1\n")
	require.Contains(t, e.stderr, "To delete the endpoint: svc delete svc-1\n")
	require.NotContains(t, e.stderr, "svc doctor")
}

// TestForgetOfAStoppedEndpoint: it exists, but is not billed.
func TestForgetOfAStoppedEndpoint(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.must(exitOK, "scale", "svc-1", "0")
	e := s.must(exitLedger, "forget", "chat", "-o", "json")
	require.Equal(t, false, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "svc-1 is not forgotten: it exists, with 0 instances: nothing of it is running or billed. To delete it: svc delete svc-1")
}

// TestAdoptionWithoutTheMarkThatIsOver: no sweep deletes it, and both commands that report it say what does.
func TestAdoptionWithoutTheMarkThatIsOver(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropBeforeEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat", "--lease", "1s")...)
	id := s.srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	s.must(exitOK, "adopt", "chat", id, "--unmarked")
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	require.Contains(t, s.must(exitFailed, "doctor").stdout, "no sweep deletes it: svc delete "+id)
	e := s.must(exitRunning, "sweep")
	require.Contains(t, e.stderr, id+" of the key chat was adopted without the mark, so no sweep deletes it. If it is yours: svc delete "+id)
	require.NotContains(t, e.stderr, "To try again")
	s.must(exitOK, "delete", id)
	require.Empty(t, s.open())
}

// TestServiceThatHangs: the ledger is not blamed for it.
func TestServiceThatHangs(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "over", "--lease", "1s")...)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "chat")...)
	time.Sleep(2100 * time.Millisecond)
	s.srv.Fault("*", svctest.RouteAny, svctest.Fault{Delay: time.Hour, Times: -1})
	for _, args := range [][]string{{"sweep"}, {"forget", "chat"}, {"forget", "over"}, {"extend", "chat", "1h"}, {"adopt", "chat", "svc-2"}} {
		e := s.run(with(args, "--timeout", "1s", "-o", "json")...)
		require.Equal(t, "timeout", e.doc(t)["error_kind"], "%q", args)
		require.NotContains(t, e.stderr, "ledger: ", "%q", args)
	}
}

// TestForgetFrom: "ls -o json" says from when an entry in doubt can be forgotten.
func TestForgetFrom(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, with(deploy, "--key", "a")...)
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	unknown := s.must(exitUnknown, with(deploy, "--key", "b", "-o", "json")...).doc(t)["unknown_create"].(map[string]any)
	for _, e := range s.must(exitOK, "ls", "-o", "json").doc(t)["entries"].([]any) {
		entry := e.(map[string]any)
		require.Equal(t, map[string]any{"a": "", "b": unknown["forget_from"]}[entry["key"].(string)], entry["forget_from"])
	}
}

// TestDeployOfAnEndpointWhoseLeaseIsOver: the next sweep deletes it, unless the lease gets longer.
func TestDeployOfAnEndpointWhoseLeaseIsOver(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	args := with(deploy, "--key", "chat")
	s.must(exitOK, args...)
	require.NotContains(t, s.must(exitOK, args...).stderr, "warning")
	s.must(exitOK, "extend", "chat", "1s")
	time.Sleep(2100 * time.Millisecond)
	require.Regexp(t, `warning: the lease of svc-1 is over since \d+s: the next "svc sweep" deletes it. To keep it: svc extend chat 8h`, s.must(exitOK, args...).stderr)
	require.NotContains(t, s.must(exitOK, with(args, "--lease", "8h")...).stderr, "warning", "it is longer now")
}

func TestCompletionOfAnUnknownShell(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Contains(t, s.must(exitUsage, "completion", "nosh").stderr, `there is no command "svc completion nosh"`)
	require.Contains(t, s.must(exitOK, "completion", "bash").stdout, "bash completion")
	require.Contains(t, s.must(exitUsage, "completion").stderr, "svc completion zsh")
	require.NotContains(t, s.must(exitTimeout, "wait", "svc-1", "--timeout", "1ms").stderr, "0 polls")
}

// TestAdoptNamesTheRightCommandLine: for an ID in place of KEY, the wrong order and a key that is not in doubt.
func TestAdoptNamesTheRightCommandLine(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, "svc-1", s.deployed("fine"))
	require.Contains(t, s.must(exitNotFound, "adopt", "nokey", "svc-1").stderr, `the key "nokey" has no open entry in the ledger. To see which keys have one: svc ls`)
	lose := func(key string) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		s.must(exitUnknown, with(deploy, "--key", key)...)
	}
	lose("chat")
	for _, tt := range []struct {
		code          int
		key, id, says string
	}{
		{exitNotFound, "svc-2", "chat", `"svc-2" is not a key in doubt, but "chat" is: KEY comes before ID; run: svc adopt chat svc-2`},
		{exitNotFound, "svc-2", "svc-2", "if svc-2 is the endpoint of the entry in doubt: svc adopt chat svc-2"},
		{exitUsage, "fine", "svc-2", `the entry of the key "fine" is not in doubt: its endpoint is svc-1; if svc-2 is the endpoint of the entry in doubt: svc adopt chat svc-2`},
		{exitNotFound, "chat", "chat", "chat is the key, and the service has no endpoint with that ID. With the ID that the service shows: svc adopt chat ID"},
	} {
		require.Contains(t, s.must(tt.code, "adopt", tt.key, tt.id).stderr, tt.says)
	}
	require.Contains(t, s.must(exitUsage, "adopt", "svc-2").stderr, "wrong number of arguments (1): svc adopt KEY ID")
	lose("more")
	require.Contains(t, s.must(exitNotFound, "adopt", "svc-2", "svc-2").stderr, "in doubt are chat, more")
	s.must(exitOK, "adopt", "chat", "svc-2")
}

// TestCommandsThatSettleAnEntryAtOnce: the one that comes second has reached its goal, or says what is there now. Nothing
// is wrong with the ledger.
func TestCommandsThatSettleAnEntryAtOnce(t *testing.T) {
	t.Parallel()
	read := [2]string{"GET", svctest.RouteEndpoint}
	list := [2]string{"GET", svctest.RouteFlavors}
	adopted := []string{"adopt", "chat", "svc-1"}
	for name, tt := range map[string]struct {
		before        []string // begins with a lost create if it is an adoption, and else with an endpoint
		first, second []string
		held          [2]string // the request of the second that the service holds while the first runs
		code          int       // of the second
		running       bool      // may_be_running of the second
		says          string
	}{
		"forget, forget":  {nil, []string{"forget", "chat"}, []string{"forget", "chat"}, list, exitOK, false, "meanwhile: it is forgotten\n"},
		"adopt, forget":   {nil, adopted, []string{"forget", "chat"}, list, exitLedger, true, "meanwhile: it is created, with the endpoint svc-1\n"},
		"forget, adopt":   {nil, []string{"forget", "chat"}, adopted, read, exitOK, true, ""},
		"adopt, adopt":    {nil, adopted, adopted, read, exitOK, true, "meanwhile: it is created, with the endpoint svc-1\n"},
		"adopt, another":  {nil, []string{"adopt", "chat", "svc-2", "--unmarked"}, adopted, read, exitLedger, true, "meanwhile: it is created, with the endpoint svc-2\n"},
		"undo, undo":      {[]string{"adopt", "chat", "svc-2", "--unmarked"}, []string{"adopt", "chat", "--undo"}, []string{"adopt", "chat", "--undo"}, read, exitOK, true, "is in doubt again"},
		"extend, extend":  {adopted, []string{"extend", "chat", "1h"}, []string{"extend", "chat", "2h"}, list, exitOK, true, ""},
		"delete, extend":  {adopted, []string{"delete", "svc-1"}, []string{"extend", "chat", "1h"}, list, exitLedger, false, "meanwhile: it is deleted, with the endpoint svc-1\n"},
		"delete, forget":  {adopted, []string{"delete", "svc-1"}, []string{"forget", "chat"}, read, exitOK, false, "svc-1 is deleted: another command has proved it\n"},
		"delete, delete":  {adopted, []string{"delete", "svc-1"}, []string{"delete", "svc-1"}, [2]string{"DELETE", svctest.RouteEndpoint}, exitOK, false, ""},
		"delete, of key":  {adopted, []string{"delete", "svc-1"}, []string{"delete", "--key", "chat"}, [2]string{"DELETE", svctest.RouteEndpoint}, exitOK, false, ""},
		"one is finished": {nil, []string{"forget", "chat"}, []string{"forget", "chat"}, [2]string{}, exitOK, false, "is forgotten already"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			later, hold := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}, 2*time.Second
			if tt.first[0] == "delete" && tt.second[0] != "delete" { // until the deletion is proved
				hold = 8 * time.Second
			}
			loseResponse(s)
			s.srv.AddEndpoint(svctest.Endpoint{Name: "chat", Instances: 1})
			if tt.before != nil {
				s.must(exitOK, tt.before...)
				later = nil // a list with the same Date as the one before it proves no deletion
			}
			if tt.held[0] != "" {
				s.srv.Fault(tt.held[0], tt.held[1], svctest.Fault{Header: later, Delay: hold})
			}
			s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // the service's clock moves on
			count := func() int {
				if tt.held[0] == "" {
					return 0
				}
				return s.arrived(tt.held[0], tt.held[1])
			}
			arrived := count()
			line := append(tt.second, "--timeout", "100s", "-o", "json")
			var e ended
			if tt.held[0] == "" {
				s.must(exitOK, tt.first...)
				e = s.run(line...)
			} else {
				b := s.background(line...)
				eventually(t, "the second has begun", func() bool { return count() > arrived })
				s.must(exitOK, tt.first...)
				e = b.end()
			}
			require.Equal(t, tt.code, e.code, e.stderr)
			require.Contains(t, e.stderr, tt.says)
			require.NotContains(t, e.stderr, "svc doctor")
			doc := e.doc(t)
			require.Equal(t, []any{tt.code != exitOK, tt.running}, []any{doc["error"] != nil, doc["may_be_running"]})
			if tt.code != exitOK {
				require.Equal(t, "overtaken", doc["error_kind"])
			}
		})
	}
}
