package ledger

import (
	"context"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/same"
)

// A Scaling records a change of the number of instances: a higher number before the change is
// sent, and a lower one after the change has succeeded.
type Scaling struct {
	journal *Journal
	// The number that was asked for, and that before its record; the same if no higher number was recorded.
	want, before int
	at           time.Time // when a higher number was recorded, also for the record that takes it back; zero if none was

	refused bool                        // the change certainly had no effect
	read    chan func() (*Entry, error) // holds the outcome of the reading of the entry, once that has ended
	entry   *Entry                      // the entry of the endpoint before the change; nil if there is none
	cancel  context.CancelFunc          // ends the reading of the entry
}

// ledgerDelay is how long a change waits for the ledger before it reads from the service whether it
// lowers the bill.
const ledgerDelay = 500 * time.Millisecond

// longestSearch is the time limit for the search of an entry in a large ledger.
const longestSearch = time.Minute

// Scale records a change to a higher number of instances, which may be sent if there is no error. A
// change that lowers the bill does not wait for the ledger. If the ledger does not respond in time,
// Scale calls lowersBill, which reads the number from the service. The caller must call
// [Scaling.Close] afterwards.
func (j *Journal) Scale(ctx context.Context, id string, instances int, lowersBill func() bool) (s *Scaling, lowers bool, err error) {
	s = &Scaling{journal: j, want: instances, before: instances, read: make(chan func() (*Entry, error), 1)}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestSearch)
	s.cancel = cancel
	cause.Start(func() (*Entry, error) { return j.Owner(reading, id) }, s.read)
	soon, stop := context.WithTimeout(ctx, ledgerDelay)
	defer stop()
	if instances == 0 || s.wait(soon) != nil && ctx.Err() == nil && lowersBill() {
		return s, true, nil
	}
	if err = s.wait(ctx); err == nil && s.entry != nil {
		if instances > s.entry.Instances {
			err = s.record(ctx)
		}
		lowers = instances < s.entry.Instances
	}
	if err != nil {
		cancel()
	}
	return s, lowers, err
}

// wait waits for the entry of the endpoint.
func (s *Scaling) wait(ctx context.Context) (err error) {
	select {
	case outcome := <-s.read:
		s.read <- outcome // for the next call
		s.entry, err = outcome()
		return err
	case <-ctx.Done():
		return s.journal.fail("list", Entry{}, cause.Of(ctx))
	}
}

func (s *Scaling) record(ctx context.Context) error {
	return s.journal.Change(ctx, "append scaled", *s.entry, func(now Entry) (Record, error) {
		had, number, at := s.entry.Instances, s.want, WallClock() // another call may have recorded another number, which then stays
		switch {
		case s.refused:
			had, number, at = s.want, s.before, s.at
		case now.Instances < s.want:
			had, s.before, s.at = now.Instances, now.Instances, at
		case !s.at.IsZero():
			had = number
		}
		return Record{Event: Scaled, Instances: number, At: at}.onlyIf(now.Instances == had && had != number)
	})
}

// Close records a lower number if the change has succeeded. A higher number was recorded by Scale
// before the change. Close records it again if another call has recorded a lower number since:
// it is not known which of the two changes the service made last. If the change was refused, so that
// it certainly had no effect, Close records the number from before, unless another call has recorded
// one since.
func (s *Scaling) Close(ctx context.Context, succeeded, refused bool) error {
	defer s.cancel()
	if s.refused = refused; !succeeded && s.at.IsZero() {
		return nil
	}
	patience, cancel := Afterwards(ctx)
	defer cancel()
	if err := s.wait(patience); err != nil || s.entry == nil {
		return err
	}
	return afterwards(ctx, Patience, s.record)
}

// Deleted records that the endpoint with this ID is deleted. name is the name in the record with
// is_deleted, or "" if the service no longer found the ID.
func (j *Journal) Deleted(ctx context.Context, id, name string) error {
	return afterwards(ctx, longestSearch, func(ctx context.Context) error {
		e, err := j.Owner(ctx, id)
		if e == nil || name != "" && !same.Text(name, e.Name) { // the record is of another endpoint
			return err
		}
		return j.Change(ctx, "append deleted", *e, func(now Entry) (Record, error) {
			return Record{Event: Deleted, ServiceID: e.ServiceID}.onlyIf(now.State == Created)
		})
	})
}

// afterwards records what has already happened. It may take as long as ctx allows, but at most
// longest, and another [Patience] after the end of ctx.
func afterwards(ctx context.Context, longest time.Duration, record func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := record(within)
	if ctx.Err() != nil && err != nil {
		late, cancel := Afterwards(ctx)
		defer cancel()
		err = record(late)
	}
	return err
}
