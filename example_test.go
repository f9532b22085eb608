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
// in the place of the first two lines.
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
	client, err := svc.NewClient("https://api.example.com/prefix/",
		svc.WithToken("the-token"),
		svc.WithTimeout(10*time.Second),
		svc.WithRetry(svc.RetryPolicy{MaxAttempts: 3}),
		svc.WithUserAgent("mytool/1.2"),
	)
	fmt.Println(client, err)

	_, err = svc.NewClient("http://api.example.com", svc.WithToken("the-token"))
	fmt.Println(err)
	// Output:
	// svc client of https://api.example.com/prefix <nil>
	// svc: base URL: plain http would show the token to everyone on the way: use https, or WithInsecureHTTP if you mean it
}

func ExampleNewClientFromEnv() {
	_ = os.Setenv("SVC_BASE_URL", "https://api.example.com")
	_ = os.Setenv("SVC_API_TOKEN", "the-token")
	defer func() { _ = os.Unsetenv("SVC_BASE_URL"); _ = os.Unsetenv("SVC_API_TOKEN") }()

	client, err := svc.NewClientFromEnv()
	fmt.Println(client, err)
	// Output: svc client of https://api.example.com <nil>
}

func ExampleClient_Do() {
	srv := svctest.NewInMemory()
	client := srv.Client()

	// An operation that this package does not know would be called like this one.
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

// A create whose answer is lost may have taken effect. It is sent once, and the
// error says what is known.
func ExampleOutcomeUnknownError() {
	srv := svctest.NewInMemory()
	client := srv.Client()
	srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())

	_, err := client.InferenceServices.Create(context.Background(), svc.CreateInferenceServiceRequest{Name: "demo"})
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		fmt.Printf("%q may exist and be billed; its id: %q\n", unknown.Name, unknown.ID)
	}
	fmt.Println("creates sent:", srv.RequestCount("POST", svctest.RouteEndpoints))
	// Output:
	// "demo" may exist and be billed; its id: ""
	// creates sent: 1
}

func ExampleWithTokenSource() {
	rotate := func(context.Context) (string, error) {
		token, err := os.ReadFile("/run/secrets/svc-token") // asked for every attempt
		return string(token), err
	}
	client, err := svc.NewClient("https://api.example.com", svc.WithTokenSource(rotate))
	fmt.Println(client, err)
	// Output: svc client of https://api.example.com <nil>
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

	// The fake refuses fields that the service does not document; the real one may
	// have learnt some.
	_, err := client.InferenceServices.Create(context.Background(), svc.CreateInferenceServiceRequest{Name: "demo"},
		svc.WithBodyField("resource_metadata.zone", "a"))
	fmt.Println(err)
	// Output: svc: POST /v1/inference-service: 422 Unprocessable Entity: resource_metadata.zone is not a field of this request (code invalid_request, request req-1)
}

func ExampleSignedURL() {
	link := svc.SignedURL("https://storage.example/bucket/file?X-Amz-Signature=abc")
	fmt.Println(link)
	fmt.Println(string(link)) // the link itself
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
	client := srv.Client(svc.WithRateLimiter(pace{time.Tick(10 * time.Millisecond)}))

	start := time.Now()
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
	client, err := svc.NewClient("https://api.example.com", svc.WithToken("the-token"),
		svc.WithHTTPClient(&http.Client{Transport: transport}))
	fmt.Println(client, err)
	// Output: svc client of https://api.example.com <nil>
}
