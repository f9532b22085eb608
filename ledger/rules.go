package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/same"
)

const (
	SettleLimit  = 5 * time.Minute // a create is sent at most this long after its intent was recorded
	SettleMargin = time.Minute     // extra time after SettleBy, since clocks differ and a request may be under way
)

// ErrMark is returned when the description of an endpoint does not hold the mark of an entry, so
// that the endpoint may be somebody else's.
var ErrMark = errors.New("svc: the endpoint does not carry the mark of this ledger entry")

var errNoDate = errors.New("the response has no Date header, so the local clock cannot be checked")

// settled reports whether SettleBy has certainly passed.
func (e *Entry) settled(now time.Time) bool { return !now.Before(e.SettleBy.Add(SettleMargin)) }

// A Verdict is what a Deploy does about its key.
type Verdict int

const (
	Free    Verdict = iota // no open entry: record an intent, and create
	Wait                   // another call is creating: read the ledger again
	InDoubt                // an endpoint may exist: send nothing
	Resume                 // an endpoint exists: wait until it is available
	InUse                  // the endpoint is of another request, or two entries are open
)

// Judge decides by the entries of a key what a Deploy with this base URL and request does. It also
// returns the entry that decided, and for InUse the reason.
func Judge(entries []Entry, baseURL string, want Request, now time.Time) (v Verdict, e Entry, why string) {
	open := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return !e.Open() })
	switch {
	case len(open) == 0:
		return Free, e, ""
	case len(open) > 1:
		return InUse, open[0], fmt.Sprintf("it has %d open entries, each with an endpoint: delete these endpoints until one is left", len(open))
	case open[0].InDoubt(now):
		return InDoubt, open[0], ""
	case open[0].State == Intended:
		return Wait, open[0], ""
	}
	if why := differs(&open[0].Records[0], baseURL, want); why != "" {
		return InUse, open[0], why
	}
	return Resume, open[0], ""
}

// differs says how the request of a recorded intent differs from another request. It returns ""
// if they are the same. If the hash has another version, it cannot be compared: then only the
// other fields of the record decide.
func differs(had *Record, baseURL string, want Request) string {
	recorded, asked := summary(*had), summary(want.Record(had.Key, had.Intent, baseURL))
	switch {
	case had.BaseURL == baseURL && had.RequestHash == want.hash(had.Intent):
		return ""
	case recorded != asked:
		return "the ledger has an endpoint with " + recorded + "; this call asks for " + asked
	case strings.HasPrefix(had.RequestHash, hashVersion):
		return "the ledger has an endpoint with " + recorded + ", as this call asks for, but other fields of the request body differ"
	}
	return ""
}

func summary(r Record) string {
	return fmt.Sprintf("name %q, flavor %q, instances %d, base URL %s", r.Name, r.FlavorID, r.Instances, r.BaseURL)
}

// An Endpoint is what the rules need of the record of an endpoint.
type Endpoint struct {
	Name        string
	Description string
	Deleted     bool
}

// checkOwner fails unless the endpoint has the name and the mark of the entry. If unmarked
// is true, an endpoint without a mark is accepted.
func (e *Entry) checkOwner(s Endpoint, unmarked bool) error {
	switch intent, _ := FindMark(s.Description); {
	case !same.Text(s.Name, e.Name):
		return fmt.Errorf("the name of the endpoint is %q, but the entry has the name %q", s.Name, e.Name)
	case intent == e.Intent, intent == "" && unmarked:
		return nil
	case intent == "":
		return fmt.Errorf("%w: it has no mark", ErrMark)
	default:
		return fmt.Errorf("%w: it has the mark of another entry, whose intent is %s", ErrMark, intent)
	}
}

// checkDoubt returns an error unless the state is Unknown or Intended. It also
// returns an error if, by one of the clocks, the create may still be under way.
func (e *Entry) checkDoubt(clocks ...time.Time) error {
	if e.State != Unknown && e.State != Intended {
		return fmt.Errorf("the entry is not in doubt: its state is %q", e.State)
	}
	for _, now := range clocks {
		if !e.settled(now) {
			return fmt.Errorf("too early: the create may be under way until %s", e.SettleBy.Add(SettleMargin).Format(time.RFC3339))
		}
	}
	return nil
}

// MayForget fails unless the entry may be forgotten. date is the time by the service's clock.
func (e *Entry) MayForget(baseURL string, now, date time.Time) error {
	if e.BaseURL != baseURL {
		return e.elsewhere()
	}
	if date.IsZero() {
		return errNoDate
	}
	return e.checkDoubt(now, date)
}

// elsewhere is the error for an entry of another service.
func (e *Entry) elsewhere() error {
	return fmt.Errorf("the entry belongs to another base URL: %s", e.BaseURL)
}

// MayAdopt fails unless s may be recorded as the endpoint of the entry. If unmarked is true, an
// endpoint without a mark is accepted.
func (e *Entry) MayAdopt(baseURL string, s Endpoint, unmarked bool, now time.Time) error {
	mark, _ := FindMark(s.Description)
	proven := e.State == Intended && mark == e.Intent // its create made the endpoint
	switch settled := e.State == Forgotten || e.InDoubt(now); {
	case !proven && !settled:
		return e.checkDoubt(now)
	case e.BaseURL != baseURL:
		return e.elsewhere()
	case s.Deleted:
		return errors.New("the endpoint is deleted")
	}
	return e.checkOwner(s, unmarked)
}

// Overdue reports whether the entry is open, belongs to the base URL, and has a lease that ended
// more than a second ago by the local clock. The Date of the service has only whole seconds.
func (e *Entry) Overdue(baseURL string, now time.Time) bool {
	return e.Open() && e.BaseURL == baseURL && !e.LeaseEnd.IsZero() && now.After(e.LeaseEnd.Add(time.Second))
}

// MayReap fails unless the lease has ended by the service's clock too, and the
// endpoint s is the one of the entry.
func (e *Entry) MayReap(date time.Time, s Endpoint) error {
	switch {
	case date.IsZero():
		return errNoDate
	case !date.After(e.LeaseEnd):
		return fmt.Errorf("the lease has not ended by the service's clock: it says %s", date.Format(time.RFC3339))
	}
	return e.checkOwner(s, !e.Adopted)
}

// SettleBy is the time after which no attempt of a create is sent. deadline is the deadline of its
// ctx; zero: there is none.
func SettleBy(now, deadline time.Time) time.Time {
	by := now.Add(SettleLimit)
	if !deadline.IsZero() && deadline.Before(by) {
		by = deadline
	}
	return by.Round(0).UTC()
}

// MaySend reports whether an attempt may be sent, by the wall clock.
func MaySend(settleBy, now time.Time) bool { return now.Before(settleBy) }

// WallClock returns the time without the monotonic clock, which stands still while the
// machine sleeps, and which means nothing to other processes.
func WallClock() time.Time { return time.Now().Round(0).UTC() }
