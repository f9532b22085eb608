package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"example.com/svc"
)

var errNoFlavor = errors.New("no flavor fits: \"deploy flavors\" lists all flavors")

var errNotReachable = errors.New("cannot be reached")

// commands returns all commands of the program. begin wraps the action of each command.
func (t *tool) commands(begin func(cli.ActionFunc) cli.ActionFunc) []*cli.Command {
	connected := func(action cli.ActionFunc) cli.ActionFunc { return begin(t.connected(action)) }
	id := &cli.StringArg{Name: "ID", Required: true}
	url := &cli.BoolFlag{Name: "url", Usage: "print the URL of the endpoint instead of the status; needs --inference-url"}
	return append([]*cli.Command{
		{
			Name: "deploy", Usage: "create an endpoint and wait until it is available; prints its ID",
			Flags:       append(deployFlags(), flavorFlags()...),
			Action:      connected(t.deploy),
			Description: deployHelp,
			MutuallyExclusiveFlags: []cli.MutuallyExclusiveFlags{{Flags: [][]cli.Flag{
				{&cli.BoolFlag{Name: "keep", Usage: "on Ctrl-C leave the endpoint running; default: delete it; not with --delete-on-failure"}},
				{&cli.BoolFlag{Name: "delete-on-failure", Usage: "delete the endpoint if it does not become available in time; not with --keep"}},
			}}},
		},
		{
			Name: "wait", Usage: "wait until an endpoint is available; prints its status",
			Arguments: []cli.Argument{id},
			Flags:     []cli.Flag{url},
			Action: connected(t.withURL(func(ctx context.Context, cmd *cli.Command) error {
				return t.endpoint(t.client.InferenceServices.WaitUntilAvailable(ctx, cmd.StringArg("ID"), &t.wait))
			})),
		},
		{
			Name: "scale", Usage: "set the number of instances and wait until they run; prints the status",
			Arguments: []cli.Argument{id, &cli.IntArg{Name: "INSTANCES", Required: true}},
			Action:    connected(t.scale),
		},
		t.deleteCommand(id, connected),
		{
			Name: "status", Usage: "print the status of an endpoint",
			Arguments: []cli.Argument{id},
			Flags:     []cli.Flag{url},
			Action: connected(t.withURL(func(ctx context.Context, cmd *cli.Command) error {
				return t.endpoint(t.client.InferenceServices.Get(ctx, cmd.StringArg("ID")))
			})),
		},
		{
			Name: "flavors", Usage: "list the flavors (GPU offerings), the cheapest first",
			Flags: append(flavorFlags(), &cli.IntFlag{Name: "instances", Usage: "minimum number of instances in stock"},
				&cli.IntFlag{Name: "gpus", Usage: "minimum number of GPUs per instance"}),
			Action: connected(t.flavors),
		},
		t.fakeCommand(begin),
	}, append(t.ledgerCommands(connected), t.settleCommands(connected)...)...)
}

// withURL handles the flag --url. If the flag is given and the inference URL is not known,
// withURL returns an error and does not call the action.
func (t *tool) withURL(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		if t.url = cmd.Bool("url"); t.url {
			if _, err := t.client.InferenceServices.URL(cmd.StringArg("ID")); err != nil {
				return usageError{fmt.Errorf("--url: %w (in this program: SVC_INFERENCE_URL or --inference-url)", err)}
			}
		}
		return action(ctx, cmd)
	}
}

// endpoint prints the status or the URL of an endpoint that a command has read.
func (t *tool) endpoint(s *svc.InferenceService, err error) error {
	if s == nil {
		return err
	}
	t.note(s)
	if err != nil {
		return err
	}
	text := string(s.Status)
	if t.url {
		if text = t.result.URL; text == "" {
			return fmt.Errorf("%s %w while it is %s", s.ServiceID, errNotReachable, s.Status)
		}
	}
	if !t.json {
		_, err = fmt.Fprintln(t.stdout, text)
	}
	return err
}

// note copies a record into the result.
func (t *tool) note(s *svc.InferenceService) {
	instances := int64(s.ResourceMetadata.TargetInstanceNumber)
	t.result.ServiceID, t.result.Name, t.result.Status, t.result.Instances = s.ServiceID, s.Name, string(s.Status), &instances
	if s.Status == svc.InferenceServiceStatusAvailable {
		t.result.URL, _ = t.client.InferenceServices.URL(s.ServiceID) // "" without an inference URL
	}
}

func (t *tool) scale(ctx context.Context, cmd *cli.Command) error {
	t.result.target = cmd.IntArg("INSTANCES")
	t.ifGivenUp(context.Canceled)
	s, err := t.client.InferenceServices.ScaleAndWait(ctx, cmd.StringArg("ID"), t.result.target, &t.wait)
	switch {
	case err == nil:
		t.result.running = t.result.target > 0
	case s != nil && s.IsDeleted, hadNoEndpoint(err):
		t.result.running = false
	}
	return t.endpoint(s, err)
}

