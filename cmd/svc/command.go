package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.com/svc"
	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// stake is the effect that a command may have on endpoints.
type stake int

const (
	nothing stake = iota // the command is about no endpoint
	reads                // it reads endpoints or the ledger: a failure changes nothing
	changes              // it creates, scales or deletes: after a failure an endpoint may be running
)

// success is what the success of a command says about its endpoint. It is checked at the end: see tool.lookAgain.
type success int

const (
	silent  success = iota // nothing
	isThere                // the endpoint exists
	stays                  // it is not being deleted
)

// ledgerUse is how a command uses the ledger.
type ledgerUse int

const (
	noLedger    ledgerUse = iota
	usesLedger            // records what happens where there is a ledger; with --key like readsLedger
	readsLedger           // fails if there is no ledger
	makesLedger           // makes a ledger at the default place if there is none
)

// clientUse is how a command uses the service.
type clientUse int

const (
	noClient    clientUse = iota
	wantsClient           // works without the address and the token of the service
	needsClient
)

// command is one command of the tool. Its function calls the library and returns a view. Its
// caller writes all output.
type command struct {
	*cobra.Command

	client       clientUse
	ledger       ledgerUse
	stake        stake
	success      success
	endless      bool // there is no time limit unless --timeout is given
	limitsItself bool // --timeout is not for the whole command: its function applies it
	// refuses names the global flags that the command cannot have, each with why. They are not in its help.
	refuses map[string]string
	// apart has the flags of which only one can be given.
	apart [][]string
	// dry points to the value of --dry-run of a command that makes a ledger: it makes none then.
	dry *bool
	// empty returns the view of a run that found nothing. Each list in it is [] and not nil.
	empty func() view
	// before is called with the arguments before the ledger is opened: it notes what the command line says about the
	// endpoint, and does not wait. If nil, nothing is.
	before func(args []string)
	// run does the work. With an error, it may return what it found, or nil for nothing.
	run func(ctx context.Context, args []string) (view, error)
	// onRecord is called with each record that the command adds to the ledger. If nil, nothing is.
	onRecord func(ledger.Record)
	// listed returns the records that the command has to see in place of those of the ledger. If nil, it sees those.
	listed func([]ledger.Record) []ledger.Record
	// onBegin is called at the begin of each call to the service. If nil, nothing is.
	onBegin func(svc.Call)
	// onCall is called at the end of each call to the service. If nil, nothing is.
	onCall func(svc.Call)
	// left returns what may be running after a failure, and what to run next, one line each.
	// If nil, the advice is to delete the endpoint.
	left func(facts) []string
	// advise returns what to do after a failure, one line each. If nil, or if it returns
	// nothing, the advice is about an endpoint.
	advise func(error) []string
}

// atStake reports whether the command is about an endpoint that may be running before it begins. A command that
// creates one is so only with a key.
func (c *command) atStake(keyed bool) bool {
	return c.stake != nothing && (c.ledger != makesLedger || keyed)
}

// add adds c to parent as a cobra command.
func (t *tool) add(parent *cobra.Command, c *command) {
	c.RunE = func(cmd *cobra.Command, args []string) error { return t.perform(cmd.Context(), c, args) }
	valid, none := c.Args, c.Args == nil
	if none {
		valid = cobra.NoArgs
	}
	for name := range c.refuses {
		hide(c.Command, parent.PersistentFlags().Lookup(name))
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(checkValues(cmd, args), c.checkPairs()); err != nil {
			return err
		}
		err := valid(cmd, args)
		switch {
		case none && len(args) > 0:
			err = fmt.Errorf("%s takes no arguments, but %q is one", cmd.CommandPath(), args[0])
			if args[0] == "true" || args[0] == "false" {
				err = fmt.Errorf("%w: it follows a flag with =, as in --wait=%s", err, args[0])
			}
		case err != nil && strings.Contains(err.Error(), "arg(s)"):
			err = fmt.Errorf("wrong number of arguments (%d): %s", len(args), cmd.UseLine())
		}
		return err
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	parent.AddCommand(c.Command)
	t.all = append(t.all, c)
}

// hide gives a command its own hidden flag in place of a global one, with the same value: it is in no help and no
// completion of the command.
func hide(c *cobra.Command, global *pflag.Flag) {
	own := *global
	own.Hidden = true
	c.Flags().AddFlag(&own)
}

// checkPairs returns an error if a flag is given that the command refuses, or two that cannot be used together.
func (c *command) checkPairs() error {
	for _, name := range slices.Sorted(maps.Keys(c.refuses)) {
		if f := c.Flag(name); f.Changed {
			return fmt.Errorf("-%s cannot be used: %s", cmp.Or(f.Shorthand, "-"+name), c.refuses[name])
		}
	}
	for _, names := range append(c.apart, []string{"quiet", "verbose"}) {
		given := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isSet(c.Flag(name)) })
		if len(given) > 1 {
			return fmt.Errorf("--%s cannot be used together", strings.Join(given, " and --"))
		}
	}
	return nil
}

