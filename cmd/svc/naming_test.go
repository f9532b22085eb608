package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// lineOf returns a command line of a command that works, or is about an endpoint that exists.
func lineOf(c *command) (name, args []string) {
	line, ok := badLines[schemaName(c)]
	if !ok {
		line = strings.TrimPrefix(successes[schemaName(c)], "-")
	}
	return strings.Split(schemaName(c), "-"), strings.Fields(line)
}

// TestOneKeyAndOneID: a second --key or --id is refused by each command that has it, before anything is sent. It would
// silently take the place of the first one.
func TestOneKeyAndOneID(t *testing.T) {
	t.Parallel()
	s := outcomesSession(t)
	tried := 0
	for _, c := range allCommands(t) {
		for _, flag := range []string{"key", "id"} {
			if c.Flags().Lookup(flag) == nil {
				continue
			}
			tried++
			name, args := lineOf(c)
			s.srv.ResetRequests()
			line := slices.Concat(name, []string{"--" + flag, "chat", "--" + flag + "=chat"}, slices.DeleteFunc(args, func(word string) bool { return word == "--key" }))
			require.Contains(t, s.must(exitUsage, line...).stderr, `for "--`+flag+`" flag: it can be given only once`, line)
			require.Empty(t, s.srv.Requests(), line)
		}
	}
	require.GreaterOrEqual(t, tried, 9)
}

// TestWhatCannotBeAnID: each command refuses it with 64 before anything is sent, and no control character gets to a
// terminal.
func TestWhatCannotBeAnID(t *testing.T) {
	t.Parallel()
	s := outcomesSession(t)
	wrong := []string{"svc-1\r", "svc-1\n", "\tsvc-1", "svc-1\u2028", "a b", "a,b", "x\x1b]0;title\a", "../x", "...", ""}
	tried := 0
	for _, c := range allCommands(t) {
		words := strings.Fields(c.Use)
		i := slices.IndexFunc(words, func(word string) bool { return word == "ID" || word == "ID..." })
		if i < 0 {
			continue
		}
		tried++
		name, args := lineOf(c)
		if schemaName(c) == "get" {
			args = []string{"svc-1"}
		}
		for _, id := range wrong {
			s.srv.ResetRequests()
			args[i-1] = id
			e := s.must(exitUsage, append(slices.Clip(name), args...)...)
			require.Contains(t, e.stderr, "svc: ", id)
			require.False(t, strings.ContainsFunc(strings.ReplaceAll(e.stderr, "\n", ""), unicode.IsControl), "%q", e.stderr)
			require.Empty(t, s.srv.Requests(), "%q %q", name, id)
		}
	}
	require.GreaterOrEqual(t, tried, 10)
}

// TestAdviceWithAnOddID: a shell that runs the advice passes the ID on as it is.
func TestAdviceWithAnOddID(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 500, Times: -1})
	for _, id := range []string{"x;date", "$(id)", "`id`", "a|b", "a>b", "a'b", `a"b`, "*", "#x", "~", "a&b", "-x", "!x", "{a}"} {
		for _, verb := range []string{"delete", "scale"} {
			line := []string{verb, "--timeout", "10ms", "--", id}
			want := []string{"delete", id}
			if verb == "scale" {
				line, want = append(line, "1"), []string{"get", id}
			}
			e := s.run(line...)
			require.NotZero(t, e.code)
			_, advice, found := strings.Cut(e.stderr, ": svc "+want[0])
			require.True(t, found, e.stderr)
			advice, _, _ = strings.Cut(advice, "\n")
			out, err := exec.CommandContext(t.Context(), "bash", "-c", "svc() { printf '<%s>' \"$@\"; }; svc "+want[0]+advice).Output()
			require.NoError(t, err, advice)
			require.Equal(t, "<"+want[0]+"><"+id+">", strings.ReplaceAll(string(out), "<-->", ""), advice)
		}
	}
	e := s.run("delete", "--timeout", "10ms", "a*", "b;c")
	require.Contains(t, e.stderr, ": svc delete 'a*' 'b;c'\n")
}

// TestMistakeInASettingThatIsNotUsed: SVC_INFERENCE_URL does not keep what lowers the bill from running, and nothing keeps
// "svc ls" from it. No address is shown that may hold a password.
func TestMistakeInASettingThatIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"models.example", "https://user:passw0rd@models.example"} {
		s := newSession(t)
		s.must(exitOK, with(deploy, "--key", "chat")...)
		s.must(exitOK, with(deploy, "--key", "other", "--lease", "1s")...)
		s.env["SVC_INFERENCE_URL"] = wrong
		for _, line := range []string{"ls", "scale svc-1 0", "sweep --dry-run", "extend other 8h", "flavors", "files ls", "delete --key chat", "delete svc-2"} {
			e := s.must(exitOK, strings.Fields(line)...)
			require.Contains(t, e.stderr, "warning: SVC_INFERENCE_URL is not used: inference URL: must ")
			require.NotContains(t, e.stderr+e.stdout, "passw0rd")
		}
		require.Zero(t, s.srv.RunningInstances())
		for _, line := range []string{"get svc-1", "url svc-1", "wait svc-1", "deploy --name n --image i", "run --name n --image i -- true"} {
			require.Contains(t, s.must(exitUsage, strings.Fields(line)...).stderr, "inference URL: must ", line)
		}
		require.Equal(t, 2, s.srv.RequestCount("POST", svctest.RouteEndpoints))
	}
	for set, text := range map[string]string{
		"SVC_BASE_URL=http://gpu.internal": "plain http", "SVC_BASE_URL=htp:/x": "base URL", "SVC_BASE_URL=https://user:passw0rd@host?q": "base URL", "SVC_INSECURE_HTTP=TRUE": "SVC_INSECURE_HTTP",
	} {
		s := newSession(t)
		s.must(exitOK, with(deploy, "--key", "chat")...)
		name, value, _ := strings.Cut(set, "=")
		s.env[name] = value
		e := s.must(exitOK, "ls")
		require.Contains(t, e.stdout, "svc-1", set)
		require.NotContains(t, e.stderr+e.stdout, "passw0rd")
		require.Contains(t, s.must(exitUsage, "sweep").stderr, text, set)
	}
}
