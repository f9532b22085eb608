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
  0    done; after "deploy" and "scale", what was asked for is running and billed, and
       after "adopt" and "sweep --dry-run" what they name may be
  1    failed for a reason that has no code here; nothing was created
  2    usage: nothing was sent
  3    --timeout is over; nothing was created or changed
  4    the outcome of a create is unknown, of this one or of an earlier one with the
       same --key: an endpoint may be running and billed, and nobody knows its ID. Do not
       run the command again before you know
  5    the service says that it has no such endpoint, or has deleted it, or no flavor fits;
       nothing was created
  6    the service did not accept the token; nothing was created
  7    the service cannot be reached or is overloaded; nothing was created, and the
       same command may be run again
  8    the endpoint is unavailable or stopped ("wait", "status --url")
  9    the ledger stops the command, so nothing was created or changed: its folder cannot
       be made (then nothing was sent), read or written, it is damaged, or the endpoint of
       --key is that of another request ("key_in_use"). What ran before may be running.
       ("sweep" has deleted what it could read)
  10   the endpoint may be running and billed: "deploy deploy", or an earlier one with the
       same --key, created it and this one failed, "deploy delete" did not see that it is
       deleted, "deploy scale" did not see that number of instances (then the new number
       may be billed, or the old one), or "deploy sweep" did not see that all whose
       lease is over are deleted
  11   "deploy deploy" failed, and the endpoint is deleted
  130  interrupted; nothing was created or changed

A command is about these endpoints: "deploy" about the one that it creates and the one of its
--key, "scale" and "delete" about the one of ID, "sweep" about those at this address whose
lease is over. After 4 and 10 they may be running and billed, and after 0 of "deploy",
"scale" and "sweep --dry-run". 2 and 9 do not tell, since what ran before is as it was. After
all other codes it is known that none of them is running. If a command failed, the last line
on standard error says so to people. With --json, "may_be_running" of these four
commands says it after every code but 2: false only if it is known. "error_kind" says why a
command failed, and "request_id" is the ID of the failed request, if the service gave one.

Signals that come within two seconds count as one (timeout(1) sends two). A later one
ends the cleanup, with 10 or 4. The cleanup takes 40 s at most: 10 s until the response
to a create has come, and 30 s for the delete.`

// usageError is a mistake in the command line or the environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// plainly says in plain words what a value in the command line must be, in place of the
// text of the package that parses it.
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
	Key       string       `json:"key,omitempty"` // of "deploy deploy --key"
	Status    string       `json:"status,omitempty"`
	Instances *int64       `json:"instances,omitempty"`
	URL       string       `json:"url,omitempty"`
	Deleted   bool         `json:"deleted,omitempty"` // it existed, and is known to be deleted
	Flavors   []flavorLine `json:"flavors,omitempty"`
	Entries   []entryLine  `json:"entries,omitempty"` // of the ledger

	MayBeRunning *bool   `json:"may_be_running,omitempty"` // see running; only of the commands in atStake, and not after exitUsage
	Error        string  `json:"error,omitempty"`
	ErrorKind    string  `json:"error_kind,omitempty"`          // see kinds
	RequestID    string  `json:"request_id,omitempty"`          // of the failed request
	RetryAfter   float64 `json:"retry_after_seconds,omitempty"` // the service asked to wait this long

	Env map[string]string `json:"env,omitempty"` // of "deploy fake"

	command string // "deploy"; empty: none was understood
	created bool   // there is an endpoint; by this command, or by an earlier one with the same key
	running bool   // false only if it is known that nothing the command is about is running
	unswept bool   // an endpoint whose lease is over was not deleted
	target  int    // instances to scale to
}

// atStake lists the commands after which an endpoint may be running and billed.
var atStake = []string{"deploy", "scale", "delete", "sweep"}

// kind is a kind of error.
type kind struct {
	name string // for error_kind
	code int    // while nothing may be running
	is   func(error) bool
}

const keyInUse = "key_in_use"

// kinds is ordered: the first that fits counts.
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
	{"ledger", exitLedger, isA[*svc.LedgerError]},
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

// exitCode says first what is left, and then why the command failed.
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

// finish fills in what a command ended with.
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

// report ends a command: it says what went wrong and what to do about it. It writes to
// standard error first, since a script that does not read standard output may block it.
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

// retryAfter is how long the service asked to wait when it refused; 0: it did not ask.
func retryAfter(err error) time.Duration {
	if refused, ok := errors.AsType[*svc.Error](err); ok {
		return refused.RetryAfter
	}
	return 0
}

// requestID is the service's ID of the request that failed; empty: not known.
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
		return append(lines, "Run it with --help to see what it needs.")
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
		lines = append(lines, "Delete that endpoint first (\"deploy ls\" shows its ID), repeat the request that it was created with, or choose another --key.")
	} else if !settling {
		lines = append(lines, fmt.Sprintf("Repair the ledger in %q, or choose another folder with --ledger.", t.ledger))
	}
	switch {
	case settling:
		return append(lines, "Nothing was changed: the entry is still in doubt, and its endpoint may be running and billed.")
	case t.result.command == "sweep":
		return append(lines, "Endpoints that it could not read may be running and billed.")
	case t.result.running:
		return append(lines, "Nothing was created or changed. What ran before may be running and billed.")
	}
	return append(lines, "Nothing was created or changed.")
}

// left says what may be running after exitRunning.
func (r *result) left() string {
	switch {
	case r.command == "deploy" && !r.created:
		return fmt.Sprintf("Nothing was created. An endpoint of the key %s may be running and billed: see \"deploy ls\".", r.Key)
	case r.command == "sweep":
		return "Endpoints whose lease is over may still be running and billed: see the list, and for doubts \"deploy ls --help\"."
	case r.command == "scale":
		return fmt.Sprintf("Up to %d instances of %[2]s may be running and billed, or as many as before. To see how many: deploy status --json %[2]s", r.target, r.ServiceID)
	}
	return fmt.Sprintf("%[1]s may still be running and billed. To delete it: deploy delete %[1]s", r.ServiceID)
}

func (t *tool) unknownOutcome(err error) []string {
	more, found, again := "", "", "if it is not there, run the command again. The ledger keeps the doubt: see \"deploy ls --help\"."
	if t.result.Key != "" {
		found = fmt.Sprintf("tell the ledger (deploy adopt %s ID), then ", t.result.Key)
		again = fmt.Sprintf("if it is not there, tell the ledger (deploy forget %[1]s). Until then nothing is created under the key %[1]s.", t.result.Key)
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
