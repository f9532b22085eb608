package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/h2non/gock.v1"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
)

// A create that may have taken effect at the service is never sent again.
func TestCreateNeverSentTwice_B02(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		posts   int32
		unknown bool
		status  int
		timeout time.Duration
	}{
		"a, no answer":          {[]http.HandlerFunc{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}, 1, true, 0, 0},
		"b, gateway error":      {[]http.HandlerFunc{htmlResponse(502, "<html><title>Bad Gateway</title></html>")}, 1, true, 502, 0},
		"c, too late an answer": {[]http.HandlerFunc{hang}, 1, true, 0, time.Second},
		"d, too many requests":  {[]http.HandlerFunc{testkit.JSONHandler(429, "{}"), testkit.JSONHandler(201, testkit.ServiceJSON)}, 2, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var posts atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				n := int(posts.Add(1))
				tt.answers[min(n, len(tt.answers))-1](w, r)
			}))
			defer srv.Close()
			client := testkit.ClientAt(t, srv.URL, svc.WithTimeout(tt.timeout), testkit.Tries(5, time.Millisecond))
			_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "my-endpoint"})
			require.Equal(t, tt.posts, posts.Load())
			if !tt.unknown {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			e := testkit.ErrorAs[*svc.OutcomeUnknownError](t, err)
			require.Equal(t, "my-endpoint", e.Name)
			require.Equal(t, tt.status, e.StatusCode)
			require.Equal(t, "POST /v1/inference-service", e.Method+" "+e.Route)
		})
	}
	t.Run("e, nothing listens", func(t *testing.T) {
		err := testkit.OpCreate.Do(t.Context(), testkit.ClientAt(t, "http://"+testkit.ClosedPort, testkit.Tries(3, time.Millisecond)))
		require.ErrorIs(t, err, errno.ConnRefused)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
	})
}

