package faults_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// patience is the timeout of these calls. The time is simulated.
const patience = 10 * time.Minute

// compositeOps are calls that consist of several operations, such as Deploy.
var compositeOps = []matrixOp{
	{"Deploy", matrixCreate, "GET /v1/inference-service/*", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var polls []svc.Poll
		var response svc.Response
		s, err := c.client.InferenceServices.Deploy(ctx, matrixService, &svc.DeployOptions{
			WaitOptions:     svc.WaitOptions{OnPoll: func(p svc.Poll) { polls = append(polls, p) }},
			DeleteOnFailure: true, CreateOptions: []svc.RequestOption{svc.WithResponse(&response)},
		})
		return []any{s, polls, response, &response}, err
	}, nil},
	{"WaitUntilAvailable", matrixRead, "GET /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return c.client.InferenceServices.WaitUntilAvailable(ctx, "svc-1", nil)
	}, nil},
	{"WaitUntilDeleted", matrixRead, "GET /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return nil, c.client.InferenceServices.WaitUntilDeleted(ctx, "svc-1", nil)
	}, nil},
	{"ScaleAndWait", matrixChange, "GET /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return c.client.InferenceServices.ScaleAndWait(ctx, "svc-1", 2, nil)
	}, nil},
	{"WaitUntilAllAvailable", matrixRead, "GET /v1/inference-service/svc-1", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var all []*svc.InferenceService
		var errs []error
		for s, err := range c.client.InferenceServices.WaitUntilAllAvailable(ctx, []string{"svc-1", "svc-none"}, nil) {
			all, errs = append(all, s), append(errs, err)
		}
		return all, errors.Join(errs...)
	}, nil},
	{"VideoJobs.Wait", matrixRead, "GET /v1/svc-video-job/job-1", func(ctx context.Context, c *matrixCell) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var polls []svc.Poll
		j, err := c.client.VideoJobs.Wait(ctx, "job-1", &svc.WaitOptions{OnPoll: func(p svc.Poll) { polls = append(polls, p) }})
		return []any{j, polls}, err
	}, nil},
	{"VideoJobs.All", matrixRead, "GET /v1/svc-video-job", func(ctx context.Context, c *matrixCell) (any, error) {
		var jobs []*svc.Job
		for j, err := range c.client.VideoJobs.All(ctx, &svc.ListJobsOptions{PageSize: 1}) {
			if err != nil {
				return jobs, err
			}
			jobs = append(jobs, j)
		}
		return jobs, nil
	}, nil},
	{"PresignedURL with response", matrixRead, "GET /v1/files/file-1/presigned_url", func(ctx context.Context, c *matrixCell) (any, error) {
		var response svc.Response
		link, err := c.client.Files.PresignedURL(ctx, "file-1", svc.WithResponse(&response))
		return []any{link, response, &response}, err
	}, nil},
	{"mistakes", matrixRead, "GET /v1/files", func(ctx context.Context, c *matrixCell) (any, error) {
		signature := matrixSignature.FindStringSubmatch(string(c.link))[1]
		bearer := svc.WithHeader("Authorization", "Bearer "+matrixToken)
		odd := svc.SignedURL("://" + signature + matrixToken)
		var errs []error
		note := func(err error) {
			if err == nil {
				err = errors.New("no error where there must be one")
			}
			errs = append(errs, err)
		}
		_, err := c.client.Files.List(ctx, bearer)
		note(err)
		_, err = c.client.Files.List(ctx, svc.WithHeader("X-Other", matrixToken+"\n"))
		note(err)
		_, err = c.client.Files.Put(ctx, odd, strings.NewReader("x"), nil)
		note(err)
		_, err = c.client.Files.DownloadURL(ctx, odd, &c.written, nil)
		note(err)
		_, err = c.client.Files.Put(ctx, c.link+"\x7f", strings.NewReader("x"), nil)
		note(err)
		_, err = c.client.Files.Upload(ctx, svc.UploadRequest{UploadOptions: svc.UploadOptions{Header: http.Header{"Authorization": {matrixToken}}}})
		note(err)
		for _, base := range []string{"https://u:" + matrixToken + "@svc.test", string(c.link), "://" + matrixToken, matrixToken, "http://svc.test:" + matrixToken} {
			_, err := svc.NewClient(base)
			note(err)
			_, err = svc.NewClient("https://svc.test", svc.WithInferenceURL(base))
			note(err)
		}
		for _, opt := range []svc.Option{svc.WithToken(matrixToken + "\n" + matrixToken), svc.WithUserAgent(matrixToken + "\n")} {
			_, err := svc.NewClient("https://svc.test", opt)
			if err != nil {
				errs = append(errs, err)
			}
		}
		var out map[string]any
		note(c.client.Do(ctx, "GET", "/v1/files?token="+matrixToken+"\x00", nil, &out))
		note(c.client.Do(ctx, "POST", "/v1/files", func() {}, &out))
		return nil, errors.Join(errs...)
	}, nil},
}

