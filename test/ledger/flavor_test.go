package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

var errNoMore = errors.New("no flavor is left")

func open(name string) svc.CreateInferenceServiceRequest {
	r := request(name)
	r.ResourceMetadata.FlavorID = ""
	return r
}

// pickOf returns a PickFlavor that tries the flavors in turn, and counts its calls.
func pickOf(calls *int, flavors ...string) func(context.Context, []svc.RefusedFlavor) (string, error) {
	return func(_ context.Context, refused []svc.RefusedFlavor) (string, error) {
		*calls++
		if len(refused) == len(flavors) {
			return "", errNoMore
		}
		return flavors[len(refused)], nil
	}
}

// The flavor is picked only when something has to be created, so a second run finds the endpoint of
// the first although its flavor is sold out.
func TestFlavorIsPickedOnlyForACreate_D23(t *testing.T) {
	inWorld(t, func(w *world) {
		var calls int
		none, err := w.client().Ledger.Entry(w.Context(), "k")
		require.NoError(w, err)
		require.Nil(w, none)
		s, err := w.client().InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{Key: "k", PickFlavor: pickOf(&calls, "flavor-a")})
		require.NoError(w, err)
		require.Equal(w, "flavor-a", s.ResourceMetadata.FlavorID)
		again, err := w.client().InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{Key: "k", PickFlavor: pickOf(&calls)})
		require.NoError(w, err)
		require.Equal(w, s.ServiceID, again.ServiceID)
		require.Equal(w, 1, calls)
		e, err := w.client().Ledger.Entry(w.Context(), "k")
		require.NoError(w, err)
		require.Equal(w, s.ServiceID, e.ServiceID)
		require.Equal(w, "flavor-a", e.FlavorID)
		for _, k := range []string{"k", "named"} { // a flavor that was picked and one that was named are the same request
			named, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: k})
			require.NoError(w, err)
			require.Equal(w, k == "k", named.ServiceID == s.ServiceID)
		}
		again, err = w.client().InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{Key: "named", PickFlavor: pickOf(&calls)})
		require.NoError(w, err)
		require.NotEqual(w, s.ServiceID, again.ServiceID)
		dearer := request("n")
		dearer.ResourceMetadata.FlavorID = "flavor-b"
		_, err = w.client().InferenceServices.Deploy(w.Context(), dearer, &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrKeyInUse)
		_, err = w.client().InferenceServices.Deploy(w.Context(), open("other"), &svc.DeployOptions{Key: "k", PickFlavor: pickOf(&calls, "flavor-a")})
		require.ErrorIs(w, err, svc.ErrKeyInUse)
		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{PickFlavor: pickOf(&calls, "flavor-a")})
		require.ErrorAs(w, err, new(*svc.ValidationError), "FlavorID and PickFlavor")
		require.Equal(w, 1, calls)
		require.Equal(w, 2, w.creates())
	})
}

func TestNextFlavorAfterARefusal_D23(t *testing.T) {
	for name, withLedger := range map[string]bool{"with a ledger": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client()
				if !withLedger {
					c = w.srv.Client()
				}
				full := svctest.Fault{Status: 409, Body: `{"message":"sold out"}`}
				w.srv.Fault("POST", svctest.RouteEndpoints, full, full)
				var calls int
				s, err := c.InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{PickFlavor: pickOf(&calls, "x", "y", "flavor-a")})
				require.NoError(w, err)
				require.Equal(w, "flavor-a", s.ResourceMetadata.FlavorID)
				require.Equal(w, 3, calls)
				if withLedger {
					var tried []string
					for _, e := range w.entries() {
						tried = append(tried, fmt.Sprint(e.FlavorID, " ", e.State))
					}
					slices.Sort(tried)
					require.Equal(w, []string{"flavor-a created", "x refused", "y refused"}, tried, "each try is an entry")
				}

				w.srv.Fault("POST", svctest.RouteEndpoints, full, svctest.Fault{Status: 422, Body: `{"message":"too big"}`})
				_, err = c.InferenceServices.Deploy(w.Context(), open("m"), &svc.DeployOptions{PickFlavor: pickOf(&calls, "x", "y")})
				require.ErrorIs(w, err, errNoMore)
				require.ErrorIs(w, err, svc.ErrConflict)
				require.ErrorContains(w, err, "no flavor is left")
				require.ErrorContains(w, err, `flavor "x" was refused: `)
				require.ErrorContains(w, err, "too big")

				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
				before := calls
				_, err = c.InferenceServices.Deploy(w.Context(), open("o"), &svc.DeployOptions{PickFlavor: pickOf(&calls, "flavor-a", "y")})
				require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
				require.Equal(w, before+1, calls, "never again after an unknown outcome")
			})
		})
	}
}

