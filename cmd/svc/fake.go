package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc/svctest"
)

const fakeHelp = `Serves a fake of the service until Ctrl-C. It rents nothing, and keeps what it knows in memory.

It prints one line of shell code, which sets SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and
SVC_LEDGER. The ledger is a new folder, which is deleted when the fake ends. There is no time
limit, unless --timeout is given.

To see failures: with --fail, --image-pull-error or a --deploy-time above its --timeout,
"svc deploy" ends with 11. With --lose-response it ends with 4. During an --outage of more than
ten seconds, "svc get" ends with 7.`

// fakeView is the document of fake. It is written when the fake is ready.
type fakeView struct {
	outcome
	Env map[string]string `json:"env"` // environment variables to use the fake
}

func emptyFake() view { return &fakeView{Env: map[string]string{}} }

func (v *fakeView) table() table {
	var vars []string
	for _, name := range slices.Sorted(maps.Keys(v.Env)) {
		vars = append(vars, fmt.Sprintf("%s='%s'", name, strings.ReplaceAll(v.Env[name], "'", `'\''`)))
	}
	return line("export " + strings.Join(vars, " "))
}

func (v *fakeView) names() []string { return []string{v.Env["SVC_BASE_URL"]} }

// fakeFlags are the flags of fake.
type fakeFlags struct {
	deployTime, deleteTime, createDelay, outage time.Duration
	fail, loseResponse, chat, imagePullError    bool
}

func (t *tool) fakeCommand() *command {
	var flags fakeFlags
	c := &command{
		Command: &cobra.Command{
			Use: "fake", Short: "serve a fake of the service, to try out commands and scripts", Long: fakeHelp,
			Example: `  svc fake >env & until [ -s env ]; do sleep 0.1; done; . ./env
  svc deploy --name demo --image registry.example/app:1`,
		},
		endless: true, empty: emptyFake,
	}
	f := c.Flags()
	f.DurationVar(&flags.deployTime, "deploy-time", time.Second, "time from the create until an endpoint is available")
	f.DurationVar(&flags.deleteTime, "delete-time", 0, "time from the delete until the endpoint is deleted; it is billed until then")
	f.DurationVar(&flags.createDelay, "create-delay", 0, "time until the response to a create; the endpoint exists from the request on")
	f.DurationVar(&flags.outage, "outage", 0, "time after the first create during which endpoints cannot be read: the response is 503")
	f.BoolVar(&flags.fail, "fail", false, "new endpoints are unavailable")
	f.BoolVar(&flags.imagePullError, "image-pull-error", false, "new endpoints are unavailable after the deploy time: their image cannot be pulled")
	f.BoolVar(&flags.loseResponse, "lose-response", false, "the first create takes effect, and its response is lost")
	f.BoolVar(&flags.chat, "chat", false, "each endpoint serves a language model with an API like OpenAI's; its reply repeats the question")
	c.run = func(ctx context.Context, _ []string) (view, error) { return nil, t.serveFake(ctx, flags) }
	return c
}

func (f fakeFlags) server() *svctest.Server {
	opts := []svctest.Option{
		svctest.WithDeployTime(f.deployTime), svctest.WithDeleteTime(f.deleteTime), svctest.WithCreateTime(f.createDelay),
	}
	if f.fail {
		opts = append(opts, svctest.WithStatusPath(svctest.StatusInitializing, svctest.StatusUnavailable))
	}
	if f.imagePullError {
		opts = append(opts, svctest.WithImagePullError())
	}
	if f.chat {
		opts = append(opts, svctest.WithChat(""))
	}
	srv := svctest.NewServer(opts...)
	if f.loseResponse {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	}
	return srv
}

// serveFake serves a fake until ctx ends.
func (t *tool) serveFake(ctx context.Context, flags fakeFlags) error {
	srv := flags.server()
	defer srv.Close()
	if flags.outage > 0 {
		srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		go endOutage(ctx, srv, flags.outage)
	}
	dir, err := os.MkdirTemp("", "svc-ledger")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, stop, err := openPlace(ctx, place{driver: "folder", name: dir, shown: dir}, true)
	if err != nil {
		return err
	}
	stop()
	ready := &fakeView{Env: map[string]string{
		"SVC_BASE_URL": srv.URL(), "SVC_API_TOKEN": srv.Token(), "SVC_INFERENCE_URL": srv.InferenceURL(), "SVC_LEDGER": dir,
	}}
	if err := t.publish(ctx, ready); err != nil {
		return err
	}
	t.talk.say("a fake of the service is at %s until Ctrl-C", srv.URL())
	<-ctx.Done()
	if n := srv.RunningInstances(); n > 0 {
		t.talk.say("instances that still run, and that a real service would bill: %d", n)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil // Ctrl-C is the normal end
	}
	return ctx.Err()
}

// endOutage ends an outage when d has passed since the first create.
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
