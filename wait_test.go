package svc_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// wtWaits are all ways to wait for svc-1; each starts a wait that only the end
// of its ctx ends, as long as the service shows it initializing.
func wtWaits(c *svc.InferenceServiceClient, opts *svc.WaitOptions) map[string]func(context.Context) error {
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
		"WaitAll": func(ctx context.Context) (last error) {
			for _, err := range c.WaitAll(ctx, []string{"svc-1"}, opts) {
				last = err
			}
			return last
		},
		"Deploy": func(ctx context.Context) error {
			_, err := c.Deploy(ctx, wtDemo, &svc.DeployOptions{WaitOptions: *opts})
			return err
		},
	}
}

func wtInitializing() *byMethod {
	is := []reply{wtIs("initializing")}
	return &byMethod{get: is, put: is, post: is}
}

func TestB06_CancelEndsEveryWaitAtOnce(t *testing.T) {
	for name := range wtWaits(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := wtInitializing()
				wait := wtWaits(s.services(t), wtEvery(time.Hour))[name]
				interrupt := errors.New("interrupted by the user")
				start := time.Now()
				err := wait(wtCancelAfter(t, 100*time.Millisecond, interrupt))
				require.Equal(t, 100*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, interrupt)
				require.ErrorContains(t, err, "svc-1")
				require.Len(t, s.requests("GET"), 1)
				time.Sleep(2 * time.Hour)
				require.Len(t, s.requests("GET"), 1, "it went on after it had returned")
			})
		})
	}
}

func TestB06_DeadContextSendsNothing(t *testing.T) {
	for name := range wtWaits(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := wtInitializing()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				start := time.Now()
				err := wtWaits(s.services(t), &svc.WaitOptions{})[name](ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, time.Since(start))
				require.Empty(t, s.seen)
			})
		})
	}
}

// A look that is out when the ctx ends is given up, not waited for.
func TestB06_CancelDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{wtIs("initializing"), {body: wtRecord("available", 1), after: 20 * time.Second}}}
		start := time.Now()
		last, err := s.services(t).WaitUntilAvailable(wtCancelAfter(t, 5*time.Second, nil), "svc-1", nil)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
		require.Equal(t, 1, errorAs[*svc.WaitError](t, err).Polls, "a look without a result is none")
	})
}

func TestB23_OneBadPollDoesNotEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{}
		s.get = append(s.get, wtIs("initializing"))
		s.get = append(s.get, wtTimes(6, reply{status: 502, body: "<html><body>Bad Gateway</body></html>"})...)
		s.get = append(s.get, wtTimes(2, reply{err: errReset})...)
		s.get = append(s.get, wtCode(429, "Retry-After", "2"), wtIs("initializing"), wtIs("available"))
		services := s.services(t, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
		service, err := services.WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", wtEvery(100*time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
		gaps := s.gaps()
		require.Len(t, gaps, 11)
		require.GreaterOrEqual(t, gaps[9], 2*time.Second, "after the 429")
		for i, gap := range gaps {
			if i != 9 {
				require.InDelta(t, 100*time.Millisecond, gap, float64(20*time.Millisecond), "gap %d", i)
			}
		}
	})
}

// A proxy's page instead of a record passes, but is the truth when it stays; a
// record in between starts the count anew.
func TestB23_SuccessResetsTheFailureCount(t *testing.T) {
	page := reply{body: "<html>please log in</html>"}
	other := reply{body: `{"service_id":"svc-2","status":"available"}`}
	for name, junk := range map[string]reply{"page": page, "empty": {}, "another record": other, "no id": {body: `{"status":"available"}`}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				five, six := wtTimes(5, junk), wtTimes(6, junk)
				s := &byMethod{get: append(append(append(five, wtIs("initializing")), five...), wtIs("available"))}
				_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
				require.NoError(t, err)
				require.Len(t, s.requests("GET"), 12)

				s = &byMethod{get: append(append([]reply{wtIs("initializing")}, six...), wtIs("available"))}
				last, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
				require.ErrorAs(t, err, new(*svc.DecodeError))
				require.ErrorAs(t, errorAs[*svc.WaitError](t, err).Err, new(*svc.DecodeError))
				require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
				require.Len(t, s.requests("GET"), 7)
			})
		})
	}
}

