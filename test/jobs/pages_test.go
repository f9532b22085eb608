package jobs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// jobsFrom returns the IDs of the jobs after number from, up to number to.
func jobsFrom(from, to int) []string { return jobIDs(to)[from:] }

// scriptedPages serves the given pages, and empty pages after them.
func scriptedPages(total int, script ...[]string) *testkit.JobService {
	return &testkit.JobService{Page: func(number, _ int) (int, []byte) {
		if number > len(script) {
			return 200, jobList(total)
		}
		return 200, jobList(total, script[number-1]...)
	}}
}

// The service may cut its pages in any way. As long as the total is right and no page is
// empty, no job is missing, and nothing is requested after the last job.
func TestAll_GoesOnUntilAllHaveCome(t *testing.T) {
	for name, tt := range map[string]struct {
		total    int
		pages    [][]string
		want     []string
		requests int
	}{
		"filtered after the cut": {
			20, [][]string{jobsFrom(0, 5), jobsFrom(5, 15), jobsFrom(15, 20)}, jobIDs(20), 3,
		},
		"ever larger pages": {
			30, [][]string{jobsFrom(0, 1), jobsFrom(1, 3), jobsFrom(3, 7), jobsFrom(7, 15), jobsFrom(15, 25), jobsFrom(25, 30)}, jobIDs(30), 6,
		},
		"ever smaller pages": {
			24, [][]string{jobsFrom(0, 10), jobsFrom(10, 17), jobsFrom(17, 21), jobsFrom(21, 23), jobsFrom(23, 24)}, jobIDs(24), 5,
		},
		"overlap by half": {
			45, [][]string{jobsFrom(0, 10), jobsFrom(5, 15), jobsFrom(10, 20), jobsFrom(15, 25), jobsFrom(20, 30), jobsFrom(25, 35), jobsFrom(30, 40), jobsFrom(35, 45)}, jobIDs(45), 8,
		},
		"a page sent twice": {
			25, [][]string{jobsFrom(0, 10), jobsFrom(0, 10), jobsFrom(10, 20), jobsFrom(20, 25)}, jobIDs(25), 4,
		},
		// An empty page ends the list, even if the total is larger.
		"the first page empty":  {40, [][]string{nil, jobsFrom(10, 20)}, nil, 1},
		"a hole in the middle":  {40, [][]string{jobsFrom(0, 10), nil, jobsFrom(10, 20), jobsFrom(20, 30)}, jobIDs(10), 2},
		"the last page missing": {40, [][]string{jobsFrom(0, 10), jobsFrom(10, 20), jobsFrom(20, 30)}, jobIDs(30), 4},
		"one job missing":       {40, [][]string{jobsFrom(1, 10), jobsFrom(10, 20), jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(1, 40), 5},
	} {
		for _, concurrency := range []int{0, 3, 8} {
			t.Run(fmt.Sprintf("%s, concurrency %d", name, concurrency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := scriptedPages(tt.total, tt.pages...)
					s.Latency = 20 * time.Millisecond
					ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}))
					require.NoError(t, err)
					require.Equal(t, tt.want, ids)
					require.LessOrEqual(t, s.Most, max(concurrency, 1), "requests in flight at a time")
					// Some pages that were requested ahead may not be needed.
					require.GreaterOrEqual(t, len(s.Requests()), tt.requests)
					require.LessOrEqual(t, len(s.Requests()), tt.requests+max(concurrency-1, 0))
				})
			})
		}
	}
}

// A total that is too small is ignored from the page that exceeds it. A total that a page
// reaches exactly ends the list; otherwise every list would cost one more request.
func TestAll_TotalTooSmall(t *testing.T) {
	for total, tt := range map[int]struct{ jobs, requests int }{
		1: {40, 5}, 9: {40, 5}, 15: {40, 5}, 39: {40, 5},
		10: {10, 1}, 20: {20, 2}, 30: {30, 3}, 40: {40, 4},
	} {
		for _, concurrency := range []int{0, 8} {
			t.Run(fmt.Sprintf("%d of 40, concurrency %d", total, concurrency), func(t *testing.T) {
				s := scriptedPages(total, jobsFrom(0, 10), jobsFrom(10, 20), jobsFrom(20, 30), jobsFrom(30, 40))
				ids, err := collectJobs(s.Client(t).ImageJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}))
				require.NoError(t, err)
				require.Equal(t, jobIDs(tt.jobs), ids)
				require.Len(t, s.Requests(), tt.requests)
			})
		}
	}
}

