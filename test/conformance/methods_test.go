package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// world is a fake service with one record of each kind, and a client for it.
type world struct {
	*svc.Client
	t                *testing.T
	ctx              context.Context
	srv              *svctest.Server
	hc               *http.Client
	endpoint, fileID string
	video, image     string
}

func newWorld(t *testing.T, v *validator, opts ...svctest.Option) *world {
	srv := svctest.NewInMemory(append([]svctest.Option{svctest.WithBasePath("/api/svc"), svctest.WithLinkTTL(time.Hour)}, opts...)...)
	t.Cleanup(srv.Close)
	hc := srv.HTTPClient()
	v.t, v.base, v.token = t, hc.Transport, srv.Token()
	v.covered, v.refused = map[string]int{}, map[string][]int{}
	hc.Transport = v
	client, err := svc.NewClient(srv.URL(), svc.WithToken(srv.Token()), svc.WithHTTPClient(hc), svc.WithInferenceURL(srv.InferenceURL()))
	require.NoError(t, err)
	srv.AddPublicFile(svctest.PublicFile{Name: "sample.jsonl", Purpose: "fine-tune", Description: "a sample", Token: 1200, Length: 30, Bytes: 4096})
	return &world{
		Client: client, t: t, ctx: t.Context(), srv: srv, hc: hc,
		endpoint: srv.AddEndpoint(svctest.Endpoint{Name: "seeded", FlavorID: "flavor-1", Instances: 1, ImageURL: "img", Port: 80}),
		fileID:   srv.AddFile("seeded.jsonl", "fine-tune", []byte("contents")),
		video:    srv.AddVideoJobs(1)[0], image: srv.AddImageJobs(1)[0],
	}
}

// no fails the test if the last of values is an error.
func (w *world) no(values ...any) {
	w.t.Helper()
	if err, _ := values[len(values)-1].(error); err != nil {
		w.t.Error(err)
	}
}

var (
	fullService = svc.CreateInferenceServiceRequest{
		Name: "n", Description: "d", PaymentType: svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 2},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "img", Command: "run", Port: 8000, GPUNum: 1},
	}
	fullVideo = svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{
		Prompt: "p", NegativePrompt: json.RawMessage(`"n"`), GenMode: "standard", IsPublic: new(false),
		Settings:  svc.VideoJobSettings{Seed: new(0), AspectRatio: "1:1", Resolution: 480, Duration: 8},
		UseFFCond: json.RawMessage(`{"frame":[1,null]}`), IsEnablePromptEnhancer: json.RawMessage(`false`),
	}}
	nullVideo = svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{
		Prompt: "p", NegativePrompt: json.RawMessage("null"), UseFFCond: json.RawMessage("null"), IsEnablePromptEnhancer: json.RawMessage("null"),
	}}
	fullImage = svc.CreateImageJobRequest{Config: svc.ImageJobConfig{
		Prompt: "p", NegativePrompt: json.RawMessage(`""`),
		Settings: svc.ImageJobSettings{Seed: new(-1), AspectRatio: "1:1", Resolution: 480}, Config: svc.ImageConfig{ImageNumber: 3},
	}}
	page = &svc.ListJobsOptions{Page: 1, PageSize: 2}
)

