package ledger_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

func TestCreateIsRecorded(t *testing.T) {
	inWorld(t, func(w *world) {
		start := time.Now().UTC()
		s, err := w.client().InferenceServices.Create(w.Context(), request("n"))
		require.NoError(w, err)
		e := w.one()
		require.Equal(w, []ledger.Event{ledger.Intended, ledger.Created}, w.events(e))
		require.Equal(w, s.ServiceID, e.ServiceID)
		require.Equal(w, mark(e)+" of a test", s.Description)
		require.Regexp(w, `^[a-z2-7]{26}$`, e.Key)
		require.Equal(w, w.srv.URL(), e.BaseURL)
		require.Equal(w, "n", e.Name)
		require.Equal(w, "flavor-a", e.FlavorID)
		require.Equal(w, 1, e.Instances)
		require.Equal(w, start, e.RequestedAt)
		require.Equal(w, start.Add(5*time.Minute), e.SettleBy)
		require.True(w, e.LeaseEnd.IsZero())
	})
}

func TestWithoutLedgerMark(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client(svc.WithoutLedgerMark()).InferenceServices.Create(w.Context(), request("n"), svc.WithBodyField("resource_metadata.target_instance_number", 3))
		require.NoError(w, err)
		require.Equal(w, "of a test", s.Description)
		require.Equal(w, 3, w.one().Instances)
	})
}

func TestDescriptionThatIsNoText(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Create(w.Context(), request("n"), svc.WithBodyField("description", 7))
		require.ErrorAs(w, err, new(*svc.ValidationError))
		require.Empty(w, w.entries())
		require.Zero(w, w.creates())
	})
}

// The outcome of a create decides which record is written.
func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		fault svctest.Fault
		event ledger.Event
		id    string
	}{
		"refused":                {svctest.Fault{Status: 422, Body: `{"message":"no"}`}, ledger.Refused, ""},
		"lost":                   {svctest.DropAfterEffect(), ledger.Unknown, ""},
		"500":                    {svctest.Fault{Status: 500}, ledger.Unknown, ""},
		"500 with an ID":         {svctest.Fault{Status: 500, Body: `{"service_id":"svc-77"}`}, ledger.Unknown, "svc-77"},
		"cut behind the ID":      {svctest.Fault{TruncateBody: true}, ledger.Created, "svc-1"},
		"an HTML page":           {svctest.Fault{Status: 200, Body: "<html>"}, ledger.Unknown, ""},
		"a 403 page":             {svctest.ProxyPage(403), ledger.Unknown, ""},
		"an XML page":            {svctest.Fault{Status: 400, Body: "<?xml version=\"1.0\"?><Error/>"}, ledger.Unknown, ""},
		"a 403 in plain text":    {svctest.Fault{Status: 403, Body: "no"}, ledger.Refused, ""},
		"a router without route": {svctest.Fault{Status: 404, Body: "404 page not found"}, ledger.Refused, ""},
		"a proxy wants a login":  {svctest.ProxyPage(407), ledger.Refused, ""},
		"a redirect":             {svctest.Redirect(302, "https://elsewhere.example"), ledger.Unknown, ""},
		"429, then the deadline": {svctest.RateLimited("3600"), ledger.Refused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.srv.Fault("POST", svctest.RouteEndpoints, tc.fault)
				_, err := w.client().InferenceServices.Create(w.Context(), request("n"))
				require.Error(w, err)
				e := w.one()
				require.EqualValues(w, tc.event, e.State, "%v", err)
				require.Equal(w, tc.id, e.ServiceID)
				unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err)
				require.Equal(w, tc.event != ledger.Refused, ok)
				if ok {
					require.Equal(w, e.Key, unknown.Key)
					require.Equal(w, e.Intent, unknown.Intent)
				}
			})
		})
	}
}

func TestNothingIsRecordedOfWhatIsNotSent(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Create(w.Context(), svc.CreateInferenceServiceRequest{})
		require.ErrorAs(w, err, new(*svc.ValidationError))
		require.Empty(w, w.entries())
		c, err := svc.NewClient(w.srv.URL(), svc.WithLedger(w.store), svc.WithHTTPClient(w.srv.HTTPClient()))
		require.NoError(w, err)
		_, err = c.InferenceServices.Create(w.Context(), request("n"))
		require.ErrorIs(w, err, svc.ErrNoToken)
		require.Empty(w, w.entries())
	})
}

func TestNoLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.srv.Client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrNoLedger)
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Hour})
		require.ErrorIs(w, err, svc.ErrNoLedger)
		_, err = c.Ledger.Entries(w.Context())
		require.ErrorIs(w, err, svc.ErrNoLedger)
		_, err = c.Ledger.Adopt(w.Context(), ledger.Entry{}, "svc-1", nil)
		require.ErrorIs(w, err, svc.ErrNoLedger)
		_, err = c.Ledger.Reap(w.Context(), nil)
		require.ErrorIs(w, err, svc.ErrNoLedger)
		require.ErrorIs(w, c.Ledger.Forget(w.Context(), ledger.Entry{}), svc.ErrNoLedger)
		require.ErrorIs(w, c.Ledger.Extend(w.Context(), ledger.Entry{}, time.Time{}), svc.ErrNoLedger)
		require.ErrorIs(w, c.Ledger.Prune(w.Context(), time.Time{}), svc.ErrNoLedger)
		require.Empty(w, w.srv.Requests())
	})
}

func TestBadOptions(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, key := range []string{"A", "a b", "../x", strings.Repeat("k", 65), "ä"} {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: key})
			require.ErrorAs(w, err, new(*svc.ValidationError))
		}
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: -1})
		require.ErrorAs(w, err, new(*svc.ValidationError))
		err = w.client().InferenceServices.Use(w.Context(), request("n"), &svc.DeployOptions{Key: "k"}, func(context.Context, *svc.InferenceService) error { return nil })
		require.ErrorAs(w, err, new(*svc.ValidationError))
		require.Empty(w, w.srv.Requests())
	})
}

// Without a key, three equal Deploys create three endpoints, as they do without a ledger.
func TestWithoutAKey(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 3 {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), nil)
			require.NoError(w, err)
		}
		require.Equal(w, 3, w.srv.RunningInstances())
		require.Len(w, w.entries(), 3)
	})
}

func TestStoreFailsBeforeTheCreate(t *testing.T) {
	for name, written := range map[string]bool{"not written": false, "written after all": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				inner := w.store
				w.store = &faulty{Store: inner, n: 1, times: 1, written: written}
				_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.ErrorIs(w, err, errDisk)
				require.ErrorAs(w, err, new(*ledger.Error))
				require.Zero(w, w.creates())
				w.store = inner
				for _, e := range w.entries() {
					require.EqualValues(w, ledger.Refused, e.State)
				}
				_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.NoError(w, err, "the key is free")
			})
		})
	}
	t.Run("cannot be read", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, list: errDisk}
			_, err := w.client().InferenceServices.Create(w.Context(), request("n"))
			require.ErrorIs(w, err, errDisk)
			require.Zero(w, w.creates())
		})
	})
	t.Run("a damaged key", func(t *testing.T) {
		inWorld(t, func(w *world) {
			require.NoError(w, w.store.Append(w.Context(), ledger.Record{Key: "k", Seq: 1, Event: "paused"}))
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
			require.ErrorContains(w, err, "unknown event")
			require.Zero(w, w.creates())
			_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "other"})
			require.NoError(w, err)
			entries, err := w.client().Ledger.Entries(w.Context())
			require.ErrorContains(w, err, "unknown event")
			require.Len(w, entries, 1)
		})
	})
}

