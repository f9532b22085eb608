package svc_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

const lineSecret = "SIGSECRETVALUE99"

var errOwn = errors.New("mine")

// careless returns an error like those of callers' code. Its text contains the client's
// token, a presigned URL and every character that ends a line.
func careless(token string) error {
	link := &url.Error{Op: "Get", URL: "https://storage.test/x?X-Amz-Signature=" + lineSecret, Err: errOwn}
	return fmt.Errorf("line 1\r\nline 2\u2028\x1b[31m\u202e %s: %w", token, link)
}

func requireOneLine(t *testing.T, text string) {
	t.Helper()
	require.NotEmpty(t, text)
	require.NotContains(t, text, "\ufffd")
	require.False(t, strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0x85 || r == '\u2028' || r == '\u2029' || r == '\u202e'
	}), "%q", text)
}

// requireSafe checks that the text of err, and of each error that its fields hold, is
// safe to log.
func requireSafe(t *testing.T, token string, err error) {
	t.Helper()
	requireOneLine(t, err.Error())
	texts := []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err)}
	var waited *svc.WaitError
	if errors.As(err, &waited) {
		texts = append(texts, fmt.Sprintf("%+v %v", waited.Err, waited.LastErr))
	}
	var deployed *svc.DeployError
	if errors.As(err, &deployed) {
		texts = append(texts, fmt.Sprintf("%+v", deployed.Err))
	}
	for _, text := range texts {
		require.NotContains(t, text, token)
		require.NotContains(t, text, lineSecret)
	}
}

// An error of the caller may be returned by a callback, or be the cause of a cancelled
// ctx. Its text is redacted like any other, and errors.Is still finds it.
func TestErrorsOfTheCallerAreSafeToLog(t *testing.T) {
	ended := func(t *testing.T, cause error, after time.Duration) context.Context {
		if after > 0 {
			return testkit.CancelAfter(t, after, cause)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	deploy := func(ctx context.Context, t *testing.T, c *svc.InferenceServiceClient, opts svc.DeployOptions) error {
		t.Helper()
		_, err := c.Deploy(ctx, testkit.Demo, &opts)
		require.Equal(t, "svc-1", testkit.ErrorAs[*svc.DeployError](t, err).ServiceID)
		return err
	}
	type client = *svc.InferenceServiceClient
	for name, fail := range map[string]func(t *testing.T, c client, id string, bad error) error{
		"OnCreate": func(t *testing.T, c client, _ string, bad error) error {
			return deploy(t.Context(), t, c, svc.DeployOptions{OnCreate: func(*svc.InferenceService) error { return bad }})
		},
		"Deploy, cause": func(t *testing.T, c client, _ string, bad error) error {
			return deploy(ended(t, bad, 10*time.Second), t, c, svc.DeployOptions{})
		},
		"of a wait: until": func(t *testing.T, c client, id string, bad error) error {
			_, err := c.Wait(t.Context(), id, func(*svc.InferenceService) (bool, error) { return false, bad }, nil)
			return err
		},
		"of a wait: probe": func(t *testing.T, c client, id string, bad error) error {
			ctx := testkit.Within(t, 3*time.Hour)
			_, err := c.WaitUntilAvailable(ctx, id, &svc.WaitOptions{Probe: func(context.Context, string) error { return bad }})
			return err
		},
		"of a wait: cause before": func(t *testing.T, c client, id string, bad error) error {
			_, err := c.WaitUntilAvailable(ended(t, bad, 0), id, nil)
			return err
		},
		"of a wait: cause between looks": func(t *testing.T, c client, id string, bad error) error {
			return c.WaitUntilDeleted(ended(t, bad, 10*time.Second), id, nil)
		},
		"of a wait: cause in WaitUntilAllAvailable": func(t *testing.T, c client, id string, bad error) (err error) {
			for _, err = range c.WaitUntilAllAvailable(ended(t, bad, 10*time.Second), []string{id}, nil) {
				require.Error(t, err)
			}
			return err
		},
		"of a wait: cause in ScaleAndWait": func(t *testing.T, c client, id string, bad error) error {
			_, err := c.ScaleAndWait(ended(t, bad, 10*time.Second), id, 2, nil)
			return err
		},
		"of a call": func(t *testing.T, c client, id string, bad error) error {
			_, err := c.Get(ended(t, bad, 0), "svc-1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				id := ""
				if strings.HasPrefix(name, "of a wait: ") {
					id = srv.AddEndpoint(svctest.Endpoint{Instances: 1})
					srv.ScriptStatus(id, "initializing")
				}
				if name == "of a wait: probe" {
					srv.ScriptStatus(id, "available")
				}
				err := fail(t, srv.Client().InferenceServices, id, careless(srv.Token()))
				if waited, ok := errors.AsType[*svc.WaitError](err); ok && waited.LastErr != nil { // of a probe
					require.ErrorIs(t, waited.LastErr, errOwn)
				} else {
					require.ErrorIs(t, err, errOwn)
				}
				require.ErrorContains(t, err, "line 1 line 2")
				requireSafe(t, srv.Token(), err)
			})
		})
	}
}

// The same holds for the cause that ends a wait for a job.
func TestErrorsOfTheCallerAreSafeToLog_Jobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithJobTime(time.Hour))
		_, err := srv.Client().VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "x"}})
		require.NoError(t, err)
		_, err = srv.Client().VideoJobs.Wait(testkit.CancelAfter(t, 10*time.Second, careless(srv.Token())), "job-1", nil)
		require.ErrorIs(t, err, errOwn)
		requireSafe(t, srv.Token(), err)
	})
}

