package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/ledger"
)

// ledgerPatience is how long a command that works without the ledger waits until it is open.
const ledgerPatience = 6 * time.Second

// shortestStall is the time below which a ledger that has not answered is not blamed: the time limit was nearly over before
// it was asked.
const shortestStall = 400 * time.Millisecond

// stalledError is returned for a ledger that has not answered in time. It does not match [context.DeadlineExceeded]: then
// the service would be blamed for it.
type stalledError struct{ after time.Duration }

func (e stalledError) Error() string {
	return fmt.Sprintf("the ledger did not respond within %v", e.after.Round(100*time.Millisecond))
}

// answered calls a function that asks the ledger. It ends with a stalledError shortly before ctx does, so that the reason
// is known, and also if the function ignores ctx, as a file system does. Then the function continues, and its result is lost.
func answered[T any](ctx context.Context, ask func(context.Context) (T, error)) (result T, err error) {
	began := time.Now()
	if end, ok := ctx.Deadline(); ok && time.Until(end) >= shortestStall {
		left := time.Until(end)
		limited, cancel := context.WithTimeout(ctx, left-min(left/4, time.Second))
		defer cancel()
		done := make(chan func() (T, error), 1)
		cause.Start(func() (T, error) { return ask(limited) }, done)
		select {
		case outcome := <-done:
			result, err = outcome()
		case <-limited.Done():
			err = limited.Err()
		}
	} else {
		result, err = ask(ctx) // a folder is opened also when the time limit is over: then it tells what may be running
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // also of a time limit of the connection string
		err = stalledError{time.Since(began)}
	}
	return result, err
}

// timely is a ledger of which each call is answered in time.
type timely struct{ ledger.Store }

// Append implements [ledger.Store].
func (p timely) Append(ctx context.Context, r ledger.Record) error {
	_, err := answered(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Store.Append(ctx, r) })
	return err
}

// List implements [ledger.Store].
func (p timely) List(ctx context.Context, key string) ([]ledger.Record, error) {
	return answered(ctx, func(ctx context.Context) ([]ledger.Record, error) { return p.Store.List(ctx, key) })
}

// Prune implements [ledger.Pruner], as each store of a place does.
func (p timely) Prune(ctx context.Context, key string, upTo int64) error {
	store, ok := p.Store.(ledger.Pruner)
	if !ok {
		return errors.ErrUnsupported
	}
	_, err := answered(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, store.Prune(ctx, key, upTo) })
	return err
}

// openingTime returns a context for the opening of the ledger. What works without one, such as "svc delete ID", waits only
// briefly, and has at least half of its time limit left then: the endpoint is billed meanwhile. Other commands wait until
// their time limit is over, also one whose own work has none.
func (t *tool) openingTime(ctx context.Context, use ledgerUse) (context.Context, context.CancelFunc) {
	limit := t.flags.timeout
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end)
	}
	if use == usesLedger {
		limit = min(ledgerPatience, limit/2)
	}
	return context.WithTimeout(ctx, limit)
}