func TestStoreFailsAfterTheCreate(t *testing.T) {
	t.Run("for a moment", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, n: 2, times: 2}
			_, err := w.client().InferenceServices.Create(w.Context(), request("n"))
			require.NoError(w, err)
			require.EqualValues(w, ledger.Created, w.one().State)
		})
	})
	t.Run("Create", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, n: 2, times: 3}
			s, err := w.client().InferenceServices.Create(w.Context(), request("n"))
			require.NotNil(w, s)
			require.Equal(w, "svc-1", s.ServiceID)
			behind, ok := errors.AsType[*ledger.Error](err)
			require.True(w, ok)
			require.Equal(w, "svc-1", behind.ServiceID)
			require.ErrorContains(w, err, "svc-1")
			require.ErrorIs(w, err, errDisk)
			require.EqualValues(w, ledger.Intended, w.one().State)
		})
	})
	t.Run("Deploy", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, n: 2, times: 3}
			var told string
			errMine := errors.New("mine")
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{DeleteOnFailure: true, OnCreate: func(s *svc.InferenceService) error {
				told = s.ServiceID
				return errMine
			}})
			require.Equal(w, "svc-1", told, "OnCreate must be called")
			failed, ok := errors.AsType[*svc.DeployError](err)
			require.True(w, ok)
			require.Equal(w, "svc-1", failed.ServiceID)
			require.Equal(w, svc.CleanupDeleted, failed.Cleanup)
			require.ErrorIs(w, err, errDisk)
			require.ErrorIs(w, err, errMine)
			require.Zero(w, w.srv.RunningInstances())
		})
	})
	t.Run("Deploy again", func(t *testing.T) { // the client knows the outcome, so the key is not in doubt
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, n: 2, times: 3}
			c, start := w.client(), time.Now()
			_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
			require.ErrorIs(w, err, errDisk)
			s, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
			require.NoError(w, err)
			require.Equal(w, "svc-1", s.ServiceID)
			require.Less(w, time.Since(start), time.Minute)
			require.Equal(w, []ledger.Event{ledger.Intended, ledger.Created}, w.events(w.one()))
		})
	})
	t.Run("refused", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.store = &faulty{Store: w.store, n: 2, times: 3}
			w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 422})
			_, err := w.client().InferenceServices.Create(w.Context(), request("n"))
			require.ErrorAs(w, err, new(*svc.Error))
			require.ErrorAs(w, err, new(*ledger.Error))
			require.EqualValues(w, ledger.Intended, w.one().State)
		})
	})
}

// hanging is a store that stops responding. It delays the end of a create by five
// seconds.
type hanging struct {
	ledger.Store
	after atomic.Int64
}

func (h *hanging) Append(ctx context.Context, r ledger.Record) error {
	if h.after.Add(-1) < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.Append(ctx, r)
}

func TestStoreHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		h := &hanging{Store: w.store}
		h.after.Store(1)
		w.store = h
		start := time.Now()
		s, err := w.client().InferenceServices.Create(w.Context(), request("n"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotNil(w, s)
		require.Equal(w, 5*time.Second, time.Since(start))
	})
}

// After SettleBy nothing is sent. The error then is not that of the caller's context.
func TestSettleBy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 429, RetryAfter: "20", Times: -1})
		start := time.Now()
		_, err := w.client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1000, Budget: -1})).InferenceServices.Create(w.Context(), request("n"))
		require.ErrorIs(w, err, svc.ErrRateLimited)
		require.Less(w, time.Since(start), 5*time.Minute)
		require.EqualValues(w, ledger.Refused, w.one().State)
	})
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DeadConnection())
		start := time.Now()
		_, err := w.client(svc.WithTimeout(time.Hour)).InferenceServices.Create(w.Context(), request("n"))
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		require.ErrorContains(w, err, "no complete response within 5m0s")
		require.NotErrorIs(w, err, context.DeadlineExceeded)
		require.Equal(w, 5*time.Minute, time.Since(start))
		require.EqualValues(w, ledger.Unknown, w.one().State)
	})
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DeadConnection())
		_, err := w.client(svc.WithTimeout(time.Hour)).InferenceServices.Create(ctx, request("n"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		e := w.one()
		require.EqualValues(w, ledger.Unknown, e.State)
		require.Equal(w, e.RequestedAt.Add(time.Minute), e.SettleBy)
	})
}

