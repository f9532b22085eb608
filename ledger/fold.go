package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/svc/internal/cause"
)

// moves holds, by state, the events that change it; the event is the new state.
// All other known events are kept in the records and change no state. After a wrong Forget
// a slow process may learn the outcome, so a forgotten entry can change again.
var moves = map[State][]Event{
	Intended:  {Created, Refused, Unknown, Forgotten},
	Unknown:   {Created, Forgotten},
	Refused:   {Created},
	Forgotten: {Created, Refused, Unknown},
	Created:   {Deleted, Forgotten},
	Deleted:   {},
}

// known reports whether this version supports the event.
func (e Event) known() bool {
	_, changes := moves[State(e)]
	return changes || slices.Contains([]Event{Scaled, Extended, Pruned}, e)
}

// Fold makes entries from the records of one key or of all keys, as [Store] lists them. The records
// before a Pruned record of their key are ignored. The error joins an [*Error] for each damaged
// record. No create is sent under the key of a damaged record.
func Fold(records []Record) (entries []Entry, damaged error) {
	var errs []error
	var last Record
	var before, failed int    // how many entries and errors belong to the keys before the current one
	index := map[string]int{} // maps an intent of the current key to its index in entries
	for _, r := range records {
		if r.Key != last.Key {
			last, before, failed = Record{Key: r.Key}, len(entries), len(errs)
			clear(index)
		}
		if r.Event == Pruned {
			last, entries, errs = r, entries[:before], errs[:failed]
			clear(index)
			continue
		}
		if _, found := index[r.Intent]; !found {
			index[r.Intent] = len(entries)
			entries = append(entries, Entry{Key: r.Key, Intent: r.Intent})
		}
		err := entries[index[r.Intent]].apply(r)
		if r.Seq != last.Seq+1 {
			err = cause.Join(fmt.Errorf("record %d is missing: the next record is %d", last.Seq+1, r.Seq), err)
		}
		if last = r; err != nil {
			errs = append(errs, &Error{Op: "list", Key: r.Key, Intent: r.Intent, ServiceID: r.ServiceID, Err: err})
		}
	}
	return slices.DeleteFunc(entries, func(e Entry) bool { return e.State == "" }), cause.Join(errs...)
}

// apply adds a record to its entry. The state is empty before the record of the intent.
func (e *Entry) apply(r Record) error {
	e.Records = append(e.Records, r)
	defer e.setLeaseEnd()
	switch {
	case !r.Event.known():
		return fmt.Errorf("record %d has the unknown event %q: a later version of this package may have written it", r.Seq, r.Event)
	case e.State == "":
		return e.begin(r)
	case r.Event == Scaled:
		e.Instances = r.Instances
		return nil
	case r.Event == Extended:
		e.setLease(r)
		return nil
	case r.Event == Created && r.ServiceID == "":
		return fmt.Errorf("record %d of the event \"created\" has no endpoint ID", r.Seq)
	}
	other := slices.Contains([]State{Created, Deleted}, e.State) && r.ServiceID != e.ServiceID
	switch {
	case e.State == Created && r.Event == Unknown && r.Adopted && !other:
		e.State, e.ServiceID, e.Adopted, e.CreatedAt, e.ServiceTime, e.TokenCheck = Unknown, "", false, time.Time{}, time.Time{}, ""
		e.Lease, e.leased, e.Instances = e.before.Lease, e.before.leased, e.before.Instances // those since then are of the wrong endpoint
	case other && r.Event == Created:
		return fmt.Errorf("record %d has the endpoint %q, but an earlier record of the same create has %q", r.Seq, r.ServiceID, e.ServiceID)
	case !other && slices.Contains(moves[e.State], r.Event):
		e.move(r)
	}
	return nil
}

