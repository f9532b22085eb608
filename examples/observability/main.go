// Command observability shows where logs, traces and metrics of the library come
// from, on a fake of the service inside this program:
//
//	go run ./examples/observability            # telemetry on stdout, logs on stderr
//	go run ./examples/observability -v 2>&1 >/dev/null
//
// Two hooks of the library are enough. The logger of svc.WithLogger gets a line for
// each exchange and each retry. The function of svc.WithAttemptHook gets all that a
// span and a metric need: method, route, host, status or error, duration, the number of
// the attempt in its call, and the request ID of the service. Use the route as the name of a
// span or as a label. Do not use the address for that, since it can contain an ID.
//
// An instrumented transport, such as that of otelhttp, works too: see
// svc.WithTransportWrapper. But a transport gets the route only from
// svc.RouteFromContext, and does not know the number of the attempt.
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
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"example.com/svc"
	"example.com/svc/svctest"
)

func main() {
	verbose := flag.Bool("v", false, "log each exchange, not only retries")
	flag.Parse()
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	srv := svctest.NewServer(svctest.WithDeployTime(2 * time.Second))
	err := run(ctx, srv, os.Stdout, slog.New(withTraceID{slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})}))
	srv.Close()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// run deploys an endpoint and uploads a file on srv, and writes the telemetry to out. Two
// goroutines may write to out at once.
func run(ctx context.Context, srv *svctest.Server, out io.Writer, logger *slog.Logger) (err error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out))
	if err != nil {
		return err
	}
	numbers, err := stdoutmetric.New(stdoutmetric.WithWriter(out))
	if err != nil {
		return err
	}
	t, err := newTelemetry(spans, sdkmetric.NewPeriodicReader(numbers))
	if err != nil {
		return err
	}
	// The last numbers and spans are written even if ctx has ended.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if shutErr := t.shutdown(ctx); err == nil {
			err = shutErr
		}
	}()

	srv.Fault("GET", svctest.RouteFlavors, svctest.ServiceUnavailable(1)) // this leads to a retry
	// On the real service: svc.NewClientFromEnv(t.options(logger)...)
	client := srv.Client(t.options(logger)...)
	if err := t.span(ctx, "deploy", func(ctx context.Context) error { return deploy(ctx, client, logger) }); err != nil {
		return err
	}
	return t.span(ctx, "file", func(ctx context.Context) error { return file(ctx, client) })
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
		OnCreate: func(s *svc.InferenceService) error {
			logger.InfoContext(ctx, "created", "service_id", s.ServiceID)
			return nil
		},
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
