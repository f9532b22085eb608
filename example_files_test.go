package svc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

func ExampleFileClient_Upload() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	result, err := client.Files.Upload(ctx, svc.UploadRequest{
		FileName: "train.jsonl",
		Purpose:  svc.FilePurposeFineTune,
		Body:     strings.NewReader(`{"prompt": "a lighthouse at dusk"}`),
		UploadOptions: svc.UploadOptions{
			Progress:        func(sent, total int64) { fmt.Println(sent, "of", total) },
			DeleteOnFailure: true,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.FileID, result.Bytes)
	// Output:
	// 34 of 34
	// file-1 34
}

func ExampleFileClient_UploadFile() {
	client := svctest.NewInMemory().Client()
	path := filepath.Join(os.TempDir(), "svc-example.jsonl")
	_ = os.WriteFile(path, []byte("{}\n"), 0o600)
	defer func() { _ = os.Remove(path) }()

	result, err := client.Files.UploadFile(ctx, path, svc.FilePurposeFineTune, nil)
	fmt.Println(result.FileID, result.Bytes, err)
	// Output: file-1 3 <nil>
}

func ExampleFileClient_Register() {
	client := svctest.NewInMemory().Client()

	file, err := client.Files.Register(ctx, svc.RegisterFileRequest{FileName: "train.jsonl", Purpose: svc.FilePurposeFineTune})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := client.Files.Put(ctx, file.PresignedURL, strings.NewReader("{}"), nil)
	fmt.Println(file.ID, result.Bytes, err)
	// Output: file-1 2 <nil>
}

// If an upload fails after the record was created, Replace sends the contents again.
func ExampleFileClient_Replace() {
	srv := svctest.NewInMemory()
	client := srv.Client()
	srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403})
	contents := strings.NewReader("{}")

	_, err := client.Files.Upload(ctx, svc.UploadRequest{FileName: "train.jsonl", Purpose: svc.FilePurposeFineTune, Body: contents})
	failed, ok := errors.AsType[*svc.UploadError](err)
	if !ok {
		return
	}
	result, err := client.Files.Replace(ctx, failed.FileID, contents, nil)
	fmt.Println(failed.Stage, failed.FileID, result.Bytes, err)
	// Output: put file-1 2 <nil>
}

func ExampleFileClient_List() {
	srv := svctest.NewInMemory()
	srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))

	files, err := srv.Client().Files.List(ctx)
	for _, f := range files {
		fmt.Println(f.ID, f.FileName, f.Purpose)
	}
	fmt.Println(err)
	// Output:
	// file-1 train.jsonl fine-tune
	// <nil>
}

func ExampleFileClient_ListPublic() {
	srv := svctest.NewInMemory()
	srv.AddPublicFile(svctest.PublicFile{Name: "sample.jsonl", Bytes: 4096})
	client, _ := svc.NewClient(srv.URL(), svc.WithHTTPClient(srv.HTTPClient())) // the public list needs no token

	files, err := client.Files.ListPublic(ctx)
	for _, f := range files {
		fmt.Println(f.FileName, f.Bytes)
	}
	fmt.Println(err)
	// Output:
	// sample.jsonl 4096
	// <nil>
}

func ExampleFileClient_Get() {
	srv := svctest.NewInMemory()
	id := srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))

	file, err := srv.Client().Files.Get(ctx, id)
	fmt.Println(file.FileName, err)
	// Output: train.jsonl <nil>
}

func ExampleFileClient_Delete() {
	srv := svctest.NewInMemory()
	id := srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))

	fmt.Println(srv.Client().Files.Delete(ctx, id))
	// Output: <nil>
}

func ExampleFileClient_PresignedURL() {
	srv := svctest.NewInMemory()
	id := srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))

	link, err := srv.Client().Files.PresignedURL(ctx, id)
	fmt.Println(strings.HasSuffix(link.String(), "?REDACTED"), err) // string(link) is the usable link
	// Output: true <nil>
}

func ExampleFileClient_Download() {
	srv := svctest.NewInMemory()
	id := srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))

	var contents bytes.Buffer
	n, err := srv.Client().Files.Download(ctx, id, &contents, nil)
	fmt.Println(n, contents.String(), err)
	// Output: 2 {} <nil>
}

func ExampleFileClient_DownloadFile() {
	srv := svctest.NewInMemory()
	id := srv.AddFile("train.jsonl", "fine-tune", []byte("{}"))
	path := filepath.Join(os.TempDir(), "svc-example-download.jsonl")
	defer func() { _ = os.Remove(path) }()

	n, err := srv.Client().Files.DownloadFile(ctx, id, path, nil)
	fmt.Println(n, err)
	// Output: 2 <nil>
}

func ExampleFileClient_DownloadURL() {
	srv := svctest.NewInMemory(svctest.WithMediaContents([]byte("pixels")))
	id := srv.AddImageJobs(1)[0]
	client := srv.Client()
	job, err := client.ImageJobs.Get(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}

	var media bytes.Buffer
	n, err := client.Files.DownloadURL(ctx, job.Outputs[0].MediaURL, &media, nil)
	fmt.Println(n, err)
	// Output: 6 <nil>
}

