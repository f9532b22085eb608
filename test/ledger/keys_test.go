package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

func TestSecondDeployResumes(t *testing.T) {
	inWorld(t, func(w *world) {
		o := &svc.DeployOptions{Key: "k", Lease: time.Hour}
		first, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), o)
		require.NoError(w, err)
		end := w.one().LeaseEnd
		require.Equal(w, w.one().RequestedAt.Add(time.Hour), end)

		var told *svc.InferenceService
		o2 := &svc.DeployOptions{Key: "k", Lease: time.Minute, OnCreate: func(s *svc.InferenceService) error { told = s; return nil }}
		second, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), o2)
		require.NoError(w, err)
		require.Equal(w, first.ServiceID, second.ServiceID)
		require.Equal(w, &svc.InferenceService{ServiceID: first.ServiceID}, told, "only the ID is known at that time")
		require.Equal(w, end, w.one().LeaseEnd, "Deploy can only lengthen a lease")

		o2.Lease = 2 * time.Hour
		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), o2)
		require.NoError(w, err)
		require.Equal(w, w.one().RequestedAt.Add(2*time.Hour), w.one().LeaseEnd)
		require.Equal(w, 1, w.creates())
	})
}

// The creator may be using the endpoint. So a Deploy that resumes it deletes it only if
// OnFailure asks for that.
func TestResumedDeployFails(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		w.srv.SetStatus(s.ServiceID, svctest.StatusUnavailable)

		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", DeleteOnFailure: true})
		failed, ok := errors.AsType[*svc.DeployError](err)
		require.True(w, ok)
		require.True(w, failed.Resumed)
		require.Equal(w, svc.CleanupNone, failed.Cleanup)
		require.ErrorContains(w, err, "which an earlier call with the same key created")
		require.Equal(w, 1, w.srv.RunningInstances())

		require.True(w, quits(func() {
			_, _ = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", DeleteOnFailure: true, OnCreate: func(*svc.InferenceService) error { panic("mine") }})
		}))
		require.Equal(w, 1, w.srv.RunningInstances())

		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", OnFailure: func(e *svc.DeployError) bool { return e.Resumed }})
		failed, ok = errors.AsType[*svc.DeployError](err)
		require.True(w, ok)
		require.Equal(w, svc.CleanupDeleted, failed.Cleanup)
		require.ErrorContains(w, err, "; the endpoint is deleted now, so its key in the ledger is free again: the next Deploy with that key creates an endpoint")
		require.Zero(w, w.srv.RunningInstances())
		require.EqualValues(w, ledger.Deleted, w.one().State)
	})
}

// A key has two open entries if an endpoint was forgotten although it exists. Prune removes what has ended,
// which those have not.
func TestTwoOpenEntriesOfAKey(t *testing.T) {
	inWorld(t, func(w *world) {
		for i, r := range []ledger.Record{
			{Intent: "A", Event: ledger.Intended}, {Intent: "A", Event: ledger.Created, ServiceID: "svc-1"},
			{Intent: "B", Event: ledger.Intended}, {Intent: "B", Event: ledger.Created, ServiceID: "svc-2"},
		} {
			r.Key, r.Seq, r.At, r.BaseURL = "k", int64(i+1), time.Now().UTC(), w.srv.URL()
			require.NoError(w, w.store.Append(w.Context(), r))
		}
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "once", OnCreate: func(*svc.InferenceService) error { return errAny }, DeleteOnFailure: true})
		require.ErrorIs(w, err, errAny)
		e, err := w.client().Ledger.Entry(w.Context(), "k")
		require.Nil(w, e)
		require.ErrorIs(w, err, svc.ErrKeyInUse)
		require.ErrorContains(w, err, "2 open entries")
		require.Len(w, w.entries(), 3)
		later(w, time.Hour)
		require.NoError(w, w.client().Ledger.Prune(w.Context(), time.Now()))
		require.Len(w, w.entries(), 2)
	})
}

func TestKeyInUse(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		_, err = w.client().InferenceServices.Deploy(w.Context(), request("other"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrKeyInUse)
		require.ErrorContains(w, err, `the endpoint of the key was created with the name "n", and this call asks for "other"`)
		require.NotContains(w, err.Error(), "flavor", "only what differs is named")
		in, ok := errors.AsType[*ledger.Error](err)
		require.True(w, ok)
		require.Equal(w, "svc-1", in.ServiceID)
		require.Equal(w, 1, w.creates())
	})
}

