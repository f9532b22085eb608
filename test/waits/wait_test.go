// Package waits_test tests waits for endpoints, deployments, and their cleanup.
package waits_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// allWaits has all ways to wait for svc-1. Each wait ends only with its ctx, as long as
// the status is "initializing".
func allWaits(c *svc.InferenceServiceClient, opts *svc.WaitOptions) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"WaitUntilAvailable": func(ctx context.Context) error {
			_, err := c.WaitUntilAvailable(ctx, "svc-1", opts)
			return err
		},
		"WaitUntilDeleted": func(ctx context.Context) error { return c.WaitUntilDeleted(ctx, "svc-1", opts) },
		"Wait": func(ctx context.Context) error {
			_, err := c.Wait(ctx, "svc-1", func(*svc.InferenceService) (bool, error) { return false, nil }, opts)
			return err
		},
		"ScaleAndWait": func(ctx context.Context) error {
			_, err := c.ScaleAndWait(ctx, "svc-1", 1, opts)
			return err
		},
		"WaitUntilAllAvailable": func(ctx context.Context) (last error) {
			for _, err := range c.WaitUntilAllAvailable(ctx, []string{"svc-1"}, opts) {
				last = err
			}
			return last
		},
		"Deploy": func(ctx context.Context) error {
			_, err := c.Deploy(ctx, testkit.Demo, &svc.DeployOptions{WaitOptions: *opts})
			return err
		},
	}
}

func alwaysInitializing() *testkit.ByMethod {
	is := []testkit.Reply{testkit.EndpointIs("initializing")}
	return &testkit.ByMethod{Get: is, Put: is, Post: is}
}

func TestCancelEndsEveryWaitAtOnce_B06(t *testing.T) {
	for name := range allWaits(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := alwaysInitializing()
				wait := allWaits(s.Services(t), testkit.Every(time.Hour))[name]
				interrupt := errors.New("interrupted by the user")
				start := time.Now()
				err := wait(testkit.CancelAfter(t, 100*time.Millisecond, interrupt))
				require.Equal(t, 100*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, interrupt)
				require.ErrorContains(t, err, "svc-1")
				require.Len(t, s.Requests("GET"), 1)
				time.Sleep(2 * time.Hour)
				require.Len(t, s.Requests("GET"), 1, "the wait must not poll after it has returned")
			})
		})
	}
}

func TestDeadContextSendsNothing_B06(t *testing.T) {
	for name := range allWaits(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := alwaysInitializing()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				start := time.Now()
				err := allWaits(s.Services(t), &svc.WaitOptions{})[name](ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, time.Since(start))
				require.Empty(t, s.Seen)
			})
		})
	}
}

// When ctx ends during a poll, the poll is cancelled.
func TestCancelDuringAPoll_B06(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("initializing"), {Body: testkit.EndpointJSON("available", 1), After: 20 * time.Second}}}
		start := time.Now()
		last, err := s.Services(t).WaitUntilAvailable(testkit.CancelAfter(t, 5*time.Second, nil), "svc-1", nil)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
		require.Equal(t, 1, testkit.ErrorAs[*svc.WaitError](t, err).Polls, "a poll without a result does not count")
	})
}

func TestOneBadPollDoesNotEndTheWait_B23(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{}
		s.Get = append(s.Get, testkit.EndpointIs("initializing"))
		s.Get = append(s.Get, testkit.Times(6, testkit.Reply{Status: 502, Body: "<html><body>Bad Gateway</body></html>"})...)
		s.Get = append(s.Get, testkit.Times(2, testkit.Reply{Err: testkit.ErrReset})...)
		s.Get = append(s.Get, testkit.Fails(429, "Retry-After", "2"), testkit.EndpointIs("initializing"), testkit.EndpointIs("available"))
		services := s.Services(t, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
		service, err := services.WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", testkit.Every(100*time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
		gaps := s.Gaps()
		require.Len(t, gaps, 11)
		require.GreaterOrEqual(t, gaps[9], 2*time.Second, "after the 429")
		for i, gap := range gaps {
			if i != 9 {
				require.InDelta(t, 100*time.Millisecond, gap, float64(20*time.Millisecond), "gap %d", i)
			}
		}
	})
}

