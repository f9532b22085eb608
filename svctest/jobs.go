package svctest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kinds of legacy jobs, the job_type of their requests.
const (
	JobVideo = "text2video"
	JobImage = "text2image"
)

// Job statuses of the contract.
const (
	JobInitializing = "initializing"
	JobSucceed      = "succeed"
)

// Job is a legacy generation job as the service sees it, deleted ones included.
type Job struct {
	ID        string // job_id
	Kind      string // JobVideo or JobImage
	Status    string
	Request   json.RawMessage // the request with its defaults filled in
	CreatedAt time.Time
	DeletedAt time.Time // zero while it exists
	Deleted   bool
}

// jobKind is what video and image jobs do not share.
type jobKind string

const (
	videoJob jobKind = JobVideo
	imageJob jobKind = JobImage
)

// job has no timer: it succeeds when the clock has reached its time.
type job struct {
	id       string
	kind     jobKind
	request  json.RawMessage
	images   int // outputs of an image job
	created  time.Time
	finished time.Time
	deleted  time.Time // zero while it exists
	forced   string    // status set by a test
}

func (j *job) status(now time.Time) string {
	switch {
	case j.forced != "":
		return j.forced
	case now.Before(j.finished):
		return JobInitializing
	}
	return JobSucceed
}

func (j *job) done(now time.Time) bool { return j.status(now) == JobSucceed }

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

// AddVideoJobs puts n succeeded video jobs into the service and returns their ids.
func (s *Server) AddVideoJobs(n int) []string {
	return s.addJobs(n, videoJob, `{"job_type":"text2video","config":{"prompt":"seeded"}}`)
}

// AddImageJobs puts n succeeded image jobs of one image each into the service
// and returns their ids.
func (s *Server) AddImageJobs(n int) []string {
	return s.addJobs(n, imageJob, `{"job_type":"text2image","config":{"prompt":"seeded"}}`)
}

func (s *Server) addJobs(n int, kind jobKind, request string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	ids := make([]string, 0, n)
	for range n {
		body, _ := parseJSON([]byte(request))
		j := kind.parse(body)
		j.created, j.finished = now, now
		ids = append(ids, s.addJob(j).id)
	}
	return ids
}

// SetJobStatus makes a job show this status from now on; an empty one goes
// back to the clock. A job has outputs while its status is [JobSucceed]. It
// panics if there is no such job.
func (s *Server) SetJobStatus(id, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobByID(id)
	if j == nil {
		panic(fmt.Sprintf("svctest: no job %q", id))
	}
	j.forced = status
}

// Jobs lists all jobs in the order of their creation.
func (s *Server) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	list := make([]Job, 0, len(s.jobs))
	for _, j := range s.jobs {
		list = append(list, Job{
			ID: j.id, Kind: string(j.kind), Status: j.status(now), Request: j.request,
			CreatedAt: j.created, DeletedAt: j.deleted, Deleted: !j.deleted.IsZero(),
		})
	}
	return list
}