// If another process is creating the endpoint, Deploy waits for the outcome.
func TestDeployWaitsForTheOther(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(20*time.Second))
		first := make(chan error, 1)
		go func() {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
			first <- err
		}()
		later(w, time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		_, err := w.client().InferenceServices.Deploy(ctx, request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err)
		require.True(w, ok)
		require.Equal(w, "k", unknown.Key)

		var logged bytes.Buffer
		c := w.client(svc.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		s, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, "svc-1", s.ServiceID)
		require.Equal(w, 1, w.creates())
		require.NoError(w, <-first)
		require.Equal(w, 1, strings.Count(logged.String(), "waiting for the outcome of another create"), logged.String())
		require.Contains(w, logged.String(), "key=k at_most=6m0s")
	})
}

func TestDoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		e := w.one()
		require.EqualValues(w, ledger.Unknown, e.State)
		require.True(w, e.InDoubt(time.Now()))

		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		require.ErrorContains(w, err, `nothing was sent, since an earlier create under the key k may or may not have created "n"`)
		require.ErrorContains(w, err, "Adopt")
		require.Equal(w, 1, w.creates())

		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		err = c.Ledger.Forget(ctx, e)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, "waiting until its create is over")
		require.EqualValues(w, ledger.Unknown, w.one().State)

		other := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Description: "[svc:" + e.Intent[1:] + "A]", Instances: 1})
		bare := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
		named := w.srv.AddEndpoint(svctest.Endpoint{Name: "m", Description: mark(e), Instances: 1})
		for _, unmarked := range []bool{false, true} {
			o := &svc.AdoptOptions{Unmarked: unmarked}
			_, err = c.Ledger.Adopt(w.Context(), e, other, o)
			require.ErrorIs(w, err, svc.ErrLedgerMark)
			_, err = c.Ledger.Adopt(w.Context(), e, named, o)
			require.ErrorContains(w, err, `the name of the endpoint is "m"`)
			_, err = c.Ledger.Adopt(w.Context(), e, "svc-99", o)
			require.ErrorIs(w, err, svc.ErrNotFound)
			_, err = c.Ledger.Adopt(w.Context(), e, "", o)
			require.ErrorAs(w, err, new(*svc.ValidationError))
		}
		_, err = c.Ledger.Adopt(w.Context(), e, bare, nil)
		require.ErrorIs(w, err, svc.ErrLedgerMark)

		s, err := c.Ledger.Adopt(w.Context(), e, "svc-1", nil)
		require.NoError(w, err)
		require.Equal(w, "n", s.Name)
		require.True(w, w.one().Adopted)
		_, err = c.Ledger.Adopt(w.Context(), e, bare, &svc.AdoptOptions{Unmarked: true})
		require.ErrorContains(w, err, "not in doubt")

		s, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, "svc-1", s.ServiceID)
	})
}

func TestForgetAndBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		e := w.one()
		require.NoError(w, c.Ledger.Forget(w.Context(), e)) // this Forget is wrong: the endpoint exists
		require.ErrorContains(w, c.Ledger.Forget(w.Context(), e), "forgotten")
		require.EqualValues(w, ledger.Forgotten, w.one().State)

		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, 2, w.srv.RunningInstances(), "the wrong Forget leads to a second endpoint")
		_, err = c.Ledger.Adopt(w.Context(), e, "svc-2", nil)
		require.ErrorContains(w, err, "has the ID svc-2 already")
		_, err = c.Ledger.Adopt(w.Context(), e, "svc-1", nil)
		require.NoError(w, err, "a forgotten endpoint can be adopted")
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrKeyInUse)
		require.ErrorContains(w, err, "2 open entries")
	})
}

// Forget waits until the create is certainly over, by the service's clock or, if the service does not
// tell its time, for six minutes. It says so in the log.
func TestForgetWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  []svctest.Option
		clock time.Duration // error of the clock that wrote the entry
		blind bool          // the process that wrote the entry did not know the service's time
		after time.Duration // when Forget is called
		takes time.Duration
	}{
		"at once":                      {takes: 6 * time.Minute},
		"later":                        {after: 10 * time.Minute},
		"later, of a blind process":    {after: 10 * time.Minute, blind: true, takes: 6 * time.Minute},
		"a clock a day behind":         {clock: -24 * time.Hour, takes: 6 * time.Minute},
		"the same, later":              {clock: -24 * time.Hour, after: 10 * time.Minute},
		"a clock a day ahead":          {clock: 24 * time.Hour, after: 10 * time.Minute, takes: 6 * time.Minute},
		"the service tells no time":    {opts: []svctest.Option{svctest.WithoutDate()}, after: time.Hour, takes: 6 * time.Minute},
		"the service is a day ahead":   {opts: []svctest.Option{svctest.WithClockOffset(24 * time.Hour)}, blind: true, takes: 6 * time.Minute},
		"the service is a day behind ": {opts: []svctest.Option{svctest.WithClockOffset(-24 * time.Hour)}, after: time.Hour, takes: 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				now := time.Now().UTC()
				intended := ledger.Record{
					Key: "k", Seq: 1, Intent: "A", Event: ledger.Intended, BaseURL: w.srv.URL(), Name: "n", At: now.Add(tc.clock), SettleBy: now.Add(tc.clock + 5*time.Minute),
				}
				if !tc.blind {
					intended.ServiceTime = now
				}
				require.NoError(w, w.store.Append(w.Context(), intended))
				later(w, tc.after)
				var logged bytes.Buffer
				c := w.client(svc.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
				start := time.Now()
				require.NoError(w, c.Ledger.Forget(w.Context(), ledger.Entry{Key: "k", Intent: "A"}))
				require.InDelta(w, tc.takes, time.Since(start), float64(time.Second))
				require.Equal(w, tc.takes > 0, strings.Contains(logged.String(), "waiting until the create of a ledger entry is certainly over"))
				require.EqualValues(w, ledger.Forgotten, w.one().State)
			}, tc.opts...)
		})
	}
}

