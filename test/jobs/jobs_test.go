// Package jobs_test tests the retired job API: records, requests, lists, waits.
package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func TestJob_EveryField(t *testing.T) {
	const original = `{"job_type":"text2video","config":{"prompt":"a lighthouse at dusk","negative_prompt":null,"settings":{"seed":-1,"aspect_ratio":"16:9","resolution":720,"duration":4},"gen_mode":"standard","is_public":true,"use_ff_cond":null,"is_enable_prompt_enhancer":null}}`
	const record = `{"job_id":"job-1","user_id":"user-1","name":"n","description":"d","payment_type":"usd","status":"succeed","meta_info":{"original_request":` + original + `,"model_id":7,"order_id":"order-1","update_at":"2024-06-01T10:15:00Z","service_api_token":{"api_token":"","api_token_id":9,"user":{"user_id":"user-2","nickname":"sample","currency":"usd"}}},"created_at":"2024-06-01T10:11:12.345678Z","updated_at":"2024-06-01T10:15:00Z","deleted_at":null,"is_deleted":false,"outputs":[{"id":"out-1","media_url":"https://media.example/out-1.mp4","thumbnail_url":"https://media.example/out-1.png"}]}`
	job, err := testkit.OneJob(record).Client(t).VideoJobs.Get(t.Context(), "job-1")
	require.NoError(t, err)

	require.Equal(t, "job-1", job.JobID)
	require.Equal(t, "user-1", job.UserID)
	require.Equal(t, "n", job.Name)
	require.Equal(t, "d", job.Description)
	require.Equal(t, svc.PaymentTypeUSD, job.PaymentType)
	require.Equal(t, svc.JobStatusSucceed, job.Status)
	require.Equal(t, original, string(job.MetaInfo.OriginalRequest))
	require.EqualValues(t, 7, job.MetaInfo.ModelID)
	require.Equal(t, "order-1", job.MetaInfo.OrderID)
	require.Equal(t, time.Date(2024, 6, 1, 10, 15, 0, 0, time.UTC), job.MetaInfo.UpdateAt.Time)
	require.Equal(t, svc.ServiceAPIToken{APITokenID: 9, User: svc.JobUser{UserID: "user-2", Nickname: "sample", Currency: "usd"}}, job.MetaInfo.ServiceAPIToken)
	require.Equal(t, time.Date(2024, 6, 1, 10, 11, 12, 345678000, time.UTC), job.CreatedAt.Time)
	require.Equal(t, time.Date(2024, 6, 1, 10, 15, 0, 0, time.UTC), job.UpdatedAt.Time)
	require.True(t, job.DeletedAt.IsZero())
	require.False(t, job.IsDeleted)
	require.Equal(t, svc.Outputs{{ID: "out-1", MediaURL: "https://media.example/out-1.mp4", ThumbnailURL: "https://media.example/out-1.png"}}, job.Outputs)

	again, err := json.Marshal(job)
	require.NoError(t, err)
	require.JSONEq(t, record, string(again), "a record encodes what it held")
}

func TestJob_ImageHasNoVideoFields(t *testing.T) {
	const record = `{"job_id":"job-2","user_id":"","name":"","description":"","payment_type":"usd","status":"new-status","meta_info":{"original_request":{"job_type":"text2image"},"model_id":8,"update_at":null},"created_at":"2024-06-01T10:11:12Z","updated_at":"2024-06-01T10:11:12Z","deleted_at":"2024-06-02T10:11:12Z","is_deleted":true,"outputs":[{"id":"out-1","media_url":"https://media.example/out-1.png"},{"id":"out-2","media_url":"https://media.example/out-2.png"}]}`
	job, err := testkit.OneJob(record).Client(t).ImageJobs.Get(t.Context(), "job-2")
	require.NoError(t, err)
	require.Zero(t, job.MetaInfo.ServiceAPIToken)
	require.Len(t, job.Outputs, 2)
	require.True(t, job.IsDeleted)
	require.Equal(t, 2, job.DeletedAt.Day())
	again, err := json.Marshal(job)
	require.NoError(t, err)
	require.JSONEq(t, record, string(again))
}

