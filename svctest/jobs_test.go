package svctest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// withoutLinks removes the queries of presigned URLs, so that records can be compared.
func withoutLinks(body string) string {
	for {
		before, rest, ok := strings.Cut(body, "?X-Amz-")
		if !ok {
			return body
		}
		_, after, _ := strings.Cut(rest, `"`)
		body = before + `"` + after
	}
}

func TestVideoJobHasEveryFieldOfTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(123456 * time.Microsecond)
		srv := svctest.NewInMemory(svctest.WithJobTime(time.Minute))
		const request = `{"job_type":"text2video","config":{"prompt":"a lighthouse","negative_prompt":null,
			"settings":{"seed":-1,"aspect_ratio":"16:9","resolution":720,"duration":4},
			"gen_mode":"standard","is_public":true,"use_ff_cond":null,"is_enable_prompt_enhancer":null}}`
		const token = `"service_api_token":{"api_token":"","api_token_id":9,"user":{"user_id":"user-1","nickname":"sample","currency":"usd"}}`
		record := func(status, created, updated, meta, outputs string) string {
			return fmt.Sprintf(`{"job_id":"job-1","user_id":"user-1","name":"","description":"","payment_type":"usd","status":%q,
				"meta_info":{"original_request":%s,"model_id":7,%s%s},
				"created_at":%q,"updated_at":%q,"deleted_at":null,"is_deleted":false,"outputs":%s}`,
				status, request, meta, token, created, updated, outputs)
		}
		created := send(t, srv, "POST", "/v1/svc-video-job", `{"job_type":"text2video","config":{"prompt":"a lighthouse"}}`)
		require.JSONEq(t, record("initializing", "2000-01-01T00:00:00.123456", "2000-01-01T00:00:00.123456", "", "{}"), created.Body)
		require.JSONEq(t, record("initializing", "2000-01-01T00:00:00", "2000-01-01T00:00:00", "", "{}"),
			send(t, srv, "GET", "/v1/svc-video-job/job-1", "").Body)
		time.Sleep(time.Minute)
		const outputs = `[{"id":"out-job-1-1","media_url":"https://svc.test/storage/media-job-1.mp4",
			"thumbnail_url":"https://svc.test/storage/media-job-1.png"}]`
		const meta = `"order_id":"order-job-1","update_at":"2000-01-01 00:01:00",`
		require.JSONEq(t, record("succeed", "2000-01-01T00:00:00", "2000-01-01T00:01:00", meta, outputs),
			withoutLinks(send(t, srv, "GET", "/v1/svc-video-job/job-1", "").Body))
		require.JSONEq(t, `{"total_count":1,"job_list":[`+record("succeed", "2000-01-01 00:00:00", "2000-01-01 00:01:00", meta, outputs)+`]}`,
			withoutLinks(send(t, srv, "GET", "/v1/svc-video-job", "").Body))
	})
}

func TestImageJobHasEveryFieldOfTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithJobTime(0))
		record := func(status, created, meta, outputs string) string {
			return fmt.Sprintf(`{"job_id":"job-1","user_id":"user-1","name":"","description":"","payment_type":"usd","status":%q,
				"meta_info":{"original_request":{"job_type":"text2image","config":{"prompt":"p","negative_prompt":"n",
					"settings":{"seed":123},"config":{"image_number":2}}},"model_id":8%s},
				"created_at":%q,"updated_at":%q,"deleted_at":null,"is_deleted":false,"outputs":%s}`,
				status, meta, created, created, outputs)
		}
		created := send(t, srv, "POST", "/v1/svc-image-job",
			`{"job_type":"text2image","config":{"prompt":"p","negative_prompt":"n","settings":{"seed":123},"config":{"image_number":2}}}`)
		require.JSONEq(t, record("initializing", "2000-01-01T00:00:00", "", "{}"), created.Body)
		done := record("succeed", "2000-01-01 00:00:00", `,"order_id":"order-job-1","update_at":"2000-01-01 00:00:00"`,
			`[{"id":"out-job-1-1","media_url":"https://svc.test/storage/media-job-1.1.png"},
			  {"id":"out-job-1-2","media_url":"https://svc.test/storage/media-job-1.2.png"}]`)
		require.JSONEq(t, done, withoutLinks(send(t, srv, "GET", "/v1/svc-image-job/job-1", "").Body))
		require.JSONEq(t, `{"total_count":1,"job_list":[`+done+`]}`, withoutLinks(send(t, srv, "GET", "/v1/svc-image-job", "").Body))

		plain := send(t, srv, "POST", "/v1/svc-image-job",
			`{"job_type":"text2image","config":{"prompt":"p","settings":{"aspect_ratio":"1:1","resolution":64}}}`)
		require.Contains(t, plain.Body, `"config":{"prompt":"p","negative_prompt":null,"settings":{"aspect_ratio":"1:1","resolution":64},"config":{"image_number":1}}`)
	})
}

