package svc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-querystring/query"

	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/paging"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/same"
)

// This file holds the legacy job API.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].

// Job is a record of the legacy job API: a video or images to be generated from
// a prompt.
type Job struct {
	JobID       string      `json:"job_id"`       // ID of the job, for all other calls
	UserID      string      `json:"user_id"`      // ID of the owner
	Name        string      `json:"name"`         // empty if not set
	Description string      `json:"description"`  // empty if not set
	PaymentType PaymentType `json:"payment_type"` // value seen: PaymentTypeUSD
	Status      JobStatus   `json:"status"`       // one of the constants, or an unknown value; Failed and Done compare it case-insensitively
	MetaInfo    JobMetaInfo `json:"meta_info"`    // how the job was created
	CreatedAt   Time        `json:"created_at"`   // when the job was created
	UpdatedAt   Time        `json:"updated_at"`   // when the record last changed
	DeletedAt   Time        `json:"deleted_at"`   // when the job was deleted; zero if it exists; prefer IsDeleted
	IsDeleted   bool        `json:"is_deleted"`   // the job is deleted
	Outputs     Outputs     `json:"outputs"`      // generated videos or images; empty until the job has succeeded
}

func (j *Job) identity() (field, id string) { return "job_id", j.JobID }

// Failed reports whether the status is one of those that mean failure, from
// [JobStatusFail] to [JobStatusRejected].
func (j *Job) Failed() bool {
	return slices.ContainsFunc(jobFailures, func(s JobStatus) bool { return same.Text(s, j.Status) })
}

// Done reports whether the job has succeeded or failed. Then its status no longer changes.
func (j *Job) Done() bool { return same.Text(j.Status, JobStatusSucceed) || j.Failed() }

var jobFailures = []JobStatus{JobStatusFail, JobStatusFailed, JobStatusError, JobStatusCanceled, JobStatusCancelled, JobStatusRejected}

// JobMetaInfo records how a job was created.
type JobMetaInfo struct {
	// OriginalRequest is the request as the service understood it, including the service's
	// defaults: a JSON object with job_type and config. Its text is kept byte for byte. It
	// decodes into a [CreateVideoJobRequest] or a [CreateImageJobRequest] that creates the
	// same job again.
	OriginalRequest json.RawMessage `json:"original_request,omitempty"`
	ModelID         Int             `json:"model_id"`                   // ID of the model that the service chose
	OrderID         string          `json:"order_id,omitempty"`         // ID of the order; empty until the job is done
	UpdateAt        Time            `json:"update_at"`                  // time of the last update; zero until the job is done
	ServiceAPIToken ServiceAPIToken `json:"service_api_token,omitzero"` // the token that the job was created with; zero for an image job
}

// ServiceAPIToken describes the token that a video job was created with.
type ServiceAPIToken struct {
	APIToken   Secret  `json:"api_token"`    // the token; the service masks it or does not send it
	APITokenID Int     `json:"api_token_id"` // ID of the token
	User       JobUser `json:"user"`         // owner of the token
}

// JobUser is the owner of the token that a video job was created with.
type JobUser struct {
	UserID   string   `json:"user_id"`  // ID of the owner
	Nickname string   `json:"nickname"` // nickname of the owner; may be empty
	Currency Currency `json:"currency"` // currency that the owner pays in
}

// Outputs are the videos or images that a job has generated. The service sends an empty
// object while there are no outputs, and an array after that. An empty object, an empty array
// and null all decode to Outputs of length 0. An object that is not empty is an error.
type Outputs []JobOutput

// UnmarshalJSON reads an array, null or an empty object.
func (o *Outputs) UnmarshalJSON(b []byte) error {
	if len(b) > 1 && b[0] == '{' && len(bytes.TrimSpace(b[1:len(b)-1])) == 0 {
		*o = Outputs{}
		return nil
	}
	if len(b) > 0 && b[0] != '[' && b[0] != 'n' {
		return jsonfield.TypeError[Outputs](b)
	}
	*o = nil
	return json.Unmarshal(b, (*[]JobOutput)(o))
}

// JobOutput is one generated video or image. Download it with its MediaURL.
type JobOutput struct {
	ID           string    `json:"id"`                      // ID of the output
	MediaURL     SignedURL `json:"media_url"`               // link for [FileClient.DownloadURL]; empty if there are no contents
	ThumbnailURL SignedURL `json:"thumbnail_url,omitempty"` // link to a still image of the video; empty for an image
}

const (
	videoJobs = "/v1/svc-video-job"
	videoJob  = "/v1/svc-video-job/{job_id}"
	imageJobs = "/v1/svc-image-job"
	imageJob  = "/v1/svc-image-job/{job_id}"
)

// VideoJobClient generates videos through the legacy job API. Reach it through
// [Client.VideoJobs].
//
// Deprecated: the legacy job API is retired. The service has migrated it to a
// newer asynchronous inference API, which this package does not cover, and
// responds with an error that matches [ErrRetired]. The types and methods are kept for
// archived records, private deployments and replays of recorded traffic.
type VideoJobClient struct{ jobClient }

