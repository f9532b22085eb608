package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/svc"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitTimeout     = 3
	exitUnknown     = 4
	exitNotFound    = 5
	exitRefused     = 6
	exitTryLater    = 7
	exitInterrupted = 130

	exitDeleted = 10 // more than the reason's own: what was created is deleted again
)

const exitCodes = `The token is read from the environment variable SVC_API_TOKEN.

Exit codes:
  0    done
  1    failed: the endpoint is unavailable or stopped, or the service refused
  2    usage: nothing was sent
  3    --timeout is over
  4    the outcome of a create is unknown: an instance may be running and billed,
       so do not just run the command again; the file of --id-file stays, empty,
       and keeps others from it
  5    no such endpoint, or no flavor that fits
  6    the service did not accept the token
  7    the service is out of reach or overloaded: the same command may be run again
  11, 13, 16
       like 1, 3 and 6, but what "deploy deploy" had created is deleted again
  130  interrupted; what "deploy deploy" had created is deleted again, unless the
       last line says otherwise

After a failure of "deploy deploy" with 1, 3, 6 or 130, an endpoint that it had
created may be running. The last line on standard error tells:
  ID may still be running and billed. To get rid of it: deploy delete ID
  Nothing is left running.

Signals that come within two seconds, as those of timeout(1) do, count as one. One
more during the clean-up ends it with 130 or 4. It takes 40 s at most: 10 s until the
answer to a create has come, and 30 s for the delete.`

// usageError is a mistake in the command line or the environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// plainly says what a value in the command line must be, which the packages that
// read it say in their own words.
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
	Event     string       `json:"event"` // "created", "result"
	ExitCode  *int         `json:"exit_code,omitempty"`
	ServiceID string       `json:"service_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Status    string       `json:"status,omitempty"`
	Instances *int64       `json:"instances,omitempty"`
	URL       string       `json:"url,omitempty"`
	Deleted   bool         `json:"deleted,omitempty"` // it was, by this command
	Flavors   []flavorLine `json:"flavors,omitempty"`
	Error     string       `json:"error,omitempty"`

	RetryAfter float64           `json:"retry_after_seconds,omitempty"` // the service asked for so much patience
	Env        map[string]string `json:"env,omitempty"`                 // of "deploy fake"
}

// report ends a command: it says what went wrong and what to do about it, first
// to people, since a script that does not read its pipe must not keep it from them.
func (t *tool) report(err error) int {
	code := exitCode(err)
	if err != nil {
		t.say("deploy: %v", err)
		for _, line := range advice(err, t.idFile) {
			t.say("%s", line)
		}
	}
	if !t.json {
		return code
	}
	t.result.ExitCode = &code
	if err != nil {
		t.result.Error = err.Error()
		t.result.RetryAfter = retryAfter(err).Seconds()
	}
	if unwritten := t.emit("result"); unwritten != nil && err == nil {
		t.say("deploy: %v", unwritten)
		return exitFailed
	}
	return code
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

func exitCode(err error) int {
	code := reason(err)
	if failure, created := errors.AsType[*svc.DeployError](err); !created || failure.Cleanup != svc.CleanupDeleted {
		return code
	}
	switch code {
	case exitFailed, exitTimeout, exitRefused:
		return code + exitDeleted
	}
	return code
}

// reason is the exit code of an error, whatever became of an instance.
func reason(err error) int {
	created := errors.As(err, new(*svc.DeployError))
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)), errors.As(err, new(*svc.ValidationError)):
		return exitUsage
	case errors.Is(err, svc.ErrOutcomeUnknown) && !created:
		return exitUnknown
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.Is(err, svc.ErrUnauthorized), errors.Is(err, svc.ErrForbidden):
		return exitRefused
	case created: // whatever it was, to run the command again would make a second one
		return exitFailed
	case errors.Is(err, svc.ErrNotFound), errors.Is(err, errNoFlavor):
		return exitNotFound
	case errors.Is(err, svc.ErrServer), errors.Is(err, svc.ErrRateLimited), errors.As(err, new(*svc.TransportError)):
		return exitTryLater
	}
	return exitFailed
}

// retryAfter is how long the service asked to wait, in a refusal; 0: it did not.
func retryAfter(err error) time.Duration {
	if answer, ok := errors.AsType[*svc.Error](err); ok {
		return answer.RetryAfter
	}
	return 0
}

// advice says what to do about an error, in lines for a person. Of an endpoint
// that was created the last one tells what became of it. The file of --id-file is
// that of the run, if there is one.
func advice(err error, idFile string) (lines []string) {
	if wait := retryAfter(err); wait > 0 {
		lines = append(lines, fmt.Sprintf("The service asks to wait %v before the next try.", wait.Round(time.Second)))
	}
	add := func(more ...string) []string { return append(lines, more...) }
	deployed, created := errors.AsType[*svc.DeployError](err)
	unknown, lost := errors.AsType[*svc.OutcomeUnknownError](err)
	switch {
	case errors.As(err, new(inTheWay)):
		return lines
	case errors.As(err, new(usageError)):
		return add("Run it with --help to see what it needs.")
	case created && deployed.Cleanup == svc.CleanupDeleted:
		return add("Nothing is left running.")
	case created:
		return add(fmt.Sprintf("%[1]s may still be running and billed. To get rid of it: deploy delete %[1]s", deployed.ServiceID))
	case lost:
		again := "run the command again."
		if idFile != "" {
			again = fmt.Sprintf("remove %s and run the command again. Until then the file stays, empty.", idFile)
		}
		return add(
			"Nobody knows whether the endpoint was created. It may be running and billed.",
			"Do NOT run the command again before you know:",
			fmt.Sprintf("  1. look for an endpoint named %q where the service shows what your account runs;", unknown.Name),
			"  2. if it is there, keep it (deploy wait ID) or get rid of it (deploy delete ID);",
			"  3. if it is not there, "+again,
		)
	case errors.Is(err, svc.ErrUnauthorized), errors.Is(err, svc.ErrForbidden):
		return add("Check SVC_API_TOKEN.")
	case errors.Is(err, svc.ErrNotFound):
		return add("Check the id: the service has no such endpoint, or not any more.")
	}
	return lines
}
