package waits_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// These tests of field cases are about endpoints: what proves that an endpoint is
// deleted, which responses a wait accepts, and what a create leaves behind.

const loginPage = "<html><head><title>Just a moment...</title></head><body>checking your browser</body></html>"

func TestBaseURLWithVersion_C03(t *testing.T) {
	for _, u := range []string{"https://api.test/v1", "https://api.test/v1/", "https://api.test/prefix/V1"} {
		_, err := svc.NewClient(u, svc.WithToken("t"))
		require.ErrorContains(t, err, "must not end in /v1", u)
	}
	for _, u := range []string{"https://api.test", "https://api.test/v1/proxy", "https://api.test/apiv1"} {
		_, err := svc.NewClient(u, svc.WithToken("t"))
		require.NoError(t, err, u)
	}
}

// "Not found" counts as a deletion only if the service also responded with the flavor
// list, or refused it with a 403 in JSON.
func TestProofNeedsAResponseInBetween_C03(t *testing.T) {
	for name, tt := range map[string]struct {
		flavors svctest.Fault
		proves  bool
	}{
		"answered":       {svctest.Fault{}, true},
		"forbidden":      {svctest.Fault{Status: 403, Body: `{"message":"not for you"}`, Times: -1}, true},
		"forbidden page": {svctest.Fault{Status: 403, Body: loginPage, Times: -1}, false},
		"another list":   {svctest.Fault{Body: `{"items":[]}`, Times: -1}, false},
		"a page":         {svctest.Fault{Body: loginPage, Times: -1}, false},
		"key refused":    {svctest.Fault{Status: 401, Body: `{}`, Times: -1}, false},
		"down":           {svctest.Fault{Status: 503, Times: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				services := srv.Client().InferenceServices
				_, err := services.Get(t.Context(), id)
				require.NoError(t, err)
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: `{"message":"none"}`, Times: -1})
				srv.Fault("GET", svctest.RouteFlavors, tt.flavors)
				start := time.Now()
				err = services.WaitUntilDeleted(testkit.Within(t, time.Minute), id, nil)
				require.Equal(t, tt.proves, err == nil, "%v", err)
				if tt.proves {
					require.Equal(t, 10*time.Second, time.Since(start))
				}
			})
		})
	}
}

func TestRecoveryOfWhatIsNotReadableYet_C04(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(10*time.Second), svctest.WithDeployTime(time.Hour))
		services := srv.Client().InferenceServices
		_, err := services.Deploy(testkit.Within(t, 2*time.Second), testkit.Demo, nil)
		e := testkit.ErrorAs[*svc.DeployError](t, err)
		require.Equal(t, svc.CleanupNone, e.Cleanup)
		require.ErrorContains(t, err, "call DeleteAndWait")

		require.ErrorIs(t, services.Delete(t.Context(), e.ServiceID), svc.ErrNotFound)
		require.Error(t, services.WaitUntilDeleted(testkit.Within(t, time.Minute), e.ServiceID, nil), "the endpoint still runs")
		require.NoError(t, services.DeleteAndWait(testkit.Within(t, time.Minute), e.ServiceID, nil))
		require.Zero(t, srv.RunningInstances())
	})
}

// The delete and the read of one poll are both refused. That is no contact, after which a deletion
// would endure it until ctx ends.
func TestDeleteAndWaitEndsWithAWrongToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		start := time.Now()
		services := srv.Client(svc.WithToken("wrong-token")).InferenceServices
		require.ErrorIs(t, services.DeleteAndWait(testkit.Within(t, time.Hour), id, nil), svc.ErrUnauthorized)
		require.Less(t, time.Since(start), time.Minute)

		services = srv.Client().InferenceServices
		_, err := services.Get(t.Context(), id)
		require.NoError(t, err)
		srv.Fault("*", svctest.RouteEndpoint, svctest.Fault{Status: http.StatusUnauthorized, Body: `{"message":"rotating"}`, Times: 40})
		require.NoError(t, services.DeleteAndWait(testkit.Within(t, time.Hour), id, nil), "after contact it passes")

		id = srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
			srv.Fault("*", svctest.RouteEndpoint, svctest.Fault{Status: status, Body: `{"message":"revoked"}`, Times: -1})
			err = services.DeleteAndWait(testkit.Within(t, time.Hour), id, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, fmt.Sprint("the last poll failed: ", status, " "))
			require.ErrorContains(t, err, "revoked")
			require.ErrorContains(t, err, "; check the token")
			require.Equal(t, status, testkit.ErrorAs[*svc.Error](t, testkit.ErrorAs[*svc.WaitError](t, err).LastErr).StatusCode)
			srv.ClearFaults()
		}
	})
}

