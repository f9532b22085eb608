package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/svctest"
)

// The examples run on a fake of the service. A real program has
//
//	client, err := svc.NewClient("https://api.example.com", svc.WithToken(token))
//
// instead of the first two lines.
func Example() {
	srv := svctest.NewInMemory(svctest.WithDeployTime(50 * time.Millisecond))
	client := srv.Client()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()

	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinAvailable: 1})
	if err != nil || len(flavors) == 0 {
		log.Fatal("no flavor in stock: ", err)
	}
	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:             "demo",
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: flavors[0].FlavorID, TargetInstanceNumber: 1},
		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
	}, &svc.DeployOptions{
		DeleteOnFailure: true,
		WaitOptions:     svc.WaitOptions{MinInterval: 10 * time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(service.ServiceID, "is", service.Status)
	// Output: svc-1 is available
}

func ExampleNewClient() {
	_, err := svc.NewClient("https://api.example.com/prefix/",
		svc.WithToken("the-token"),
		svc.WithTimeout(10*time.Second),
		svc.WithRetry(svc.RetryPolicy{MaxAttempts: 3}),
		svc.WithUserAgent("mytool/1.2"),
	)
	fmt.Println(err)

	_, err = svc.NewClient("http://api.example.com", svc.WithToken("the-token"))
	fmt.Println(err)
	// Output:
	// <nil>
	// svc: base URL: plain http would show the token to everyone on the network: use https, or allow it with WithInsecureHTTP
}

func ExampleNewClientFromEnv() {
	_ = os.Setenv("SVC_BASE_URL", "https://api.example.com")
	_ = os.Setenv("SVC_API_TOKEN", "the-token")
	defer func() { _ = os.Unsetenv("SVC_BASE_URL"); _ = os.Unsetenv("SVC_API_TOKEN") }()

	_, err := svc.NewClientFromEnv()
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_Do() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	// Do calls any operation, also one that this package does not know.
	var answer struct {
		FlavorList []json.RawMessage `json:"flavor_list"`
	}
	err := client.Do(context.Background(), "GET", "/v1/inference-service/flavor", nil, &answer)
	fmt.Println(len(answer.FlavorList) > 0, err)
	// Output: true <nil>
}

func ExampleError() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	_, err := client.Files.Get(context.Background(), "file-9")
	if errors.Is(err, svc.ErrNotFound) {
		fmt.Println("no such file")
	}
	if e, ok := errors.AsType[*svc.Error](err); ok {
		fmt.Println(e.StatusCode, e.Route, e.Code)
	}
	// Output:
	// no such file
	// 404 /v1/files/{file_id} not_found
}

// A create whose response is lost may have taken effect. It is sent only once, and the
// error says what is known about it.
func ExampleOutcomeUnknownError() {
	srv := svctest.NewInMemory()
	client := srv.Client()
	srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())

	_, err := client.InferenceServices.Create(context.Background(), svc.CreateInferenceServiceRequest{Name: "demo"})
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		fmt.Printf("%q may exist and be billed; its ID: %q\n", unknown.Name, unknown.ID)
	}
	fmt.Println("creates sent:", srv.RequestCount("POST", svctest.RouteEndpoints))
	// Output:
	// "demo" may exist and be billed; its ID: ""
	// creates sent: 1
}

func ExampleWithTokenSource() {
	rotate := func(context.Context) (string, error) {
		token, err := os.ReadFile("/run/secrets/svc-token") // rotate is called for every attempt
		return string(token), err
	}
	_, err := svc.NewClient("https://api.example.com", svc.WithTokenSource(rotate))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleWithAttemptHook() {
	srv := svctest.NewInMemory()
	client := srv.Client(
		svc.WithRetry(svc.RetryPolicy{MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}),
		svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
			fmt.Println(a.Method, a.Route, a.Number, a.StatusCode)
		}))
	srv.Fault("GET", svctest.RouteFiles, svctest.ServiceUnavailable(1))

	_, _ = client.Files.List(context.Background())
	// Output:
	// GET /v1/files 1 503
	// GET /v1/files 2 200
}

func ExampleWithLogger() {
	srv := svctest.NewInMemory()
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "time" || a.Key == "duration" || a.Key == "request_id" {
			return slog.Attr{}
		}
		return a
	}
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: untimed})
	client := srv.Client(svc.WithLogger(slog.New(handler)))

	_, _ = client.Files.Get(context.Background(), "file-9")
	// Output: level=DEBUG msg="svc: exchange" method=GET route=/v1/files/{file_id} call=1 attempt=1 status=404 id=file-9
}

func ExampleWithResponse() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	var response svc.Response
	_, err := client.Files.List(context.Background(), svc.WithResponse(&response))
	fmt.Println(response.StatusCode, response.Attempts, string(response.Body), err)
	// Output: 200 1 [] <nil>
}

