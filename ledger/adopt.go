package ledger

import (
	"context"
	"fmt"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/poll"
)

// Adopt records s as the endpoint of an entry, if Entry.mayAdopt allows it and no other entry has
// its ID. check is the TokenCheck of the response that showed s.
func (j *Journal) Adopt(ctx context.Context, e Entry, s Endpoint, unmarked bool, date time.Time, check string) error {
	const op = "adopt"
	if _, err := j.holder(ctx, e, s.ID); err != nil {
		return err
	}
	err := j.Change(ctx, op, e, func(now Entry) (Record, error) {
		r := Record{Event: Created, ServiceID: s.ID, Adopted: true, ServiceTime: s.CreatedAt.UTC(), TokenCheck: check}
		if begun := now.Records[0].ServiceTime; !r.ServiceTime.IsZero() && r.ServiceTime.Before(begun) {
			r.ServiceTime = begun // created_at has no zone, and is not in UTC
		}
		return r, now.mayAdopt(j.baseURL, s, unmarked, date)
	})
	if err == nil {
		err = j.ensureSole(ctx, e, s.ID)
	}
	if err != nil {
		return err
	}
	return j.Change(ctx, op, e, func(now Entry) (Record, error) { // the endpoint may have been scaled while the ledger did not have its ID
		return Record{Event: Scaled, Instances: s.Instances}.onlyIf(s.Instances > now.Instances)
	})
}

// holder returns another entry than e that has the ID, and an error that names it.
func (j *Journal) holder(ctx context.Context, e Entry, id string) (other Entry, err error) {
	holders, err := j.search(ctx, id, nil)
	for _, other := range holders {
		if other.Intent != e.Intent && err == nil {
			return other, j.fail("adopt", e, fmt.Errorf("the entry of the key %s has the ID %s already: an ID can be in only one entry", other.Key, other.ServiceID))
		}
	}
	return other, err
}

// ensureSole checks after the adoption of an ID that no other entry has adopted it at the same time. If
// one has, the entry with the larger Intent undoes its adoption at once. The other entry waits for that,
// and undoes its adoption if it is still not the only one after [Patience].
func (j *Journal) ensureSole(ctx context.Context, e Entry, id string) error {
	waiting, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	pace := poll.Pacer{Lowest: 50 * time.Millisecond, Highest: time.Second}
	for {
		began := time.Now()
		other, err := j.holder(ctx, e, id)
		if other.Key == "" {
			return err
		}
		next, _ := pace.Next(waiting, time.Since(began), 0, 0)
		if e.Intent < other.Intent && poll.Sleep(waiting, next) == nil {
			continue
		}
		late, cancel := Afterwards(ctx)
		defer cancel()
		return cause.Join(err, j.Change(late, "adopt", e, func(Entry) (Record, error) {
			return Record{Event: Unknown, ServiceID: id, Adopted: true}, nil
		}))
	}
}

// Undo undoes the adoption of s, if Entry.mayUndo allows it. The entry is in doubt again.
func (j *Journal) Undo(ctx context.Context, e Entry, s Endpoint) error {
	return j.Change(ctx, "undo the adoption", e, func(now Entry) (Record, error) {
		return Record{Event: Unknown, ServiceID: now.ServiceID, Adopted: true}, now.mayUndo(j.baseURL, s)
	})
}

// Forget records that the endpoint of an entry does not exist, if Entry.mayForget allows it.
func (j *Journal) Forget(ctx context.Context, e Entry, notFound bool, date time.Time) error {
	return j.Change(ctx, "forget", e, func(now Entry) (Record, error) {
		r := Record{Event: Forgotten}
		if now.State == Created {
			r.ServiceID = now.ServiceID
		}
		return r, now.mayForget(j.baseURL, notFound && now.ServiceID == e.ServiceID, date)
	})
}