// ImageJobClient generates images through the legacy job API. Reach it through
// [Client.ImageJobs].
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageJobClient struct{ jobClient }

// jobClient has the methods that video jobs and image jobs share.
type jobClient struct {
	client    *Client
	jobs, job string // routes of the list and of a single job
}

// Create requests a video. The returned job has the status initializing; [VideoJobClient.Wait]
// waits for the video.
//
// The request is repeated only if it is known to have had no effect. If its outcome is not
// known, the error is an [OutcomeUnknownError].
//
// POST /v1/svc-video-job
func (c *VideoJobClient) Create(ctx context.Context, req CreateVideoJobRequest, opts ...RequestOption) (*Job, error) {
	body := jobBody[VideoJobConfig]{JobTypeText2Video, req.Config}
	return do[Job](ctx, c.client, newCall(http.MethodPost, videoJobs, "", &body, req.problems(), opts))
}

// Create requests images. The returned job has the status initializing; [ImageJobClient.Wait]
// waits for the images.
//
// The request is repeated only if it is known to have had no effect. If its outcome is not
// known, the error is an [OutcomeUnknownError].
//
// POST /v1/svc-image-job
func (c *ImageJobClient) Create(ctx context.Context, req CreateImageJobRequest, opts ...RequestOption) (*Job, error) {
	body := jobBody[ImageJobConfig]{JobTypeText2Image, req.Config}
	return do[Job](ctx, c.client, newCall(http.MethodPost, imageJobs, "", &body, req.problems(), opts))
}

// Get reads one job. An error that matches [ErrNotFound] matches [ErrRetired] as well: the
// response does not show whether the job or the whole API no longer exists.
//
// GET /v1/svc-video-job/{job_id} or /v1/svc-image-job/{job_id}
func (c *jobClient) Get(ctx context.Context, id string, opts ...RequestOption) (*Job, error) {
	return do[Job](ctx, c.client, get(c.job, id, opts))
}

// Delete deletes a job. If a response is lost and the repeated request gets "not found" with the
// same token, Delete assumes that the first request deleted the job, and returns no error.
//
// DELETE /v1/svc-video-job/{job_id} or /v1/svc-image-job/{job_id}
func (c *jobClient) Delete(ctx context.Context, id string, opts ...RequestOption) error {
	return doDelete(ctx, c.client, c.job, id, opts)
}

// Wait waits until a job has succeeded. It ends at once, with a [WaitError], when the job has
// failed ([ErrJobFailed]) or is deleted ([ErrNotFound]). It also ends on the errors that end
// [InferenceServiceClient.WaitUntilAvailable], such as a 401 or 403. An unknown status means
// "not yet". Along with an error, Wait returns the last record.
//
// The service does not document which statuses mean failure; see [Job.Failed].
// [WaitOptions.Probe] is not called.
//
// GET /v1/svc-video-job/{job_id} or /v1/svc-image-job/{job_id}, repeatedly
func (c *jobClient) Wait(ctx context.Context, id string, opts *WaitOptions) (*Job, error) {
	o := opts.withDefaults()
	w := &waiter[Job]{
		opts: o, start: time.Now(), outcome: WaitError{ID: id, Want: "done"},
		poll: func(ctx context.Context) (*Job, rules.Verdict, error) {
			j, err := c.Get(ctx, id, polling(o.RequestOptions)...)
			return j, rules.Unproven, err
		},
		status: func(j *Job) string { return string(j.Status) },
		client: c.client,
	}
	return w.run(ctx, untilDone)
}

// untilDone reports whether a job has succeeded. It returns an error if the job has failed or
// is deleted.
func untilDone(j *Job) (bool, error) {
	switch {
	case j.IsDeleted:
		return false, errDeleted
	case j.Failed():
		return false, ErrJobFailed
	}
	return j.Done(), nil
}

// CreateVideoJobRequest describes a video to be generated.
type CreateVideoJobRequest struct {
	Config VideoJobConfig `json:"config"` // what to generate
}

// VideoJobConfig describes a video. Only Prompt is required. A field with its zero value is
// not sent; the service then uses its default.
//
// A field of type [json.RawMessage] holds JSON text, so that null can be sent: for example
// json.RawMessage(`"blurry"`), json.RawMessage("false") or json.RawMessage("null").
type VideoJobConfig struct {
	Prompt                 string           `json:"prompt"`                              // what the video is to show
	NegativePrompt         json.RawMessage  `json:"negative_prompt,omitempty"`           // what not to show in the video: a JSON string or null; default null
	Settings               VideoJobSettings `json:"settings,omitzero"`                   // seed, size and duration; if zero, not sent
	GenMode                GenMode          `json:"gen_mode,omitempty"`                  // way of generating the video; default "standard"
	IsPublic               *bool            `json:"is_public,omitempty"`                 // default true; new(false) keeps the video private
	UseFFCond              json.RawMessage  `json:"use_ff_cond,omitempty"`               // any JSON; its meaning is not documented; default null
	IsEnablePromptEnhancer json.RawMessage  `json:"is_enable_prompt_enhancer,omitempty"` // true, false or null; default null
}

