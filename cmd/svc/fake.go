package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc/svctest"
)

const fakeHelp = `Serves a fake of the service until Ctrl-C. It rents nothing, and keeps what it knows in memory.

It prints one line of shell code, which sets SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and
SVC_LEDGER. The ledger is a new folder, which is deleted when the fake ends. There is no time
limit, unless --timeout is given: the fake ends with 3 then. The document of -o json is written when
the fake is ready, so it has an exit_code only if the fake could not begin.

To see failures:

- --fail, --image-pull-error or a --deploy-time above its --timeout: "svc deploy" ends with 11.
- --fail-nth 2: only the second deploy ends with 11, such as that of a rollout.
- --lose-response or --lose-create: "svc deploy" ends with 4, with or without an endpoint. It
  cannot know which.
- --outage above ten seconds: "svc get" ends with 7.
- --clock-offset 1h: "svc doctor" finds a problem. Leases end by the clock of the fake.
- --other-account: SVC_OTHER_API_TOKEN is set as well. With it as the SVC_API_TOKEN, "svc get" of
  an endpoint of the first account ends with 5.

--request-log writes a line for each request: the time by the clock of the fake, the method, the
path and the status, or "cut" if the connection was cut without a response. It holds no tokens
and no queries.`

// fakeView is the document of fake. It is written when the fake is ready.
type fakeView struct {
	outcome
	Ended *int              `json:"exit_code,omitempty"` // absent while the fake serves: it is not known yet
	Env   map[string]string `json:"env"`                 // environment variables to use the fake
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
	deployTime, deleteTime, createDelay, outage, clockOffset    time.Duration
	fail, loseResponse, loseCreate, chat, imagePullError, other bool
	failNth                                                     int
	requestLog                                                  string
}

// otherToken is the token of the other account.
const otherToken = "other-account-token"

func (t *tool) fakeCommand() *command {
	var flags fakeFlags
	c := &command{
		Command: &cobra.Command{
			Use: "fake", Short: "serve a fake of the service, to try out commands and scripts", Long: fakeHelp,
			Example: `  svc fake >env & until [ -s env ]; do sleep 0.1; done; . ./env
  svc deploy --name demo --image registry.example/app:1`,
		},
		endless: true, empty: emptyFake,
		// two that are about the first create, and what makes each endpoint unavailable with what makes only one so
		apart: [][]string{{"lose-create", "lose-response"}, {"fail-nth", "fail"}, {"fail-nth", "image-pull-error"}},
	}
	f := c.Flags()
	flags.deployTime = time.Second
	f.Var((*days)(&flags.deployTime), "deploy-time", "time from the create until an endpoint is available")
	f.Var((*days)(&flags.deleteTime), "delete-time", "time from the delete until the endpoint is deleted; it is billed until then")
	f.Var((*days)(&flags.createDelay), "create-delay", "time until the response to a create; the endpoint exists from the request on")
	f.Var((*days)(&flags.outage), "outage", "endpoints cannot be read (503) until this time after the first create")
	f.BoolVar(&flags.fail, "fail", false, "new endpoints are unavailable")
	f.BoolVar(&flags.imagePullError, "image-pull-error", false, "new endpoints are unavailable after the deploy time: their image cannot be pulled")
	f.IntVar(&flags.failNth, "fail-nth", 0, "the endpoint with this number, counted from 1, is unavailable; the others are not")
	f.BoolVar(&flags.loseResponse, "lose-response", false, "the first create takes effect, and its response is lost")
	f.BoolVar(&flags.loseCreate, "lose-create", false, "the first create is lost before it takes effect: its connection is cut, and no endpoint exists")
	f.BoolVar(&flags.other, "other-account", false, "accept a second token, of an account that does not see the endpoints of the first: SVC_OTHER_API_TOKEN")
	f.Var((*days)(&flags.clockOffset), "clock-offset", "how far the clock of the service is ahead, or behind if negative, in the Date header and in records")
	f.StringVar(&flags.requestLog, "request-log", "", "write one line for each request to this file, or to standard error if it is -")
	f.BoolVar(&flags.chat, "chat", false, "each endpoint serves a language model with an API like OpenAI's; its reply repeats the question")
	c.run = func(ctx context.Context, _ []string) (view, error) { return nil, t.serveFake(ctx, flags) }
	return c
}

