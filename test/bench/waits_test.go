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

// many is the number of endpoints that one process waits for.
const many = 10_000

// heapPerWait is the largest allowed heap per wait.
const heapPerWait = 20 << 10

// waysToWait are the ways to wait for many endpoints. Each function returns when every
// endpoint is available or failed.
var waysToWait = map[string]func(ctx context.Context, c *svc.InferenceServiceClient, ids []string) (available int){
	"WaitUntilAllAvailable": func(ctx context.Context, c *svc.InferenceServiceClient, ids []string) (available int) {
		for _, err := range c.WaitUntilAllAvailable(ctx, ids, testkit.Every(time.Hour)) {
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

// heapInUse returns the heap in use after a garbage collection.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fleet is a service with any number of endpoints, all with the same status.
type fleet struct {
	available atomic.Bool
	asked     atomic.Int64
}

func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	f.asked.Add(1)
	status := svc.InferenceServiceStatusInitializing
	if f.available.Load() {
		status = svc.InferenceServiceStatusAvailable
	}
	id := req.URL.Path[len("/v1/inference-service/"):]
	return canned{http.StatusOK, fmt.Appendf(nil, `{"service_id":%q,"status":%q,"status_info":null,`+
		`"resource_metadata":{"target_instance_number":1,"resource_display_name":"GPU A","scale_type":"manual","flavor_id":"flavor-1"},`+
		`"billing_metadata":{},"endpoint_metadata":{},"created_at":"2024-06-01 10:11:12"}`, id, status)}.RoundTrip(req)
}

func (f *fleet) services(t testing.TB) *svc.InferenceServiceClient {
	client, err := svc.NewClient("https://api.test", svc.WithToken(benchToken), svc.WithHTTPClient(&http.Client{Transport: f}))
	require.NoError(t, err)
	return client.InferenceServices
}

// manyIDs returns the IDs of all endpoints.
func manyIDs() []string {
	ids := make([]string, many)
	for i := range ids {
		ids[i] = fmt.Sprintf("svc-%d", i+1)
	}
	return ids
}

// Ten thousand waits run at once until all end. The heap that each wait needs between two
// polls is measured.
func TestTenThousandWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector needs memory of its own")
	}
	for name, wait := range waysToWait {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, ids := &fleet{}, manyIDs()
				services := all.services(t)
				before := heapInUse()
				var available int
				done := make(chan struct{})
				go func() {
					defer close(done)
					available = wait(testkit.Within(t, 10*time.Hour), services, ids)
				}()
				time.Sleep(time.Minute) // every wait has polled once
				after := heapInUse()
				require.EqualValues(t, many, all.asked.Load())
				require.LessOrEqual(t, (int(after)-int(before))/many, heapPerWait)
				all.available.Store(true)
				<-done
				require.Equal(t, many, available)
				require.EqualValues(t, 2*many, all.asked.Load())
			})
		})
	}
}
