package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// dated lets a test change the headers of every response, such as Date.
func dated(change func(http.Header)) svc.Option {
	return around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			change(resp.Header)
		}
		return resp, err
	})
}

func TestReap(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		deploy := func(name string, lease time.Duration) string {
			s, err := c.InferenceServices.Deploy(w.Context(), request(name), &svc.DeployOptions{Key: name, Lease: lease})
			require.NoError(w, err)
			return s.ServiceID
		}
		short, long, none := deploy("short", time.Hour), deploy("long", 3*time.Hour), deploy("none", 0)
		reaped, err := c.Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.Empty(w, reaped)
		later(w, 2*time.Hour)
		reaped, err = w.client().Ledger.Reap(w.Context(), &svc.ReapOptions{DryRun: true})
		require.NoError(w, err)
		require.Len(w, reaped, 1)
		require.Equal(w, short, reaped[0].Entry.ServiceID)
		require.NoError(w, reaped[0].Err)
		require.Equal(w, 3, w.srv.RunningInstances(), "a dry run deletes nothing")
		reaped, err = w.client().Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.Len(w, reaped, 1)
		require.Equal(w, []string{long, none}, sortedIDs(w.srv.Endpoints(), func(e svctest.Endpoint) bool { return e.Billed }))
		reaped, err = w.client().Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.Empty(w, reaped, "the deletion is recorded")
	})
}

// If the endpoint is already deleted, Reap records this and sends no DELETE.
func TestReapFindsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
		require.NoError(w, err)
		require.NoError(w, w.client().InferenceServices.Delete(w.Context(), s.ServiceID))
		later(w, time.Hour)
		reaped, err := w.client().Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.Len(w, reaped, 1)
		require.EqualValues(w, ledger.Deleted, w.one().State)
		require.Equal(w, 1, w.srv.RequestCount("DELETE", svctest.RouteEndpoint))
	})
}

func TestReapInDoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		later(w, time.Hour)
		reaped, err := w.client().Ledger.Reap(w.Context(), nil)
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		require.Len(w, reaped, 1)
		require.ErrorIs(w, reaped[0].Err, svc.ErrOutcomeUnknown)
		require.Zero(w, w.srv.RequestCount("DELETE", svctest.RouteEndpoint))
	})
}

// Reap never deletes the endpoint of somebody else, nor an endpoint that is overdue only
// by a wrong clock.
func TestNeverReaped(t *testing.T) {
	overdue := func(w *world) (id string) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Hour})
		require.NoError(w, err)
		return s.ServiceID
	}
	for name, tc := range map[string]struct {
		prepare func(w *world) *svc.Client // called one and a half hours after the create
		early   bool                       // called only half an hour after the create
		reaped  int                        // number of entries that Reap reports
		want    error
		opts    []svctest.Option
	}{
		"its own":          {func(w *world) *svc.Client { return w.client() }, false, 1, nil, nil},
		"before the end":   {func(w *world) *svc.Client { return w.client() }, true, 0, nil, nil},
		"another ledger's": {func(w *world) *svc.Client { return w.srv.Client(svc.WithLedger(memory())) }, false, 0, nil, nil},
		"another base URL's": {func(w *world) *svc.Client {
			c, err := svc.NewClient(w.srv.URL()+"/other", svc.WithLedger(w.store), svc.WithToken(w.srv.Token()), svc.WithHTTPClient(w.srv.HTTPClient()))
			require.NoError(w, err)
			return c
		}, false, 0, nil, nil},
		"the service's clock is behind": {func(w *world) *svc.Client {
			return w.client(dated(func(h http.Header) { h.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)) }))
		}, false, 0, nil, nil},
		"no Date":             {func(w *world) *svc.Client { return w.client(dated(func(h http.Header) { h.Del("Date") })) }, false, 1, errAny, nil},
		"a Date that is none": {func(w *world) *svc.Client { return w.client(dated(func(h http.Header) { h.Set("Date", "today") })) }, false, 1, errAny, nil},
		"all of the service's clocks are a day ahead":  {func(w *world) *svc.Client { return w.client() }, true, 0, nil, []svctest.Option{svctest.WithClockOffset(24 * time.Hour)}},
		"all of the service's clocks are a day behind": {func(w *world) *svc.Client { return w.client() }, true, 0, nil, []svctest.Option{svctest.WithClockOffset(-24 * time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				id := overdue(w)
				after := 90 * time.Minute
				if tc.early {
					after = 30 * time.Minute
				}
				later(w, after)
				reaped, err := tc.prepare(w).Ledger.Reap(w.Context(), nil)
				require.Len(w, reaped, tc.reaped)
				require.Equal(w, tc.want != nil, err != nil, "%v", err)
				e, _ := w.srv.Endpoint(id)
				require.Equal(w, name == "its own", e.Deleted)
			}, tc.opts...)
		})
	}
	// Reap compares the mark in the endpoint's description with the entry.
	for name, tc := range map[string]struct {
		description func(e ledger.Entry) string
		adopted     bool
		deleted     bool
	}{
		"its mark":              {func(e ledger.Entry) string { return "d " + mark(e) }, false, true},
		"no mark":               {func(e ledger.Entry) string { return "d" }, false, true},
		"another mark":          {func(e ledger.Entry) string { return "d [svc:" + e.Intent[1:] + "A]" }, false, false},
		"adopted, its mark":     {func(e ledger.Entry) string { return "d " + mark(e) }, true, true},
		"adopted, no mark":      {func(e ledger.Entry) string { return "d" }, true, false},
		"adopted, another mark": {func(e ledger.Entry) string { return "[svc:" + e.Intent[1:] + "A]" }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				now := time.Now().UTC()
				e := ledger.Entry{Intent: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
				id := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1, Description: tc.description(e)})
				for _, r := range []ledger.Record{
					{Seq: 1, Event: ledger.Intended, BaseURL: w.srv.URL(), Name: "n", Instances: 1, SettleBy: now, Lease: time.Hour},
					{Seq: 2, Event: ledger.Created, ServiceID: id, Adopted: tc.adopted, ServiceTime: now},
				} {
					r.Key, r.Intent, r.At = "k", e.Intent, now
					require.NoError(w, w.store.Append(w.Context(), r))
				}
				later(w, 2*time.Hour)
				_, err := w.client().Ledger.Reap(w.Context(), nil)
				require.Equal(w, tc.deleted, err == nil)
				require.Equal(w, !tc.deleted, errors.Is(err, svc.ErrLedgerMark))
				got, _ := w.srv.Endpoint(id)
				require.Equal(w, tc.deleted, got.Deleted)
			})
		})
	}
}

