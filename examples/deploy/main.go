// Command deploy runs container images as dedicated endpoints from scripts and
// pipelines. Try it without an account, on a fake of the service inside the
// program:
//
//	go run ./examples/deploy deploy --fake --name demo --image registry.example/app:1
//	go run ./examples/deploy flavors --fake
//	go run ./examples/deploy scale --fake svc-1 2
//	go run ./examples/deploy --help
//
// and on the real service with its address and token in the environment:
//
//	export SVC_BASE_URL=https://… SVC_API_TOKEN=…
//	id=$(deploy deploy --name demo --image registry.example/app:1 --delete-on-failure --id-file id)
//	deploy delete "$id"
//
// Standard output is for scripts: the id, the status or, with --json, one JSON
// object per line. All else goes to standard error. What a script must know about
// a failure is in the exit code; --help lists them. (go run reports them all as 1:
// go build -o deploy ./examples/deploy makes a program that does not.)
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"example.com/svc"
	"example.com/svc/svctest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends the program at once
	t := &tool{stdout: os.Stdout, stderr: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	os.Exit(t.run(ctx, os.Args))
}

// tool is one run of the program.
type tool struct {
	stdout, stderr io.Writer
	terminal       bool         // stderr is one
	options        []svc.Option // more of them, for tests

	client   *svc.Client
	json     bool
	wait     svc.WaitOptions
	progress progress
	result   result
}

// run is the whole program: it returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	started := false // the command line was understood
	begin := func(action cli.ActionFunc) cli.ActionFunc {
		return func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("what is %q for?", cmd.Args().First())
			}
			started = true
			return t.do(ctx, cmd, action)
		}
	}
	root := &cli.Command{
		Name: "deploy", Usage: "run container images as dedicated endpoints", Description: exitCodes,
		Writer: t.stdout, ErrWriter: t.stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // this function does it
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
		cmd.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err }
	}
	err := root.Run(ctx, args)
	if err != nil && !started {
		err = usageError{err}
	}
	return t.report(err)
}

func (t *tool) commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "base-url", Usage: "address of the service", Sources: cli.EnvVars("SVC_BASE_URL")},
		&cli.StringFlag{Name: "inference-url", Usage: "address below which endpoints are reached", Sources: cli.EnvVars("SVC_INFERENCE_URL")},
		&cli.BoolFlag{Name: "fake", Usage: "use a fake of the service, on which the endpoint svc-1 is running", Sources: cli.EnvVars("SVC_FAKE")},
		&cli.DurationFlag{Name: "timeout", Usage: "limit for the whole command", Value: 30 * time.Minute},
		&cli.BoolFlag{Name: "json", Usage: "write JSON to standard output, one object per line", Destination: &t.json},
	}
}

// do runs a command with a client and a deadline.
func (t *tool) do(ctx context.Context, cmd *cli.Command, action cli.ActionFunc) error {
	ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
	defer cancel()

	stop, err := t.connect(cmd)
	if err != nil {
		return usageError{err}
	}
	defer stop()
	t.result.ServiceID = cmd.StringArg("ID")
	t.progress = progress{w: t.stderr, moving: t.terminal}
	defer t.progress.end()
	t.wait.OnPoll = t.progress.poll
	return action(ctx, cmd)
}

// connect makes the client. The token comes from the environment only: a command
// line can be read by every user of a machine.
func (t *tool) connect(cmd *cli.Command) (stop func(), err error) {
	baseURL, token, inferenceURL := cmd.String("base-url"), os.Getenv("SVC_API_TOKEN"), cmd.String("inference-url")
	stop = func() {}
	if cmd.Bool("fake") {
		srv := svctest.NewServer(svctest.WithDeployTime(3 * time.Second))
		srv.AddEndpoint(svctest.Endpoint{Name: "running", Instances: 1})
		baseURL, token, inferenceURL, stop = srv.URL(), srv.Token(), srv.InferenceURL(), srv.Close
		t.wait.MinInterval = 500 * time.Millisecond
	}
	opts := []svc.Option{svc.WithUserAgent("svc-example-deploy/1")}
	switch {
	case baseURL == "":
		return nil, errors.New("no address: set SVC_BASE_URL or --base-url, or try --fake")
	case token == "":
		return nil, errors.New("no token: set SVC_API_TOKEN")
	case inferenceURL != "":
		opts = append(opts, svc.WithInferenceURL(inferenceURL))
	}
	t.client, err = svc.NewClient(baseURL, append(append(opts, svc.WithToken(token)), t.options...)...)
	return stop, err
}
