package faults_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A service keeps closing its connections. Every create succeeds in the end, because a create
// that the GOAWAY does not cover certainly had no effect, and is sent again.
func TestGoAwayStorm_C42(t *testing.T) {
	const callers, each, last = 50, 4, 5 // the third request of a connection has the stream ID 5
	var h *handmade
	var mu sync.Mutex
	created := map[string]int{}
	h = newHandmade(t, func(n int, stream uint32) string {
		if stream > last {
			return "" // the GOAWAY tells the client that this request was not processed
		}
		mu.Lock()
		created[h.seen()[n-1]]++
		mu.Unlock()
		return h2OK(stream, `{"service_id":"svc-1"}`)
	})
	h.answers = (last + 1) / 2
	client := testkit.ClientAt(t, h.url, svc.WithHTTPClient(&http.Client{Transport: h.trusting}), svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1000, MinDelay: 20 * time.Millisecond, MaxDelay: time.Second, Budget: -1}))
	var ok, retries atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for j := range each {
				var resp svc.Response
				_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: fmt.Sprint(i, "-", j)}, svc.WithResponse(&resp))
				retries.Add(int32(resp.Attempts - 1))
				if err == nil {
					ok.Add(1)
				} else if t.Log(err); strings.Contains(err.Error(), "GetBody") {
					t.Error("the error text has net/http's advice to its own callers: ", err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d creates succeeded, with %d retries", ok.Load(), callers*each, retries.Load())
	require.EqualValues(t, callers*each, ok.Load())
	for body, n := range created {
		require.Equal(t, 1, n, body)
	}
}
