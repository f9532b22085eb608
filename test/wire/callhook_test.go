package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// callsOf returns an option that stores each call.
func callsOf(calls *[]svc.Call) svc.Option {
	return svc.WithCallHook(func(_ context.Context, c svc.Call) { *calls = append(*calls, c) })
}

func TestCallHookReportsEachCallOnce_D31(t *testing.T) {
	const service = "/v1/inference-service/{service_id}"
	do := func(method string) func(context.Context, *svc.Client) error {
		return func(ctx context.Context, c *svc.Client) error {
			return c.Do(ctx, method, "/v1/new/svc-1", nil, nil)
		}
	}
	on := func(op testkit.Operation) func(context.Context, *svc.Client) error {
		return func(ctx context.Context, c *svc.Client) error { return op.Do(ctx, c) }
	}
	for name, tt := range map[string]struct {
		do      func(context.Context, *svc.Client) error
		replies []testkit.Reply
		opts    []svc.Option
		want    svc.Call
	}{
		"success":           {on(testkit.OpGet), []testkit.Reply{testkit.OpGet.OK}, nil, svc.Call{Method: "GET", Route: service, ID: "svc-1", Attempts: 1, Outcome: svc.CallDone}},
		"after a retry":     {on(testkit.OpUpdate), []testkit.Reply{testkit.Status(503), testkit.OpUpdate.OK}, nil, svc.Call{Method: "PUT", Route: service, ID: "svc-1", Attempts: 2, Duration: 2 * time.Second, Outcome: svc.CallDone}},
		"not found":         {on(testkit.OpGet), []testkit.Reply{testkit.Status(404)}, nil, svc.Call{Method: "GET", Route: service, ID: "svc-1", Attempts: 1, Outcome: svc.CallFailed}},
		"not promised":      {on(testkit.OpGet), []testkit.Reply{{Body: "[]"}}, nil, svc.Call{Method: "GET", Route: service, ID: "svc-1", Attempts: 1, Outcome: svc.CallFailed}},
		"delete":            {on(testkit.OpDelete), []testkit.Reply{testkit.OpDelete.OK}, nil, svc.Call{Method: "DELETE", Route: service, ID: "svc-1", Attempts: 1, Outcome: svc.CallDone}},
		"lost delete":       {on(testkit.OpDelete), []testkit.Reply{testkit.Lost, testkit.Status(404)}, nil, svc.Call{Method: "DELETE", Route: service, ID: "svc-1", Attempts: 2, Duration: 2 * time.Second, Outcome: svc.CallDone}},
		"create":            {on(testkit.OpCreate), []testkit.Reply{testkit.OpCreate.OK}, nil, svc.Call{Method: "POST", Route: "/v1/inference-service", Attempts: 1, Outcome: svc.CallDone}},
		"refused create":    {on(testkit.OpCreate), []testkit.Reply{testkit.Status(400)}, nil, svc.Call{Method: "POST", Route: "/v1/inference-service", Attempts: 1, Outcome: svc.CallFailed}},
		"create in doubt":   {on(testkit.OpCreate), []testkit.Reply{testkit.Lost}, nil, svc.Call{Method: "POST", Route: "/v1/inference-service", Attempts: 1, Outcome: svc.CallUnknown}},
		"create, no record": {on(testkit.OpCreate), []testkit.Reply{{Status: 201, Body: "{}"}}, nil, svc.Call{Method: "POST", Route: "/v1/inference-service", Attempts: 1, Outcome: svc.CallUnknown}},
		"no token":          {on(testkit.OpGet), nil, []svc.Option{svc.WithTokenSource(func(context.Context) (string, error) { return "", nil })}, svc.Call{Method: "GET", Route: service, ID: "svc-1", Outcome: svc.CallFailed}},
		"invalid": {func(ctx context.Context, c *svc.Client) error {
			_, err := c.InferenceServices.Get(ctx, "a/b")
			return err
		}, nil, nil, svc.Call{Method: "GET", Route: service, ID: "a/b", Outcome: svc.CallFailed}},
		"Do":                {do("GET"), []testkit.Reply{{}}, nil, svc.Call{Method: "GET", Route: "/v1/new/svc-1", Attempts: 1, Outcome: svc.CallDone}},
		"Do, lost delete":   {do("DELETE"), []testkit.Reply{testkit.Lost, testkit.Status(404)}, nil, svc.Call{Method: "DELETE", Route: "/v1/new/svc-1", Attempts: 2, Duration: 2 * time.Second, Outcome: svc.CallDone}},
		"Do, in doubt":      {do("PATCH"), []testkit.Reply{testkit.Lost}, nil, svc.Call{Method: "PATCH", Route: "/v1/new/svc-1", Attempts: 1, Outcome: svc.CallUnknown}},
		"a list that fails": {func(ctx context.Context, c *svc.Client) error { _, err := c.Files.List(ctx); return err }, []testkit.Reply{testkit.Status(403)}, nil, svc.Call{Method: "GET", Route: "/v1/files", Attempts: 1, Outcome: svc.CallFailed}},
		"a slow call, ended": {func(ctx context.Context, c *svc.Client) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return testkit.OpGet.Do(ctx, c)
		}, []testkit.Reply{{After: time.Minute}}, nil, svc.Call{Method: "GET", Route: service, ID: "svc-1", Attempts: 1, Duration: time.Second, Outcome: svc.CallFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []svc.Call
				client := testkit.Play(t, tt.replies...).Client(append(tt.opts, callsOf(&calls), testkit.Tries(3, 2*time.Second))...)
				tt.want.Err = tt.do(t.Context(), client)
				require.Equal(t, tt.want.Outcome == svc.CallDone, tt.want.Err == nil)
				require.Equal(t, []svc.Call{tt.want}, calls)
			})
		})
	}
}

