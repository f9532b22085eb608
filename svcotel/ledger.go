package svcotel

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/svc/ledger"
)

// patience is how long a collection waits for the ledger.
const patience = 5 * time.Second

// states are the states of an entry, the open ones first.
var states = []ledger.State{ledger.Intended, ledger.Unknown, ledger.Created, ledger.Refused, ledger.Forgotten, ledger.Deleted}

const openStates = 3

// ledgerReader reads a ledger for its gauges.
type ledgerReader struct {
	store    ledger.Store
	turn     chan struct{} // full while a read is under way, which may have outlived its collection
	failures atomic.Int64
}

// entries returns the entries of the ledger. ok is false if they could not be read in time. If
// the ledger is damaged, it returns the entries that could be read.
func (r *ledgerReader) entries(ctx context.Context) (entries []ledger.Entry, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := context.DeadlineExceeded
	select {
	case r.turn <- struct{}{}:
		read := make(chan error, 1)
		var found []ledger.Entry
		go func() { // a store on a network may hang in spite of ctx
			defer func() { <-r.turn }()
			records, unread := r.store.List(ctx, "")
			all, damaged := ledger.Fold(records)
			found = all
			read <- errors.Join(unread, damaged)
		}()
		select {
		case err = <-read:
			entries = found
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	if err != nil {
		r.failures.Add(1)
	}
	damage, damaged := errors.AsType[*ledger.Error](err)
	return entries, err == nil || damaged && damage.Key != "" && ctx.Err() == nil
}

// observeLedger registers the gauges of a ledger. A ledger that cannot be read never makes a
// collection fail: its gauges are then missing, and svc.ledger.errors counts the failure.
func observeLedger(meter metric.Meter, store ledger.Store) error {
	var problems []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		problems = append(problems, err)
		return g
	}
	instances := gauge("svc.instances", "{instance}", "Instances of the open entries of the ledger, which may be running and billed.")
	entries := gauge("svc.ledger.entries", "{entry}", "Entries of the ledger.")
	doubt := gauge("svc.ledger.in_doubt", "{entry}", "Entries whose endpoint may be running although nothing will record its ID.")
	overdue := gauge("svc.ledger.overdue", "{entry}", "Open entries whose lease is over, by the local clock.")
	failures, err := meter.Int64ObservableCounter("svc.ledger.errors", metric.WithUnit("{read}"),
		metric.WithDescription("Collections in which the ledger could not be read, or not as a whole."))
	problems = append(problems, err)

	r := &ledgerReader{store: store, turn: make(chan struct{}, 1)}
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		all, ok := r.entries(ctx)
		o.ObserveInt64(failures, r.failures.Load())
		if !ok {
			return nil
		}
		var inDoubt, late int64
		count, running := map[ledger.State]int64{}, map[ledger.State]int64{}
		now := time.Now()
		for _, e := range all {
			count[e.State]++
			running[e.State] += int64(e.Instances)
			if e.InDoubt(now) {
				inDoubt++
			}
			if e.Overdue(e.BaseURL, now) {
				late++
			}
		}
		for i, state := range states {
			attr := metric.WithAttributeSet(attribute.NewSet(attribute.String("svc.ledger.state", string(state))))
			o.ObserveInt64(entries, count[state], attr)
			if i < openStates {
				o.ObserveInt64(instances, running[state], attr)
			}
		}
		o.ObserveInt64(doubt, inDoubt)
		o.ObserveInt64(overdue, late)
		return nil
	}, instances, entries, doubt, overdue, failures)
	return errors.Join(append(problems, err)...)
}