// server starts the fake. onRequest is called with each request before its response.
func (f fakeFlags) server(onRequest func(*svctest.Server, svctest.Request)) *svctest.Server {
	var srv *svctest.Server
	started := make(chan struct{})
	opts := []svctest.Option{
		svctest.WithDeployTime(f.deployTime), svctest.WithDeleteTime(f.deleteTime), svctest.WithCreateTime(f.createDelay),
		svctest.WithClockOffset(f.clockOffset),
		svctest.WithRequestHook(func(r svctest.Request) {
			<-started
			onRequest(srv, r)
		}),
	}
	if f.other {
		opts = append(opts, svctest.WithForeignToken(otherToken))
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
	srv = svctest.NewServer(opts...)
	close(started)
	if f.loseResponse {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	}
	if f.loseCreate {
		srv.Fault("POST", svctest.RouteEndpoints, svctest.DropBeforeEffect())
	}
	return srv
}

// failNth returns a function that makes the endpoint with the number n unavailable when it is created.
func failNth(n int) func(*svctest.Server, svctest.Request) {
	var once sync.Once
	return func(srv *svctest.Server, r svctest.Request) {
		if n == 0 || r.Method != http.MethodPost || r.Route != svctest.RouteEndpoints {
			return
		}
		if all := srv.Endpoints(); len(all) >= n {
			once.Do(func() { srv.ScriptStatus(all[n-1].ID, svctest.StatusInitializing, svctest.StatusUnavailable) })
		}
	}
}

// requestLog opens the log of --request-log. The lines hold no tokens: a path is logged without them.
func (t *tool) requestLog(ctx context.Context, file string) (log func(svctest.Request), stop func() error, err error) {
	write, stop := func(string) {}, func() error { return nil }
	switch file {
	case "":
	case "-":
		write = func(line string) { t.talk.say("%s", line) }
	default:
		f, err := inTime(ctx, file, func() (*os.File, error) { return os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) })
		if err != nil {
			return nil, nil, badInput(fmt.Errorf("--request-log: %w", err))
		}
		complain := sync.OnceFunc(func() { t.talk.fail("svc: %s cannot be written: requests are missing from it", printable(file)) })
		write = func(line string) {
			if _, err := f.WriteString(line + "\n"); err != nil {
				complain()
			}
		}
		stop = f.Close
	}
	hide := strings.NewReplacer(otherToken, "REDACTED", svctest.DefaultToken, "REDACTED")
	return func(r svctest.Request) {
		status := "cut"
		if r.Status != 0 {
			status = strconv.Itoa(r.Status)
		}
		write(fmt.Sprintf("%s %s %s %s", r.Time.UTC().Format(time.RFC3339), r.Method, printable(hide.Replace(r.Path)), status))
	}, stop, nil
}

// serveFake serves a fake until ctx ends.
func (t *tool) serveFake(ctx context.Context, flags fakeFlags) error {
	log, closeLog, err := t.requestLog(ctx, flags.requestLog)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	fail := failNth(flags.failNth)
	srv := flags.server(func(srv *svctest.Server, r svctest.Request) {
		fail(srv, r)
		log(r)
	})
	defer srv.Close()
	if flags.outage > 0 {
		srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(-1))
		go endOutage(ctx, srv, flags.outage)
	}
	dir, err := litter.folder(os.TempDir(), "svc-ledger")
	if err != nil {
		return err
	}
	defer func() { _ = litter.remove(dir) }()
	_, stop, err := openPlace(ctx, place{driver: "folder", name: dir, shown: dir})
	if err != nil {
		return err
	}
	stop()
	ready := &fakeView{Env: map[string]string{
		"SVC_BASE_URL": srv.URL(), "SVC_API_TOKEN": srv.Token(), "SVC_INFERENCE_URL": srv.InferenceURL(), "SVC_LEDGER": dir,
	}}
	if flags.other {
		ready.Env["SVC_OTHER_API_TOKEN"] = otherToken
	}
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