// If a lease is extended while Reap reads the endpoint, the extension counts.
func TestReapReadsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
		require.NoError(w, err)
		later(w, time.Hour)
		c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == "GET" {
				require.NoError(w, w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(time.Hour)))
			}
			return next.RoundTrip(r)
		}))
		reaped, err := c.Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "extended")
		require.Len(w, reaped, 1)
		require.Equal(w, 1, w.srv.RunningInstances())
	})
}

// The same holds as long as the service has accepted no delete: Reap may try for two minutes.
func TestExtensionEndsTheDeletesOfReap(t *testing.T) {
	for name, accepted := range map[string]bool{"no delete was accepted": false, "a delete was accepted": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
				require.NoError(w, err)
				later(w, time.Hour)
				if !accepted {
					w.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.ServiceUnavailable(1<<20))
				}
				extended, e := make(chan error, 1), w.one()
				go func() {
					time.Sleep(10 * time.Second)
					extended <- w.client().Ledger.Extend(w.Context(), e, time.Now().Add(time.Hour))
					w.srv.ClearFaults()
				}()
				reaped, err := w.client().Ledger.Reap(w.Context(), nil)
				require.NoError(w, <-extended)
				require.Len(w, reaped, 1)
				if accepted {
					require.NoError(w, err)
					require.Zero(w, w.srv.RunningInstances())
					return
				}
				require.ErrorContains(w, err, "extended")
				require.Equal(w, 1, w.srv.RunningInstances())
				require.Len(w, w.srv.Endpoints(), 1)
			}, svctest.WithDeleteTime(20*time.Second))
		})
	}
}

// If an adoption is undone while Reap reads the endpoint, the endpoint is somebody else's.
func TestReapOfAnUndoneAdoption_D22(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		wrong := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
		_, err = w.client().Ledger.Adopt(w.Context(), w.one(), wrong, &svc.AdoptOptions{Unmarked: true})
		require.NoError(w, err)
		require.NoError(w, w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(time.Minute)))
		later(w, time.Hour)
		undone := false
		c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if strings.HasSuffix(r.URL.Path, wrong) && !undone {
				undone = true
				require.NoError(w, w.client().Ledger.UndoAdopt(w.Context(), w.one()))
			}
			return resp, err
		}))
		_, err = c.Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "another endpoint")
		require.True(w, undone)
		require.Zero(w, w.srv.RequestCount("DELETE", svctest.RouteEndpoint))
	})
}

