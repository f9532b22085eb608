package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// values has, for each example of a successful response, a function that checks the
// decoded value.
var values = map[string]func(*testing.T, any){
	"listFlavors/offers":  flavors,
	"listFlavors/nothing": empty[svc.Flavor],

	"createInferenceService/deploying":    service(svc.InferenceServiceStatusInitializing, 2),
	"updateInferenceService/deploying":    service(svc.InferenceServiceStatusInitializing, 2),
	"getInferenceService/deploying":       service(svc.InferenceServiceStatusInitializing, 2),
	"getInferenceService/running":         service(svc.InferenceServiceStatusAvailable, 2),
	"getInferenceService/scaledToNothing": service(svc.InferenceServiceStatusStopped, 0),
	"getInferenceService/failed":          service(svc.InferenceServiceStatusUnavailable, 2),

	"createVideoJob/waiting": videoWaiting,
	"getVideoJob/waiting":    videoWaiting,
	"getVideoJob/done":       videoDone,
	"listVideoJobs/page":     jobPage(videoDone),
	"listVideoJobs/nothing":  noJobs,

	"createImageJob/waiting": imageWaiting,
	"getImageJob/waiting":    imageWaiting,
	"getImageJob/done":       imageDone,
	"listImageJobs/page":     jobPage(imageDone),
	"listImageJobs/nothing":  noJobs,

	"listPublicFiles/files": func(t *testing.T, v any) {
		files := v.([]svc.PublicFile)
		require.Len(t, files, 1)
		f := files[0]
		file(t, "file-1", "sample.jsonl", f.File)
		require.Equal(t, []svc.Int{51200, 400, 262144}, []svc.Int{f.Token, f.Length, f.Bytes})
		require.Equal(t, "400 short dialogues", f.Description)
	},
	"listPublicFiles/nothing": empty[svc.PublicFile],
	"registerFile/only": func(t *testing.T, v any) {
		f := v.(*svc.RegisteredFile)
		require.Equal(t, "file-11", f.ID)
		link(t, f.PresignedURL)
	},
	"listFiles/files": func(t *testing.T, v any) {
		files := v.([]svc.File)
		require.Len(t, files, 2)
		file(t, "file-11", "train.jsonl", files[0])
		require.Equal(t, "test.jsonl", files[1].FileName)
		require.Equal(t, time.Second, files[1].CreatedAt.Sub(files[0].CreatedAt.Time))
	},
	"listFiles/nothing":        empty[svc.File],
	"getFile/only":             func(t *testing.T, v any) { file(t, "file-11", "train.jsonl", *v.(*svc.File)) },
	"getFilePresignedUrl/only": func(t *testing.T, v any) { link(t, v.(svc.SignedURL)) },
}

func empty[T any](t *testing.T, v any) {
	list := v.([]T)
	require.NotNil(t, list)
	require.Empty(t, list)
}

func at(year int, month time.Month, day, hour, minute, sec, micro int) time.Time {
	return time.Date(year, month, day, hour, minute, sec, micro*1000, time.UTC)
}

func equalTime(t *testing.T, want time.Time, got svc.Time) {
	t.Helper()
	require.True(t, want.Equal(got.Time), "%v, but got %v", want, got)
}

func flavors(t *testing.T, v any) {
	list := v.([]svc.Flavor)
	require.Len(t, list, 2)
	f := list[0]
	require.Equal(t, []string{"flavor-a100", "A100 80GB", "cluster-1", "cf-a100"}, []string{f.FlavorID, f.DisplayName, f.ClusterID, f.ClusterFlavorID})
	require.Equal(t, svc.FlavorMetaInfo{CUDA: "12.4", Region: svc.RegionOther}, f.MetaInfo)
	b := f.Billing
	require.Equal(t, []string{"21.5", "2.95", "0"}, []string{b.CNYPriceUnit.String(), b.USDPriceUnit.String(), b.TokenPriceUnit.String()})
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 0), f.CreatedAt)
	equalTime(t, at(2024, 6, 2, 3, 4, 5, 0), f.UpdatedAt)
	require.True(t, f.DeletedAt.IsZero())
	require.False(t, f.IsDeleted)
	require.Equal(t, []svc.Int{3, 8}, []svc.Int{f.AvailableNum, f.NodeMaxGPU})

	require.Equal(t, svc.RegionCN, list[1].MetaInfo.Region)
	require.True(t, list[1].IsDeleted)
	equalTime(t, at(2024, 6, 2, 3, 4, 5, 0), list[1].DeletedAt)
	require.Equal(t, "0.001", list[1].Billing.TokenPriceUnit.String())
}

func service(status svc.InferenceServiceStatus, instances svc.Int) func(*testing.T, any) {
	return func(t *testing.T, v any) {
		s := v.(*svc.InferenceService)
		require.Equal(t, []string{"svc-7", "chat-model", "answers questions", "user-3"}, []string{s.ServiceID, s.Name, s.Description, s.UserID})
		require.Equal(t, status, s.Status)
		require.JSONEq(t, "null", string(s.StatusInfo))
		r := s.ResourceMetadata
		require.Equal(t, []string{"A100 80GB", "flavor-a100", "80GB", "12GB"}, []string{r.ResourceDisplayName, r.FlavorID, r.VRAM, r.ImageSize})
		require.Equal(t, svc.ScaleTypeManual, r.ScaleType)
		require.Equal(t, instances, r.TargetInstanceNumber)
		require.Equal(t, "null", string(r.ScalePolicy))
		require.Equal(t, "{}", string(s.BillingMetadata))
		require.Equal(t, "{}", string(s.EndpointMetadata))
		require.Equal(t, svc.DeployMetadata{ImageURL: "registry.example/chat:3", Command: "python serve.py", Port: 8000, GPUNum: 1}, s.DeployMetadata)
		require.Equal(t, svc.ServiceType("normal"), s.ServiceType)
		require.Equal(t, svc.PaymentTypeUSD, s.PaymentType)
		equalTime(t, at(2024, 6, 1, 10, 11, 12, 0), s.CreatedAt)
		equalTime(t, at(2024, 6, 1, 10, 20, 30, 0), s.UpdatedAt)
		require.True(t, s.DeletedAt.IsZero())
		require.False(t, s.IsDeleted)
	}
}