func TestDeleteAndWait(t *testing.T) {
	for name, tt := range map[string]struct {
		opts    []svctest.Option
		deletes []svctest.Fault
		took    time.Duration
	}{
		"at once":        {nil, nil, 4 * time.Second},
		"slow":           {[]svctest.Option{svctest.WithDeleteTime(40 * time.Second)}, nil, time.Minute},
		"without effect": {nil, []svctest.Fault{{Body: "{}", Times: 3}}, 10 * time.Second},
		"lost":           {nil, []svctest.Fault{svctest.DropAfterEffect()}, 17 * time.Second},
		"busy":           {nil, []svctest.Fault{{Status: 409, Body: `{"message":"busy"}`, Times: 2}}, 10 * time.Second},
		"failing":        {nil, []svctest.Fault{svctest.Outage(20 * time.Second)}, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(tt.opts...)
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 2})
				srv.Fault("DELETE", svctest.RouteEndpoint, tt.deletes...)
				start := time.Now()
				require.NoError(t, srv.Client().InferenceServices.DeleteAndWait(testkit.Within(t, time.Hour), id, nil))
				require.Zero(t, srv.RunningInstances())
				require.LessOrEqual(t, time.Since(start), tt.took)
			})
		})
	}
	for _, status := range []int{401, 403} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory()
			id := srv.AddEndpoint(svctest.Endpoint{Instances: 2})
			srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: status, Body: "{}", Times: -1})
			err := srv.Client().InferenceServices.DeleteAndWait(testkit.Within(t, time.Hour), id, nil)
			require.Equal(t, "deleted", testkit.ErrorAs[*svc.WaitError](t, err).Want)
			require.ErrorIs(t, err, context.DeadlineExceeded, "the token may be renewed")
			require.Equal(t, id, testkit.ErrorAs[*svc.WaitError](t, err).Last.ServiceID, "Last must be the record read before the delete")
			require.ErrorContains(t, err, `last status "available" after`)
		})
	}
}

// An HTML page of a proxy or portal is tolerated for a time, whatever its status is.
func TestPagesForPeople_C05(t *testing.T) {
	for _, status := range []int{200, 302, 401, 403, 404, 407, 451, 503, 511} {
		page := svctest.Fault{Status: status, Body: loginPage, Times: 4}
		if status == 302 {
			page.Body, page.Header = "", http.Header{"Location": {"https://login.test/"}}
		}
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // during a deployment
				srv := svctest.NewInMemory(svctest.WithDeployTime(10 * time.Second))
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{}, page)
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.NoError(t, err)
			})
			synctest.Test(t, func(t *testing.T) { // during a cleanup
				srv := goneServer()
				page.Times = 8
				srv.Fault("DELETE", svctest.RouteEndpoint, page)
				e, _ := goneStory(t, srv)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup)
				require.Zero(t, srv.RunningInstances())
			})
			synctest.Test(t, func(t *testing.T) { // forever
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				page.Times = -1
				srv.Fault("GET", svctest.RouteEndpoint, page)
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, nil)
				require.Error(t, err)
				if status != 302 {
					require.ErrorContains(t, err, "an HTML or XML page of a proxy or portal, not a response of the service")
				}
			})
		})
	}
}

