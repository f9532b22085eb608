package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"example.com/svc"
	"example.com/svc/internal/lazy"
)

// quietTime is the time after which a wait writes a line to a log even if nothing has changed.
const quietTime = 30 * time.Second

// talk is everything that goes to standard error: progress, notes, errors and advice.
type talk struct {
	mu       sync.Mutex
	w        *patientWriter
	terminal bool // standard error is a terminal that can move the cursor
	width    func() int
	mode     string // "line": one line that moves; "plain", "json", "none"
	quiet    bool
	verbose  bool
	deleting bool                     // the wait is for a deletion
	bar      *progressbar.ProgressBar // the moving line; nil if there is none now
	moved    int64                    // bytes that the bar shows
	waits    map[string]*waited       // the last poll of each ID
}

// waited is the contents of the last line about an endpoint.
type waited struct {
	failed string        // why the poll failed, without the ID of the request; empty if it succeeded
	told   time.Duration // time from the start of the wait to that line
}

// requestIDs matches the ID of a request in an error, which is another one for each poll.
var requestIDs = lazy.Regexp(`request [^,)]+`)

func newTalk(stderr *os.File) *talk {
	fd := int(stderr.Fd())
	return &talk{
		w: newPatientWriter(stderr), mode: "plain", waits: map[string]*waited{},
		terminal: term.IsTerminal(fd) && os.Getenv("TERM") != "dumb" && !isCI(),
		width: func() int {
			width, _, err := term.GetSize(fd)
			if err != nil || width <= 0 {
				return 80
			}
			return width
		},
	}
}

// isCI reports whether the program runs in a pipeline.
func isCI() bool {
	ci := os.Getenv("CI")
	return ci != "" && ci != "false" && ci != "0"
}

// set applies the flags of a command line.
func (t *talk) set(g *globals) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet, t.verbose, t.mode = g.quiet, g.verbose, g.progress.value
	if t.mode == "auto" {
		t.mode = "plain"
		if t.terminal {
			t.mode = "line"
		}
	}
}

// say writes a line for a person: what happens, or what to do. --quiet drops it.
func (t *talk) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.quiet {
		t.emit(map[string]any{"event": "note"}, fmt.Sprintf(format, args...))
	}
}

// warn writes a line about what may cost money, or hide what runs. It is always written.
func (t *talk) warn(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emit(map[string]any{"event": "warning"}, "warning: "+fmt.Sprintf(format, args...))
}

// fail writes a line about a failure. It is always written.
func (t *talk) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emit(map[string]any{"event": "error"}, fmt.Sprintf(format, args...))
}

// emit writes one line, as JSON if the flags ask for it. The caller holds the lock.
func (t *talk) emit(event map[string]any, text string) {
	t.clear()
	if t.mode == "json" {
		event["message"] = text
		b, _ := json.Marshal(event)
		text = string(b)
	} else {
		text = printableLines(text)
	}
	_, _ = t.w.Write([]byte(text + "\n"))
}