// If a function of the caller panics or ends its goroutine, so does Reap: no endpoint is reported as deleted.
func TestReapWhoseHookPanicsReportsNothing(t *testing.T) {
	for name, stop := range map[string]func(){"panic": func() { panic("mine") }, "Goexit": runtime.Goexit} {
		for _, method := range []string{"GET", "DELETE"} {
			t.Run(name+" after "+method, func(t *testing.T) {
				inWorld(t, func(w *world) {
					for range 3 {
						_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
						require.NoError(w, err)
					}
					later(w, time.Hour)
					c := w.client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
						if a.Method == method && a.ID == "svc-2" {
							stop()
						}
					}))
					returned := false
					require.True(w, quits(func() { _, _ = c.Ledger.Reap(w.Context(), nil); returned = true }))
					require.False(w, returned)
				})
			})
		}
	}
}

// The lease of an adopted endpoint counts from created_at. If that is in a zone west of UTC and does not say so, it lies
// before the intent: then the lease counts from the intent, and is not over hours too early.
func TestLeaseOfAnAdoptedEndpointCountsFromItsIntentAtTheEarliest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		c := w.client()
		_, err := c.Flavors.List(w.Context()) // the client knows the service's time from then on
		require.NoError(w, err)
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: 4 * time.Hour})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		w.srv.SetField("svc-1", "created_at", time.Now().UTC().Add(-5*time.Hour).Format(time.DateTime))
		_, err = c.Ledger.Adopt(w.Context(), w.one(), "svc-1", nil)
		require.NoError(w, err)
		for _, running := range []int{1, 0} {
			later(w, 3*time.Hour)
			_, err = w.client().Ledger.Reap(w.Context(), nil)
			require.NoError(w, err)
			require.Equal(w, running, w.srv.RunningInstances())
		}
	})
}

// The Date of a response has whole seconds, so in the second in which a lease ends, the read may show
// that it has not ended. That is no failure: the next Reap deletes the endpoint.
func TestReapInTheSecondOfTheEnd_T03(t *testing.T) {
	for name, behind := range map[string]time.Duration{"the second of the end": time.Second, "another server, a little behind": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Minute})
				require.NoError(w, err)
				time.Sleep(time.Until(w.one().LeaseEnd) + time.Second)
				c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					resp, err := next.RoundTrip(r)
					if err == nil && strings.HasSuffix(r.URL.Path, w.one().ServiceID) {
						resp.Header.Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
					}
					return resp, err
				}))
				for _, dry := range []bool{true, false} {
					reaped, err := c.Ledger.Reap(w.Context(), &svc.ReapOptions{DryRun: dry})
					require.NoError(w, err)
					require.Empty(w, reaped)
				}
				require.Equal(w, 1, w.srv.RunningInstances())
				time.Sleep(behind + time.Second)
				reaped, err := c.Ledger.Reap(w.Context(), nil)
				require.NoError(w, err)
				require.Len(w, reaped, 1)
				require.Zero(w, w.srv.RunningInstances())
			})
		})
	}
}

// If the entry cannot be read a second time, nothing is deleted.
func TestReapWithoutLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
		require.NoError(w, err)
		later(w, time.Hour)
		broken := &faulty{Store: w.store}
		w.store = broken
		c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			broken.list = errDisk
			return next.RoundTrip(r)
		}))
		_, err = c.Ledger.Reap(w.Context(), nil)
		require.ErrorIs(w, err, errDisk)
		require.Equal(w, 1, w.srv.RunningInstances())
	})
}

// The end of a lease is a time of the service's clock. It does not matter what the clock of the
// process that deploys, or that reaps, says.
func TestLeaseEndsByTheServicesClock(t *testing.T) {
	for _, offset := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Hour})
				require.NoError(w, err)
				later(w, 59*time.Minute)
				reaped, err := w.client().Ledger.Reap(w.Context(), nil)
				require.NoError(w, err)
				require.Empty(w, reaped)
				require.NoError(w, w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(30*time.Minute)))
				later(w, 29*time.Minute)
				reaped, err = w.client().Ledger.Reap(w.Context(), nil)
				require.NoError(w, err)
				require.Empty(w, reaped, "the lease was extended")
				later(w, 2*time.Minute)
				reaped, err = w.client().Ledger.Reap(w.Context(), nil)
				require.NoError(w, err)
				require.Len(w, reaped, 1)
				e, _ := w.srv.Endpoint(s.ServiceID)
				require.True(w, e.Deleted)
			}, svctest.WithClockOffset(offset))
		})
	}
}

