package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/internal/lazy"
)

// jobView is a record of the legacy job API in a document.
type jobView struct {
	JobID     string       `json:"job_id"`
	Name      string       `json:"name"`
	Status    string       `json:"status"`
	CreatedAt string       `json:"created_at"` // RFC 3339; empty if not known
	Outputs   []outputView `json:"outputs"`
}

// outputView is a video or image that a job has generated.
type outputView struct {
	OutputID string `json:"output_id"`
	Path     string `json:"path"` // where download has written it; empty if it was not downloaded
	Bytes    int64  `json:"bytes"`
}

func newJobView(j *svc.Job) jobView {
	v := jobView{JobID: j.JobID, Name: j.Name, Status: string(j.Status), CreatedAt: stamp(j.CreatedAt.Time), Outputs: []outputView{}}
	for _, o := range j.Outputs {
		v.Outputs = append(v.Outputs, outputView{OutputID: o.ID})
	}
	return v
}

// jobsView lists jobs.
type jobsView struct {
	outcome
	Jobs []jobView `json:"jobs"`
}

func emptyJobs() view { return &jobsView{Jobs: []jobView{}} }

func (v *jobsView) table() table {
	t := table{header: []string{"ID", "STATUS", "CREATED", "OUTPUTS", "NAME"}}
	for _, j := range v.Jobs {
		t.rows = append(t.rows, []string{j.JobID, dash(j.Status), dash(j.CreatedAt), fmt.Sprint(len(j.Outputs)), dash(j.Name)})
	}
	return t
}

func (v *jobsView) names() (ids []string) {
	for _, j := range v.Jobs {
		ids = append(ids, j.JobID)
	}
	return ids
}

// oneJobView is the view of get.
type oneJobView struct {
	outcome
	jobView
}

func emptyJob() view { return &oneJobView{jobView: jobView{Outputs: []outputView{}}} }

func (v *oneJobView) table() table    { return (&jobsView{Jobs: []jobView{v.jobView}}).table() }
func (v *oneJobView) names() []string { return []string{v.JobID} }

// downloadedJobView is the view of download: its table has the paths.
type downloadedJobView struct{ oneJobView }

func emptyDownloadedJob() view {
	return &downloadedJobView{oneJobView{jobView: jobView{Outputs: []outputView{}}}}
}

func (v *downloadedJobView) table() (t table) {
	for _, o := range v.Outputs {
		if o.Path != "" {
			t.rows = append(t.rows, []string{o.Path})
		}
	}
	return t
}

// jobClient is the interface of both job clients.
type jobClient interface {
	Get(context.Context, string, ...svc.RequestOption) (*svc.Job, error)
	All(context.Context, *svc.ListJobsOptions, ...svc.RequestOption) iter.Seq2[*svc.Job, error]
}

// jobFlags are the flags of the commands about jobs.
type jobFlags struct{ kind choice }

func (f *jobFlags) client(t *tool) jobClient {
	if f.kind.value == "image" {
		return t.client.ImageJobs
	}
	return t.client.VideoJobs
}

// advise returns what to do after a failure. A service that has retired the jobs may respond with
// "not found".
func (f *jobFlags) advise(err error) []string {
	switch {
	case isRetired(err):
		return []string{"The service has retired the job API. Its newer API is not part of this tool."}
	case noRoute(err):
		return []string{fmt.Sprintf("The service does not find the list of %s jobs: it may have retired the job API. Check --base-url.", f.kind.value)}
	case isNotFound(err):
		return []string{fmt.Sprintf("Check the ID: there is no such %s job. For the other kind, use --kind. The service may have retired the job API.", f.kind.value)}
	}
	return nil
}

func (t *tool) jobsGroup() *cobra.Command {
	g := group("jobs", "read the records of the legacy job API, which is retired")
	for _, make := range []func(*jobFlags) *command{t.jobsLsCommand, t.jobsGetCommand, t.jobsDownloadCommand} {
		flags := &jobFlags{choice{value: "video", of: []string{"video", "image"}}}
		c := make(flags)
		c.client, c.advise = needsClient, flags.advise
		c.Flags().Var(&flags.kind, "kind", "kind of the jobs: video or image")
		t.add(g, c)
	}
	return g
}

func (t *tool) jobsLsCommand(flags *jobFlags) *command {
	var limit int
	c := &command{
		Command: &cobra.Command{Use: "ls", Short: "list jobs", Example: "  svc jobs ls --kind image --limit 50"},
		empty:   emptyJobs,
	}
	c.Flags().IntVar(&limit, "limit", 0, "list at most so many jobs; 0: all")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		v := &jobsView{Jobs: []jobView{}}
		for job, err := range flags.client(t).All(ctx, &svc.ListJobsOptions{PageSize: 100}) {
			if err != nil {
				return v, err
			}
			v.Jobs = append(v.Jobs, newJobView(job))
			if len(v.Jobs) == limit {
				break
			}
		}
		return v, nil
	}
	return c
}