func TestJobRequestIsEchoedAsItCame(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		const request = `{"job_type":"text2video","config":{"prompt":"a & b","negative_prompt":"","settings":{"seed":0,` +
			`"aspect_ratio":"1:1","resolution":480,"duration":8},"gen_mode":"fast","is_public":false,` +
			`"use_ff_cond":{"n":12345678901234567890},"is_enable_prompt_enhancer":true}}`
		r := send(t, srv, "POST", "/v1/svc-video-job", request)
		require.Contains(t, r.Body, `"original_request":`+request)
		require.JSONEq(t, request, string(srv.Jobs()[0].Request))
	})
}

func TestJobRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		for name, tt := range map[string]struct{ kind, body, message string }{
			"empty":          {"video", `{}`, "job_type is required; config is required"},
			"no prompt":      {"video", `{"job_type":"text2video","config":{}}`, "config.prompt is required"},
			"wrong kind":     {"video", `{"job_type":"text2image","config":{"prompt":"p"}}`, "job_type must be text2video"},
			"images":         {"video", `{"job_type":"text2video","config":{"prompt":"p","config":{"image_number":1}}}`, "config.config is not a field"},
			"word":           {"video", `{"job_type":"text2video","config":{"prompt":"p","is_public":"yes"}}`, "config.is_public must be true or false"},
			"seed":           {"video", `{"job_type":"text2video","config":{"prompt":"p","settings":{"seed":"1"}}}`, "config.settings.seed must be an integer"},
			"no images":      {"image", `{"job_type":"text2image","config":{"prompt":"p","config":{"image_number":0}}}`, "config.config.image_number must be from 1"},
			"duration":       {"image", `{"job_type":"text2image","config":{"prompt":"p","settings":{"duration":1}}}`, "config.settings.duration is not a field"},
			"image ratio":    {"image", `{"job_type":"text2image","config":{"prompt":"p","settings":{"aspect_ratio":1}}}`, "config.settings.aspect_ratio must be a string"},
			"two at a time":  {"image", `{"job_type":"text2image","config":{"prompt":1},"x":1}`, "config.prompt must be a string; x is not a field"},
			"enhancer":       {"video", `{"job_type":"text2video","config":{"prompt":"p","is_enable_prompt_enhancer":1}}`, "is_enable_prompt_enhancer must be"},
			"image settings": {"image", `{"job_type":"text2image","config":{"prompt":"p","settings":null}}`, "config.settings must be an object"},
		} {
			r := send(t, srv, "POST", "/v1/svc-"+tt.kind+"-job", tt.body)
			require.Equal(t, http.StatusUnprocessableEntity, r.Status, name)
			require.Contains(t, r.JSON()["message"], tt.message, name)
		}
		for _, query := range []string{"page=0", "page=x", "page_size=-1", "page=1&page=2", "page=", "size=3"} {
			require.Equal(t, http.StatusBadRequest, send(t, srv, "GET", "/v1/svc-video-job?"+query, "").Status, query)
		}
		require.Empty(t, srv.Jobs())
	})
}