// hadNoEndpoint reports whether err proves that an update changed nothing, because there is no
// such endpoint. The proof is a "not found" in the response to the first attempt of the PUT, if
// the service sent it and not a proxy. A later "not found", to another attempt or to a poll,
// proves nothing: the first attempt may have taken effect.
func hadNoEndpoint(err error) bool {
	e, ok := errors.AsType[*svc.Error](err)
	return ok && errors.Is(e, svc.ErrNotFound) && e.Method == http.MethodPut && e.Attempts == 1 &&
		(len(e.Body) == 0 || json.Valid(e.Body))
}

// delete deletes an endpoint and waits until the deletion is proven. One "not found" proves
// nothing, since a new endpoint may not be readable yet. If every read and every delete gets
// "not found", there was no such endpoint: that is an error, unless --missing-ok is given.
func (t *tool) delete(ctx context.Context, cmd *cli.Command) error {
	id := cmd.StringArg("ID")
	t.wait.NotFoundGrace = cmd.Duration("grace")
	if t.wait.NotFoundGrace == 0 {
		t.wait.NotFoundGrace = -1 // no grace; 0 would mean the default of the library
	}
	t.progress.deleting = true
	if err := t.client.InferenceServices.DeleteAndWait(ctx, id, &t.wait); err != nil {
		return err
	}
	t.result.Deleted, t.result.running = t.found, false
	switch {
	case t.found:
		return nil
	case cmd.Bool("missing-ok"):
		t.say("%s does not exist", id)
		return nil
	}
	return fmt.Errorf("%s: %w", id, svc.ErrNotFound)
}

// attempt is the function for [svc.WithAttemptHook]. It notes whether a create was sent, and
// whether the endpoint existed.
func (t *tool) attempt(_ context.Context, a svc.Attempt) {
	t.posted = t.posted || a.Method == http.MethodPost
	absent := a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusGone
	if a.ID != "" && (a.StatusCode/100 == 2 || a.Method == http.MethodDelete && !absent) { // a DELETE without a response may have taken effect
		t.found = true
	}
}

func flavorFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "gpu", Usage: "part of the GPU's name"},
		&cli.StringFlag{Name: "region", Usage: "region of the data center"},
		&cli.StringFlag{Name: "min-cuda", Usage: "minimum CUDA version"},
	}
}

// findFlavors lists the flavors that fit the flags of a command.
func (t *tool) findFlavors(ctx context.Context, cmd *cli.Command) ([]svc.Flavor, error) {
	flavors, err := t.client.Flavors.Find(ctx, svc.FlavorQuery{
		Name: cmd.String("gpu"), Region: svc.Region(cmd.String("region")), MinCUDA: cmd.String("min-cuda"),
		MinAvailable: cmd.Int("instances"), MinGPUsPerNode: cmd.Int("gpus"),
	})
	if err == nil && len(flavors) == 0 {
		err = errNoFlavor
	}
	return flavors, err
}

type flavorLine struct {
	ID        string    `json:"flavor_id"`
	GPU       string    `json:"gpu"`
	CUDA      string    `json:"cuda"`
	Region    string    `json:"region"`
	Available svc.Int   `json:"available"`
	USD       svc.Price `json:"usd_price_unit"`
}

func (t *tool) flavors(ctx context.Context, cmd *cli.Command) error {
	flavors, err := t.findFlavors(ctx, cmd)
	if err != nil {
		return err
	}
	for _, f := range flavors {
		t.result.Flavors = append(t.result.Flavors,
			flavorLine{f.FlavorID, f.DisplayName, f.MetaInfo.CUDA, string(f.MetaInfo.Region), f.AvailableNum, f.Billing.USDPriceUnit})
	}
	if t.json {
		return nil
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "FLAVOR\tGPU\tCUDA\tREGION\tAVAILABLE\tUSD")
	for _, f := range t.result.Flavors {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%v\n", f.ID, f.GPU, f.CUDA, f.Region, f.Available, f.USD)
	}
	return w.Flush()
}

// deleteCommand is the command that deletes an endpoint.
func (t *tool) deleteCommand(id cli.Argument, connected func(cli.ActionFunc) cli.ActionFunc) *cli.Command {
	return &cli.Command{
		Name: "delete", Usage: "delete an endpoint and wait until it is deleted",
		Arguments: []cli.Argument{id},
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "missing-ok", Usage: "end with exit code 0, not 5, if there is no such endpoint"},
			&cli.DurationFlag{
				Name: "grace", Value: 30 * time.Second,
				Usage: "how long \"not found\" does not count, since a new endpoint may not be readable yet; 0: the endpoint is not new",
			},
		},
		Action: connected(t.delete),
	}
}
