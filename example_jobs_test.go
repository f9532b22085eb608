package svc_test

import (
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
