package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"example.com/svc"
)

// quiet is how long a log may say nothing while a wait goes on.
const quiet = 30 * time.Second

// progress shows a wait to a person: on a terminal as one line that moves, and
// in a log as a line for each change.
type progress struct {
	w       io.Writer
	moving  bool
	leaving bool                     // what is waited for is that the endpoint is gone
	bar     *progressbar.ProgressBar // nil: not begun, or no terminal
	failed  string                   // why the last look failed; empty: it did not
	told    time.Duration
}

// poll is for [svc.WaitOptions.OnPoll].
func (p *progress) poll(look svc.Poll) {
	failed, colon := "", ""
	if look.Err != nil {
		failed, colon = look.Err.Error(), ": "
	}
	text := p.text(look)
	news := look.Changed || failed != p.failed
	p.failed = failed
	over := look.Next == 0
	if p.moving && !over {
		p.show(text + colon + failed)
		return
	}
	p.end()
	if over && failed != "" {
		return // the error of the wait says it
	}
	if over || news || look.Elapsed >= p.told+quiet {
		_, _ = fmt.Fprintf(p.w, "%s after %v%s%s\n", text, look.Elapsed.Round(time.Second), colon, failed)
		p.told = look.Elapsed
	}
}

// text says what a look has seen.
func (p *progress) text(look svc.Poll) string {
	gone := look.Status == "deleted" || look.Service != nil && look.Service.IsDeleted
	switch {
	case look.Err != nil:
		return look.ID + " could not be read"
	case p.leaving && gone:
		return look.ID + " is deleted"
	case p.leaving: // whatever it does there is no failure of the delete
		return fmt.Sprintf("%s is still there (%s)", look.ID, look.Status)
	}
	return fmt.Sprintf("%s is %s", look.ID, look.Status)
}

func (p *progress) show(text string) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(p.w), progressbar.OptionSpinnerType(14),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	}
	p.bar.Describe(text)
	_ = p.bar.Add(1)
}

// end takes the moving line away, so that others can be written.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
}