// What is overdue by an estimate is reported, whatever the service's clock says, and never deleted.
func TestLeaseOfUnknownBeginIsReported_D17(t *testing.T) {
	for _, offset := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		for name, tc := range map[string]struct {
			begin func(w *world) error
			want  error
		}{
			"outcome unknown": {func(w *world) error {
				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
				_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
				return err
			}, svc.ErrOutcomeUnknown},
			"a create without Date": {func(w *world) error {
				c := w.client(dated(func(h http.Header) { h.Del("Date") }))
				_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
				return err
			}, nil},
		} {
			t.Run(name+offset.String(), func(t *testing.T) {
				inWorld(t, func(w *world) {
					require.ErrorIs(w, tc.begin(w), tc.want)
					later(w, time.Hour)
					reaped, err := w.client().Ledger.Reap(w.Context(), nil)
					require.ErrorAs(w, err, new(*ledger.Error))
					require.Len(w, reaped, 1)
					require.Error(w, reaped[0].Err)
					require.Zero(w, w.srv.RequestCount("DELETE", svctest.RouteEndpoint))
				}, svctest.WithClockOffset(offset))
			})
		}
	}
}

// Nobody may rely on a lease that cannot be enforced.
func TestLeaseWithoutADateIsLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		logged := svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		c := w.client(logged, dated(func(h http.Header) { h.Del("Date") }))
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Hour})
		require.NoError(w, err)
		require.Contains(w, log.String(), "a lease cannot be enforced before Extend gives it an end")
		require.Contains(w, log.String(), "key=k")
	})
}

// If the service does not tell the time, Reap cannot know which leases have ended: it does not return nil.
func TestReapWithoutTheTimeIsNoSuccess(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: 100 * time.Hour})
		require.NoError(w, err)
		reaped, err := w.client(dated(func(h http.Header) { h.Del("Date") })).Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "the service's time is not known: the response has no Date header")
		require.Empty(w, reaped)
		w.srv.Fault("GET", svctest.RouteFlavors, slices.Repeat([]svctest.Fault{svctest.DropBeforeEffect()}, 20)...)
		_, err = w.client().Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "is not known: ")
	})
}

// An entry whose times lie in the future was written by a wrong clock. It is reported.
func TestEntryFromTheFutureIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		ahead := time.Now().UTC().Add(24 * time.Hour)
		for _, r := range []ledger.Record{
			{Key: "k", Seq: 1, Intent: "A", Event: ledger.Intended, BaseURL: w.srv.URL(), Name: "n", Lease: time.Hour, At: ahead, SettleBy: ahead.Add(5 * time.Minute)},
			{Key: "ok", Seq: 1, Intent: "B", Event: ledger.Intended, BaseURL: w.srv.URL(), Name: "n", At: time.Now().UTC(), SettleBy: time.Now().UTC()},
		} {
			require.NoError(w, w.store.Append(w.Context(), r))
		}
		for _, e := range w.entries() {
			require.Equal(w, e.Key == "k", e.Doubt != "", e.Key)
		}
		reaped, err := w.client().Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "24h0m0s in the future: a clock is wrong")
		require.Len(w, reaped, 1)
	})
}

// Records of earlier versions have the end of a lease by the clock of their process, and no time of
// the service. Reap reports them, and Extend gives them an end by the service's clock.
func TestRecordsOfEarlierVersions(t *testing.T) {
	inWorld(t, func(w *world) {
		now := time.Now().UTC()
		id := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
		for _, r := range []ledger.Record{
			{Seq: 1, Event: ledger.Intended, BaseURL: w.srv.URL(), Name: "n", Instances: 1, SettleBy: now, LeaseEnd: now.Add(time.Hour)},
			{Seq: 2, Event: ledger.Created, ServiceID: id},
		} {
			r.Key, r.Intent, r.At = "k", "A", now
			require.NoError(w, w.store.Append(w.Context(), r))
		}
		require.Equal(w, time.Hour, w.one().Lease)
		require.Equal(w, now.Add(time.Hour), w.one().LeaseEnd)
		require.Empty(w, w.one().TokenCheck)
		later(w, 50*time.Minute)
		reaped, err := w.client().Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.Empty(w, reaped)
		later(w, 11*time.Minute)
		reaped, err = w.client().Ledger.Reap(w.Context(), nil)
		require.ErrorContains(w, err, "had no Date header, so it is not known whether the lease has ended")
		require.Len(w, reaped, 1)
		require.EqualValues(w, ledger.Created, w.one().State)
		require.NoError(w, w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(time.Minute)))
		later(w, 2*time.Minute)
		_, err = w.client().Ledger.Reap(w.Context(), nil)
		require.NoError(w, err)
		require.EqualValues(w, ledger.Deleted, w.one().State)
	})
}

