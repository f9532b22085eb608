package waits_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

const foreign = "token-of-another-account"

// An ID that is not known for the token that is sent now may be mistyped or belong to another
// account, so no wait may say that it is deleted.
func TestUnknownIDIsNotDeleted_D01(t *testing.T) {
	calls := map[string]func(context.Context, *svc.InferenceServiceClient, string) error{
		"DeleteAndWait": func(ctx context.Context, c *svc.InferenceServiceClient, id string) error {
			return c.DeleteAndWait(ctx, id, nil)
		},
		"WaitUntilDeleted": func(ctx context.Context, c *svc.InferenceServiceClient, id string) error {
			return c.WaitUntilDeleted(ctx, id, nil)
		},
		"WaitUntilAvailable": func(ctx context.Context, c *svc.InferenceServiceClient, id string) error {
			_, err := c.WaitUntilAvailable(ctx, id, nil)
			return err
		},
	}
	for name, call := range calls {
		for who, token := range map[string]string{"mistyped": svctest.DefaultToken, "another account": foreign} {
			t.Run(name+"/"+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := svctest.NewInMemory(svctest.WithForeignToken(foreign))
					id := srv.AddEndpoint(svctest.Endpoint{Instances: 2})
					if token == svctest.DefaultToken {
						id += "x"
					}
					err := call(testkit.Within(t, time.Hour), srv.Client(svc.WithToken(token)).InferenceServices, id)
					require.ErrorIs(t, err, svc.ErrNotFound)
					require.ErrorContains(t, err, "not found with this token; it is deleted, its ID is mistyped, or it is of another account")
					require.InDelta(t, 41, testkit.ErrorAs[*svc.WaitError](t, err).Elapsed.Seconds(), 5)
					require.Equal(t, 2, srv.RunningInstances())
				})
			})
		}
	}
}

// A token source may switch to another account in the middle of a wait or of a cleanup.
func TestTokenOfAnotherAccountProvesNothing_D01(t *testing.T) {
	for _, returns := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithForeignToken(foreign), svctest.WithDeployTime(time.Hour))
			token := atomic.Value{}
			token.Store(srv.Token())
			c := srv.Client(svc.WithTokenSource(func(context.Context) (string, error) { return token.Load().(string), nil }))
			_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, &svc.DeployOptions{
				DeleteOnFailure: true, OnFailure: func(*svc.DeployError) bool {
					token.Store(foreign)
					if returns {
						time.AfterFunc(15*time.Second, func() { token.Store(srv.Token()) })
					}
					return true
				},
			})
			e := testkit.ErrorAs[*svc.DeployError](t, err)
			require.Equal(t, returns, e.Cleanup == svc.CleanupDeleted, "%v", err)
			require.Equal(t, returns, srv.RunningInstances() == 0)
			require.Equal(t, returns, e.CleanupErr == nil)
		})
	}
}

// A gateway may respond with "not found" for the path of the endpoint only.
func TestGatewayThatHidesAPathProvesNothing_D02(t *testing.T) {
	json, text := svctest.RouterNotFoundJSON(), svctest.RouterNotFound()
	page := svctest.ProxyPage(404)
	json.For, text.For, page.For = 8*time.Second, 20*time.Second, 20*time.Second
	for name, hides := range map[string]svctest.Fault{"JSON": json, "plain text": text, "page": page} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // during a wait
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute))
				time.AfterFunc(20*time.Second, func() { srv.Fault("*", svctest.RouteEndpoint, hides) })
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.NoError(t, err)
				require.NotZero(t, srv.RunningInstances())
			})
			synctest.Test(t, func(t *testing.T) { // during a cleanup, whose delete it refuses as well
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, 5*time.Second), testkit.Demo, &svc.DeployOptions{
					OnFailure: func(*svc.DeployError) bool { srv.Fault("*", svctest.RouteEndpoint, hides); return true },
				})
				e := testkit.ErrorAs[*svc.DeployError](t, err)
				require.Equal(t, e.Cleanup == svc.CleanupDeleted, srv.RunningInstances() == 0, "%v", err)
				require.Equal(t, svc.CleanupDeleted, e.Cleanup, "it is deleted as soon as the gateway lets the delete through")
			})
			synctest.Test(t, func(t *testing.T) { // during a DeleteAndWait
				srv := svctest.NewInMemory()
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				services := srv.Client().InferenceServices
				_, err := services.Get(t.Context(), id)
				require.NoError(t, err)
				srv.Fault("*", svctest.RouteEndpoint, hides)
				require.NoError(t, services.DeleteAndWait(testkit.Within(t, time.Hour), id, nil))
				require.Zero(t, srv.RunningInstances())
			})
		})
	}
}