// methods has a function for every method that sends a request. It calls the method with
// as few and with as many arguments as possible.
var methods = map[string]func(*world){
	"FlavorClient.List": func(w *world) { w.no(w.Flavors.List(w.ctx)) },
	"FlavorClient.Find": func(w *world) {
		w.no(w.Flavors.Find(w.ctx, svc.FlavorQuery{}))
		w.no(w.Flavors.Find(w.ctx, svc.FlavorQuery{Name: "A", Region: svc.RegionOther, MinCUDA: "12.1", MinAvailable: 1, MinGPUsPerNode: 1, Currency: svc.CurrencyCNY}))
	},

	"FlavorClient.WaitForStock": func(w *world) { w.no(w.Flavors.WaitForStock(w.ctx, svc.FlavorQuery{}, nil)) },

	"InferenceServiceClient.Create": func(w *world) {
		w.no(w.InferenceServices.Create(w.ctx, svc.CreateInferenceServiceRequest{Name: "n"}))
		w.no(w.InferenceServices.Create(w.ctx, fullService))
	},
	"InferenceServiceClient.Get": func(w *world) { w.no(w.InferenceServices.Get(w.ctx, w.endpoint)) },
	"InferenceServiceClient.Update": func(w *world) {
		w.no(w.InferenceServices.Update(w.ctx, w.endpoint, svc.UpdateInferenceServiceRequest{ResourceMetadata: svc.UpdateResourceMetadata{TargetInstanceNumber: new(3)}}))
	},
	"InferenceServiceClient.Scale":              func(w *world) { w.no(w.InferenceServices.Scale(w.ctx, w.endpoint, 2)) },
	"InferenceServiceClient.Delete":             func(w *world) { w.no(w.InferenceServices.Delete(w.ctx, w.endpoint)) },
	"InferenceServiceClient.WaitUntilAvailable": func(w *world) { w.no(w.InferenceServices.WaitUntilAvailable(w.ctx, w.endpoint, nil)) },
	"InferenceServiceClient.WaitUntilDeleted": func(w *world) {
		w.no(w.InferenceServices.Get(w.ctx, w.endpoint)) // the ID of a deleted endpoint must be known
		w.no(w.InferenceServices.Delete(w.ctx, w.endpoint))
		w.no(w.InferenceServices.WaitUntilDeleted(w.ctx, w.endpoint, nil))
	},
	"InferenceServiceClient.Wait": func(w *world) {
		w.no(w.InferenceServices.Wait(w.ctx, w.endpoint, func(*svc.InferenceService) (bool, error) { return true, nil }, nil))
	},
	"InferenceServiceClient.ScaleAndWait": func(w *world) { w.no(w.InferenceServices.ScaleAndWait(w.ctx, w.endpoint, 0, nil)) },
	"InferenceServiceClient.WaitUntilAllAvailable": func(w *world) {
		each(w, w.InferenceServices.WaitUntilAllAvailable(w.ctx, []string{w.endpoint}, nil))
	},
	"InferenceServiceClient.DeleteAndWait": func(w *world) { w.no(w.InferenceServices.DeleteAndWait(w.ctx, w.endpoint, nil)) },
	"InferenceServiceClient.Use": func(w *world) {
		w.no(w.InferenceServices.Use(w.ctx, fullService, nil, func(context.Context, *svc.InferenceService) error { return nil }))
	},
	"InferenceServiceClient.Deploy": func(w *world) {
		w.no(w.InferenceServices.Deploy(w.ctx, fullService, nil))
	},

	"VideoJobClient.Create": func(w *world) {
		w.no(w.VideoJobs.Create(w.ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p"}}))
		w.no(w.VideoJobs.Create(w.ctx, fullVideo))
		w.no(w.VideoJobs.Create(w.ctx, nullVideo))
	},
	"VideoJobClient.Get": func(w *world) {
		w.no(w.VideoJobs.Get(w.ctx, w.video))
		w.srv.SetJobStatus(w.video, svctest.JobInitializing)
		w.no(w.VideoJobs.Get(w.ctx, w.video))
	},
	"VideoJobClient.List": func(w *world) {
		w.no(w.VideoJobs.List(w.ctx, nil))
		w.no(w.VideoJobs.List(w.ctx, page))
	},
	"VideoJobClient.All": func(w *world) {
		w.srv.AddVideoJobs(4)
		each(w, w.VideoJobs.All(w.ctx, nil))
		each(w, w.VideoJobs.All(w.ctx, page))
	},
	"VideoJobClient.Wait":   func(w *world) { w.no(w.VideoJobs.Wait(w.ctx, w.video, nil)) },
	"VideoJobClient.Delete": func(w *world) { w.no(w.VideoJobs.Delete(w.ctx, w.video)) },

	"ImageJobClient.Create": func(w *world) {
		w.no(w.ImageJobs.Create(w.ctx, svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p"}}))
		w.no(w.ImageJobs.Create(w.ctx, fullImage))
	},
	"ImageJobClient.Get": func(w *world) {
		w.no(w.ImageJobs.Get(w.ctx, w.image))
		w.srv.SetJobStatus(w.image, svctest.JobInitializing)
		w.no(w.ImageJobs.Get(w.ctx, w.image))
	},
	"ImageJobClient.List": func(w *world) {
		w.no(w.ImageJobs.List(w.ctx, nil))
		w.no(w.ImageJobs.List(w.ctx, page))
	},
	"ImageJobClient.All": func(w *world) {
		w.srv.AddImageJobs(4)
		each(w, w.ImageJobs.All(w.ctx, nil))
		each(w, w.ImageJobs.All(w.ctx, page))
	},
	"ImageJobClient.Wait":   func(w *world) { w.no(w.ImageJobs.Wait(w.ctx, w.image, nil)) },
	"ImageJobClient.Delete": func(w *world) { w.no(w.ImageJobs.Delete(w.ctx, w.image)) },

	"FileClient.Register": func(w *world) {
		w.no(w.Files.Register(w.ctx, svc.RegisterFileRequest{FileName: "f"}))
		w.no(w.Files.Register(w.ctx, svc.RegisterFileRequest{FileName: "f", Purpose: svc.FilePurposeFineTune}))
	},
	"FileClient.List":         func(w *world) { w.no(w.Files.List(w.ctx)) },
	"FileClient.ListPublic":   func(w *world) { w.no(w.Files.ListPublic(w.ctx)) },
	"FileClient.Get":          func(w *world) { w.no(w.Files.Get(w.ctx, w.fileID)) },
	"FileClient.Delete":       func(w *world) { w.no(w.Files.Delete(w.ctx, w.fileID)) },
	"FileClient.PresignedURL": func(w *world) { w.no(w.Files.PresignedURL(w.ctx, w.fileID)) },
	"FileClient.Upload": func(w *world) {
		w.no(w.Files.Upload(w.ctx, svc.UploadRequest{FileName: "f", Body: strings.NewReader("abc")}))
		w.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403}) // the upload fails, so the record is deleted
		_, err := w.Files.Upload(w.ctx, svc.UploadRequest{
			FileName: "f", Purpose: "p", Body: bytes.NewReader([]byte("abc")), UploadOptions: svc.UploadOptions{ContentType: "text/plain", DeleteOnFailure: true},
		})
		require.ErrorIs(w.t, err, svc.ErrForbidden)
	},
	"FileClient.UploadFile": func(w *world) {
		path := filepath.Join(w.t.TempDir(), "f.jsonl")
		w.no(os.WriteFile(path, []byte("abc"), 0o600))
		w.no(w.Files.UploadFile(w.ctx, path, svc.FilePurposeFineTune, nil))
	},
	"FileClient.Put": func(w *world) {
		link, err := w.Files.PresignedURL(w.ctx, w.fileID)
		w.no(err)
		w.no(w.Files.Put(w.ctx, link, strings.NewReader("abc"), nil))
	},
	"FileClient.Replace":      func(w *world) { w.no(w.Files.Replace(w.ctx, w.fileID, strings.NewReader("abc"), nil)) },
	"FileClient.Download":     func(w *world) { w.no(w.Files.Download(w.ctx, w.fileID, io.Discard, nil)) },
	"FileClient.DownloadFile": func(w *world) { w.no(w.Files.DownloadFile(w.ctx, w.fileID, filepath.Join(w.t.TempDir(), "f"), nil)) },

	"FileClient.DownloadURL": func(w *world) {
		job, err := w.VideoJobs.Get(w.ctx, w.video)
		w.no(err)
		w.no(w.Client.Files.DownloadURL(w.ctx, job.Outputs[0].MediaURL, io.Discard, nil))
	},
	"FileClient.DownloadURLFile": func(w *world) {
		job, err := w.ImageJobs.Get(w.ctx, w.image)
		w.no(err)
		w.no(w.Client.Files.DownloadURLFile(w.ctx, job.Outputs[0].MediaURL, filepath.Join(w.t.TempDir(), "f"), nil))
	},
	"Client.Do": func(w *world) {
		var out json.RawMessage
		w.no(w.Do(w.ctx, "GET", "/v1/files", nil, &out))
		w.no(w.Do(w.ctx, "POST", "/v1/files", map[string]string{"file_name": "f"}, &out))
		w.no(w.Do(w.ctx, "GET", "/v1/svc-video-job", nil, &out, svc.WithQuery("page", "1")))
		w.no(w.Do(w.ctx, "PUT", "/v1/inference-service/"+w.endpoint, json.RawMessage(`{"resource_metadata":{"target_instance_number":1}}`), nil))
		w.no(w.Do(w.ctx, "DELETE", "/v1/inference-service/"+w.endpoint, nil, nil))
	},
}

func each[T any](w *world, seq iter.Seq2[T, error]) {
	n := 0
	for _, err := range seq {
		w.no(err)
		n++
	}
	require.Positive(w.t, n)
}
