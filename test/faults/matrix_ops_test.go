package faults_test

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// matrixClass is the group of calls to which the same promises apply.
type matrixClass int

const (
	matrixRead     matrixClass = iota // a GET of the API
	matrixChange                      // a PUT of the API
	matrixRemove                      // DELETE of the API; the response may hold anything
	matrixCreate                      // POST of the API; it must not take effect twice
	matrixPut                         // upload to a presigned URL
	matrixDownload                    // download from a presigned URL
)

// matrixOp is a call of the client, and the request of the call that meets the fault.
type matrixOp struct {
	name  string
	class matrixClass
	at    string // method and path, such as "GET /v1/files"; a star at the end stands for any rest
	run   func(ctx context.Context, c *matrixCell) (any, error)
	// effect returns how often the call took effect at the service. Nil: the call changes
	// nothing.
	effect func(c *matrixCell) int
}

func (o *matrixOp) meets(r *http.Request) bool {
	method, path, _ := strings.Cut(o.at, " ")
	if prefix, ok := strings.CutSuffix(path, "*"); ok {
		return r.Method == method && strings.HasPrefix(r.URL.Path, prefix)
	}
	return r.Method == method && r.URL.Path == path
}

func (o *matrixOp) transfer() bool { return o.class == matrixPut || o.class == matrixDownload }

// second reports whether another request comes before the one with the fault.
func (o *matrixOp) second() bool {
	return strings.HasSuffix(o.name, " put") || strings.HasSuffix(o.name, " contents")
}

const matrixContents = "contents of a file\n"

// seed creates one record of each kind, for the calls to use.
func (c *matrixCell) seed() {
	c.secrets = map[string]bool{matrixToken: true}
	c.srv.AddEndpoint(svctest.Endpoint{Name: "seeded", Instances: 1})
	c.srv.AddVideoJobs(1)
	c.srv.AddImageJobs(1)
	c.srv.AddFile("seeded", "fine-tune", []byte(matrixContents))
	c.srv.AddPublicFile(svctest.PublicFile{Name: "public"})
	link, err := c.srv.Client().Files.PresignedURL(c.t.Context(), "file-1")
	if err != nil {
		c.t.Fatal(err)
	}
	c.link = c.here(link)
}

// The records that two of the creates send.
var (
	matrixService = svc.CreateInferenceServiceRequest{Name: "matrix-made", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}, DeployMetadata: svc.CreateDeployMetadata{Port: 8000}}
	matrixFile    = svc.RegisterFileRequest{FileName: "matrix-made"}
)

func matrixMadeEndpoints(c *matrixCell) int { return len(c.srv.Endpoints()) - 1 }
func matrixMadeJobs(c *matrixCell) int      { return len(c.srv.Jobs()) - 2 }
func matrixMadeFiles(c *matrixCell) int     { return len(c.srv.Files()) - 2 }

func matrixNewContents(id string) func(*matrixCell) int {
	return func(c *matrixCell) int {
		b, _ := c.srv.FileContents(id)
		return testkit.One(string(b) == "new contents")
	}
}

func matrixJobDeleted(id string) func(*matrixCell) int {
	return func(c *matrixCell) int {
		for _, j := range c.srv.Jobs() {
			if j.ID == id {
				return testkit.One(j.Deleted)
			}
		}
		return 0
	}
}

// matrixWithoutRow has the methods without a row in matrixOps. They send nothing, or only
// calls that have a row.
var matrixWithoutRow = []string{
	"Client.CloseIdleConnections", "Client.Do", "Files.DownloadURLFile", "Files.DownloadFile", "Files.UploadFile", "Flavors.Find", "Flavors.WaitForStock",
	"ImageJobs.All", "ImageJobs.Wait", "VideoJobs.All", "VideoJobs.Wait", "InferenceServices.DeleteAndWait", "InferenceServices.Deploy",
	"InferenceServices.Scale", "InferenceServices.ScaleAndWait", "InferenceServices.URL", "InferenceServices.Use", "InferenceServices.Wait",
	"InferenceServices.WaitUntilAllAvailable", "InferenceServices.WaitUntilAvailable", "InferenceServices.WaitUntilDeleted",
	"Ledger.Adopt", "Ledger.Entries", "Ledger.Entry", "Ledger.Extend", "Ledger.Forget", "Ledger.Prune", "Ledger.Reap", "Ledger.UndoAdopt",
}

// Every method has a row in matrixOps or is in matrixWithoutRow, so that a new method is
// not forgotten.
func TestMatrixIsComplete(t *testing.T) {
	known := slices.Clone(matrixWithoutRow)
	for _, op := range matrixOps {
		name, _, _ := strings.Cut(op.name, " ")
		known = append(known, name)
	}
	groups := map[string]reflect.Type{"Client": reflect.TypeFor[*svc.Client]()}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[svc.Client]()) {
		if f.IsExported() {
			groups[f.Name] = f.Type
		}
	}
	for group, methods := range groups {
		for m := range methods.Methods() {
			require.Contains(t, known, group+"."+m.Name)
		}
	}
}

