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
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sparseFile creates a sparse file of the given size, with different bytes in each MiB.
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

// memory records the growth of the heap.
type memory struct {
	heap     uint64 // at the start
	peakHeap atomic.Uint64
}

func newMemory() *memory {
	runtime.GC()
	debug.FreeOSMemory()
	return &memory{heap: heapNow()}
}

func (m *memory) look() {
	if now := heapNow(); now > m.heap+m.peakHeap.Load() {
		m.peakHeap.Store(now - m.heap)
	}
}

func heapNow() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// checked reads r, and returns its length and checksum. It measures the memory every 16
// MiB.
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

func TestUploadIsNotHeldInMemory_B01(t *testing.T) {
	percent := debug.SetGCPercent(100) // whatever GOGC is: the limits below count garbage too
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	leftovers := inTempDir(t)
	size := int64(testkit.Shorter(256<<20, 64<<20))
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