// A cache may repeat a "not found" from before the endpoint existed, or from before it could be
// read.
func TestCopyOfANotFoundProvesNothing_D02(t *testing.T) {
	for _, keep := range []http.Header{{"Age": {"3"}}, {"Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}}, {"X-Request-Id": {"r1"}, "Date": nil}} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithDeployTime(5 * time.Minute))
			services := srv.Client().InferenceServices
			s, err := services.Create(t.Context(), testkit.Demo)
			require.NoError(t, err)
			_, err = services.Get(t.Context(), s.ServiceID)
			require.NoError(t, err)
			srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: `{"message":"none"}`, Header: keep, For: 2 * time.Minute})
			_, err = services.WaitUntilAvailable(testkit.Within(t, time.Hour), s.ServiceID, nil)
			require.NoError(t, err, "%v", keep)
			for _, r := range srv.Requests() {
				if r.Method == "GET" && r.Header.Get("Cache-Control") != "" {
					require.Equal(t, "no-cache", r.Header.Get("Cache-Control"))
				}
			}
		})
	}
}

// The limit of an attempt covers the token source: one that hangs must not end the polls.
func TestTokenSourceThatHangsDoesNotStopTheWait_D03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, asked := svctest.NewInMemory(svctest.WithDeployTime(time.Minute)), 0
		c := srv.Client(svc.WithTokenSource(func(ctx context.Context) (string, error) {
			if asked++; asked == 4 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return srv.Token(), nil
		}))
		start := time.Now()
		_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.NoError(t, err)
		require.Less(t, time.Since(start), 2*time.Minute)
	})
}

// The reads of a cleanup must leave time for its delete, also if the token source hangs once and
// the service is slow.
func TestSlowReadsDoNotKeepACleanupFromItsDelete_D03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, asked := svctest.NewInMemory(), 0
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 503, Delay: 9 * time.Second, Times: -1})
		c := srv.Client(svc.WithTokenSource(func(ctx context.Context) (string, error) {
			if asked++; asked == 3 { // of the create, of a read, of the delete
				<-ctx.Done()
				return "", ctx.Err()
			}
			return srv.Token(), nil
		}))
		_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
			DeleteOnFailure: true, OnCreate: func(*svc.InferenceService) error { return errors.New("no") },
		})
		require.Equal(t, svc.CleanupAccepted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup, "%v", err)
		require.Zero(t, srv.RunningInstances())
	})
}

// What fails for a moment in this process must neither end a wait nor keep a cleanup from
// sending its delete.
func TestLocalFailuresPass_D03(t *testing.T) {
	for name, broken := range map[string]func(now func() bool) svc.Option{
		"token source": func(now func() bool) svc.Option {
			return svc.WithTokenSource(func(context.Context) (string, error) {
				if now() {
					return "", errors.New("the vault is locked")
				}
				return svctest.DefaultToken, nil
			})
		},
		"token source without a token": func(now func() bool) svc.Option { // its file is being written, for example
			return svc.WithTokenSource(func(context.Context) (string, error) {
				return map[bool]string{false: svctest.DefaultToken}[now()], nil
			})
		},
		"rate limiter": func(now func() bool) svc.Option {
			return svc.WithRateLimiter(testkit.Limiter(func(context.Context) error {
				if now() {
					return errors.New("no more today")
				}
				return nil
			}))
		},
		"certificate": func(now func() bool) svc.Option {
			return svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper {
				return testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if now() {
						return nil, x509.UnknownAuthorityError{}
					}
					return next.RoundTrip(r)
				})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				within := func(from, to time.Duration) func() bool {
					return func() bool { d := time.Since(start); return d > from && d < to }
				}
				srv := svctest.NewInMemory(svctest.WithDeployTime(time.Minute))
				_, err := srv.Client(broken(within(10*time.Second, 50*time.Second))).InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, nil)
				require.NoError(t, err)

				start = time.Now()
				srv = svctest.NewInMemory(svctest.WithDeployTime(time.Hour))
				_, err = srv.Client(broken(within(10*time.Second, 30*time.Second))).InferenceServices.Deploy(testkit.Within(t, 10*time.Second), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
				require.Zero(t, srv.RunningInstances())
			})
		})
	}
}

