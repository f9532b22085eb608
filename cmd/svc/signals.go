package main

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal further signals are ignored. timeout(1) and
// other supervisors send a signal to a program and then to its process group, so the program
// gets it twice.
const sameSignal = 2 * time.Second

// signals reports interruptions of the program. SIGQUIT counts as the second signal, even if there was no
// first one: Go's runtime would end the program without a word about the endpoint.
type signals struct {
	ctx    context.Context // ends at the first signal; its cause is an interruption
	giveUp <-chan struct{} // is closed at the first signal that comes more than sameSignal later, or at a SIGQUIT
}

// interruption is the cause of a ctx that a signal has ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string {
	name := i.signal.String()
	switch i.signal {
	case os.Interrupt:
		name = "SIGINT"
	case syscall.SIGTERM:
		name = "SIGTERM"
	case syscall.SIGHUP:
		name = "SIGHUP"
	case syscall.SIGQUIT:
		name = "SIGQUIT"
	}
	return "interrupted by " + name
}

// Is makes the cause match [context.Canceled], as the error of a canceled ctx does.
func (interruption) Is(target error) bool { return target == context.Canceled }

// watchSignals handles signals until the program ends. Otherwise a second signal would kill the
// program during the cleanup, and an instance could stay running without any message.
func watchSignals() signals {
	received := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // nohup makes a program ignore SIGHUP, and "&" in a script SIGINT
			signal.Notify(received, s)
		}
	}
	// A closed pipe is an error of the write instead. Nobody receives from the channel: signals are dropped. Ignoring them
	// would let CMD of "svc run" ignore them too, and a pipeline in CMD might never end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := make(chan struct{})
	go func() {
		var first time.Time
		for s := range received {
			switch {
			case s == syscall.SIGQUIT, !first.IsZero() && time.Since(first) > sameSignal:
				close(enough)
				return
			case first.IsZero():
				first = time.Now()
				cancel(interruption{s})
			}
		}
	}()
	return signals{ctx, enough}
}

// gate is a transport that sends no request that changes something once the program is given up. It blocks then, until
// the program ends, so that nothing is said or recorded about a request that was not sent.
type gate struct {
	next   http.RoundTripper
	giveUp <-chan struct{}
}

// RoundTrip implements [http.RoundTripper].
func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-g.giveUp:
		if r.Method != http.MethodGet {
			select {}
		}
	default:
	}
	return g.next.RoundTrip(r)
}
