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
	// Page is the page to read. All begins with it. The first page of the list is 1.
	// 0: up to the service; All begins with page 1.
	Page int `url:"page,omitempty"`

	// PageSize is how many jobs a page is to hold. The service may send fewer. 0: up to
	// the service.
	PageSize int `url:"page_size,omitempty"`

	// Concurrency is how many pages All requests or holds at a time, up to 64: it
	// requests pages ahead, but none beyond the total that the service named. Without a
	// total, with [WithResponse], and at 0 or 1, a page is requested when the loop gets
	// there. List ignores it.
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

// identity finds the job that has no id: pages are told apart by ids.
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

// maxAhead is the most pages that All asks for ahead.
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

// All gives the jobs of all pages one by one, each once, in the order of the list. The
// service does not document that order. Nil options begin with page 1. The first page
// is requested when the loop starts, each further one when the loop gets there
// ([ListJobsOptions.Concurrency] changes that). Leaving the loop ends all requests. Each
// loop starts over.
//
// When a page fails, the loop ends there: the last pair holds a nil job and a
// [PageError]. It matches [ErrPagesRepeat] when two pages in a row held only jobs that
// came before.
//
// The list ends, without an error, when as many jobs have come as the largest total
// said, or with an empty page. A total that is missing, or less than what came, is
// ignored, and so is any total when Page is above 1. Then the list also ends with a 404
// on a page after the first, unless jobs are still missing. A total that is too small
// and equals what the pages so far have brought (10 of 40 in pages of 10) cuts the list
// short.
//
// The IDs of all jobs given are kept until the loop ends, about 100 bytes for each.
//
// Jobs that are created or deleted during the loop move other jobs from page to page.
// No job is given twice for it, but each deletion can make the loop skip a job: to
// delete jobs, collect their IDs first.
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
		o.Concurrency = 1 // there is room for one response
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

// PageError says which page ended the loop over a list, and why.
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
