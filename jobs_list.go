package svc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/google/go-querystring/query"

	"example.com/svc/internal/paging"
)

// ListJobsOptions selects the jobs to list. Nil selects the defaults.
type ListJobsOptions struct {
	// Page is the number of the page that List reads and that All begins with. The first page
	// of the list is 1. If 0, All begins with page 1, and List does not send the number, so the
	// service chooses the page.
	Page int `url:"page,omitempty"`

	// PageSize is the number of jobs on a page. The service may send fewer. If 0, the number is
	// not sent, so the service chooses it.
	PageSize int `url:"page_size,omitempty"`

	// Concurrency is how many pages All requests at the same time, up to 64. Pages that All
	// requests in advance are kept in memory until the loop needs them. All requests no page
	// in advance that lies beyond the total that the service named. 0 or 1 means that All requests one
	// page after the other. It also requests one after the other if the service names no total, or if
	// [WithResponse] is given. List ignores Concurrency.
	Concurrency int `url:"-"`
}

// JobList is one page of jobs.
type JobList struct {
	TotalCount Int   `json:"total_count"` // number of jobs on all pages
	Jobs       []Job `json:"job_list"`    // jobs of this page, in the order of the service
}

func (l *JobList) grow(body []byte) { l.Jobs = room[Job](body, "job_id") }

// check needs the ID of each job, since All tells jobs apart by their IDs.
func (l *JobList) check(body []byte) (string, error) {
	return checkList("job_list", l.Jobs, body, true)
}

// List reads one page of jobs. With nil options, the service chooses the page and its size.
// The service does not document the order of the list.
//
// GET /v1/svc-video-job or /v1/svc-image-job
func (c *jobClient) List(ctx context.Context, opts *ListJobsOptions, reqOpts ...RequestOption) (*JobList, error) {
	o := orZero(opts)
	k := newCall(http.MethodGet, c.jobs, "", nil, o.problems(), slices.Concat([]RequestOption{o.set}, reqOpts))
	return do[JobList](ctx, c.client, k)
}

// set sets the query parameters. An option of the call that comes after it takes precedence.
func (o *ListJobsOptions) set(r *request) { r.query, _ = query.Values(o) } // numbers always have a text

// maxAhead is the largest Concurrency that has an effect.
const maxAhead = 64

func (o *ListJobsOptions) problems() (p problems) {
	p.add(o.Page < 0, "page", "must not be negative")
	p.add(o.PageSize < 0, "page_size", "must not be negative")
	p.add(o.Concurrency < 0, "concurrency", "must not be negative")
	return p
}

// All yields the jobs of all pages. It yields each job once, in the order of the list, which
// the service does not document. With nil options it begins with page 1. A page is requested
// when the loop needs it; [ListJobsOptions.Concurrency] changes that. Leaving the loop ends
// all requests. A second loop over the same sequence begins again with the first page.
//
// If a page fails, the loop ends: the last pair is a nil job and a [PageError]. The error
// matches [ErrPagesRepeat] if two pages in a row held only jobs of earlier pages.
//
// The loop ends without an error after an empty page, and when it has received as many jobs
// as the largest total that a page named. A total is ignored if it is less than the number of
// jobs so far, or if Page is above 1. Without a total, a 404 on a page after the first also
// ends the loop. A total that is too small can end the loop too early.
//
// The IDs of all jobs are kept in memory until the loop ends, about 100 bytes for each job.
//
// If jobs are created or deleted during the loop, other jobs move to other pages. All never
// yields a job twice, but each deletion can make it skip a job. To delete the jobs of a list,
// collect their IDs first.
//
// GET /v1/svc-video-job or /v1/svc-image-job, page by page
func (c *jobClient) All(ctx context.Context, opts *ListJobsOptions, reqOpts ...RequestOption) iter.Seq2[*Job, error] {
	o := orZero(opts)
	if err := o.problems().err(); err != nil {
		return func(yield func(*Job, error) bool) { yield(nil, err) }
	}
	reqOpts = slices.Clone(reqOpts)
	if get(c.jobs, "", reqOpts).opts.response != nil {
		o.Concurrency = 1 // WithResponse can hold only one response
	}
	return paging.List[Job]{
		First: max(o.Page, 1),
		Ahead: min(o.Concurrency, maxAhead),
		Key:   func(j *Job) string { return j.JobID },
		None:  noSuchPage,
		Fail:  func(n int, err error) error { return &PageError{Route: c.jobs, Page: n, Err: err} },
		Fetch: func(ctx context.Context, n int) (paging.Page[Job], error) {
			list, err := c.List(ctx, &ListJobsOptions{Page: n, PageSize: o.PageSize}, reqOpts...)
			page := orZero(list)
			return paging.Page[Job]{Items: page.Jobs, Total: int64(page.TotalCount)}, err
		},
	}.All(ctx)
}

func noSuchPage(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.StatusCode == http.StatusNotFound && notFound(err)
}

// A PageError records which page of a list could not be read, and why.
type PageError struct {
	Route string // path of the list: "/v1/svc-video-job"
	Page  int    // number of the page; 1 for the first page of the list
	Err   error  // why the page failed: an Error, ErrPagesRepeat, the end of ctx, …
}

// Error names the list, the page and the reason.
func (e *PageError) Error() string { return "svc: GET " + e.Route + ": " + e.detail() }

func (e *PageError) detail() string { return fmt.Sprintf("page %d: %s", e.Page, detail(e.Err)) }

// Unwrap returns Err.
func (e *PageError) Unwrap() error { return e.Err }