// A page with a 4xx status may stand in place of the response of a service that has acted. So the
// outcome of the create is unknown, and no flavor is tried after it. A 407 proves that nothing was passed on.
func TestNoCreateFollowsAPage(t *testing.T) {
	for status := 400; status < 452; status++ {
		inWorld(t, func(w *world) {
			page := svctest.ProxyPage(status)
			page.AfterEffect = status != http.StatusProxyAuthRequired
			w.srv.Fault("POST", svctest.RouteEndpoints, page)
			var calls int
			c := w.client(svc.WithTokenSource(func(context.Context) (string, error) { return w.srv.Token(), nil }))
			_, err := c.InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{Key: "k", PickFlavor: pickOf(&calls, "flavor-a", "flavor-a")})
			require.Equal(w, 1, w.creates(), status)
			require.Equal(w, 1, calls, status)
			if !page.AfterEffect {
				require.NotErrorIs(w, err, svc.ErrOutcomeUnknown)
				require.EqualValues(w, ledger.Refused, w.entries()[0].State)
				return
			}
			require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
			require.ErrorContains(w, err, fmt.Sprint("may or may not have been created: ", status))
			require.ErrorContains(w, err, "page of a proxy or portal, not a response of the service")
			require.ErrorContains(w, err, "; do not repeat the call before you know the outcome")
			require.EqualValues(w, ledger.Unknown, w.one().State, status)
		})
	}
}

// The next flavor is asked for after each refusal that may be about the flavor, as the comment of
// PickFlavor says.
func TestStatusesThatAreNotAboutTheFlavor(t *testing.T) {
	others := []int{401, 407, 408, 411, 413, 414, 415, 417, 421, 425, 426, 428, 429, 431}
	for status := 400; status < 452; status++ {
		inWorld(t, func(w *world) {
			w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: status, Body: `{"message":"no"}`})
			var calls int
			_, err := w.client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1})).InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{PickFlavor: pickOf(&calls, "x", "flavor-a")})
			require.Equal(w, slices.Contains(others, status), err != nil, "%d: %v", status, err)
			require.Equal(w, err == nil, calls == 2, status)
		})
	}
}

// However the service refuses, and whatever becomes of the responses, there is one endpoint at most.
func TestRandomRefusals_D23(t *testing.T) {
	for seed := range uint64(testkit.Shorter(1000, 100)) {
		inWorld(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 1))
			faults := []svctest.Fault{
				{Status: 409}, {Status: 422}, {Status: 400}, {Status: 403}, {Status: 404}, {Status: 413}, {Status: 429}, {Status: 500}, {Status: 503},
				{Status: 404, Body: "<html>"}, svctest.DropAfterEffect(), {TruncateBody: true}, svctest.Redirect(302, "https://elsewhere.example"),
			}
			for range r.IntN(6) {
				w.srv.Fault("POST", svctest.RouteEndpoints, faults[r.IntN(len(faults))])
			}
			for range 2 { // the second run has the same key
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				var calls int
				_, err := w.client().InferenceServices.Deploy(ctx, open("n"), &svc.DeployOptions{Key: "k", PickFlavor: pickOf(&calls, "a", "b", "c", "d")})
				cancel()
				require.LessOrEqual(w, w.srv.RunningInstances(), 1, "seed %d: %v", seed, err)
			}
			require.LessOrEqual(w, len(w.srv.Endpoints()), 1, "seed %d", seed)
		}, svctest.WithFlavors(svctest.Flavor{ID: "a"}, svctest.Flavor{ID: "b"}, svctest.Flavor{ID: "c"}, svctest.Flavor{ID: "d"}))
	}
}

