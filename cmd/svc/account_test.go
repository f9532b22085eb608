package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

const foreign = "token-of-another"

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
	require.Contains(t, s.must(exitNotFound, "get", "--key", "chat").stderr, "created with another token")
	require.Regexp(t, `(?m)^account +problem +not found, and created with another token: svc-1 of the key chat `, s.must(exitFailed, "doctor").stdout)

	e = s.must(exitRunning, "delete", "--key", "chat", "--missing-ok", "-o", "json")
	require.Equal(t, "other_token", e.doc(t)["error_kind"])
	require.Equal(t, true, e.doc(t)["may_be_running"])
	require.Contains(t, e.stderr, "svc forget chat --other-token")
	require.Equal(t, []string{"svc-1"}, s.open())
	require.Equal(t, 1, s.srv.RunningInstances())

	s.env["SVC_API_TOKEN"] = own
	require.NotContains(t, s.must(exitOK, "doctor").stdout, "account")
	s.must(exitOK, "delete", "--key", "chat")
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
	s.must(exitOK, "forget", "chat", "--other-token")
	require.Empty(t, s.open())
	s.must(exitOK, with(deploy, "--key", "chat")...)
	s.env["SVC_API_TOKEN"] = "the-old-token"
	s.must(exitOK, "delete", "--key", "chat")
}