// Write lets cobra write warnings.
func (t *talk) Write(b []byte) (int, error) {
	t.say("%s", strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// poll is the function for [svc.WaitOptions.OnPoll].
func (t *talk) poll(p svc.Poll) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.waits[p.ID]
	if before == nil {
		before = new(waited)
		t.waits[p.ID] = before
	}
	failed, colon := "", ""
	if p.Err != nil && !t.proves(p) {
		failed, colon = plainText(p.Err), ": "
	}
	text, last := t.text(p, failed != ""), p.Next == 0
	reason := requestIDs().ReplaceAllString(failed, "")
	changed := p.Changed || reason != before.failed
	before.failed = reason
	switch {
	case t.quiet || t.mode == "none":
	case t.mode == "line" && !last:
		t.show(text + colon + failed)
	case last && failed != "": // the error of the wait holds the reason
		t.clear()
	case last || changed || p.Number == 1 || p.Elapsed >= before.told+quietTime:
		t.emit(map[string]any{
			"event": "poll", "service_id": p.ID, "status": p.Status, "error": failed,
			"elapsed_seconds": p.Elapsed.Round(time.Millisecond).Seconds(), "polls": p.Number,
		}, fmt.Sprintf("%s after %v%s%s", text, p.Elapsed.Round(time.Second), colon, failed))
		before.told = p.Elapsed
	}
}

// proves reports whether the failure of a poll is a "not found", which may prove a deletion.
func (t *talk) proves(p svc.Poll) bool { return t.deleting && !t.verbose && isNotFound(p.Err) }

// text describes the result of a poll.
func (t *talk) text(p svc.Poll, failed bool) string {
	deleted := p.Status == "deleted" || p.Service != nil && p.Service.IsDeleted
	switch {
	case p.ID == "" && failed:
		return "the list of flavors could not be read"
	case p.ID == "":
		return printable(p.Status)
	case failed && t.deleting && !deleted && isNotFound(p.Err):
		return p.ID + " is not found: checking that it is deleted"
	case failed && p.Service == nil, failed && t.deleting && !deleted && ofRead(p.Err): // the delete may have succeeded
		return p.ID + " could not be read"
	case failed && t.deleting && !deleted:
		return fmt.Sprintf("%s is still there (%s), and its delete failed", p.ID, printable(p.Status))
	case failed && !t.deleting:
		return fmt.Sprintf("%s is %s, but not ready", p.ID, printable(p.Status))
	case t.deleting && deleted:
		return p.ID + " is deleted"
	case t.deleting && p.Status == "":
		return p.ID + " is not found: checking that it is deleted"
	case t.deleting: // while an endpoint is being deleted, its status never means a failure
		return fmt.Sprintf("%s is still there (%s)", p.ID, p.Status)
	}
	return fmt.Sprintf("%s is %s", p.ID, printable(p.Status))
}

// ofRead reports whether an error is of a GET.
func ofRead(err error) bool {
	refused, ok := errors.AsType[*svc.Error](err)
	lost, isLost := errors.AsType[*svc.TransportError](err)
	return ok && refused.Method == http.MethodGet || isLost && lost.Method == http.MethodGet
}

// show moves the line on the terminal. It is cut to the width of the terminal.
func (t *talk) show(text string) {
	if t.bar == nil {
		t.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(t.w), progressbar.OptionSpinnerType(14),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	}
	const spinner = 12 // the spinner and the elapsed time
	if limit := max(t.width()-spinner, 8); len([]rune(text)) > limit {
		text = string([]rune(text)[:limit-1]) + "…"
	}
	t.bar.Describe(text)
	_ = t.bar.Add(1)
}

// clear removes the moving line, so that other lines can be written.
func (t *talk) clear() {
	if t.bar != nil {
		_ = t.bar.Finish()
		t.bar = nil
	}
}

// setDeleting sets whether the waits that follow are for deletions.
func (t *talk) setDeleting(deleting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleting = deleting
}

func (t *talk) endLine() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
}

// attempt is the function for [svc.WithAttemptHook]: with --verbose it writes a line.
func (t *talk) attempt(a svc.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.verbose {
		return
	}
	text := fmt.Sprintf("%s %s", a.Method, a.Route)
	if a.ID != "" {
		text += " " + printable(a.ID)
	}
	if a.Err != nil {
		text += ": " + plainText(a.Err)
	} else {
		text += fmt.Sprintf(": %d", a.StatusCode)
	}
	text += fmt.Sprintf(" in %v", a.Duration.Round(time.Millisecond))
	if a.RequestID != "" {
		text += ", request " + printable(a.RequestID)
	}
	if a.Number > 1 {
		text += fmt.Sprintf(", attempt %d", a.Number)
	}
	if a.Retry {
		text += fmt.Sprintf(", again in %v", a.Delay.Round(time.Millisecond))
	}
	t.emit(map[string]any{"event": "attempt", "method": a.Method, "route": a.Route, "service_id": a.ID, "status_code": a.StatusCode, "request_id": a.RequestID}, text)
}

// flush waits until everything is written, for a limited time.
func (t *talk) flush(limit time.Duration) {
	t.endLine()
	t.w.flush(limit)
}

// patientWriter writes in a goroutine of its own, so that a reader that does not read cannot
// stop a cleanup. If its buffer is full, further output is dropped.
type patientWriter struct {
	queue chan []byte
	idle  chan chan struct{}
}

func newPatientWriter(f *os.File) *patientWriter {
	w := &patientWriter{queue: make(chan []byte, 4096), idle: make(chan chan struct{})}
	go func() {
		for {
			select {
			case b := <-w.queue:
				_, _ = f.Write(b)
			case done := <-w.idle:
				for len(w.queue) > 0 {
					_, _ = f.Write(<-w.queue)
				}
				close(done)
			}
		}
	}()
	return w
}

// Write never blocks and never fails.
func (w *patientWriter) Write(b []byte) (int, error) {
	select {
	case w.queue <- append([]byte(nil), b...):
	default:
	}
	return len(b), nil
}

func (w *patientWriter) flush(limit time.Duration) {
	done, over := make(chan struct{}), time.After(limit)
	select {
	case w.idle <- done:
	case <-over:
		return
	}
	select {
	case <-done:
	case <-over:
	}
}