func htmlResponse(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// The fields of an OutcomeUnknownError.
func TestOutcomeUnknown(t *testing.T) {
	html := map[string]string{"Content-Type": "text/html"}
	for name, tt := range map[string]struct {
		reply  testkit.Reply
		id     string
		status int
		body   string
		wraps  string // type of the wrapped error
	}{
		"lost":                   {testkit.Lost, "", 0, "", "transport"},
		"no answer":              {testkit.Reply{After: testkit.Ages}, "", 0, "", "transport"},
		"cut after the id":       {testkit.Reply{Status: 201, Body: `{"service_id":"svc-42","name":"de`, Err: io.ErrUnexpectedEOF}, "svc-42", 201, `{"service_id":"svc-42","name":"de`, "transport"},
		"cut before the id":      {testkit.Reply{Status: 201, Body: `{"name":"demo","serv`, Err: io.ErrUnexpectedEOF}, "", 201, `{"name":"demo","serv`, "transport"},
		"cut within the id":      {testkit.Reply{Status: 201, Body: `{"service_id":"svc-4`, Err: io.ErrUnexpectedEOF}, "", 201, `{"service_id":"svc-4`, "transport"},
		"silence after the id":   {testkit.Reply{Status: 201, Body: `{"service_id" : "svc-42",`, Stall: true}, "svc-42", 201, `{"service_id" : "svc-42",`, "transport"},
		"JSON that ends early":   {testkit.Reply{Status: 200, Body: `{"service_id":"svc-42","name":`}, "svc-42", 200, `{"service_id":"svc-42","name":`, "decode"},
		"record and more":        {testkit.Reply{Status: 201, Body: `{"service_id":"svc-42"}<p>`}, "svc-42", 201, `{"service_id":"svc-42"}<p>`, "decode"},
		"empty":                  {testkit.Reply{Status: 201}, "", 201, "", "decode"},
		"no content":             {testkit.Reply{Status: 204}, "", 204, "", "decode"},
		"accepted without a doc": {testkit.Reply{Status: 202, Body: "{}"}, "", 202, "{}", "decode"},
		"login page":             {testkit.Reply{Status: 200, Body: "<html>log in</html>", Header: html}, "", 200, "<html>log in</html>", "decode"},
		"null":                   {testkit.Reply{Status: 201, Body: "null"}, "", 201, "null", "decode"},
		"array":                  {testkit.Reply{Status: 201, Body: "[]"}, "", 201, "[]", "decode"},
		"no service_id":          {testkit.Reply{Status: 201, Body: `{"name":"demo"}`}, "", 201, `{"name":"demo"}`, "decode"},
		"empty service_id":       {testkit.Reply{Status: 201, Body: `{"service_id":""}`}, "", 201, `{"service_id":""}`, "decode"},
		"bad value":              {testkit.Reply{Status: 201, Body: `{"service_id":"svc-42","is_deleted":"maybe"}`}, "svc-42", 201, `{"service_id":"svc-42","is_deleted":"maybe"}`, "decode"},
		"server error":           {testkit.Reply{Status: 500, Body: `{"message":"boom"}`}, "", 500, `{"message":"boom"}`, "api"},
		"server error with id":   {testkit.Reply{Status: 504, Body: `{"service_id":"svc-42","message":"slow"}`}, "svc-42", 504, `{"service_id":"svc-42","message":"slow"}`, "api"},
		"the error's own id":     {testkit.Reply{Status: 502, Body: `{"id":"err-1","error":{"id":"e"}}`}, "", 502, `{"id":"err-1","error":{"id":"e"}}`, "api"},
		"look elsewhere":         {testkit.Reply{Status: 303, Header: map[string]string{"Location": "/v1/inference-service/svc-42"}}, "", 303, "", "api"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testkit.Play(t, tt.reply)
				record, err := s.Client().InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
				require.Nil(t, record)
				e := testkit.ErrorAs[*svc.OutcomeUnknownError](t, err)
				require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, "demo", e.Name)
				require.Equal(t, tt.id, e.ID)
				require.Equal(t, tt.status, e.StatusCode)
				require.Equal(t, tt.body, string(e.Body))
				require.Equal(t, "POST /v1/inference-service", e.Method+" "+e.Route)
				require.ErrorContains(t, err, `"demo"`)
				switch tt.wraps {
				case "transport":
					testkit.ErrorAs[*svc.TransportError](t, e.Err)
				case "decode":
					d := testkit.ErrorAs[*svc.DecodeError](t, e.Err)
					require.Equal(t, tt.status, d.StatusCode)
				case "api":
					a := testkit.ErrorAs[*svc.Error](t, e.Err)
					require.Equal(t, tt.status, a.StatusCode)
				}
				require.Equal(t, 1, strings.Count(err.Error(), "POST "), "one line names the call once: %v", err)
			})
		})
	}
}

// If a response has begun, the service received the request. This holds even with a
// transport that does not read the request body.
func TestOutcomeUnknown_ResponseBeforeTheRequestWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testkit.Play(t, testkit.Reply{Status: 201, Body: `{"service_id":"svc-42"`, Err: io.ErrUnexpectedEOF, Unsent: true})
		err := testkit.OpCreate.Do(t.Context(), s.Client())
		require.Equal(t, "svc-42", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
	})
}

// A refused create has a known outcome, however many attempts came before.
func TestCreateRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, before := range [][]testkit.Reply{nil, {testkit.Refused}, {testkit.Status(429)}, {testkit.Refused, testkit.Status(429), testkit.Refused}} {
			for _, code := range []int{400, 401, 403, 404, 409, 422, 501, 505, 307, 308} {
				s := testkit.Play(t, append(before[:len(before):len(before)], testkit.Status(code))...)
				err := testkit.OpCreate.Do(t.Context(), s.Client())
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, code, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
				require.Equal(t, len(before)+1, testkit.ErrorAs[*svc.Error](t, err).Attempts)
			}
		}
	})
}

