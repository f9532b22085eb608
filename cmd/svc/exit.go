package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/internal/lazy"
	"example.com/svc/ledger"
)

// Each exit code has one meaning: see exitCodes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitTimeout     = 3
	exitUnknown     = 4
	exitNotFound    = 5
	exitRefused     = 6
	exitTryLater    = 7
	exitUnusable    = 8
	exitLedger      = 9
	exitRunning     = 10
	exitDeleted     = 11
	exitUsage       = 64 // not 2: the Go runtime ends with 2 after a panic, when anything may be running
	exitNoCommand   = 127
	exitInterrupted = 130
)

// usageError is a mistake in the command line or the environment. Nothing was sent.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// negative matches what pflag says of a negative number, and the number.
var negative = lazy.Regexp(`^unknown shorthand flag: '\d' in (-\S+)$`)

// flagName matches what pflag says of the value of a flag, and the name of the flag.
var flagName = lazy.Regexp(`^invalid argument .* for "(?:-\w, )?--([\w-]+)" flag$`)

// plainly replaces the error of a value that cannot be parsed with a description of valid
// values.
func plainly(err error, c *cobra.Command) error {
	if found := negative().FindStringSubmatch(err.Error()); found != nil {
		return fmt.Errorf("%s is neither a flag nor an argument: no argument begins with \"-\", and no number or duration is negative: %s", found[1], c.UseLine())
	}
	for origin, want := range map[string]string{
		": strconv.ParseInt: ":  "must be a whole number",
		": strconv.Atoi: ":      "must be a whole number",
		": strconv.ParseBool: ": "must be true or false",
		": " + errDays.Error():  errDays.Error(),
	} {
		text, why, found := strings.Cut(err.Error(), origin)
		if strings.HasSuffix(why, "value out of range") {
			want = "is out of range"
		}
		if name := flagName().FindStringSubmatch(text); name != nil && ranges[name[1]].text != "" {
			want = "must be " + ranges[name[1]].text
		}
		if found {
			return errors.New(text + ": " + want)
		}
	}
	return err
}

var (
	errNotReachable = errors.New("cannot be reached")
	errNoFlavor     = errors.New("no flavor fits")
	errProblem      = errors.New("problems were found")
)

// soldOutError is returned if flavors fit, and too few instances of them are in stock. It matches errNoFlavor.
type soldOutError struct{ text string }

func (e soldOutError) Error() string { return e.text }

func (soldOutError) Is(target error) bool { return target == errNoFlavor }

// kind is a kind of error.
type kind struct {
	name string // value of error_kind
	code int    // exit code if nothing may be running
	is   func(error) bool
}

// kinds lists the kinds of errors. The kind of an error is the first one that matches it.
var kinds = []kind{
	{"outcome_unknown", exitUnknown, matches(svc.ErrOutcomeUnknown)},
	{"key_in_use", exitLedger, matches(svc.ErrKeyInUse)},
	{"no_ledger", exitLedger, isA[noLedgerError]},
	{"endpoint_exists", exitLedger, isA[runningError]},
	{"being_deleted", exitRunning, isA[deletingError]},
	{"overtaken", exitFailed, isA[overtakenError]},
	{"overtaken", exitLedger, isA[changedError]},
	{"other_token", exitRefused, isA[otherTokenError]},
	{"usage", exitUsage, isA[usageError]},
	{"unexpected_response", exitFailed, isBadLink},
	{"usage", exitUsage, isA[*svc.ValidationError]},
	{"output", exitFailed, isA[unwritable]},
	{"output", exitFailed, isA[resultError]},
	{"unauthorized", exitRefused, isA[tokenError]},
	{"interrupted", exitInterrupted, matches(context.Canceled)},
	{"timeout", exitTimeout, matches(context.DeadlineExceeded)},
	{"refused", exitFailed, isLinkRefused},
	{"unauthorized", exitRefused, matches(svc.ErrUnauthorized)},
	{"forbidden", exitRefused, matches(svc.ErrForbidden)},
	{"unavailable", exitUnusable, matches(svc.ErrUnavailable)},
	{"stopped", exitUnusable, matches(svc.ErrStopped)},
	{"not_available", exitUnusable, matches(errNotReachable)},
	{"retired", exitFailed, isRetired},
	{"not_found", exitNotFound, matches(svc.ErrNotFound)},
	{"no_flavor", exitNotFound, matches(errNoFlavor)},
	{"rate_limited", exitTryLater, matches(svc.ErrRateLimited)},
	{"server_error", exitTryLater, matches(svc.ErrServer)},
	{"unreachable", exitTryLater, isA[*svc.TransportError]},
	{"refused", exitFailed, isA[*svc.Error]},
	{"unexpected_response", exitFailed, isA[*svc.DecodeError]},
	{"ledger", exitLedger, isA[*ledger.Error]},
	{"command_not_executable", exitNoCommand, func(err error) bool {
		return isA[*exec.Error](err) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, errNoInterpreter)) || matches(errStart)(err)
	}},
	{"command_not_found", exitNoCommand, isA[*exec.Error]},
	{"wrong_checksum", exitFailed, matches(errWrongSum)},
	{"problem", exitFailed, matches(errProblem)},
	{"failed", exitFailed, func(error) bool { return true }},
}

