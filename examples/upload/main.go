// Command upload uploads a file, or what it reads from standard input, and prints the ID
// of the file. It also downloads and lists files:
//
//	go run ./examples/upload data.jsonl
//	produce | go run ./examples/upload --name data.jsonl -
//	go run ./examples/upload download file-1 copy.jsonl
//	go run ./examples/upload list
//
// It needs SVC_BASE_URL and SVC_API_TOKEN in the environment. With --fake it runs on a
// fake of the service inside the program. The fake has a file to download, and its storage is
// slow, so that you can see the progress:
//
//	go run ./examples/upload --fake go.sum
//	go run ./examples/upload download --fake file-1 sample.bin
//
// Standard output gets only the result: the ID, the list or, with "download ID -", the
// contents. Messages and progress go to standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"example.com/svc"
	"example.com/svc/svctest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Another Ctrl-C ends the program at once, but only after two seconds: timeout(1) sends
	// a signal to a program and then to its process group, so the program gets it twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, stop) })
	t := &tool{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	os.Exit(t.run(ctx, os.Args))
}

// tool is one run of the program.
type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool         // stderr is a terminal
	options        []svc.Option // additional options, for tests
}

// usageError is a mistake in the command line or the environment.
type usageError struct{ error }

const help = `The token is read from the environment variable SVC_API_TOKEN. To upload a file
that has the name of a command, write a path, such as ./list.

Exit codes:
  0    done
  1    failed
  2    usage error; nothing was sent
  4    the outcome of the register call is unknown: a record of the file may exist. Do
       not upload again before you know. The last line on standard error says what is
       known and what to do
  130  interrupted`

// run is the whole program: it returns the exit code.
func (t *tool) run(ctx context.Context, args []string) int {
	usage := func(_ context.Context, _ *cli.Command, err error, _ bool) error { return usageError{err} }
	root := &cli.Command{
		Name: "upload", Usage: "upload a file; prints its ID", UsageText: "upload [options] FILE|-\nupload download [options] ID FILE|-\nupload list [options]",
		Description: help,
		Writer:      t.stdout, ErrWriter: t.stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // run reports the error
		OnUsageError:   usage,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "base-url", Usage: "address of the service", Sources: cli.EnvVars("SVC_BASE_URL")},
			&cli.BoolFlag{Name: "insecure-http", Usage: "allow an http:// address; anybody on the network path can then read the token"},
			&cli.BoolFlag{Name: "fake", Usage: "use a fake of the service", Sources: cli.EnvVars("SVC_FAKE")},
			&cli.StringFlag{Name: "name", Usage: "name of the record; default: the name of the file", Local: true},
			&cli.StringFlag{Name: "purpose", Usage: "purpose of the file", Value: string(svc.FilePurposeFineTune), Local: true},
			&cli.StringFlag{Name: "id", Usage: "ID of an existing record: upload the contents to it, after an upload that failed", Local: true},
		},
		Action: t.upload,
		Commands: []*cli.Command{{
			Name: "download", Usage: "download a file", ArgsUsage: "ID FILE|-", OnUsageError: usage, Action: t.download,
		}, {
			Name: "list", Usage: "list the files: ID, time of creation (UTC), purpose, name", OnUsageError: usage, Action: t.list,
		}},
	}
	err := root.Run(ctx, args)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(t.stderr, "upload:", err)
	switch {
	case errors.As(err, new(usageError)):
		return 2
	case errors.Is(err, svc.ErrOutcomeUnknown):
		return 4 // also if the program was interrupted
	case errors.Is(ctx.Err(), context.Canceled):
		return 130
	}
	return 1
}

// connect makes the client. The token comes from the environment only: a command
// line can be read by every user of a machine.
func (t *tool) connect(cmd *cli.Command) (client *svc.Client, stop func(), err error) {
	baseURL, token := cmd.String("base-url"), os.Getenv("SVC_API_TOKEN")
	stop = func() {}
	if cmd.Bool("fake") {
		srv := svctest.NewServer()
		srv.AddZeroFile("sample.bin", "fine-tune", 8<<20)
		srv.Fault("*", svctest.RouteStorage, svctest.Fault{Rate: 4 << 20, Times: -1})
		baseURL, token, stop = srv.URL(), srv.Token(), srv.Close
	}
	if baseURL == "" || token == "" {
		return nil, nil, usageError{errors.New("set SVC_BASE_URL and SVC_API_TOKEN, or try --fake")}
	}
	opts := append([]svc.Option{svc.WithToken(token)}, t.options...)
	insecure := cmd.Bool("insecure-http")
	if insecure {
		opts = append(opts, svc.WithInsecureHTTP())
	}
	client, err = svc.NewClient(baseURL, opts...)
	if err != nil && !insecure && strings.HasPrefix(strings.ToLower(baseURL), "http:") {
		err = fmt.Errorf("%w (in this program: --insecure-http)", err)
	}
	if err != nil {
		return nil, nil, usageError{err}
	}
	return client, stop, nil
}