// A page may stand in place of the response to a create that took effect, whatever its status. So may
// what gateways send when a connection broke, and a status that HTTP does not have.
func TestCreateIsInDoubtWhateverTheStatusOfAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, json := "<html><p>Please sign in.</p></html>", `{"message":"no"}`
		for code, body := range map[int]string{400: page, 404: page, 422: page, 501: page, 505: page, 408: json, 499: json, 601: json, 999: json, 777: page} {
			s := testkit.Play(t, testkit.Reply{Status: code, Body: body})
			err := testkit.OpCreate.Do(t.Context(), s.Client())
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown, "%d", code)
			require.Len(t, s.Seen(), 1)
		}
		s := testkit.Play(t, testkit.Reply{Status: 407, Body: page})
		require.NotErrorIs(t, testkit.OpCreate.Do(t.Context(), s.Client()), svc.ErrOutcomeUnknown)
	})
}

// Do repeats a call depending on its method.
func TestDoRepeatsWhatCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "get"} {
			s := testkit.Play(t, testkit.Lost, testkit.Reply{Status: 204})
			require.NoError(t, s.Client().Do(t.Context(), method, "/v2/thing", nil, nil))
		}
		for _, method := range []string{"POST", "PATCH", "post", "PURGE"} {
			s := testkit.Play(t, testkit.Refused, testkit.Lost)
			err := s.Client().Do(t.Context(), method, "/v2/thing", map[string]int{"a": 1}, nil)
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Equal(t, strings.ToUpper(method), testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).Method)
		}
	})
}

// If ctx ends while a create is in flight, the outcome is unknown. This test uses a real
// connection.
func TestOutcomeUnknown_ContextEndsInFlight(t *testing.T) {
	arrived := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(errStop) }()
	err := testkit.OpCreate.Do(ctx, testkit.ClientAt(t, srv.URL))
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errStop)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// A mock may return an error that looks like a lost connection, without reading the
// request. This does not prove that nothing was sent.
func TestOutcomeUnknown_MockThatReadsNothing(t *testing.T) {
	defer gock.Off()
	hc := &http.Client{Transport: &http.Transport{}}
	client, err := svc.NewClient("https://api.test", svc.WithToken("token"), svc.WithHTTPClient(hc))
	require.NoError(t, err)
	gock.InterceptClient(hc)
	gock.New("https://api.test").Post("^/v1/inference-service$").ReplyError(io.ErrUnexpectedEOF)
	gock.New("https://api.test").Post("^/v1/inference-service$").Reply(200).JSON(`{"service_id":"svc-2"}`)

	_, err = client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.True(t, gock.IsPending(), "there was no second create")
}

// Code that tries again after one of these errors must not create twice.
func TestUnknownOutcomeMatchesNoOtherSentinel(t *testing.T) {
	sentinels := []error{
		svc.ErrUnauthorized, svc.ErrForbidden, svc.ErrNotFound, svc.ErrConflict, svc.ErrRateLimited, svc.ErrServer, svc.ErrRetired, svc.ErrNoToken,
		svc.ErrNoInferenceURL, svc.ErrTimeout, svc.ErrUnavailable, svc.ErrStopped, svc.ErrTruncated, svc.ErrLinkExpired, svc.ErrChanged,
		svc.ErrJobFailed, svc.ErrPagesRepeat, svc.ErrNoLedger, svc.ErrKeyInUse, svc.ErrLedgerMark,
	}
	inner := append(slices.Clone(sentinels), &svc.Error{StatusCode: 503}, &svc.TransportError{Err: context.Canceled}, context.DeadlineExceeded, io.ErrUnexpectedEOF)
	outer := fmt.Errorf("around: %w", &svc.DeployError{Err: &svc.OutcomeUnknownError{Err: errors.Join(inner...)}})
	require.ErrorIs(t, outer, svc.ErrOutcomeUnknown)
	require.ErrorIs(t, outer, context.Canceled)
	require.ErrorIs(t, outer, context.DeadlineExceeded)
	require.ErrorIs(t, outer, io.ErrUnexpectedEOF)
	for _, s := range sentinels {
		require.NotErrorIs(t, outer, s)
	}
	require.Equal(t, 503, testkit.ErrorAs[*svc.Error](t, outer).StatusCode)
	require.ErrorAs(t, outer, new(*svc.TransportError))
	require.NotErrorIs(t, &svc.OutcomeUnknownError{}, io.EOF)
}
