package bench_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// The benchmarks compare a transfer with the shortest code for it on plain
// net/http, over TLS on loopback, in the same run. SVC_BENCH_MIB sets the size,
// 64 by default.
//
//	go test -run '^$' -bench 'Upload|DownloadFile' -benchtime 10x
//
// "x-plain" is the time of this package over that of net/http: below 1 is faster.

func benchSize(b *testing.B) int64 {
	mib := 64
	if s := os.Getenv("SVC_BENCH_MIB"); s != "" {
		var err error
		mib, err = strconv.Atoi(s)
		require.NoError(b, err)
	}
	return int64(mib) << 20
}

// benchPair measures both ways of a transfer in turns, so that other load on the machine
// affects both equally.
func benchPair(b *testing.B, size int64, ours, plain func() error) {
	require.NoError(b, ours()) // open the connections, fill the page cache
	require.NoError(b, plain())
	var spent [2]time.Duration
	b.SetBytes(size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for k := range 2 {
			which := (i + k) % 2
			start := time.Now()
			if which == 0 {
				require.NoError(b, ours())
				spent[0] += time.Since(start)
				continue
			}
			b.StopTimer()
			require.NoError(b, plain())
			spent[1] += time.Since(start)
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "x-plain")
	b.ReportMetric(float64(size)*float64(b.N)/1e6/spent[1].Seconds(), "plain-MB/s")
}

func benchFile(b *testing.B, size int64) *os.File {
	f, err := os.Create(filepath.Join(b.TempDir(), "body"))
	require.NoError(b, err)
	b.Cleanup(func() { f.Close() })
	require.NoError(b, f.Truncate(size))
	return f
}

func benchStorage(b *testing.B, h http.HandlerFunc) (*httptest.Server, *svc.Client, svc.SignedURL) {
	srv := httptest.NewTLSServer(h)
	b.Cleanup(srv.Close)
	client, err := svc.NewClient(srv.URL, svc.WithToken("bench-token"), svc.WithHTTPClient(srv.Client()))
	require.NoError(b, err)
	return srv, client, svc.SignedURL(srv.URL + "/o?X-Amz-Signature=SECRET")
}

func BenchmarkUpload(b *testing.B) {
	size := benchSize(b)
	srv, client, link := benchStorage(b, func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n != size {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	f := benchFile(b, size)
	benchPair(b, size, func() error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := client.Files.Put(context.Background(), link, f, nil)
		return err
	}, func() error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		req, err := http.NewRequest(http.MethodPut, string(link), io.NopCloser(f))
		if err != nil {
			return err
		}
		req.ContentLength = size
		resp, err := srv.Client().Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

func BenchmarkDownloadFile(b *testing.B) {
	size := benchSize(b)
	body := make([]byte, size)
	srv, client, link := benchStorage(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})
	dir := b.TempDir()
	benchPair(b, size, func() error {
		path := filepath.Join(dir, "ours")
		if _, err := client.Files.DownloadURLFile(context.Background(), link, path, nil); err != nil {
			return err
		}
		return os.Remove(path)
	}, func() error {
		path := filepath.Join(dir, "plain")
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		resp, err := srv.Client().Get(string(link))
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, resp.Body); err != nil {
			return err
		}
		resp.Body.Close()
		if err := f.Close(); err != nil {
			return err
		}
		return os.Remove(path)
	})
}