func (t *tool) upload(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Len() != 1 {
		return usageError{errors.New("give one file to upload, or - for standard input")}
	}
	path, name := cmd.Args().First(), cmd.String("name")
	body := t.stdin
	if path == "-" {
		if name == "" && cmd.String("id") == "" {
			return usageError{errors.New("standard input needs a --name")}
		}
	} else {
		f, err := os.Open(path)
		if err != nil {
			return usageError{err}
		}
		defer f.Close()
		body = f
		if name == "" {
			name = filepath.Base(path)
		}
	}
	client, stop, err := t.connect(cmd)
	if err != nil {
		return err
	}
	defer stop()

	bar := newBar(t.stderr, t.terminal, "uploading")
	opts := svc.UploadOptions{Progress: bar.progress}
	var result *svc.UploadResult
	if id := cmd.String("id"); id != "" { // an earlier upload made the record, and then failed
		result, err = client.Files.Replace(ctx, id, body, &opts)
	} else {
		purpose := svc.FilePurpose(cmd.String("purpose"))
		result, err = client.Files.Upload(ctx, svc.UploadRequest{FileName: name, Purpose: purpose, Body: body, UploadOptions: opts})
	}
	bar.end()
	if err != nil {
		return errors.Join(err, hint(ctx, client, err, path))
	}
	_, _ = fmt.Fprintf(t.stderr, "uploaded %d bytes\n", result.Bytes)
	_, err = fmt.Fprintln(t.stdout, result.FileID)
	return err
}

// hint returns an error whose text says what to do after the failure err; nil: no advice.
func hint(ctx context.Context, client *svc.Client, err error, path string) error {
	failure, ok := errors.AsType[*svc.UploadError](err)
	switch {
	case !ok || failure.Stage == svc.UploadStageBody:
		return nil // nothing was sent
	case failure.Stage == svc.UploadStagePut && failure.Link == "" && errors.Is(err, svc.ErrNotFound):
		return fmt.Errorf("there is no record %s: without --id, upload makes a new one", failure.FileID)
	case failure.FileID != "":
		return fmt.Errorf("to upload to the same record: upload --id %s %s", failure.FileID, path)
	case !errors.Is(err, svc.ErrOutcomeUnknown):
		return nil
	}
	// The register call may have made a record: the list of files shows it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	files, listErr := client.Files.List(ctx)
	if listErr != nil {
		return fmt.Errorf("a record named %q may exist now, but the list of files cannot be read: %w", failure.FileName, listErr)
	}
	text := "no record has that name; you can repeat the upload"
	for _, f := range files {
		if f.FileName == failure.FileName {
			text = fmt.Sprintf("a record has that name; if no earlier upload made it, continue with: upload --id %s %s", f.ID, path)
		}
	}
	return errors.New(text)
}

// list prints the files. The name comes last, since it may hold spaces.
func (t *tool) list(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usageError{fmt.Errorf("unexpected argument %q", cmd.Args().First())}
	}
	client, stop, err := t.connect(cmd)
	if err != nil {
		return err
	}
	defer stop()
	files, err := client.Files.List(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tCREATED\tPURPOSE\tNAME")
	for _, f := range files {
		created := "-"
		if !f.CreatedAt.IsZero() {
			created = f.CreatedAt.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(f.ID), created, printable(string(f.Purpose)), printable(f.FileName))
	}
	return w.Flush()
}

// printable quotes a text with control characters, so that the name of a file cannot move
// the cursor or add a line.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func (t *tool) download(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Len() != 2 {
		return usageError{errors.New("give the ID of the file to download, and a path to write to, or - for standard output")}
	}
	id, path := cmd.Args().Get(0), cmd.Args().Get(1)
	client, stop, err := t.connect(cmd)
	if err != nil {
		return err
	}
	defer stop()

	bar := newBar(t.stderr, t.terminal, "downloading")
	opts := &svc.DownloadOptions{Progress: bar.progress}
	var n int64
	if path == "-" {
		n, err = client.Files.Download(ctx, id, t.stdout, opts)
	} else {
		n, err = client.Files.DownloadFile(ctx, id, path, opts)
	}
	bar.end()
	if err != nil {
		return errors.Join(err, downloadHint(err, id, path))
	}
	_, _ = fmt.Fprintf(t.stderr, "downloaded %d bytes\n", n)
	return nil
}

// downloadHint returns an error whose text says what is at path after the failure err, and
// whether to try again; nil: no advice.
func downloadHint(err error, id, path string) error {
	if errors.Is(err, svc.ErrNotFound) {
		return fmt.Errorf("there is no file %s, or nothing was uploaded for it", id)
	}
	if path == "-" {
		return nil
	}
	if _, statErr := os.Lstat(path); errors.Is(statErr, os.ErrNotExist) {
		return fmt.Errorf("%s was not written; you can repeat the download", path)
	}
	return fmt.Errorf("%s is as it was before; you can repeat the download", path)
}