func TestCallHookTellsTheReadsOfAWaitApart_D31(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		defer srv.Close()
		var calls []svc.Call
		client := srv.Client(callsOf(&calls))
		s, err := client.InferenceServices.Deploy(t.Context(), svctestRequest(t, client), nil)
		require.NoError(t, err)
		require.NoError(t, client.InferenceServices.DeleteAndWait(t.Context(), s.ServiceID, nil))
		failed := 0
		for _, c := range calls {
			isCreate := c.Method == "POST"
			isList := c.Route == "/v1/inference-service/flavor" && !c.Wait // the request of this test
			require.Equal(t, !isCreate && !isList, c.Wait, "%+v", c)
			if c.Err != nil && !c.Wait {
				failed++
			}
		}
		require.Zero(t, failed)
	})
}

func svctestRequest(t *testing.T, client *svc.Client) svc.CreateInferenceServiceRequest {
	flavors, err := client.Flavors.List(t.Context())
	require.NoError(t, err)
	return svc.CreateInferenceServiceRequest{
		Name: "n", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: flavors[0].FlavorID, TargetInstanceNumber: 1},
		DeployMetadata: svc.CreateDeployMetadata{ImageURL: "registry.example.com/x:1", Port: 80, GPUNum: 1},
	}
}

func TestCallHookReportsTransfers_D31(t *testing.T) {
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "contents")
	})
	var calls []svc.Call
	client := s.Client(t, callsOf(&calls))
	_, err := client.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("contents")})
	require.NoError(t, err)
	_, err = client.Files.Download(t.Context(), "f1", io.Discard, nil)
	require.NoError(t, err)
	_, err = client.Files.Download(t.Context(), "f1", testkit.WriterFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe }), nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	for i := range calls {
		require.Positive(t, calls[i].Duration)
		calls[i].Duration = 0
	}
	require.Equal(t, []svc.Call{
		{Method: "POST", Route: "/v1/files", Attempts: 1, Outcome: svc.CallDone},
		{Method: "PUT", Route: "{presigned_url}", ID: "f1", Attempts: 1, Outcome: svc.CallDone},
		{Method: "GET", Route: "/v1/files/{file_id}/presigned_url", ID: "f1", Attempts: 1, Outcome: svc.CallDone},
		{Method: "GET", Route: "{presigned_url}", ID: "f1", Attempts: 1, Outcome: svc.CallDone},
		{Method: "GET", Route: "/v1/files/{file_id}/presigned_url", ID: "f1", Attempts: 1, Outcome: svc.CallDone},
		{Method: "GET", Route: "{presigned_url}", ID: "f1", Attempts: 1, Outcome: svc.CallFailed, Err: err},
	}, calls)
}

