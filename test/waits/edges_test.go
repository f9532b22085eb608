package waits_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// A record that was read counts, even if ctx ended at the same moment.
func TestWaitTakesARecordThatComesWithTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available")}}
		c := testkit.ClientOn(t, s, svc.WithAttemptHook(func(context.Context, svc.Attempt) { cancel() }))
		record, err := c.InferenceServices.WaitUntilAvailable(ctx, "svc-1", nil)
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, record.Status)
	})
}

// NotFoundGrace applies only to "not found".
func TestNotFoundGraceIsForNothingElse(t *testing.T) {
	for _, status := range []int{400, 401, 403, 409} {
		synctest.Test(t, func(t *testing.T) {
			s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(404), testkit.Fails(status)}}
			_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", &svc.WaitOptions{NotFoundGrace: time.Minute})
			require.Equal(t, status, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
			took := testkit.ErrorAs[*svc.WaitError](t, err).Elapsed
			require.InDelta(t, 12, took.Seconds(), 4, "the refusal must still be there 10 s later")
		})
	}
}

// A wait ends at once if the token source fails, or if the certificate of the server is
// not trusted.
func TestWaitEndsWithWhatNoPollCanChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available")}}
		noToken, asked := errors.New("the vault is locked"), 0
		source := svc.WithTokenSource(func(context.Context) (string, error) { asked++; return "", noToken })
		_, err := testkit.ClientOn(t, s, source).InferenceServices.WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, noToken)
		require.Equal(t, 1, asked)
		require.Equal(t, 1, testkit.ErrorAs[*svc.WaitError](t, err).Polls)
		require.Empty(t, s.Requests("GET"))

		polls := 0
		untrusted := testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) { polls++; return nil, x509.UnknownAuthorityError{} })
		_, err = testkit.ClientOn(t, untrusted).InferenceServices.WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, polls)
	})
}

func TestWaitNeedsACondition(t *testing.T) {
	s := &testkit.ByMethod{}
	_, err := s.Services(t).Wait(t.Context(), "svc-1", nil, nil)
	require.Equal(t, []svc.FieldProblem{{Field: "until", Problem: "is nil"}}, testkit.ErrorAs[*svc.ValidationError](t, err).Fields)
	require.Empty(t, s.Requests("GET"))
}

// After the loop over WaitUntilAllAvailable was left, no request is in flight.
func TestWaitAllLeavesNothingUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var underWay atomic.Int32
		script := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available")}}
		slow := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			underWay.Add(1)
			defer underWay.Add(-1)
			if r.URL.Path != "/v1/inference-service/svc-1" {
				<-r.Context().Done()
				time.Sleep(time.Second) // the request takes time to end
				return nil, r.Context().Err()
			}
			time.Sleep(time.Millisecond)
			return script.RoundTrip(r)
		})
		for _, err := range testkit.ClientOn(t, slow).InferenceServices.WaitUntilAllAvailable(t.Context(), []string{"svc-2", "svc-1", "svc-3"}, nil) {
			require.NoError(t, err)
			require.EqualValues(t, 2, underWay.Load())
			break
		}
		require.Zero(t, underWay.Load())
	})
}

// The error of a cleanup is that of its last attempt that was not cut short by the time
// limit.
func TestCleanupTellsTheLastReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Post: []testkit.Reply{testkit.EndpointIs("initializing")}, Get: []testkit.Reply{testkit.EndpointIs("unavailable")}, Delete: []testkit.Reply{testkit.Fails(503), testkit.Fails(500), testkit.Fails(403)}}
		_, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		last := testkit.ErrorAs[*svc.WaitError](t, testkit.ErrorAs[*svc.DeployError](t, err).CleanupErr)
		require.ErrorIs(t, last.LastErr, svc.ErrForbidden)
		require.Greater(t, len(s.Requests("DELETE")), 10, "a cleanup sends deletes for all of its time")
	})
}

// The cleanup compares the record's name with the name that was sent, even if
// WithBodyField set that name.
func TestCleanupKnowsTheNameThatWasSent(t *testing.T) {
	type text string
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithStatusPath(svctest.StatusUnavailable))
		_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
			DeleteOnFailure: true, CreateOptions: []svc.RequestOption{svc.WithBodyField("name", text("real"))},
		})
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
	})
}

// A cleanup has its time limit, even if hooks panic and the token source blocks.
func TestCleanupAfterPanicsHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, asked := svctest.NewInMemory(), 0
		c := srv.Client(svc.WithAttemptHook(func(context.Context, svc.Attempt) { panic("hook") }),
			svc.WithTokenSource(func(ctx context.Context) (string, error) {
				if asked++; asked > 2 {
					<-ctx.Done()
				}
				return srv.Token(), ctx.Err()
			}))
		start := time.Now()
		require.Panics(t, func() {
			_, _ = c.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		})
		require.LessOrEqual(t, time.Since(start), 40*time.Second)
	})
}

// "Not found" after a lost delete with Do counts as it does with Delete: a new endpoint
// may not be readable yet.
func TestDoDeleteOfANewEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(10 * time.Second))
		c := srv.Client()
		s, err := c.InferenceServices.Create(t.Context(), testkit.Demo)
		require.NoError(t, err)
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 502})
		require.ErrorIs(t, c.Do(t.Context(), "DELETE", "/v1/inference-service/"+s.ServiceID, nil, nil), svc.ErrNotFound)
	})
}
