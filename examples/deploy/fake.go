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
			"It ends with --timeout only if that is given.",
		Flags:  []cli.Flag{&cli.DurationFlag{Name: "deploy-time", Usage: "how long endpoints are initializing", Value: 2 * time.Second}},
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
	srv := svctest.NewServer(svctest.WithDeployTime(cmd.Duration("deploy-time")))
	defer srv.Close()

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
