package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"example.com/svc/svctest"
)

func (t *tool) fakeCommand(begin func(cli.ActionFunc) cli.ActionFunc) *cli.Command {
	return &cli.Command{
		Name: "fake", Usage: "serve a fake of the service until Ctrl-C; prints the variables that lead to it",
		Description: "For shell scripts: --fake is a new fake in each command, and this one stays. What it\n" +
			"prints is one line of shell that exports SVC_BASE_URL, SVC_API_TOKEN and SVC_INFERENCE_URL.\n" +
			"It ends with --timeout only if that is given.\n\n" +
			"For scripts that are to meet a failure: --fail leads to exit code 1, --lose-response to 4,\n" +
			"and --outage, if it is longer than the tries of \"deploy status\", there to 7.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "deploy-time", Usage: "how long endpoints are initializing", Value: time.Second},
			&cli.DurationFlag{Name: "delete-time", Usage: "how long endpoints are still there, and billed, after their delete"},
			&cli.BoolFlag{Name: "fail", Usage: "new endpoints become unavailable at the second look, whatever --deploy-time says"},
			&cli.BoolFlag{Name: "lose-response", Usage: "the first create is carried out, and its answer lost"},
			&cli.DurationFlag{Name: "outage", Usage: "endpoints cannot be read (503) until so long after the first create"},
		},
		Action: begin(t.serveFake),
	}
}

// serveFake needs neither client nor limit, unlike the other commands.
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

	t.result.Env = map[string]string{
		"SVC_BASE_URL": srv.URL(), "SVC_API_TOKEN": srv.Token(), "SVC_INFERENCE_URL": srv.InferenceURL(),
		"SVC_FAKE": "", // or the commands that are to meet here would not
	}
	var err error
	if t.json {
		err = t.emit("fake")
		t.result.Env = nil
	} else {
		_, err = fmt.Fprintf(t.stdout, "export SVC_BASE_URL='%s' SVC_API_TOKEN='%s' SVC_INFERENCE_URL='%s' SVC_FAKE=\n",
			srv.URL(), srv.Token(), srv.InferenceURL())
	}
	if err != nil {
		return err
	}
	t.say("a fake of the service is at %s until Ctrl-C", srv.URL())
	<-ctx.Done()
	if n := srv.RunningInstances(); n > 0 {
		t.say("left running: instances that a service would still bill: %d", n)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // as meant
	}
	return ctx.Err()
}

// endOutage lets endpoints be read again when d has passed since the first create.
// [svctest.Outage] would begin too late for the first look if it were queued then,
// and end too early if it were queued before.
func endOutage(ctx context.Context, srv *svctest.Server, d time.Duration) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for srv.RequestCount("POST", svctest.RouteEndpoints) == 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-time.After(d):
		srv.ClearFaults() // that of --lose-response has met the first create
	case <-ctx.Done():
	}
}