// A function of the caller may panic or call runtime.Goexit. The outcome of the create is
// recorded in each case.
func TestPanics(t *testing.T) {
	ways := map[string]func(){"panic": func() { panic("of the caller") }, "Goexit": runtime.Goexit}
	for way, quit := range ways {
		for name, tc := range map[string]struct {
			opts  func(quit func()) []svc.Option
			state ledger.Event
		}{
			"token source": {func(quit func()) []svc.Option {
				return []svc.Option{svc.WithTokenSource(func(context.Context) (string, error) { quit(); return "", nil })}
			}, ledger.Refused},
			"limiter": {func(quit func()) []svc.Option {
				return []svc.Option{svc.WithRateLimiter(limiter(quit))}
			}, ledger.Refused},
			"transport, before": {func(quit func()) []svc.Option {
				return []svc.Option{around(func(*http.Request, http.RoundTripper) (*http.Response, error) { quit(); return nil, nil })}
			}, ledger.Unknown},
			"transport, after": {func(quit func()) []svc.Option {
				return []svc.Option{around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					_, _ = next.RoundTrip(r)
					quit()
					return nil, nil
				})}
			}, ledger.Unknown},
			"hook": {func(quit func()) []svc.Option {
				return []svc.Option{svc.WithAttemptHook(func(context.Context, svc.Attempt) { quit() })}
			}, ledger.Created}, // a Deploy also deletes the endpoint, although the hook quits in every exchange
		} {
			for _, deploy := range []bool{false, true} {
				t.Run(strings.Join([]string{way, name, map[bool]string{true: "Deploy", false: "Create"}[deploy]}, "/"), func(t *testing.T) {
					inWorld(t, func(w *world) {
						c := w.client(tc.opts(quit)...)
						require.True(w, quits(func() {
							if deploy {
								_, _ = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{DeleteOnFailure: true})
							} else {
								_, _ = c.InferenceServices.Create(w.Context(), request("n"))
							}
						}))
						e := w.one()
						require.EqualValues(w, tc.state, e.State)
						if e.State == ledger.Created {
							require.Equal(w, "svc-1", e.ServiceID)
							require.Equal(w, deploy, w.srv.RunningInstances() == 0)
						}
					})
				})
			}
		}
		t.Run(way+"/limiter, after a 429", func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := 0
				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.RateLimited(""))
				c := w.client(svc.WithRateLimiter(limiter(func() {
					if n++; n == 2 {
						quit()
					}
				})))
				require.True(w, quits(func() { _, _ = c.InferenceServices.Create(w.Context(), request("n")) }))
				require.EqualValues(w, ledger.Refused, w.one().State)
			})
		})
		t.Run(way+"/hook, after an HTML page", func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.ProxyPage(200))
				c := w.client(svc.WithAttemptHook(func(context.Context, svc.Attempt) { quit() }))
				require.True(w, quits(func() { _, _ = c.InferenceServices.Create(w.Context(), request("n")) }))
				require.EqualValues(w, ledger.Unknown, w.one().State)
			})
		})
		for name, deploy := range panicking {
			for _, remove := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/cleanup %v", way, name, remove), func(t *testing.T) {
					inWorld(t, func(w *world) {
						o := &svc.DeployOptions{DeleteOnFailure: remove, Key: "k"}
						if name == "Use" {
							o.Key, o.DeleteOnFailure = "", false
						}
						asked := func() { // what the caller's function does
							require.EqualValues(w, ledger.Created, w.one().State, "the create must be recorded before the caller's function runs")
							quit()
						}
						c := w.client(svc.WithInferenceURL("https://inference.example"))
						start := time.Now()
						require.True(w, quits(func() { deploy(w.Context(), c.InferenceServices, o, asked) }))
						require.Less(w, time.Since(start), 8*time.Second, "the cleanup must not take longer than after an error")
						require.Equal(w, 1, w.creates())
						w.accounted(name)
						deleted := o.DeleteOnFailure || o.OnFailure != nil || name == "Use"
						require.Equal(w, deleted, w.srv.RunningInstances() == 0)
						require.Equal(w, deleted, w.one().State == ledger.Deleted)
						_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
						require.NoError(w, err, "Deploy resumes the endpoint, or the key is free")
						require.Equal(w, 1, w.srv.RunningInstances())
					})
				})
			}
		}
	}
}