// matrixOps has all operations of the service, and the calls that combine several of them
// for files.
var matrixOps = []matrixOp{
	{"Flavors.List", matrixRead, "GET /v1/inference-service/flavor", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Flavors.List(ctx)
	}, nil},
	{"InferenceServices.Create", matrixCreate, "POST /v1/inference-service", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.InferenceServices.Create(ctx, matrixService)
	}, matrixMadeEndpoints},
	{"InferenceServices.Get", matrixRead, "GET /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.InferenceServices.Get(ctx, "svc-1")
	}, nil},
	{"InferenceServices.Update", matrixChange, "PUT /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.InferenceServices.Scale(ctx, "svc-1", 3)
	}, func(c *matrixCell) int { return testkit.One(c.srv.Endpoints()[0].Instances == 3) }},
	{"InferenceServices.Delete", matrixRemove, "DELETE /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return nil, c.client.InferenceServices.Delete(ctx, "svc-1")
	}, func(c *matrixCell) int { return testkit.One(c.srv.Endpoints()[0].Deleted) }},

	{"VideoJobs.Create", matrixCreate, "POST /v1/svc-video-job", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "matrix"}})
	}, matrixMadeJobs},
	{"VideoJobs.Get", matrixRead, "GET /v1/svc-video-job/job-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.VideoJobs.Get(ctx, "job-1")
	}, nil},
	{"VideoJobs.List", matrixRead, "GET /v1/svc-video-job", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.VideoJobs.List(ctx, nil)
	}, nil},
	{"VideoJobs.Delete", matrixRemove, "DELETE /v1/svc-video-job/job-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return nil, c.client.VideoJobs.Delete(ctx, "job-1")
	}, matrixJobDeleted("job-1")},
	{"ImageJobs.Create", matrixCreate, "POST /v1/svc-image-job", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.ImageJobs.Create(ctx, svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "matrix"}})
	}, matrixMadeJobs},
	{"ImageJobs.Get", matrixRead, "GET /v1/svc-image-job/job-2", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.ImageJobs.Get(ctx, "job-2")
	}, nil},
	{"ImageJobs.List", matrixRead, "GET /v1/svc-image-job", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.ImageJobs.List(ctx, &svc.ListJobsOptions{Page: 1, PageSize: 10})
	}, nil},
	{"ImageJobs.Delete", matrixRemove, "DELETE /v1/svc-image-job/job-2", func(ctx context.Context, c *matrixCell) (any, error) {
		return nil, c.client.ImageJobs.Delete(ctx, "job-2")
	}, matrixJobDeleted("job-2")},

	{"Files.Register", matrixCreate, "POST /v1/files", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Register(ctx, matrixFile)
	}, matrixMadeFiles},
	{"Files.List", matrixRead, "GET /v1/files", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.List(ctx)
	}, nil},
	{"Files.ListPublic", matrixRead, "GET /v1/public-files", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.ListPublic(ctx)
	}, nil},
	{"Files.Get", matrixRead, "GET /v1/files/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Get(ctx, "file-1")
	}, nil},
	{"Files.Delete", matrixRemove, "DELETE /v1/files/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return nil, c.client.Files.Delete(ctx, "file-1")
	}, func(c *matrixCell) int { return testkit.One(c.srv.Files()[0].Deleted) }},
	{"Files.PresignedURL", matrixRead, "GET /v1/files/file-1/presigned_url", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.PresignedURL(ctx, "file-1")
	}, nil},

	{"Files.Put", matrixPut, "PUT /storage/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Put(ctx, c.link, strings.NewReader("new contents"), &svc.UploadOptions{IdleTimeout: c.timeout})
	}, matrixNewContents("file-1")},
	{"Files.Upload register", matrixCreate, "POST /v1/files", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Upload(ctx, svc.UploadRequest{FileName: "matrix-made", Body: strings.NewReader("x")})
	}, matrixMadeFiles},
	{"Files.Upload put", matrixPut, "PUT /storage/*", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Upload(ctx, svc.UploadRequest{
			FileName: "matrix-made", Body: strings.NewReader("new contents"), UploadOptions: svc.UploadOptions{IdleTimeout: c.timeout},
		})
	}, matrixNewContents("file-3")},
	{"Files.Replace link", matrixRead, "GET /v1/files/file-1/presigned_url", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Replace(ctx, "file-1", strings.NewReader("new contents"), nil)
	}, nil},
	{"Files.Replace put", matrixPut, "PUT /storage/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Replace(ctx, "file-1", strings.NewReader("new contents"), &svc.UploadOptions{IdleTimeout: c.timeout})
	}, matrixNewContents("file-1")},
	{"Files.DownloadURL", matrixDownload, "GET /storage/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.DownloadURL(ctx, c.link, &c.written, &svc.DownloadOptions{IdleTimeout: c.timeout})
	}, nil},
	{"Files.Download link", matrixRead, "GET /v1/files/file-1/presigned_url", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Download(ctx, "file-1", &c.written, nil)
	}, nil},
	{"Files.Download contents", matrixDownload, "GET /storage/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		return c.client.Files.Download(ctx, "file-1", &c.written, &svc.DownloadOptions{IdleTimeout: c.timeout})
	}, nil},

	{"Do GET", matrixRead, "GET /v1/files/file-1", func(ctx context.Context, c *matrixCell) (any, error) {
		var out map[string]any
		err := c.client.Do(ctx, http.MethodGet, "/v1/files/file-1", nil, &out)
		return out, err
	}, nil},
	{"Do POST", matrixCreate, "POST /v1/files", func(ctx context.Context, c *matrixCell) (any, error) {
		var out map[string]any
		err := c.client.Do(ctx, http.MethodPost, "/v1/files", &matrixFile, &out)
		return out, err
	}, matrixMadeFiles},
}