// A PickFlavor that ignores what was refused must not send the same create forever.
func TestRefusedFlavorIsNotTriedAgain_D23(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 409, Body: `{"message":"sold out"}`, Times: -1})
		calls := 0
		_, err := w.client().InferenceServices.Deploy(ctx, open("n"), &svc.DeployOptions{Key: "k", PickFlavor: func(context.Context, []svc.RefusedFlavor) (string, error) {
			if calls++; calls == 100 {
				cancel()
			}
			return "flavor-a", nil
		}})
		require.ErrorContains(w, err, `PickFlavor returned the flavor "flavor-a", which the service has refused`)
		require.ErrorIs(w, err, svc.ErrConflict)
		require.ErrorContains(w, err, "sold out")
		require.Equal(w, []int{1, 2}, []int{w.creates(), calls})
	})
}

// If the endpoint of the key turns out to be deleted, the same Deploy creates another one.
func TestDeletedEndpointOfTheKeyIsReplaced_D19(t *testing.T) {
	inWorld(t, func(w *world) {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		later(w, time.Hour)
		require.NoError(w, w.client().InferenceServices.Delete(w.Context(), s.ServiceID))
		require.EqualValues(w, ledger.Created, w.one().State, "a plain Delete proves nothing")
		later(w, time.Hour)
		var told []string
		failed := 0
		next, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{
			Key:       "k",
			OnCreate:  func(s *svc.InferenceService) error { told = append(told, s.ServiceID); return nil },
			OnFailure: func(*svc.DeployError) bool { failed++; return false },
		})
		require.NoError(w, err)
		require.Equal(w, []string{"svc-1", "svc-2"}, told)
		require.Equal(w, "svc-2", next.ServiceID)
		require.Zero(w, failed)
		require.Equal(w, 1, w.srv.RunningInstances())

		w.store = &faulty{Store: w.store, n: 1, times: 100} // the deletion cannot be recorded
		require.NoError(w, w.srv.Client().InferenceServices.Delete(w.Context(), next.ServiceID))
		_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrNotFound)
		require.Equal(w, 2, w.creates())
	})
}

func TestErrorSaysThatTheMarkIsInTheDescription_D20(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 422, Body: `{"message":"Description is longer than 100 characters"}`}, svctest.Fault{Status: 422, Body: `{"message":"no"}`})
		_, err := w.client().InferenceServices.Create(w.Context(), request("n"))
		require.ErrorAs(w, err, new(*svc.Error))
		require.ErrorContains(w, err, "the ledger added its mark of 33 characters to the description")
		_, err = w.client().InferenceServices.Create(w.Context(), request("n"))
		require.NotContains(w, err.Error(), "mark")
		intent, rest := ledger.FindMark(("[svc:ABCDEFGHIJKLMNOPQRSTUVWXYZ] a long text")[:36])
		require.Equal(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", intent, "a text that was cut keeps the mark")
		require.Equal(w, "a l", rest)
	})
}

func TestNilStoreIsAnError_D21(t *testing.T) {
	_, err := svc.NewClient("https://svc.example", svc.WithLedger(nil))
	require.ErrorContains(t, err, "the store is nil")
}