// isLinkRefused reports whether the storage has refused a presigned link. The token is not sent to it.
func isLinkRefused(err error) bool {
	refused, ok := errors.AsType[*svc.Error](err)
	return ok && ofStorage(refused) && (errors.Is(err, svc.ErrUnauthorized) || errors.Is(err, svc.ErrForbidden))
}

// ofStorage reports whether a response is of the storage behind a link, and not of the service.
func ofStorage(refused *svc.Error) bool { return !strings.HasPrefix(refused.Route, "/") }

// isBadLink reports whether a link is not valid. All links are from the service: no command takes one.
func isBadLink(err error) bool {
	invalid, ok := errors.AsType[*svc.ValidationError](err)
	return ok && slices.ContainsFunc(invalid.Fields, func(p svc.FieldProblem) bool { return p.Field == "link" })
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func matches(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func kindOf(err error) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.is(err) })]
}

// isRetired reports whether the service responded that an API is retired. A 404 may also mean
// that the ID is wrong.
func isRetired(err error) bool {
	refused, ok := errors.AsType[*svc.Error](err)
	return ok && refused.StatusCode == http.StatusGone && errors.Is(err, svc.ErrRetired)
}

func isNotFound(err error) bool { return errors.Is(err, svc.ErrNotFound) }

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

func (e coded) Unwrap() error { return e.error }

// exitOfCMD is the exit code of CMD of "svc run", if it is not 0. It is not a failure of svc.
type exitOfCMD int

func (e exitOfCMD) Error() string { return fmt.Sprintf("CMD has ended with %d", int(e)) }

// exitCode returns the exit code of a command that ended with err. Whether an endpoint is
// running or deleted is more important than the reason of the failure.
func exitCode(err error, at stake, f facts) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[coded](err); ok {
		return e.code
	}
	if e, ok := errors.AsType[exitOfCMD](err); ok {
		return int(e)
	}
	code := kindOf(err).code
	switch {
	case at == nothing && code == exitUnknown: // of a file record: no endpoint can be running
		return exitFailed
	case at != changes:
		return code
	case f.Created && !f.Running, f.Replaced != "" && !f.Running && code != exitUnknown:
		return exitDeleted
	case f.Created || f.Left:
		return exitRunning
	case code == exitUsage || code == exitLedger || code == exitUnknown:
		return code
	case f.Running:
		return exitRunning
	}
	return code
}

// givenUp returns the error of an interrupted run.
func (t *tool) givenUp() error {
	cause := cmp.Or[error](context.Cause(t.ctx), interruption{syscall.SIGQUIT}) // no other signal leaves ctx as it is
	switch f := t.facts(); {
	case f.Uploading != "":
		return &svc.UploadError{Stage: svc.UploadStageRegister, FileName: f.Uploading, Err: &svc.OutcomeUnknownError{RequestInfo: svc.RequestInfo{Method: "POST", Route: "/v1/files"}, Err: cause}}
	case f.UploadTo != "":
		return &svc.UploadError{Stage: svc.UploadStagePut, FileID: f.UploadTo, Err: fmt.Errorf("given up: %w", cause)}
	case f.Created || f.Resumed:
		return fmt.Errorf("given up: %w", cause)
	case f.Pending && (f.Intent != "" || t.place.driver == "none"): // without a recorded intent, nothing is sent
		return &svc.OutcomeUnknownError{RequestInfo: svc.RequestInfo{Method: "POST", Route: "/v1/inference-service"}, Name: f.Name, Key: f.Entry, Intent: f.Intent, Err: cause}
	}
	return cause
}

// report writes what the command found, what went wrong and what to do about it, and returns
// the exit code. It writes to standard error first, since a write to standard output may block
// if nobody reads it.
func (t *tool) report(err error, args []string) int {
	t.mu.Lock()
	c, f, v := t.current, t.known, t.shown
	if v == nil && t.partial != nil {
		v = t.partial()
	}
	t.mu.Unlock()
	f.Unwritten = isA[unwritable](err)
	if c == nil { // the command line was not valid, or it asked for help
		c, f.Running = t.guess(err, args)
	}
	code := exitCode(err, c.stake, f)
	if failed := t.saveResult(err, code, c, f); failed != nil && (err == nil || isA[exitOfCMD](err)) {
		err, code = failed, exitFailed
	} else if failed != nil {
		t.talk.fail("svc: %s", plainText(failed))
	}
	ofCMD := isA[exitOfCMD](err)
	if err != nil && !ofCMD { // CMD has reported its own failure
		t.talk.fail("svc: %s", plainText(err))
		for _, line := range t.advice(err, code, c, f) {
			t.talk.fail("%s", line)
		}
	}
	if unwritten := t.write(err, code, c, f, v); unwritten != nil && err == nil {
		t.published.Store(true)
		return t.report(unwritten, args)
	}
	return code
}

