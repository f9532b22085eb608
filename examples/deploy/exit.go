package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// Each exit code has one meaning: see exitCodes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitTimeout     = 3
	exitUnknown     = 4
	exitNotFound    = 5
	exitRefused     = 6
	exitTryLater    = 7
	exitUnusable    = 8
	exitLedger      = 9
	exitRunning     = 10
	exitDeleted     = 11
	exitInterrupted = 130
)

const exitCodes = `The token is read from the environment variable SVC_API_TOKEN.

Exit codes:
  0    done. After "deploy" and "scale", the requested instances are running and billed.
       After "adopt" and "sweep --dry-run", the endpoints that they name may be
  1    failed for a reason that has no other code; nothing was created
  2    usage error; nothing was sent
  3    the time limit of --timeout is over; nothing was created or changed
  4    the outcome of a create is unknown: of the create of this command, or of an earlier one
       with the same --key. An endpoint may be running and billed, and its ID is not known.
       Do not run the command again before you know the outcome
  5    the service says that the endpoint does not exist or is deleted, or no flavor fits;
       nothing was created
  6    the service did not accept the token; nothing was created
  7    the service cannot be reached or is overloaded; nothing was created. You can run the
       same command again
  8    the endpoint is unavailable or stopped ("wait", "status --url")
  9    a problem with the ledger stopped the command, and nothing was created or changed:
       - the folder of the ledger cannot be made (then nothing was sent), read or written
       - the ledger is damaged
       - another request created the endpoint of --key ("key_in_use")
       - "adopt" or "forget" is refused: the message says why
       Endpoints that ran before may still be running. ("sweep" has deleted those
       whose lease is over, as far as it could read their entries)
  10   an endpoint may be running and billed:
       - "deploy" failed, and it or an earlier command with the same --key may have created one
       - "scale" did not see the new number of instances: the new number may be billed, or
         the old one
       - "delete" did not see that the endpoint is deleted
       - "sweep" did not see that all endpoints whose lease is over are deleted
  11   "deploy" failed, and the endpoint is deleted
  130  interrupted; nothing was created or changed

Four commands are about endpoints that are billed: "deploy" about the endpoint that it creates
and the endpoint of its --key, "scale" and "delete" about the endpoint with the ID, "sweep"
about the endpoints at this address whose lease is over. These endpoints may be running after
4 and 10, and after 0 of "deploy", "scale" and "sweep --dry-run". After 2 and 9 they may be
running if they ran before. After all other codes it is known that none of them is running.

If a command failed and an endpoint may be running, the last line on standard error says so.
With --json, the four commands report "may_be_running" after every code except 2. It is false
only if it is known that none of their endpoints is running. "error_kind" says why a command
failed, and "request_id" is the ID of the failed request, if the service sent one.

Signals within two seconds count as one, because timeout(1) sends two. A later signal ends the
cleanup, and the exit code is 10 or 4. The cleanup takes 40 s at most: up to 10 s until the
response to a create arrives, and up to 30 s for the delete.`

// usageError is a mistake in the command line or the environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// plainly replaces the error of a value that cannot be parsed: the new error says in plain
// words what the value must be.
func plainly(err error) error {
	for origin, want := range map[string]string{
		": strconv.ParseInt: ": "must be a whole number",
		": parse error":        "must be true or false",
		": time: ":             "must be a duration, such as 90s or 1h30m",
	} {
		text, why, found := strings.Cut(err.Error(), origin)
		if strings.HasSuffix(why, "value out of range") {
			want = "is out of range"
		}
		if found {
			return errors.New(text + ": " + want)
		}
	}
	return err
}

