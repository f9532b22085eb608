package jobs_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestSamePageForEver_B31(t *testing.T) {
	for _, concurrency := range []int{0, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 200, jobList(25, jobIDs(10)...) }}
			ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}))
			require.Equal(t, jobIDs(10), ids, "each job must come once")
			require.LessOrEqual(t, len(s.Requests()), 3)
			require.ErrorIs(t, err, svc.ErrPagesRepeat)
			var page *svc.PageError
			require.ErrorAs(t, err, &page)
			require.Equal(t, 3, page.Page)
			require.EqualError(t, err, "svc: GET /v1/svc-video-job: page 3: the list does not advance: two pages in a row hold only jobs of earlier pages")
		})
	}
}

// The repeated page is noticed even if the repeated jobs add up to the total.
func TestSamePageUntilTheTotalIsReached_B31(t *testing.T) {
	for _, total := range []int{-1, 0, 20} {
		t.Run(fmt.Sprint("total ", total), func(t *testing.T) {
			s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 200, jobList(total, jobIDs(10)...) }}
			ids, err := collectJobs(s.Client(t).ImageJobs.All(t.Context(), nil))
			require.Equal(t, jobIDs(10), ids)
			require.ErrorIs(t, err, svc.ErrPagesRepeat)
			require.Len(t, s.Requests(), 3)
		})
	}
}

func TestEveryPageEmpty_B31(t *testing.T) {
	for _, opts := range []*svc.ListJobsOptions{nil, {PageSize: 10}, {PageSize: 100, Concurrency: 8}} {
		s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 200, jobList(25) }}
		ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), opts))
		require.NoError(t, err)
		require.Empty(t, ids)
		require.LessOrEqual(t, len(s.Requests()), 2)
	}
}

func TestPageSizeAndTotalAreHints_B32(t *testing.T) {
	for name, tt := range map[string]struct {
		totals   []int // totals of page 1, 2, 3 and so on; -1: missing
		requests int
	}{
		"true total":               {[]int{25}, 3},
		"total 0":                  {[]int{0}, 4},
		"no total":                 {[]int{-1}, 4},
		"total changes":            {[]int{25, 22, 24}, 3},
		"total grows":              {[]int{25, 22, 27}, 4},
		"total sinks below":        {[]int{25, 12, 11}, 3},
		"total less than one page": {[]int{5}, 4},
		"total far too large":      {[]int{1000}, 4},
	} {
		for _, concurrency := range []int{0, 2, 8} {
			t.Run(fmt.Sprintf("%s, concurrency %d", name, concurrency), func(t *testing.T) {
				s := &testkit.JobService{Page: func(number, size int) (int, []byte) {
					total := tt.totals[min(number, len(tt.totals))-1]
					return 200, jobList(total, cutJobs(jobIDs(25), number, min(size, 10))...)
				}}
				ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 100, Concurrency: concurrency}))
				require.NoError(t, err)
				require.Equal(t, jobIDs(25), ids)
				var want []string
				for n := range tt.requests {
					want = append(want, fmt.Sprintf("page=%d&page_size=100", n+1))
				}
				if concurrency < 2 {
					require.Equal(t, want, s.Requests())
					return
				}
				// With concurrency the requests may arrive in another order. A total that
				// is too large is noticed a few requests later.
				require.Subset(t, s.Requests(), want)
				require.LessOrEqual(t, len(s.Requests()), tt.requests+concurrency)
				if name != "total far too large" {
					require.Len(t, s.Requests(), tt.requests)
				}
			})
		}
	}
}

// Only the server knows its page size, and it need not say it.
func TestUnsetPageSizeIsNotSent_B32(t *testing.T) {
	s := jobsInPages(jobIDs(45), 20)
	ids, err := collectJobs(s.Client(t).ImageJobs.All(t.Context(), nil))
	require.NoError(t, err)
	require.Equal(t, jobIDs(45), ids)
	require.Equal(t, []string{"page=1", "page=2", "page=3"}, s.Requests())
}

func TestAll_NoNeedlessRequests(t *testing.T) {
	for _, tt := range []struct {
		jobs, size int
		opts       svc.ListJobsOptions
		requests   int
	}{
		{jobs: 0, size: 10, requests: 1},
		{jobs: 1, size: 10, requests: 1},
		{jobs: 10, size: 10, requests: 1},
		{jobs: 11, size: 10, requests: 2},
		{jobs: 30, size: 10, requests: 3},
		{jobs: 30, size: 100, requests: 1},
		{jobs: 30, size: 10, opts: svc.ListJobsOptions{Concurrency: 8}, requests: 3},
		{jobs: 100, size: 10, opts: svc.ListJobsOptions{Concurrency: 3}, requests: 10},
		{jobs: 45, size: 10, opts: svc.ListJobsOptions{Page: 3}, requests: 4},
		{jobs: 45, size: 10, opts: svc.ListJobsOptions{Page: 3, Concurrency: 4}, requests: 4},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			s := jobsInPages(jobIDs(tt.jobs), tt.size)
			ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &tt.opts))
			require.NoError(t, err)
			skipped := max(tt.opts.Page-1, 0) * tt.size
			require.Equal(t, jobIDs(tt.jobs)[skipped:], append([]string{}, ids...))
			require.Len(t, s.Requests(), tt.requests)
		})
	}
}

