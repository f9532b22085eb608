package main

import (
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