// A service may show the token in a job. Neither this token nor the signature of a media
// URL is visible when a job is printed or encoded.
func TestJob_ShowsNoSecret(t *testing.T) {
	const record = `{"job_id":"j","status":"succeed","meta_info":{"service_api_token":{"api_token":"tok-SECRET"}},"outputs":[{"id":"o","media_url":"https://m.example/a.mp4?sig=SECRET","thumbnail_url":"https://m.example/a.png?sig=SECRET"}]}`
	job, err := testkit.OneJob(record).Client(t).VideoJobs.Get(t.Context(), "j")
	require.NoError(t, err)
	require.Equal(t, "tok-SECRET", string(job.MetaInfo.ServiceAPIToken.APIToken))
	require.Equal(t, "https://m.example/a.mp4?sig=SECRET", string(job.Outputs[0].MediaURL))

	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("job", "job", job)
	slog.New(slog.NewTextHandler(&log, nil)).Info("job", "outputs", job.Outputs, "meta", job.MetaInfo.ServiceAPIToken)
	encoded, err := json.Marshal(job)
	require.NoError(t, err)
	texts := []string{string(encoded), log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		for _, value := range []any{job, *job, job.Outputs, job.Outputs[0], []*svc.Job{job}, svc.Poll{},
			job.MetaInfo, &job.MetaInfo.ServiceAPIToken} {
			if testkit.ShowsBare(reflect.ValueOf(value), 0) && !strings.ContainsAny(verb, "vdx") {
				continue
			}
			texts = append(texts, fmt.Sprintf(verb, value))
		}
	}
	for _, text := range texts {
		require.NotContains(t, text, "SECRET")
		require.NotContains(t, text, fmt.Sprintf("%x", "SECRET"))
	}
	require.Contains(t, string(encoded), "REDACTED")
}

func TestJobTimes_B35(t *testing.T) {
	for text, want := range map[string]time.Time{
		`"2024-05-01 10:20:30"`:        time.Date(2024, 5, 1, 10, 20, 30, 0, time.UTC),
		`"2024-05-01T10:20:30.123456"`: time.Date(2024, 5, 1, 10, 20, 30, 123456000, time.UTC),
		`"2024-05-01T10:20:30+08:00"`:  time.Date(2024, 5, 1, 2, 20, 30, 0, time.UTC),
		`""`:                           {},
		`null`:                         {},
		`"soon"`:                       {},
	} {
		record := fmt.Sprintf(`{"job_id":"j","created_at":%s,"updated_at":%s,"meta_info":{"update_at":%s},"name":"kept"}`, text, text, text)
		job, err := testkit.OneJob(record).Client(t).VideoJobs.Get(t.Context(), "j")
		require.NoError(t, err, text)
		for _, got := range []svc.Time{job.CreatedAt, job.UpdatedAt, job.MetaInfo.UpdateAt} {
			require.True(t, got.Equal(want), "%s: %v", text, got)
		}
		require.Equal(t, "kept", job.Name)
		if text == `"soon"` {
			require.Equal(t, "soon", job.MetaInfo.UpdateAt.Raw())
			again, err := json.Marshal(job)
			require.NoError(t, err)
			require.Contains(t, string(again), `"update_at":"soon"`)
		}
	}
}

func TestJobOutputs_B36(t *testing.T) {
	for name, tt := range map[string]struct {
		member string
		want   int
		again  string // outputs of the job when it is encoded again
	}{
		"object":       {`,"outputs":{}`, 0, `[]`},
		"with space":   {",\"outputs\":{ \n\t}", 0, `[]`},
		"array":        {`,"outputs":[]`, 0, `[]`},
		"null":         {`,"outputs":null`, 0, `null`},
		"missing":      {``, 0, `null`},
		"filled":       {`,"outputs":[{"id":"a"},{"id":"b","media_url":"https://m.example/b"}]`, 2, `[{"id":"a","media_url":""},{"id":"b","media_url":"https://m.example/b"}]`},
		"null outputs": {`,"outputs":[null]`, 1, `[{"id":"","media_url":""}]`},
	} {
		t.Run(name, func(t *testing.T) {
			client := testkit.OneJob(`{"job_id":"j"` + tt.member + `}`).Client(t)
			for _, get := range []func(context.Context, string, ...svc.RequestOption) (*svc.Job, error){client.VideoJobs.Get, client.ImageJobs.Get} {
				job, err := get(t.Context(), "j")
				require.NoError(t, err)
				require.Len(t, job.Outputs, tt.want)
				again, err := json.Marshal(job.Outputs)
				require.NoError(t, err)
				require.JSONEq(t, tt.again, string(again))
			}
			list, err := testkit.OneJob(`{"job_list":[{"job_id":"j"`+tt.member+`}]}`).Client(t).VideoJobs.List(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, list.Jobs[0].Outputs, tt.want)
		})
	}
	for _, outputs := range []string{`{"id":"a"}`, `{"0":{"id":"a"}}`, `"none"`, `1`, `false`} {
		_, err := testkit.OneJob(`{"job_id":"j","outputs":`+outputs+`}`).Client(t).VideoJobs.Get(t.Context(), "j")
		var decode *svc.DecodeError
		require.ErrorAs(t, err, &decode, outputs)
		require.Equal(t, "outputs", decode.Field)
	}
	for _, text := range []string{"", " ", "{", "[", "}", "nul"} { // texts that encoding/json never passes to UnmarshalJSON
		require.Error(t, new(svc.Outputs).UnmarshalJSON([]byte(text)), "%q", text)
	}
	_, err := testkit.OneJob(`{"job_id":"j","outputs":[{"id":"a"},{"id":2}]}`).Client(t).VideoJobs.Get(t.Context(), "j")
	var decode *svc.DecodeError
	require.ErrorAs(t, err, &decode)
	require.Equal(t, "outputs[1].id", decode.Field)
}

