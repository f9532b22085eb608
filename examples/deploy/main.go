// Command deploy shows Deploy in a service of one's own, which runs for weeks and needs one endpoint.
//
//	go run ./examples/deploy
//
// This command uses a fake of the service inside the program: nothing is rented. If SVC_BASE_URL
// and SVC_API_TOKEN are set, it uses the real service, where the endpoint is billed. To deploy from a shell or a pipeline, use the tool in cmd/svc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// The endpoint is deleted when its lease is over and a program that shares the ledger calls Reap.
// This program extends the lease while it runs, so only an abandoned endpoint is deleted.
const lease = 15 * time.Minute

func main() {
	image := flag.String("image", "registry.example/chat:1", "container image to deploy")
	folder := flag.String("ledger", "", "folder of the ledger; default: a new folder, for a fake only")
	every := flag.Duration("every", lease/3, "time between two extensions of the lease")
	flag.Parse()
	// A service is stopped by SIGTERM. Deploy then deletes an endpoint that is not yet available.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, done, err := connect(*folder)
	if err != nil {
		log.Fatal(err)
	}
	defer done()
	if err = serve(ctx, client, *image, *every); err != nil {
		log.Print(err)
	}
}

// connect makes a client with a ledger: of the real service, or of a fake without SVC_BASE_URL.
func connect(folder string) (client *svc.Client, done func(), err error) {
	onFake := os.Getenv("SVC_BASE_URL") == ""
	if !onFake && folder == "" {
		return nil, nil, errors.New("-ledger is needed on the real service: a folder that lasts")
	}
	remove := func() {}
	if folder == "" {
		if folder, err = os.MkdirTemp("", "ledger"); err != nil {
			return nil, nil, err
		}
		remove = func() { _ = os.RemoveAll(folder) }
	}
	store, err := ledger.Dir(folder)
	if err != nil {
		return nil, nil, err
	}
	if !onFake {
		client, err = svc.NewClientFromEnv(svc.WithLedger(store))
		return client, remove, err
	}
	log.Print("SVC_BASE_URL is not set: using a fake of the service inside this program")
	srv := svctest.NewServer(svctest.WithDeployTime(time.Second))
	return srv.Client(svc.WithLedger(store)), func() { srv.Close(); remove() }, nil
}

// serve deploys the endpoint and uses it until ctx ends. It leaves the endpoint running: the next
// start finds it under the key. Without a next start, the lease ends.
func serve(ctx context.Context, client *svc.Client, image string, every time.Duration) error {
	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:             "chat",
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 1},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: image, Port: 8000, GPUNum: 1},
	}, &svc.DeployOptions{
		Key:             "chat", // at most one endpoint: after a restart, Deploy continues with it
		Lease:           lease,
		DeleteOnFailure: true,
		OnCreate: func(s *svc.InferenceService) error {
			log.Printf("%s is billed from now on", s.ServiceID)
			return nil
		},
	})
	if errors.Is(err, svc.ErrOutcomeUnknown) { // somebody has to look: wake somebody up
		return fmt.Errorf("see svc ls, then svc adopt or svc forget: %w", err)
	}
	if err != nil {
		return err
	}
	log.Printf("%s is %s: serving until SIGTERM", service.ServiceID, service.Status)
	for {
		select {
		case <-ctx.Done(): // here a real service ends its requests
			log.Printf("%s keeps running until its lease ends", service.ServiceID)
			return nil
		case <-time.After(every):
		}
		if err := extend(ctx, client, service.ServiceID); err != nil && ctx.Err() == nil {
			log.Printf("the lease was not extended: %v", err) // the next round tries again
		}
	}
}

// extend extends the lease of the endpoint, and deletes what others have abandoned.
func extend(ctx context.Context, client *svc.Client, id string) error {
	entries, err := client.Ledger.Entries(ctx)
	for _, e := range entries {
		if e.Open() && e.ServiceID == id {
			err = errors.Join(err, client.Ledger.Extend(ctx, e, time.Now().Add(lease)))
		}
	}
	_, reaped := client.Ledger.Reap(ctx, nil)
	return errors.Join(err, reaped)
}
