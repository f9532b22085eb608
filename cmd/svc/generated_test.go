package main

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files that are made out of the program: schema/ and docs/cli/")

// generated compares files that are made out of the program with those in a folder, or writes them.
func generated(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	if *update {
		old, err := filepath.Glob(filepath.Join(dir, "*.*"))
		require.NoError(t, err)
		for _, file := range old {
			require.NoError(t, os.Remove(file))
		}
		require.NoError(t, os.MkdirAll(dir, 0o777))
		for name, text := range want {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o666))
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	require.NoError(t, err)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), names, "go generate ./... is due")
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, string(text), string(got), "%s: go generate ./... is due", name)
	}
}

// TestReferenceIsUpToDate: the Markdown pages and the man pages of all commands.
func TestReferenceIsUpToDate(t *testing.T) {
	root := newTool(nil, nil, nil, signals{ctx: t.Context()}).root
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // no dates
	markdown, man := map[string][]byte{}, map[string][]byte{}
	addReference(t, root, markdown, man)
	const docs = "../../docs/cli"
	generated(t, docs, markdown)
	generated(t, filepath.Join(docs, "man"), man)
}

func addReference(t *testing.T, c *cobra.Command, markdown, man map[string][]byte) {
	t.Helper()
	name := strings.ReplaceAll(c.CommandPath(), " ", "_")
	var text, page bytes.Buffer
	if c.IsAdditionalHelpTopicCommand() { // text with columns
		columns := "```\n" + strings.TrimSpace(c.Long) + "\n```"
		text.WriteString("## svc help " + c.Name() + "\n\n" + c.Short + "\n\n" + columns + "\n")
		defer func(whole string) { c.Long = whole }(c.Long)
		c.Long = columns
	} else {
		c.InitDefaultHelpFlag()
		require.NoError(t, doc.GenMarkdown(c, &text))
	}
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "svc", Manual: "svc", Date: &date}, &page))
	markdown[name+".md"] = append(bytes.TrimSpace(text.Bytes()), '\n')
	man[strings.ReplaceAll(name, "_", "-")+".1"] = page.Bytes()
	for _, below := range c.Commands() {
		if below.Name() != "help" && !below.Hidden {
			addReference(t, below, markdown, man)
		}
	}
}