func TestJobParts_B36(t *testing.T) {
	for _, meta := range []string{``, `,"meta_info":null`, `,"meta_info":{}`, `,"meta_info":{"original_request":null,"service_api_token":null,"model_id":null,"order_id":null,"update_at":null}`, `,"meta_info":{"service_api_token":{"user":null,"api_token":null}}`} {
		job, err := testkit.OneJob(`{"job_id":"j"`+meta+`}`).Client(t).VideoJobs.Get(t.Context(), "j")
		require.NoError(t, err, meta)
		require.Zero(t, job.MetaInfo.ModelID)
		require.Empty(t, job.MetaInfo.OrderID)
		require.True(t, job.MetaInfo.UpdateAt.IsZero())
		_, err = json.Marshal(job)
		require.NoError(t, err, meta)
	}
	for _, list := range []string{`{"job_list":null}`, `{"total_count":null,"job_list":[]}`} {
		jobs, err := testkit.OneJob(list).Client(t).VideoJobs.List(t.Context(), nil)
		require.NoError(t, err, list)
		require.Empty(t, jobs.Jobs)
		require.Zero(t, jobs.TotalCount)
		ids, err := collectJobs(testkit.OneJob(list).Client(t).VideoJobs.All(t.Context(), nil))
		require.NoError(t, err, list)
		require.Empty(t, ids)
	}
}

func TestOriginalRequestKeepsItsDigits_B41(t *testing.T) {
	const original = `{"job_type":"text2image","config":{"settings":{"seed":9007199254740993},"x":12345678901234567890, "y":1e-7}}`
	job, err := testkit.OneJob(`{"job_id":"j","meta_info":{"original_request":`+original+`,"model_id":"9223372036854775807"}}`).Client(t).ImageJobs.Get(t.Context(), "j")
	require.NoError(t, err)
	require.Equal(t, original, string(job.MetaInfo.OriginalRequest))
	require.EqualValues(t, int64(1<<63-1), job.MetaInfo.ModelID)
	again, err := json.Marshal(job.MetaInfo)
	require.NoError(t, err)
	require.Contains(t, string(again), `"x":12345678901234567890`)
	require.Contains(t, string(again), `"seed":9007199254740993`)
}

func TestJobIDs_B42(t *testing.T) {
	var lines []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines = append(lines, r.Method+" "+r.RequestURI)
		id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/svc-video-job/"), "/v1/svc-image-job/")
		_ = json.NewEncoder(w).Encode(map[string]any{"job_id": id})
	}))
	defer srv.Close()
	client, err := svc.NewClient(srv.URL, svc.WithToken("token"), svc.WithHTTPClient(srv.Client()))
	require.NoError(t, err)

	for id, segment := range map[string]string{
		"job-1": "job-1", "x#y": "x%23y", "x?y=1": "x%3Fy=1", "x y": "x%20y", "x%2Fy": "x%252Fy", "x%y": "x%25y", "作": "%E4%BD%9C",
		"": "", "  ": "", "x/y": "", "x\ny": "", ".": "", "..": "",
	} {
		lines = nil
		var want []string
		for _, jobs := range []struct {
			path   string
			get    func(context.Context, string, ...svc.RequestOption) (*svc.Job, error)
			delete func(context.Context, string, ...svc.RequestOption) error
			wait   func(context.Context, string, *svc.WaitOptions) (*svc.Job, error)
		}{
			{"/v1/svc-video-job/", client.VideoJobs.Get, client.VideoJobs.Delete, client.VideoJobs.Wait},
			{"/v1/svc-image-job/", client.ImageJobs.Get, client.ImageJobs.Delete, client.ImageJobs.Wait},
		} {
			_, err := jobs.get(t.Context(), id)
			deleteErr := jobs.delete(t.Context(), id)
			if segment != "" {
				require.NoError(t, err, "%q", id)
				require.NoError(t, deleteErr, "%q", id)
				want = append(want, "GET "+jobs.path+segment, "DELETE "+jobs.path+segment)
				continue
			}
			_, waitErr := jobs.wait(t.Context(), id, nil)
			for _, err := range []error{err, deleteErr, waitErr} {
				require.ErrorAs(t, err, new(*svc.ValidationError), "%q", id)
			}
		}
		require.Equal(t, want, lines, "%q", id)
	}
}

