package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"example.com/svc/svctest"
)

func (t *tool) fakeCommand(begin func(cli.ActionFunc) cli.ActionFunc) *cli.Command {
	return &cli.Command{
		Name: "fake", Usage: "serve a fake of the service until Ctrl-C; prints the variables that lead to it",
		Description: "For shell scripts whose commands share one fake. (--fake starts a new one in each command.)\n" +
			"It prints one line of shell that exports SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and\n" +
			"SVC_LEDGER, a new folder that is deleted at the end.\n" +
			"It has no time limit unless --timeout is given.\n\n" +
			"To test failures: with --fail \"deploy deploy\" ends with exit code 10, with --lose-response\n" +
			"with 4. During an --outage of more than ten seconds \"deploy status\" ends with 7.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "deploy-time", Usage: "time from the create until an endpoint is available", Value: time.Second},
			&cli.DurationFlag{Name: "delete-time", Usage: "time from the delete until an endpoint is deleted; it is billed until then"},
			&cli.BoolFlag{Name: "fail", Usage: "new endpoints are unavailable from the second poll on; --deploy-time has no effect"},
			&cli.BoolFlag{Name: "lose-response", Usage: "the first create takes effect, and its response is lost"},
			&cli.DurationFlag{Name: "outage", Usage: "time from the first create until endpoints can be read; 503 until then"},
		},
		Action: begin(t.serveFake),
	}
}

// serveFake serves a fake until ctx ends.
func (t *tool) serveFake(ctx context.Context, cmd *cli.Command) error {
	if cmd.IsSet("timeout") {
		limited, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
		defer cancel()
		ctx = limited
	}
	opts := []svctest.Option{
		svctest.WithDeployTime(cmd.Duration("deploy-time")), svctest.WithDeleteTime(cmd.Duration("delete-time")),
	}
	if cmd.Bool("fail") {
		opts = append(opts, svctest.WithStatusPath(svctest.StatusInitializing, svctest.StatusUnavailable))
	}
	srv := svctest.NewServer(opts...)
	defer srv.Close()
	if cmd.Bool("lose-response") {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	}
	if d := cmd.Duration("outage"); d > 0 {
		srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		go endOutage(ctx, srv, d)
	}

	dir, err := os.MkdirTemp("", "svc-ledger")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	t.result.Env = map[string]string{
		"SVC_BASE_URL": srv.URL(), "SVC_API_TOKEN": srv.Token(), "SVC_INFERENCE_URL": srv.InferenceURL(),
		"SVC_LEDGER": dir, "SVC_FAKE": "", // with 1 each command would start a fake of its own
	}
	if t.json {
		err = t.emit("fake")
		t.result.Env = nil
	} else {
		_, err = fmt.Fprintf(t.stdout, "export SVC_BASE_URL='%s' SVC_API_TOKEN='%s' SVC_INFERENCE_URL='%s' SVC_LEDGER='%s' SVC_FAKE=\n",
			srv.URL(), srv.Token(), srv.InferenceURL(), dir)
	}
	if err != nil {
		return err
	}
	t.say("a fake of the service is at %s until Ctrl-C", srv.URL())
	<-ctx.Done()
	if n := srv.RunningInstances(); n > 0 {
		t.say("instances that are still running, and that a real service would bill: %d", n)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // Ctrl-C is the normal end
	}
	return ctx.Err()
}

// endOutage ends an outage when d has passed since the first create. [svctest.Outage]
// counts from the moment it is set up. Set up before the create, it would end too early;
// after it, it would miss the first poll.
func endOutage(ctx context.Context, srv *svctest.Server, d time.Duration) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for srv.RequestCount("POST", svctest.RouteEndpoints) == 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(d):
		srv.ClearFaults() // the one of --lose-response is used up by then
	case <-ctx.Done():
	}
}