// echoes are formats in which a server may send back what it received.
var echoes = []func(text string) string{
	func(text string) string { return text },
	func(text string) string {
		b, _ := json.Marshal(map[string]any{"message": text, "code": text, "request_id": text, "id": text, "error": map[string]any{"detail": text}})
		return string(b)
	},
	func(text string) string {
		return "<html><title>" + html.EscapeString(text) + "</title>" + text + "</html>"
	},
	func(text string) string {
		return `<?xml version="1.0"?><Error><Code>` + html.EscapeString(text) + "</Code><Message>" + html.EscapeString(text) + "</Message></Error>"
	},
	func(text string) string { return `{"message":"` + url.QueryEscape(text) + `","code":[{"service_id":` },
	func(text string) string {
		b, _ := json.Marshal(map[string]any{"service_id": "svc-1", "job_id": "job-1", "id": text, "file_name": 5, "created_at": text, "is_deleted": text, "is_public": text})
		return string(b)
	},
	func(text string) string {
		quoted, _ := json.Marshal(text)
		twice, _ := json.Marshal(string(quoted))
		return `{"error":` + string(twice) + `}`
	},
	func(string) string {
		return `{"message":"basic ` + base64.StdEncoding.EncodeToString([]byte(matrixToken)) + `"}`
	},
}

// faultsOfService returns the faults of svctest, and services that send back secrets. The
// format and the status differ from call to call.
func faultsOfService(call int) map[string]func(c *matrixCell) {
	faults := map[string]func(c *matrixCell){"none": func(*matrixCell) {}}
	for name, f := range map[string]svctest.Fault{
		"unavailable":   svctest.ServiceUnavailable(-1),
		"rate limited":  svctest.RateLimited("7200"),
		"gateway":       svctest.GatewayErrorAfterEffect(),
		"drop before":   {DropBefore: true, Times: -1},
		"drop after":    {DropAfter: true, Times: -1},
		"slow":          {Delay: time.Hour, Times: -1},
		"cut":           {TruncateBody: true, Times: -1},
		"cut early":     {TruncateAfter: -1, Times: -1},
		"denied":        {Status: 401, Body: "denied", Times: -1},
		"not found":     {Status: 404, Times: -1},
		"wrong records": {Status: 200, Body: `{"id":7,"service_id":"other","job_id":null}`, Times: -1},
	} {
		faults[name] = func(c *matrixCell) { c.srv.Fault("*", svctest.RouteAny, f) }
	}
	for i, status := range []int{200, 201, 302, 400, 403, 404, 503} {
		shape := echoes[(call+i)%len(echoes)]
		faults[fmt.Sprintf("echo %d", status)] = func(c *matrixCell) {
			c.meet = func(_ int, req *http.Request) (*http.Response, error) {
				matrixSend(req)
				resp := c.answer(req, status, "application/json", shape(c.leak(req)))
				resp.Header.Set("Location", "/elsewhere?token="+matrixToken)
				resp.Header.Set("ETag", `"`+matrixToken+`"`)
				return resp, nil
			}
		}
	}
	faults["transport"] = func(c *matrixCell) {
		c.meet = func(_ int, req *http.Request) (*http.Response, error) {
			matrixSend(req)
			return nil, &url.Error{Op: req.Method, URL: string(c.link), Err: errors.New(c.leak(req))}
		}
	}
	return faults
}

