package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"example.com/svc"
)

const deployHelp = `The id goes to standard output as soon as the endpoint exists. It stands there
also when the endpoint does not become available and is deleted again: what
became of it is in the exit code, in the last line on standard error and, with
--json, in "deleted". The file of --id-file is there as long as it names something
that may be running, and is removed otherwise. (An empty one is left by a program
that was killed during the create, or made to give it up: see exit code 4.)`

func deployFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "name of the endpoint; make it one of its kind, since it is what you can look for", Required: true},
		&cli.StringFlag{Name: "image", Usage: "container image to run", Required: true},
		&cli.StringFlag{Name: "command", Usage: "start command of the container"},
		&cli.IntFlag{Name: "port", Usage: "port that the container listens on", Value: 8000},
		&cli.IntFlag{Name: "instances", Usage: "how many instances to run", Value: 1},
		&cli.IntFlag{Name: "gpus", Usage: "GPUs of each instance", Value: 1},
		&cli.StringFlag{Name: "flavor", Usage: "id of the flavor; without it the cheapest that fits is taken"},
		&cli.StringFlag{Name: "id-file", Usage: "file to write the id to; it must not exist yet"},
	}
}

// deploy creates an endpoint and waits until it is available. From the moment in
// which the endpoint exists its id is on standard output, on standard error and
// in the id file: the service has no list in which it could be found again.
func (t *tool) deploy(ctx context.Context, cmd *cli.Command) (err error) {
	ids, err := newIDFile(cmd.String("id-file"))
	if err != nil {
		return usageError{err}
	}
	defer func() { err = errors.Join(err, ids.close(t.result.ServiceID != "" && !t.result.Deleted)) }()

	flavorID := cmd.String("flavor")
	if flavorID == "" {
		flavors, err := t.findFlavors(ctx, cmd)
		if err != nil {
			return err
		}
		flavorID = flavors[0].FlavorID
		t.say("flavor %s: %s at %v USD", flavorID, flavors[0].DisplayName, flavors[0].Billing.USDPriceUnit)
	}

	t.result.Name = cmd.String("name")
	t.ifGivenUp(createGivenUp(t.result.Name))
	service, err := t.client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:        cmd.String("name"),
		PaymentType: svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{
			FlavorID: flavorID, ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: cmd.Int("instances"),
		},
		DeployMetadata: svc.CreateDeployMetadata{
			ImageURL: cmd.String("image"), Command: cmd.String("command"), Port: cmd.Int("port"), GPUNum: cmd.Int("gpus"),
		},
	}, &svc.DeployOptions{
		WaitOptions: t.wait,
		OnCreate:    func(s *svc.InferenceService) error { return t.announce(s.ServiceID, ids) },
		DeleteIf: func(error) bool {
			interrupted := errors.Is(ctx.Err(), context.Canceled)
			return cmd.Bool("delete-on-failure") || interrupted && !cmd.Bool("keep")
		},
		OnCleanUp: func(id string) { t.say("deleting %s (another Ctrl-C may leave it running)", id) },
	})
	if service != nil {
		t.note(service)
	}
	if failure, ok := errors.AsType[*svc.DeployError](err); ok {
		t.result.Deleted = failure.Gone
	} else if t.result.URL != "" {
		t.say("%s is reached at %s", t.result.ServiceID, t.result.URL)
	}
	return err
}

// announce is for [svc.DeployOptions.OnCreate]. If the id cannot be written down
// where it is wanted there is no point in waiting.
func (t *tool) announce(id string, ids *idFile) error {
	t.result.ServiceID = id
	t.ifGivenUp(cleanUpGivenUp(id))
	t.say("created %s, which is billed from now on", id)
	err := ids.write(id)
	if t.json {
		return errors.Join(err, t.emit("created"))
	}
	_, printErr := fmt.Fprintln(t.stdout, id)
	return errors.Join(err, printErr)
}

// idFile is where the id goes; nil stands for none.
type idFile struct{ f *os.File }

// newIDFile makes the file before anything is created: there is no point in
// starting an instance whose id has no place. A file that exists is left alone,
// since its id may be that of an instance which is still running.
func newIDFile(path string) (*idFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists: see whether the endpoint that it names is still wanted, then remove it", path)
	}
	return &idFile{f}, err
}

func (i *idFile) write(id string) error {
	if i == nil {
		return nil
	}
	_, err := fmt.Fprintln(i.f, id)
	return errors.Join(err, i.f.Sync())
}

// close removes the file again unless it names something that exists.
func (i *idFile) close(exists bool) error {
	if i == nil {
		return nil
	}
	err := i.f.Close()
	if !exists {
		err = errors.Join(err, os.Remove(i.f.Name()))
	}
	return err
}