func TestB24_FailureStatesEndTheWait(t *testing.T) {
	failed := reply{body: wtRecord("unavailable", 1, `"status_info":"image pull failed"`)}
	deleted := reply{body: wtRecord("available", 1, `"is_deleted":true,"deleted_at":"2024-06-01 10:11:12"`)}
	for name, tt := range map[string]struct {
		get   []reply
		want  error
		looks int
	}{
		"unavailable at once":     {[]reply{failed}, svc.ErrUnavailable, 1},
		"unavailable later":       {[]reply{wtIs("initializing"), failed}, svc.ErrUnavailable, 2},
		"unavailable, then fine":  {[]reply{failed, wtIs("available")}, svc.ErrUnavailable, 1},
		"available at once":       {[]reply{wtIs("available")}, nil, 1},
		"stopped":                 {[]reply{wtIs("stopped")}, svc.ErrStopped, 1},
		"deleted, though running": {[]reply{wtIs("initializing"), deleted}, svc.ErrNotFound, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: tt.get}
				start := time.Now()
				last, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", wtEvery(10*time.Second))
				require.Len(t, s.requests("GET"), tt.looks)
				require.LessOrEqual(t, time.Since(start), time.Duration(tt.looks-1)*12*time.Second)
				require.NotNil(t, last)
				require.Equal(t, "svc-1", last.ServiceID)
				require.ErrorIs(t, err, tt.want)
				if tt.want == nil {
					return
				}
				e := errorAs[*svc.WaitError](t, err)
				require.Same(t, last, e.Last)
				require.Equal(t, "available", e.Want)
				require.Equal(t, tt.looks, e.Polls)
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

func TestB25_UnknownStatusMeansNotYet(t *testing.T) {
	scaling := reply{body: `{"service_id":"svc-1","status":"scaling","payment_type":"cny","service_type":"x",
		"resource_metadata":{"scale_type":"auto","target_instance_number":1}}`}
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{scaling, scaling, wtIs("available")}}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		require.NoError(t, err)
		require.Len(t, s.requests("GET"), 3)
	})
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{scaling}}
		last, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Minute), "svc-1", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `"scaling"`)
		require.Equal(t, "scaling", errorAs[*svc.WaitError](t, err).History[0].Status)
		again, err := json.Marshal(last)
		require.NoError(t, err)
		for _, value := range []string{`"scaling"`, `"cny"`, `"auto"`, `"x"`} {
			require.Contains(t, string(again), value)
		}
	})
}

func TestB26_NotFoundRightAfterCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // readable after a while
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(10*time.Second), svctest.WithDeployTime(time.Minute))
		service, err := srv.Client().InferenceServices.Deploy(wtWithin(t, time.Hour), wtDemo, nil)
		require.NoError(t, err)
		require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
		require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
	})
	for name, tt := range map[string]struct {
		grace    time.Duration
		from, to time.Duration // when the wait ends
	}{
		"default":     {0, 30 * time.Second, 48 * time.Second},
		"shorter":     {5 * time.Second, 5 * time.Second, 12 * time.Second},
		"none at all": {-1, time.Second, time.Second},
	} {
		t.Run("never found, grace "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{post: []reply{wtIs("initializing")}, get: []reply{wtCode(404)}}
				start := time.Now()
				service, err := s.services(t).Deploy(wtWithin(t, time.Hour), wtDemo,
					&svc.DeployOptions{WaitOptions: svc.WaitOptions{NotFoundGrace: tt.grace}})
				require.GreaterOrEqual(t, time.Since(start), tt.from)
				require.LessOrEqual(t, time.Since(start), tt.to)
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, "svc-1", errorAs[*svc.DeployError](t, err).ServiceID)
				require.Equal(t, "svc-1", service.ServiceID)
			})
		})
	}
}

func TestB26_OtherCallsTakeNotFoundAtItsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{wtCode(404), wtIs("available")}}
		_, err := s.services(t).Get(t.Context(), "svc-1")
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.Len(t, s.requests("GET"), 1, "a plain read")

		s = &byMethod{get: []reply{wtCode(404), wtCode(404), wtIs("available")}}
		_, err = s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, svc.ErrNotFound)
		require.Len(t, s.requests("GET"), 2, "a wait for what another client created has no grace by itself")

		s = &byMethod{get: []reply{wtCode(404), wtIs("available")}}
		_, err = s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", &svc.WaitOptions{NotFoundGrace: 5 * time.Second})
		require.NoError(t, err)
	})
}

func TestB27_TimeoutTellsTheStory(t *testing.T) {
	for name, tt := range map[string]struct {
		get    []reply
		status int // of the last API error; 0: there is none
	}{
		"initializing":          {[]reply{wtIs("initializing")}, 0},
		"then failing":          {[]reply{wtIs("initializing"), wtIs("initializing"), wtCode(503)}, 503},
		"failing, then running": {[]reply{wtCode(503), wtIs("initializing")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: tt.get}
				last, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Second), "svc-1", wtEvery(100*time.Millisecond))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				e := errorAs[*svc.WaitError](t, err)
				require.Equal(t, "svc-1", e.ID)
				require.Equal(t, "available", e.Want)
				require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
				require.Same(t, last, e.Last)
				require.Len(t, s.requests("GET"), e.Polls)
				require.InDelta(t, 11, e.Polls, 3)
				require.Equal(t, time.Second, e.Elapsed)
				for _, part := range []string{"svc-1", "available", `"initializing"`, "polls", "1s"} {
					require.ErrorContains(t, err, part)
				}
				var answer *svc.Error
				require.Equal(t, tt.status != 0, errors.As(err, &answer))
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
