package svc

import (
	"context"
	"log/slog"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/same"
	"example.com/svc/ledger"
)

// A scaling records a change of the number of instances: a higher number before the change is
// sent, and a lower one after the change has succeeded.
type scaling struct {
	ledger  *Ledger
	want    int           // -1: nothing is to be recorded
	raises  bool          // a higher number was recorded
	read    chan struct{} // closed when entry and err are set
	entry   *ledger.Entry // the entry of the endpoint before the change; nil: there is none
	err     error
	waiting context.CancelFunc // ends the reading of the entry
}

// hedge is how long a change waits for the ledger before it asks the service whether it lowers the
// bill.
const hedge = 500 * time.Millisecond

// longestSearch is the time limit for the search of an entry in a large ledger.
const longestSearch = time.Minute

// scale records a prepared change that raises the number of instances. One that lowers the bill does
// not wait for the ledger.
func (l *Ledger) scale(ctx context.Context, k *call) (*scaling, error) {
	c := &scaling{ledger: l, want: -1, read: make(chan struct{}), waiting: func() {}}
	if l.journal == nil {
		return c, nil
	}
	want, err := parse(k)
	if err != nil {
		return c, err
	}
	if want.Instances < 0 {
		return c, nil
	}
	c.want = want.Instances
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestSearch)
	c.waiting = cancel
	go func() {
		defer close(c.read)
		c.entry, c.err = l.journal.Owner(reading, k.ID)
	}()
	if c.lowers(ctx, k.ID) {
		k.Urgent = true
		return c, nil
	}
	if err = c.wait(ctx); err == nil {
		k.Urgent = c.entry != nil && c.want < c.entry.Instances
		err = c.raise(ctx)
	}
	if err != nil {
		c.waiting()
	}
	return c, l.notSent(ctx, k, err)
}

// lowers reports whether the change certainly does not raise the bill, when the ledger does not say
// in time.
func (c *scaling) lowers(ctx context.Context, id string) bool {
	if c.want == 0 {
		return true
	}
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	select {
	case <-c.read:
		if c.err == nil {
			return false
		}
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	now, err := c.ledger.client.InferenceServices.Get(ctx, id, urgent)
	return err == nil && c.want <= int(now.ResourceMetadata.TargetInstanceNumber)
}

// wait waits for the entry of the endpoint.
func (c *scaling) wait(ctx context.Context) error {
	select {
	case <-c.read:
		return c.err
	case <-ctx.Done():
		return c.ledger.fail("list", ledger.Entry{}, cause.Of(ctx))
	}
}

// raise records a number that is higher than the recorded one.
func (c *scaling) raise(ctx context.Context) error {
	if c.entry == nil || c.want <= c.entry.Instances {
		return nil
	}
	c.raises = true
	return c.record(ctx)
}

func (c *scaling) record(ctx context.Context) error {
	return c.ledger.journal.Change(ctx, "append scaled", *c.entry, func(now ledger.Entry) (ledger.Record, error) {
		need := now.Instances < c.want
		if !c.raises { // another call may have recorded another number, which then stays
			need = now.Instances == c.entry.Instances && now.Instances != c.want
		}
		return ledger.Record{Event: ledger.Scaled, Instances: c.want}.OnlyIf(need)
	})
}

// close records a lower number if the change succeeded. If another call has recorded a lower number
// than this one raised to, close records the higher number again, since nobody knows which change the
// service made last. It must be deferred.
func (c *scaling) close(ctx context.Context, s **InferenceService) {
	if c.want < 0 {
		return
	}
	defer c.waiting()
	if *s == nil && !c.raises {
		return
	}
	patience, cancel := ledger.Afterwards(ctx)
	defer cancel()
	switch err := c.wait(patience); {
	case err != nil:
		c.ledger.warn(ctx, err)
	case c.entry != nil:
		c.ledger.afterwards(ctx, ledger.Patience, c.record)
	}
}

// deleted writes to the ledger that the endpoint with this ID is deleted. s is what the service
// returned for the ID, with IsDeleted. If s is nil, the service did not find the ID any more.
func (l *Ledger) deleted(ctx context.Context, id string, s *InferenceService) {
	if l.journal == nil {
		return
	}
	l.afterwards(ctx, longestSearch, func(ctx context.Context) error {
		e, err := l.journal.Owner(ctx, id)
		if e == nil || s != nil && s.Name != "" && !same.Text(s.Name, e.Name) { // s is the record of another endpoint
			return err
		}
		return l.journal.Change(ctx, "append deleted", *e, func(now ledger.Entry) (ledger.Record, error) {
			return ledger.Record{Event: ledger.Deleted, ServiceID: e.ServiceID}.OnlyIf(now.State == ledger.Created)
		})
	})
}

// afterwards records what has already happened. It has as long as ctx allows, but at most longest,
// and another [ledger.Patience] if ctx ends. An error is only logged.
func (l *Ledger) afterwards(ctx context.Context, longest time.Duration, record func(context.Context) error) {
	within, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := record(within)
	if ctx.Err() != nil && err != nil {
		late, cancel := ledger.Afterwards(ctx)
		defer cancel()
		err = record(late)
	}
	if err != nil {
		l.warn(ctx, err)
	}
}

func (l *Ledger) warn(ctx context.Context, err error) {
	if l.log != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "svc: the ledger could not be updated", slog.String("error", err.Error()))
	}
}