// Deletions that take long hold up no other endpoint: Reap sends all deletes before it waits.
func TestReapDeletesAllBeforeItWaits_D16(t *testing.T) {
	const n = 20
	inWorld(t, func(w *world) {
		for i := range n {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request(fmt.Sprint("n", i)), &svc.DeployOptions{Lease: time.Hour})
			require.NoError(w, err)
		}
		later(w, 2*time.Hour)
		start := time.Now()
		reaped, err := w.client().Ledger.Reap(w.Context(), nil)
		require.Error(w, err, "no deletion ends within its two minutes")
		require.Len(w, reaped, n)
		require.Less(w, time.Since(start), 10*time.Minute)
		deleted := make(map[string]bool)
		for _, r := range w.srv.Requests() {
			if r.Method == "DELETE" && r.Time.Sub(start) < 30*time.Second {
				deleted[r.Path] = true
			}
		}
		require.Len(w, deleted, n)
	}, svctest.WithDeleteTime(time.Hour))
}

// What fails for a moment must not keep Reap from its deletes, and what it could not settle is
// logged.
func TestReapEnduresWhatMayPass(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Minute})
		require.NoError(w, err)
		later(w, time.Hour)
		var log bytes.Buffer
		logged := svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		start, locked := time.Now(), 30*time.Second
		reap := func() error {
			c := w.client(logged, svc.WithTokenSource(func(context.Context) (string, error) {
				if time.Since(start) < locked {
					return "", errors.New("the vault is locked")
				}
				return w.srv.Token(), nil
			}))
			_, err := c.Ledger.Reap(w.Context(), nil)
			return err
		}
		require.NoError(w, reap())
		require.Zero(w, w.srv.RunningInstances())
		require.Empty(w, log.String())

		_, err = w.client().InferenceServices.Deploy(w.Context(), request("m"), &svc.DeployOptions{Key: "m", Lease: time.Minute})
		require.NoError(w, err)
		later(w, time.Hour)
		start, locked = time.Now(), time.Hour
		require.ErrorContains(w, reap(), "the vault is locked")
		require.Less(w, time.Since(start), 5*time.Minute)
		require.Equal(w, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
		for _, part := range []string{"level=WARN", "key=m", "name=m", "vault"} {
			require.Contains(w, log.String(), part)
		}
	})
}

// A deletion or a lower number of instances that the store cannot take is logged with the endpoint and the event: the call
// itself succeeds.
func TestRecordsThatTheStoreCannotTakeAreLogged(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inWorld(t, func(w *world) {
			store := &faulty{Store: w.store}
			w.store = store
			var log bytes.Buffer
			c := w.client(svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
			req := request("n")
			req.ResourceMetadata.TargetInstanceNumber = 2
			s, err := c.InferenceServices.Deploy(w.Context(), req, &svc.DeployOptions{Key: "k"})
			require.NoError(w, err)
			if store.n, store.times = 1, 1000; lost {
				store.list = errDisk
			}
			_, err = c.InferenceServices.ScaleAndWait(w.Context(), s.ServiceID, 1, nil)
			require.NoError(w, err)
			require.NoError(w, c.InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil))
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			require.Len(w, lines, 2)
			for i, event := range []ledger.Event{ledger.Scaled, ledger.Deleted} {
				for _, part := range []string{"level=WARN", "id=" + s.ServiceID + " ", "event=" + string(event) + " ", errDisk.Error()} {
					require.Contains(w, lines[i], part)
				}
			}
		})
	}
}

// Of two Reaps at once, the second ends as soon as the first has recorded the deletion. It has not read the
// endpoint, so by its own evidence it would have to wait for a long time.
func TestSecondReapEndsWithTheFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 3 {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Minute})
			require.NoError(w, err)
		}
		later(w, time.Hour)
		var group sync.WaitGroup
		var slower time.Duration
		for i := range 2 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 500 * time.Millisecond) // the first has sent its deletes
				began := time.Now()
				reaped, err := w.client().Ledger.Reap(w.Context(), nil)
				require.NoError(w, err)
				require.Len(w, reaped, 3)
				if i == 1 {
					slower = time.Since(began)
				}
			})
		}
		group.Wait()
		require.Less(w, slower, 10*time.Second)
		for _, e := range w.entries() {
			require.Equal(w, []ledger.Event{ledger.Intended, ledger.Created, ledger.Deleted}, w.events(e))
		}
	})
}
