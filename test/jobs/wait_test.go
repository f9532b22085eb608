package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/h2non/gock.v1"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func gockJobs(t *testing.T) *svc.Client {
	t.Helper()
	t.Cleanup(gock.Off)
	hc := &http.Client{Transport: &http.Transport{}}
	gock.InterceptClient(hc)
	client, err := svc.NewClient("https://api.test", svc.WithToken("token"), svc.WithHTTPClient(hc))
	require.NoError(t, err)
	return client
}

func TestWaitForJob(t *testing.T) {
	for name, tt := range map[string]struct {
		replies  []string // job statuses, or HTTP statuses as numbers
		wantErr  error    // nil: the job has ended with success
		wantLast string   // job status of the returned record
		polls    int
	}{
		"done at once":              {[]string{"succeed"}, nil, "succeed", 1},
		"done later":                {[]string{"initializing", "initializing", "succeed"}, nil, "succeed", 3},
		"unknown status goes on":    {[]string{"initializing", "upscaling", "", "succeed"}, nil, "succeed", 4},
		"failures that pass":        {[]string{"initializing", "502", "503", "429", "succeed"}, nil, "succeed", 5},
		"fail":                      {[]string{"initializing", "fail"}, svc.ErrJobFailed, "fail", 2},
		"failed":                    {[]string{"failed"}, svc.ErrJobFailed, "failed", 1},
		"error":                     {[]string{"error"}, svc.ErrJobFailed, "error", 1},
		"canceled":                  {[]string{"canceled"}, svc.ErrJobFailed, "canceled", 1},
		"cancelled":                 {[]string{"cancelled"}, svc.ErrJobFailed, "cancelled", 1},
		"rejected":                  {[]string{"rejected"}, svc.ErrJobFailed, "rejected", 1},
		"deleted":                   {[]string{"initializing", "404"}, svc.ErrNotFound, "initializing", 2},
		"retired":                   {[]string{"410"}, svc.ErrRetired, "", 1},
		"not allowed":               {[]string{"401"}, svc.ErrUnauthorized, "", 1},
		"never done, until the end": {[]string{"initializing", "initializing", "initializing", "initializing"}, context.DeadlineExceeded, "initializing", 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := gockJobs(t)
				for _, reply := range tt.replies {
					r := gock.New("https://api.test").Get("^/v1/svc-image-job/job-1$")
					var code int
					if _, err := fmt.Sscan(reply, &code); err == nil {
						r.Reply(code)
						continue
					}
					r.Reply(200).JSON(map[string]any{"job_id": "job-1", "status": reply})
				}
				limit := time.Minute
				if tt.wantErr == context.DeadlineExceeded {
					limit = 3 * time.Second // time for three polls; the last one comes right before the deadline
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				var polls []svc.Poll
				job, err := client.ImageJobs.Wait(ctx, "job-1", &svc.WaitOptions{OnPoll: func(p svc.Poll) { polls = append(polls, p) }})
				require.Len(t, polls, tt.polls)
				require.True(t, gock.IsDone(), "replies left over")
				if tt.wantLast == "" {
					require.Nil(t, job)
				} else {
					require.EqualValues(t, tt.wantLast, job.Status)
				}
				for _, p := range polls {
					require.Equal(t, "job-1", p.ID)
					require.Nil(t, p.Service)
				}
				if tt.wantErr == nil {
					require.NoError(t, err)
					require.Zero(t, polls[len(polls)-1].Next)
					return
				}
				require.ErrorIs(t, err, tt.wantErr)
				var wait *svc.WaitError
				require.ErrorAs(t, err, &wait)
				require.Equal(t, "job-1", wait.ID)
				require.Equal(t, tt.polls, wait.Polls)
				require.Nil(t, wait.Last)
				require.ErrorContains(t, err, "svc: waiting for job-1 to be done: ")
			})
		})
	}
}

func TestWaitForJob_RecordSaysDeleted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	job, err := testkit.OneJob(`{"job_id":"j","status":"initializing","is_deleted":true}`).Client(t).VideoJobs.Wait(ctx, "j", nil)
	require.ErrorIs(t, err, svc.ErrNotFound)
	require.NotErrorIs(t, err, svc.ErrRetired)
	require.True(t, job.IsDeleted)
}

func TestWaitForJob_TakesAsLongAsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithJobTime(10 * time.Minute))
		client := srv.Client()
		job, err := client.VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p"}})
		require.NoError(t, err)
		require.Equal(t, svc.JobStatusInitializing, job.Status)
		require.Empty(t, job.Outputs)
		start := time.Now()
		job, err = client.VideoJobs.Wait(t.Context(), job.JobID, nil)
		require.NoError(t, err)
		require.NotEmpty(t, job.Outputs)
		require.WithinRange(t, time.Now(), start.Add(10*time.Minute), start.Add(10*time.Minute+20*time.Second))
	})
}

func TestWaitForJob_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.OneJob(`{"job_id":"j","status":"initializing"}`).Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(90*time.Second, cancel)
		start := time.Now()
		job, err := client.VideoJobs.Wait(ctx, "j", nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 90*time.Second, time.Since(start))
		require.Equal(t, svc.JobStatusInitializing, job.Status)
	})
}