func TestErrorInTheMiddle_B33(t *testing.T) {
	for _, concurrency := range []int{0, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.JobService{Page: func(number, _ int) (int, []byte) {
					if number == 2 {
						return 500, []byte(`{"message":"no luck"}`)
					}
					return 200, jobList(30, cutJobs(jobIDs(30), number, 10)...)
				}}
				list := s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency})
				for range 2 { // a second loop starts at the first page and fails again
					var ids []string
					var errs []error
					for job, err := range list {
						if err != nil {
							require.Nil(t, job)
							errs = append(errs, err)
							continue
						}
						require.Empty(t, errs, "the error comes last")
						ids = append(ids, job.JobID)
					}
					require.Equal(t, jobIDs(10), ids)
					require.Len(t, errs, 1)
					var page *svc.PageError
					require.ErrorAs(t, errs[0], &page)
					require.Equal(t, 2, page.Page)
					var answer *svc.Error
					require.ErrorAs(t, errs[0], &answer)
					require.Equal(t, 500, answer.StatusCode)
					require.ErrorIs(t, errs[0], svc.ErrServer)
					require.ErrorContains(t, errs[0], "svc: GET /v1/svc-video-job: page 2: 500 Internal Server Error: no luck")
				}
			})
		})
	}
}

// synctest fails the test if a goroutine is left at its end.
func TestBreakLeavesNothing_B34(t *testing.T) {
	for _, concurrency := range []int{0, 2, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := jobsInPages(jobIDs(500), 10)
				s.Latency = 20 * time.Millisecond
				client := s.Client(t)
				opts := &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}
				goroutines := runtime.NumGoroutine()
				for range 100 {
					before, start := len(s.Requests()), time.Now()
					for _, err := range client.VideoJobs.All(t.Context(), opts) {
						require.NoError(t, err)
						break
					}
					require.Equal(t, s.Latency, time.Since(start), "leaving the loop must not wait for a response")
					require.Zero(t, s.UnderWay(), "a request in flight after the break")
					for i := 0; runtime.NumGoroutine() > goroutines && i < 1e6; i++ {
						runtime.Gosched() // a goroutine that has ended takes a moment to disappear
					}
					require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
					asked := len(s.Requests())
					require.LessOrEqual(t, asked-before, max(concurrency, 1), "too many pages were requested ahead")
					time.Sleep(time.Minute)
					require.Len(t, s.Requests(), asked, "a request after the break")
				}
			})
		})
	}
}

func TestBreakAfterErrorAndCancel_B34(t *testing.T) {
	for _, concurrency := range []int{0, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := jobsInPages(jobIDs(500), 10)
				s.Latency = 20 * time.Millisecond
				client := s.Client(t)
				opts := &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				given := 0
				start := time.Now()
				var last error
				for _, err := range client.VideoJobs.All(ctx, opts) {
					if last = err; err != nil {
						break
					}
					if given++; given == 15 {
						cancel()
						start = time.Now()
					}
				}
				require.ErrorIs(t, last, context.Canceled)
				require.Zero(t, time.Since(start), "after the cancel the loop must not wait for a request")
				require.GreaterOrEqual(t, given, 20, "the jobs received before the cancel must be yielded")

				asked := len(s.Requests())
				ids, err := collectJobs(client.VideoJobs.All(ctx, opts))
				require.ErrorIs(t, err, context.Canceled)
				require.Empty(t, ids)
				require.Len(t, s.Requests(), asked, "no request may be sent after the cancel")
			})
		})
	}
}

func TestAll_IsLazyRestartableAndCopiesItsOptions(t *testing.T) {
	s := jobsInPages(jobIDs(25), 10)
	opts := &svc.ListJobsOptions{Page: 2, PageSize: 10}
	list := s.Client(t).ImageJobs.All(t.Context(), opts)
	require.Empty(t, s.Requests(), "no request may be sent before the loop begins")
	*opts = svc.ListJobsOptions{Page: 7, PageSize: 3, Concurrency: 5}
	for range 2 {
		before := len(s.Requests())
		ids, err := collectJobs(list)
		require.NoError(t, err)
		require.Equal(t, jobIDs(25)[10:], ids)
		require.Equal(t, []string{"page=2&page_size=10", "page=3&page_size=10", "page=4&page_size=10"}, s.Requests()[before:])
	}
	require.Equal(t, svc.ListJobsOptions{Page: 7, PageSize: 3, Concurrency: 5}, *opts)
}

