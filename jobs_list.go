package svc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/go-querystring/query"

	"example.com/svc/internal/paging"
)

// ListJobsOptions says which jobs to list. Nil stands for the zero value.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ListJobsOptions struct {
	// Page is the page to read, and the one that All begins with. The first page of the
	// list is 1. 0: not sent, so the service decides; All begins with page 1.
	Page int `url:"page,omitempty"`

	// PageSize is the number of jobs on a page. The service may send fewer. 0: not sent,
	// so the service decides.
	PageSize int `url:"page_size,omitempty"`

	// Concurrency is how many pages All requests at a time, up to 64. The pages that it
	// requests ahead are kept in memory until the loop gets there. It requests none beyond
	// the total that the service named. 0 or 1: one page after the other. That is also so if
	// the service names no total, or if [WithResponse] is given. List ignores it.
	Concurrency int `url:"-"`
}

// JobList is one page of jobs.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type JobList struct {
	TotalCount Int   `json:"total_count"` // jobs on all pages
	Jobs       []Job `json:"job_list"`    // of this page, in the order of the service
}

func (l *JobList) grow(body []byte) { l.Jobs = room[Job](body, "job_id") }

// identity finds a job without an ID, since All tells jobs apart by their IDs.
func (l *JobList) identity() (field, id string) {
	for i := range l.Jobs {
		if field, id := l.Jobs[i].identity(); id == "" {
			return fmt.Sprintf("job_list[%d].%s", i, field), ""
		}
	}
	if len(l.Jobs) == 0 {
		return "job_list", empty
	}
	return "", "a page of jobs"
}

// List reads one page of jobs. Nil options leave page and size to the service. The
// service does not document the order of the list.
//
// GET /v1/svc-video-job or /v1/svc-image-job
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
func (c *jobClient) List(ctx context.Context, opts *ListJobsOptions, reqOpts ...RequestOption) (*JobList, error) {
	k := get(c.jobs)
	k.query, k.err = opts.query()
	return do[JobList](ctx, c.client, k, reqOpts)
}

// maxAhead is the largest Concurrency.
const maxAhead = 64

// query makes the query of a list call.
func (o *ListJobsOptions) query() (url.Values, error) {
	if o == nil {
		return nil, nil
	}
	var p problems
	p.add(o.Page < 0, "page", "must not be negative")
	p.add(o.PageSize < 0, "page_size", "must not be negative")
	p.add(o.Concurrency < 0, "concurrency", "must not be negative")
	if err := p.err(); err != nil {
		return nil, err
	}
	return query.Values(o)
}

// All yields the jobs of all pages, each once, in the order of the list, which the service
// does not document. Nil options begin with page 1. A page is requested when the loop gets
// there; [ListJobsOptions.Concurrency] changes that. Leaving the loop ends all requests.
// Each loop starts over.
//
// When a page fails, the loop ends: the last pair is a nil job and a [PageError]. It matches
// [ErrPagesRepeat] if two pages in a row held only jobs of earlier pages.
//
// The list ends, without an error, with an empty page, or when as many jobs have come as the
// largest total said. A total that is missing or less than the number of jobs so far is
// ignored. So is any total if Page is above 1. Without a total, a 404 on a page after the
// first also ends the list. If the service names a total that is too small, and just so many
// jobs have come, the list ends too early.
//
// The IDs of all jobs are kept until the loop ends, about 100 bytes for each.
//
// Jobs that are created or deleted during the loop move other jobs to other pages. No job
// is yielded twice for it, but each deletion can make the loop skip a job. To delete jobs,
// collect their IDs first.
//
// GET /v1/svc-video-job or /v1/svc-image-job, page by page
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
func (c *jobClient) All(ctx context.Context, opts *ListJobsOptions, reqOpts ...RequestOption) iter.Seq2[*Job, error] {
	o := orZero(opts)
	if _, err := o.query(); err != nil {
		return func(yield func(*Job, error) bool) { yield(nil, err) }
	}
	reqOpts = slices.Clone(reqOpts)
	if options(reqOpts).response != nil {
		o.Concurrency = 1 // WithResponse can hold one response
	}
	return paging.List[Job]{
		First: max(o.Page, 1),
		Ahead: min(o.Concurrency, maxAhead),
		Key:   func(j *Job) string { return j.JobID },
		None:  noSuchPage,
		Fail:  func(n int, err error) error { return &PageError{Route: c.jobs, Page: n, Err: err} },
		Fetch: func(ctx context.Context, n int) (paging.Page[Job], error) {
			list, err := c.List(ctx, &ListJobsOptions{Page: n, PageSize: o.PageSize}, reqOpts...)
			if err != nil {
				return paging.Page[Job]{}, err
			}
			return paging.Page[Job]{Items: list.Jobs, Total: int64(list.TotalCount)}, nil
		},
	}.All(ctx)
}

func noSuchPage(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.StatusCode == http.StatusNotFound && notFound(err)
}

// PageError says which page of a list failed, and why.
type PageError struct {
	Route string // "/v1/svc-video-job"
	Page  int    // 1 for the first of the list
	Err   error  // an Error, ErrPagesRepeat, the end of ctx, …
}

// Error names the list, the page and the reason.
func (e *PageError) Error() string { return "svc: GET " + e.Route + ": " + e.detail() }

func (e *PageError) detail() string { return fmt.Sprintf("page %d: %s", e.Page, detail(e.Err)) }

// Unwrap gives the reason.
func (e *PageError) Unwrap() error { return e.Err }
