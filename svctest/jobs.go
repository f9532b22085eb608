package svctest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of legacy jobs. They are the values of job_type in create requests.
const (
	JobVideo = "text2video"
	JobImage = "text2image"
)

// Job statuses of the contract. The contract names no status for a failed job.
const (
	JobInitializing = "initializing" // not finished
	JobSucceed      = "succeed"      // finished, with outputs
)

// Job is the state of a legacy generation job. [Server.Jobs] lists all jobs that were
// ever created. [Server.AddJob] adds a job.
type Job struct {
	// ID is the job_id. AddJob ignores this field and chooses the ID.
	ID string
	// Kind is [JobVideo] or [JobImage]. For AddJob, empty means JobVideo.
	Kind string
	// Name and Description are empty unless AddJob set them.
	Name, Description string
	// Status is the status that a GET shows. For AddJob it is the status that a GET
	// shows from FinishedAt on, such as "failed", and empty means [JobSucceed].
	Status string
	// Request is the create request with its defaults filled in. For AddJob, empty
	// means a request with a short prompt.
	Request json.RawMessage
	// CreatedAt is the time of creation. For AddJob, zero means now.
	CreatedAt time.Time
	// FinishedAt is the time at which the job ends. It may be in the future: until
	// then the job is "initializing". For AddJob, zero means CreatedAt.
	FinishedAt time.Time
	// DeletedAt is zero while the job exists. AddJob ignores it.
	DeletedAt time.Time
	// Deleted is true once the job was deleted. AddJob ignores it.
	Deleted bool
	// Outputs are the media that a GET shows. For AddJob, nil means the usual outputs:
	// if the job succeeds, one video or as many images as were requested; otherwise
	// none. Outputs that are not nil are shown at every status except "initializing",
	// so that a failed job can have a part of its outputs. A list that is empty but not
	// nil is sent as an empty array.
	Outputs []JobOutput
}

// JobOutput is one generated medium of a job.
type JobOutput struct {
	// ID is the ID of the output. For [Server.AddJob], empty means an ID that is made
	// from the ID of the job.
	ID string
	// MediaURL is the address of the medium. For AddJob, empty means a presigned URL
	// of the server, which leads to the contents of [WithMediaContents].
	MediaURL string
	// ThumbnailURL is the address of a small image. For AddJob, empty means no such
	// image. The exception is a video without a MediaURL: it gets presigned URLs for
	// MediaURL and ThumbnailURL.
	ThumbnailURL string
}

// jobKind is the kind of a job. Its methods are the operations on jobs of that kind.
type jobKind string

const (
	videoJob jobKind = JobVideo
	imageJob jobKind = JobImage
)

// job has no timer. Its status is computed from the current time on each read.
type job struct {
	id, user, name, description string
	kind                        jobKind
	request                     json.RawMessage
	images                      int // number of outputs of an image job
	created, finished           time.Time
	deleted                     time.Time   // when the job was deleted; zero while it exists
	outcome                     string      // the status from the time in the field finished on; empty means JobSucceed
	forced                      string      // status set by a test
	seeded                      []JobOutput // outputs given by a test; nil means the usual ones
}

func (j *job) status(now time.Time) string {
	switch {
	case j.forced != "":
		return j.forced
	case now.Before(j.finished):
		return JobInitializing
	}
	return orDefault(j.outcome, JobSucceed)
}

// hasOutputs reports whether a GET shows outputs.
func (j *job) hasOutputs(now time.Time) bool {
	status := j.status(now)
	return status == JobSucceed || j.seeded != nil && status != JobInitializing
}

func (s *Server) addJob(j *job) *job {
	j.id = fmt.Sprintf("job-%d", len(s.jobs)+1)
	s.jobs = append(s.jobs, j)
	return j
}

func (s *Server) jobByID(id string) *job {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "job-"))
	if err != nil || n < 1 || n > len(s.jobs) || s.jobs[n-1].id != id {
		return nil
	}
	return s.jobs[n-1]
}

// AddJob adds a job to the service and returns its ID. All fields of j are optional:
// see [Job]. This example adds an image job that fails after a minute, with one image:
//
//	srv.AddJob(svctest.Job{
//		Kind: svctest.JobImage, Status: "failed", FinishedAt: time.Now().Add(time.Minute),
//		Outputs: []svctest.JobOutput{{}},
//	})
//
// AddJob panics if the kind is unknown, or if Request is not a valid create request of
// that kind.
func (s *Server) AddJob(j Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := jobKind(orDefault(j.Kind, JobVideo))
	if kind != videoJob && kind != imageJob {
		panic(fmt.Sprintf("svctest: unknown kind of job %q", j.Kind))
	}
	request := j.Request
	if len(request) == 0 {
		request = encode(ordered{{"job_type", string(kind)}, {"config", ordered{{"prompt", "seeded"}}}})
	}
	body, problem := parseJSON(request)
	if problem.code != "" {
		panic("svctest: the Request of a Job is not valid: " + problem.message)
	}
	added := kind.parse(body)
	if problem := body.invalid(); problem.code != "" {
		panic("svctest: the Request of a Job is not valid: " + problem.message)
	}
	added.user = DefaultUser
	added.name, added.description, added.outcome = j.Name, j.Description, j.Status
	added.seeded = slices.Clone(j.Outputs)
	added.created, added.finished = j.CreatedAt, j.FinishedAt
	if added.created.IsZero() {
		added.created = s.now()
	}
	if added.finished.IsZero() {
		added.finished = added.created
	}
	return s.addJob(added).id
}

// AddVideoJobs adds n video jobs that have succeeded, and returns their IDs.
func (s *Server) AddVideoJobs(n int) []string { return s.addJobs(n, JobVideo) }

// AddImageJobs adds n image jobs of one image each that have succeeded, and returns
// their IDs.
func (s *Server) AddImageJobs(n int) []string { return s.addJobs(n, JobImage) }

func (s *Server) addJobs(n int, kind string) []string {
	ids := make([]string, 0, n)
	for range n {
		ids = append(ids, s.AddJob(Job{Kind: kind}))
	}
	return ids
}

// SetJobStatus sets the status of a job. With an empty status, the fake again chooses
// the status by the time. The job shows outputs while its status is [JobSucceed].
// Outputs that a test passed to [Server.AddJob] are shown at every status except
// "initializing". SetJobStatus panics if there is no such job.
func (s *Server) SetJobStatus(id, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobByID(id)
	if j == nil {
		panic(fmt.Sprintf("svctest: no job %q", id))
	}
	j.forced = status
}

// Jobs lists all jobs in the order in which they were created or added, including
// deleted ones.
func (s *Server) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	list := make([]Job, 0, len(s.jobs))
	for _, j := range s.jobs {
		list = append(list, Job{
			ID: j.id, Kind: string(j.kind), Name: j.name, Description: j.description,
			Status: j.status(now), Request: j.request, Outputs: s.outputs(j, now),
			CreatedAt: j.created, FinishedAt: j.finished, DeletedAt: j.deleted, Deleted: !j.deleted.IsZero(),
		})
	}
	return list
}
