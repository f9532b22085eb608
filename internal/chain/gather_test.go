package chain

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestGather(t *testing.T) {
	cut := errors.New("cut")
	for _, size := range []int{0, 1, exact - 1, exact, exact + 1, 2 * exact, 2*exact + 7} {
		want := bytes.Repeat([]byte("x"), size)
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"plain": func(r io.Reader) io.Reader { return r }, "data with EOF": iotest.DataErrReader, "halves": iotest.HalfReader,
		} {
			got, over, err := gather(wrap(bytes.NewReader(want)), MaxAnswer)
			require.NoError(t, err, "%d %s", size, name)
			require.False(t, over)
			require.True(t, bytes.Equal(want, got), "%d %s", size, name)
		}
		got, over, err := gather(io.MultiReader(bytes.NewReader(want), iotest.ErrReader(cut)), MaxAnswer)
		require.ErrorIs(t, err, cut, size)
		require.False(t, over)
		require.Len(t, got, size)
		got, _, err = gather(io.MultiReader(bytes.NewReader(want), iotest.ErrReader(io.ErrUnexpectedEOF)), MaxAnswer)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a cut is not the end")
		require.Len(t, got, size)
	}
	for _, limit := range []int64{0, 5, exact, 3 * exact} {
		got, over, err := gather(strings.NewReader(strings.Repeat("x", int(limit))), limit)
		require.NoError(t, err)
		require.False(t, over, limit)
		require.Len(t, got, int(limit))
		got, over, err = gather(strings.NewReader(strings.Repeat("x", int(limit)+1)), limit)
		require.NoError(t, err)
		require.True(t, over, limit)
		require.LessOrEqual(t, int64(len(got)), limit)
	}
}

// An answer without end costs no more memory than what is read of it.
func TestGatherEndless(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, over, err := gather(endless{}, MaxAnswer)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.True(t, over)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(MaxAnswer+16*exact))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