func TestUnknownOutcomeIsOneLineOfLevelWarn_D31(t *testing.T) {
	for reply, want := range map[*testkit.Reply]map[string]any{
		{Err: testkit.ErrReset}: {"name": "demo"},
		{Status: 201, Body: `{"service_id":"svc-7"}`, Err: testkit.ErrReset, Header: map[string]string{"X-Request-Id": "r-1"}}: {"name": "demo", "id": "svc-7", "request_id": "r-1"},
	} {
		var out bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		err := testkit.OpCreate.Do(t.Context(), testkit.Play(t, *reply).Client(svc.WithLogger(logger)))
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		var line map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &line))
		delete(line, "time")
		want["level"], want["msg"], want["error"] = "WARN", "svc: the outcome of a call is not known", err.Error()
		require.Equal(t, want, line)
	}
}

func TestWarningNamesTheLedgerEntry_D31(t *testing.T) {
	var out bytes.Buffer
	var calls []svc.Call
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	client := testkit.Play(t, testkit.Lost).Client(svc.WithLogger(logger), svc.WithLedger(ledger.Memory()), callsOf(&calls))
	_, err := client.InferenceServices.Deploy(t.Context(), svc.CreateInferenceServiceRequest{
		Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1},
	}, &svc.DeployOptions{Key: "the-key"})
	unknown := testkit.ErrorAs[*svc.OutcomeUnknownError](t, err)
	require.NotEmpty(t, unknown.Intent)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), `"key":"the-key","intent":"`+unknown.Intent+`"`)
	require.Len(t, calls, 1)
	require.Equal(t, svc.CallUnknown, calls[0].Outcome)
}

// A call that WithCallContext has begun ends once, also a create that is not sent since its key has an
// endpoint, one that another create or the ledger stops, and one that is refused or in doubt.
func TestEachCallThatBeginsEnds_D31(t *testing.T) {
	type key struct{}
	for name, tt := range map[string]struct {
		second svc.CreateInferenceServiceRequest
		post   []testkit.Reply
		opts   *svc.DeployOptions
		want   svc.CallOutcome
	}{
		"resumed":         {testkit.Demo, []testkit.Reply{testkit.OpCreate.OK}, &svc.DeployOptions{Key: "k"}, svc.CallDone},
		"another request": {svc.CreateInferenceServiceRequest{Name: "other", ResourceMetadata: testkit.Demo.ResourceMetadata}, []testkit.Reply{testkit.OpCreate.OK}, &svc.DeployOptions{Key: "k"}, svc.CallFailed},
		"invalid key":     {testkit.Demo, []testkit.Reply{testkit.OpCreate.OK}, &svc.DeployOptions{Key: "K k"}, svc.CallFailed},
		"no flavor": {svc.CreateInferenceServiceRequest{Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}}, []testkit.Reply{testkit.OpCreate.OK}, &svc.DeployOptions{
			PickFlavor: func(context.Context, []svc.RefusedFlavor) (string, error) { return "", io.EOF }}, svc.CallFailed},
		"refused":  {testkit.Demo, []testkit.Reply{testkit.OpCreate.OK, testkit.Status(400)}, nil, svc.CallFailed},
		"in doubt": {testkit.Demo, []testkit.Reply{testkit.OpCreate.OK, testkit.Lost}, nil, svc.CallUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun []string
				ended := map[string]svc.CallOutcome{}
				s := &testkit.ByMethod{Post: tt.post, Get: []testkit.Reply{{Body: testkit.EndpointJSON("available", 1)}}}
				services := s.Services(t, svc.WithLedger(ledger.Memory()), svc.WithCallContext(func(ctx context.Context, c svc.Call) context.Context {
					begun = append(begun, fmt.Sprint(len(begun), " ", c.Method))
					return context.WithValue(ctx, key{}, begun[len(begun)-1])
				}), svc.WithCallHook(func(ctx context.Context, c svc.Call) {
					id, _ := ctx.Value(key{}).(string)
					require.NotContains(t, ended, id)
					ended[id] = c.Outcome
				}))
				_, err := services.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{Key: "k"})
				require.NoError(t, err)
				before := len(begun)
				_, err = services.Deploy(t.Context(), tt.second, tt.opts)
				require.Equal(t, tt.want == svc.CallDone, err == nil, "%v", err)
				require.ElementsMatch(t, begun, slices.Collect(maps.Keys(ended)))
				require.Equal(t, tt.want, ended[fmt.Sprint(before, " POST")])
			})
		})
	}
}

