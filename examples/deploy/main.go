// Command deploy runs container images as dedicated endpoints from scripts and
// pipelines. Try it without an account, on a fake of the service inside the
// program:
//
//	go run ./examples/deploy deploy --fake --name demo --image registry.example/app:1
//	go run ./examples/deploy flavors --fake
//	go run ./examples/deploy scale --fake svc-1 2
//	go run ./examples/deploy --help
//
// Each of these commands starts a new fake. "deploy fake" serves one for a whole script.
// To use the real service, set its address and token in the environment:
//
//	export SVC_BASE_URL=https://… SVC_API_TOKEN=…
//	id=$(deploy deploy --name demo --image registry.example/app:1 --key demo)
//	url=$(deploy wait --url "$id")
//	deploy delete "$id"
//
// Standard output is for scripts: the ID, the status, the URL or, with --json, one
// JSON object per line. Everything else goes to standard error. The exit code says
// whether something may be running and billed; --help lists the codes. (go run turns
// every code except 0 into 1, so build the program: go build -o deploy ./examples/deploy.)
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

func main() {
	ctx, giveUp := interrupts(notify())
	t := &tool{stdout: os.Stdout, stderr: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), giveUp: giveUp}
	os.Exit(t.run(ctx, os.Args))
}

// tool is one run of the program.
type tool struct {
	stdout, stderr io.Writer
	terminal       bool            // stderr is a terminal
	giveUp         <-chan struct{} // is closed when the program is to stop waiting for the cleanup; nil: never
	options        []svc.Option    // additional options, for tests

	ending   atomic.Pointer[ending]
	client   *svc.Client
	json     bool
	url      bool // print the URL instead of the status
	wait     svc.WaitOptions
	found    bool // the endpoint existed, or its delete may have taken effect
	posted   bool // a create was sent
	progress progress
	result   result
	ledger   string // folder of --ledger
}

// run is the whole program: it returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	done := make(chan error, 1)
	go func() { done <- t.command(ctx, args) }()
	select {
	case err := <-done:
		return t.report(err)
	case <-t.giveUp:
	}
	select {
	case err := <-done: // the command ended at the same moment
		return t.report(err)
	default:
		return t.reportGivenUp()
	}
}

// command runs the command in args.
func (t *tool) command(ctx context.Context, args []string) error {
	started := false // the command line is valid
	begin := func(action cli.ActionFunc) cli.ActionFunc {
		return func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("unexpected argument %q", cmd.Args().First())
			}
			started = true
			t.result.command = cmd.Name
			return action(ctx, cmd)
		}
	}
	root := &cli.Command{
		Name: "deploy", Usage: "run container images as dedicated endpoints", Description: exitCodes,
		Writer: t.stdout, ErrWriter: t.stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // run reports the error
		Flags:          t.commonFlags(),
		Commands:       t.commands(begin),
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("there is no command %q", cmd.Args().First())
			}
			return cli.ShowAppHelp(cmd)
		},
	}
	for _, cmd := range append(root.Commands, root) {
		cmd.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return plainly(err) }
	}
	err := root.Run(ctx, args)
	if err != nil && !started {
		return usageError{err}
	}
	return err
}

func (t *tool) commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "base-url", Usage: "address of the service", Sources: cli.EnvVars("SVC_BASE_URL")},
		&cli.StringFlag{Name: "inference-url", Usage: "base address of the endpoints", Sources: cli.EnvVars("SVC_INFERENCE_URL")},
		&cli.BoolFlag{Name: "insecure-http", Usage: "allow an http:// address; anybody on the network path can then read the token"},
		&cli.BoolFlag{Name: "fake", Usage: "use a fake of the service, with a running endpoint svc-1", Sources: cli.EnvVars("SVC_FAKE")},
		&cli.StringFlag{
			Name: "ledger", Usage: "folder of the ledger, which records what may be running; share it among all programs that use the account",
			DefaultText: "svc-ledger in $XDG_STATE_HOME or ~/.local/state; on Windows and macOS in the folder for settings", Sources: cli.EnvVars("SVC_LEDGER"),
		},
		&cli.DurationFlag{Name: "timeout", Usage: "time limit for the whole command", Value: 30 * time.Minute},
		&cli.BoolFlag{Name: "json", Usage: "write JSON to standard output, one object per line", Destination: &t.json},
	}
}

// connected gives an action a client and a deadline.
func (t *tool) connected(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
		defer cancel()

		stop, err := t.connect(cmd)
		if err != nil {
			return usageError{err}
		}
		defer stop()
		t.result.ServiceID, t.result.Key = cmd.StringArg("ID"), cmd.String("key")
		t.result.running = slices.Contains(atStake, cmd.Name) && (cmd.Name != "deploy" || t.result.Key != "") // an assumption, until the outcome is known
		t.ifGivenUp(context.Canceled)
		t.progress = progress{w: t.stderr, moving: t.terminal}
		defer t.progress.end()
		t.wait.OnPoll = t.progress.poll
		return action(ctx, cmd)
	}
}

// connect makes the client. The token comes from the environment only: a command
// line can be read by every user of a machine.
func (t *tool) connect(cmd *cli.Command) (stop func(), err error) {
	baseURL, token, inferenceURL := cmd.String("base-url"), os.Getenv("SVC_API_TOKEN"), cmd.String("inference-url")
	stop, t.ledger = func() {}, cmp.Or(cmd.String("ledger"), defaultLedger())
	var store ledger.Store
	if cmd.Bool("fake") {
		srv := svctest.NewServer(svctest.WithDeployTime(time.Second))
		srv.AddEndpoint(svctest.Endpoint{Name: "running", Instances: 1})
		baseURL, token, inferenceURL, stop = srv.URL(), srv.Token(), srv.InferenceURL(), srv.Close
		store = ledger.Memory()
		t.wait.MinInterval = 500 * time.Millisecond
	} else {
		store = openLedger(t.ledger)
	}
	opts := []svc.Option{svc.WithUserAgent("svc-example-deploy/1"), svc.WithAttemptHook(t.attempt), svc.WithLedger(store)}
	switch {
	case baseURL == "":
		return nil, errors.New("no address: set SVC_BASE_URL or --base-url, or try --fake")
	case token == "":
		return nil, errors.New("no token: set SVC_API_TOKEN")
	case inferenceURL != "":
		opts = append(opts, svc.WithInferenceURL(inferenceURL))
	}
	if cmd.Bool("insecure-http") {
		opts = append(opts, svc.WithInsecureHTTP())
	} else if strings.HasPrefix(strings.ToLower(baseURL), "http:") {
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w (in this program: --insecure-http)", err)
			}
		}()
	}
	t.client, err = svc.NewClient(baseURL, append(append(opts, svc.WithToken(token)), t.options...)...)
	return stop, err
}
