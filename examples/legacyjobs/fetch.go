package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"example.com/svc"
)

// fetcher downloads the outputs of jobs.
type fetcher struct {
	client         *svc.Client
	get            func(ctx context.Context, id string, opts ...svc.RequestOption) (*svc.Job, error)
	dir            string // folder for the files; empty if a new one is made for the first file
	stdout, stderr io.Writer
	terminal       bool // stderr is a terminal
}

type list func(context.Context, *svc.ListJobsOptions, ...svc.RequestOption) iter.Seq2[*svc.Job, error]

// fetch lists jobs, page by page, and downloads their outputs.
func (f *fetcher) fetch(ctx context.Context, all list, limit int) error {
	n := 0
	for job, err := range all(ctx, &svc.ListJobsOptions{PageSize: 10}) {
		if err != nil {
			return err // a page could not be read, so the list is not complete
		}
		_, _ = fmt.Fprintf(f.stdout, "%s  %s  %s  %s\n", job.JobID, job.CreatedAt.Format(time.DateTime), job.Status, outputs(len(job.Outputs)))
		for _, out := range job.Outputs {
			if err := f.download(ctx, job, out); err != nil {
				return err
			}
		}
		if n++; n == limit {
			break // no further page is requested
		}
	}
	return nil
}

func outputs(n int) string {
	if n == 1 {
		return "1 output"
	}
	return fmt.Sprintf("%d outputs", n)
}

// folder makes the folder for the files, unless it exists already.
func (f *fetcher) folder() (err error) {
	if f.dir != "" {
		return os.MkdirAll(f.dir, 0o755)
	}
	f.dir, err = os.MkdirTemp("", "legacyjobs-")
	if err == nil {
		_, _ = fmt.Fprintln(f.stderr, "the files go to", f.dir)
	}
	return err
}

// download downloads one output. If the link of the output (a presigned URL) has expired,
// download reads the job again to get a new link.
func (f *fetcher) download(ctx context.Context, job *svc.Job, out svc.JobOutput) error {
	if err := f.folder(); err != nil {
		return err
	}
	file := filepath.Join(f.dir, fileName(job, out))
	n, err := f.client.Files.DownloadURLFile(ctx, out.MediaURL, file, f.options())
	if errors.Is(err, svc.ErrLinkExpired) {
		if job, err = f.get(ctx, job.JobID); err != nil {
			return err
		}
		i := slices.IndexFunc(job.Outputs, func(o svc.JobOutput) bool { return o.ID == out.ID })
		if i < 0 {
			return fmt.Errorf("job %s no longer has the output %s", job.JobID, out.ID)
		}
		n, err = f.client.Files.DownloadURLFile(ctx, job.Outputs[i].MediaURL, file, f.options())
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", job.JobID, err)
	}
	_, _ = fmt.Fprintf(f.stdout, "  %s  %d bytes\n", file, n)
	return nil
}

// options returns the options of a download: on a terminal it shows a progress bar, which is
// cleared at the end.
func (f *fetcher) options() *svc.DownloadOptions {
	if !f.terminal {
		return nil
	}
	var bar *progressbar.ProgressBar
	return &svc.DownloadOptions{Progress: func(received, total int64) {
		if bar == nil {
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f.stderr), progressbar.OptionShowBytes(true),
				progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetSpinnerChangeInterval(0))
		}
		_ = bar.Set64(received)
	}}
}