func TestSuccessThatHoldsAnError_C06(t *testing.T) {
	services := func(body string) *svc.InferenceServiceClient {
		return testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().InferenceServices
	}
	for _, body := range []string{
		`{"success":false}`, `{"ok":false}`, `{"status":"error"}`, `{"status":" Fail "}`, `{"status":500}`, `{"status":"503"}`, `{"type":"about:blank","title":"Forbidden","status":403}`,
		`{"statusCode":502,"message":"Bad Gateway"}`, `{"code":500}`, `{"code":"403"}`, `{"errcode":40001}`,
		`{"success":false,"message":"busy"}`, `{"code":1,"data":null}`, `{"error":{"message":"x"}}`, loginPage,
	} {
		require.ErrorAs(t, services(body).Delete(t.Context(), "svc-1"), new(*svc.DecodeError), body)
	}
	for _, body := range []string{``, `{}`, `{"code":0}`, `{"code":200}`, `{"code":204}`, `{"success":true}`, `{"status":"ok"}`, `{"status":200}`, `{"status":"failing over"}`, `{"status":1}`, `{"statusCode":204}`, `{"success":1}`, `null`, `"deleted"`, `{"code":"OK"}`} {
		require.NoError(t, services(body).Delete(t.Context(), "svc-1"), body)
	}
	for _, body := range []string{`{"message":"token expired"}`, `{"code":500}`, `{}`, `{"data":[]}`} {
		client := testkit.Play(t, testkit.Reply{Status: 200, Body: body}, testkit.Reply{Status: 200, Body: body}).Client()
		_, err := client.Flavors.List(t.Context())
		require.ErrorAs(t, err, new(*svc.DecodeError), body)
		_, err = client.VideoJobs.List(t.Context(), nil)
		require.ErrorAs(t, err, new(*svc.DecodeError), body)
	}
}

// Only is_deleted decides. A date in deleted_at may stand for "never".
func TestNotDeletedWrittenAsADate_C07(t *testing.T) {
	for _, never := range []string{`"1970-01-01 00:00:00"`, `"1970-01-01T08:00:00+08:00"`, `"9999-12-31 23:59:59"`, `"0001-01-01T00:00:00Z"`, `0`} {
		synctest.Test(t, func(t *testing.T) {
			s := &testkit.ByMethod{
				Post: []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 1, `"deleted_at":`+never)}},
				Get:  []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 1, `"is_deleted":false`, `"deleted_at":`+never)}, {Body: testkit.EndpointJSON("available", 1, `"deleted_at":`+never)}},
				Put:  []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 1, `"deleted_at":`+never)}},
			}
			services := s.Services(t)
			_, err := services.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
			require.NoError(t, err, never)
			_, err = services.ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", 1, nil)
			require.NoError(t, err, never)
			require.ErrorIs(t, services.WaitUntilDeleted(testkit.Within(t, time.Minute), "svc-1", nil), context.DeadlineExceeded)
			require.Empty(t, s.Requests("DELETE"))
		})
	}
}

func TestStatusInAnotherForm_C08(t *testing.T) {
	for status, want := range map[string]error{
		"Available": nil, " available\n": nil, "AVAILABLE": nil, "Unavailable": svc.ErrUnavailable, "STOPPED ": svc.ErrStopped,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs(status)}}
			last, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Minute), "svc-1", nil)
			require.ErrorIs(t, err, want)
			require.EqualValues(t, status, last.Status, "the value must be kept unchanged")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Put: []testkit.Reply{testkit.EndpointIs("Initializing")}, Get: []testkit.Reply{{Body: testkit.EndpointJSON(" Stopped", 0)}}}
		_, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Minute), "svc-1", 0, nil)
		require.NoError(t, err)
	})
}

func TestUpdateWithoutARecord_C10(t *testing.T) {
	for name, put := range map[string]testkit.Reply{"204": {Status: 204}, "202": {Status: 202}, "{}": {Body: "{}"}, "202 {}": {Status: 202, Body: `{"accepted":true}`}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Put: []testkit.Reply{put}, Get: []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 1)}, {Body: testkit.EndpointJSON("available", 3)}}}
				last, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Minute), "svc-1", 3, nil)
				require.NoError(t, err)
				require.EqualValues(t, 3, last.ResourceMetadata.TargetInstanceNumber)
			})
		})
	}
	s := &testkit.ByMethod{Put: []testkit.Reply{{Body: loginPage}}}
	_, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Minute), "svc-1", 3, nil)
	require.ErrorAs(t, err, new(*svc.DecodeError), "an HTML page of a portal is not a response to the update")
	require.Empty(t, s.Requests("GET"))
}

