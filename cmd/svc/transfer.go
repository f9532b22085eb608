package main

import (
	"fmt"

	"github.com/schollz/progressbar/v3"
)

// transfer returns the function for the progress of a transfer: on a terminal a bar moves, and
// in a log there is a line for each 10 %.
func (t *talk) transfer(what string) func(done, total int64) {
	tenths := int64(0)
	return func(done, total int64) {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case t.quiet || t.mode == "none":
		case t.mode == "line":
			t.showBytes(what, done, total)
		case total > 0 && done*10/total != tenths:
			tenths = done * 10 / total
			t.emit(map[string]any{"event": "transfer", "bytes": done, "total": total},
				fmt.Sprintf("%s: %d %% of %s", what, tenths*10, size(total)))
		}
	}
}

// showBytes moves the bar. A terminal that is too narrow for a bar gets the moving line of a wait.
func (t *talk) showBytes(what string, done, total int64) {
	const barWidth, around = 20, 55 // around: percent, bytes, speed and time
	if len(what)+barWidth+around > t.width() {
		text := what + ": " + size(done)
		if total > 0 {
			text = fmt.Sprintf("%s: %d %% of %s", what, done*100/total, size(total))
		}
		t.show(text)
		return
	}
	if t.bar != nil && (done < t.moved || total != t.bar.GetMax64()) { // the contents are sent again
		t.clear()
	}
	if t.bar == nil { // a total below 0 is not known: there is a spinner in place of a bar
		t.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(t.w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(barWidth), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetSpinnerChangeInterval(0))
	}
	t.moved = done
	_ = t.bar.Set64(done)
}

// size writes a number of bytes for a person.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 1000 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}