// A rate limiter that lets nothing through must not keep the requests of a cleanup back.
func TestCleanupDoesNotAskTheLimiter_D03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, closed := svctest.NewInMemory(svctest.WithDeployTime(time.Hour)), false
		c := srv.Client(svc.WithRateLimiter(testkit.Limiter(func(ctx context.Context) error {
			if closed {
				<-ctx.Done()
			}
			return ctx.Err()
		})))
		_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, &svc.DeployOptions{
			OnFailure: func(*svc.DeployError) bool { closed = true; return true },
		})
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.Zero(t, srv.RunningInstances())
	})
}

// Not even if all hooks panic, so that only the last delete is left.
func TestDeleteAfterPanicsDoesNotAskTheLimiter_D03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, calls := svctest.NewInMemory(), 0
		c := srv.Client(svc.WithAttemptHook(func(context.Context, svc.Attempt) { panic("hook") }), svc.WithRateLimiter(testkit.Limiter(func(ctx context.Context) error {
			if calls++; calls > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		})))
		require.PanicsWithValue(t, "hook", func() {
			_, _ = c.InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		})
		require.Zero(t, srv.RunningInstances())
	})
}

// A failed wait matches ErrNotFound only if the endpoint is deleted or unknown.
func TestTimeoutIsNoNotFound_D05(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithCreateVisibilityDelay(time.Minute))
		_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, 5*time.Second), testkit.Demo, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, svc.ErrNotFound)

		srv = svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		services := srv.Client().InferenceServices
		_, err = services.Get(t.Context(), id)
		require.NoError(t, err)
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: `{}`, Times: -1})
		srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: 401, Body: `{}`, Times: -1})
		_, err = services.WaitUntilAvailable(testkit.Within(t, time.Hour), id, nil)
		require.ErrorIs(t, err, svc.ErrUnauthorized)
		require.NotErrorIs(t, err, svc.ErrNotFound)
		require.Equal(t, 401, testkit.ErrorAs[*svc.Error](t, err).StatusCode, "the 401 can be reached")
	})
}

// A wait for a condition ends when the record is deleted, whether the record says so or is not
// found. But the function is asked first.
func TestWaitForAConditionEndsWithTheEndpoint_D06(t *testing.T) {
	gone := svctest.Fault{Body: testkit.EndpointJSON("stopped", 0, `"is_deleted":true`), Times: -1}
	for name, fault := range map[string]svctest.Fault{"is_deleted": gone, "not found": {Status: 404, Body: `{}`, Times: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
				srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{}, fault)
				start, services := time.Now(), srv.Client().InferenceServices
				_, err := services.Wait(testkit.Within(t, time.Hour), id, func(s *svc.InferenceService) (bool, error) { return s.Status == "never", nil }, nil)
				require.ErrorIs(t, err, svc.ErrNotFound)
				require.Less(t, time.Since(start), 20*time.Second)
				if name == "is_deleted" {
					s, err := services.Wait(testkit.Within(t, time.Hour), id, func(s *svc.InferenceService) (bool, error) { return s.IsDeleted, nil }, nil)
					require.NoError(t, err)
					require.True(t, s.IsDeleted)
				}
			})
		})
	}
}

// A process that was suspended beyond its time limit polls once more before its verdict. In the
// bubble, a callback that sleeps suspends it.
func TestSuspendedProcessPollsOnceMore_D07(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it slept": 3 * time.Hour, "for a moment": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithDeployTime(30 * time.Minute))
				_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, 10*time.Minute), testkit.Demo, &svc.DeployOptions{
					DeleteOnFailure: true,
					WaitOptions: svc.WaitOptions{OnPoll: func(p svc.Poll) {
						if p.Number == 3 {
							time.Sleep(after)
						}
					}},
				})
				suspended := after > time.Hour
				require.Equal(t, suspended, err == nil, "%v", err)
				require.Equal(t, suspended, srv.RunningInstances() > 0)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a cancel is no deadline
		srv := svctest.NewInMemory(svctest.WithDeployTime(30 * time.Minute))
		_, err := srv.Client().InferenceServices.Deploy(testkit.CancelAfter(t, 10*time.Minute, nil), testkit.Demo, &svc.DeployOptions{
			WaitOptions: svc.WaitOptions{OnPoll: func(svc.Poll) { time.Sleep(3 * time.Hour) }},
		})
		require.ErrorIs(t, err, context.Canceled)
	})
	synctest.Test(t, func(t *testing.T) { // a cleanup sends another delete first
		srv, first := svctest.NewInMemory(svctest.WithDeployTime(time.Hour)), true
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 503})
		c := srv.Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
			if a.Method == http.MethodDelete && first {
				first = false
				time.Sleep(time.Hour)
			}
		}))
		_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Minute), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.NotEqual(t, svc.CleanupNone, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.Zero(t, srv.RunningInstances())
	})
}

