package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"example.com/svc"
)

const deployHelp = `The ID is written to standard output as soon as the endpoint exists, also when the
endpoint is deleted again later. What became of it is in the exit code, in the last line
on standard error and, with --json, in "deleted" and "may_be_running".

The file of --id-file stays while an endpoint may be running, and is removed otherwise.
It holds the ID. It is empty when the ID is not known: after exit code 4, and after a
kill during the create. While the file exists, "deploy deploy" ends with exit code 9.
Remove it after you have checked what is running.`

func deployFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "name of the endpoint; choose a unique one, so that you can find the endpoint by it", Required: true, Validator: textual(1)},
		&cli.StringFlag{Name: "image", Usage: "container image to run", Required: true, Validator: textual(1)},
		&cli.StringFlag{Name: "command", Usage: "start command of the container", Validator: textual(0)},
		&cli.IntFlag{Name: "port", Usage: "port that the container listens on", Value: 8000, Validator: between(1, 65535)},
		&cli.IntFlag{Name: "instances", Usage: "number of instances", Value: 1, Validator: between(1, math.MaxInt)},
		&cli.IntFlag{Name: "gpus", Usage: "GPUs of each instance", Value: 1, Validator: between(0, math.MaxInt)},
		&cli.StringFlag{Name: "flavor", Usage: "ID of the flavor; default: the cheapest that fits"},
		&cli.StringFlag{Name: "id-file", Usage: "file to write the ID to; it must not exist yet"},
	}
}

// between and textual check a flag before anything is sent, so before the list of flavors
// is read.
func between(least, most int) func(int) error {
	return func(n int) error {
		switch {
		case n < least:
			return fmt.Errorf("%d is less than %d", n, least)
		case n > most:
			return fmt.Errorf("%d is more than %d", n, most)
		}
		return nil
	}
}

func textual(least int) func(string) error {
	return func(s string) error {
		if len(s) < least || !utf8.ValidString(s) {
			return fmt.Errorf("%q is empty or is not UTF-8", s)
		}
		return nil
	}
}

// deploy creates an endpoint and waits until it is available. As soon as the endpoint
// exists, its ID is on standard output, on standard error and in the file of --id-file:
// the service has no call that lists endpoints, so a lost ID cannot be found again.
func (t *tool) deploy(ctx context.Context, cmd *cli.Command) (err error) {
	t.result.Name = cmd.String("name")
	ids, err := newIDFile(cmd.String("id-file"), t.result.Name)
	if err != nil {
		return err
	}
	t.idFile = cmd.String("id-file")
	defer func() { err = errors.Join(err, ids.close(t.result.mayBeRunning(err))) }()

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
	if failure, ok := errors.AsType[*svc.DeployError](err); ok {
		t.result.Deleted = failure.Cleanup == svc.CleanupDeleted
	} else if t.result.URL != "" && !cmd.Bool("fake") { // it ends with this program
		t.say("%s is reached at %s", t.result.ServiceID, t.result.URL)
	}
	return err
}

// announce is for [svc.DeployOptions.OnCreate]. If the ID cannot be written, the
// deployment fails at once.
func (t *tool) announce(id string, ids *idFile) error {
	t.result.ServiceID, t.result.created = id, true
	t.ifGivenUp(cleanupGivenUp(id))
	t.say("created %s, which is billed from now on", id)
	err := ids.write(id)
	if t.json {
		running := true
		t.result.MayBeRunning = &running
		return errors.Join(err, t.emit("created"))
	}
	_, printErr := fmt.Fprintln(t.stdout, id)
	return errors.Join(err, printErr)
}

// idFileError says that the file of --id-file exists.
type idFileError struct{ error }

// idFile is the file of --id-file; nil: there is none.
type idFile struct{ f *os.File }

// newIDFile makes the file before anything is created, since an endpoint whose ID cannot
// be stored must not be created. It refuses a file that exists: its endpoint may still be
// running. That holds for an empty file, too: its run may have created an endpoint. (The
// file holds no note about that, since scripts read it as an ID.)
func newIDFile(path, name string) (*idFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case err == nil:
		return &idFile{f}, nil
	case !errors.Is(err, os.ErrExist):
		return nil, usageError{err}
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil, idFileError{fmt.Errorf("%s is empty: an earlier run may have created an endpoint whose ID is not known; "+
			"look for it by its name (%q, if that run had the same --name), then remove the file", path, name)}
	}
	return nil, idFileError{fmt.Errorf("%s exists: check whether the endpoint that it names is still wanted, then remove it", path)}
}

func (i *idFile) write(id string) error {
	if i == nil {
		return nil
	}
	_, err := fmt.Fprintln(i.f, id)
	return errors.Join(err, i.f.Sync())
}

// close closes the file, and removes it unless an endpoint may be running.
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