// isSet reports whether a flag is given, and not only with the value that it has without that.
func isSet(f *pflag.Flag) bool {
	return f.Changed && (f.Value.Type() != "bool" || f.DefValue == "true" || f.Value.String() == "true")
}

// checkValues returns an error if a flag or an argument is empty, such as "$KEY" in a script where KEY is
// not set, or if a flag holds a control character. The arguments of CMD may be empty.
func checkValues(cmd *cobra.Command, args []string) error {
	if err := checkFlags(cmd.Flags()); err != nil || strings.Contains(cmd.Use, "CMD") {
		return err
	}
	names := strings.Fields(cmd.Use) // the first one is that of the command
	for i, arg := range args {
		name := names[min(i+1, len(names)-1)]
		flag, ok := flagOf[name]
		switch {
		case blank(arg):
			return fmt.Errorf("argument %d is empty: %s", i+1, cmd.UseLine())
		case ok && unfit(flag, arg) != "":
			return fmt.Errorf("%s %s, not %q: %s", strings.TrimSuffix(name, "..."), unfit(flag, arg), arg, cmd.UseLine())
		}
	}
	return nil
}

// flagOf maps an argument to the flag that has the same kind of text.
var flagOf = map[string]string{"KEY": "key", "ID": "id", "ID...": "id"}

// checkFlags returns an error for the first flag with a text that is not fit.
func checkFlags(flags *pflag.FlagSet) (problem error) {
	flags.Visit(func(f *pflag.Flag) {
		if r, has := ranges[f.Name]; has && problem == nil && !r.holds(f.Value) {
			problem = fmt.Errorf("--%s must be %s", f.Name, r.text)
		}
		if problem != nil || !strings.HasPrefix(f.Value.Type(), "string") {
			return // the others are parsed already
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			if values = list.GetSlice(); len(values) == 0 {
				values = []string{""}
			}
		}
		if i := slices.IndexFunc(values, func(value string) bool { return unfit(f.Name, value) != "" }); i >= 0 {
			problem = fmt.Errorf("--%s %s", f.Name, unfit(f.Name, values[i]))
		}
	})
	return problem
}

// once is a text that is given once: with two keys or IDs, a command would be about the second one only, and say nothing of
// the first.
type once struct {
	text  string
	given bool
}

func (o *once) String() string { return o.text }

// Type is that of a text in a help.
func (o *once) Type() string { return "string" }

// Set is called for each time that the flag is given.
func (o *once) Set(text string) error {
	if o.given {
		return errors.New("it can be given only once")
	}
	o.text, o.given = text, true
	return nil
}

// unfit returns what is wrong with the text of a flag, or of its field in --file. Only --command may have
// several lines.
func unfit(flag, text string) string {
	control := func(r rune) bool {
		return unicode.IsControl(r) && (flag != "command" || !unicode.IsSpace(r))
	}
	switch {
	case blank(text) && !strings.ContainsFunc(strings.TrimSpace(text), control):
		return "is empty"
	case strings.ContainsFunc(text, control):
		return "holds a control character, such as a line break"
	case flag == "key" && !ledger.ValidKey(text):
		return "must be " + keyRule
	case flag == "id" && strings.ContainsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }):
		return "must be one ID: several are arguments of their own"
	case flag == "id" && strings.Trim(text, ".") == "":
		return "must not hold only dots"
	case flag == "id":
		return valid.ID(text)
	case flag == "image" && strings.ContainsFunc(text, unicode.IsSpace):
		return "holds white space, which no name of an image has"
	case flag == "probe" && (!strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsFunc(text, unicode.IsSpace)):
		return "must be a path that begins with /, such as /health: the host is always the endpoint"
	case flag == "probe" && !isPath(text):
		return "has a % that begins no escape, such as %20: write %25 for it"
	}
	return ""
}

// isPath reports whether a text can be the path of a URL, with its query.
func isPath(text string) bool {
	_, err := url.Parse("http://host" + text)
	return err == nil
}

// blank reports whether nothing of a text can be seen.
func blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}

// group returns a command that has only subcommands.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: onlyCommands, SuggestionsMinimumDistance: 2}
}

// onlyCommands is the function of a command that has only subcommands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if form := cmd.Flag("output").Value.String(); len(args) == 0 && isDocument(form) {
		return usageError{fmt.Errorf("no command, so there is no document of -o %s: %s COMMAND", form, cmd.CommandPath())}
	}
	if len(args) == 0 && cmd.HasParent() {
		var lines []string
		for _, c := range cmd.Commands() {
			lines = append(lines, c.CommandPath())
		}
		return usageError{fmt.Errorf("%s needs a command: %s", cmd.CommandPath(), strings.Join(lines, ", "))}
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
	if len(args[0]) <= 2 { // two other letters are another word
		cmd.SuggestionsMinimumDistance = 1
	}
	near := cmd.SuggestionsFor(args[0])
	for _, c := range cmd.Commands() {
		if c.IsAdditionalHelpTopicCommand() && strings.HasPrefix(c.Name(), args[0]) {
			near = append(near, "help "+c.Name())
		}
	}
	if len(near) > 0 {
		text += ", but there is " + strings.Join(near, ", ")
	}
	return usageError{fmt.Errorf("%s", text)}
}