// begin applies the first record of an entry.
func (e *Entry) begin(r Record) error {
	switch r.Event {
	case Intended:
		e.State, e.RequestedAt, e.SettleBy = Intended, r.At, r.SettleBy
		e.BaseURL, e.Name, e.FlavorID, e.Instances = r.BaseURL, r.Name, r.FlavorID, r.Instances
		e.endSending(r.ServiceTime, r.SettleBy.Sub(r.At))
		e.setLease(r)
		e.leased = time.Time{}
	case Refused: // may come first: the record of the intent could not be written
	default:
		return fmt.Errorf("record %d (%q) belongs to a create without a record of the event \"intended\"", r.Seq, r.Event)
	}
	return nil
}

// move applies a record that changes the state.
func (e *Entry) move(r Record) {
	from := e.State
	e.State = State(r.Event)
	switch {
	case r.Event == Unknown:
		e.endSending(r.ServiceTime, 0)
	case r.Event == Deleted, from == Created: // the endpoint existed
		e.DeletedAt = r.At
		return
	case r.Event == Created:
		e.before = new(*e)
		e.CreatedAt, e.DeletedAt, e.ServiceTime, e.TokenCheck = r.At, time.Time{}, r.ServiceTime, r.TokenCheck
		e.Name = cmp.Or(r.Name, e.Name)
	}
	e.ServiceID, e.Adopted = r.ServiceID, r.Adopted
}

// endSending sets sentUntil from the service's time of a record and the longest time for which
// the create is sent after it. If the local clock is ahead, SettleBy is later, which is safe.
func (e *Entry) endSending(date time.Time, limit time.Duration) {
	if e.sentUntil.IsZero() && !date.IsZero() {
		e.sentUntil = slices.MaxFunc([]time.Time{date.Add(limit), e.SettleBy}, time.Time.Compare)
	}
}

// setLease sets a lease and its start by the service's clock.
func (e *Entry) setLease(r Record) {
	e.Lease, e.leased = r.Lease, r.ServiceTime
	if r.Lease == 0 && !r.LeaseEnd.IsZero() { // written by an earlier version, which counted by the clock of its process
		e.Lease = r.LeaseEnd.Sub(e.RequestedAt)
	}
}

func (e *Entry) setLeaseEnd() {
	e.LeaseEnd = time.Time{}
	if e.Lease != 0 {
		e.LeaseEnd = cmp.Or(e.leased, e.ServiceTime, e.RequestedAt).Add(e.Lease)
	}
}

// Open reports whether the endpoint may exist and be billed: the state is Intended, Unknown or
// Created.
func (e Entry) Open() bool { return slices.Contains([]State{Intended, Unknown, Created}, e.State) }

// InDoubt reports whether the endpoint may exist without an ID in the ledger: the state is
// Unknown, or it is still Intended one minute after SettleBy. Such an entry must be adopted or
// forgotten. now is the current time. The clock of the process that created the entry may be
// wrong, so InDoubt does not prove that the create is over: see [Entry.SettlesIn].
func (e Entry) InDoubt(now time.Time) bool {
	return e.State == Unknown || e.State == Intended && !now.Before(e.SettleBy.Add(SettleMargin))
}

// InstanceTime is an upper bound of the time that is billed until now. Three instances that
// run for ten minutes make 30 minutes. The time counts from RequestedAt to DeletedAt, by the
// clocks of the processes that wrote the ledger, including while the endpoint is stopped.
// Changes that were made without this ledger are not included. The time is 0 if nothing was
// created. It is not a price, since the service does not document the unit of its prices.
func (e Entry) InstanceTime(now time.Time) (total time.Duration) {
	switch {
	case !e.DeletedAt.IsZero():
		now = e.DeletedAt
	case !e.Open():
		return 0
	}
	instances, since := 0, e.RequestedAt
	for _, r := range append(slices.Clip(e.Records), Record{Event: Scaled, At: now}) {
		if !slices.Contains([]Event{Intended, Scaled}, r.Event) || r.At.After(now) {
			continue
		}
		total += time.Duration(instances) * max(r.At.Sub(since), 0)
		instances, since = r.Instances, r.At
	}
	return total
}