// The record must show the number of instances that was asked for, 0 as well.
func TestScaleToZeroNeedsTheNumber_D08(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 3})
		srv.Fault("PUT", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
		srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Body: testkit.EndpointJSON("stopped", 3), Times: -1})
		_, err := srv.Client().InferenceServices.ScaleAndWait(testkit.Within(t, 5*time.Minute), id, 0, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A service may rewrite the name. Its response to the create shows the name of the endpoint.
func TestServiceThatRewritesNames_D24(t *testing.T) {
	for _, given := range []string{"my-app", "My App (eu-1)", "MY_APP"} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithNameRewrite(func(string) string { return given }), svctest.WithStatusPath(svctest.StatusUnavailable))
			req := testkit.Demo
			req.Name = "My App"
			_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), req, &svc.DeployOptions{DeleteOnFailure: true})
			require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup, given)
			require.Zero(t, srv.RunningInstances())

			srv = svctest.NewInMemory(svctest.WithNameRewrite(func(string) string { return given }))
			used := false
			require.NoError(t, srv.Client().InferenceServices.Use(testkit.Within(t, time.Hour), req, nil, func(context.Context, *svc.InferenceService) error { used = true; return nil }))
			require.True(t, used)
			require.Zero(t, srv.RunningInstances())
		})
	}
}

// The mark of the ledger shows whose endpoint it is, even if the name is beyond recognition, and even
// if the response to the create was cut off.
func TestCleanupOfAnEndpointWithTheMarkOfTheLedger(t *testing.T) {
	const composed = "caf\u00e9"
	for name, c := range map[string]struct {
		opts []svc.Option
		cut  bool
		want svc.Cleanup
	}{
		"marked":                          {want: svc.CleanupDeleted},
		"marked, and the response is cut": {cut: true, want: svc.CleanupDeleted},
		"not marked":                      {opts: []svc.Option{svc.WithoutLedgerMark()}, want: svc.CleanupFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithNameRewrite(func(string) string { return composed }), svctest.WithStatusPath(svctest.StatusUnavailable))
				if c.cut {
					srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{TruncateBody: true})
				}
				req := testkit.Demo
				req.Name = "cafe\u0301"
				_, err := srv.Client(append(c.opts, svc.WithLedger(ledger.Memory()))...).InferenceServices.Deploy(testkit.Within(t, time.Hour), req, &svc.DeployOptions{DeleteOnFailure: true})
				require.Equal(t, c.want, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup, err)
				require.Equal(t, c.want == svc.CleanupDeleted, srv.RunningInstances() == 0)
			})
		})
	}
}

// A cleanup that proved nothing is one line of level warn, with what identifies the endpoint.
func TestCleanupThatProvedNothingIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		srv := svctest.NewInMemory(svctest.WithStatusPath(svctest.StatusUnavailable))
		srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 503, Times: -1})
		c := srv.Client(svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		_, err := c.InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.Error(t, err)
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
		for _, part := range []string{"level=WARN", "id=svc-1", "name=" + testkit.Demo.Name, "cleanup=failed", "503"} {
			require.Contains(t, log.String(), part)
		}
	})
}

// How long it takes to prove a deletion.
func TestTimeOfADeletion(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory(svctest.WithDeleteTime(delay), svctest.WithStatusPath(svctest.StatusUnavailable))
			var failed time.Time
			_, err := srv.Client().InferenceServices.Deploy(testkit.Within(t, time.Hour), testkit.Demo, &svc.DeployOptions{
				OnFailure: func(*svc.DeployError) bool { failed = time.Now(); return true },
			})
			require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
			require.Less(t, time.Since(failed), 8*time.Second+2*delay)
			id, start := srv.AddEndpoint(svctest.Endpoint{Instances: 1}), time.Now()
			require.NoError(t, srv.Client().InferenceServices.DeleteAndWait(testkit.Within(t, time.Hour), id, nil))
			require.Less(t, time.Since(start), 8*time.Second+2*delay, fmt.Sprint(delay))
		})
	}
}