func ExampleWithBodyField() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	// The fake refuses fields that the service does not document. The real service may accept
	// such a field.
	_, err := client.InferenceServices.Create(context.Background(), svc.CreateInferenceServiceRequest{Name: "demo"},
		svc.WithBodyField("resource_metadata.zone", "a"))
	fmt.Println(err)
	// Output: svc: POST /v1/inference-service: 422 Unprocessable Entity: resource_metadata.zone is not a field of this request (code invalid_request, request req-1)
}

func ExampleSignedURL() {
	link := svc.SignedURL("https://storage.example/bucket/file?X-Amz-Signature=abc")
	fmt.Println(link)
	fmt.Println(string(link)) // the link with its signature
	// Output:
	// https://storage.example/bucket/file?REDACTED
	// https://storage.example/bucket/file?X-Amz-Signature=abc
}

func ExamplePrice() {
	a, _ := svc.ParsePrice("1e-7")
	b, _ := svc.ParsePrice("0.00000010")
	fmt.Println(a, a.Cmp(b), a.Float64())
	// Output: 0.0000001 0 1e-07
}

func ExampleTime() {
	var t svc.Time
	_ = json.Unmarshal([]byte(`"2024-06-01 10:11:12"`), &t)
	fmt.Println(t.Year(), t.Location())
	_ = json.Unmarshal([]byte(`"soon"`), &t)
	fmt.Println(t.IsZero(), t.Raw())
	// Output:
	// 2024 UTC
	// true soon
}

// pace is a rate limiter; golang.org/x/time/rate has better ones.
type pace struct{ tick <-chan time.Time }

func (p pace) Wait(ctx context.Context) error {
	select {
	case <-p.tick:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func ExampleWithRateLimiter() {
	srv := svctest.NewInMemory()
	start := time.Now() // before the first tick begins
	client := srv.Client(svc.WithRateLimiter(pace{time.Tick(10 * time.Millisecond)}))

	for range 3 {
		_, _ = client.Files.List(context.Background())
	}
	fmt.Println(time.Since(start) >= 30*time.Millisecond)
	// Output: true
}

// spans stands for an instrumented transport, such as the one of OpenTelemetry.
type spans struct{ next http.RoundTripper }

func (s spans) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	fmt.Println(req.Method, svc.RouteFromContext(req.Context()), "query seen:", req.URL.RawQuery != "")
	return resp, err
}

func ExampleWithTransportWrapper() {
	srv := svctest.NewInMemory()
	client := srv.Client(svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper { return spans{next} }))

	_, err := client.Files.Upload(context.Background(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("contents")})
	fmt.Println(err)
	// Output:
	// POST /v1/files query seen: false
	// PUT {presigned_url} query seen: false
	// <nil>
}

func ExampleWithHTTPClient() {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64}
	_, err := svc.NewClient("https://api.example.com", svc.WithToken("the-token"),
		svc.WithHTTPClient(&http.Client{Transport: transport}))
	fmt.Println(err)
	// Output: <nil>
}

var ctx = context.Background()

// quick makes the examples fast. A real program uses the default intervals.
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
	fmt.Println(service.ServiceID, service.Status, err) // store the ID: the service has no call that lists endpoints
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

	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute) // only ctx limits a wait
	defer cancel()
	service, err := client.InferenceServices.WaitUntilAvailable(ctx, service.ServiceID, &svc.WaitOptions{
		MinInterval: 5 * time.Millisecond,
		OnPoll:      func(p svc.Poll) { fmt.Println(p.Number, p.Status) },
		Probe: func(ctx context.Context, url string) error { // does the endpoint respond?
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

func ExampleInferenceServiceClient_WaitUntilAllAvailable() {
	srv := svctest.NewInMemory()
	good := srv.AddEndpoint(svctest.Endpoint{Name: "good"})
	bad := srv.AddEndpoint(svctest.Endpoint{Name: "bad"})
	srv.ScriptStatus(good, "available")
	srv.ScriptStatus(bad, "initializing", "unavailable")

	for service, err := range srv.Client().InferenceServices.WaitUntilAllAvailable(ctx, []string{good, bad}, &quick) {
		fmt.Println(service.Name, service.Status, errors.Is(err, svc.ErrUnavailable))
	}
	// Unordered output:
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
		OnCreate: func(s *svc.InferenceService) error { // store the ID here
			fmt.Println("created", s.ServiceID)
			return nil
		},
	})
	if failed, ok := errors.AsType[*svc.DeployError](err); ok {
		fmt.Println(failed.ServiceID, "deleted:", failed.Cleanup == svc.CleanupDeleted, "unavailable:", errors.Is(err, svc.ErrUnavailable))
	}
	// Output:
	// created svc-1
	// svc-1 deleted: true unavailable: true
}
