package svctest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

// A test of a deploy script checks after each step how many instances are billed.
func Example() {
	srv := svctest.NewInMemory(svctest.WithDeployTime(0))
	defer srv.Close()
	client, ctx := srv.Client(), context.Background()

	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:             "demo",
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(service.ServiceID, service.Status, "instances billed:", srv.RunningInstances())

	if err := client.InferenceServices.Delete(ctx, service.ServiceID); err != nil {
		fmt.Println(err)
	}
	fmt.Println("instances billed:", srv.RunningInstances())
	// Output:
	// svc-1 available instances billed: 2
	// instances billed: 0
}

// A deployment that fails must not leave an instance behind.
func ExampleWithStatusPath() {
	srv := svctest.NewInMemory(svctest.WithStatusPath(svctest.StatusInitializing, svctest.StatusUnavailable))
	defer srv.Close()

	_, err := srv.Client().InferenceServices.Deploy(context.Background(),
		svc.CreateInferenceServiceRequest{Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}},
		&svc.DeployOptions{DeleteOnFailure: true, WaitOptions: svc.WaitOptions{MinInterval: time.Millisecond}})

	fmt.Println("unavailable:", errors.Is(err, svc.ErrUnavailable))
	fmt.Println("instances billed:", srv.RunningInstances())
	// Output:
	// unavailable: true
	// instances billed: 0
}

// In the worst case the service carries out a create, and the response is lost. The
// caller does not know whether an instance runs. The fake does.
func ExampleServer_Fault() {
	srv := svctest.NewInMemory()
	defer srv.Close()
	srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())

	_, err := srv.Client().InferenceServices.Create(context.Background(),
		svc.CreateInferenceServiceRequest{Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}})

	fmt.Println("outcome unknown:", errors.Is(err, svc.ErrOutcomeUnknown))
	fmt.Println("sent:", srv.RequestCount("POST", svctest.RouteEndpoints), "billed:", srv.RunningInstances())
	// Output:
	// outcome unknown: true
	// sent: 1 billed: 1
}
