package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBarOnATerminal: a bar on a terminal that has room for it, and else a short line. It starts
// over when a second attempt sends the contents again.
func TestBarOnATerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		width      int
		says, then string
	}{
		"wide":   {120, `uploading a  50% .*\[?[=█]+`, `uploading a  20% `},
		"narrow": {60, `uploading a: 50 % of 100 bytes`, `uploading a: 20 % of 100 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &patientWriter{queue: make(chan []byte, 4096)}
			text := func() string {
				var b bytes.Buffer
				for len(w.queue) > 0 {
					b.Write(<-w.queue)
				}
				return b.String()
			}
			k := &talk{w: w, mode: "line", width: func() int { return tt.width }}
			progress := k.transfer("uploading a")
			progress(50, 100)
			require.Regexp(t, tt.says, text())
			progress(20, 100)
			require.Regexp(t, tt.then, text())
		})
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 8_400_000: "8.4 MB", 1 << 40: "1.1 TB"} {
		require.Equal(t, want, size(n))
	}
}
