package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"example.com/svc"
	"example.com/svc/ledger"
)

const deployHelp = `The ID is written to standard output as soon as the endpoint exists, even if the endpoint is
deleted later. The exit code says whether an endpoint may be running. After a failure, the
last line on standard error says it too. With --json, "deleted" and "may_be_running" say it.

The create is recorded in the ledger before it is sent. After a kill, "deploy ls" shows which
endpoints may be running.

At most one endpoint of a --key runs at a time. If an earlier command created it, this command
does not create another: it prints the ID and waits until that endpoint is available. It never
deletes an endpoint that an earlier command created, neither with --delete-on-failure nor on
Ctrl-C. Without --flavor it uses the flavor of that endpoint.`

func isText(s string) bool { return s != "" && utf8.ValidString(s) }

func deployFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "name", Usage: "name of the endpoint; choose a unique name, so that you can find the endpoint if its ID is lost",
			Required: true, Validator: must(isText, "UTF-8 text, and not empty"),
		},
		&cli.StringFlag{Name: "image", Usage: "container image to run", Required: true, Validator: must(isText, "UTF-8 text, and not empty")},
		&cli.StringFlag{Name: "command", Usage: "start command of the container", Validator: must(utf8.ValidString, "UTF-8 text")},
		&cli.IntFlag{Name: "port", Usage: "port that the container listens on", Value: 8000, Validator: must(func(n int) bool { return n > 0 && n <= 65535 }, "between 1 and 65535")},
		&cli.IntFlag{Name: "instances", Usage: "number of instances", Value: 1, Validator: must(func(n int) bool { return n > 0 }, "at least 1")},
		&cli.IntFlag{Name: "gpus", Usage: "GPUs of each instance", Value: 1, Validator: must(func(n int) bool { return n >= 0 }, "at least 0")},
		&cli.StringFlag{Name: "flavor", Usage: "ID of the flavor; default: the cheapest flavor that fits"},
		&cli.StringFlag{
			Name: "key", Usage: "key in the ledger, under which at most one endpoint runs at a time; default: a new random key",
			Validator: must(regexp.MustCompile(`^[a-z0-9_-]{1,64}$`).MatchString, "1 to 64 characters of a-z, 0-9, _ and -"),
		},
		&cli.DurationFlag{
			Name: "lease", Usage: "time after which \"deploy sweep\" deletes the endpoint", DefaultText: "never",
			Validator: must(func(d time.Duration) bool { return d >= 0 }, "at least 0s"),
		},
	}
}

// must makes a check of a flag's value. The check runs before any request is sent. Without it,
// the list of flavors would be read before the service could refuse the value.
func must[T any](fits func(T) bool, want string) func(T) error {
	return func(value T) error {
		if !fits(value) {
			return errors.New("must be " + want)
		}
		return nil
	}
}

// deploy creates an endpoint and waits until it is available. As soon as the endpoint
// exists, its ID is on standard output, on standard error and in the ledger:
// the service has no call that lists endpoints, so a lost ID cannot be found again.
func (t *tool) deploy(ctx context.Context, cmd *cli.Command) error {
	t.result.Name = cmd.String("name")
	flavorID, err := t.chooseFlavor(ctx, cmd)
	if err != nil {
		return err
	}
	t.ifGivenUp(createGivenUp(t.result.Name))
	service, err := t.client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:        t.result.Name,
		PaymentType: svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{
			FlavorID: flavorID, ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: cmd.Int("instances"),
		},
		DeployMetadata: svc.CreateDeployMetadata{
			ImageURL: cmd.String("image"), Command: cmd.String("command"), Port: cmd.Int("port"), GPUNum: cmd.Int("gpus"),
		},
	}, &svc.DeployOptions{
		WaitOptions: t.wait,
		Key:         t.result.Key,
		Lease:       cmd.Duration("lease"),
		OnCreate:    func(s *svc.InferenceService) error { return t.announce(s.ServiceID) },
		OnFailure: func(failure *svc.DeployError) bool {
			interrupted := errors.Is(ctx.Err(), context.Canceled)
			if failure.Resumed || !cmd.Bool("delete-on-failure") && (!interrupted || cmd.Bool("keep")) {
				return false
			}
			more := "Ctrl-C twice"
			if interrupted {
				more = "another Ctrl-C"
			}
			t.say("deleting %s (%s may leave it running)", failure.ServiceID, more)
			return true
		},
	})
	if service != nil {
		t.note(service)
	}
	t.judge(err)
	if err == nil && t.result.URL != "" && !cmd.Bool("fake") { // the URL of a fake ends with this program
		t.say("%s is reached at %s", t.result.ServiceID, t.result.URL)
	}
	return err
}

// judge records in the result whether the endpoint is deleted, and whether one may be running,
// after Deploy has returned err.
func (t *tool) judge(err error) {
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok && unknown.Name != "" {
		t.result.Name = unknown.Name // the create in doubt may be an earlier one, with another name
	}
	failure, ok := errors.AsType[*svc.DeployError](err)
	switch {
	case ok:
		t.result.Deleted = failure.Cleanup == svc.CleanupDeleted
		t.result.running = !t.result.Deleted
	case err == nil:
		t.result.running = true
	case t.posted:
		t.result.running = errors.Is(err, svc.ErrOutcomeUnknown) // a create was sent, so no earlier endpoint of the key was running
	case isA[*ledger.Error](err):
		t.result.running = t.result.Key != ""
	}
}

// announce is the function for [svc.DeployOptions.OnCreate]: it writes the ID. If it cannot
// write the ID, the deployment fails at once.
func (t *tool) announce(id string) error {
	t.result.ServiceID, t.result.created, t.result.running = id, true, true
	t.ifGivenUp(cleanupGivenUp(id))
	event := "created"
	if t.posted {
		t.say("created %s, which is billed from now on", id)
	} else {
		event = "resumed"
		t.say("an earlier command has created %s, which is billed", id)
	}
	if t.json {
		running := true
		t.result.MayBeRunning = &running
		return t.emit(event)
	}
	_, err := fmt.Fprintln(t.stdout, id)
	return err
}

// chooseFlavor returns the flavor of --flavor, or else the flavor of the endpoint of --key, or
// else the cheapest flavor that fits. It reads the ledger first: if the ledger cannot be read,
// nothing is sent.
func (t *tool) chooseFlavor(ctx context.Context, cmd *cli.Command) (id string, err error) {
	id = cmd.String("flavor")
	entries, err := t.client.Ledger.Entries(ctx)
	t.result.running = t.result.Key != "" && (err != nil || slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Key == t.result.Key && e.Open() }))
	if e, ok := errors.AsType[*ledger.Error](err); ok && (e.Key == "" || e.Key == t.result.Key) { // damaged entries of other keys do not matter
		return "", err
	}
	for _, e := range entries {
		if e.Key != t.result.Key || !e.Open() {
			continue
		}
		id = cmp.Or(id, e.FlavorID)
		if limit := e.SettleBy.Add(time.Minute); e.State == ledger.Intended && time.Now().Before(limit) {
			t.say("an earlier command is creating the endpoint, or was killed during the create: waiting for the outcome until %s", limit.Local().Format(time.TimeOnly))
		}
	}
	if id != "" {
		return id, nil
	}
	flavors, err := t.findFlavors(ctx, cmd)
	if err != nil {
		return "", err
	}
	t.say("flavor %s: %s at %v USD", flavors[0].FlavorID, flavors[0].DisplayName, flavors[0].Billing.USDPriceUnit)
	return flavors[0].FlavorID, nil
}
