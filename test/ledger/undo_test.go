package ledger_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

const foreign = "token-of-another-account"

// The wrong endpoint was adopted. UndoAdopt puts the entry in doubt again: nothing is deleted, and nothing is
// created under the key until somebody adopts the right endpoint.
func TestAdoptionOfAWrongEndpointIsUndone_D22(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(w *world, wrong string)
		token     string
		undone    bool
	}{
		"it runs": {nil, "", true},
		"its owner has deleted it": {func(w *world, wrong string) {
			require.NoError(w, w.srv.Client().InferenceServices.DeleteAndWait(w.Context(), wrong, nil))
		}, "", true},
		"it got the mark of another entry": {func(w *world, wrong string) { w.srv.SetField(wrong, "description", "[svc:ABCDEFGHIJKLMNOPQRSTUVWXYZ]") }, "", true},
		"the service fails": {func(w *world, _ string) {
			w.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Status: 500, Times: -1})
		}, "", false},
		"the token of another account is used":    {nil, foreign, false},
		"it has the mark, so it is the right one": {func(w *world, wrong string) { w.srv.SetField(wrong, "description", mark(w.one())) }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
				c := w.client()
				_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k", Lease: time.Hour})
				require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
				wrong := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
				_, err = c.Ledger.Adopt(w.Context(), w.one(), wrong, &svc.AdoptOptions{Unmarked: true})
				require.NoError(w, err)
				if tc.meanwhile != nil {
					tc.meanwhile(w, wrong)
				}
				if tc.token != "" {
					c = w.client(svc.WithToken(tc.token))
				}
				err = c.Ledger.UndoAdopt(w.Context(), w.one())
				w.srv.ClearFaults()
				require.Equal(w, tc.undone, err == nil, "%v", err)
				require.Zero(w, w.srv.RequestCount("DELETE", svctest.RouteEndpoint)-map[bool]int{true: 1}[name == "its owner has deleted it"])
				if !tc.undone {
					require.Equal(w, wrong, w.one().ServiceID)
					return
				}
				require.Equal(w, []any{ledger.State(ledger.Unknown), "", time.Hour}, []any{w.one().State, w.one().ServiceID, w.one().Lease})
				_, err = w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.ErrorIs(w, err, svc.ErrOutcomeUnknown, "the key is not free")
				_, err = c.Ledger.Adopt(w.Context(), w.one(), "svc-1", nil)
				require.NoError(w, err)
				s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.NoError(w, err)
				require.Equal(w, "svc-1", s.ServiceID)
				require.ErrorContains(w, c.Ledger.UndoAdopt(w.Context(), w.one()), "carries the mark", "it is the right one")
			}, svctest.WithForeignToken(foreign))
		})
	}
}

// Forget has seen that the wrong endpoint is not found. The right one may have been adopted since.
func TestForgetIsAboutTheEndpointThatWasNotFound_D22(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrOutcomeUnknown)
		wrong := w.srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
		_, err = c.Ledger.Adopt(w.Context(), w.one(), wrong, &svc.AdoptOptions{Unmarked: true})
		require.NoError(w, err)
		require.NoError(w, w.srv.Client().InferenceServices.DeleteAndWait(w.Context(), wrong, nil))
		e, once := w.one(), false
		slow := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if !once {
				once = true
				require.NoError(w, c.Ledger.UndoAdopt(w.Context(), w.one()))
				_, failed := c.Ledger.Adopt(w.Context(), w.one(), "svc-1", nil)
				require.NoError(w, failed)
			}
			return resp, err
		}))
		require.ErrorContains(w, slow.Ledger.Forget(w.Context(), e), "the endpoint exists")
		require.True(w, once)
		require.Equal(w, []any{ledger.State(ledger.Created), "svc-1"}, []any{w.one().State, w.one().ServiceID})
	})
}

// Only an adoption can be undone, and only once.
func TestUndoOfWhatWasNotAdopted_D22(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		s, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		e := w.one()
		require.ErrorContains(w, c.Ledger.UndoAdopt(w.Context(), e), "has not adopted")
		require.Equal(w, s.ServiceID, w.one().ServiceID)
		require.NoError(w, c.InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil))
		e.Adopted = true
		require.Error(w, c.Ledger.UndoAdopt(w.Context(), e), "it is deleted")
		require.Equal(w, []ledger.Event{ledger.Intended, ledger.Created, ledger.Deleted}, w.events(w.one()))
		require.ErrorIs(w, w.srv.Client().Ledger.UndoAdopt(w.Context(), e), svc.ErrNoLedger)
	})
}
