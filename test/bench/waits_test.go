package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// wtMany is how many endpoints one process waits for.
const wtMany = 10_000

// wtHeapGate is how much heap a wait may take.
const wtHeapGate = 20 << 10

// wtWaysToWait are the ways to wait for many: each returns when all have settled.
var wtWaysToWait = map[string]func(ctx context.Context, c *svc.InferenceServiceClient, ids []string) (available int){
	"WaitAll": func(ctx context.Context, c *svc.InferenceServiceClient, ids []string) (available int) {
		for _, err := range c.WaitAll(ctx, ids, testkit.Every(time.Hour)) {
			if err == nil {
				available++
			}
		}
		return available
	},
	"goroutines": func(ctx context.Context, c *svc.InferenceServiceClient, ids []string) int {
		var available atomic.Int64
		var waits sync.WaitGroup
		for _, id := range ids {
			waits.Go(func() {
				if _, err := c.WaitUntilAvailable(ctx, id, testkit.Every(time.Hour)); err == nil {
					available.Add(1)
				}
			})
		}
		waits.Wait()
		return int(available.Load())
	},
}

// wtMemory is the heap in use, and the stacks, once the garbage is collected.
func wtMemory() (heap, stack uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// wtFleet is a service with any number of endpoints that all have the same
// status. Its answers can be held back, so that all requests are out at a time.
type wtFleet struct {
	available atomic.Bool
	hold      chan struct{} // nil or closed: answer at once
	asked     atomic.Int64
	replied   atomic.Int64
}

func (f *wtFleet) RoundTrip(req *http.Request) (*http.Response, error) {
	f.asked.Add(1)
	defer f.replied.Add(1)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	status := svc.InferenceServiceStatusInitializing
	if f.available.Load() {
		status = svc.InferenceServiceStatusAvailable
	}
	id := req.URL.Path[len("/v1/inference-service/"):]
	return canned{http.StatusOK, fmt.Appendf(nil, `{"service_id":%q,"status":%q,"status_info":null,`+
		`"resource_metadata":{"target_instance_number":1,"resource_display_name":"GPU A","scale_type":"manual","flavor_id":"flavor-1"},`+
		`"billing_metadata":{},"endpoint_metadata":{},"created_at":"2024-06-01 10:11:12"}`, id, status)}.RoundTrip(req)
}

func (f *wtFleet) services(t testing.TB) *svc.InferenceServiceClient {
	client, err := svc.NewClient("https://api.test", svc.WithToken(benchToken), svc.WithHTTPClient(&http.Client{Transport: f}))
	require.NoError(t, err)
	return client.InferenceServices
}

// wtManyIDs are the ids of a large fleet.
func wtManyIDs() []string {
	ids := make([]string, wtMany)
	for i := range ids {
		ids[i] = fmt.Sprintf("svc-%d", i+1)
	}
	return ids
}

// Ten thousand deployments at once, to their end, with what each wait holds
// while it sleeps.
func TestTenThousandWaits(t *testing.T) {
	for name, wait := range wtWaysToWait {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet, ids := &wtFleet{}, wtManyIDs()
				services := fleet.services(t)
				before, _ := wtMemory()
				var available int
				done := make(chan struct{})
				go func() {
					defer close(done)
					available = wait(testkit.Within(t, 10*time.Hour), services, ids)
				}()
				time.Sleep(time.Minute) // all have looked once
				after, _ := wtMemory()
				require.EqualValues(t, wtMany, fleet.asked.Load())
				require.LessOrEqual(t, (int(after)-int(before))/wtMany, wtHeapGate)
				fleet.available.Store(true)
				<-done
				require.Equal(t, wtMany, available)
				require.EqualValues(t, 2*wtMany, fleet.asked.Load())
			})
		})
	}
}

// BenchmarkWaitMany reports what one of 10,000 waits holds: heap while it sleeps
// (B/endpoint), with its request under way (B/look), and its stack while it sleeps.
// Time is real here; nobody sleeps to the end.
func BenchmarkWaitMany(b *testing.B) {
	for name, wait := range wtWaysToWait {
		b.Run(name, func(b *testing.B) {
			ids := wtManyIDs()
			var asleep, looking, stack float64
			for b.Loop() {
				fleet := &wtFleet{hold: make(chan struct{})}
				services := fleet.services(b)
				heap0, stack0 := wtMemory()
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					wait(ctx, services, ids)
				}()
				until := func(n *atomic.Int64, want int64) {
					for n.Load() < want {
						runtime.Gosched()
					}
				}
				if name == "WaitAll" {
					until(&fleet.asked, 64)
				} else {
					until(&fleet.asked, wtMany)
				}
				heap1, _ := wtMemory()
				close(fleet.hold)
				until(&fleet.replied, wtMany)
				heap2, stack2 := wtMemory()
				looking += (float64(heap1) - float64(heap0)) / wtMany
				asleep += (float64(heap2) - float64(heap0)) / wtMany
				stack += (float64(stack2) - float64(stack0)) / wtMany
				cancel()
				<-done
			}
			b.ReportMetric(asleep/float64(b.N), "B/endpoint")
			b.ReportMetric(looking/float64(b.N), "B/look")
			b.ReportMetric(stack/float64(b.N), "stack-B/endpoint")
			if perEndpoint := asleep / float64(b.N); perEndpoint > wtHeapGate {
				b.Errorf("%.0f bytes of heap for each endpoint, the limit is %d", perEndpoint, wtHeapGate)
			}
		})
	}
}
