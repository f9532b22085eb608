package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
)

// TestHelpFitsOnOneScreen: the help of svc refers to the other topics, and no help is wider than a
// terminal.
func TestHelpFitsOnOneScreen(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		e := s.must(exitOK, args...)
		require.LessOrEqual(t, strings.Count(e.stdout, "\n"), 40)
		require.Contains(t, e.stdout, "svc help exit-codes")
		for line := range strings.Lines(e.stdout) {
			require.LessOrEqual(t, uniseg.StringWidth(strings.TrimSpace(line)), 100, line)
		}
	}
	require.Contains(t, s.must(exitOK, "help", "scripting").stdout, "set -euo pipefail")
	require.Contains(t, s.must(exitOK, "deploy", "--help").stdout, "--keep")
}

// TestHelpOfWhatDoesNotExist is a usage error, as the command itself is.
func TestHelpOfWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for topic, says := range map[string]string{
		"nosh": `there is no command "svc nosh"`, "delpoy": "there is deploy", "deploy nosh": `"svc deploy nosh"`, "files uplaod": "there is upload",
		"exit-code": "there is help exit-codes",
	} {
		e := s.must(exitUsage, with([]string{"help"}, strings.Fields(topic)...)...)
		require.Empty(t, e.stdout)
		require.Contains(t, e.stderr, says)
		require.Contains(t, e.stderr, "See: svc --help")
	}
	require.Contains(t, s.must(exitUsage, "exit-code").stderr, "there is help exit-codes")
	require.Equal(t, s.must(exitOK, "files", "upload", "--help").stdout, s.must(exitOK, "help", "files", "upload").stdout)
}

// TestHelpNamesOnlyCommandsAndFlags: no page has a name of Go.
func TestHelpNamesOnlyCommandsAndFlags(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/cli/*.md")
	require.NoError(t, err)
	require.Greater(t, len(pages), 30)
	all := ""
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Empty(t, goNames.FindString(string(text)), page)
		all += string(text)
	}
	for _, told := range []string{"0, the default: never", keyRule, "at least 40 s", "bash-completion", "0 means that there is no lease",
		fmt.Sprintf("it takes %v at most", cmdLimit+cleanupLimit), "Without --lease, which is the default, nothing deletes it"} {
		require.Contains(t, strings.Join(strings.Fields(all), " "), told)
	}
	s := newSession(t)
	require.Contains(t, s.must(exitUsage, "flavors", "--min-cuda", "new").stderr, "--min-cuda must be a version")
	require.Contains(t, s.must(exitUsage, "flavors", "--min-available", "-1").stderr, "--min-available must be a whole number from 0 to 2147483647")
	require.Contains(t, s.must(exitUsage, "scale", "svc-1", "3000000000").stderr, "INSTANCES must be a whole number from 0 to 2147483647")
	s.must(exitOK, "ledger", "init")
	require.Contains(t, s.must(exitUsage, "ledger", "prune").stderr, "--older-than is required")
	require.Contains(t, s.must(exitUsage, "deploy", "--image", "i", "--name", "\x7f").stderr, "--name holds a control character")
	require.Contains(t, s.must(exitUsage, "flavors", "--gpus", "-1").stderr, "--gpus must be a whole number from 0 to 2147483647")
	s.contents(10)
	require.Contains(t, s.must(exitUsage, "files", "upload", "data.jsonl", "--content-type", "a\nb").stderr, "--content-type holds")
}

// TestExitCodesAreExplained: the table has every code that the program can end with.
func TestExitCodesAreExplained_C28(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	text := s.must(exitOK, "help", "exit-codes").stdout
	codes := []int{exitOK, exitRunning, exitDeleted}
	for _, k := range kinds {
		codes = append(codes, k.code)
	}
	for _, code := range codes {
		require.True(t, slices.ContainsFunc(exitCodes, func(row []string) bool { return row[0] == strconv.Itoa(code) }), code)
		require.Regexp(t, `(?m)^`+strconv.Itoa(code)+` `, text)
	}
}
