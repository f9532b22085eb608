package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// SettlesIn returns how long the create of the entry may still be under way, or 0 if it is over. The
// create is over when this process has seen the entry without an outcome for six minutes by its
// monotonic clock, or when the time has passed by the service's clock. The latter needs a date, and the
// service's time in the records of the create. SettleBy is not enough, since it is by the clock of
// another process.
func (e *Entry) SettlesIn(date time.Time) time.Duration {
	left := SettleLimit + SettleMargin - e.seenFor
	if !date.IsZero() && !e.sentUntil.IsZero() {
		left = min(left, e.sentUntil.Add(SettleMargin).Sub(date))
	}
	return max(left, 0)
}

// future returns the name of a time of the entry that is more than a minute after now, or "" if there is
// none.
func (e *Entry) future(now time.Time) string {
	for _, r := range e.Records {
		if ahead := r.At.Sub(now); ahead > SettleMargin {
			return fmt.Sprintf("record %d was written %v in the future: a clock is wrong", r.Seq, ahead.Round(time.Second))
		}
	}
	if ahead := e.SettleBy.Sub(now); e.State == Intended && ahead > SettleLimit+SettleMargin {
		return fmt.Sprintf("the create may be sent for another %v: a clock is wrong", ahead.Round(time.Second))
	}
	return ""
}

// A Verdict is what a Deploy must do, as decided by the entries of its key.
type Verdict int

const (
	Free    Verdict = iota // no open entry: record an intent, and create
	Wait                   // another call is creating: read the ledger again
	InDoubt                // an endpoint may exist: send nothing
	Resume                 // an endpoint exists: wait until it is available
	InUse                  // the endpoint is of another request, or two entries are open
)

// judge returns the verdict on a Deploy with this base URL and request, from the entries of its key.
// date is the service's time, or created_at of the record; zero if not known. judge also returns the
// entry that decided, and for InUse the reason.
func judge(entries []Entry, baseURL string, want Request, date time.Time) (v Verdict, e Entry, why string) {
	open := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return !e.Open() })
	switch {
	case len(open) == 0:
		return Free, e, ""
	case len(open) > 1:
		return InUse, open[0], fmt.Sprintf("it has %d open entries, each with an endpoint: delete these endpoints until one is left", len(open))
	case open[0].looksOver(date):
		return InDoubt, open[0], ""
	case open[0].State == Intended:
		return Wait, open[0], ""
	}
	if why := open[0].Differs(baseURL, want); why != "" {
		return InUse, open[0], why
	}
	return Resume, open[0], ""
}

// looksOver reports whether the entry is in doubt: SettleBy has passed, or its create is over.
// It is used only where nothing is sent.
func (e *Entry) looksOver(date time.Time) bool {
	return e.InDoubt(date) || e.State == Intended && e.SettlesIn(date) == 0
}

// Differs returns the difference between the request of the entry and another request, for error
// messages, or "" if they are the same. A request without a flavor matches any. The hash of the entry
// is of a request without a flavor if its flavor was picked, so either form of the other request may
// match it. If the hash has another version, only the other fields of the record are compared.
func (e *Entry) Differs(baseURL string, want Request) string {
	had := &e.Records[0]
	var all []string
	for _, f := range [...][3]string{
		{"name", had.Name, want.Name}, {"flavor", had.FlavorID, cmp.Or(want.FlavorID, had.FlavorID)},
		{"number of instances", strconv.Itoa(had.Instances), strconv.Itoa(want.billed())}, {"base URL", had.BaseURL, baseURL},
	} {
		if f[1] != f[2] {
			all = append(all, fmt.Sprintf("%s %q, and this call asks for %q", f[0], f[1], f[2]))
		}
	}
	switch {
	case len(all) > 0:
		return "the endpoint of the key was created with the " + strings.Join(all, "; with the ")
	case strings.HasPrefix(had.RequestHash, hashVersion) && !slices.Contains([]string{want.hash(had.Intent, ""), want.hash(had.Intent, had.FlavorID)}, had.RequestHash):
		return "the endpoint of the key was created with the same name, flavor and number of instances, but other fields of the request body differ, such as the image"
	}
	return ""
}

// An Endpoint holds the fields of an endpoint's record that the rules use.
type Endpoint struct {
	ID          string
	Name        string
	Description string
	Instances   int
	Deleted     bool
	CreatedAt   time.Time // created_at of the record; zero if not known
}

// checkOwner returns an error unless the endpoint carries the mark of the entry. If unmarked
// is true, an endpoint with the name of the entry and without a mark is accepted.
func (e *Entry) checkOwner(s Endpoint, unmarked bool) error {
	switch intent, _ := FindMark(s.Description); {
	case intent != "" && intent != e.Intent:
		return fmt.Errorf("%w: it has the mark of another entry, whose intent is %s", ErrMark, intent)
	case !same.Text(s.Name, e.Name):
		return fmt.Errorf("the name of the endpoint is %q, but the entry has the name %q", s.Name, e.Name)
	case intent == "" && !unmarked:
		return fmt.Errorf("%w: it has no mark", ErrMark)
	}
	return nil
}

