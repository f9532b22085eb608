package ledger_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// A program that is started again after a crash continues with the endpoint that it had
// created. A second program deletes what has outlived its lease.
func ExampleDir() {
	ctx := context.Background()
	srv := svctest.NewServer() // in place of the real service
	defer srv.Close()
	folder, _ := os.MkdirTemp("", "ledger")
	defer os.RemoveAll(folder)

	store, err := ledger.Dir(folder)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := svc.NewClient(srv.URL(), svc.WithToken(srv.Token()), svc.WithLedger(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	request := svc.CreateInferenceServiceRequest{Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}}
	for range 2 { // stands for two starts of the program
		s, err := client.InferenceServices.Deploy(ctx, request, &svc.DeployOptions{Key: "demo", Lease: 8 * time.Hour})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("deployed", s.ServiceID)
	}

	entries, err := client.Ledger.Entries(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range entries {
		fmt.Println(e.Key, e.State, e.ServiceID)
	}
	reaped, err := client.Ledger.Reap(ctx, nil) // call this every few minutes; any machine can do it
	fmt.Println(len(reaped), err)
	// Output:
	// deployed svc-1
	// deployed svc-1
	// demo created svc-1
	// 0 <nil>
}
