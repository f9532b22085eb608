// Command legacyjobs lists the jobs of the retired video and image API, and downloads
// their outputs:
//
//	go run ./examples/legacyjobs
//	go run ./examples/legacyjobs -kind image -dir images
//	go run ./examples/legacyjobs -retired
//
// These commands use a fake of the service inside the program. If SVC_BASE_URL and
// SVC_API_TOKEN are set, and -fake is not given, the program uses the service at that address.
// This can be a private deployment or a replay of recorded traffic: the real service has
// retired the API. The command with -retired shows what a client of a retired API gets. Build
// nothing new on this API: linters report its names as deprecated (SA1019 of staticcheck).
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 the API is retired, 130 interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/term"

	"example.com/svc"
	"example.com/svc/svctest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Another Ctrl-C ends the program at once, but only after two seconds: timeout(1) sends
	// a signal to a program and then to its process group, so the program gets it twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, term.IsTerminal(int(os.Stderr.Fd()))))
}

const help = `legacyjobs downloads the outputs of jobs of the retired video and image API.

The address of the service is read from SVC_BASE_URL, the token from SVC_API_TOKEN.
Exit codes: 0 done, 1 failed, 2 usage, 3 the API is retired, 130 interrupted.
`

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, terminal bool) int {
	flags := flag.NewFlagSet("legacyjobs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	kind := flags.String("kind", "video", "jobs to list: video or image")
	dir := flags.String("dir", "", "folder for the outputs (default: a new temporary folder)")
	limit := flags.Int("limit", 12, "maximum number of jobs; 0: all")
	fake := flags.Bool("fake", os.Getenv("SVC_FAKE") == "1" || os.Getenv("SVC_BASE_URL") == "", "use a fake of the service that has 25 jobs of each kind; default: true without SVC_BASE_URL or with SVC_FAKE=1")
	retired := flags.Bool("retired", false, "let the fake respond like a service that has retired the API")
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, help, "\n")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if flags.NArg() > 0 || *retired && !*fake {
		_, _ = fmt.Fprintln(stderr, "legacyjobs: only flags are allowed, and -retired needs -fake: see -help")
		return 2
	}
	client, stop, err := connect(*fake, *retired)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "legacyjobs:", err)
		return 2
	}
	defer stop()
	f := fetcher{client: client, dir: *dir, stdout: stdout, stderr: stderr, terminal: terminal}
	switch *kind {
	case "video":
		f.get = client.VideoJobs.Get
		err = f.fetch(ctx, client.VideoJobs.All, *limit)
	case "image":
		f.get = client.ImageJobs.Get
		err = f.fetch(ctx, client.ImageJobs.All, *limit)
	default:
		_, _ = fmt.Fprintln(stderr, "legacyjobs: -kind must be video or image")
		return 2
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, svc.ErrRetired):
		_, _ = fmt.Fprintf(stderr, "legacyjobs: %v\nThe service has moved these jobs to a newer API, which this library does not cover.\n", err)
		return 3
	}
	_, _ = fmt.Fprintln(stderr, "legacyjobs:", err)
	if errors.Is(ctx.Err(), context.Canceled) {
		return 130
	}
	return 1
}

// connect makes a client of the service in the environment, or of a fake that has jobs.
func connect(fake, retired bool) (client *svc.Client, stop func(), err error) {
	if !fake {
		client, err = svc.NewClientFromEnv()
		return client, func() {}, err
	}
	opts := []svctest.Option{svctest.WithMediaContents(make([]byte, 1<<20))}
	if retired {
		opts = append(opts, svctest.WithJobsRetired(0))
	}
	srv := svctest.NewServer(opts...)
	srv.AddVideoJobs(25)
	srv.AddImageJobs(25)
	srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Rate: 4 << 20, Times: -1}) // slow, so that you can see the progress
	return srv.Client(), srv.Close, nil
}

// odd matches characters that an ID may have, but the name of a file should not have.
var odd = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// fileName makes the name of a file from the IDs of the job and the output, and from the
// extension in the link.
func fileName(job *svc.Job, out svc.JobOutput) string {
	name := odd.ReplaceAllString(job.JobID+"-"+out.ID, "_")
	if u, err := url.Parse(string(out.MediaURL)); err == nil {
		if ext := odd.ReplaceAllString(path.Ext(u.Path), ""); ext != "" {
			name += "." + ext
		}
	}
	return name
}
