package svc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

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

// The loop asks for the next page when it gets there. An error comes as its last
// pair: what was gathered until then is not the whole list.
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

// Null and a zero are sent as such; a field that is not set is left out.
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
