package jobs_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

func TestAll_Concurrency(t *testing.T) {
	const latency = 20 * time.Millisecond
	for concurrency, limit := range map[int]time.Duration{
		0: 100 * latency,
		1: 100 * latency,
		2: 51 * latency,
		8: 100 * latency / 5,
	} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := jobsInPages(jobIDs(10_000), 100)
				s.Latency = latency
				start := time.Now()
				ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 100, Concurrency: concurrency}))
				require.NoError(t, err)
				require.Equal(t, jobIDs(10_000), ids)
				require.Len(t, s.Requests(), 100)
				require.Equal(t, max(concurrency, 1), s.Most, "requests in flight at a time")
				require.LessOrEqual(t, time.Since(start), limit)
				t.Log("took", time.Since(start))
			})
		})
	}
}

// If the caller reads slowly, no more pages are requested ahead than Concurrency allows.
func TestAll_ConcurrencyHoldsNoMorePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsInPages(jobIDs(500), 10)
		s.Latency = 20 * time.Millisecond
		given := 0
		for _, err := range s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}) {
			require.NoError(t, err)
			given++
			time.Sleep(time.Second)
			page := (given-1)/10 + 1 // the page that the loop is at
			require.Len(t, s.Requests(), min(page+3, 50))
		}
		require.Equal(t, 500, given)
	})
}

// After a failed page no further pages are requested.
func TestAll_ConcurrencyStopsAskingAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsInPages(jobIDs(1000), 10)
		page := s.Page
		s.Page = func(number, size int) (int, []byte) {
			if number == 4 {
				return 403, nil
			}
			return page(number, size)
		}
		given := 0
		for _, err := range s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}) {
			if err != nil {
				require.ErrorIs(t, err, svc.ErrForbidden)
				break
			}
			given++
			time.Sleep(time.Second)
		}
		require.Equal(t, 30, given)
		require.Len(t, s.Requests(), 4)
	})
}

// What ends the goroutine of a page ends the loop: a panic can be recovered there, and nothing hangs.
func TestAll_ConcurrencyPassesOnPanicsAndGoexit(t *testing.T) {
	for name, stop := range map[string]func(){"panic": func() { panic("mine") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := jobsInPages(jobIDs(100), 10)
				page := s.Page
				s.Page = func(number, size int) (int, []byte) {
					if number == 4 {
						stop()
					}
					return page(number, size)
				}
				given, ended := 0, make(chan any, 1)
				go func() {
					defer func() { ended <- recover() }()
					for range s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}) {
						given++
					}
				}()
				require.Equal(t, map[string]any{"panic": "mine"}[name], <-ended)
				require.Equal(t, 30, given)
			})
		})
	}
}
