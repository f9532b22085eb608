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
		Name: "fake", Usage: "serve a fake of the service until Ctrl-C; prints the environment variables to use it",
		Description: "For shell scripts whose commands share one fake. (--fake starts a new fake in each command.)\n" +
			"The command prints one line of shell code, which exports SVC_BASE_URL, SVC_API_TOKEN,\n" +
			"SVC_INFERENCE_URL and SVC_LEDGER, a new folder that is deleted when the fake ends.\n" +
			"The fake has no time limit unless --timeout is given.\n\n" +
			"To test failures: \"deploy deploy\" ends with exit code 10 if the fake has --fail, and with 4\n" +
			"if it has --lose-response. During an --outage of more than ten seconds, \"deploy status\"\n" +
			"ends with 7.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "deploy-time", Usage: "time from the create until an endpoint is available", Value: time.Second},
			&cli.DurationFlag{Name: "delete-time", Usage: "time from the delete call until the endpoint is deleted; it is billed until then"},
			&cli.BoolFlag{Name: "fail", Usage: "new endpoints are unavailable from the second poll on; --deploy-time has no effect"},
			&cli.BoolFlag{Name: "lose-response", Usage: "the first create takes effect, and its response is lost"},
			&cli.DurationFlag{Name: "outage", Usage: "time after the first create during which endpoints cannot be read: the response is 503"},
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
		"SVC_LEDGER": dir, "SVC_FAKE": "", // with SVC_FAKE=1 each command would start its own fake
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
		t.say("instances that still run, and that a real service would bill: %d", n)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil // Ctrl-C is the normal end
	}
	return ctx.Err()
}

// endOutage ends an outage when d has passed since the first create. [svctest.Outage] cannot
// do this, since its time begins when it is set up. If it is set up before the create, it ends
// too early. If it is set up after the create, the first poll may come before it.
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
		srv.ClearFaults() // the create has already used the fault of --lose-response
	case <-ctx.Done():
	}
}
