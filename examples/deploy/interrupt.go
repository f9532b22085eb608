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

// sameSignal is how long after the first signal others are taken for the same
// one. The timeout command and other supervisors signal a program and then the
// process group that it is in, so it gets one order twice.
const sameSignal = 2 * time.Second

// notify says which signals end the program. A second one is none of the
// runtime's business either: a clean-up that it broke off would leave an
// instance running, and say nothing.
func notify() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that is gone is an error of the write
	return signals
}

// interrupts turns signals into what a run needs to know: the first one ends ctx,
// and one that comes later than sameSignal closes giveUp.
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

// ending is what to report of a run whose end is not awaited.
type ending struct {
	json   bool
	result result
	idFile string
	err    error
}

// ifGivenUp keeps the result as it is now, and err, for the case that the run is
// given up. The goroutine that reports it then touches nothing else of t but the
// writers, since the run still goes on.
func (t *tool) ifGivenUp(err error) { t.ending.Store(&ending{t.json, t.result, t.idFile, err}) }

func (t *tool) reportGivenUp() int {
	e := t.ending.Load()
	if e == nil {
		e = &ending{err: context.Canceled}
	}
	return (&tool{stdout: t.stdout, stderr: t.stderr, json: e.json, result: e.result, idFile: e.idFile}).report(e.err)
}

// createGivenUp is for the time between a create and its answer.
func createGivenUp(name string) error {
	return &svc.OutcomeUnknownError{Method: "POST", Route: "/v1/inference-service", Name: name, Err: context.Canceled}
}

// cleanUpGivenUp is for the time from then on.
func cleanUpGivenUp(id string) error {
	return &svc.DeployError{ServiceID: id, Err: fmt.Errorf("given up: %w", context.Canceled)}
}
