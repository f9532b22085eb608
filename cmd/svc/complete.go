package main

import (
	"context"
	"slices"
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
		if _, known := t.argument(c, arguments[0]); known {
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
	find, _ := t.argument(cmd, arguments[n])
	afterDashes := func(word string) bool { return strings.HasPrefix(word, "-") } // such a key is an argument only after --
	return slices.DeleteFunc(complete(cmd, find), afterDashes), cobra.ShellCompDirectiveNoFileComp
}

// argument returns the words for an argument of a command. Some have no words.
func (t *tool) argument(cmd *cobra.Command, name string) (find words, known bool) {
	accepts, settles := settled[cmd.Name()]
	group := cmd.Parent().Name()
	switch name = strings.TrimSuffix(name, "..."); {
	case settles:
		accepts := func(e ledger.Entry) bool { return accepts(cmd, e) }
		return t.entryWords(accepts, map[string]func(ledger.Entry) string{"KEY": keyWord, "ID": idWord}[name]), true
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

// settled has, by its name, which entries a command accepts that settles them. Forget accepts a created
// entry too if the service does not find its endpoint, which is not known here.
var settled = map[string]func(*cobra.Command, ledger.Entry) bool{
	"adopt": func(cmd *cobra.Command, e ledger.Entry) bool {
		if undo := cmd.Flag("undo"); undo.Changed {
			return e.State == ledger.Created && e.Adopted
		}
		return e.Open() && e.State != ledger.Created || e.State == ledger.Forgotten
	},
	"forget": func(cmd *cobra.Command, e ledger.Entry) bool {
		byName := cmd.Flag("id").Changed || cmd.Flag("other-token").Changed
		return e.Open() && (e.State != ledger.Created || byName)
	},
}

// entryWords returns a function that finds a word for each entry of the ledger that is accepted. An error
// means no words: a shell has no place for it.
func (t *tool) entryWords(accepts func(ledger.Entry) bool, word func(ledger.Entry) string) words {
	return func(ctx context.Context) (found []string) {
		stop, err := t.connect(ctx, &command{Command: t.root, client: wantsClient, ledger: readsLedger})
		if err != nil {
			return nil
		}
		defer stop()
		entries, _ := t.client.Ledger.Entries(ctx)
		for _, e := range entries {
			if w := word(e); accepts(e) && w != "" && !slices.Contains(found, w) {
				found = append(found, w)
			}
		}
		return found
	}
}

func keyWord(e ledger.Entry) string {
	return e.Key + "\t" + printable(strings.TrimSpace(e.Name+" "+e.ServiceID))
}

func idWord(e ledger.Entry) string {
	if e.ServiceID == "" {
		return ""
	}
	return e.ServiceID + "\t" + printable(e.Name)
}

func (t *tool) keys(ctx context.Context) []string {
	return t.entryWords(ledger.Entry.Open, keyWord)(ctx)
}

func (t *tool) endpointIDs(ctx context.Context) []string {
	return t.entryWords(ledger.Entry.Open, idWord)(ctx)
}

func (t *tool) flavorIDs(ctx context.Context) (found []string) {
	if t.makeClient(ctx, &command{client: needsClient}, nil) != nil {
		return nil
	}
	flavors, _ := t.client.Flavors.Find(ctx, svc.FlavorQuery{}, svc.WithMaxAttempts(1))
	for _, f := range flavors {
		found = append(found, f.FlavorID+"\t"+printable(f.DisplayName)+", "+f.Billing.USDPriceUnit.String()+" USD")
	}
	return found
}

func (t *tool) fileIDs(ctx context.Context) (found []string) {
	if t.makeClient(ctx, &command{client: needsClient}, nil) != nil {
		return nil
	}
	files, _ := t.client.Files.List(ctx, svc.WithMaxAttempts(1))
	for _, f := range files {
		found = append(found, f.ID+"\t"+printable(f.FileName))
	}
	return found
}
