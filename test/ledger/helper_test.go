// Package ledger_test tests the promises of the ledger through the public API.
package ledger_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

func request(name string) svc.CreateInferenceServiceRequest {
	return svc.CreateInferenceServiceRequest{
		Name: name, Description: "of a test", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-a", TargetInstanceNumber: 1},
	}
}

// world is a service and a ledger, inside a synctest bubble.
type world struct {
	*testing.T
	srv   *svctest.Server
	store ledger.Store
}

func inWorld(t *testing.T, f func(w *world), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&world{T: t, srv: svctest.NewInMemory(append([]svctest.Option{svctest.WithFlavors(svctest.Flavor{ID: "flavor-a", Stock: 1 << 20})}, opts...)...), store: ledger.Memory()})
	})
}

func (w *world) client(opts ...svc.Option) *svc.Client {
	return w.srv.Client(append([]svc.Option{svc.WithLedger(w.store)}, opts...)...)
}

func (w *world) entries() []ledger.Entry {
	w.Helper()
	entries, err := w.client().Ledger.Entries(w.Context())
	require.NoError(w, err)
	return entries
}

// one returns the only entry.
func (w *world) one() ledger.Entry {
	w.Helper()
	entries := w.entries()
	require.Len(w, entries, 1)
	return entries[0]
}

func (w *world) creates() int { return w.srv.RequestCount("POST", svctest.RouteEndpoints) }

func (w *world) events(e ledger.Entry) (events []ledger.Event) {
	for _, r := range e.Records {
		events = append(events, r.Event)
	}
	return events
}

var errDisk = errors.New("disk on fire")

// faulty is a store with failing Appends: they fail from the n-th call on, times times.
// If written is set, the failing calls store their record before they fail.
type faulty struct {
	ledger.Store
	mu      sync.Mutex
	n       int
	times   int
	written bool
	calls   int
	list    error
}

func (f *faulty) Append(ctx context.Context, r ledger.Record) error {
	f.mu.Lock()
	f.calls++
	fails := f.n > 0 && f.calls >= f.n && f.calls < f.n+f.times
	f.mu.Unlock()
	if fails && !f.written {
		return errDisk
	}
	err := f.Store.Append(ctx, r)
	if fails {
		return errDisk
	}
	return err
}

func (f *faulty) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if f.list != nil {
		return nil, f.list
	}
	return f.Store.List(ctx, key)
}

// roundTrip sends a request with the given transport, and may act before and after that.
type roundTrip func(*http.Request, http.RoundTripper) (*http.Response, error)

func around(f roundTrip) svc.Option {
	return svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper { return tripper{f, next} })
}

type tripper struct {
	f    roundTrip
	next http.RoundTripper
}

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.f(r, t.next) }

// quits calls f, and reports whether f panicked or called runtime.Goexit.
func quits(f func()) (quit bool) {
	done := make(chan struct{})
	quit = true
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
		quit = false
	}()
	<-done
	return quit
}

func mark(e ledger.Entry) string { return "[svc:" + e.Intent + "]" }

func sortedIDs(eps []svctest.Endpoint, keep func(svctest.Endpoint) bool) (ids []string) {
	for _, e := range eps {
		if keep(e) {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func later(w *world, d time.Duration) { time.Sleep(d); synctest.Wait() }

var errAny = errors.New("any")

func memory() ledger.Store { return ledger.Memory() }