func ExampleFileClient_DownloadURLFile() {
	srv := svctest.NewInMemory(svctest.WithMediaContents([]byte("pixels")))
	id := srv.AddVideoJobs(1)[0]
	client := srv.Client()
	job, err := client.VideoJobs.Get(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	path := filepath.Join(os.TempDir(), "svc-example.mp4")
	defer func() { _ = os.Remove(path) }()

	n, err := client.Files.DownloadURLFile(ctx, job.Outputs[0].MediaURL, path, nil)
	fmt.Println(n, err)
	// Output: 6 <nil>
}

func ExampleVideoJobClient_List() {
	srv := svctest.NewInMemory()
	srv.AddVideoJobs(25)

	page, err := srv.Client().VideoJobs.List(ctx, &svc.ListJobsOptions{Page: 3, PageSize: 10})
	fmt.Println(len(page.Jobs), "of", page.TotalCount, err)
	// Output: 5 of 25 <nil>
}

func ExampleVideoJobClient_Wait() {
	client := svctest.NewInMemory(svctest.WithJobTime(20 * time.Millisecond)).Client()
	job, _ := client.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "a lighthouse at dusk"}})

	job, err := client.VideoJobs.Wait(ctx, job.JobID, &quick)
	fmt.Println(job.Status, len(job.Outputs), err)
	// Output: succeed 1 <nil>
}

func ExampleVideoJobClient_Get() {
	client := svctest.NewInMemory(svctest.WithJobsRetired(410)).Client()

	_, err := client.VideoJobs.Get(ctx, "job-1")
	fmt.Println(errors.Is(err, svc.ErrRetired))
	// Output: true
}

func ExampleVideoJobClient_Delete() {
	srv := svctest.NewInMemory()
	id := srv.AddVideoJobs(1)[0]

	fmt.Println(srv.Client().VideoJobs.Delete(ctx, id))
	// Output: <nil>
}

func ExampleImageJobClient_Create() {
	client := svctest.NewInMemory(svctest.WithJobTime(20 * time.Millisecond)).Client()

	job, err := client.ImageJobs.Create(ctx, svc.CreateImageJobRequest{Config: svc.ImageJobConfig{
		Prompt: "a lighthouse at dusk",
		Config: svc.ImageConfig{ImageNumber: 2},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err = client.ImageJobs.Wait(ctx, job.JobID, &quick)
	fmt.Println(len(job.Outputs), err)
	// Output: 2 <nil>
}

func ExampleImageJobClient_All() {
	srv := svctest.NewInMemory()
	srv.AddImageJobs(25)

	n := 0
	for _, err := range srv.Client().ImageJobs.All(ctx, &svc.ListJobsOptions{PageSize: 10, Concurrency: 4}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		n++
	}
	fmt.Println(n)
	// Output: 25
}

func ExampleImageJobClient_Get() {
	srv := svctest.NewInMemory()
	id := srv.AddImageJobs(1)[0]

	job, err := srv.Client().ImageJobs.Get(ctx, id)
	fmt.Println(job.Status, len(job.Outputs), err)
	// Output: succeed 1 <nil>
}

func ExampleImageJobClient_List() {
	srv := svctest.NewInMemory()
	srv.AddImageJobs(25)

	page, err := srv.Client().ImageJobs.List(ctx, &svc.ListJobsOptions{Page: 1, PageSize: 10})
	fmt.Println(len(page.Jobs), "of", page.TotalCount, err)
	// Output: 10 of 25 <nil>
}

func ExampleImageJobClient_Wait() {
	client := svctest.NewInMemory(svctest.WithJobTime(20 * time.Millisecond)).Client()
	job, _ := client.ImageJobs.Create(ctx, svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "a lighthouse at dusk"}})

	job, err := client.ImageJobs.Wait(ctx, job.JobID, &quick)
	fmt.Println(job.Status, err)
	// Output: succeed <nil>
}

func ExampleImageJobClient_Delete() {
	srv := svctest.NewInMemory()
	id := srv.AddImageJobs(1)[0]

	fmt.Println(srv.Client().ImageJobs.Delete(ctx, id))
	// Output: <nil>
}

// The loop requests a page when it needs the page. If a page fails, the last pair holds the
// error, and the jobs before it are not the whole list.
func ExampleVideoJobClient_All() {
	srv := svctest.NewInMemory()
	srv.AddVideoJobs(250)

	n := 0
	for _, err := range srv.Client().VideoJobs.All(ctx, &svc.ListJobsOptions{PageSize: 100}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		n++
	}
	fmt.Println(n, "jobs in", srv.RequestCount("GET", svctest.RouteVideoJobs), "requests")
	// Output: 250 jobs in 3 requests
}

// A field that is set to null, to 0 or to false is sent. A field that is not set is not sent.
func ExampleVideoJobClient_Create() {
	client := svctest.NewInMemory().Client()

	job, err := client.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{
		Prompt:         "a lighthouse at dusk",
		NegativePrompt: json.RawMessage("null"),
		Settings:       svc.VideoJobSettings{Seed: new(0)},
		IsPublic:       new(false),
	}})
	fmt.Println(job.JobID, job.Status, err)
	// Output: job-1 initializing <nil>
}