// panicking has the caller's functions that run while the endpoint exists.
var panicking = map[string]func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()){
	"OnCreate": func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()) {
		o.OnCreate = func(*svc.InferenceService) error { quit(); return nil }
		_, _ = c.Deploy(ctx, request("n"), o)
	},
	"OnPoll": func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()) {
		o.OnPoll = func(svc.Poll) { quit() }
		_, _ = c.Deploy(ctx, request("n"), o)
	},
	"Probe": func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()) {
		o.Probe = func(context.Context, string) error { quit(); return nil }
		_, _ = c.Deploy(ctx, request("n"), o)
	},
	"OnFailure": func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()) {
		o.OnCreate = func(*svc.InferenceService) error { return errAny }
		o.OnFailure = func(*svc.DeployError) bool { quit(); return false }
		_, _ = c.Deploy(ctx, request("n"), o)
	},
	"Use": func(ctx context.Context, c *svc.InferenceServiceClient, o *svc.DeployOptions, quit func()) {
		_ = c.Use(ctx, request("n"), o, func(context.Context, *svc.InferenceService) error { quit(); return nil })
	},
}

type limiter func()

func (l limiter) Wait(context.Context) error { l(); return nil }

// Another process writes its record first. That record is kept, and nothing is sent
// twice.
func TestLostRace(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.client()
		raced := &racing{Store: w.store}
		raced.before = func() {
			_, err := other.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
			require.NoError(w, err)
		}
		w.store = raced
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, "svc-1", s.ServiceID)
		require.Equal(w, 1, w.creates())
	})
}

type racing struct {
	ledger.Store
	before func()
}

func (r *racing) Append(ctx context.Context, rec ledger.Record) error {
	if f := r.before; f != nil {
		r.before = nil
		f()
	}
	return r.Store.Append(ctx, rec)
}

// A store may report that a Seq is taken, although the same Append has just written that
// record. This happens on NFS, where a repeated link finds the name that the first link
// made.
func TestExistsByOneself(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = &echoing{Store: ledger.Memory()}
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, 1, w.creates())
		require.NoError(w, w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(time.Hour)))
		require.Equal(w, []ledger.Event{ledger.Intended, ledger.Created, ledger.Extended}, w.events(w.one()))
	})
}

// A store contradicts itself: it says that a Seq is taken, but does not list its record.
// The create ends with an error and does not try forever.
func TestStoreRefusesWhatItDoesNotList(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store = full{ledger.Memory()}
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorContains(w, err, "does not list it")
		require.Zero(w, w.creates())
	})
}

type full struct{ ledger.Store }

func (full) Append(context.Context, ledger.Record) error { return fs.ErrExist }

type echoing struct{ ledger.Store }

func (e *echoing) Append(ctx context.Context, r ledger.Record) error {
	return cmp.Or(e.Store.Append(ctx, r), fs.ErrExist)
}

// A ledger that is replaced by another one during a create gets the outcome of a create that it does not have. The caller
// must learn this: the ledger with the intent shows no ID, and the other one has no valid entry.
func TestLedgerIsReplacedDuringACreate(t *testing.T) {
	for name, fault := range map[string]*svctest.Fault{"created": nil, "unknown": new(svctest.DropAfterEffect()), "refused": {Status: 422}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				path := filepath.Join(w.TempDir(), "ledger")
				store, err := ledger.Dir(path)
				require.NoError(w, err)
				w.store = store
				if fault != nil {
					w.srv.Fault("POST", svctest.RouteEndpoints, *fault)
				}
				_, err = w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					if r.Method == http.MethodPost {
						require.NoError(w, os.Rename(path, path+".old"))
						_, err := ledger.Dir(path)
						require.NoError(w, err)
					}
					return next.RoundTrip(r)
				})).InferenceServices.Create(w.Context(), request("n"))
				require.Error(w, err)
				require.ErrorContains(w, err, "record 1 is missing")
				failed, wrong := errors.AsType[*ledger.Error](err)
				require.True(w, wrong)
				require.Equal(w, fault != nil, failed.ServiceID == "", "the ID of the endpoint that runs")
				require.Equal(w, name == "unknown", errors.Is(err, svc.ErrOutcomeUnknown))
			})
		})
	}
}
