package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"example.com/svc"
)

// quiet is the time after which a wait writes a line to a log even if nothing has changed.
const quiet = 30 * time.Second

// progress shows a wait: on a terminal as one line that is updated, in a log as a line
// for each change.
type progress struct {
	w        io.Writer
	moving   bool                     // w is a terminal: one line is updated
	deleting bool                     // the wait is for a deletion
	bar      *progressbar.ProgressBar // the line on the terminal; nil: there is none now
	failed   string                   // why the last poll failed; empty: it succeeded
	told     time.Duration            // time from the start of the wait to the last line
}

// poll is the function for [svc.WaitOptions.OnPoll].
func (p *progress) poll(seen svc.Poll) {
	failed, colon := "", ""
	if seen.Err != nil {
		failed, colon = seen.Err.Error(), ": "
	}
	text := p.text(seen)
	changed := seen.Changed || failed != p.failed
	p.failed = failed
	last := seen.Next == 0
	if p.moving && !last {
		p.show(text + colon + failed)
		return
	}
	p.end()
	if last && failed != "" {
		return // the error of the wait holds the reason
	}
	if last || changed || seen.Elapsed >= p.told+quiet {
		_, _ = fmt.Fprintf(p.w, "%s after %v%s%s\n", text, seen.Elapsed.Round(time.Second), colon, failed)
		p.told = seen.Elapsed
	}
}

// text says what a poll has seen.
func (p *progress) text(seen svc.Poll) string {
	deleted := seen.Status == "deleted" || seen.Service != nil && seen.Service.IsDeleted
	switch {
	case seen.Err != nil:
		return seen.ID + " could not be read"
	case p.deleting && deleted:
		return seen.ID + " is deleted"
	case p.deleting: // while an endpoint is being deleted, its status never means a failure, not even "unavailable"
		return fmt.Sprintf("%s is still there (%s)", seen.ID, seen.Status)
	}
	return fmt.Sprintf("%s is %s", seen.ID, seen.Status)
}

func (p *progress) show(text string) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(p.w), progressbar.OptionSpinnerType(14),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	}
	p.bar.Describe(text)
	_ = p.bar.Add(1)
}

// end clears the line on the terminal, so that other lines can be written.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
}