// As long as the client had no contact with the service, five HTML pages in a row in place of
// records end the wait. After contact they do not.
func TestSuccessResetsTheFailureCount_B23(t *testing.T) {
	page := testkit.Reply{Body: "<html>please log in</html>"}
	other := testkit.Reply{Body: `{"service_id":"svc-2","status":"available"}`}
	for name, junk := range map[string]testkit.Reply{"page": page, "empty": {}, "another record": other, "no id": {Body: `{"status":"available"}`}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				four, twenty := testkit.Times(4, junk), testkit.Times(20, junk)
				s := &testkit.ByMethod{Get: append(append(append(four, testkit.EndpointIs("initializing")), twenty...), testkit.EndpointIs("available"))}
				_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
				require.NoError(t, err)
				require.Len(t, s.Requests("GET"), 26)

				s = &testkit.ByMethod{Get: append(testkit.Times(5, page), testkit.EndpointIs("available"))}
				_, err = s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
				require.ErrorAs(t, testkit.ErrorAs[*svc.WaitError](t, err).Err, new(*svc.DecodeError))
				require.Len(t, s.Requests("GET"), 5)
			})
		})
	}
}

func TestFailureStatesEndTheWait_B24(t *testing.T) {
	failed := testkit.Reply{Body: testkit.EndpointJSON("unavailable", 1, `"status_info":"image pull failed"`)}
	deleted := testkit.Reply{Body: testkit.EndpointJSON("available", 1, `"is_deleted":true,"deleted_at":"2024-06-01 10:11:12"`)}
	for name, tt := range map[string]struct {
		get   []testkit.Reply
		want  error
		polls int
	}{
		"unavailable at once":     {[]testkit.Reply{failed}, svc.ErrUnavailable, 1},
		"unavailable later":       {[]testkit.Reply{testkit.EndpointIs("initializing"), failed}, svc.ErrUnavailable, 2},
		"unavailable, then fine":  {[]testkit.Reply{failed, testkit.EndpointIs("available")}, svc.ErrUnavailable, 1},
		"available at once":       {[]testkit.Reply{testkit.EndpointIs("available")}, nil, 1},
		"stopped":                 {[]testkit.Reply{testkit.EndpointIs("stopped")}, svc.ErrStopped, 1},
		"deleted, though running": {[]testkit.Reply{testkit.EndpointIs("initializing"), deleted}, svc.ErrNotFound, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: tt.get}
				start := time.Now()
				last, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", testkit.Every(10*time.Second))
				require.Len(t, s.Requests("GET"), tt.polls)
				require.LessOrEqual(t, time.Since(start), time.Duration(tt.polls-1)*12*time.Second)
				require.NotNil(t, last)
				require.Equal(t, "svc-1", last.ServiceID)
				require.ErrorIs(t, err, tt.want)
				if tt.want == nil {
					return
				}
				e := testkit.ErrorAs[*svc.WaitError](t, err)
				require.Same(t, last, e.Last)
				require.Equal(t, "available", e.Want)
				require.Equal(t, tt.polls, e.Polls)
				for _, other := range []error{svc.ErrUnavailable, svc.ErrStopped, svc.ErrNotFound, context.Canceled, context.DeadlineExceeded} {
					require.Equal(t, errors.Is(tt.want, other), errors.Is(err, other), "%v", other)
				}
				if errors.Is(tt.want, svc.ErrUnavailable) {
					require.Equal(t, svc.InferenceServiceStatusUnavailable, e.Last.Status)
					require.JSONEq(t, `"image pull failed"`, string(e.Last.StatusInfo))
					require.ErrorContains(t, err, "image pull failed")
				}
			})
		})
	}
}

func TestUnknownStatusMeansNotYet_B25(t *testing.T) {
	scaling := testkit.Reply{Body: `{"service_id":"svc-1","status":"scaling","payment_type":"cny","service_type":"x",
		"resource_metadata":{"scale_type":"auto","target_instance_number":1}}`}
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{scaling, scaling, testkit.EndpointIs("available")}}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.NoError(t, err)
		require.Len(t, s.Requests("GET"), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{scaling}}
		last, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Minute), "svc-1", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `"scaling"`)
		require.Equal(t, "scaling", testkit.ErrorAs[*svc.WaitError](t, err).History[0].Status)
		again, err := json.Marshal(last)
		require.NoError(t, err)
		for _, value := range []string{`"scaling"`, `"cny"`, `"auto"`, `"x"`} {
			require.Contains(t, string(again), value)
		}
	})
}