func (t *tool) jobsGetCommand(flags *jobFlags) *command {
	return &command{
		Command: &cobra.Command{Use: "get ID", Short: "show a job", Args: cobra.ExactArgs(1), Example: "  svc jobs get job-1 --kind video -o json"},
		empty:   emptyJob,
		run: func(ctx context.Context, args []string) (view, error) {
			job, err := flags.client(t).Get(ctx, args[0])
			if job == nil {
				return nil, err
			}
			return &oneJobView{jobView: newJobView(job)}, err
		},
	}
}

func (t *tool) jobsDownloadCommand(flags *jobFlags) *command {
	var force bool
	c := &command{
		Command: &cobra.Command{
			Use: "download ID [FOLDER]", Short: "download what a job has generated; prints the paths",
			Long:    "Downloads the outputs of a job to FOLDER, by default to the current one.",
			Example: "  svc jobs download job-1 videos", Args: cobra.RangeArgs(1, 2),
		},
		empty: emptyDownloadedJob,
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite files that exist")
	c.run = func(ctx context.Context, args []string) (view, error) {
		folder := "."
		if len(args) == 2 {
			folder = args[1]
		}
		job, err := flags.client(t).Get(ctx, args[0])
		if job == nil {
			return nil, err
		}
		v := &downloadedJobView{oneJobView{jobView: newJobView(job)}}
		if len(job.Outputs) == 0 {
			return v, fmt.Errorf("job %s is %s and has no outputs", job.JobID, job.Status)
		}
		if err := prepareFolder(folder, job, force); err != nil {
			return v, usageError{err}
		}
		t.note(func(*facts) {
			t.partial = func() view {
				known := *v
				known.Outputs = slices.Clone(v.Outputs)
				return &known
			}
		})
		for i, out := range job.Outputs {
			file := filepath.Join(folder, outputName(job, out))
			bytes, err := t.downloadOutput(ctx, flags.client(t), job.JobID, out, file, force)
			if err != nil {
				return v, fmt.Errorf("output %s of job %s: %w", cmp.Or(out.ID, strconv.Itoa(i+1)), job.JobID, err)
			}
			t.note(func(*facts) { v.Outputs[i].Bytes, v.Outputs[i].Path = bytes, file })
		}
		return v, nil
	}
	return c
}

// prepareFolder makes the folder of a download, and returns an error if an output cannot be written there: then not even the
// first one is fetched.
func prepareFolder(folder string, job *svc.Job, force bool) error {
	err := os.MkdirAll(folder, 0o777)
	for _, out := range job.Outputs {
		if err == nil {
			_, _, err = free(filepath.Join(folder, outputName(job, out)), force)
		}
	}
	return err
}

// downloadOutput writes an output to a file. If its URL has expired, the job is read again for
// a new one.
func (t *tool) downloadOutput(ctx context.Context, client jobClient, id string, out svc.JobOutput, file string, force bool) (int64, error) {
	if out.MediaURL == "" {
		return 0, errors.New("the service has no link for it, so there is nothing to download")
	}
	got, err := t.fetch(file, force, "", func(to string, opts *svc.DownloadOptions) (int64, error) {
		n, err := t.client.Files.DownloadURLFile(ctx, out.MediaURL, to, opts)
		if !errors.Is(err, svc.ErrLinkExpired) {
			return n, err
		}
		job, err := client.Get(ctx, id)
		if err != nil {
			return 0, err
		}
		i := slices.IndexFunc(job.Outputs, func(o svc.JobOutput) bool { return o.ID == out.ID })
		if i < 0 {
			return 0, errors.New("the job no longer has this output")
		}
		return t.client.Files.DownloadURLFile(ctx, job.Outputs[i].MediaURL, to, opts)
	})
	return got.bytes, err
}

var odd = lazy.Regexp(`[^\w-]+`)

// outputName returns the name of a file from the IDs of the job and the output, and from the
// extension in the URL.
func outputName(job *svc.Job, out svc.JobOutput) string {
	name := odd().ReplaceAllString(job.JobID+"-"+cmp.Or(out.ID, "output"), "_")
	if u, err := url.Parse(string(out.MediaURL)); err == nil {
		if ext := odd().ReplaceAllString(path.Ext(u.Path), ""); ext != "" {
			name += "." + ext
		}
	}
	return name
}
