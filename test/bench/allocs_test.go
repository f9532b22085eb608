package bench_test

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A call may make at most this many allocations more than the shortest code for it on
// net/http. Allocations are measured because times vary too much on shared machines.
func TestAllocations(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector allocates too")
	}
	ctx := t.Context()
	over := func(status int, body []byte, ours func(*svc.Client) error, theirs func(plain *http.Client) error) (allocs int64, bytes float64) {
		t.Helper()
		transport := canned{status, body}
		client, plain := testkit.ClientOn(t, transport), &http.Client{Transport: transport}
		measure := func(call func() error) (allocs, bytes uint64) {
			const n = 200
			require.NoError(t, call()) // warm up
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range n {
				_ = call()
			}
			runtime.ReadMemStats(&after)
			return (after.Mallocs - before.Mallocs) / n, (after.TotalAlloc - before.TotalAlloc) / n
		}
		ourAllocs, ourBytes := measure(func() error { return ours(client) })
		allocsPlain, bytesPlain := measure(func() error { return theirs(plain) })
		return int64(ourAllocs) - int64(allocsPlain), float64(ourBytes) / float64(bytesPlain)
	}

	allocs, _ := over(200, []byte(testkit.ServiceJSON),
		func(c *svc.Client) error { _, err := c.InferenceServices.Get(ctx, "svc-1"); return err },
		func(p *http.Client) error {
			return plainGet(ctx, p, "https://api.test/v1/x", new(plainService))
		})
	require.LessOrEqual(t, allocs, int64(13), "one Get")

	_, bytes := over(200, flavorsJSON(100),
		func(c *svc.Client) error { _, err := c.Flavors.List(ctx); return err },
		func(p *http.Client) error {
			return plainGet(ctx, p, "https://api.test/v1/x", new(plainFlavors))
		})
	require.LessOrEqual(t, bytes, 0.70, "a list of 100 records")
}