// Of two calls that adopt one endpoint for two entries at once, one fails.
func TestOneAdoptionOfAnID_D22(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, time.Second} {
		inWorld(t, func(w *world) {
			w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect(), svctest.DropAfterEffect())
			c := w.client(svc.WithoutLedgerMark())
			for range 2 {
				_, err := c.InferenceServices.Create(w.Context(), request("n"))
				require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
			}
			results := make(chan error, 2)
			for i, e := range w.entries() {
				slow := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					resp, err := next.RoundTrip(r)
					time.Sleep(time.Duration(i) * pause) // between the first look and the append
					return resp, err
				}))
				go func() {
					_, err := slow.Ledger.Adopt(w.Context(), e, "svc-1", &svc.AdoptOptions{Unmarked: true})
					results <- err
				}()
			}
			first, second := <-results, <-results
			require.NotEqual(w, first == nil, second == nil, "%v, %v", first, second)
			require.ErrorContains(w, errors.Join(first, second), "an ID can be in only one entry")
			states := make(map[ledger.State]int)
			for _, e := range w.entries() {
				states[e.State]++
			}
			require.Equal(w, map[ledger.State]int{ledger.Created: 1, ledger.Unknown: 1}, states, "the other entry is in doubt as before")
		})
	}
}

func TestEmptyFlavorIsNoFlavor_D23(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), open("n"), &svc.DeployOptions{Key: "k", PickFlavor: func(context.Context, []svc.RefusedFlavor) (string, error) { return "", nil }})
		require.EqualError(w, err, "svc: no flavor was picked: PickFlavor returned an empty ID")
		require.Empty(w, w.entries())
		require.Zero(w, w.creates())
	})
}

// meeting is a store in which two adoptions are recorded only when both have been decided.
type meeting struct {
	ledger.Store
	arrived atomic.Int32
	both    chan struct{}
}

func (m *meeting) Append(ctx context.Context, r ledger.Record) error {
	if r.Adopted && r.Event == ledger.Created {
		if m.arrived.Add(1) == 2 {
			close(m.both)
		}
		<-m.both
	}
	return m.Store.Append(ctx, r)
}

// If two entries adopt an ID at the same time, one of them undoes that.
func TestTwoAdoptionsOfAnIDAtOnce_D22(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect(), svctest.DropAfterEffect())
		w.store = &meeting{Store: w.store, both: make(chan struct{})}
		for range 2 {
			_, err := w.client(svc.WithoutLedgerMark()).InferenceServices.Create(w.Context(), request("n"))
			require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		}
		results := make(chan error, 2)
		for _, e := range w.entries() {
			go func() {
				_, err := w.client().Ledger.Adopt(w.Context(), e, "svc-1", &svc.AdoptOptions{Unmarked: true})
				results <- err
			}()
		}
		first, second := <-results, <-results
		require.NotEqual(w, first == nil, second == nil, "%v, %v", first, second)
		require.ErrorContains(w, errors.Join(first, second), "an ID can be in only one entry")
		adopted := 0
		for _, e := range w.entries() {
			if e.State == ledger.Created {
				adopted++
				require.True(w, e.Adopted)
				require.Equal(w, "svc-1", e.ServiceID)
			} else {
				require.EqualValues(w, ledger.Unknown, e.State)
				require.Empty(w, e.ServiceID)
				require.Equal(w, []ledger.Event{ledger.Intended, ledger.Unknown, ledger.Created, ledger.Unknown}, w.events(e))
			}
		}
		require.Equal(w, 1, adopted)
	})
}

// A Deploy that continues with an endpoint without a lease gives it one. Without a Lease it leaves
// the lease as it is.
func TestLeaseOfAResumedEndpoint_D17(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, tc := range [][2]time.Duration{{0, 0}, {time.Hour, time.Hour}, {0, time.Hour}, {time.Minute, time.Hour}, {2 * time.Hour, 2 * time.Hour}} {
			_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: tc[0]})
			require.NoError(w, err)
			require.Equal(w, tc[1], w.one().Lease, "%v", tc)
			later(w, time.Minute)
		}
	})
}
