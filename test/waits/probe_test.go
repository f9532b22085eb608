package waits_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// askEndpoint sends a request to the endpoint itself, as a user would.
func askEndpoint(srv *svctest.Server) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := srv.HTTPClient().Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
}

func TestProbeHoldsTheWaitUntilTheEndpointResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warm := time.Now().Add(5 * time.Minute)
		model := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" || time.Now().Before(warm) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		srv := svctest.NewInMemory(svctest.WithBasePath("/api"), svctest.WithDeployTime(time.Minute), svctest.WithInferenceHandler(model))
		var polls []svc.Poll
		opts := &svc.DeployOptions{WaitOptions: svc.WaitOptions{Probe: askEndpoint(srv), OnPoll: func(p svc.Poll) { polls = append(polls, p) }}}
		service, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, opts)
		require.NoError(t, err)
		require.False(t, time.Now().Before(warm))
		require.Equal(t, svc.InferenceServiceStatusAvailable, service.Status)
		for _, p := range polls[:len(polls)-1] { // the probe runs when the status is "available", and Poll.Err has its error
			require.Equal(t, p.Status == "available", p.Err != nil)
			require.NotNil(t, p.Service)
			require.Positive(t, p.Next)
		}
		require.NoError(t, polls[len(polls)-1].Err)
		require.Greater(t, srv.RequestCount("GET", svctest.RouteInference), 5)
		for _, r := range srv.Requests() {
			if r.Route == svctest.RouteInference {
				require.Equal(t, "/api/inference-api/v1/inference_service/svc-1/health", r.Path)
				require.Empty(t, r.Header.Get("Authorization"))
			}
		}
	})
}

func TestProbeIsNotTheLastWord(t *testing.T) {
	down := errors.New("connection refused, said " + testkit.Token)
	never := func(context.Context, string) error { return down }
	for name, tt := range map[string]struct {
		get  []testkit.Reply
		want error
	}{
		"the status fails":  {[]testkit.Reply{testkit.EndpointIs("available"), testkit.EndpointIs("available"), testkit.EndpointIs("unavailable")}, svc.ErrUnavailable},
		"the time runs out": {[]testkit.Reply{testkit.EndpointIs("available")}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: tt.get}
				services := s.Services(t, svc.WithInferenceURL("https://inference.test"))
				last, err := services.WaitUntilAvailable(testkit.Within(t, time.Minute), "svc-1", &svc.WaitOptions{Probe: never})
				require.ErrorIs(t, err, tt.want)
				require.NotNil(t, last)
				e := testkit.ErrorAs[*svc.WaitError](t, err)
				require.Len(t, s.Requests("GET"), e.Polls)
				if errors.Is(tt.want, context.DeadlineExceeded) {
					require.ErrorIs(t, e.LastErr, down)
					require.ErrorContains(t, err, "probe: connection refused")
				}
				require.NotContains(t, fmt.Sprintf("%v %+v", err, e.LastErr), testkit.Token)
			})
		})
	}
}

func TestProbeThatHangs(t *testing.T) {
	hang := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) { // a probe is cancelled after 30 s, which means "not yet"
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available"), testkit.EndpointIs("available"), testkit.EndpointIs("unavailable")}}
		services := s.Services(t, svc.WithInferenceURL("https://inference.test"))
		start := time.Now()
		_, err := services.WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", &svc.WaitOptions{Probe: hang})
		require.ErrorIs(t, err, svc.ErrUnavailable)
		require.InDelta(t, 62500*time.Millisecond, time.Since(start), float64(time.Second))
	})
	synctest.Test(t, func(t *testing.T) { // a probe that blocks does not delay the end of ctx
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("available")}}
		services := s.Services(t, svc.WithInferenceURL("https://inference.test"))
		start := time.Now()
		_, err := services.WaitUntilAvailable(testkit.CancelAfter(t, 5*time.Second, nil), "svc-1", &svc.WaitOptions{Probe: hang})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestProbeNeedsAnAddress(t *testing.T) {
	for name := range allWaits(nil, nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := alwaysInitializing()
				opts := &svc.WaitOptions{Probe: func(context.Context, string) error { return nil }}
				start := time.Now()
				err := allWaits(s.Services(t), opts)[name](testkit.Within(t, time.Minute))
				if name == "Wait" {
					require.ErrorAs(t, err, new(*svc.ValidationError), "Wait has no probe, and must not ignore one")
					return
				}
				if name == "WaitUntilDeleted" { // nothing is left to probe
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				require.ErrorContains(t, err, "WithInferenceURL")
				require.Zero(t, time.Since(start))
				require.Empty(t, s.Seen, "no request is sent if the wait cannot work")
			})
		})
	}
}

func TestScaleAndWaitBelievesNoStaleRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		before svctest.Endpoint
		to     int
		want   svc.InferenceServiceStatus
	}{
		"up":                {svctest.Endpoint{Instances: 1}, 3, svc.InferenceServiceStatusAvailable},
		"down":              {svctest.Endpoint{Instances: 3}, 1, svc.InferenceServiceStatusAvailable},
		"to zero":           {svctest.Endpoint{Instances: 2}, 0, svc.InferenceServiceStatusStopped},
		"from zero":         {svctest.Endpoint{Instances: 0}, 2, svc.InferenceServiceStatusAvailable},
		"after a failure":   {svctest.Endpoint{Instances: 1, Status: svctest.StatusUnavailable}, 2, svc.InferenceServiceStatusAvailable},
		"to what it is now": {svctest.Endpoint{Instances: 2}, 2, svc.InferenceServiceStatusAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithStaleReads(time.Minute), svctest.WithDeployTime(10*time.Second))
				id := srv.AddEndpoint(tt.before)
				start := time.Now()
				service, err := srv.Client().InferenceServices.ScaleAndWait(testkit.Within(t, time.Hour), id, tt.to, nil)
				require.NoError(t, err)
				require.Equal(t, tt.want, service.Status)
				require.EqualValues(t, tt.to, service.ResourceMetadata.TargetInstanceNumber)
				require.Equal(t, tt.to, srv.RunningInstances())
				if tt.before.Instances != tt.to {
					require.GreaterOrEqual(t, time.Since(start), time.Minute)
				}
				require.Equal(t, 1, srv.RequestCount("PUT", svctest.RouteEndpoint))
			})
		})
	}
}

func TestScaleAndWaitEnds(t *testing.T) {
	shows := func(status string, instances int, fields ...string) testkit.Reply {
		return testkit.Reply{Body: testkit.EndpointJSON(status, instances, fields...)}
	}
	for name, tt := range map[string]struct {
		to    int
		get   []testkit.Reply
		want  error
		polls int
	}{
		"failed":                        {3, []testkit.Reply{shows("available", 1), shows("initializing", 3), shows("unavailable", 3)}, svc.ErrUnavailable, 3},
		"stopped":                       {3, []testkit.Reply{shows("stopped", 3)}, svc.ErrStopped, 1},
		"stopped, from before":          {3, []testkit.Reply{shows("stopped", 0), shows("available", 3)}, nil, 2},
		"unavailable, from before":      {3, []testkit.Reply{shows("unavailable", 1), shows("initializing", 3), shows("available", 3)}, nil, 3},
		"available, from before":        {3, []testkit.Reply{shows("available", 1), shows("available", 1), shows("available", 3)}, nil, 3},
		"to zero, from before":          {0, []testkit.Reply{shows("available", 1), shows("stopped", 1), shows("initializing", 0), shows("stopped", 0)}, nil, 4},
		"to zero, available":            {0, []testkit.Reply{shows("available", 0)}, nil, 1},
		"to zero, failed":               {0, []testkit.Reply{shows("unavailable", 0)}, svc.ErrUnavailable, 1},
		"deleted, from before or not":   {3, []testkit.Reply{shows("available", 1, `"is_deleted":true`)}, svc.ErrNotFound, 1},
		"deleted, showing the change":   {3, []testkit.Reply{shows("available", 3, `"is_deleted":true`)}, svc.ErrNotFound, 1},
		"deleted is not zero instances": {0, []testkit.Reply{shows("stopped", 0, `"is_deleted":true`)}, svc.ErrNotFound, 1},
		"it never shows the change":     {3, []testkit.Reply{shows("available", 1)}, context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Put: []testkit.Reply{shows("initializing", tt.to)}, Get: tt.get}
				service, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", tt.to, nil)
				require.ErrorIs(t, err, tt.want)
				require.NotNil(t, service)
				if tt.polls > 0 {
					require.Len(t, s.Requests("GET"), tt.polls)
				}
				if tt.want != nil {
					want := fmt.Sprintf("available with %d instances", tt.to)
					require.Equal(t, want, testkit.ErrorAs[*svc.WaitError](t, err).Want)
				}
			})
		})
	}
}

func TestScaleAndWaitThatCannotScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Put: []testkit.Reply{testkit.Fails(409)}}
		_, err := s.Services(t).ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", 3, nil)
		require.ErrorIs(t, err, svc.ErrConflict)
		_, err = s.Services(t).ScaleAndWait(testkit.Within(t, time.Hour), "svc-1", -1, nil)
		require.ErrorAs(t, err, new(*svc.ValidationError))
		require.Empty(t, s.Requests("GET"), "there is nothing to wait for")
	})
}

func TestScaleAndWaitSurvivesALostResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute))
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		srv.Fault("PUT", svctest.RouteEndpoint, svctest.DropAfterEffect(), svctest.ServiceUnavailable(2))
		service, err := srv.Client().InferenceServices.ScaleAndWait(testkit.Within(t, time.Hour), id, 4, nil)
		require.NoError(t, err)
		require.EqualValues(t, 4, service.ResourceMetadata.TargetInstanceNumber)
		require.Equal(t, 4, srv.RunningInstances())
	})
}

// An endpoint without instances cannot respond to a probe.
func TestScaleAndWaitToZeroAsksNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		asked := 0
		opts := &svc.WaitOptions{Probe: func(ctx context.Context, url string) error {
			asked++
			return askEndpoint(srv)(ctx, url)
		}}
		services := srv.Client().InferenceServices
		_, err := services.ScaleAndWait(testkit.Within(t, time.Hour), id, 0, opts)
		require.NoError(t, err)
		require.Zero(t, asked)
		_, err = services.ScaleAndWait(testkit.Within(t, time.Hour), id, 2, opts)
		require.NoError(t, err)
		require.Equal(t, 1, asked)
	})
}
