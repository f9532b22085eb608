package svc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

var ctx = context.Background()

// quick is for examples: real deployments want the defaults.
var quick = svc.WaitOptions{MinInterval: 5 * time.Millisecond, MaxInterval: 5 * time.Millisecond}

func ExampleFlavorClient_List() {
	client := svctest.NewInMemory().Client()

	flavors, err := client.Flavors.List(ctx)
	for _, f := range flavors {
		fmt.Println(f.FlavorID, f.DisplayName, f.MetaInfo.CUDA, f.Billing.USDPriceUnit, f.AvailableNum)
	}
	fmt.Println(err)
}

func ExampleFlavorClient_Find() {
	srv := svctest.NewInMemory(svctest.WithFlavors(
		svctest.Flavor{ID: "small", DisplayName: "GPU A", CUDA: "12.4", USDPrice: 0.5, Stock: 3, MaxGPU: 1},
		svctest.Flavor{ID: "large", DisplayName: "GPU B", CUDA: "12.10", USDPrice: 2, Stock: 1, MaxGPU: 8},
		svctest.Flavor{ID: "fair", DisplayName: "GPU B", CUDA: "12.8", USDPrice: 1.5, Stock: 2, MaxGPU: 8},
	))
	client := srv.Client()

	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinCUDA: "12.6", MinGPUsPerNode: 4})
	for _, f := range flavors {
		fmt.Println(f.FlavorID, f.Billing.USDPriceUnit)
	}
	fmt.Println(err)
	// Output:
	// fair 1.5
	// large 2
	// <nil>
}

func ExampleInferenceServiceClient_Create() {
	client := svctest.NewInMemory().Client()

	service, err := client.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{
		Name:             "demo",
		PaymentType:      svc.PaymentTypeUSD,
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 1},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
	})
	fmt.Println(service.ServiceID, service.Status, err) // write the id down: nothing else leads back to it
	// Output: svc-1 initializing <nil>
}

func ExampleInferenceServiceClient_Get() {
	srv := svctest.NewInMemory()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	service, err := srv.Client().InferenceServices.Get(ctx, id)
	fmt.Println(service.Name, service.Status, err)
	// Output: demo available <nil>
}

func ExampleInferenceServiceClient_Update() {
	srv := svctest.NewInMemory()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	service, err := srv.Client().InferenceServices.Update(ctx, id, svc.UpdateInferenceServiceRequest{
		ResourceMetadata: svc.UpdateResourceMetadata{TargetInstanceNumber: new(2)},
	})
	fmt.Println(service.Status, err)
	// Output: initializing <nil>
}

func ExampleInferenceServiceClient_Scale() {
	srv := svctest.NewInMemory()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	service, err := srv.Client().InferenceServices.Scale(ctx, id, 2)
	fmt.Println(service.Status, service.ResourceMetadata.TargetInstanceNumber, err)
	// Output: initializing 2 <nil>
}

func ExampleInferenceServiceClient_ScaleAndWait() {
	srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Millisecond))
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	service, err := srv.Client().InferenceServices.ScaleAndWait(ctx, id, 2, &quick)
	fmt.Println(service.Status, service.ResourceMetadata.TargetInstanceNumber, err)
	// Output: available 2 <nil>
}

func ExampleInferenceServiceClient_Delete() {
	srv := svctest.NewInMemory()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	fmt.Println(srv.Client().InferenceServices.Delete(ctx, id), srv.RunningInstances())
	// Output: <nil> 0
}

func ExampleInferenceServiceClient_URL() {
	client, _ := svc.NewClient("https://api.example.com", svc.WithToken("the-token"),
		svc.WithInferenceURL("https://run.example.com"))

	fmt.Println(client.InferenceServices.URL("svc-1"))
	// Output: https://run.example.com/inference-api/v1/inference_service/svc-1 <nil>
}

func ExampleInferenceServiceClient_WaitUntilAvailable() {
	srv := svctest.NewInMemory(svctest.WithStatusPath("initializing", "initializing", "available"))
	client := srv.Client()
	service, _ := client.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "demo"})

	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute) // the only limit of a wait
	defer cancel()
	service, err := client.InferenceServices.WaitUntilAvailable(ctx, service.ServiceID, &svc.WaitOptions{
		MinInterval: 5 * time.Millisecond,
		OnPoll:      func(p svc.Poll) { fmt.Println(p.Number, p.Status) },
		Probe: func(ctx context.Context, url string) error { // is it really answering?
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			resp, err := srv.HTTPClient().Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		},
	})
	fmt.Println(service.Status, err)
	// Output:
	// 1 initializing
	// 2 initializing
	// 3 available
	// available <nil>
}

func ExampleInferenceServiceClient_WaitUntilDeleted() {
	srv := svctest.NewInMemory(svctest.WithDeleteTime(20 * time.Millisecond))
	client := srv.Client()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})

	_ = client.InferenceServices.Delete(ctx, id)
	fmt.Println(client.InferenceServices.WaitUntilDeleted(ctx, id, &quick))
	// Output: <nil>
}

func ExampleInferenceServiceClient_Wait() {
	srv := svctest.NewInMemory()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
	srv.ScriptStatus(id, "available", "draining", "stopped")

	service, err := srv.Client().InferenceServices.Wait(ctx, id, func(s *svc.InferenceService) (bool, error) {
		return s.Status == svc.InferenceServiceStatusStopped, nil
	}, &quick)
	fmt.Println(service.Status, err)
	// Output: stopped <nil>
}

func ExampleInferenceServiceClient_WaitAll() {
	srv := svctest.NewInMemory()
	good := srv.AddEndpoint(svctest.Endpoint{Name: "good"})
	bad := srv.AddEndpoint(svctest.Endpoint{Name: "bad"})
	srv.ScriptStatus(good, "available")
	srv.ScriptStatus(bad, "initializing", "unavailable")

	for service, err := range srv.Client().InferenceServices.WaitAll(ctx, []string{good, bad}, &quick) {
		fmt.Println(service.Name, service.Status, errors.Is(err, svc.ErrUnavailable))
	}
	// Output:
	// good available false
	// bad unavailable true
}

func ExampleInferenceServiceClient_Deploy() {
	srv := svctest.NewInMemory(svctest.WithStatusPath("initializing", "unavailable"))
	client := srv.Client()

	_, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:             "demo",
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 1},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
	}, &svc.DeployOptions{
		WaitOptions:     quick,
		DeleteOnFailure: true,
		OnCreate: func(s *svc.InferenceService) error { // the moment to write the id down
			fmt.Println("created", s.ServiceID)
			return nil
		},
	})
	if failed, ok := errors.AsType[*svc.DeployError](err); ok {
		fmt.Println(failed.ServiceID, "gone:", failed.Cleanup == svc.CleanupDeleted, "unavailable:", errors.Is(err, svc.ErrUnavailable))
	}
	// Output:
	// created svc-1
	// svc-1 gone: true unavailable: true
}