func jobPage(first func(*testing.T, any)) func(*testing.T, any) {
	return func(t *testing.T, v any) {
		list := v.(*svc.JobList)
		require.Equal(t, svc.Int(3), list.TotalCount)
		require.Len(t, list.Jobs, 1)
		first(t, &list.Jobs[0])
	}
}

func noJobs(t *testing.T, v any) {
	require.Zero(t, v.(*svc.JobList).TotalCount)
	require.Empty(t, v.(*svc.JobList).Jobs)
}

func job(t *testing.T, v any, id string, model svc.Int) *svc.Job {
	j := v.(*svc.Job)
	require.Equal(t, []string{id, "user-3"}, []string{j.JobID, j.UserID})
	require.Equal(t, svc.PaymentTypeUSD, j.PaymentType)
	require.Equal(t, model, j.MetaInfo.ModelID)
	require.True(t, j.DeletedAt.IsZero())
	require.False(t, j.IsDeleted)
	return j
}

func video(t *testing.T, v any) *svc.Job {
	j := job(t, v, "job-21", 5)
	require.JSONEq(t, `{"job_type":"text2video","config":{"prompt":"waves at night","negative_prompt":null,
		"settings":{"seed":-1,"aspect_ratio":"16:9","resolution":720,"duration":4},"gen_mode":"standard","is_public":true,
		"use_ff_cond":null,"is_enable_prompt_enhancer":null}}`, string(j.MetaInfo.OriginalRequest))
	require.Equal(t, svc.ServiceAPIToken{APITokenID: 40, User: svc.JobUser{UserID: "user-3", Nickname: "sam", Currency: svc.CurrencyUSD}}, j.MetaInfo.ServiceAPIToken)
	require.Empty(t, j.Name+j.Description)
	return j
}

func videoWaiting(t *testing.T, v any) {
	j := video(t, v)
	require.Equal(t, svc.JobStatusInitializing, j.Status)
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 345678), j.CreatedAt)
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 345678), j.UpdatedAt)
	require.Empty(t, j.MetaInfo.OrderID)
	require.True(t, j.MetaInfo.UpdateAt.IsZero())
	require.Empty(t, j.Outputs)
}

func videoDone(t *testing.T, v any) {
	j := video(t, v)
	require.Equal(t, svc.JobStatusSucceed, j.Status)
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 0), j.CreatedAt)
	equalTime(t, at(2024, 6, 1, 10, 15, 0, 0), j.UpdatedAt)
	equalTime(t, at(2024, 6, 1, 10, 15, 0, 0), j.MetaInfo.UpdateAt)
	require.Equal(t, "order-9", j.MetaInfo.OrderID)
	require.Equal(t, svc.Outputs{{ID: "out-1", MediaURL: "https://media.example/waves.mp4", ThumbnailURL: "https://media.example/waves.png"}}, j.Outputs)
}

func image(t *testing.T, v any) *svc.Job {
	j := job(t, v, "job-22", 6)
	require.JSONEq(t, `{"job_type":"text2image","config":{"prompt":"a red door","negative_prompt":null,
		"settings":{"seed":123},"config":{"image_number":2}}}`, string(j.MetaInfo.OriginalRequest))
	require.Zero(t, j.MetaInfo.ServiceAPIToken)
	require.Equal(t, []string{"door", "for the front page"}, []string{j.Name, j.Description})
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 0), j.CreatedAt)
	return j
}

func imageWaiting(t *testing.T, v any) {
	j := image(t, v)
	require.Equal(t, svc.JobStatusInitializing, j.Status)
	require.Empty(t, j.Outputs)
}

func imageDone(t *testing.T, v any) {
	j := image(t, v)
	require.Equal(t, svc.JobStatusSucceed, j.Status)
	equalTime(t, at(2024, 6, 1, 10, 12, 0, 0), j.MetaInfo.UpdateAt)
	require.Equal(t, "order-10", j.MetaInfo.OrderID)
	require.Equal(t, svc.Outputs{{ID: "out-1", MediaURL: "https://media.example/door-1.png"}, {ID: "out-2", MediaURL: "https://media.example/door-2.png"}}, j.Outputs)
}

func file(t *testing.T, id, name string, f svc.File) {
	require.Equal(t, []string{id, name}, []string{f.ID, f.FileName})
	require.Equal(t, svc.FilePurposeFineTune, f.Purpose)
	equalTime(t, at(2024, 6, 1, 10, 11, 12, 0), f.CreatedAt)
}

// link checks that a presigned URL is unchanged, and that printing it hides its query.
func link(t *testing.T, u svc.SignedURL) {
	require.Equal(t, "https://storage.example/contents/file-11?X-Amz-Expires=900&X-Amz-Signature=c0ffee", string(u))
	require.NotContains(t, u.String(), "c0ffee")
}
