package faults_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// canOne returns a transport that gives every request the same response. If cut is set,
// the body ends before its Content-Length.
func canOne(status int, body string, cut bool) testkit.RoundTripFunc {
	return func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		length := int64(len(body))
		if cut {
			length += 100
		}
		return &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
			ContentLength: length, Body: io.NopCloser(strings.NewReader(body)), Request: req,
		}, nil
	}
}

// The ID of a new record is taken only from the record's own ID field. Other IDs in the
// body belong to other records, which must not be deleted.
func TestOutcomeUnknown_IDIsTheRecordsOwn(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for name, tt := range map[string]struct {
		body string
		cut  bool
		want string
	}{
		"cut behind it":        {`{"service_id":"svc-7","na`, true, "svc-7"},
		"cut in it":            {`{"service_id":"svc-7`, true, ""},
		"nested before":        {`{"resource_metadata":{"service_id":"WRONG"},"service_id":"svc-7","na`, true, "svc-7"},
		"nested only":          {`{"error":{"conflict_with":{"service_id":"OLD"}}}`, false, ""},
		"list":                 {`[{"service_id":"OLD"},{"service_id":"svc-7"}]`, false, ""},
		"page":                 {`<script>var s={"service_id":"OLD"}</script>`, false, ""},
		"in a string":          {`{"name":"\"service_id\":\"OLD\"","x`, true, ""},
		"escaped":              {`{"service\u005fid":"svc\u002d7","na`, true, "svc-7"},
		"other case":           {`{"Service_ID":"svc-7","na`, true, "svc-7"},
		"number":               {`{"service_id":77,"name":"demo"}`, false, "77"},
		"number, cut behind":   {`{"service_id":77,"na`, true, "77"},
		"number, then a space": {`{"service_id":77 `, true, "77"},
		"number, last field":   {`{"name":"demo","service_id":77}`, true, "77"},
		"cut in a number":      {`{"service_id": 1234`, true, ""}, // the ID was 123456
		"no number in full":    {`{"service_id":1234-5678,"name":"demo"}`, false, ""},
		"odd number":           {`{"service_id":-7.5,"name":"demo"}`, false, ""},
		"negative number":      {`{"service_id":-7,"name":"demo"}`, false, ""},
		"broken number":        {`{"service_id":1.5,"name":"demo"}`, false, ""},
		"power of ten":         {`{"service_id":1e3,"name":"demo"}`, false, ""},
		"endless number":       {`{"service_id":1` + strings.Repeat("0", 2000) + `,"name":"demo"}`, false, ""},
		"no text":              {"{\"service_id\":\"svc-\xff7\",\"name\":\"demo\"}", false, ""},
		"no text any more":     {`{"service_id":"svc-\ufffd7","name":"demo"}`, false, ""},
		"half a character":     {`{"service_id":"svc-\ud8007","name":"demo"}`, false, ""},
		"object":               {`{"service_id":{"service_id":"OLD"}}`, false, ""},
		"wrong type elsewhere": {`{"description":"` + long + `","service_id":"svc-7","status":5}`, false, "svc-7"},
		"cut far behind":       {`{"description":"` + long + `","service_id":"svc-7","na`, true, "svc-7"},
		"no id at all":         {`{"service_id":"a\r\nb","name":"demo"}`, false, ""},
		"dots":                 {`{"service_id":"..","name":"demo"}`, false, ""},
		"another's field":      {`{"id":"err-1","job_id":"job-1","mess`, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := testkit.ClientOn(t, canOne(201, tt.body, tt.cut))
			_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			unknown := testkit.ErrorAs[*svc.OutcomeUnknownError](t, err)
			require.Equal(t, tt.want, unknown.ID)
			require.LessOrEqual(t, len(unknown.Body), 64<<10)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

// A part of an ID may be the ID of another endpoint, which must not be deleted.
func TestDeploy_TouchesNothingOnAPartOfAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &testkit.ByMethod{
			Post:   []testkit.Reply{{Body: `{"service_id": 1234` + `56,  "name":"demo"}`, Cut: true}}, // the body is cut off in the ID
			Get:    []testkit.Reply{testkit.EndpointIs("unavailable")},
			Delete: []testkit.Reply{{}},
		}
		_, err := script.Services(t).Deploy(testkit.Within(t, 60e9), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Empty(t, testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
		require.Equal(t, `{"service_id": 1234`, string(testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).Body), "the error has the part of the body that was received")
		require.Empty(t, script.Requests("GET"))
		require.Empty(t, script.Requests("DELETE"))
	})
}

// After a failed upload only the record of this upload is deleted. If its ID is not
// certain, nothing is deleted.
func TestUpload_DeletesNothingOnAGuess(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
	}{
		"conflict":     {200, `{"message":"duplicate","existing":{"id":"file-OLD"}}`},
		"list":         {200, `{"data":[{"id":"file-OLD"}]}`},
		"gateway":      {502, `{"id":"file-OLD"}`},
		"server error": {500, `{"id":"err-123","message":"internal"}`},
		"redirect":     {301, `{"id":"file-OLD"}`},
		"page":         {200, `<script>var user={"id":"file-OLD"}</script>`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				srv.Fault("POST", svctest.RouteFiles, svctest.Fault{Status: tt.status, Body: tt.body, Times: -1})
				_, err := srv.Client().Files.Upload(t.Context(), svc.UploadRequest{
					FileName: "a", Body: strings.NewReader("x"), UploadOptions: svc.UploadOptions{DeleteOnFailure: true},
				})
				require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, svc.CleanupNone, testkit.ErrorAs[*svc.UploadError](t, err).Cleanup)
				require.Empty(t, testkit.ErrorAs[*svc.UploadError](t, err).FileID)
				require.Zero(t, srv.RequestCount("DELETE", svctest.RouteAny))
			})
		})
	}
}

// net/http by itself repeats a POST that has one of these headers.
func TestWithHeader_RefusesWhatRepeatsACreate(t *testing.T) {
	srv := svctest.NewServer()
	defer srv.Close()
	for _, key := range []string{"Idempotency-Key", "x-idempotency-key"} {
		_, err := srv.Client().InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"}, svc.WithHeader(key, "k"))
		testkit.ErrorAs[*svc.ValidationError](t, err)
	}
	require.Empty(t, srv.Requests())
}

func TestWaitUntilDeleted_Grace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(10e9))
		client := srv.Client()
		s, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
		require.NoError(t, err)
		err = client.InferenceServices.WaitUntilDeleted(testkit.Within(t, 60e9), s.ServiceID, &svc.WaitOptions{NotFoundGrace: 30e9})
		require.ErrorIs(t, err, context.DeadlineExceeded, "the endpoint still runs")
	})
}

// A status may be any text of the service. Error texts show it shortened, without control
// characters and without secrets.
func TestWaitError_OddStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Name: "demo", Instances: 1})
		srv.SetStatus(id, strings.Repeat("odd\n", 10000)+srv.Token())
		_, err := srv.Client().InferenceServices.WaitUntilAvailable(testkit.Within(t, 10e9), id, nil)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 1000)
		require.NotContains(t, err.Error(), "\n")
		srv.SetStatus(id, srv.Token())
		_, err = srv.Client().InferenceServices.WaitUntilAvailable(testkit.Within(t, 10e9), id, nil)
		require.NotContains(t, err.Error(), srv.Token())
	})
}