// The clock of the creating process may be far behind the service's. Its create under way is not
// taken as over by the Date of a response, so a Forget in a short process does not let a second one through.
func TestForgetOutlastsACreateOfASlowClock(t *testing.T) {
	for name, before := range map[string]func(*svc.Client, context.Context) error{
		"the process knows the service's time": func(c *svc.Client, ctx context.Context) error {
			_, err := c.Flavors.List(ctx)
			return err
		},
		"the create is its first call": func(*svc.Client, context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				creator := w.client()
				require.NoError(w, before(creator, w.Context()))
				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(25*time.Second))
				first := make(chan error, 1)
				go func() {
					_, err := creator.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
					first <- err
				}()
				later(w, time.Second)
				err := w.client().Ledger.Forget(w.Context(), w.one())
				require.ErrorContains(w, err, "the endpoint exists", "Forget has waited for the outcome")
				require.NoError(w, <-first)
				_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.NoError(w, err)
				require.Equal(w, 1, w.creates())
			}, svctest.WithClockOffset(7*time.Minute))
		})
	}
}

// What a process knows of the service's time from before it was suspended is not too early: a
// one-command process can forget its create six minutes later.
func TestIntentHoldsTheServiceTime(t *testing.T) {
	const ahead = 24 * time.Hour
	inWorld(t, func(w *world) {
		c := w.client()
		_, err := c.Flavors.List(w.Context())
		require.NoError(w, err)
		later(w, time.Hour)
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		for _, r := range w.one().Records {
			require.WithinDuration(w, time.Now().Add(ahead), r.ServiceTime, time.Second, r.Event)
		}
		later(w, 6*time.Minute)
		start := time.Now()
		require.NoError(w, w.client().Ledger.Forget(w.Context(), w.one()))
		require.Less(w, time.Since(start), time.Second)
	}, svctest.WithClockOffset(ahead))
}

// A created entry can be forgotten if its endpoint is not found at that moment.
func TestForgetCreated(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		s, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.ErrorContains(w, c.Ledger.Forget(w.Context(), w.one()), "the endpoint exists")
		w.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 403})
		require.ErrorIs(w, c.Ledger.Forget(w.Context(), w.one()), svc.ErrForbidden)
		later(w, time.Hour)
		w.srv.Client().InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil) // without the ledger
		require.NoError(w, c.Ledger.Forget(w.Context(), w.one()))
		e := w.one()
		require.EqualValues(w, ledger.Forgotten, e.State)
		require.Equal(w, s.ServiceID, e.ServiceID)
		require.GreaterOrEqual(w, e.InstanceTime(time.Now().Add(time.Hour)), time.Hour, "it was billed until then")
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, 2, w.creates(), "the key is free")
	})
}

func TestExtend(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		s, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Lease: time.Hour})
		require.NoError(w, err)
		for _, end := range []time.Time{time.Now().Add(time.Minute).UTC(), time.Now().Add(5 * time.Hour).UTC(), {}} {
			require.NoError(w, c.Ledger.Extend(w.Context(), w.one(), end))
			require.WithinDuration(w, end, w.one().LeaseEnd, time.Second)
		}
		require.NoError(w, c.InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil))
		require.ErrorContains(w, c.Ledger.Extend(w.Context(), w.one(), time.Now()), "deleted")
		require.ErrorContains(w, c.Ledger.Extend(w.Context(), ledger.Entry{Key: "none"}, time.Now()), "no such entry")
	})
}