// A read by another call of the same client voids the "not found" that a wait has seen.
func TestReadByAnotherCallVoidsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		id, start := srv.AddEndpoint(svctest.Endpoint{Instances: 1}), time.Now()
		client := srv.Client()
		read := func() {
			srv.ClearFaults()
			_, err := client.InferenceServices.Get(t.Context(), id)
			require.NoError(t, err)
			srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 404, Body: `{"message":"no such service"}`, Times: -1})
		}
		read()
		time.AfterFunc(9*time.Second, read)
		require.NoError(t, client.InferenceServices.WaitUntilDeleted(t.Context(), id, nil))
		require.GreaterOrEqual(t, time.Since(start), 19*time.Second)
	})
}

// A 2xx response to a read may be the record, even if it cannot be read, so the "not found" before it
// prove nothing.
func TestResponseWithoutTheRecordVoidsNotFound(t *testing.T) {
	for name, unclear := range map[string]svctest.Fault{
		"a page": svctest.ProxyPage(200), "cut off": {TruncateBody: true},
		"odd": {Body: `{"service_id":"svc-1","status":"available","resource_metadata":{"target_instance_number":"many"}}`},
	} {
		for _, missing := range []svctest.Fault{svctest.RouterNotFound(), svctest.RouterNotFoundJSON()} {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory()
				id, client := srv.AddEndpoint(svctest.Endpoint{Instances: 1}), srv.Client()
				_, err := client.InferenceServices.Get(t.Context(), id)
				require.NoError(t, err)
				for range 1000 {
					srv.Fault("GET", svctest.RouteEndpoint, missing, unclear)
				}
				err = client.InferenceServices.WaitUntilDeleted(testkit.Within(t, 5*time.Minute), id, nil)
				require.ErrorIs(t, err, context.DeadlineExceeded, "%s: %d runs", name, srv.RunningInstances())
			})
		}
	}
}

// A request ID that all responses share comes from the request, so it does not show that a
// response is a copy.
func TestRequestIDOfTheRequestShowsNoCopy(t *testing.T) {
	for name, body := range map[string]string{"X-Request-Id": "", "X-Trace-Id": "", "in the body": `{"message":"not found","trace_id":"job-1"}`} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory()
			id, start := srv.AddEndpoint(svctest.Endpoint{Instances: 1}), time.Now()
			inner := srv.HTTPClient().Transport
			client := srv.Client(svc.WithHTTPClient(&http.Client{Transport: testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := inner.RoundTrip(r)
				if err != nil {
					return nil, err
				}
				switch {
				case body == "":
					resp.Header.Del("X-Request-Id")
					resp.Header.Set(name, "job-1")
				case resp.StatusCode == http.StatusNotFound:
					resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), -1
				case strings.HasSuffix(r.URL.Path, "/flavor"):
					resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(`{"flavor_list":[],"trace_id":"job-1"}`)), -1
				}
				return resp, nil
			})}))
			require.NoError(t, client.InferenceServices.DeleteAndWait(testkit.Within(t, time.Hour), id, nil), name)
			require.Less(t, time.Since(start), 8*time.Second)
		})
	}
}

// Two refusals that an outage separates are not one that persists.
func TestRefusalsBeforeAndAfterAnOutageDoNotEndAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
		time.AfterFunc(2*time.Minute, func() {
			srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 400, Body: `{"message":"no"}`}, svctest.Fault{Status: 503, Times: 30}, svctest.Fault{Status: 401, Body: `{"message":"no"}`})
		})
		_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
		require.NoError(t, err)
	})
}

// The ID in a server error may be of another endpoint, also if a panic ends the create.
func TestIDOfAServerErrorIsNotKnownAfterAPanic(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := svctest.NewInMemory()
			srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 500, Body: `{"service_id":"svc-9","name":"somebody else's"}`})
			client := srv.Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
				if a.Method == http.MethodPost && panics {
					panic("mine")
				}
			}))
			func() {
				defer func() { require.Equal(t, panics, recover() != nil) }()
				_, err := client.InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{DeleteOnFailure: true})
				require.Equal(t, "svc-9", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
			}()
			require.ErrorIs(t, client.InferenceServices.DeleteAndWait(testkit.Within(t, time.Hour), "svc-9", nil), svc.ErrNotFound)
		})
	}
}
