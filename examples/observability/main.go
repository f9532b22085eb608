// Command observability shows logs, traces and metrics of the library, on a fake of the service
// inside this program:
//
//	GOWORK=off go run -C examples/observability .                  # telemetry on stdout, logs on stderr
//	GOWORK=off go run -C examples/observability . -listen :9464    # then metrics for Prometheus, until Ctrl-C
//
// Two options do it: svc.WithLogger for the logs, and svcotel.Instrument for traces and metrics
// with the names of OpenTelemetry's semantic conventions. The program deploys an endpoint, with
// two retries on the way, deletes it, and uploads a file. Then the response to a create is lost:
// its outcome is unknown, and its entry in the ledger is in doubt.
//
// alerts.yaml has alert rules for Prometheus, and dashboard.json is a dashboard for Grafana.
//
// Logs, traces and metrics contain no secret: the library gives them neither the token nor
// the query of a presigned URL.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

func main() {
	verbose := flag.Bool("v", false, "log each exchange, not only retries")
	address := flag.String("listen", "", "address to serve metrics at, such as :9464, after the run; default: none")
	flag.Parse()
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	srv := svctest.NewServer(svctest.WithDeployTime(2 * time.Second))
	logger := slog.New(withTraceID{slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})})
	err := run(ctx, srv, os.Stdout, logger, func(scrapes http.Handler) error { return serve(ctx, *address, scrapes) })
	srv.Close()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// run uses the service srv, and writes the telemetry to out. Two goroutines may write to out at
// once. Before the end it calls then with the handler for Prometheus.
func run(ctx context.Context, srv *svctest.Server, out io.Writer, logger *slog.Logger, then func(http.Handler) error) (err error) {
	t, err := newTelemetry(out)
	if err != nil {
		return err
	}
	// The last numbers and spans are written even if ctx has ended.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, t.shutdown(ctx))
	}()

	// On the real service: svc.NewClientFromEnv(t.options(logger, store)...), with the store of
	// ledger.Dir.
	client := srv.Client(t.options(logger, ledger.Memory())...)
	srv.Fault("GET", svctest.RouteFlavors, svctest.ServiceUnavailable(2)) // this leads to two retries
	if err := t.span(ctx, "deploy", func(ctx context.Context) error { return deploy(ctx, client, logger) }); err != nil {
		return err
	}
	if err := t.span(ctx, "file", func(ctx context.Context) error { return file(ctx, client) }); err != nil {
		return err
	}
	srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect()) // this makes an outcome unknown
	err = t.span(ctx, "lost", func(ctx context.Context) error { return deploy(ctx, client, logger) })
	if !errors.Is(err, svc.ErrOutcomeUnknown) {
		return fmt.Errorf("the outcome should be unknown: %w", err)
	}
	return then(t.scrapes)
}

// serve serves metrics at the address until ctx ends.
func serve(ctx context.Context, address string, scrapes http.Handler) error {
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrapes)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(os.Stderr, "metrics: http://%s/metrics\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func deploy(ctx context.Context, client *svc.Client, logger *slog.Logger) error {
	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinAvailable: 1})
	if err != nil {
		return err
	}
	if len(flavors) == 0 {
		return errors.New("no flavor has an instance in stock")
	}
	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name: "demo",
		ResourceMetadata: svc.CreateResourceMetadata{
			FlavorID: flavors[0].FlavorID, ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1,
		},
		DeployMetadata: svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
	}, &svc.DeployOptions{
		DeleteOnFailure: true,
		Lease:           time.Hour,
		WaitOptions: svc.WaitOptions{OnPoll: func(p svc.Poll) {
			logger.InfoContext(ctx, "waiting", "service_id", p.ID, "status", p.Status, "elapsed", p.Elapsed, "error", p.Err)
		}},
	})
	if err != nil {
		return err
	}
	return client.InferenceServices.DeleteAndWait(ctx, service.ServiceID, nil)
}

func file(ctx context.Context, client *svc.Client) error {
	result, err := client.Files.Upload(ctx, svc.UploadRequest{
		FileName: "data.jsonl", Purpose: svc.FilePurposeFineTune, Body: bytes.NewReader(make([]byte, 1<<20)),
	})
	if err != nil {
		return err
	}
	if _, err := client.Files.Download(ctx, result.FileID, io.Discard, nil); err != nil {
		return err
	}
	return client.Files.Delete(ctx, result.FileID)
}
