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
	w      io.Writer
	moving bool
	bar    *progressbar.ProgressBar // nil: not begun, or no terminal
	failed string                   // why the last look failed; empty: it did not
	told   time.Duration
}

// poll is for [svc.WaitOptions.OnPoll].
func (p *progress) poll(look svc.Poll) {
	text, failed := fmt.Sprintf("%s is %s", look.ID, look.Status), ""
	if look.Err != nil {
		failed = look.Err.Error()
		text = look.ID + ": " + failed
	}
	news := look.Changed || failed != p.failed
	p.failed = failed
	over := look.Next == 0
	if p.moving && !over {
		p.show(text)
		return
	}
	p.end()
	if over || news || look.Elapsed >= p.told+quiet {
		_, _ = fmt.Fprintf(p.w, "%s after %v\n", text, look.Elapsed.Round(time.Second))
		p.told = look.Elapsed
	}
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
