package ledger_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

var lives = flag.Int("lives", 1000, "how many random lives of endpoints are compared with their bill")

// The instance time of the ledger is never lower than the bill. It is higher by exactly
// the times between an effect at the service and its record in the ledger.
func TestBill(t *testing.T) {
	for seed := range testkit.Shorter(*lives, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { inWorld(t, func(w *world) { liveOnce(w, uint64(seed)) }) })
		if t.Failed() {
			break
		}
	}
}

func liveOnce(w *world, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	pause := func(most time.Duration) { later(w, time.Duration(dice.Int64N(int64(most)))) }
	// Each exchange takes a random time before and after its effect.
	before, after := time.Duration(0), time.Duration(0)
	c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		before, after = time.Duration(dice.Int64N(int64(2*time.Second))), time.Duration(dice.Int64N(int64(2*time.Second)))
		time.Sleep(before)
		resp, err := next.RoundTrip(r)
		time.Sleep(after)
		return resp, err
	}))
	var extra time.Duration // time that the ledger counts but the service does not bill
	req := request("n")
	n := 1 + dice.IntN(3)
	req.ResourceMetadata.TargetInstanceNumber = n
	s, err := c.InferenceServices.Create(w.Context(), req)
	require.NoError(w, err)
	extra += time.Duration(n) * before // from the intent in the ledger to the creation
	for range dice.IntN(5) {
		pause(time.Hour)
		to := dice.IntN(5)
		_, err := c.InferenceServices.Scale(w.Context(), s.ServiceID, to)
		require.NoError(w, err)
		if to > n {
			extra += time.Duration(to-n) * before
		} else {
			extra += time.Duration(n-to) * after
		}
		n = to
		pause(time.Minute)
		require.Equal(w, w.srv.Bill().Total+extra, w.one().InstanceTime(time.Now()))
	}
	pause(time.Hour)
	if dice.IntN(4) > 0 {
		gone := time.Time{}
		watch := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if r.Method == "DELETE" && gone.IsZero() {
				gone = time.Now()
			}
			time.Sleep(time.Duration(dice.Int64N(int64(time.Second))))
			return resp, err
		}))
		require.NoError(w, watch.InferenceServices.DeleteAndWait(w.Context(), s.ServiceID, nil))
		extra += time.Duration(n) * time.Since(gone)
	}
	pause(time.Hour)
	require.Equal(w, w.srv.Bill().Total+extra, w.one().InstanceTime(time.Now()))
}

// Even with faults, the ledger's instance time is never lower than the bill.
func TestBillWithFaults(t *testing.T) {
	for seed := range testkit.Shorter(*lives, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { inWorld(t, func(w *world) { troubledLife(w, uint64(seed)) }) })
		if t.Failed() {
			break
		}
	}
}

func troubledLife(w *world, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 2))
	faults := []svctest.Fault{
		svctest.DropAfterEffect(), svctest.DropBeforeEffect(), svctest.ServiceUnavailable(1), {Status: 409}, {}, {}, {TruncateBody: true},
		svctest.GatewayErrorAfterEffect(), svctest.RateLimited("1"), svctest.Slow(3 * time.Second),
	}
	inner := w.store
	for range 1 + dice.IntN(3) {
		for range dice.IntN(3) {
			w.srv.Fault([]string{"POST", "PUT", "DELETE", "GET"}[dice.IntN(4)], svctest.RouteAny, faults[dice.IntN(len(faults))])
		}
		w.store = &faulty{Store: inner, n: 1 + dice.IntN(12), times: dice.IntN(4), written: dice.IntN(2) == 0}
		c := w.client()
		ctx, cancel := context.WithTimeout(w.Context(), time.Duration(1+dice.IntN(300))*time.Second)
		s, _ := c.InferenceServices.Deploy(ctx, request("n"), &svc.DeployOptions{DeleteOnFailure: dice.IntN(2) == 0})
		for range dice.IntN(4) {
			if s != nil {
				_, _ = c.InferenceServices.ScaleAndWait(ctx, s.ServiceID, dice.IntN(4), nil)
			}
		}
		if s != nil && dice.IntN(2) == 0 {
			_ = c.InferenceServices.DeleteAndWait(ctx, s.ServiceID, nil)
		}
		cancel()
		w.srv.ClearFaults()
		w.store = inner
		later(w, time.Duration(dice.IntN(3600))*time.Second)
		var total time.Duration
		for _, e := range w.entries() {
			total += e.InstanceTime(time.Now())
		}
		require.GreaterOrEqual(w, total, w.srv.Bill().Total, "seed %d", seed)
		w.accounted(fmt.Sprint("seed ", seed))
	}
}