func TestScaleIsRecorded(t *testing.T) {
	inWorld(t, func(w *world) {
		inner := w.store
		c := w.client()
		s, err := c.InferenceServices.Deploy(w.Context(), request("n"), nil)
		require.NoError(w, err)
		for _, n := range []int{3, 2, 2, 0, 5} {
			_, err = c.InferenceServices.ScaleAndWait(w.Context(), s.ServiceID, n, nil)
			require.NoError(w, err)
			require.Equal(w, n, w.one().Instances)
		}
		require.Len(w, w.one().Records, 2+4, "one record for each change")

		// A higher number is recorded before the request, so a request without a known outcome
		// leaves it in the ledger. A lower number is recorded only after success.
		w.srv.Fault("PUT", svctest.RouteEndpoint, svctest.Fault{Status: 501, Body: "<html>"}, svctest.Fault{Status: 409})
		_, err = c.InferenceServices.Scale(w.Context(), s.ServiceID, 6)
		require.ErrorIs(w, err, svc.ErrServer)
		require.Equal(w, 6, w.one().Instances)
		_, err = c.InferenceServices.Scale(w.Context(), s.ServiceID, 1)
		require.ErrorIs(w, err, svc.ErrConflict)
		require.Equal(w, 6, w.one().Instances)

		// If the ledger cannot be read, scaling up is refused, but scaling down is
		// allowed.
		w.store = &faulty{Store: inner, list: errDisk}
		c = w.client()
		puts := w.srv.RequestCount("PUT", svctest.RouteEndpoint)
		_, err = c.InferenceServices.Scale(w.Context(), s.ServiceID, 7)
		require.ErrorIs(w, err, errDisk)
		require.Equal(w, puts, w.srv.RequestCount("PUT", svctest.RouteEndpoint))
		_, err = c.InferenceServices.Scale(w.Context(), s.ServiceID, 2)
		require.NoError(w, err)
		w.store = &faulty{Store: inner, n: 1, times: 1}
		_, err = w.client().InferenceServices.Scale(w.Context(), s.ServiceID, 9)
		require.ErrorIs(w, err, errDisk, "the append failed, so no PUT may be sent")
		require.Equal(w, 2, w.srv.RunningInstances())

		// Neither a damaged entry of another key nor an endpoint without entry prevents
		// scaling.
		require.NoError(w, inner.Append(w.Context(), ledger.Record{Key: "damaged", Seq: 1, Event: "paused"}))
		w.store = inner
		_, err = w.client().InferenceServices.Scale(w.Context(), s.ServiceID, 9)
		require.NoError(w, err)
		other := w.srv.AddEndpoint(svctest.Endpoint{Name: "other", FlavorID: "flavor-a", Instances: 1})
		_, err = w.client().InferenceServices.Scale(w.Context(), other, 2)
		require.NoError(w, err)
	})
}

func TestDeletedIsRecorded(t *testing.T) {
	for name, remove := range map[string]func(w *world, c *svc.Client, id string) error{
		"DeleteAndWait": func(w *world, c *svc.Client, id string) error {
			return c.InferenceServices.DeleteAndWait(w.Context(), id, nil)
		},
		"WaitUntilDeleted": func(w *world, c *svc.Client, id string) error {
			return errors.Join(c.InferenceServices.Delete(w.Context(), id), c.InferenceServices.WaitUntilDeleted(w.Context(), id, nil))
		},
		"a wait for something else": func(w *world, c *svc.Client, id string) error {
			err := c.InferenceServices.Delete(w.Context(), id)
			_, waited := c.InferenceServices.WaitUntilAvailable(w.Context(), id, nil)
			require.ErrorIs(w, waited, svc.ErrNotFound)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.NoError(w, err)
				require.NoError(w, remove(w, w.client(), s.ServiceID), "another client can delete the endpoint")
				require.EqualValues(w, ledger.Deleted, w.one().State)
			})
		})
	}
	t.Run("Use", func(t *testing.T) {
		inWorld(t, func(w *world) {
			require.NoError(w, w.client().InferenceServices.Use(w.Context(), request("n"), nil, func(context.Context, *svc.InferenceService) error { return nil }))
			require.EqualValues(w, ledger.Deleted, w.one().State)
		})
	})
	t.Run("the ledger is behind", func(t *testing.T) {
		inWorld(t, func(w *world) {
			s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), nil)
			require.NoError(w, err)
			inner := w.store
			w.store = &faulty{Store: inner, n: 1, times: 1}
			require.NoError(w, w.client().InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil), "the endpoint is deleted, so no error")
			w.store = inner
			require.EqualValues(w, ledger.Created, w.one().State, "the entry stays open")
		})
	})
}
