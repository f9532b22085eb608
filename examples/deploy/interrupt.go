package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/svc"
)

// sameSignal is how long after the first signal further signals count as the same
// one. timeout(1) and other supervisors send a signal to a program and then to its
// process group, so the program gets it twice.
const sameSignal = 2 * time.Second

// notify says which signals end the program. They are never reset to what the runtime
// does: a second one would end the program during the cleanup, and leave an instance
// running without a word.
func notify() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write instead
	return signals
}

// interrupts turns signals into a ctx and a channel: the first signal ends ctx, and one
// that comes later than sameSignal after it closes giveUp.
func interrupts(signals <-chan os.Signal) (ctx context.Context, giveUp <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	enough := make(chan struct{})
	go func() {
		var first time.Time
		for range signals {
			if first.IsZero() {
				first = time.Now()
				cancel()
			} else if time.Since(first) > sameSignal {
				close(enough)
				return
			}
		}
	}()
	return ctx, enough
}

// ending is what to report when nobody waits for the end of the run.
type ending struct {
	json   bool
	result result
	ledger string
	err    error
}

// ifGivenUp stores the result as it is now, and err, to be reported if the run is given
// up. The run then continues in another goroutine, so the one that reports uses nothing
// else of t but the writers.
func (t *tool) ifGivenUp(err error) { t.ending.Store(&ending{t.json, t.result, t.ledger, err}) }

func (t *tool) reportGivenUp() int {
	e := t.ending.Load()
	if e == nil {
		e = &ending{err: context.Canceled}
	}
	return (&tool{stdout: t.stdout, stderr: t.stderr, json: e.json, result: e.result, ledger: e.ledger}).report(e.err)
}

// createGivenUp is the error of a run that is given up between a create and its response.
func createGivenUp(name string) error {
	return &svc.OutcomeUnknownError{Method: "POST", Route: "/v1/inference-service", Name: name, Err: context.Canceled}
}

// cleanupGivenUp is the error of a run that is given up after the create.
func cleanupGivenUp(id string) error {
	return &svc.DeployError{ServiceID: id, Err: fmt.Errorf("given up: %w", context.Canceled)}
}
