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

// notify returns a channel that receives the signals that interrupt the program. The channel
// stays connected until the program ends. Otherwise a second signal would kill the program
// during the cleanup, and an instance could stay running without any message.
func notify() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup makes a program ignore it
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write instead
	return signals
}

// interrupts returns a ctx that ends at the first signal, and a channel giveUp that is closed
// at the first signal that comes more than sameSignal later.
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

// ending is what reportGivenUp reports when the program stops waiting for the end of the run.
type ending struct {
	json   bool
	result result
	ledger string
	err    error
}

// ifGivenUp stores err and a copy of the result. reportGivenUp reports these if the run is given
// up. The run is then still active in another goroutine. So reportGivenUp uses only the copy
// and the writers of t.
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