func TestNotFoundRightAfterCreate_B26(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the endpoint becomes readable after some time
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(10*time.Second), svctest.WithDeployTime(time.Minute))
		service, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, nil)
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
	})
	for name, tt := range map[string]struct {
		grace    time.Duration
		from, to time.Duration // bounds of the time when the wait ends
	}{
		"default":     {0, 30 * time.Second, 48 * time.Second},
		"shorter":     {5 * time.Second, 15 * time.Second, 18 * time.Second},
		"none at all": {-1, 10 * time.Second, 10 * time.Second},
	} {
		t.Run("never found, grace "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Post: []testkit.Reply{testkit.EndpointIs("initializing")}, Get: []testkit.Reply{testkit.Fails(404)}}
				start := time.Now()
				service, err := s.Services(t).Deploy(testkit.Within(t, time.Hour), testkit.Demo,
					&svc.DeployOptions{WaitOptions: svc.WaitOptions{NotFoundGrace: tt.grace}})
				require.GreaterOrEqual(t, time.Since(start), tt.from)
				require.LessOrEqual(t, time.Since(start), tt.to)
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, "svc-1", testkit.ErrorAs[*svc.DeployError](t, err).ServiceID)
				require.Equal(t, "svc-1", service.ServiceID)
			})
		})
	}
}

func TestOtherCallsTakeNotFoundAtItsWord_B26(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(404), testkit.EndpointIs("available")}}
		_, err := s.Services(t).Get(t.Context(), "svc-1")
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.Len(t, s.Requests("GET"), 1, "a plain read")

		s = &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(404)}}
		_, err = s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.ErrorContains(t, err, "not found with this token; it is deleted, its ID is mistyped, or it is of another account")
		require.InDelta(t, 41, testkit.ErrorAs[*svc.WaitError](t, err).Elapsed.Seconds(), 8, "another process may have created it just now")

		s = &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(404), testkit.EndpointIs("available")}}
		_, err = s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", &svc.WaitOptions{NotFoundGrace: 5 * time.Second})
		require.NoError(t, err)
	})
}

func TestTimeoutTellsTheStory_B27(t *testing.T) {
	for name, tt := range map[string]struct {
		get    []testkit.Reply
		status int // status of the last API error; 0: none
	}{
		"initializing":          {[]testkit.Reply{testkit.EndpointIs("initializing")}, 0},
		"then failing":          {[]testkit.Reply{testkit.EndpointIs("initializing"), testkit.EndpointIs("initializing"), testkit.Fails(503)}, 503},
		"failing, then running": {[]testkit.Reply{testkit.Fails(503), testkit.EndpointIs("initializing")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: tt.get}
				last, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Second), "svc-1", testkit.Every(100*time.Millisecond))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				e := testkit.ErrorAs[*svc.WaitError](t, err)
				require.Equal(t, "svc-1", e.ID)
				require.Equal(t, "available", e.Want)
				require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
				require.Same(t, last, e.Last)
				require.Len(t, s.Requests("GET"), e.Polls)
				require.InDelta(t, 11, e.Polls, 3)
				require.Equal(t, time.Second, e.Elapsed)
				for _, part := range []string{"svc-1", "available", `"initializing"`, "polls", "1s"} {
					require.ErrorContains(t, err, part)
				}
				var answer *svc.Error
				require.NotErrorAs(t, err, &answer, "LastErr did not end the wait")
				require.Equal(t, tt.status != 0, errors.As(e.LastErr, &answer))
				if tt.status != 0 {
					require.Equal(t, 503, answer.StatusCode)
					require.Equal(t, "scripted 503", answer.Message)
					require.Same(t, answer, e.LastErr)
					require.ErrorContains(t, err, "scripted 503")
				}
			})
		})
	}
}
