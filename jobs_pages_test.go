package svc_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// jobsFrom are the ids of the jobs behind the first so many, up to another.
func jobsFrom(from, to int) []string { return jobIDs(to)[from:] }

// scriptedPages answers with these pages, and with empty ones behind them.
func scriptedPages(total int, script ...[]string) *jobService {
	return &jobService{page: func(number, _ int) (int, []byte) {
		if number > len(script) {
			return 200, jobList(total)
		}
		return 200, jobList(total, script[number-1]...)
	}}
}

// However the service cuts its pages: as long as it counts its jobs right, none of
// them is missing, and nothing is asked for once all have come.
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
		"a hole that holds nothing back": {
			20, [][]string{jobsFrom(0, 5), nil, jobsFrom(5, 15), jobsFrom(15, 20)}, jobIDs(20), 4,
		},
		"a hole in front that holds nothing back": {
			20, [][]string{nil, jobsFrom(0, 10), jobsFrom(10, 20)}, jobIDs(20), 3,
		},
		// What the service counts and does not send is looked for past two empty pages.
		"the first page empty":  {40, [][]string{nil, jobsFrom(10, 20), jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(10, 40), 6},
		"a hole in the middle":  {40, [][]string{jobsFrom(0, 10), nil, jobsFrom(10, 20), jobsFrom(20, 30)}, jobIDs(30), 6},
		"the last page missing": {40, [][]string{jobsFrom(0, 10), jobsFrom(10, 20), jobsFrom(20, 30)}, jobIDs(30), 5},
		"one job missing":       {40, [][]string{jobsFrom(1, 10), jobsFrom(10, 20), jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(1, 40), 6},
	} {
		for _, concurrency := range []int{0, 3, 8} {
			t.Run(fmt.Sprintf("%s, concurrency %d", name, concurrency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := scriptedPages(tt.total, tt.pages...)
					s.latency = 20 * time.Millisecond
					ids, err := collectJobs(s.client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}))
					require.NoError(t, err)
					require.Equal(t, tt.want, ids)
					require.LessOrEqual(t, s.most, max(concurrency, 1), "requests in flight at a time")
					// Pages asked for ahead of their turn may turn out to be needless.
					require.GreaterOrEqual(t, len(s.requests()), tt.requests)
					require.LessOrEqual(t, len(s.requests()), tt.requests+max(concurrency-1, 0))
				})
			})
		}
	}
}

// A total that is too small tells nothing from the page on that goes beyond it. One
// that a page reaches exactly is believed: the doubt would cost every list a request.
func TestAll_TotalTooSmall(t *testing.T) {
	for total, tt := range map[int]struct{ jobs, requests int }{
		1: {40, 5}, 9: {40, 5}, 15: {40, 5}, 39: {40, 5},
		10: {10, 1}, 20: {20, 2}, 30: {30, 3}, 40: {40, 4},
	} {
		for _, concurrency := range []int{0, 8} {
			t.Run(fmt.Sprintf("%d of 40, concurrency %d", total, concurrency), func(t *testing.T) {
				s := scriptedPages(total, jobsFrom(0, 10), jobsFrom(10, 20), jobsFrom(20, 30), jobsFrom(30, 40))
				ids, err := collectJobs(s.client(t).ImageJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: concurrency}))
				require.NoError(t, err)
				require.Equal(t, jobIDs(tt.jobs), ids)
				require.Len(t, s.requests(), tt.requests)
			})
		}
	}
}

// A loop that begins further back counts the pages before as if they were like those
// that come. Where these differ it looks for the end.
func TestAll_BeginsFurtherBack(t *testing.T) {
	for name, tt := range map[string]struct {
		total    int
		pages    [][]string
		want     []string
		requests int
	}{
		"whole pages":              {40, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(20, 40), 2},
		"a short last page":        {45, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40), jobsFrom(40, 45)}, jobsFrom(20, 45), 3},
		"a short page between":     {40, [][]string{nil, nil, jobsFrom(15, 25), jobsFrom(25, 27), jobsFrom(27, 37), jobsFrom(37, 40)}, jobsFrom(15, 40), 6},
		"a larger page behind":     {40, [][]string{nil, nil, jobsFrom(10, 15), jobsFrom(15, 25), jobsFrom(25, 30), jobsFrom(30, 40)}, jobsFrom(10, 40), 6},
		"overlap by half":          {35, [][]string{nil, nil, jobsFrom(10, 20), jobsFrom(15, 25), jobsFrom(20, 30), jobsFrom(25, 35)}, jobsFrom(10, 35), 6},
		"a hole":                   {40, [][]string{nil, nil, jobsFrom(20, 30), nil, jobsFrom(30, 35)}, jobsFrom(20, 35), 5},
		"a hole in front":          {30, [][]string{nil, nil, nil, jobsFrom(10, 20), jobsFrom(20, 30)}, jobsFrom(10, 30), 5},
		"a total below the start":  {15, [][]string{nil, nil, jobsFrom(20, 30), jobsFrom(30, 40)}, jobsFrom(20, 40), 3},
		"only the last, short one": {23, [][]string{nil, nil, jobsFrom(20, 23)}, jobsFrom(20, 23), 3},
		"beyond the end":           {20, nil, nil, 2},
		"beyond an empty list":     {0, nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptedPages(tt.total, tt.pages...)
			ids, err := collectJobs(s.client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{Page: 3, PageSize: 10}))
			require.NoError(t, err)
			require.Equal(t, tt.want, ids)
			require.Len(t, s.requests(), tt.requests)
			require.Equal(t, "page=3&page_size=10", s.requests()[0])
		})
	}
}
