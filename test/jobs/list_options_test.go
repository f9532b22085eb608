package jobs_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// At most 64 pages are requested at the same time.
func TestAll_ConcurrencyHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsInPages(jobIDs(2000), 10)
		s.Latency = time.Second
		ids, err := collectJobs(s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 1000}))
		require.NoError(t, err)
		require.Equal(t, jobIDs(2000), ids)
		require.Len(t, s.Requests(), 200)
		require.Equal(t, 64, s.Most)
	})
}

// All copies its request options: later changes to the caller's slice have no effect. A
// nil option is ignored.
func TestAll_KeepsItsRequestOptions(t *testing.T) {
	s := jobsInPages(jobIDs(15), 10)
	opts := []svc.RequestOption{nil, svc.WithQuery("a", "1")}
	list := s.Client(t).VideoJobs.All(t.Context(), nil, opts...)
	opts[1] = svc.WithQuery("a", "2")
	ids, err := collectJobs(list)
	require.NoError(t, err)
	require.Equal(t, jobIDs(15), ids)
	require.Equal(t, []string{"a=1&page=1", "a=1&page=2"}, s.Requests())
}

// The last page is requested ahead like any other page. No page after it is requested.
func TestAll_ConcurrencyAsksForTheLastPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for pages := 1; pages <= 3; pages++ {
			s := jobsInPages(jobIDs(10*pages), 10)
			s.Latency = time.Second
			for _, err := range s.Client(t).VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}) {
				require.NoError(t, err)
				synctest.Wait()
				require.Len(t, s.Requests(), pages)
			}
		}
	})
}

// A response may mention many jobs and contain none. List does not allocate memory for
// them.
func TestListMakesNoRoomForWhatIsNotThere(t *testing.T) {
	body := []byte(`{"job_list":[],"total_count":0,"x":["job_id"` + strings.Repeat(`,"job_id"`, 400_000) + `]}`)
	s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 200, body }}
	client := s.Client(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, err := client.VideoJobs.List(t.Context(), nil)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Empty(t, list.Jobs)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