// A loop may begin after the first page. The number of jobs before that page is unknown,
// so the loop reads until an empty page.
func TestAll_BeginsFurtherBack(t *testing.T) {
	for name, tt := range map[string]struct {
		total    int
		pages    [][]string
		want     []string
		requests int
	}{
		"whole pages":              {40, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(20, 40), 3},
		"a short last page":        {45, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40), jobsFrom(40, 45)}, jobsFrom(20, 45), 4},
		"a short page between":     {40, [][]string{nil, nil, jobsFrom(15, 25), jobsFrom(25, 27), jobsFrom(27, 37), jobsFrom(37, 40)}, jobsFrom(15, 40), 5},
		"a larger page behind":     {40, [][]string{nil, nil, jobsFrom(10, 15), jobsFrom(15, 25), jobsFrom(25, 30), jobsFrom(30, 40)}, jobsFrom(10, 40), 5},
		"overlap by half":          {35, [][]string{nil, nil, jobsFrom(10, 20), jobsFrom(15, 25), jobsFrom(20, 30), jobsFrom(25, 35)}, jobsFrom(10, 35), 5},
		"a total below the start":  {15, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(20, 40), 3},
		"only the last, short one": {23, [][]string{nil, nil, jobsFrom(20, 23)}, jobsFrom(20, 23), 2},
		"beyond the end":           {20, nil, nil, 1},
		"beyond an empty list":     {0, nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptedPages(tt.total, tt.pages...)
			ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{Page: 3, PageSize: 10}))
			require.NoError(t, err)
			require.Equal(t, tt.want, ids)
			require.Len(t, s.Requests(), tt.requests)
			require.Equal(t, "page=3&page_size=10", s.Requests()[0])
		})
	}
}

// A service may have no page after the last one. A 404 for such a page ends the list if
// the list has no usable total. Otherwise it is an error, as any other error status is.
func TestPastTheLastPage_C18(t *testing.T) {
	for name, tt := range map[string]struct {
		total  int // -1: no total
		status int // status for pages past the last one
		pages  int
		from   int
		want   []string
		fails  bool
	}{
		"404":                           {total: -1, status: 404, pages: 2, want: jobIDs(20)},
		"404, total 0":                  {total: 0, status: 404, pages: 2, want: jobIDs(20)},
		"404, total too small":          {total: 5, status: 404, pages: 2, want: jobIDs(20)},
		"404 while jobs are missing":    {total: 25, status: 404, pages: 2, want: jobIDs(20), fails: true},
		"404 on the first page":         {total: -1, status: 404, pages: 0, fails: true},
		"404, from page 2":              {total: -1, status: 404, pages: 3, from: 2, want: jobIDs(30)[10:]},
		"404 where the loop begins":     {total: -1, status: 404, pages: 3, from: 7, fails: true},
		"404 with a total, from page 2": {total: 30, status: 404, pages: 3, from: 2, want: jobIDs(30)[10:]},
		"410":                           {total: -1, status: 410, pages: 2, want: jobIDs(20), fails: true},
		"500":                           {total: -1, status: 500, pages: 2, want: jobIDs(20), fails: true},
		"400":                           {total: -1, status: 400, pages: 2, want: jobIDs(20), fails: true},
	} {
		for _, concurrency := range []int{0, 4} {
			t.Run(fmt.Sprint(name, ", concurrency ", concurrency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &testkit.JobService{Page: func(number, _ int) (int, []byte) {
						if number > tt.pages {
							return tt.status, []byte(`{"message":"there is no such page"}`)
						}
						return 200, jobList(tt.total, cutJobs(jobIDs(10*tt.pages), number, 10)...)
					}}
					ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{Page: tt.from, Concurrency: concurrency}))
					require.Equal(t, tt.want, ids)
					if !tt.fails {
						require.NoError(t, err)
						return
					}
					require.Equal(t, tt.status, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
					require.Equal(t, max(tt.pages+1, tt.from), testkit.ErrorAs[*svc.PageError](t, err).Page)
				})
			})
		}
	}
}
