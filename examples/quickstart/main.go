// Command quickstart does the main job of the library once. It chooses a GPU flavor,
// deploys a container image on it, waits until the endpoint is available, scales the
// endpoint and deletes it. Then it uploads a small file and downloads it.
//
//	go run ./examples/quickstart
//
// This command uses a fake of the service inside the program: nothing is rented, and no
// network is needed. If SVC_BASE_URL and SVC_API_TOKEN are set, the program uses the real
// service, where instances are billed, and needs the flag -image. It deletes what it created,
// also on failure and on Ctrl-C. The deletion takes a minute at most. A second Ctrl-C does not
// stop it (Ctrl-\ does).
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

func main() {
	image := flag.String("image", "", "container image to deploy (required on the real service)")
	port := flag.Int("port", 8000, "port that the container listens on")
	name := flag.String("name", "quickstart", "name of the endpoint")
	timeout := flag.Duration("timeout", 30*time.Minute, "time limit for the whole program")
	flag.Parse()

	client, closeFake, err := connect(image)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	}
	// The stop function of NotifyContext is not called: after it, a second signal would end the
	// program during the cleanup, and timeout(1) sends two signals. A closed output pipe must not
	// end the program either.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithTimeout(ctx, *timeout)

	out := newProgress(os.Stdout)
	err = endpoint(ctx, client, out, *name, *image, *port)
	if err == nil {
		err = file(ctx, client, out)
	}
	code := 0
	switch {
	case err == nil:
		out.say("All done.")
	case errors.Is(ctx.Err(), context.Canceled):
		out.say("Interrupted: %v", err)
		code = 130
	default:
		out.say("Failed: %v", err)
		code = 1
	}
	cancel()
	closeFake()
	os.Exit(code)
}

// connect makes a client of the real service if SVC_BASE_URL is set. Otherwise it starts a fake
// and makes a client of the fake.
func connect(image *string) (client *svc.Client, done func(), err error) {
	if os.Getenv("SVC_BASE_URL") != "" {
		if *image == "" {
			return nil, nil, errors.New("-image is needed on the real service: the container image to deploy")
		}
		client, err = svc.NewClientFromEnv()
		if err == nil {
			fmt.Printf("Using %v.\nThe instances that this program starts are BILLED until they are deleted; it deletes them when it ends.\n\n", client)
		}
		return client, func() {}, err
	}
	if *image == "" {
		*image = "registry.example/app:1"
	}
	fmt.Print("SVC_BASE_URL is not set: using a fake of the service inside this program. Nothing is rented.\n\n")
	srv := svctest.NewServer(svctest.WithDeployTime(time.Second))
	return srv.Client(), srv.Close, nil
}

// endpoint deploys, scales and deletes an endpoint.
func endpoint(ctx context.Context, client *svc.Client, out *progress, name, image string, port int) (err error) {
	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinAvailable: 2})
	if err != nil {
		return err
	}
	if len(flavors) == 0 {
		return errors.New("no flavor has two instances available now")
	}
	flavor := flavors[0]
	out.say("Cheapest flavor with two instances available: %s (%s, CUDA %s, %v USD per unit).",
		flavor.FlavorID, flavor.DisplayName, flavor.MetaInfo.CUDA, flavor.Billing.USDPriceUnit)

	wait := svc.WaitOptions{MinInterval: 250 * time.Millisecond, OnPoll: func(p svc.Poll) {
		out.update("  %s: %s after %v", p.ID, orElse(p.Status, fmt.Sprint(p.Err)), p.Elapsed.Round(100*time.Millisecond))
	}}
	out.say("Deploying %s ...", image)
	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:        name,
		PaymentType: svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{
			FlavorID: flavor.FlavorID, ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1,
		},
		DeployMetadata: svc.CreateDeployMetadata{ImageURL: image, Port: port, GPUNum: 1},
	}, &svc.DeployOptions{
		WaitOptions: wait,
		OnCreate: func(s *svc.InferenceService) error {
			out.say("Created %s.", s.ServiceID)
			return nil
		},
		OnFailure: func(failure *svc.DeployError) bool {
			out.say("Deleting %s ...", failure.ServiceID)
			return true
		},
	})
	if err != nil {
		return err
	}
	id := service.ServiceID
	defer func() { err = errors.Join(err, remove(ctx, client, out, id)) }()
	out.say("Endpoint %s is %s.", id, service.Status)
	if url, err := client.InferenceServices.URL(id); err == nil {
		out.say("Its URL is %s.", url)
	}

	out.say("Scaling to 2 instances ...")
	service, err = client.InferenceServices.ScaleAndWait(ctx, id, 2, &wait)
	if err != nil {
		return err
	}
	out.say("Endpoint %s has %d instances.", id, service.ResourceMetadata.TargetInstanceNumber)
	return nil
}

// remove deletes an endpoint, even if ctx has ended.
func remove(ctx context.Context, client *svc.Client, out *progress, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	out.say("Deleting %s ...", id)
	if err := client.InferenceServices.DeleteAndWait(ctx, id, nil); err != nil {
		return fmt.Errorf("%s may still be running and billed: %w", id, err)
	}
	out.say("Endpoint %s is deleted.", id)
	return nil
}

// file uploads a small file, downloads it and deletes it.
func file(ctx context.Context, client *svc.Client, out *progress) (err error) {
	contents := []byte(`{"prompt": "a lighthouse at dusk"}` + "\n")
	upload, err := client.Files.Upload(ctx, svc.UploadRequest{
		FileName: "quickstart.jsonl", Purpose: svc.FilePurposeFineTune, Body: bytes.NewReader(contents),
		UploadOptions: svc.UploadOptions{DeleteOnFailure: true},
	})
	if err != nil {
		return err
	}
	id := upload.FileID
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if failed := client.Files.Delete(ctx, id); failed != nil {
			err = errors.Join(err, fmt.Errorf("file %s is not deleted: %w", id, failed))
			return
		}
		out.say("File %s is deleted.", id)
	}()
	out.say("Uploaded %d bytes as file %s.", upload.Bytes, id)

	files, err := client.Files.List(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.ID == id {
			out.say("  in the list: %s %s (%s)", f.ID, f.FileName, f.Purpose)
		}
	}
	var back bytes.Buffer
	if _, err := client.Files.Download(ctx, id, &back, nil); err != nil {
		return err
	}
	if !bytes.Equal(back.Bytes(), contents) {
		return errors.New("the downloaded file differs from the uploaded one")
	}
	out.say("Downloaded it: the same bytes.")
	return nil
}

// progress writes lines. On a terminal, an update replaces the previous one.
type progress struct {
	w        io.Writer
	terminal bool
	pending  bool // the last line is an update, without a line break yet
}

func newProgress(f *os.File) *progress {
	info, err := f.Stat()
	return &progress{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) say(format string, args ...any) {
	if p.pending {
		_, _ = fmt.Fprintln(p.w)
		p.pending = false
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) update(format string, args ...any) {
	if !p.terminal {
		p.say(format, args...)
		return
	}
	_, _ = fmt.Fprintf(p.w, "\r\033[K"+format, args...)
	p.pending = true
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
