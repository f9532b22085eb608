package transfers_test

import (
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sparseFile is a file of that size which takes no room, with a mark in each MiB.
func sparseFile(t testing.TB, size int64) (*os.File, uint32) {
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(size))
	for off := int64(0); off < size; off += 1 << 20 {
		_, err := f.WriteAt([]byte(strconv.FormatInt(off, 16)), off)
		require.NoError(t, err)
	}
	sum := crc32.New(castagnoli)
	_, err = io.Copy(sum, io.NewSectionReader(f, 0, size))
	require.NoError(t, err)
	return f, sum.Sum32()
}

// memory follows the heap and the resident memory from where they stand now.
type memory struct {
	heap, rss         uint64 // at first
	peakHeap, peakRSS atomic.Uint64
}

func newMemory() *memory {
	runtime.GC()
	debug.FreeOSMemory()
	m := &memory{}
	m.heap, m.rss = heapNow(), rssNow()
	return m
}

func (m *memory) look() {
	for peak, now := range map[*atomic.Uint64]uint64{&m.peakHeap: heapNow() - m.heap, &m.peakRSS: rssNow() - m.rss} {
		if int64(now) > int64(peak.Load()) {
			peak.Store(now)
		}
	}
}

func heapNow() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// rssNow is 0 where there is no /proc.
func rssNow() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), " kB"), 10, 64)
	return kib << 10
}

// checked reads a body, its checksum, and the memory at every 16 MiB.
func checked(m *memory, r io.Reader, most int64) (n int64, sum uint32) {
	h := crc32.New(castagnoli)
	for n < most {
		k, err := io.CopyN(h, r, min(16<<20, most-n))
		n += k
		m.look()
		if err != nil {
			break
		}
	}
	return n, h.Sum32()
}

func TestB01_UploadsAreNotHeldInMemory(t *testing.T) {
	leftovers := inTempDir(t)
	const size = 256 << 20
	f, want := sparseFile(t, size)
	for name, body := range map[string]io.Reader{"file": f, "seeker": seekOnly{f}, "plain": readOnly{f}} {
		_, err := f.Seek(0, io.SeekStart)
		require.NoError(t, err)
		m := newMemory()
		var mu sync.Mutex
		var sums []uint32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if len(sums) == 0 {
				sums = append(sums, 0)
				checked(m, r.Body, size/4)
				w.WriteHeader(503)
				return
			}
			_, sum := checked(m, r.Body, 2*size)
			sums = append(sums, sum)
		}))
		result, err := testkit.NewFileClient(t, srv.URL).Files.Put(t.Context(), svc.SignedURL(srv.URL+"/o"), body, nil)
		srv.Close()
		require.NoError(t, err, name)
		require.Equal(t, 2, result.Attempts, name)
		require.Equal(t, []uint32{0, want}, sums, name)
		require.Less(t, m.peakHeap.Load(), uint64(32<<20), name)
	}
	require.Zero(t, leftovers())
}

// patterned reads as size bytes of a pattern, from any offset.
type patterned struct{ size, at int64 }

var pattern = testkit.Contents(1 << 20)

func (p *patterned) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.size-p.at)], pattern[p.at%int64(len(pattern)):])
	p.at += int64(n)
	return n, nil
}

func (p *patterned) Seek(off int64, whence int) (int64, error) {
	p.at = off + []int64{0, p.at, p.size}[whence]
	return p.at, nil
}

// With SVC_BIG=1: 1 GiB each way over TLS, through a retry, a spooled body and a
// cut connection, in hardly more memory than an idle client needs.
//
//	SVC_BIG=1 go test -run TestBigTransfers -v
func TestBigTransfers(t *testing.T) {
	if os.Getenv("SVC_BIG") == "" {
		t.Skip("SVC_BIG is not set")
	}
	t.Setenv("TMPDIR", t.TempDir())
	const size = 1 << 30
	f, want := sparseFile(t, size)
	h := crc32.New(castagnoli)
	_, _ = io.Copy(h, &patterned{size: size})
	wantPattern := h.Sum32()

	var m *memory
	var requests int
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.Method == http.MethodGet {
			w.Header().Set("ETag", `"e1"`)
			if requests == 1 {
				w = &cutWriter{w, size / 2}
			}
			http.ServeContent(w, r, "", time.Time{}, &patterned{size: size})
			return
		}
		if requests == 1 {
			checked(m, r.Body, size/2)
			w.WriteHeader(503)
			return
		}
		_, sum := checked(m, r.Body, 2*size)
		w.Header().Set("ETag", strconv.FormatUint(uint64(sum), 10))
	}))
	defer srv.Close()
	client := testkit.NewFileClient(t, srv.URL, svc.WithHTTPClient(srv.Client()))
	link := svc.SignedURL(srv.URL + "/o")
	m = newMemory()
	_, err := client.Files.Put(t.Context(), link, strings.NewReader("warm"), nil)
	require.NoError(t, err)

	for name, transfer := range map[string]func() (uint32, error){
		"upload of a file": func() (uint32, error) {
			_, _ = f.Seek(0, io.SeekStart)
			return uploadedSum(client.Files.Put(t.Context(), link, f, nil))
		},
		"upload of a seeker": func() (uint32, error) {
			_, _ = f.Seek(0, io.SeekStart)
			return uploadedSum(client.Files.Put(t.Context(), link, seekOnly{f}, nil))
		},
		"upload of a stream": func() (uint32, error) {
			_, _ = f.Seek(0, io.SeekStart)
			return uploadedSum(client.Files.Put(t.Context(), link, readOnly{f}, nil))
		},
		"download to a file": func() (uint32, error) {
			path := target(t, nil)
			_, err := client.DownloadFile(t.Context(), link, path, &svc.DownloadOptions{Progress: func(int64, int64) { m.look() }})
			if err != nil {
				return 0, err
			}
			got, err := os.Open(path)
			if err != nil {
				return 0, err
			}
			defer got.Close()
			h := crc32.New(castagnoli)
			_, err = io.Copy(h, readOnly{got})
			return h.Sum32() - wantPattern + want, err
		},
	} {
		requests, m = 0, newMemory()
		start := time.Now()
		got, err := transfer()
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Equal(t, 2, requests, name)
		t.Logf("%s: %v, heap +%.1f MiB, resident +%.1f MiB", name, time.Since(start).Round(time.Millisecond),
			float64(m.peakHeap.Load())/(1<<20), float64(m.peakRSS.Load())/(1<<20))
		require.Less(t, m.peakHeap.Load(), uint64(8<<20), name)
		require.Less(t, m.peakRSS.Load(), uint64(16<<20), name)
	}
}

func uploadedSum(r *svc.UploadResult, err error) (uint32, error) {
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(r.ETag, 10, 32)
	return uint32(n), err
}
