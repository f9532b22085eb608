// Package bench_test compares calls, lists, transfers and waits with the shortest code
// for them on net/http. It also checks limits on allocations and memory.
package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// canned is an in-memory transport that gives the same response to every request. So the
// benchmarks measure the client and not the network.
type canned struct {
	status int
	body   []byte
}

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return &http.Response{
		StatusCode: c.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(c.body)), Body: io.NopCloser(bytes.NewReader(c.body)), Request: req,
	}, nil
}

func flavorsJSON(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"flavor_list":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"flavor_id":"flavor-%d","display_name":"GPU A","cluster_id":"cluster-1","cluster_flavor_id":"cf-1",
"meta_info":{"cuda":"12.4","region":"other"},"billing":{"cny_price_unit":7.5,"usd_price_unit":1.05,"token_price_unit":0},
"created_at":"2024-06-01 10:11:12","updated_at":"2024-06-02 10:11:12","deleted_at":null,"is_deleted":false,
"available_num":3,"node_max_gpu":8}`, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// plainGet is the code that a caller would write without this library, on net/http.
func plainGet(ctx context.Context, hc *http.Client, url string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+benchToken)
	req.Header.Set("Accept", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		var failure struct {
			Code    any    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&failure); err != nil {
			return err
		}
		return fmt.Errorf("%s: %v %s", resp.Status, failure.Code, failure.Message)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

const benchToken = "bench-token-0123456789"

// versus runs a call of the library and the hand-written code in turns, in one benchmark,
// and reports how their costs differ.
func versus(b *testing.B, ours, theirs func() error) {
	b.Helper()
	var sdk, plain cost
	for range 100 { // warm up both
		require.NoError(b, ours())
		require.NoError(b, theirs())
	}
	n := 0
	for b.Loop() {
		sdk.measure(b, ours)
		plain.measure(b, theirs)
		n += rounds
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sdk.allocs)/float64(n), "allocs")
	b.ReportMetric((float64(sdk.allocs)-float64(plain.allocs))/float64(n), "allocs-over-plain")
	b.ReportMetric(float64(sdk.bytes)/float64(plain.bytes), "bytes/plain")
	b.ReportMetric(float64(sdk.time)/float64(plain.time), "time/plain")
}

// rounds is the number of calls in one measurement.
const rounds = 200

type cost struct {
	allocs, bytes uint64
	time          time.Duration
}

func (c *cost) measure(b *testing.B, call func() error) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range rounds {
		if err := call(); err != nil {
			b.Fatal(err)
		}
	}
	c.time += time.Since(start)
	runtime.ReadMemStats(&after)
	c.allocs += after.Mallocs - before.Mallocs
	c.bytes += after.TotalAlloc - before.TotalAlloc
}

func benchClients(b *testing.B, status int, body []byte) (*svc.Client, *http.Client) {
	b.Helper()
	plain := &http.Client{Transport: canned{status, body}}
	client, err := svc.NewClient("https://api.test", svc.WithToken(benchToken), svc.WithHTTPClient(plain))
	if err != nil {
		b.Fatal(err)
	}
	return client, plain
}

func BenchmarkGet(b *testing.B) {
	client, plain := benchClients(b, 200, []byte(testkit.ServiceJSON))
	ctx := b.Context()
	versus(b,
		func() error { _, err := client.InferenceServices.Get(ctx, "svc-1"); return err },
		func() error {
			return plainGet(ctx, plain, "https://api.test/v1/inference-service/svc-1", new(plainService))
		})
}

func BenchmarkGetLoopback(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, testkit.ServiceJSON)
	}))
	defer srv.Close()
	client, err := svc.NewClient(srv.URL, svc.WithToken(benchToken))
	if err != nil {
		b.Fatal(err)
	}
	plain := &http.Client{Transport: &http.Transport{}}
	ctx := b.Context()
	versus(b,
		func() error { _, err := client.InferenceServices.Get(ctx, "svc-1"); return err },
		func() error {
			return plainGet(ctx, plain, srv.URL+"/v1/inference-service/svc-1", new(plainService))
		})
}

// The cost of a ledger: each create writes two records to the disk.
func BenchmarkCreate(b *testing.B) {
	srv := svctest.NewServer(svctest.WithFlavors(svctest.Flavor{ID: testkit.Demo.ResourceMetadata.FlavorID, Stock: 1 << 30}))
	b.Cleanup(srv.Close)
	store, err := ledger.Dir(b.TempDir())
	require.NoError(b, err)
	for name, opts := range map[string][]svc.Option{"plain": nil, "ledger": {svc.WithLedger(store)}} {
		b.Run(name, func(b *testing.B) {
			services := srv.Client(opts...).InferenceServices
			for b.Loop() {
				_, err := services.Create(b.Context(), testkit.Demo)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkFlavors100(b *testing.B) {
	client, plain := benchClients(b, 200, flavorsJSON(100))
	ctx := b.Context()
	versus(b,
		func() error { _, err := client.Flavors.List(ctx); return err },
		func() error {
			return plainGet(ctx, plain, "https://api.test/v1/inference-service/flavor", new(plainFlavors))
		})
}
