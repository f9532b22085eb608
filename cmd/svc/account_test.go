package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

const foreign = "token-of-another"

// TestAdviceNamesTheCause: not a lease that is over if the token is of another account, and not --replace, which keeps
// an endpoint that is initializing.
func TestAdviceNamesTheCause(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithForeignToken(foreign))
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
	s.srv.SetStatus("svc-1", svctest.StatusInitializing)
	e := s.must(exitRunning, with(deploy, "--key", "chat", "--timeout", "3s")...)
	require.NotContains(t, e.stderr, "--replace")
	s.env["SVC_API_TOKEN"] = foreign
	e = s.must(exitNotFound, "get", "svc-1")
	require.Contains(t, e.stderr, "Check the token")
	require.NotContains(t, e.stderr, "its lease was over")
}

// TestNotFoundOfAnotherAccountProvesNothing: the token of another account does not find an endpoint that
// runs. No command closes its entry, or says that nothing runs.
func TestNotFoundOfAnotherAccountProvesNothing(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithForeignToken(foreign))
	s.must(exitOK, with(deploy, "--key", "chat")...)
	own := s.env["SVC_API_TOKEN"]
	s.env["SVC_API_TOKEN"] = foreign

	e := s.must(exitRefused, "forget", "chat", "-o", "json")
	require.Equal(t, "other_token", e.doc(t)["error_kind"])
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "created with another token")
	require.Contains(t, e.stderr, "svc forget chat --other-token")
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"get", "--key", "chat"}, exitNotFound},
		{[]string{"get", "svc-1"}, exitNotFound},
		{[]string{"url", "SVC-1"}, exitNotFound},
		{[]string{"scale", "svc-1", "2"}, exitNotFound},
		{[]string{"wait", "svc-1", "--timeout", "6s"}, exitTimeout},
		{[]string{"delete", "svc-1", "--timeout", "6s"}, exitRunning},
		{[]string{"delete", "--key", "chat", "--timeout", "6s"}, exitRunning},
		{with(deploy, "--key", "chat", "--timeout", "6s"), exitRunning},
	} {
		e := s.must(tt.code, tt.args...)
		require.Contains(t, e.stderr, "Check the token: the ledger has svc-1 (key chat) as created with another token.", "%q", tt.args)
		require.NotContains(t, e.stderr, "--replace", "%q", tt.args)
	}
	require.NotContains(t, s.must(exitNotFound, "get", "svc-9").stderr, "another token")
	const lease = "warning: not found, and created with another token: svc-1 of the key chat. If that is of another account, only a sweep with its token deletes them when their lease is over."
	require.Contains(t, s.must(exitOK, "extend", "chat", "8h").stderr, lease)
	require.NotContains(t, s.must(exitOK, "extend", "chat", "0").stderr, "another token", "no sweep deletes it")
	require.Regexp(t, `(?m)^account +problem +not found, and created with another token: svc-1 of the key chat `, s.must(exitFailed, "doctor").stdout)

	e = s.must(exitRunning, "delete", "--key", "chat", "--missing-ok", "-o", "json")
	require.Equal(t, "other_token", e.doc(t)["error_kind"])
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "svc forget chat --other-token")
	require.Contains(t, e.stderr, "To try again, with the token of the account that created it: svc delete svc-1")
	e = s.must(exitOK, with(deploy, "--key", "chat", "--dry-run")...)
	require.Contains(t, e.stderr, "the command would create nothing, and fail: the service does not find svc-1, and the ledger has it as created with another token.")
	require.NotContains(t, e.stderr, "creates another one")
	require.Equal(t, []string{"svc-1"}, s.open())
	require.Equal(t, 1, s.srv.RunningInstances())

	s.env["SVC_API_TOKEN"] = own
	require.NotContains(t, s.must(exitOK, "extend", "chat", "8h").stderr, "another token")
	require.NotContains(t, s.must(exitOK, "doctor").stdout, "account")
	s.must(exitOK, "delete", "--key", "chat")
}

// TestSweepWithTheTokenOfAnotherAccount: another sweep with this token does not help.
func TestSweepWithTheTokenOfAnotherAccount(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithForeignToken(foreign))
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
	s.must(exitOK, with(deploy, "--key", "later", "--lease", "8h")...)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
	require.NotContains(t, s.must(exitOK, "sweep", "--dry-run").stderr, "warning")
	s.env["SVC_API_TOKEN"] = foreign
	e := s.must(exitRunning, "sweep", "-o", "json")
	require.Contains(t, e.stderr, "warning: not found, and created with another token: svc-2 of the key later. If")
	require.NotContains(t, e.stderr, "svc-2 is not")
	require.Contains(t, e.stderr, "svc-1 of the key chat: sweep with the token of the account that created it. If it does not exist: svc forget chat --other-token")
	require.NotContains(t, e.stderr, "To try again")
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Equal(t, []string{"svc-1", "svc-2"}, s.open())
	require.Equal(t, 2, s.srv.RunningInstances())
}

// TestNewTokenOfTheSameAccount: it finds what the old one has created, and can forget what does not exist.
func TestNewTokenOfTheSameAccount(t *testing.T) {
	t.Parallel()
	patient(t)
	s := newSession(t, svctest.WithSecondToken("the-old-token"))
	own := s.env["SVC_API_TOKEN"]
	s.env["SVC_API_TOKEN"] = "the-old-token"
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.env["SVC_API_TOKEN"] = own
	require.NotContains(t, s.must(exitOK, "doctor").stdout, "account")
	require.NoError(t, s.srv.Client().InferenceServices.Delete(t.Context(), "svc-1"))
	s.must(exitRunning, "delete", "--key", "chat", "--missing-ok")
	s.must(exitRefused, "forget", "chat")
	require.Contains(t, s.must(exitOK, "forget", "chat", "--other-token").stderr, "on your word")
	require.Empty(t, s.open())
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.env["SVC_API_TOKEN"] = "the-old-token"
	s.must(exitOK, "delete", "--key", "chat")
}

// TestTokenIsDoubtedAlsoIfADeleteIsCutOff: a delete without a response may have taken effect, but nothing has shown the endpoint.
func TestTokenIsDoubtedAlsoIfADeleteIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithForeignToken(foreign))
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.env["SVC_API_TOKEN"] = foreign
	s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{}, svctest.Fault{Delay: time.Hour, Times: -1})
	e := s.must(exitRunning, "delete", "svc-1", "--timeout", "5s")
	require.Contains(t, e.stderr, "Check the token: the ledger has svc-1 (key chat) as created with another token.")
}
