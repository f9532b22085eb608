package main

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// onTerminal runs the program with standard error on a terminal of 40 columns, and returns what
// the terminal received.
func (s *session) onTerminal(args ...string) (ended, string) {
	s.t.Helper()
	master, slave, err := pty.Open()
	require.NoError(s.t, err)
	require.NoError(s.t, pty.Setsize(slave, &pty.Winsize{Rows: 24, Cols: 40}))
	received := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(master)
		received <- string(b)
	}()
	cmd := s.command(args...)
	cmd.Stderr = slave
	e := s.finish(cmd)
	slave.Close()
	text := <-received
	master.Close()
	return e, text
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// TestNarrowTerminal: the line that moves never wraps, and is gone at the end.
func TestNarrowTerminal(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(8*time.Second))
	s.env["TERM"] = "xterm"
	s.srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(1)) // its text is long
	e, text := s.onTerminal(with(deploy, "--flavor", "flavor-1")...)
	require.Equal(t, exitOK, e.code, text)
	require.Equal(t, "svc-1\n", e.stdout)
	require.Contains(t, text, "svc-1 is initializing")
	require.Contains(t, text, "svc-1 could not be r")
	moving := 0
	for line := range strings.SplitSeq(text, "\n") {
		for i, part := range strings.Split(strings.TrimSuffix(line, "\r"), "\r") {
			part = escapes.ReplaceAllString(part, "")
			if i > 0 && strings.TrimSpace(part) != "" {
				moving++
			}
			if strings.Contains(part, "(") && strings.Contains(part, "s)") { // a moving line ends with the time
				require.LessOrEqual(t, uniseg.StringWidth(part), 40, "%q", part)
			}
		}
	}
	require.Greater(t, moving, 1, "%q", text)
	require.Regexp(t, `svc-1 is reached at [^\r\n]*\r\n$`, text)
}

// TestNoTerminal: TERM=dumb, CI and the flags make a log of whole lines.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
	}{
		"TERM=dumb": {map[string]string{"TERM": "dumb"}, nil},
		"CI":        {map[string]string{"TERM": "xterm", "CI": "true"}, nil},
		"plain":     {map[string]string{"TERM": "xterm"}, []string{"--progress", "plain"}},
		"none":      {map[string]string{"TERM": "xterm"}, []string{"--progress", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeployTime(3*time.Second))
			for k, v := range tt.env {
				s.env[k] = v
			}
			e, text := s.onTerminal(with(deploy, tt.args...)...)
			require.Equal(t, exitOK, e.code, text)
			require.NotContains(t, strings.ReplaceAll(text, "\r\n", "\n"), "\r")
			require.NotContains(t, text, "\x1b")
			require.Equal(t, name != "none", strings.Contains(text, "svc-1 is initializing after"), text)
			require.Equal(t, name == "CI", strings.Contains(text, "hint: with --key"), text)
		})
	}
}

// TestProgressAsJSON: every line of standard error is an object, also the error.
func TestProgressAsJSON(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithStatusPath("initializing", "unavailable"))
	e := s.must(exitDeleted, with(deploy, "--progress", "json", "-v")...)
	events := map[string]bool{}
	for line := range strings.Lines(e.stderr) {
		var event map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &event), line)
		require.NotEmpty(t, event["message"], line)
		events[event["event"].(string)] = true
	}
	require.Equal(t, map[string]bool{"note": true, "warning": true, "poll": true, "attempt": true, "error": true}, events)
}
