package svc_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/h2non/gock.v1"

	"example.com/svc"
)

// A create that the service may have carried out is never sent again.
func TestB02_CreateNeverSentTwice(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		posts   int32
		unknown bool
		status  int
		timeout time.Duration
	}{
		"a, no answer":          {[]http.HandlerFunc{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}, 1, true, 0, 0},
		"b, gateway error":      {[]http.HandlerFunc{htmlAnswer(502, "<html><title>Bad Gateway</title></html>")}, 1, true, 502, 0},
		"c, too late an answer": {[]http.HandlerFunc{hang}, 1, true, 0, 100 * time.Millisecond},
		"d, too many requests":  {[]http.HandlerFunc{jsonAnswer(429, "{}"), jsonAnswer(201, serviceJSON)}, 2, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var posts atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				n := int(posts.Add(1))
				tt.answers[min(n, len(tt.answers))-1](w, r)
			}))
			defer srv.Close()
			client := clientAt(t, srv.URL, svc.WithTimeout(tt.timeout), tries(5, time.Millisecond))
			_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "my-endpoint"})
			require.Equal(t, tt.posts, posts.Load())
			if !tt.unknown {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			e := errorAs[*svc.OutcomeUnknownError](t, err)
			require.Equal(t, "my-endpoint", e.Name)
			require.Equal(t, tt.status, e.StatusCode)
			require.Equal(t, "POST /v1/inference-service", e.Method+" "+e.Route)
		})
	}
	t.Run("e, nothing listens", func(t *testing.T) {
		err := opCreate.do(t.Context(), clientAt(t, "http://"+closedPort(t), tries(3, time.Millisecond)))
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
	})
}

func htmlAnswer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func jsonAnswer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// What an OutcomeUnknownError knows.
func TestOutcomeUnknown(t *testing.T) {
	html := map[string]string{"Content-Type": "text/html"}
	for name, tt := range map[string]struct {
		reply  reply
		id     string
		status int
		body   string
		wraps  string // the type of the cause
	}{
		"lost":                   {lost, "", 0, "", "transport"},
		"no answer":              {reply{after: ages}, "", 0, "", "transport"},
		"cut after the id":       {reply{status: 201, body: `{"service_id":"svc-42","name":"de`, err: io.ErrUnexpectedEOF}, "svc-42", 201, `{"service_id":"svc-42","name":"de`, "transport"},
		"cut before the id":      {reply{status: 201, body: `{"name":"demo","serv`, err: io.ErrUnexpectedEOF}, "", 201, `{"name":"demo","serv`, "transport"},
		"cut within the id":      {reply{status: 201, body: `{"service_id":"svc-4`, err: io.ErrUnexpectedEOF}, "", 201, `{"service_id":"svc-4`, "transport"},
		"silence after the id":   {reply{status: 201, body: `{"service_id" : "svc-42",`, stall: true}, "svc-42", 201, `{"service_id" : "svc-42",`, "transport"},
		"JSON that ends early":   {reply{status: 200, body: `{"service_id":"svc-42","name":`}, "svc-42", 200, `{"service_id":"svc-42","name":`, "decode"},
		"record and more":        {reply{status: 201, body: `{"service_id":"svc-42"}<p>`}, "svc-42", 201, `{"service_id":"svc-42"}<p>`, "decode"},
		"empty":                  {reply{status: 201}, "", 201, "", "decode"},
		"no content":             {reply{status: 204}, "", 204, "", "decode"},
		"accepted without a doc": {reply{status: 202, body: "{}"}, "", 202, "{}", "decode"},
		"login page":             {reply{status: 200, body: "<html>log in</html>", header: html}, "", 200, "<html>log in</html>", "decode"},
		"null":                   {reply{status: 201, body: "null"}, "", 201, "null", "decode"},
		"array":                  {reply{status: 201, body: "[]"}, "", 201, "[]", "decode"},
		"no service_id":          {reply{status: 201, body: `{"name":"demo"}`}, "", 201, `{"name":"demo"}`, "decode"},
		"empty service_id":       {reply{status: 201, body: `{"service_id":""}`}, "", 201, `{"service_id":""}`, "decode"},
		"bad value":              {reply{status: 201, body: `{"service_id":"svc-42","is_deleted":"maybe"}`}, "svc-42", 201, `{"service_id":"svc-42","is_deleted":"maybe"}`, "decode"},
		"server error":           {reply{status: 500, body: `{"message":"boom"}`}, "", 500, `{"message":"boom"}`, "api"},
		"server error with id":   {reply{status: 504, body: `{"service_id":"svc-42","message":"slow"}`}, "svc-42", 504, `{"service_id":"svc-42","message":"slow"}`, "api"},
		"the error's own id":     {reply{status: 502, body: `{"id":"err-1","error":{"id":"e"}}`}, "", 502, `{"id":"err-1","error":{"id":"e"}}`, "api"},
		"look elsewhere":         {reply{status: 303, header: map[string]string{"Location": "/v1/inference-service/svc-42"}}, "", 303, "", "api"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, tt.reply)
				record, err := s.client().InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "demo"})
				require.Nil(t, record)
				e := errorAs[*svc.OutcomeUnknownError](t, err)
				require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, "demo", e.Name)
				require.Equal(t, tt.id, e.ID)
				require.Equal(t, tt.status, e.StatusCode)
				require.Equal(t, tt.body, string(e.Body))
				require.Equal(t, "POST /v1/inference-service", e.Method+" "+e.Route)
				require.ErrorContains(t, err, `"demo"`)
				switch tt.wraps {
				case "transport":
					errorAs[*svc.TransportError](t, e.Err)
				case "decode":
					d := errorAs[*svc.DecodeError](t, e.Err)
					require.Equal(t, tt.status, d.StatusCode)
				case "api":
					a := errorAs[*svc.Error](t, e.Err)
					require.Equal(t, tt.status, a.StatusCode)
				}
				require.Equal(t, 1, strings.Count(err.Error(), "POST "), "one line names the call once: %v", err)
			})
		})
	}
}

