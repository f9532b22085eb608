package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows the progress of a transfer: as a bar on a terminal, or as a line for every 10 % in
// a log.
type bar struct {
	w        io.Writer
	terminal bool
	what     string // text before the bar, such as "uploading"
	b        *progressbar.ProgressBar
	done     int64
	tenths   int64
}

func newBar(w io.Writer, terminal bool, what string) *bar {
	return &bar{w: w, terminal: terminal, what: what}
}

// progress is the function for [svc.UploadOptions.Progress] and [svc.DownloadOptions.Progress].
func (b *bar) progress(done, total int64) {
	if !b.terminal {
		b.log(done, total)
		return
	}
	if b.b != nil && done < b.done { // the contents are sent again
		_ = b.b.Clear()
		b.b = nil
	}
	if b.b == nil {
		b.b = progressbar.NewOptions64(total, // below 0 the total is not known: a spinner is shown
			progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(b.what), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionSetSpinnerChangeInterval(0)) // 0: the spinner moves only when bytes were sent
	}
	b.done = done
	_ = b.b.Set64(done)
}

func (b *bar) log(done, total int64) {
	if total <= 0 {
		return
	}
	if tenths := done * 10 / total; tenths != b.tenths {
		_, _ = fmt.Fprintf(b.w, "%s: %d %% of %d bytes\n", b.what, 10*tenths, total)
		b.tenths = tenths
	}
}

// end ends the line of the bar.
func (b *bar) end() {
	if b.b != nil {
		_, _ = fmt.Fprintln(b.w)
	}
}
