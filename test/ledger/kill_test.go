package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

var errDead = errors.New("the process is dead")

// fuse simulates a process that is killed at a given step. Nothing that the process does
// after this step has an effect.
type fuse struct {
	mu   sync.Mutex
	left int
	dead bool
	died context.CancelFunc
}

// step is called before and after each effect of the process on the service or the store.
func (f *fuse) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left < 0 {
		f.dead = true
		f.died()
	}
	if f.dead {
		return errDead
	}
	return nil
}

// killed reports whether the process was killed. What it has left running ends first.
func (f *fuse) killed() bool {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// mortal is the store of a process that may be killed.
type mortal struct {
	ledger.Store
	fuse *fuse
}

func (m *mortal) Append(ctx context.Context, r ledger.Record) error {
	if err := m.fuse.step(); err != nil {
		return err
	}
	err := m.Store.Append(ctx, r)
	return errors.Join(err, m.fuse.step())
}

func (m *mortal) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if err := m.fuse.step(); err != nil {
		return nil, err
	}
	all, err := m.Store.List(ctx, key)
	return all, errors.Join(err, m.fuse.step())
}

func (w *world) mortal(f *fuse) *svc.Client {
	return w.srv.Client(svc.WithLedger(&mortal{w.store, f}), around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if err := f.step(); err != nil {
			return nil, err
		}
		resp, err := next.RoundTrip(r)
		if dead := f.step(); dead != nil {
			return nil, dead
		}
		return resp, err
	}))
}

// accounted checks that every billed endpoint has an open entry in the ledger, with at
// least as many instances. It returns the number of entries in doubt.
func (w *world) accounted(what string) (doubts int) {
	w.Helper()
	open := make(map[string]ledger.Entry)
	for _, e := range w.entries() {
		if e.Open() {
			open[e.Intent] = e
		}
		if e.State == ledger.Intended || e.State == ledger.Unknown {
			doubts++
		}
	}
	for _, e := range w.srv.Endpoints() {
		if !e.Billed {
			continue
		}
		intent, _ := ledger.FindMark(e.Description)
		entry, ok := open[intent]
		require.True(w, ok, "%s: %s is billed, but has no open entry", what, e.ID)
		require.True(w, entry.ServiceID == "" || entry.ServiceID == e.ID, what)
		require.GreaterOrEqual(w, entry.Instances, e.Instances, what)
	}
	return doubts
}

// The process is killed before and after each of its effects.
func TestKillAnywhere(t *testing.T) {
	keyed := &svc.DeployOptions{Key: "k", Lease: time.Hour, DeleteOnFailure: true}
	leased := &svc.DeployOptions{Lease: time.Hour}
	deploy := func(w *world) string {
		s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), keyed)
		require.NoError(w, err)
		return s.ServiceID
	}
	for name, tc := range map[string]struct {
		prepare func(w *world) string
		act     func(ctx context.Context, c *svc.Client, id string)
		opts    []svctest.Option
	}{
		"Deploy": {act: func(ctx context.Context, c *svc.Client, _ string) {
			_, _ = c.InferenceServices.Deploy(ctx, request("n"), keyed)
		}},
		"Deploy that fails": {opts: []svctest.Option{svctest.WithStatusPath("initializing", "unavailable")}, act: func(ctx context.Context, c *svc.Client, _ string) {
			_, _ = c.InferenceServices.Deploy(ctx, request("n"), keyed)
		}},
		"Deploy that resumes": {prepare: deploy, act: func(ctx context.Context, c *svc.Client, _ string) {
			_, _ = c.InferenceServices.Deploy(ctx, request("n"), keyed)
		}},
		"Use": {act: func(ctx context.Context, c *svc.Client, _ string) {
			_ = c.InferenceServices.Use(ctx, request("n"), leased, func(context.Context, *svc.InferenceService) error { return nil })
		}},
		"ScaleAndWait up": {prepare: deploy, act: func(ctx context.Context, c *svc.Client, id string) {
			_, _ = c.InferenceServices.ScaleAndWait(ctx, id, 3, nil)
		}},
		"ScaleAndWait up and down": {prepare: deploy, act: func(ctx context.Context, c *svc.Client, id string) {
			_, _ = c.InferenceServices.ScaleAndWait(ctx, id, 3, nil)
			_, _ = c.InferenceServices.ScaleAndWait(ctx, id, 2, nil)
		}},
		"DeleteAndWait": {prepare: deploy, act: func(ctx context.Context, c *svc.Client, id string) {
			_ = c.InferenceServices.DeleteAndWait(ctx, id, nil)
		}},
		"Reap": {prepare: func(w *world) string { id := deploy(w); later(w, 2*time.Hour); return id }, act: func(ctx context.Context, c *svc.Client, _ string) {
			_, _ = c.Ledger.Reap(ctx, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			steps, sample := 1, testkit.Shorter(1, 3)
			for n := 0; n <= steps; n += sample {
				inWorld(t, func(w *world) {
					id := ""
					if tc.prepare != nil {
						id = tc.prepare(w)
					}
					ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
					defer cancel()
					f := &fuse{left: n, died: cancel}
					tc.act(ctx, w.mortal(f), id)
					if !f.killed() {
						steps = 0 // it was not killed: every step was tested
					} else {
						steps = n + sample
					}
					what := fmt.Sprintf("killed at step %d", n)
					before := w.creates()
					require.LessOrEqual(w, before, 1, what)
					require.LessOrEqual(w, w.accounted(what), 1, what)
					w.aftermath(what, keyed)
				}, tc.opts...)
			}
			require.Zero(t, steps)
		})
	}
}

// aftermath acts as the next process: it deploys under the same key and reaps. Then an
// operator settles the entries in doubt.
func (w *world) aftermath(what string, o *svc.DeployOptions) {
	w.Helper()
	billed := w.srv.RunningInstances() > 0
	keyed := false // an open entry has the key
	for _, e := range w.entries() {
		keyed = keyed || e.Key == o.Key && e.Open()
	}
	later(w, 6*time.Minute)
	before := w.creates()
	s, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), o)
	if billed && keyed {
		require.Equal(w, before, w.creates(), "%s: a second create was sent", what)
	}
	if err == nil {
		e, ok := w.srv.Endpoint(s.ServiceID)
		require.True(w, ok && !e.Deleted, what)
	}
	require.LessOrEqual(w, w.accounted(what), 1, what)
	later(w, 3*time.Hour)
	_, err = w.client().Ledger.Reap(w.Context(), nil)
	doubts := w.accounted(what)
	require.Equal(w, doubts > 0, err != nil, "%s: %v", what, err)
	require.LessOrEqual(w, w.srv.RunningInstances(), doubts, "%s: only endpoints of entries in doubt may still run", what)
	for _, e := range w.entries() { // the operator settles the entries in doubt
		if e.State != ledger.Intended && e.State != ledger.Unknown {
			continue
		}
		found := ""
		for _, endpoint := range w.srv.Endpoints() {
			if endpoint.Billed && strings.Contains(endpoint.Description, mark(e)) {
				found = endpoint.ID
			}
		}
		if found == "" {
			require.NoError(w, w.client().Ledger.Forget(w.Context(), e), what)
			continue
		}
		_, err := w.client().Ledger.Adopt(w.Context(), e, found, nil)
		require.NoError(w, err, what)
	}
	_, err = w.client().Ledger.Reap(w.Context(), nil)
	require.NoError(w, err, what)
	require.Zero(w, w.srv.RunningInstances(), what)
	for _, e := range w.entries() {
		require.False(w, e.Open(), what)
	}
}