// TestCallContextIsTheContextOfTheCall_D31 checks that hooks and transports of a call see the context of
// WithCallContext, and that the functions of several options are all called.
func TestCallContextIsTheContextOfTheCall_D31(t *testing.T) {
	type key struct{}
	srv := svctest.NewInMemory(svctest.WithDeployTime(0))
	defer srv.Close()
	var begun, seen []string
	note := func(ctx context.Context, what string) {
		seen = append(seen, what+" "+strings.Join(ctx.Value(key{}).([]string), "+"))
	}
	begin := func(name string) svc.Option {
		return svc.WithCallContext(func(ctx context.Context, c svc.Call) context.Context {
			if name == "a" {
				begun = append(begun, strings.TrimSpace(c.Method+" "+c.Route+" "+c.ID))
				require.Zero(t, c.Attempts)
			}
			names, _ := ctx.Value(key{}).([]string)
			return context.WithValue(ctx, key{}, append(names, name))
		})
	}
	wrap := func(name string) svc.Option {
		return svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper {
			return testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				note(r.Context(), "transport "+name)
				return next.RoundTrip(r)
			})
		})
	}
	attempt := svc.WithAttemptHook(func(ctx context.Context, _ svc.Attempt) { note(ctx, "attempt") })
	call := svc.WithCallHook(func(ctx context.Context, _ svc.Call) { note(ctx, "call") })
	client := srv.Client(begin("a"), begin("b"), svc.WithCallContext(nil), wrap("inner"), wrap("outer"), svc.WithTransportWrapper(nil),
		attempt, attempt, svc.WithAttemptHook(nil), call, call, svc.WithCallHook(nil))
	id := srv.AddFile("f", "fine-tune", []byte("x"))
	_, err := client.Files.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"transport outer a+b", "transport inner a+b", "attempt a+b", "attempt a+b", "call a+b", "call a+b"}, seen)

	_, err = client.Files.Download(t.Context(), id, io.Discard, nil)
	require.NoError(t, err)
	_, err = client.Files.Upload(t.Context(), svc.UploadRequest{FileName: "g", Purpose: "fine-tune", Body: strings.NewReader("y")})
	require.NoError(t, err)
	service, err := client.InferenceServices.Create(t.Context(), testkit.Demo)
	require.NoError(t, err)
	_, err = client.InferenceServices.Scale(t.Context(), service.ServiceID, 1)
	require.NoError(t, err)
	_, err = client.InferenceServices.Get(t.Context(), service.ServiceID)
	require.NoError(t, err)
	require.NoError(t, client.InferenceServices.Delete(t.Context(), service.ServiceID))
	require.NoError(t, client.Do(t.Context(), "GET", "/v1/files", nil, nil))
	_, err = client.Files.Get(t.Context(), " ")
	require.Error(t, err)
	require.Equal(t, []string{
		"GET /v1/files/{file_id} file-1", "GET {presigned_url} file-1", "GET /v1/files/{file_id}/presigned_url file-1",
		"POST /v1/files", "PUT {presigned_url} file-2", "POST /v1/inference-service", "PUT /v1/inference-service/{service_id} svc-1",
		"GET /v1/inference-service/{service_id} svc-1",
		"DELETE /v1/inference-service/{service_id} svc-1", "GET /v1/files", "GET /v1/files/{file_id}",
	}, begun)
	require.Len(t, seen, 6*10+2, "every call has the context, also one that is not sent")
}
