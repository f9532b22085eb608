//go:build unix

package ledger_test

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// hung is a store whose calls hang and ignore their ctx, from the moment when appends or lists is
// set until the test ends.
type hung struct {
	ledger.Store
	appends, lists bool
	end            chan struct{}
}

func (h *hung) Append(ctx context.Context, r ledger.Record) error {
	if h.appends {
		<-h.end
	}
	return h.Store.Append(ctx, r)
}

func (h *hung) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if h.lists {
		<-h.end
	}
	return h.Store.List(ctx, key)
}

// No call of a store outlasts its ctx. What lowers the bill is sent although the ledger hangs, and
// the ledger has at most 5 s after it. What could raise the bill is not sent.
func TestStoreThatHangs_D10(t *testing.T) {
	const limit = 2 * time.Second
	for name, tc := range map[string]struct {
		call     func(ctx context.Context, c *svc.Client, e ledger.Entry) error
		sent     int           // number of PUT, POST and DELETE requests
		sendBy   time.Duration // when the last of them has been sent
		returnBy time.Duration
		fails    bool
	}{
		"Scale to 0": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.InferenceServices.Scale(ctx, e.ServiceID, 0)
			return err
		}, 1, 0, limit + 5*time.Second, false},
		"Scale to fewer": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.InferenceServices.Scale(ctx, e.ServiceID, 2)
			return err
		}, 1, time.Second, limit + 5*time.Second, false},
		"Scale to more": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.InferenceServices.Scale(ctx, e.ServiceID, 4)
			return err
		}, 0, 0, limit, true},
		"DeleteAndWait": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			return c.InferenceServices.DeleteAndWait(ctx, e.ServiceID, nil)
		}, 1, 0, limit + 5*time.Second, true}, // the delete is sent at once, but its proof takes longer than the limit
		"Create": {func(ctx context.Context, c *svc.Client, _ ledger.Entry) error {
			_, err := c.InferenceServices.Create(ctx, request("other"))
			return err
		}, 0, 0, limit + 5*time.Second, true},
		"Deploy": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.InferenceServices.Deploy(ctx, request("n"), &svc.DeployOptions{Key: "k"})
			return err
		}, 0, 0, limit + 5*time.Second, true},
		"Entries": {func(ctx context.Context, c *svc.Client, _ ledger.Entry) error {
			_, err := c.Ledger.Entries(ctx)
			return err
		}, 0, 0, limit, true},
		"Extend": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			return c.Ledger.Extend(ctx, e, time.Now().Add(time.Hour))
		}, 0, 0, limit, true},
		"Adopt": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.Ledger.Adopt(ctx, e, e.ServiceID, nil)
			return err
		}, 0, 0, limit, true},
		"UndoAdopt": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			return c.Ledger.UndoAdopt(ctx, e)
		}, 0, 0, limit, true},
		"Reap": {func(ctx context.Context, c *svc.Client, e ledger.Entry) error {
			_, err := c.Ledger.Reap(ctx, nil)
			return err
		}, 0, 0, limit, true},
	} {
		for _, appendsOnly := range []bool{false, true} {
			if appendsOnly && (name == "Entries" || strings.HasSuffix(name, "Adopt") || name == "Reap" || name == "Deploy") {
				continue // they append nothing here
			}
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					h := &hung{Store: w.store, end: make(chan struct{})}
					defer later(w, 0)
					defer close(h.end)
					w.store = h
					req := request("n")
					req.ResourceMetadata.TargetInstanceNumber = 3
					_, err := w.client().InferenceServices.Deploy(w.Context(), req, &svc.DeployOptions{Key: "k", Lease: time.Hour})
					require.NoError(w, err)
					e, before := w.one(), len(w.srv.Requests())
					h.appends, h.lists = true, !appendsOnly
					ctx, cancel := context.WithTimeout(w.Context(), limit)
					defer cancel()
					start := time.Now()
					err = tc.call(ctx, w.client(), e)
					require.Equal(w, tc.fails, err != nil, "%v", err)
					require.LessOrEqual(w, time.Since(start), tc.returnBy)
					sent := 0
					for _, r := range w.srv.Requests()[before:] {
						if r.Method != "GET" {
							sent++
							require.LessOrEqual(w, r.Time.Sub(start), tc.sendBy)
						}
					}
					require.Equal(w, tc.sent, sent)
				}, svctest.WithDeleteTime(0))
			})
		}
	}
}

// A file of the folder hangs when it is read, as on a network file system whose server is gone.
func TestDirWithFileThatHangs_D10(t *testing.T) {
	path := t.TempDir()
	store, err := ledger.Dir(path)
	require.NoError(t, err)
	fifo := filepath.Join(path, "k@000001.json")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	srv := svctest.NewServer()
	defer srv.Close()
	id := srv.AddEndpoint(svctest.Endpoint{Name: "n", Instances: 1})
	c := srv.Client(svc.WithLedger(store))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = c.Ledger.Entries(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 20*time.Second)
	_, err = c.InferenceServices.Deploy(ctx, request("n"), &svc.DeployOptions{Key: "k"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 20*time.Second)

	scaled := make(chan error, 1)
	go func() {
		_, err := c.InferenceServices.Scale(t.Context(), id, 0)
		scaled <- err
	}()
	require.Eventually(t, func() bool { return srv.RequestCount("PUT", svctest.RouteEndpoint) == 1 }, 20*time.Second, 10*time.Millisecond, "the PUT must not wait for the ledger")
	require.Eventually(t, func() bool { // ends the hanging reads
		writer, err := syscall.Open(fifo, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = syscall.Close(writer)
		}
		return len(scaled) == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, <-scaled)
}
