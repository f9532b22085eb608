package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestInputThatNeverComes: the time limit and the first signal end each command that waits for a pipe, and nothing is sent. The
// text names the pipe, and the advice has the endpoint of the command line, also if the program is given up.
func TestInputThatNeverComes(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.must(exitOK, "ledger", "init")
	limit := regexp.MustCompile(`waiting for .+: the time limit is over\n`)
	for line, want := range map[string]struct {
		timeout, signal int
		advice          string
	}{
		"sweep --token-file pipe":                     {exitRunning, exitRunning, "To try again: svc sweep --token-file pipe\n"},
		"delete svc-1 --token-file pipe":              {exitRunning, exitRunning, "svc-1 may still be running and billed. To try again: svc delete svc-1 --token-file pipe\n"},
		"delete svc-1 svc-2 --token-file pipe":        {exitRunning, exitRunning, "svc-1 svc-2 may still be running and billed. To try again: svc delete svc-1 svc-2 --token-file pipe\n"},
		"scale svc-1 2 --token-file pipe":             {exitRunning, exitRunning, "To see how many: svc get svc-1 --token-file pipe\n"},
		"get svc-1 --token-file pipe":                 {exitTimeout, exitInterrupted, ""},
		"wait svc-1 --token-file pipe":                {exitTimeout, exitInterrupted, ""},
		"ls --token-file pipe":                        {exitTimeout, exitInterrupted, ""},
		"flavors --token-file pipe":                   {exitTimeout, exitInterrupted, ""},
		"deploy --name n --image i --token-file pipe": {exitTimeout, exitInterrupted, ""},
		"deploy --file pipe":                          {exitTimeout, exitInterrupted, ""},
		"deploy --file -":                             {exitTimeout, exitInterrupted, ""},
		"deploy --file pipe --key k":                  {exitRunning, exitRunning, "Nothing was created. An endpoint of the key k may be running and billed."},
		"run --file pipe -- true":                     {exitTimeout, exitInterrupted, ""},
		"files upload pipe":                           {exitTimeout, exitInterrupted, ""},
		"fake --request-log pipe":                     {exitTimeout, exitInterrupted, ""},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := &session{t: t, srv: s.srv, env: s.env}
			folder := t.TempDir()
			makeFifo(t, filepath.Join(folder, "pipe"))
			start := func(flags ...string) *background {
				stdin, silent, err := os.Pipe()
				require.NoError(t, err)
				t.Cleanup(func() { stdin.Close(); silent.Close() })
				words := strings.Fields(line)
				b := &background{s: s, cmd: s.command(append([]string{words[0]}, append(flags, words[1:]...)...)...)}
				b.cmd.Dir = folder
				b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = stdin, &b.stdout, &b.stderr
				s.start(b.cmd)
				return b
			}
			e := start("--timeout", "1s").end()
			require.Equal(t, want.timeout, e.code, e.stderr)
			require.Regexp(t, limit, e.stderr)
			require.Contains(t, e.stderr, want.advice)
			for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGQUIT} {
				b := start()
				if strings.Contains(line, "-file pipe") {
					awaitReader(t, filepath.Join(folder, "pipe"))
				} else { // nothing shows that it waits; an upload that has its pipe goes on
					time.Sleep(4 * time.Second)
				}
				b.signal(sig)
				e := b.end()
				require.Equal(t, want.signal, e.code, e.stderr)
				require.Contains(t, e.stderr, "interrupted by SIG")
				require.Contains(t, e.stderr, want.advice)
			}
		})
	}
	t.Cleanup(func() { require.Empty(t, s.srv.Requests()) })
}

// TestInputOfAPipe: a pipe that has a writer is read to its end.
func TestInputOfAPipe(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	pipe := filepath.Join(s.env["HOME"], "pipe")
	makeFifo(t, pipe)
	go func() {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err == nil {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(w, "name: piped\ndeploy_metadata: {image_url: i}\n")
			_ = w.Close()
		}
	}()
	doc := s.must(exitOK, "deploy", "--file", "pipe", "--dry-run", "-o", "json").doc(t)
	require.Equal(t, "piped", doc["request"].(map[string]any)["name"])
}

// TestJobWhoseOutputHasNoLink is no mistake of the caller.
func TestJobWhoseOutputHasNoLink(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddVideoJobs(1)
	var body json.RawMessage
	s.must(exitOK, "jobs", "get", "job-1")
	require.NoError(t, s.srv.Client().Do(t.Context(), "GET", s.srv.Requests()[0].Path, nil, &body))
	without := regexp.MustCompile(`"media_url": ?"[^"]+"`).ReplaceAllString(string(body), `"media_url":""`)
	require.NotEqual(t, string(body), without)
	s.srv.Fault("GET", svctest.RouteVideoJob, svctest.Fault{Status: 200, Body: without, Times: -1})
	e := s.must(exitFailed, "jobs", "download", "job-1")
	require.Contains(t, e.stderr, "the service has no link for it, so there is nothing to download")
	require.NotContains(t, e.stderr, "--help")
}

func TestParseDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "1d0.5h": 24*time.Hour + 30*time.Minute, "0d": 0, "-1h": -time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		got, err := parseDays(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "d", "1d1", "1dd", "1d1d", "1d-1h", "1d+1h", "-1d", "106752d", "106751d1h", "106751d2562047h", "12h1d", "1d 1h"} {
		_, err := parseDays(text)
		require.Error(t, err, text)
	}
}