func TestJobPages(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		videos := srv.AddVideoJobs(25)
		images := srv.AddImageJobs(2)
		list := func(path string) (total float64, ids []string) {
			r := send(t, srv, "GET", path, "").JSON()
			for _, j := range r["job_list"].([]any) {
				ids = append(ids, j.(map[string]any)["job_id"].(string))
			}
			return r["total_count"].(float64), ids
		}
		for path, want := range map[string][]string{
			"/v1/svc-video-job":                      videos[:10],
			"/v1/svc-video-job?page=3":               videos[20:],
			"/v1/svc-video-job?page=2&page_size=7":   videos[7:14],
			"/v1/svc-video-job?page=2&page_size=100": videos[20:],
			"/v1/svc-video-job?page=4":               nil,
		} {
			total, ids := list(path)
			require.EqualValues(t, 25, total, path)
			require.Equal(t, want, ids, path)
		}
		require.Equal(t, "{}", send(t, srv, "DELETE", "/v1/svc-image-job/"+images[0], "").Body)
		total, ids := list("/v1/svc-image-job")
		require.EqualValues(t, 1, total)
		require.Equal(t, images[1:], ids)
		for _, path := range []string{"/v1/svc-image-job/" + images[0], "/v1/svc-image-job/" + videos[0], "/v1/svc-image-job/x"} {
			require.Equal(t, http.StatusNotFound, send(t, srv, "GET", path, "").Status, path)
			require.Equal(t, http.StatusNotFound, send(t, srv, "DELETE", path, "").Status, path)
		}
		require.True(t, srv.Jobs()[25].Deleted)
		require.Equal(t, svctest.JobImage, srv.Jobs()[25].Kind)
	}, svctest.WithMaxPageSize(20))
}

func TestJobStatusByHand(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddVideoJobs(1)[0]
		srv.SetJobStatus(id, "failed")
		r := send(t, srv, "GET", "/v1/svc-video-job/"+id, "").JSON()
		require.Equal(t, "failed", r["status"])
		require.Equal(t, map[string]any{}, r["outputs"])
		srv.SetJobStatus(id, "")
		require.Equal(t, svctest.JobSucceed, srv.Jobs()[0].Status)
		require.Panics(t, func() { srv.SetJobStatus("job-2", "failed") })
	})
}

func TestRetiredJobs(t *testing.T) {
	for status, want := range map[int]int{0: http.StatusGone, http.StatusNotFound: http.StatusNotFound} {
		srv := svctest.NewInMemory(svctest.WithJobsRetired(status))
		id := srv.AddVideoJobs(1)[0]
		for _, r := range []reply{
			send(t, srv, "GET", "/v1/svc-video-job", ""),
			send(t, srv, "POST", "/v1/svc-image-job", "{}"),
			send(t, srv, "DELETE", "/v1/svc-video-job/"+id, ""),
		} {
			require.Equal(t, want, r.Status)
			require.Equal(t, "retired", r.JSON()["code"])
		}
		require.Equal(t, http.StatusOK, send(t, srv, "GET", "/v1/files", "").Status)
	}
}

func TestMediaCanBeDownloaded(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddVideoJobs(1)[0]
		out := send(t, srv, "GET", "/v1/svc-video-job/"+id, "").JSON()["outputs"].([]any)[0].(map[string]any)
		for _, key := range []string{"media_url", "thumbnail_url"} {
			r := storage(t, srv, "GET", out[key].(string), "")
			require.Equal(t, http.StatusOK, r.Status, r.Body)
			require.Equal(t, "the film", r.Body)
			require.Equal(t, http.StatusForbidden, storage(t, srv, "PUT", out[key].(string), "x").Status)
		}
		send(t, srv, "DELETE", "/v1/svc-video-job/"+id, "")
		require.Equal(t, http.StatusNotFound, storage(t, srv, "GET", out["media_url"].(string), "").Status)
	}, svctest.WithMediaContents([]byte("the film")), svctest.WithSeparateStorage())
}
