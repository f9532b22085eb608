package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/svc"
	"example.com/svc/ledger"
)

// completionTime is how long a shell waits for words.
const completionTime = 3 * time.Second

// words finds the words that complete a flag or an argument. A word is followed by a tab and its
// description.
type words func(context.Context) []string

// addCompletion adds completion to all commands below parent: of flags by their name, and of
// arguments by what Use calls them.
func (t *tool) addCompletion(parent *cobra.Command) {
	parent.PersistentFlags().VisitAll(func(f *pflag.Flag) { t.completeFlag(parent, f) })
	for _, c := range parent.Commands() {
		t.addCompletion(c)
		c.Flags().VisitAll(func(f *pflag.Flag) { t.completeFlag(c, f) })
		arguments := strings.Fields(c.Use)[1:]
		if len(arguments) == 0 {
			continue
		}
		if _, known := t.argument(parent.Name(), arguments[0]); known {
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				return t.completeArgument(cmd, arguments, len(args))
			}
		}
	}
}

func (t *tool) completeFlag(c *cobra.Command, f *pflag.Flag) {
	var find words
	switch f.Name {
	case "key":
		find = t.keys
	case "flavor":
		find = t.flavorIDs
	default:
		if allowed, ok := f.Value.(*choice); ok {
			find = func(context.Context) []string { return allowed.of }
		}
	}
	if find != nil {
		_ = c.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd, find), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completeArgument completes the argument n, counted from 0.
func (t *tool) completeArgument(cmd *cobra.Command, arguments []string, n int) ([]string, cobra.ShellCompDirective) {
	if key := cmd.Flag("key"); key != nil && key.Changed {
		n++ // --key stands for the ID
	}
	last := len(arguments) - 1
	if n > last && strings.HasSuffix(arguments[last], "...") {
		n = last
	}
	if n > last {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.Contains(arguments[n], "F") { // FILE and FOLDER
		return nil, cobra.ShellCompDirectiveDefault
	}
	find, _ := t.argument(cmd.Parent().Name(), arguments[n])
	return complete(cmd, find), cobra.ShellCompDirectiveNoFileComp
}

// argument returns the words for an argument of a command in a group. Some have no words.
func (t *tool) argument(group, name string) (find words, known bool) {
	switch name = strings.TrimSuffix(name, "..."); {
	case name == "KEY":
		return t.keys, true
	case name == "ID" && group == "files":
		return t.fileIDs, true
	case name == "ID" && group == "jobs":
		return nil, true
	case name == "ID":
		return t.endpointIDs, true
	}
	return nil, strings.HasPrefix(name, "FILE")
}

func complete(cmd *cobra.Command, find words) []string {
	if find == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	return find(ctx)
}

// openEntries reads the ledger. An error means no words: a shell has no place for it.
func (t *tool) openEntries(ctx context.Context) (open []ledger.Entry) {
	c := &command{Command: t.root, client: wantsClient, ledger: readsLedger}
	stop, err := t.connect(ctx, c)
	if err != nil {
		return nil
	}
	defer stop()
	entries, _ := t.client.Ledger.Entries(ctx)
	for _, e := range entries {
		if e.Open() {
			open = append(open, e)
		}
	}
	return open
}

func (t *tool) keys(ctx context.Context) (found []string) {
	for _, e := range t.openEntries(ctx) {
		found = append(found, e.Key+"\t"+printable(strings.TrimSpace(e.Name+" "+e.ServiceID)))
	}
	return found
}

func (t *tool) endpointIDs(ctx context.Context) (found []string) {
	for _, e := range t.openEntries(ctx) {
		if e.ServiceID != "" {
			found = append(found, e.ServiceID+"\t"+printable(e.Name))
		}
	}
	return found
}

func (t *tool) flavorIDs(ctx context.Context) (found []string) {
	if t.makeClient(&command{client: needsClient}, nil) != nil {
		return nil
	}
	flavors, _ := t.client.Flavors.Find(ctx, svc.FlavorQuery{}, svc.WithMaxAttempts(1))
	for _, f := range flavors {
		found = append(found, f.FlavorID+"\t"+printable(f.DisplayName)+", "+f.Billing.USDPriceUnit.String()+" USD")
	}
	return found
}

func (t *tool) fileIDs(ctx context.Context) (found []string) {
	if t.makeClient(&command{client: needsClient}, nil) != nil {
		return nil
	}
	files, _ := t.client.Files.List(ctx, svc.WithMaxAttempts(1))
	for _, f := range files {
		found = append(found, f.ID+"\t"+printable(f.FileName))
	}
	return found
}