type noLimit struct{}

func (noLimit) Wait(context.Context) error { return nil }

// callersValues returns values that a program makes itself, and options. Some of them
// hold a secret.
func callersValues(c *matrixCell) []any {
	video := svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{
		Prompt: "p", NegativePrompt: json.RawMessage(`"n"`), Settings: svc.VideoJobSettings{Seed: new(0)}, GenMode: "standard",
	}}
	image := svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p", Settings: svc.ImageJobSettings{Resolution: 1}, Config: svc.ImageConfig{ImageNumber: 2}}}
	values := []any{
		c.link, svc.Secret(matrixToken), noLimit{}, video, image, svc.JobType("text2video"),
		svc.CreateInferenceServiceRequest{
			Name: "n", PaymentType: "usd", DeployMetadata: svc.CreateDeployMetadata{Port: 1},
			ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "f", ScaleType: "manual"},
		},
		svc.UpdateInferenceServiceRequest{ResourceMetadata: svc.UpdateResourceMetadata{TargetInstanceNumber: new(1)}},
		svc.RegisterFileRequest{FileName: "f", Purpose: svc.FilePurposeFineTune},
		svc.FlavorQuery{Name: "x", Region: "cn", Currency: svc.CurrencyUSD}, svc.ListJobsOptions{Page: 1}, matrixPolicy,
		svc.DeployOptions{WaitOptions: svc.WaitOptions{MinInterval: 1}, CreateOptions: []svc.RequestOption{svc.WithQuery("k", matrixToken)}},
		svc.DownloadOptions{IdleTimeout: 1}, svc.UploadRequest{FileName: "f", UploadOptions: svc.UploadOptions{ContentType: "text/plain"}},
		svc.WithToken(matrixToken), svc.WithHeader("X-Key", matrixToken), svc.WithBodyField("key", matrixToken),
		svc.WithTokenSource(func(context.Context) (string, error) { return matrixToken, nil }),
		svc.JobMetaInfo{ServiceAPIToken: svc.ServiceAPIToken{APIToken: matrixToken, APITokenID: 1, User: svc.JobUser{UserID: "u"}}},
		svc.RegisteredFile{ID: "x", PresignedURL: c.link}, svc.JobOutput{MediaURL: c.link}, &svc.UploadError{Link: c.link, Cleanup: svc.CleanupFailed, Err: svc.ErrTruncated},
		svc.Job{Outputs: svc.Outputs{{MediaURL: c.link, ThumbnailURL: c.link}}}, &svc.Job{Outputs: svc.Outputs{{MediaURL: c.link}}},
		&svc.DownloadError{Link: c.link, Err: svc.ErrTruncated},
		c.client.Ledger, svc.AdoptOptions{Unmarked: true}, svc.ReapOptions{DryRun: true}, svc.RefusedFlavor{FlavorID: "f", Err: svc.ErrConflict}, svc.WaitEnd{ID: "x", Want: "available", Err: svc.ErrConflict},
		svc.Reaped{Err: svc.ErrKeyInUse, Entry: ledger.Entry{State: ledger.Created, Records: []ledger.Record{{Key: "k"}}}},
		ledger.Entry{Key: "k"}, ledger.Record{Key: "k"}, ledger.Created, &ledger.Error{Op: "list", Err: svc.ErrNoLedger},
	}
	return values
}