// helpOf shows the help of a command or topic. One that does not exist is an error.
func helpOf(cmd *cobra.Command, args []string) error {
	if form := cmd.Flag("output").Value.String(); isDocument(form) {
		return usageError{fmt.Errorf("help is text: it has no document of -o %s", form)}
	}
	found, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return onlyCommands(found, rest)
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

func (t *tool) rootCommand() *cobra.Command {
	root := group("svc", "run container images as dedicated endpoints")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetOut(t.stdout)
	root.SetErr(t.talk)
	t.addGlobals(root.PersistentFlags())
	for _, c := range t.commands() {
		t.add(root, c)
	}
	version := t.all[len(t.all)-1]
	root.AddCommand(t.filesGroup(), t.jobsGroup(), t.ledgerGroup())
	root.AddCommand(exitCodesTopic(), scriptingTopic())
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		c.Args, c.RunE = cobra.ArbitraryArgs, onlyCommands // a shell that does not exist is an error
		c.Long += "\n\nIn bash, completion needs the package bash-completion: without it, each Tab prints\n\"_get_comp_words_by_ref: command not found\"."
	}
	root.InitDefaultHelpCmd()
	if c, _, err := root.Find([]string{"help"}); err == nil && c != root {
		c.RunE = helpOf
	}
	help := root.HelpFunc()
	showVersion := root.Flags().Bool("version", false, "show the version of this program")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion && len(args) == 0 {
			return t.perform(cmd.Context(), version, nil)
		}
		return onlyCommands(cmd, args)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			help(cmd, args)
			return
		}
		_, _ = t.stdout.Write([]byte(rootHelp(root)))
	})
	t.addCompletion(root)
	return root
}

// commands lists the commands of the first level, in the order of their files.
func (t *tool) commands() []*command {
	return []*command{
		t.flavorsCommand(),
		t.deployCommand(),
		t.runCommand(),
		t.getCommand(),
		t.waitCommand(),
		t.urlCommand(),
		t.scaleCommand(),
		t.deleteCommand(),
		t.lsCommand(),
		t.sweepCommand(),
		t.adoptCommand(),
		t.forgetCommand(),
		t.extendCommand(),
		t.fakeCommand(),
		t.doctorCommand(),
		t.versionCommand(),
	}
}

// globals are the flags of all commands.
type globals struct {
	baseURL, inferenceURL, tokenFile string
	ledger                           string
	timeout                          time.Duration
	insecureHTTP                     bool
	output                           choice
	progress                         choice
	noHeaders, quiet, verbose        bool

	key string // --key of the command; empty if not given, or the command has no such flag
}

func (t *tool) addGlobals(f *pflag.FlagSet) {
	g := &t.flags
	g.output = choice{value: "table", of: []string{"table", "json", "yaml", "name"}}
	g.progress = choice{value: "auto", of: []string{"auto", "plain", "json", "none"}}
	f.StringVar(&g.baseURL, "base-url", "", "address of the service (SVC_BASE_URL)")
	f.StringVar(&g.inferenceURL, "inference-url", "", "base address of the endpoints (SVC_INFERENCE_URL)")
	f.StringVar(&g.tokenFile, "token-file", "", "file that holds the token, in place of SVC_API_TOKEN")
	f.StringVar(&g.ledger, "ledger", "", "folder, sqlite:FILE, postgres://… or none (SVC_LEDGER; default: "+shownDefault+")")
	g.timeout = 30 * time.Minute
	f.Var((*days)(&g.timeout), "timeout", "time limit for the whole command")
	f.BoolVar(&g.insecureHTTP, "insecure-http", false, "allow an http:// address: anybody on the network path can then read the token (SVC_INSECURE_HTTP=true)")
	f.VarP(&g.output, "output", "o", "form of the output: table, json, yaml or name (only IDs)")
	f.Var(&g.progress, "progress", "progress on standard error: auto, plain, json or none")
	f.BoolVar(&g.noHeaders, "no-headers", false, "no header above a table")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "only errors and warnings on standard error")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "each request on standard error, without secrets")
}

// choice is the value of a flag that allows only some words.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }

// Type is the name of the value in the help.
func (c *choice) Type() string { return "string" }

// Set refuses a word that is not allowed.
func (c *choice) Set(s string) error {
	for _, word := range c.of {
		if s == word {
			c.value = s
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
}
