package svctest_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// A test can add a job with times, a failure and outputs. A program that copies old jobs
// to another place has to handle all of these.
func TestSeededJobs_C25(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithMediaContents([]byte("media")))
		jobs := srv.Client().VideoJobs
		created := time.Date(1999, 5, 6, 7, 8, 9, 0, time.UTC)
		id := srv.AddJob(svctest.Job{
			Name: "old", Description: "from last year", CreatedAt: created, FinishedAt: created.Add(time.Hour),
			Request: json.RawMessage(`{"job_type":"text2video","config":{"prompt":"a lighthouse"}}`),
			Outputs: []svctest.JobOutput{{ID: "o", MediaURL: "https://cdn.test/o.mp4"}, {}},
		})
		job, err := jobs.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "old from last year", job.Name+" "+job.Description)
		require.True(t, job.CreatedAt.Equal(created), job.CreatedAt)
		require.True(t, job.UpdatedAt.Equal(created.Add(time.Hour)), job.UpdatedAt)
		require.Len(t, job.Outputs, 2)
		require.Equal(t, "o", job.Outputs[0].ID)
		require.Equal(t, "out-job-1-2", job.Outputs[1].ID)
		raw := withoutLinks(send(t, srv, "GET", "/v1/svc-video-job/"+id, "").Body)
		require.Contains(t, raw, `{"id":"o","media_url":"https://cdn.test/o.mp4"}`)
		require.Contains(t, raw, `"prompt":"a lighthouse","negative_prompt":null`)

		seeded := srv.Jobs()[0]
		require.Equal(t, "succeed", seeded.Status)
		require.Equal(t, created.Add(time.Hour), seeded.FinishedAt)
		require.Equal(t, "media", storage(t, srv, "GET", seeded.Outputs[1].MediaURL, "").Body)
		require.Equal(t, "media", storage(t, srv, "GET", seeded.Outputs[1].ThumbnailURL, "").Body)
	})
}

func TestSeededFailures_C25(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		later := time.Now().Add(time.Minute)
		plain := srv.AddJob(svctest.Job{Status: "failed", FinishedAt: later})
		partial := srv.AddJob(svctest.Job{Kind: svctest.JobImage, Status: "failed", FinishedAt: later, Outputs: []svctest.JobOutput{{}}})
		none := srv.AddJob(svctest.Job{Kind: svctest.JobImage, Outputs: []svctest.JobOutput{}})
		get := func(kind, id string) map[string]any {
			return send(t, srv, "GET", "/v1/svc-"+kind+"-job/"+id, "").JSON()
		}
		require.Equal(t, []any{}, get("image", none)["outputs"])
		for _, kind := range []string{"video", "image"} {
			job := get(kind, map[string]string{"video": plain, "image": partial}[kind])
			require.Equal(t, "initializing", job["status"])
			require.Equal(t, map[string]any{}, job["outputs"])
		}
		_, err := srv.Client().VideoJobs.Wait(t.Context(), plain, nil)
		require.ErrorIs(t, err, svc.ErrJobFailed)
		require.GreaterOrEqual(t, time.Now(), later)
		require.Equal(t, map[string]any{}, get("video", plain)["outputs"])
		require.Equal(t, "2000-01-01T00:01:00", get("video", plain)["updated_at"])
		job := get("image", partial)
		require.Equal(t, "failed", job["status"])
		require.Len(t, job["outputs"], 1)
		require.Len(t, srv.Jobs()[1].Outputs, 1)
		require.Empty(t, srv.Jobs()[0].Outputs)
	})
}

func TestSeededJobHasToBeOne_C25(t *testing.T) {
	srv := svctest.NewInMemory()
	for _, j := range []svctest.Job{
		{Kind: "text2speech"},
		{Request: json.RawMessage(`{`)},
		{Request: json.RawMessage(`{"job_type":"text2image","config":{"prompt":"p"}}`)},
	} {
		require.Panics(t, func() { srv.AddJob(j) })
	}
	require.Empty(t, srv.Jobs())
	require.Equal(t, []string{"job-1", "job-2"}, srv.AddVideoJobs(2))
}