// A response with a job of another ID is an error.
func TestJob_AnotherID(t *testing.T) {
	_, err := testkit.OneJob(`{"job_id":"job-2"}`).Client(t).VideoJobs.Get(t.Context(), "job-1")
	var decode *svc.DecodeError
	require.ErrorAs(t, err, &decode)
	require.Equal(t, "job_id", decode.Field)
}

func TestJobs_LifeCycle(t *testing.T) {
	srv := svctest.NewServer(svctest.WithJobTime(0))
	defer srv.Close()
	client := srv.Client()

	video, err := client.VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "a lighthouse"}})
	require.NoError(t, err)
	image, err := client.ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: svc.ImageJobConfig{
		Prompt: "a lighthouse", Config: svc.ImageConfig{ImageNumber: 3},
	}})
	require.NoError(t, err)
	require.NotEmpty(t, video.JobID)
	require.NotZero(t, video.MetaInfo.ServiceAPIToken)
	require.NotEqual(t, video.JobID, image.JobID)

	video, err = client.VideoJobs.Wait(t.Context(), video.JobID, nil)
	require.NoError(t, err)
	require.Len(t, video.Outputs, 1)
	require.NotEmpty(t, video.Outputs[0].ThumbnailURL)
	image, err = client.ImageJobs.Wait(t.Context(), image.JobID, nil)
	require.NoError(t, err)
	require.Len(t, image.Outputs, 3)
	require.Empty(t, image.Outputs[2].ThumbnailURL)

	list, err := client.VideoJobs.List(t.Context(), &svc.ListJobsOptions{Page: 1, PageSize: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, list.TotalCount)
	require.Equal(t, video.JobID, list.Jobs[0].JobID)

	require.NoError(t, client.VideoJobs.Delete(t.Context(), video.JobID))
	_, err = client.VideoJobs.Get(t.Context(), video.JobID)
	require.ErrorIs(t, err, svc.ErrNotFound)
	_, err = client.VideoJobs.Get(t.Context(), image.JobID)
	require.ErrorIs(t, err, svc.ErrNotFound, "an image job must not be found as a video job")
	_, err = client.ImageJobs.Get(t.Context(), image.JobID)
	require.NoError(t, err)
}

func TestJobs_PagesOfTheFake(t *testing.T) {
	srv := svctest.NewInMemory(svctest.WithMaxPageSize(10))
	ids := srv.AddVideoJobs(45)
	for _, concurrency := range []int{0, 4} {
		before := srv.RequestCount("GET", "/v1/svc-video-job")
		got, err := collectJobs(srv.Client().VideoJobs.All(t.Context(), &svc.ListJobsOptions{PageSize: 100, Concurrency: concurrency}))
		require.NoError(t, err)
		require.ElementsMatch(t, ids, got)
		require.Equal(t, 5, srv.RequestCount("GET", "/v1/svc-video-job")-before)
	}
}

func TestJobs_Retired(t *testing.T) {
	for _, status := range []int{404, 410} {
		srv := svctest.NewInMemory(svctest.WithJobsRetired(status))
		client := srv.Client()
		_, createVideo := client.VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p"}})
		_, createImage := client.ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p"}})
		_, get := client.VideoJobs.Get(t.Context(), "job-1")
		_, list := client.ImageJobs.List(t.Context(), nil)
		_, all := collectJobs(client.VideoJobs.All(t.Context(), nil))
		_, wait := client.VideoJobs.Wait(t.Context(), "job-1", nil)
		for _, err := range []error{createVideo, createImage, get, list, all, wait, client.VideoJobs.Delete(t.Context(), "job-1")} {
			require.ErrorIs(t, err, svc.ErrRetired)
			require.ErrorIs(t, err, svc.ErrNotFound)
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.ErrorContains(t, err, "the legacy job API is retired")
		}
		require.Len(t, srv.Requests(), 7, "a retired call must not be repeated")
	}
	srv := svctest.NewInMemory()
	_, err := srv.Client().InferenceServices.Get(t.Context(), "svc-1")
	require.ErrorIs(t, err, svc.ErrNotFound)
	require.NotErrorIs(t, err, svc.ErrRetired)
}