func TestIDs_C17(t *testing.T) {
	services := alwaysInitializing().Services(t)
	for _, id := range []string{" svc-1", "svc-1 ", " .. ", ".. ", "\u00a0svc-1", "svc-1\u3000"} {
		_, err := services.Get(t.Context(), id)
		require.ErrorAs(t, err, new(*svc.ValidationError), "%q", id)
		require.ErrorAs(t, services.Delete(t.Context(), id), new(*svc.ValidationError), "%q", id)
	}
	const lower, upper = "0b54a7c2-9d3e-4f0a-8a11-c0ffee123456", "0B54A7C2-9D3E-4F0A-8A11-C0FFEE123456"
	client := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"service_id":"` + lower + `"}`}).Client()
	_, err := client.InferenceServices.Get(t.Context(), upper)
	require.NoError(t, err)
	client = testkit.Play(t, testkit.Reply{Status: 200, Body: `{"service_id":"SVC-1"}`}).Client()
	_, err = client.InferenceServices.Get(t.Context(), "svc-1")
	require.ErrorAs(t, err, new(*svc.DecodeError), "only UUIDs are compared without letter case")
}

func TestZeroValuesDestroyNothing_C19(t *testing.T) {
	s := &testkit.ByMethod{Put: []testkit.Reply{testkit.EndpointIs("initializing")}, Post: []testkit.Reply{testkit.EndpointIs("initializing")}, Get: []testkit.Reply{testkit.EndpointIs("available")}}
	services := s.Services(t)
	_, err := services.Update(t.Context(), "svc-1", svc.UpdateInferenceServiceRequest{})
	require.ErrorAs(t, err, new(*svc.ValidationError))
	none := testkit.Demo
	none.ResourceMetadata.TargetInstanceNumber = 0
	_, err = services.Deploy(t.Context(), none, nil)
	require.ErrorAs(t, err, new(*svc.ValidationError))
	require.ErrorContains(t, err, "an endpoint without instances never becomes available")
	require.Empty(t, s.Seen)

	_, err = services.Update(t.Context(), "svc-1", svc.UpdateInferenceServiceRequest{}, svc.WithBodyField("description", "new"))
	require.NoError(t, err)
	_, err = services.Deploy(t.Context(), none, &svc.DeployOptions{CreateOptions: []svc.RequestOption{svc.WithBodyField("resource_metadata.target_instance_number", 2)}})
	require.NoError(t, err)

	wire := testkit.Play(t, testkit.Reply{Status: 200, Body: testkit.EndpointJSON("initializing", 0)}, testkit.Reply{Status: 200, Body: testkit.EndpointJSON("initializing", 0)})
	_, err = wire.Client().InferenceServices.Update(t.Context(), "svc-1", svc.UpdateInferenceServiceRequest{}, svc.WithBodyField("description", "new"))
	require.NoError(t, err)
	require.JSONEq(t, `{"resource_metadata":{},"description":"new"}`, wire.Requests[0].Body, "the number is not sent")
	_, err = wire.Client().InferenceServices.Scale(t.Context(), "svc-1", 0)
	require.NoError(t, err)
	require.JSONEq(t, `{"resource_metadata":{"target_instance_number":"0"}}`, wire.Requests[1].Body)
}

// Tests of users construct errors themselves. Every such error has a text, and does not
// panic.
func TestErrorsMadeByHand_C20(t *testing.T) {
	for _, err := range []error{
		&svc.Error{}, &svc.Error{StatusCode: 404}, &svc.TransportError{}, &svc.OutcomeUnknownError{}, &svc.DecodeError{}, &svc.ValidationError{},
		&svc.WaitError{}, &svc.WaitError{ID: "x"}, &svc.DeployError{}, &svc.DeployError{ServiceID: "x"}, &svc.DeployError{Cleanup: svc.CleanupFailed},
		&svc.UploadError{}, &svc.DownloadError{}, &svc.PageError{},
	} {
		require.NotPanics(t, func() {
			require.NotEmpty(t, err.Error())
			require.NotErrorIs(t, err, svc.ErrNoToken)
			_ = fmt.Sprintf("%+v", err)
		}, "%T", err)
	}
	require.ErrorIs(t, &svc.Error{StatusCode: 404}, svc.ErrNotFound)
	require.ErrorContains(t, &svc.Error{StatusCode: 404}, "404 Not Found")
}

func TestErrorsNameTheRecord_C21(t *testing.T) {
	client := testkit.Play(t, testkit.Reply{Status: 404, Body: `{}`}, testkit.Reply{Status: 200, Body: "nonsense"}, testkit.Reply{Err: errors.New("boom")}).Client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
	_, err := client.InferenceServices.Get(t.Context(), "svc-7")
	require.Equal(t, "svc-7", testkit.ErrorAs[*svc.Error](t, err).ID)
	require.ErrorContains(t, err, "svc-7")
	_, err = client.InferenceServices.Get(t.Context(), "svc-8")
	require.Equal(t, "svc-8", testkit.ErrorAs[*svc.DecodeError](t, err).ID)
	require.ErrorContains(t, err, "svc-8")
	_, err = client.InferenceServices.Get(t.Context(), "svc-9")
	require.Equal(t, "svc-9", testkit.ErrorAs[*svc.TransportError](t, err).ID)
	require.ErrorContains(t, err, "svc-9")
	require.Equal(t, "/v1/inference-service/{service_id}", testkit.ErrorAs[*svc.TransportError](t, err).Route)
}

func TestPermanentEndsAWait_C24(t *testing.T) {
	wrong := errors.New("version 3 answers")
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		client := srv.Client(svc.WithInferenceURL("https://inference.test"))
		asked := 0
		_, err := client.InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
			DeleteOnFailure: true,
			WaitOptions: svc.WaitOptions{Probe: func(context.Context, string) error {
				if asked++; asked < 3 {
					return errors.New("not yet")
				}
				return svc.Permanent(wrong)
			}},
		})
		require.ErrorIs(t, err, wrong)
		require.ErrorIs(t, testkit.ErrorAs[*svc.WaitError](t, err).Err, wrong)
		require.Equal(t, 3, asked)
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		_, err = client.InferenceServices.Wait(t.Context(), srv.AddEndpoint(svctest.Endpoint{}), func(*svc.InferenceService) (bool, error) { return false, svc.Permanent(wrong) }, nil)
		require.ErrorIs(t, err, wrong)
	})
	require.NoError(t, svc.Permanent(nil))
}

func TestWaitsTakeRequestOptions_C26(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(3 * time.Second))
		services := srv.Client().InferenceServices
		o := svc.WaitOptions{RequestOptions: []svc.RequestOption{svc.WithHeader("X-Trace", "abc"), svc.WithMaxAttempts(3)}}
		deploy := o
		deploy.RequestOptions = append(deploy.RequestOptions, svc.WithBodyField("description", "x"))
		s, err := services.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{WaitOptions: deploy})
		require.NoError(t, err)
		_, err = services.ScaleAndWait(t.Context(), s.ServiceID, 3, &o)
		require.NoError(t, err)
		require.NoError(t, services.DeleteAndWait(t.Context(), s.ServiceID, &o))
		require.NotEmpty(t, srv.Requests())
		for _, r := range srv.Requests() {
			require.Equal(t, "abc", r.Header.Get("X-Trace"), "%s %s", r.Method, r.Path)
		}
	})
}

// For an endpoint that was never readable, an accepted delete proves nothing.
func TestNeverReadIsNotDeleted_C32(t *testing.T) {
	for name, deleted := range map[string]svctest.Fault{"no effect": {Body: "{}", Times: -1}, "no body": {Status: 204, Times: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(20*time.Second), svctest.WithDeployTime(time.Hour))
				srv.Fault("DELETE", svctest.RouteEndpoint, deleted)
				full := errors.New("disk full")
				_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
					DeleteOnFailure: true, OnCreate: func(*svc.InferenceService) error { return full },
				})
				require.ErrorIs(t, err, full)
				e := testkit.ErrorAs[*svc.DeployError](t, err)
				require.Equal(t, svc.CleanupAccepted, e.Cleanup)
				require.Positive(t, srv.RunningInstances())
			})
		})
	}
	// A deletion that polls show is reported, whatever the response to the delete
	// contained.
	synctest.Test(t, func(t *testing.T) {
		srv := goneServer()
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Body: `{"id":"svc-1","state":"deleting"}`, Status: 202, AfterEffect: true})
		e, took := goneStory(t, srv)
		require.Equal(t, svc.CleanupDeleted, e.Cleanup)
		require.LessOrEqual(t, took, 6*time.Second)
	})
}

func TestLostDeleteOfANewEndpoint_C33(t *testing.T) {
	for name, lost := range map[string]svctest.Fault{"lost": svctest.DropBeforeEffect(), "502": {Status: 502}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(20 * time.Second))
				services := srv.Client().InferenceServices
				s, err := services.Create(t.Context(), testkit.Demo)
				require.NoError(t, err)
				srv.Fault("DELETE", svctest.RouteEndpoint, lost)
				require.ErrorIs(t, services.Delete(t.Context(), s.ServiceID), svc.ErrNotFound, "the endpoint still runs")
				require.NoError(t, services.DeleteAndWait(t.Context(), s.ServiceID, nil))
				require.Zero(t, srv.RunningInstances())

				srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 524, Body: `{"service_id":"svc-2"}`, AfterEffect: true})
				_, err = services.Create(t.Context(), testkit.Demo)
				require.Equal(t, "svc-2", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
				srv.Fault("DELETE", svctest.RouteEndpoint, lost)
				require.ErrorIs(t, services.Delete(t.Context(), "svc-2"), svc.ErrNotFound, "it still runs, though the outcome was unknown")
				require.NoError(t, services.DeleteAndWait(testkit.Within(t, time.Hour), "svc-2", nil))

				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 502, AfterEffect: true})
				require.NoError(t, services.Delete(t.Context(), id), "not found proves the deletion of an older endpoint")
			})
		})
	}
}

// A "not found" of another account does not show that the lost delete took effect. If the
// token source returns the same token again, it does.
func TestLostDeleteIsNotProvenByAnotherAccount(t *testing.T) {
	for _, same := range []bool{true, false} {
		for _, lost := range []svctest.Fault{svctest.DropBeforeEffect(), {Status: 502}} {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithForeignToken("foreign-token"))
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				asked := 0
				services := srv.Client(svc.WithTokenSource(func(context.Context) (string, error) {
					if asked++; asked > 1 && !same {
						return "foreign-token", nil
					}
					return srv.Token(), nil
				})).InferenceServices
				lost.AfterEffect = same
				srv.Fault("DELETE", svctest.RouteEndpoint, lost)
				err := services.Delete(t.Context(), id)
				if same {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.Equal(t, 1, srv.RunningInstances())
			})
		}
	}
}

func TestCutPagesProveNothing_C34(t *testing.T) {
	for name, cut := range map[string]testkit.Reply{
		"a page":            {Status: 404, Body: "<ht", Header: map[string]string{"Content-Type": "text/html"}, Err: errors.New("reset")},
		"before its body":   {Status: 404, Header: map[string]string{"Content-Type": "text/html; charset=utf-8"}, Err: errors.New("reset")},
		"of no known kind":  {Status: 404, Body: " ", Header: map[string]string{"Content-Type": ""}, Err: errors.New("reset")},
		"a page, but whole": {Status: 404, Body: "not here", Header: map[string]string{"Content-Type": "text/html"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.Play(t, testkit.Reply{Status: 502, Body: "{}"}, cut).Client()
				require.Error(t, client.InferenceServices.Delete(t.Context(), "svc-1"))
			})
		})
	}
}

func TestStaleReadsDoNotEndScaling_C35(t *testing.T) {
	for name, instances := range map[string]int{"to the number of before": 3, "to none": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := testkit.Reply{Body: testkit.EndpointJSON("available", 3, `"updated_at":"2026-05-01 10:00:00"`)}
				if instances == 0 {
					old = testkit.Reply{Body: testkit.EndpointJSON("stopped", 0, `"updated_at":"2026-05-01 10:00:00"`)}
				}
				now := testkit.Reply{Body: testkit.EndpointJSON("available", instances, `"updated_at":"2026-05-01 10:00:09"`)}
				s := &testkit.ByMethod{
					Put: []testkit.Reply{{Body: testkit.EndpointJSON("initializing", instances, `"updated_at":"2026-05-01T10:00:08.5"`)}},
					Get: []testkit.Reply{old, old, now},
				}
				last, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Minute), "svc-1", instances, nil)
				require.NoError(t, err)
				require.Len(t, s.Requests("GET"), 3)
				require.Equal(t, 9, last.UpdatedAt.Second())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a service that never changes updated_at: its record is accepted after the grace period
		old := testkit.Reply{Body: testkit.EndpointJSON("available", 3, `"updated_at":"2026-05-01 10:00:00"`)}
		s := &testkit.ByMethod{Put: []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 3, `"updated_at":"2026-05-01 10:00:08"`)}}, Get: []testkit.Reply{old}}
		start := time.Now()
		_, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", 3, nil)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 30*time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // a time in the same second does not count as older
		s := &testkit.ByMethod{
			Put: []testkit.Reply{{Body: testkit.EndpointJSON("initializing", 3, `"updated_at":"2026-05-01T10:00:08.7"`)}},
			Get: []testkit.Reply{{Body: testkit.EndpointJSON("available", 3, `"updated_at":"2026-05-01 10:00:08"`)}},
		}
		_, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", 3, nil)
		require.NoError(t, err)
		require.Len(t, s.Requests("GET"), 1)
	})
}

// For a "not found", the time of the request decides whether the grace period is over.
func TestGraceCountsFromTheRequest_C36(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := testkit.Fails(404)
		slow.After = 8 * time.Second
		s := &testkit.ByMethod{Post: []testkit.Reply{testkit.EndpointIs("initializing")}, Get: append(testkit.Times(4, slow), testkit.Fails(404), testkit.EndpointIs("available"))}
		_, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{WaitOptions: *testkit.Every(time.Millisecond)})
		require.NoError(t, err, "the fourth was requested after 24 s and came after 32 s, so only the fifth counts")
	})
}

func TestPanicsDoNotLoseTheID_C37(t *testing.T) {
	for name, clean := range map[string]bool{"kept": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				told := ""
				client := srv.Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
					if a.Method == "POST" {
						panic("bug of the caller")
					}
				}))
				require.PanicsWithValue(t, "bug of the caller", func() {
					_, _ = client.InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
						DeleteOnFailure: clean, OnCreate: func(s *svc.InferenceService) error { told = s.ServiceID; return nil },
					})
				})
				require.Equal(t, "svc-1", told)
				require.Equal(t, clean, srv.RunningInstances() == 0)
			})
		})
	}
}

func TestAnotherRecord_C38(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Post: []testkit.Reply{{Body: `{"service_id":"svc-1","name":"somebody-elses","status":"unavailable"}`}}, Get: []testkit.Reply{{Body: `{"service_id":"svc-1","name":"somebody-elses","status":"unavailable"}`}}}
		_, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.ErrorIs(t, err, svc.ErrUnavailable, "Deploy waits as usual")
		e := testkit.ErrorAs[*svc.DeployError](t, err)
		require.Equal(t, svc.CleanupFailed, e.Cleanup)
		for _, part := range []string{"svc-1", "somebody-elses", "demo", "was not deleted"} {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "call DeleteAndWait")
		require.Empty(t, s.Requests("DELETE"))
	})
	synctest.Test(t, func(t *testing.T) { // the response to the create is cut off, and the record read later has the other name
		s := &testkit.ByMethod{Post: []testkit.Reply{{Body: `{"service_id":"svc-1","status":"initializing","description":"long long long long long"}`, Cut: true}}, Get: []testkit.Reply{{Body: `{"service_id":"svc-1","name":"somebody-elses","status":"unavailable"}`}}}
		_, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.Equal(t, svc.CleanupFailed, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.Empty(t, s.Requests("DELETE"))
	})
	synctest.Test(t, func(t *testing.T) { // a service may change letter case and white space of names
		s := &testkit.ByMethod{Post: []testkit.Reply{testkit.EndpointIs("initializing")}, Get: []testkit.Reply{{Body: `{"service_id":"svc-1","name":" Demo","status":"unavailable"}`}, testkit.Fails(404)}, Delete: []testkit.Reply{{Body: "{}"}}}
		_, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
	})
}

func TestOneNotFoundIsNotEnough_C40(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available"), testkit.Fails(404), testkit.EndpointIs("available"), testkit.Fails(404), testkit.EndpointIs("available")}}
		err := s.Services(t).WaitUntilDeleted(testkit.Within(t, 10*time.Minute), "svc-1", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	synctest.Test(t, func(t *testing.T) { // the polls go on in between, since a read that shows the record voids the "not found"
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available"), testkit.Fails(404)}}
		services := s.Services(t)
		_, err := services.Get(t.Context(), "svc-1")
		require.NoError(t, err)
		start := time.Now()
		err = services.WaitUntilDeleted(testkit.Within(t, 10*time.Minute), "svc-1", &svc.WaitOptions{MinInterval: 700 * time.Millisecond, MaxInterval: 700 * time.Millisecond})
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(start), "the deletion is proven at the first moment at which it can be")
	})
	synctest.Test(t, func(t *testing.T) { // the last poll before the end of ctx does not wait for that second
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(404)}}
		err := s.Services(t).WaitUntilDeleted(testkit.Within(t, 700*time.Millisecond), "svc-1", &svc.WaitOptions{NotFoundGrace: -1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, svc.ErrNotFound)
		require.Len(t, s.Requests("GET"), 2)
	})
}

func TestUse(t *testing.T) {
	boom := errors.New("boom")
	for name, use := range map[string]func() error{"succeeds": func() error { return nil }, "fails": func() error { return boom }, "panics": func() error { panic("mine") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute))
				var used *svc.InferenceService
				err, panicked := error(nil), any(nil)
				func() {
					defer func() { panicked = recover() }()
					err = srv.Client().InferenceServices.Use(t.Context(), testkit.Demo, nil,
						func(_ context.Context, s *svc.InferenceService) error { used = s; return use() })
				}()
				require.Equal(t, svc.InferenceServiceStatusAvailable, used.Status)
				require.Equal(t, name == "fails", errors.Is(err, boom))
				require.Equal(t, name == "panics", panicked == any("mine"))
				require.NotErrorAs(t, err, new(*svc.DeployError))
				require.Zero(t, srv.RunningInstances())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 503, Times: -1})
		err := srv.Client().InferenceServices.Use(t.Context(), testkit.Demo, nil, func(context.Context, *svc.InferenceService) error { return boom })
		e := testkit.ErrorAs[*svc.DeployError](t, err)
		require.Equal(t, svc.CleanupFailed, e.Cleanup)
		require.ErrorIs(t, err, boom)
		require.ErrorContains(t, err, "svc: using svc-1: boom; the cleanup could not delete the endpoint (")
		err = srv.Client().InferenceServices.Use(t.Context(), testkit.Demo, nil, func(context.Context, *svc.InferenceService) error { return nil })
		require.NoError(t, testkit.ErrorAs[*svc.DeployError](t, err).Err)
		require.ErrorContains(t, err, "svc: using svc-2: the function succeeded; the cleanup could not delete the endpoint (")
	})
	require.ErrorAs(t, svctest.NewInMemory().Client().InferenceServices.Use(t.Context(), testkit.Demo, nil, nil), new(*svc.ValidationError))
	for _, o := range []svc.DeployOptions{{Key: "k"}, {DeleteOnFailure: true}, {OnFailure: func(*svc.DeployError) bool { return false }}} {
		srv := svctest.NewInMemory()
		err := srv.Client().InferenceServices.Use(t.Context(), testkit.Demo, &o, func(context.Context, *svc.InferenceService) error { return nil })
		require.ErrorAs(t, err, new(*svc.ValidationError))
		require.Empty(t, srv.Requests())
	}
}

// If a function of the caller calls runtime.Goexit, as a failed assertion does, only its
// wait ends.
// What ends the goroutine of a function of the caller ends the loop: a panic can be recovered there, and
// FailNow of a test works.
func TestWaitAllPassesOnPanicsAndGoexit(t *testing.T) {
	for name, stop := range map[string]func(){"panic": func() { panic("mine") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			srv, ended := svctest.NewInMemory(), make(chan any, 1)
			go func() {
				yielded := 0
				defer func() { ended <- []any{recover(), yielded} }()
				for range srv.Client().InferenceServices.WaitUntilAllAvailable(t.Context(), addEndpoints(srv, 3), &svc.WaitOptions{OnPoll: func(svc.Poll) { stop() }}) {
					yielded++
				}
				yielded = -1
			}()
			require.Equal(t, []any{map[string]any{"panic": "mine"}[name], 0}, <-ended)
		})
	}
}