// VideoJobSettings holds the seed, the size and the duration of a video.
type VideoJobSettings struct {
	Seed        *int   `json:"seed,omitempty"`         // seed of the generator; if nil, not sent, so that 0 can be sent; default -1
	AspectRatio string `json:"aspect_ratio,omitempty"` // ratio of width to height; default "16:9"
	Resolution  int    `json:"resolution,omitempty"`   // unit not documented; default 720
	Duration    int    `json:"duration,omitempty"`     // unit not documented; default 4
}

// CreateImageJobRequest describes images to be generated.
type CreateImageJobRequest struct {
	Config ImageJobConfig `json:"config"` // what to generate
}

// ImageJobConfig describes images. Only Prompt is required. A field with its zero value is
// not sent; the service then uses its default.
type ImageJobConfig struct {
	Prompt         string           `json:"prompt"`                    // what the images are to show
	NegativePrompt json.RawMessage  `json:"negative_prompt,omitempty"` // what not to show in the images: a JSON string or null; default null
	Settings       ImageJobSettings `json:"settings,omitzero"`         // seed and size; if zero, not sent
	Config         ImageConfig      `json:"config,omitzero"`           // number of images; if zero, not sent
}

// ImageJobSettings holds the seed and the size of the images. The service documents defaults
// only for videos.
type ImageJobSettings struct {
	Seed        *int   `json:"seed,omitempty"`         // seed of the generator; if nil, not sent, so that 0 can be sent
	AspectRatio string `json:"aspect_ratio,omitempty"` // ratio of width to height, such as "16:9"; if empty, not sent
	Resolution  int    `json:"resolution,omitempty"`   // unit not documented; if 0, not sent
}

// ImageConfig is the inner config object of an image job, at config.config of the request.
type ImageConfig struct {
	ImageNumber int `json:"image_number,omitempty"` // number of images to generate; if 0, not sent
}

// jobBody is the body of a create request. The method that sends it sets the job_type.
type jobBody[Config any] struct {
	JobType JobType `json:"job_type"`
	Config  Config  `json:"config"`
}

func (r *CreateVideoJobRequest) problems() (p problems) {
	p.add(r.Config.Prompt == "", "config.prompt", "is required")
	p.add(r.Config.Settings.Resolution < 0, "config.settings.resolution", "must not be negative")
	p.add(r.Config.Settings.Duration < 0, "config.settings.duration", "must not be negative")
	p.addJSON(r.Config.NegativePrompt, "config.negative_prompt")
	p.addJSON(r.Config.UseFFCond, "config.use_ff_cond")
	p.addJSON(r.Config.IsEnablePromptEnhancer, "config.is_enable_prompt_enhancer")
	return p
}

func (r *CreateImageJobRequest) problems() (p problems) {
	p.add(r.Config.Prompt == "", "config.prompt", "is required")
	p.add(r.Config.Settings.Resolution < 0, "config.settings.resolution", "must not be negative")
	p.addJSON(r.Config.NegativePrompt, "config.negative_prompt")
	p.add(r.Config.Config.ImageNumber < 0, "config.config.image_number", "must not be negative")
	return p
}

func (p *problems) addJSON(raw json.RawMessage, field string) {
	p.add(len(raw) > 0 && !json.Valid(raw), field, "is not JSON")
}

// ListJobsOptions selects the jobs to list. If nil, the defaults are used.
type ListJobsOptions struct {
	// Page is the number of the page that List reads and that All begins with. The first page
	// of the list is page 1. If 0, All begins with page 1, and List does not send the number,
	// so the service chooses the page.
	Page int `url:"page,omitempty"`

	// PageSize is the number of jobs on a page. The service may send fewer. If 0, the number is
	// not sent, so the service chooses it.
	PageSize int `url:"page_size,omitempty"`

	// Concurrency is the number of pages that All requests at the same time, up to 64. Pages that All
	// requests in advance are kept in memory until the loop needs them. All requests no page in
	// advance that is beyond the total that the service reported. 0 or 1 means that All requests one
	// page after another. It also does so if the service reports no total, or if [WithResponse] is
	// given. List ignores Concurrency.
	Concurrency int `url:"-"`
}

// JobList is one page of jobs.
type JobList struct {
	TotalCount Int   `json:"total_count"` // number of jobs on all pages
	Jobs       []Job `json:"job_list"`    // jobs of this page, in the order of the service
}

func (l *JobList) grow(body []byte) { l.Jobs = room[Job](body, "job_id") }

// check returns an error if a job has no ID, since All compares jobs by their IDs.
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
// The loop ends without an error after an empty page, and when it has received as many jobs as
// the largest total that a page reported. A total is ignored if it is less than the number of
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
	e, _ := errors.AsType[*Error](err)
	return orZero(e).StatusCode == http.StatusNotFound && notFound(err)
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