// Jobs that are created or deleted between two pages shift the other jobs to other pages.
func TestAll_ListChangesBetweenPages(t *testing.T) {
	newer := []string{"new-1", "new-2", "new-3", "new-4", "new-5", "new-6", "new-7", "new-8", "new-9", "new-10", "new-11", "new-12"}
	for name, tt := range map[string]struct {
		after []string // the list after page 1 was sent
		want  []string
		asked int // one page more than needed if the total counts jobs that All does not yield
	}{
		"one inserted at the front":  {append(newer[:1:1], jobIDs(25)...), jobIDs(25), 4},
		"a page's worth inserted":    {append(newer[:10:10], jobIDs(25)...), jobIDs(25), 5},
		"more than a page inserted":  {append(newer[:12:12], jobIDs(25)...), slices.Concat(jobIDs(10), newer[10:], jobIDs(25)[10:]), 5},
		"appended":                   {append(jobIDs(25), newer[:7]...), append(jobIDs(25), newer[:7]...), 4},
		"the last ones deleted":      {jobIDs(20), jobIDs(20), 3},
		"all others deleted":         {jobIDs(10), jobIDs(10), 2},
		"one of the first deleted":   {jobIDs(25)[1:], slices.Concat(jobIDs(10), jobIDs(25)[11:]), 4},
		"everything deleted at once": {nil, jobIDs(10), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testkit.JobService{Page: func(number, _ int) (int, []byte) {
				ids := jobIDs(25)
				if number > 1 {
					ids = tt.after
				}
				return 200, jobList(len(ids), cutJobs(ids, number, 10)...)
			}}
			ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), nil))
			require.NoError(t, err)
			require.Equal(t, tt.want, ids)
			require.Len(t, s.Requests(), tt.asked)
		})
	}
}

// With WithResponse, the response is that of the page that the loop is at.
func TestAll_WithResponse(t *testing.T) {
	s := jobsInPages(jobIDs(40), 10)
	var r svc.Response
	given := 0
	for job, err := range s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}, svc.WithResponse(&r)) {
		require.NoError(t, err)
		require.Contains(t, string(r.Body), job.JobID)
		given++
	}
	require.Equal(t, 40, given)
}

func TestListQuery_B39(t *testing.T) {
	for _, tt := range []struct {
		opts *svc.ListJobsOptions
		want string
	}{
		{nil, ""},
		{&svc.ListJobsOptions{}, ""},
		{&svc.ListJobsOptions{Page: 0, PageSize: 10, Concurrency: 4}, "page_size=10"},
		{&svc.ListJobsOptions{Page: 3}, "page=3"},
		{&svc.ListJobsOptions{Page: 1, PageSize: 10}, "page=1&page_size=10"},
	} {
		s := jobsInPages(jobIDs(25), 10)
		client := s.Client(t)
		for _, list := range []func(context.Context, *svc.ListJobsOptions, ...svc.RequestOption) (*svc.JobList, error){client.VideoJobs.List, client.ImageJobs.List} {
			jobs, err := list(t.Context(), tt.opts)
			require.NoError(t, err)
			require.EqualValues(t, 25, jobs.TotalCount)
			require.NotEmpty(t, jobs.Jobs)
		}
		require.Equal(t, []string{tt.want, tt.want}, s.Requests())
	}
}

func TestList_RefusesNonsense(t *testing.T) {
	s := jobsInPages(jobIDs(25), 10)
	opts := &svc.ListJobsOptions{Page: -1, PageSize: -2, Concurrency: -3}
	_, err := s.Client(t).VideoJobs.List(t.Context(), opts)
	require.EqualError(t, err, "svc: not sent: page must not be negative; page_size must not be negative; concurrency must not be negative")
	_, err = collectJobs(s.Client(t).VideoJobs.All(t.Context(), opts))
	require.ErrorAs(t, err, new(*svc.ValidationError))
	require.Empty(t, s.Requests())
}

// A response that is not a page of jobs gives an error. It never counts as an empty page.
func TestList_RefusesWhatIsNoPage(t *testing.T) {
	for name, tt := range map[string]struct{ body, field string }{
		"html":              {`<html>please log in</html>`, ""},
		"empty":             {``, ""},
		"array":             {`[]`, ""},
		"trailing":          {`{"job_list":[]}{}`, ""},
		"job without id":    {`{"job_list":[{"job_id":"a"},{"status":"succeed"}]}`, "job_list[1].job_id"},
		"null for a job":    {`{"job_list":[null]}`, "job_list[0].job_id"},
		"list is text":      {`{"job_list":"none"}`, "job_list"},
		"total is text":     {`{"total_count":"two","job_list":[]}`, "total_count"},
		"outputs non-empty": {`{"job_list":[{"job_id":"a","outputs":{"id":"o"}}]}`, "job_list[0].outputs"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 200, []byte(tt.body) }}
			list, err := s.Client(t).VideoJobs.List(t.Context(), nil)
			require.Nil(t, list)
			var decode *svc.DecodeError
			require.ErrorAs(t, err, &decode)
			require.Equal(t, tt.field, decode.Field)
			_, err = collectJobs(s.Client(t).VideoJobs.All(t.Context(), nil))
			require.ErrorAs(t, err, new(*svc.DecodeError))
		})
	}
}
