package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// videoJobJSON is a succeeded job as the service sends it.
func videoJobJSON(id string) string {
	return fmt.Sprintf(`{"job_id":%q,"user_id":"user-1","name":"","description":"","payment_type":"usd","status":"succeed",`+
		`"meta_info":{"original_request":{"job_type":"text2video","config":{"prompt":"a lighthouse at dusk","negative_prompt":null,`+
		`"settings":{"seed":-1,"aspect_ratio":"16:9","resolution":720,"duration":4},"gen_mode":"standard","is_public":true,"use_ff_cond":null,"is_enable_prompt_enhancer":null}},`+
		`"model_id":7,"order_id":"order-1","update_at":"2024-06-01 10:15:00","service_api_token":{"api_token":"","api_token_id":9,"user":{"user_id":"user-1","nickname":"sample","currency":"usd"}}},`+
		`"created_at":"2024-06-01T10:11:12.345678","updated_at":"2024-06-01T10:15:00","deleted_at":null,"is_deleted":false,`+
		`"outputs":[{"id":"out-1","media_url":"https://media.example/%s.mp4?signature=abc","thumbnail_url":"https://media.example/%s.png?signature=abc"}]}`, id, id, id)
}

func jobPageJSON(total, first, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"total_count":%d,"job_list":[`, total)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(videoJobJSON(fmt.Sprintf("job-%06d", first+i)))
	}
	b.WriteString("]}")
	return b.Bytes()
}

// Reading a page of jobs takes no more memory than without this library.
func TestJobPage_Memory(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("with the race detector a sync.Pool drops items at random")
	}
	body := jobPageJSON(100, 1, 100)
	for name, length := range map[string]int64{"length": int64(len(body)), "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			ours, plain := pageReaders(t, body, length)
			var ourCost, plainCost pageCost
			for range 30 {
				ourCost.add(t, ours)
				plainCost.add(t, plain)
			}
			require.Less(t, ourCost.bytes, plainCost.bytes*11/10)
		})
	}
}

// pageReaders returns two functions that read a page of jobs: with this library and
// without.
func pageReaders(tb testing.TB, body []byte, length int64) (ours, plain func() (jobs int, err error)) {
	hc := &http.Client{Transport: pageOfJobs{body, length}}
	client, err := svc.NewClient("https://api.test", svc.WithToken("token"), svc.WithHTTPClient(hc))
	require.NoError(tb, err)
	ours = func() (int, error) {
		list, err := client.VideoJobs.List(tb.Context(), nil)
		if err != nil {
			return 0, err
		}
		return len(list.Jobs), nil
	}
	return ours, func() (int, error) {
		list, err := plainPage(tb.Context(), hc, 1)
		return len(list.Jobs), err
	}
}

type pageOfJobs struct {
	body   []byte
	length int64
}

func (p pageOfJobs) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		ContentLength: p.length, Body: io.NopCloser(bytes.NewReader(p.body)), Request: req,
	}, nil
}

// plainPage reads a page with net/http only.
func plainPage(ctx context.Context, hc *http.Client, page int) (list plainJobs, err error) {
	url := fmt.Sprintf("https://api.test/v1/svc-video-job?page=%d&page_size=100", page)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return list, err
	}
	req.Header.Set("Authorization", "Bearer token")
	resp, err := hc.Do(req)
	if err != nil {
		return list, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list, err
}

type pageCost struct {
	bytes uint64
	time  time.Duration
}

func (c *pageCost) add(tb testing.TB, read func() (int, error)) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, err := read()
	c.time += time.Since(start)
	runtime.ReadMemStats(&after)
	c.bytes += after.TotalAlloc - before.TotalAlloc
	if err != nil || n != 100 {
		tb.Fatal(n, err)
	}
}