// guess finds the command of a command line that is not valid, or that asks for help, and its flags. It
// reports whether an endpoint of the command may be running.
func (t *tool) guess(err error, args []string) (c *command, running bool) {
	c = &command{empty: emptyMessage}
	c.Command, _, _ = t.root.Find(args)
	_, running = guessed(args, "key", "")
	if i := slices.IndexFunc(t.all, func(known *command) bool { return known.Command == c.Command }); i >= 0 {
		c.empty, running = t.all[i].empty, t.all[i].atStake(running)
		if isA[interruption](err) { // before the command line was read
			c.stake = t.all[i].stake
			c.left = func(facts) []string {
				return []string{"What the command is about may be running and billed. To see what the ledger has: " + t.cmd("ls")}
			}
		}
	}
	if form, ok := guessed(args, "output", "o"); ok {
		_ = t.flags.output.Set(form)
	}
	if mode, ok := guessed(args, "progress", ""); ok {
		_ = t.flags.progress.Set(mode)
	}
	t.talk.set(&t.flags)
	t.result.name, _ = guessed(args, "result", "")
	return c, running && err != nil
}

// write writes the document of a command to standard output.
func (t *tool) write(err error, code int, c *command, f facts, v view) error {
	format := t.format()
	document := isDocument(format)
	if format == "none" || c.run == nil && err == nil || v == nil && !document {
		return t.stdout.err()
	}
	if v == nil {
		v = c.empty()
	}
	t.complete(v, err, code, c, f)
	text, failed := t.flags.render(v)
	if failed != nil {
		return failed
	}
	if text != "" {
		_, _ = t.stdout.Write([]byte(text))
	}
	return t.stdout.err()
}

// complete fills in the fields that the documents of all commands share.
func (t *tool) complete(v view, err error, code int, c *command, f facts) {
	if r, ok := v.(*runView); ok && !f.GivenBack {
		r.SvcExitCode = code
	}
	if k, ok := v.(interface {
		know(facts, error, func(*svc.InferenceService) *serviceView)
	}); ok {
		k.know(f, err, t.shows)
	}
	if served, ok := v.(*fakeView); ok {
		served.Ended = &code
	}
	o := v.base()
	o.ExitCode, o.MayBeRunning = code, f.Running || code == exitUnknown && !isA[exitOfCMD](err)
	if o.ServiceID == "" && !strings.Contains(f.ID, " ") { // not for several
		o.ServiceID = f.ID
	}
	if o.Key == "" {
		o.Key = cmp.Or(f.Key, f.Entry)
	}
	if err != nil && !isA[exitOfCMD](err) {
		o.failure = &failure{plainText(err), kindOf(err).name, requestID(err), retryAfter(err).Seconds(), nil}
	}
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok && c.stake != nothing {
		u := &unknownCreate{unknown.Key, unknown.Intent, cmp.Or(unknown.Name, f.Name), stamp(f.SettleBy)}
		o.UnknownCreate, o.Key = u, cmp.Or(o.Key, u.Key)
		o.ServiceID = cmp.Or(o.ServiceID, unknown.ID)
	}
	if o.failure != nil && f.Doubt != nil && !isA[changedError](err) && !isA[unwritable](err) {
		o.UnknownCreate = f.Doubt
	}
}

// isDocument reports whether a form of the output is a document.
func isDocument(form string) bool { return form == "json" || form == "yaml" }

// format is the form of the output; "none" if it was written already.
func (t *tool) format() string {
	if t.published.Load() {
		return "none"
	}
	return t.flags.output.value
}

// publish writes a document before the command ends. Nothing is written at the end.
func (t *tool) publish(ctx context.Context, v view) error {
	text, err := t.flags.render(v)
	if err != nil {
		return err
	}
	t.published.Store(true)
	return t.stdout.writeUntil(ctx, text)
}

// guessed finds the value of a flag in a command line that is not valid.
func guessed(args []string, long, short string) (value string, found bool) {
	for i, arg := range args {
		name, text, given := strings.Cut(arg, "=")
		switch {
		case arg == "--": // the rest belongs to CMD
			return value, found
		case name == "--"+long || short != "" && name == "-"+short:
			if !given && i+1 < len(args) {
				text = args[i+1]
			}
			value, found = text, true
		case short != "" && strings.HasPrefix(arg, "-"+short):
			value, found = strings.TrimPrefix(arg, "-"+short), true
		}
	}
	return value, found
}

// retryAfter returns how long the service asked to wait before a retry, or 0 if it did not ask.
func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*svc.Error](err); ok {
		return refused.RetryAfter
	}
	return 0
}

// requestID returns the ID that the service gave the failed request, or an empty string if not known.
func requestID(err error) string {
	if e, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok && e.RequestID != "" {
		return e.RequestID
	}
	if e, ok := errors.AsType[*svc.Error](err); ok && e.RequestID != "" {
		return e.RequestID
	}
	if e, ok := errors.AsType[*svc.DecodeError](err); ok {
		return e.RequestID
	}
	return ""
}