// An error of the caller that contains no secret is kept as the same value.
func TestErrorsOfTheCallerAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		own := &ownError{"disk full"}
		_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{OnCreate: func(*svc.InferenceService) error { return own }})
		require.Same(t, own, testkit.ErrorAs[*svc.DeployError](t, err).Err)
		_, err = srv.Client().InferenceServices.Wait(t.Context(), "svc-1", func(*svc.InferenceService) (bool, error) { return false, own }, nil)
		require.Same(t, own, testkit.ErrorAs[*svc.WaitError](t, err).Err)
	})
}

type ownError struct{ text string }

func (e *ownError) Error() string { return e.text }

// The caller's request values, names and IDs also get into the texts of errors. They are
// redacted there.
func TestTextsOfRequestsAreSafeToLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		client := srv.Client()
		ctx := testkit.Within(t, time.Minute)
		bad := careless(srv.Token())
		requireSafe(t, srv.Token(), client.Do(ctx, "POST", "/v2/x", unwritable{bad}, nil))
		_, err := client.InferenceServices.Create(ctx, testkit.Demo, svc.WithBodyField("x", unwritable{bad}))
		requireSafe(t, srv.Token(), err)
		_, err = client.InferenceServices.Create(ctx, testkit.Demo, svc.WithBodyField("a\n.b", 1), svc.WithBodyField("name", "a"), svc.WithBodyField("name.x\r\n", 1))
		requireSafe(t, srv.Token(), err)
		requireSafe(t, srv.Token(), client.Do(ctx, "GET", "/v2/"+srv.Token(), nil, nil))
		require.Equal(t, "/v2/"+srv.Token(), srv.Requests()[len(srv.Requests())-1].Path, "the request is sent unredacted")
		for _, id := range []string{"a\nb", srv.Token()} {
			_, err = client.InferenceServices.WaitUntilAvailable(ctx, id, nil)
			require.Equal(t, strings.ReplaceAll(id, srv.Token(), "REDACTED"), testkit.ErrorAs[*svc.WaitError](t, err).ID)
			requireSafe(t, srv.Token(), err)
		}
	})
}

type unwritable struct{ err error }

func (u unwritable) MarshalJSON() ([]byte, error) { return nil, u.err }

// The text of an error is one line, whatever its fields contain.
func TestTextsOfErrorsAreOneLine(t *testing.T) {
	const odd = "a\nb\r\n\x1b[2Jc\u2028d\u0085e\x00"
	plain := errors.New(odd)
	about := svc.RequestInfo{Method: odd, Route: odd, ID: odd, RequestID: odd}
	answer := &svc.Error{RequestInfo: about, StatusCode: 500, Code: odd, Message: odd}
	for _, err := range []error{
		answer,
		&svc.TransportError{RequestInfo: about, Err: plain, Last: answer},
		&svc.OutcomeUnknownError{RequestInfo: about, Name: odd, Err: plain},
		&svc.OutcomeUnknownError{RequestInfo: about, StatusCode: 200, Err: answer},
		&svc.DecodeError{RequestInfo: about, ContentType: odd, Field: odd, Excerpt: odd, Err: plain},
		&svc.DecodeError{Excerpt: odd, Err: answer},
		&svc.ValidationError{Fields: []svc.FieldProblem{{Field: odd, Problem: odd}, {Field: odd, Problem: odd}}},
		&svc.WaitError{ID: odd, Want: odd, History: []svc.StatusChange{{Status: odd}}, Err: plain, LastErr: answer},
		&svc.DeployError{ServiceID: odd, Err: plain, CleanupErr: answer},
		&svc.DeployError{ServiceID: odd, Cleanup: svc.CleanupDeleted, Err: &svc.WaitError{ID: odd, Want: odd, Err: plain}},
		&svc.PageError{Route: "/v1/svc-video-job", Page: 1, Err: plain},
	} {
		requireOneLine(t, err.Error())
		require.True(t, strings.HasPrefix(err.Error(), "svc: "), err.Error())
	}
}

// An error text says a thing once. It leaves out the title of an HTML page that only
// repeats the status, and an XML document from which the code was taken.
func TestErrorTextsDoNotRepeat(t *testing.T) {
	for body, want := range map[string]string{
		"<html><body><h1>502 Bad Gateway</h1></body></html>": "502 Bad Gateway: an HTML or XML page of a proxy or portal, not a response of the service (id svc-1)",
		"<html><title>Bad Gateway</title></html>":            "502 Bad Gateway: an HTML or XML page of a proxy or portal, not a response of the service (id svc-1)",
		"<Error><Code>SlowDown</Code></Error>":               "502 Bad Gateway: an HTML or XML page of a proxy or portal, not a response of the service (id svc-1, code SlowDown)",
		`{"code":"busy"}`:                                    "502 Bad Gateway (id svc-1, code busy)",
		`{"message":"the gateway is bad"}`:                   "502 Bad Gateway: the gateway is bad (id svc-1)",
		"<html><title>Maintenance until noon</title></html>": "502 Bad Gateway: an HTML or XML page of a proxy or portal, not a response of the service: \"Maintenance until noon\" (id svc-1)",
		"upstream has gone away\nand more":                   "502 Bad Gateway: upstream has gone away (id svc-1)",
	} {
		err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 502, Body: body, Header: map[string]string{"Content-Type": ""}}).Client(), svc.WithMaxAttempts(1))
		require.EqualError(t, err, "svc: GET /v1/inference-service/{service_id}: "+want)
	}
	err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.Reply{Status: 200}).Client())
	require.EqualError(t, err, "svc: GET /v1/inference-service/{service_id}: the response (200, application/json) is not what the service promises: the body is empty: unexpected EOF (id svc-1)")
}