// An answer has begun: then the request was received, even by a transport that
// does not read the request's body.
func TestOutcomeUnknown_AnswerBeforeTheRequestWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, reply{status: 201, body: `{"service_id":"svc-42"`, err: io.ErrUnexpectedEOF, unsent: true})
		err := opCreate.do(t.Context(), s.client())
		require.Equal(t, "svc-42", errorAs[*svc.OutcomeUnknownError](t, err).ID)
	})
}

// A refusal is a refusal, however many attempts it took to get it.
func TestCreateRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, before := range [][]reply{nil, {refused}, {status(429)}, {refused, status(429), refused}} {
			for _, code := range []int{400, 401, 403, 404, 409, 422, 501, 505, 307, 308} {
				s := play(t, append(before[:len(before):len(before)], status(code))...)
				err := opCreate.do(t.Context(), s.client())
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, code, errorAs[*svc.Error](t, err).StatusCode)
				require.Equal(t, len(before)+1, errorAs[*svc.Error](t, err).Attempts)
			}
		}
	})
}

// A call of Do goes by its method.
func TestDoRepeatsWhatCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "get"} {
			s := play(t, lost, reply{status: 204})
			require.NoError(t, s.client().Do(t.Context(), method, "/v2/thing", nil, nil))
		}
		for _, method := range []string{"POST", "PATCH", "post", "PURGE"} {
			s := play(t, refused, lost)
			err := s.client().Do(t.Context(), method, "/v2/thing", map[string]int{"a": 1}, nil)
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Equal(t, strings.ToUpper(method), errorAs[*svc.OutcomeUnknownError](t, err).Method)
		}
	})
}

// The end of ctx while a create is out leaves its outcome open, on a real
// connection too.
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
	err := opCreate.do(ctx, clientAt(t, srv.URL))
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errStop)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// A mock that says "lost" without having read the request is no proof that
// nothing was sent.
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