// result is what a command found, for --json.
type result struct {
	Event     string       `json:"event"` // "created", "resumed", "result", "fake"
	ExitCode  *int         `json:"exit_code,omitempty"`
	ServiceID string       `json:"service_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Key       string       `json:"key,omitempty"` // the --key of "deploy deploy"
	Status    string       `json:"status,omitempty"`
	Instances *int64       `json:"instances,omitempty"`
	URL       string       `json:"url,omitempty"`
	Deleted   bool         `json:"deleted,omitempty"` // the endpoint existed, and is known to be deleted
	Flavors   []flavorLine `json:"flavors,omitempty"`
	Entries   []entryLine  `json:"entries,omitempty"` // entries of the ledger

	MayBeRunning *bool   `json:"may_be_running,omitempty"` // see running; absent after exitUsage, and for commands that are not in atStake
	Error        string  `json:"error,omitempty"`
	ErrorKind    string  `json:"error_kind,omitempty"`          // see kinds
	RequestID    string  `json:"request_id,omitempty"`          // the ID that the service gave the failed request
	RetryAfter   float64 `json:"retry_after_seconds,omitempty"` // how long the service asked to wait before a retry

	Env map[string]string `json:"env,omitempty"` // environment variables that "deploy fake" prints

	command string // name of the command, such as "deploy"; empty: the command line was not valid
	created bool   // an endpoint exists or existed; this command or an earlier one with the same key created it
	running bool   // false only if it is known that no endpoint of the command (see exitCodes) is running
	unswept bool   // an endpoint whose lease is over was not deleted
	target  int    // instances to scale to
}

// atStake lists the commands after which an endpoint may be running and billed.
var atStake = []string{"deploy", "scale", "delete", "sweep"}

// kind is a kind of error.
type kind struct {
	name string // for error_kind
	code int    // exit code if nothing may be running
	is   func(error) bool
}

const keyInUse = "key_in_use"

// kinds lists the kinds of errors. The kind of an error is the first one that matches it.
var kinds = []kind{
	{"outcome_unknown", exitUnknown, matches(svc.ErrOutcomeUnknown)},
	{keyInUse, exitLedger, matches(svc.ErrKeyInUse)},
	{"usage", exitUsage, isA[usageError]},
	{"usage", exitUsage, isA[*svc.ValidationError]},
	{"interrupted", exitInterrupted, matches(context.Canceled)},
	{"timeout", exitTimeout, matches(context.DeadlineExceeded)},
	{"unauthorized", exitRefused, matches(svc.ErrUnauthorized)},
	{"forbidden", exitRefused, matches(svc.ErrForbidden)},
	{"unavailable", exitUnusable, matches(svc.ErrUnavailable)},
	{"stopped", exitUnusable, matches(svc.ErrStopped)},
	{"not_available", exitUnusable, matches(errNotReachable)},
	{"not_found", exitNotFound, matches(svc.ErrNotFound)},
	{"no_flavor", exitNotFound, matches(errNoFlavor)},
	{"rate_limited", exitTryLater, matches(svc.ErrRateLimited)},
	{"server_error", exitTryLater, matches(svc.ErrServer)},
	{"unreachable", exitTryLater, isA[*svc.TransportError]},
	{"refused", exitFailed, isA[*svc.Error]},
	{"unexpected_response", exitFailed, isA[*svc.DecodeError]},
	{"ledger", exitLedger, isA[*ledger.Error]},
	{"failed", exitFailed, func(error) bool { return true }},
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

// exitCode returns the exit code of a command that ended with err. Whether an endpoint is
// running or deleted is more important than the reason of the failure.
func (r *result) exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	code := kindOf(err).code
	switch {
	case r.created && !r.running:
		return exitDeleted
	case r.created || r.unswept:
		return exitRunning
	case code == exitUsage || code == exitLedger || code == exitUnknown:
		return code
	case r.running:
		return exitRunning
	}
	return code
}

// finish fills in the fields of the result that are known only when the command has ended.
func (r *result) finish(err error) {
	code := r.exitCode(err)
	r.ExitCode = &code
	if err != nil {
		r.Error, r.ErrorKind, r.RequestID, r.RetryAfter = err.Error(), kindOf(err).name, requestID(err), retryAfter(err).Seconds()
	}
	running := r.running || code == exitUnknown
	if slices.Contains(atStake, r.command) && code != exitUsage {
		r.MayBeRunning = &running
	}
}

// report writes what went wrong and what to do about it, and returns the exit code. It writes
// to standard error first, since a write to standard output may block if nobody reads it.
func (t *tool) report(err error) int {
	t.result.finish(err)
	if err != nil {
		t.say("deploy: %v", err)
		for _, line := range t.advice(err) {
			t.say("%s", line)
		}
	}
	if !t.json {
		return *t.result.ExitCode
	}
	if unwritten := t.emit("result"); unwritten != nil && err == nil {
		t.json = false
		return t.report(unwritten)
	}
	return *t.result.ExitCode
}

// emit writes what is known so far as one line of JSON.
func (t *tool) emit(event string) error {
	t.result.Event = event
	return json.NewEncoder(t.stdout).Encode(t.result)
}

func (t *tool) say(format string, args ...any) {
	t.progress.end()
	_, _ = fmt.Fprintf(t.stderr, format+"\n", args...)
}

// retryAfter returns how long the service asked to wait before a retry; 0: it did not ask.
func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*svc.Error](err); ok {
		return refused.RetryAfter
	}
	return 0
}

// requestID returns the ID that the service gave the failed request; empty: not known.
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

// advice says what to do about an error, in lines for a person. If an endpoint may be
// running, the last line says so.
func (t *tool) advice(err error) (lines []string) {
	if wait := retryAfter(err); wait > 0 {
		lines = append(lines, fmt.Sprintf("The service asks to wait %v before the next try.", wait.Round(time.Second)))
	}
	switch *t.result.ExitCode {
	case exitUsage:
		return append(lines, "Run the command with --help to see what it needs.")
	case exitDeleted:
		return append(lines, "Nothing is left running.")
	case exitRunning:
		if kindOf(err).code == exitRefused {
			lines = append(lines, "Check SVC_API_TOKEN.")
		}
		if kindOf(err).code == exitLedger && t.result.created {
			lines = append(lines, "The ledger in "+t.ledger+" could not record the ID: keep it yourself.")
		}
		return append(lines, t.result.left())
	case exitUnknown:
		return append(lines, t.unknownOutcome(err)...)
	case exitRefused:
		return append(lines, "Check SVC_API_TOKEN.")
	case exitLedger:
		return append(lines, t.stopped(err)...)
	case exitNotFound:
		if t.result.command != "deploy" && t.result.command != "flavors" {
			lines = append(lines, "Check the ID: the service has no such endpoint, or has deleted it.")
		}
	}
	return lines
}

// stopped says what to do after exitLedger.
func (t *tool) stopped(err error) (lines []string) {
	settling := t.result.command == "adopt" || t.result.command == "forget"
	if errors.Is(err, svc.ErrKeyInUse) {
		lines = append(lines, "Delete the endpoint of the key first (\"deploy ls\" shows its ID), or repeat the request that created it, or choose another --key.")
	} else if !settling && t.ledger != "" {
		lines = append(lines, fmt.Sprintf("Repair the ledger in %q, or choose another folder with --ledger.", t.ledger))
	}
	switch {
	case settling:
		return append(lines, "Nothing was recorded. The endpoint of the entry may be running and billed: see \"deploy ls\".")
	case t.result.command == "sweep":
		return append(lines, "Endpoints whose entries could not be read may be running and billed.")
	case t.result.running:
		return append(lines, "Nothing was created or changed. Endpoints that ran before may still be running and billed.")
	}
	return append(lines, "Nothing was created or changed.")
}

// left says what may be running after exitRunning.
func (r *result) left() string {
	switch {
	case r.command == "deploy" && !r.created:
		return fmt.Sprintf("Nothing was created. An endpoint of the key %s may be running and billed: see \"deploy ls\".", r.Key)
	case r.command == "sweep":
		return "Endpoints whose lease is over may still be running and billed: see the list. For entries in doubt see \"deploy ls --help\"."
	case r.command == "scale":
		return fmt.Sprintf("Up to %d instances of %[2]s may be running and billed, or as many as before. To see how many: deploy status --json %[2]s", r.target, r.ServiceID)
	}
	return fmt.Sprintf("%[1]s may still be running and billed. To delete it: deploy delete %[1]s", r.ServiceID)
}

func (t *tool) unknownOutcome(err error) []string {
	more, found, again := "", "", "if it is not there, run the command again. The entry stays in doubt in the ledger: see \"deploy ls --help\"."
	if t.result.Key != "" {
		found = fmt.Sprintf("record its ID (deploy adopt %s ID), then ", t.result.Key)
		again = fmt.Sprintf("if it is not there, record that (deploy forget %[1]s). Until then nothing is created under the key %[1]s.", t.result.Key)
	}
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok && unknown.Intent != "" {
		more = fmt.Sprintf(", with [svc:%s] in its description,", unknown.Intent)
		if unknown.ID != "" {
			more += fmt.Sprintf(" and perhaps with the ID %s,", unknown.ID)
		}
	}
	return []string{
		"It is not known whether the endpoint was created. It may be running and billed.",
		"Do NOT run the command again before you know:",
		fmt.Sprintf("  1. look for an endpoint named %q%s where the service shows what your account runs;", t.result.Name, more),
		"  2. if it is there, " + found + "keep it (deploy wait ID) or delete it (deploy delete ID);",
		"  3. " + again,
	}
}
