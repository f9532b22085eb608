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
--json, in "deleted". The file of --id-file stays as long as something may be
running, and is removed otherwise. It holds the id or, when that is not known, is
empty: after each exit code 4, and after a kill during the create. No further
"deploy deploy" takes a file that is there, until somebody has looked and removed it.`

func deployFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "name of the endpoint; make it one of its kind, since it is what you can look for", Required: true},
		&cli.StringFlag{Name: "image", Usage: "container image to run", Required: true},
		&cli.StringFlag{Name: "command", Usage: "start command of the container"},
		&cli.IntFlag{Name: "port", Usage: "port that the container listens on", Value: 8000},
		&cli.IntFlag{Name: "instances", Usage: "how many instances to run", Value: 1},
		&cli.IntFlag{Name: "gpus", Usage: "GPUs of each instance", Value: 1},
		&cli.StringFlag{Name: "flavor", Usage: "id of the flavor; without it the cheapest that fits is taken"},
		&cli.StringFlag{Name: "id-file", Usage: "file to write the id to; it must not exist yet, so that none is forgotten"},
	}
}

// deploy creates an endpoint and waits until it is available. From the moment in
// which the endpoint exists its id is on standard output, on standard error and
// in the id file: the service has no list in which it could be found again.
func (t *tool) deploy(ctx context.Context, cmd *cli.Command) (err error) {
	t.result.Name = cmd.String("name")
	ids, err := newIDFile(cmd.String("id-file"), t.result.Name)
	if err != nil {
		return usageError{inTheWay{err}}
	}
	t.idFile = cmd.String("id-file")
	defer func() {
		err = errors.Join(err, ids.close(t.result.ServiceID != "" && !t.result.Deleted || reason(err) == exitUnknown))
	}()

	flavorID := cmd.String("flavor")
	if flavorID == "" {
		flavors, err := t.findFlavors(ctx, cmd)
		if err != nil {
			return err
		}
		flavorID = flavors[0].FlavorID
		t.say("flavor %s: %s at %v USD", flavorID, flavors[0].DisplayName, flavors[0].Billing.USDPriceUnit)
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
		OnCreate:    func(s *svc.InferenceService) error { return t.announce(s.ServiceID, ids) },
		OnFailure: func(failure *svc.DeployError) bool {
			interrupted := errors.Is(ctx.Err(), context.Canceled)
			if !cmd.Bool("delete-on-failure") && (!interrupted || cmd.Bool("keep")) {
				return false
			}
			more := "Ctrl-C twice"
			if errors.Is(ctx.Err(), context.Canceled) { // by the first one
				more = "another Ctrl-C"
			}
			t.say("deleting %s (%s may leave it running)", failure.ServiceID, more)
			return true
		},
	})
	if service != nil {
		t.note(service)
	}
	if failure, ok := errors.AsType[*svc.DeployError](err); ok {
		t.result.Deleted = failure.Cleanup == svc.CleanupDeleted
	} else if t.result.URL != "" && !cmd.Bool("fake") { // that one is gone in a moment
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

// inTheWay says what is wrong with the id file, which no help can.
type inTheWay struct{ error }

// idFile is where the id goes; nil stands for none.
type idFile struct{ f *os.File }

// newIDFile makes the file before anything is created: there is no point in
// starting an instance whose id has no place. A file that exists is left alone,
// since its id may be that of an instance which is still running. So is an empty
// one: its run may have created an instance all the same. (It says nothing about
// that itself, since scripts read it as an id.)
func newIDFile(path, name string) (*idFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if !errors.Is(err, os.ErrExist) {
		return &idFile{f}, err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil, fmt.Errorf("%s is empty: an earlier run may have created an endpoint whose id it never learned; "+
			"look for it by its name (%q, if that run had the same --name), then remove the file", path, name)
	}
	return nil, fmt.Errorf("%s exists: see whether the endpoint that it names is still wanted, then remove it", path)
}

func (i *idFile) write(id string) error {
	if i == nil {
		return nil
	}
	_, err := fmt.Fprintln(i.f, id)
	return errors.Join(err, i.f.Sync())
}

// close removes the file again if nothing is running.
func (i *idFile) close(mayRun bool) error {
	if i == nil {
		return nil
	}
	err := i.f.Close()
	if !mayRun {
		err = errors.Join(err, os.Remove(i.f.Name()))
	}
	return err
}