// ErrEarly is returned when the create of an entry may still be under way, or its lease has not ended.
var ErrEarly = errors.New("too early")

// checkDoubt returns an error unless the state is Unknown or Intended, or an ErrEarly if the create
// may still be under way.
func (e *Entry) checkDoubt(date time.Time) error {
	if e.State != Unknown && e.State != Intended {
		return fmt.Errorf("the entry is not in doubt: its state is %q", e.State)
	}
	if left := e.SettlesIn(date); left > 0 {
		return fmt.Errorf("%w: the create may be under way for another %v", ErrEarly, left.Round(time.Second))
	}
	return nil
}

// mayForget returns an error unless the entry may be forgotten: it is in doubt, or its endpoint was
// created and is not found now. date is the time by the service's clock; created_at of the record;
// zero if not known.
func (e *Entry) mayForget(baseURL string, notFound bool, date time.Time) error {
	switch {
	case e.BaseURL != baseURL:
		return e.elsewhere()
	case e.State == Created && notFound:
		return nil
	case e.State == Created:
		return errors.New("the endpoint exists: delete it with DeleteAndWait")
	}
	return e.checkDoubt(date)
}

// elsewhere returns an error for an entry of another base URL.
func (e *Entry) elsewhere() error {
	return fmt.Errorf("the entry belongs to another base URL: %s", e.BaseURL)
}

// mayAdopt returns an error unless s may be recorded as the endpoint of the entry. If unmarked
// is true, an endpoint without a mark is accepted.
func (e *Entry) mayAdopt(baseURL string, s Endpoint, unmarked bool, date time.Time) error {
	mark, _ := FindMark(s.Description)
	switch {
	case e.State == Intended && mark == e.Intent: // its create made the endpoint
	case e.State == Forgotten, e.looksOver(date):
	default:
		return e.checkDoubt(date)
	}
	switch {
	case e.BaseURL != baseURL:
		return e.elsewhere()
	case s.Deleted:
		return errors.New("the endpoint is deleted")
	}
	return e.checkOwner(s, unmarked)
}

// mayUndo returns an error unless s may be recorded as not the endpoint of the entry: it was adopted, and
// does not carry the mark of the entry.
func (e *Entry) mayUndo(baseURL string, s Endpoint) error {
	switch mark, _ := FindMark(s.Description); {
	case e.BaseURL != baseURL:
		return e.elsewhere()
	case e.State != Created, !e.Adopted, !same.ID(e.ServiceID, s.ID):
		return errors.New("the entry has not adopted the endpoint")
	case mark == e.Intent:
		return errors.New("the endpoint carries the mark of the entry, so the create of the entry made it")
	}
	return nil
}

// Overdue reports whether the entry is open, belongs to the base URL, and has a lease that may have
// ended at date, by the service's clock.
func (e *Entry) Overdue(baseURL string, date time.Time) bool {
	return e.Open() && e.BaseURL == baseURL && e.Lease > 0 && date.After(e.LeaseEnd)
}

// MayReap returns an error unless the lease has ended by the service's clock, and s is the endpoint
// of the entry.
func (e *Entry) MayReap(date time.Time, s Endpoint) error {
	begin := cmp.Or(e.leased, e.ServiceTime)
	switch {
	case date.IsZero():
		return errors.New("the response has no Date header, so it is not known whether the lease has ended")
	case begin.IsZero():
		return errors.New("the response to the create had no Date header, so it is not known whether the lease has ended: set a new end with Extend, or delete the endpoint with DeleteAndWait")
	case !date.After(begin.Add(e.Lease)):
		return fmt.Errorf("%w: the lease has not ended: the service's time is %s", ErrEarly, date.Format(time.RFC3339))
	}
	return e.checkOwner(s, !e.Adopted)
}

// lengthen returns the record with which a resumed Deploy extends the lease of the entry. The lease
// counts from the create of the endpoint. The record is empty if lease is 0, or does not end later
// than the present lease.
func (e *Entry) lengthen(lease time.Duration) Record {
	begin := cmp.Or(e.ServiceTime, e.RequestedAt)
	if lease <= 0 || e.Lease > 0 && !begin.Add(lease).After(e.LeaseEnd) {
		return Record{}
	}
	return Record{Event: Extended, Lease: lease, ServiceTime: e.ServiceTime}
}

// WallClock returns the current time without the monotonic clock, which stops while the
// machine sleeps and is meaningless to other processes.
func WallClock() time.Time { return time.Now().Round(0).UTC() }
