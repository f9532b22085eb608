package svc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/cause"
)

// The rules of the ledger. They are pure functions: they call neither the store nor the
// service, and get the time as an argument.

const (
	ledgerSettle = 5 * time.Minute // a create is sent at most this long after its intent was recorded
	ledgerMargin = time.Minute     // extra time after SettleBy, since clocks differ and a request may be under way

	ledgerPatience = 5 * time.Second // time limit for the store, in calls that must not wait longer for it
)

// ledgerMoves holds, by state, the events that change it; the event is the new state.
// All other known events are kept in the records and change no state. After a wrong Forget
// a slow process may learn the outcome, so a forgotten entry can change again.
var ledgerMoves = map[LedgerEvent][]LedgerEvent{
	LedgerIntended:  {LedgerCreated, LedgerRefused, LedgerUnknown, LedgerForgotten},
	LedgerUnknown:   {LedgerCreated, LedgerForgotten},
	LedgerRefused:   {LedgerCreated},
	LedgerForgotten: {LedgerCreated, LedgerRefused, LedgerUnknown},
	LedgerCreated:   {LedgerDeleted},
	LedgerDeleted:   {},
	LedgerScaled:    {}, // never a state
	LedgerExtended:  {}, // never a state
}

// foldLedger makes entries from records. Its error joins a LedgerError for each damaged
// record. No create is sent under the key of a damaged record.
func foldLedger(records []LedgerRecord) (entries []LedgerEntry, damaged error) {
	var errs []error
	index := make(map[[2]string]int) // from key and intent to the index in entries
	last := make(map[string]int64)
	for _, r := range records {
		create := [2]string{r.Key, r.Intent}
		if _, found := index[create]; !found {
			index[create] = len(entries)
			entries = append(entries, LedgerEntry{Key: r.Key, Intent: r.Intent})
		}
		err := entries[index[create]].apply(r)
		if r.Seq != last[r.Key]+1 {
			err = cause.Join(fmt.Errorf("record %d is missing: the next record is %d", last[r.Key]+1, r.Seq), err)
		}
		last[r.Key] = r.Seq
		if err != nil {
			errs = append(errs, &LedgerError{Op: "list", Key: r.Key, Intent: r.Intent, ServiceID: r.ServiceID, Err: err})
		}
	}
	return slices.DeleteFunc(entries, func(e LedgerEntry) bool { return e.State == "" }), cause.Join(errs...)
}

// apply adds a record to its entry. The state is empty before the record of the intent.
func (e *LedgerEntry) apply(r LedgerRecord) error {
	e.Records = append(e.Records, r)
	_, known := ledgerMoves[r.Event]
	hasID := e.State == LedgerCreated || e.State == LedgerDeleted
	switch {
	case !known:
		return fmt.Errorf("record %d has the unknown event %q: a later version of this package may have written it", r.Seq, r.Event)
	case e.State == "" && r.Event == LedgerIntended:
		e.State, e.RequestedAt, e.SettleBy, e.LeaseEnd = r.Event, r.At, r.SettleBy, r.LeaseEnd
		e.BaseURL, e.Name, e.FlavorID, e.Instances = r.BaseURL, r.Name, r.FlavorID, r.Instances
	case e.State == "" && r.Event != LedgerRefused: // a refused record may come first: the record of the intent could not be written
		return fmt.Errorf("record %d (%q) belongs to a create without a record of the event \"intended\"", r.Seq, r.Event)
	case r.Event == LedgerScaled:
		e.Instances = r.Instances
	case r.Event == LedgerExtended:
		e.LeaseEnd = r.LeaseEnd
	case r.Event == LedgerCreated && r.ServiceID == "":
		return fmt.Errorf("record %d says that an endpoint was created, but does not hold its ID", r.Seq)
	case r.Event == LedgerCreated && hasID && r.ServiceID != e.ServiceID:
		return fmt.Errorf("record %d says that the endpoint %q was created, but an earlier record of the same create says %q", r.Seq, r.ServiceID, e.ServiceID)
	case !slices.Contains(ledgerMoves[e.State], r.Event), hasID && r.ServiceID != e.ServiceID:
	case r.Event == LedgerDeleted:
		e.State, e.DeletedAt = r.Event, r.At
	default:
		if e.State, e.ServiceID, e.Adopted = r.Event, r.ServiceID, r.Adopted; r.Event == LedgerCreated {
			e.CreatedAt = r.At
		}
	}
	return nil
}

// InstanceTime is an upper bound of the time that is billed until now. Three instances
// that run for ten minutes make 30 minutes. The time counts from RequestedAt to DeletedAt,
// by the clocks of the processes that wrote the ledger, and also while the endpoint is
// stopped. Changes that were made without this ledger do not count. The time is 0 if nothing
// was created. It is not a price, since the service does not document the unit of its prices.
func (e LedgerEntry) InstanceTime(now time.Time) (total time.Duration) {
	if e.State == LedgerDeleted {
		now = e.DeletedAt
	} else if !e.Open() {
		return 0
	}
	instances, since := 0, e.RequestedAt
	for _, r := range append(slices.Clip(e.Records), LedgerRecord{Event: LedgerScaled, At: now}) {
		if (r.Event == LedgerIntended || r.Event == LedgerScaled) && !r.At.After(now) {
			total += time.Duration(instances) * max(r.At.Sub(since), 0)
			instances, since = r.Instances, r.At
		}
	}
	return total
}

// InDoubt reports whether the endpoint may exist although nothing will record its ID: the
// state is unknown, or it is still intended one minute after SettleBy. Then [Ledger.Adopt]
// or [Ledger.Forget] has to settle the entry. Now is the current time.
func (e LedgerEntry) InDoubt(now time.Time) bool {
	return e.State == LedgerUnknown || e.State == LedgerIntended && e.settled(now)
}

// settled reports whether SettleBy has certainly passed.
func (e *LedgerEntry) settled(now time.Time) bool { return !now.Before(e.SettleBy.Add(ledgerMargin)) }

// ledgerVerdict says what a Deploy does about its key.
type ledgerVerdict int

const (
	ledgerFree   ledgerVerdict = iota // no open entry: record an intent, and create
	ledgerWait                        // another call is creating: read the ledger again
	ledgerDoubt                       // an endpoint may exist: send nothing
	ledgerResume                      // an endpoint exists: wait until it is available
	ledgerInUse                       // the endpoint is of another request, or two entries are open
)

// judgeKey decides by the entries of a key what a Deploy does. want is the record of the new
// create, and fields are its request body. judgeKey also returns the entry that decided, and
// for ledgerInUse the reason.
func judgeKey(entries []LedgerEntry, want *LedgerRecord, fields map[string]any, now time.Time) (ledgerVerdict, LedgerEntry, string) {
	open := slices.DeleteFunc(slices.Clone(entries), func(e LedgerEntry) bool { return !e.Open() })
	switch {
	case len(open) == 0:
		return ledgerFree, LedgerEntry{}, ""
	case len(open) > 1:
		return ledgerInUse, open[0], fmt.Sprintf("it has %d open entries, each with an endpoint: delete these endpoints until one is left", len(open))
	case open[0].InDoubt(now):
		return ledgerDoubt, open[0], ""
	case open[0].State == LedgerIntended:
		return ledgerWait, open[0], ""
	}
	if why := differs(&open[0].Records[0], want, fields); why != "" {
		return ledgerInUse, open[0], why
	}
	return ledgerResume, open[0], ""
}

// differs says how the request of a recorded intent differs from another request. It returns ""
// if they are the same. If the hash has another version, it cannot be compared: then only the
// other fields of the record decide.
func differs(had, want *LedgerRecord, fields map[string]any) string {
	show := func(r *LedgerRecord) string {
		return fmt.Sprintf("name %q, flavor %q, instances %d, base URL %s", r.Name, r.FlavorID, r.Instances, r.BaseURL)
	}
	switch recorded, asked := show(had), show(want); {
	case had.BaseURL == want.BaseURL && had.RequestHash == requestHash(had.Intent, fields):
		return ""
	case recorded != asked:
		return "the ledger has an endpoint with " + recorded + "; this call asks for " + asked
	case strings.HasPrefix(had.RequestHash, ledgerHashVersion):
		return "the ledger has an endpoint with " + recorded + ", as this call asks for, but other fields of the request body differ"
	}
	return ""
}

const ledgerHashVersion = "1:"

// requestHash identifies a request without showing it. It hashes the intent and the body, with
// sorted keys and without the mark. The result begins with the version of this rule.
func requestHash(intent string, fields map[string]any) string {
	fields = maps.Clone(fields)
	if text, ok := fields["description"].(string); ok {
		_, fields["description"] = findMark(text)
	}
	sorted, _ := json.Marshal(fields)
	sum := sha256.Sum256(append([]byte(intent+"\n"), sorted...))
	return ledgerHashVersion + hex.EncodeToString(sum[:])
}

// readBody returns the fields of the final request body, with numbers as text, and the record
// of a create with this body. If the body has no number of instances, the record has absent.
func readBody(body []byte, absent int) (fields map[string]any, r LedgerRecord, err error) {
	var sent struct {
		Name             string
		ResourceMetadata struct {
			FlavorID             string `json:"flavor_id"`
			TargetInstanceNumber *Int   `json:"target_instance_number"`
		} `json:"resource_metadata"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&fields) != nil || json.Unmarshal(body, &sent) != nil {
		return nil, r, &ValidationError{[]FieldError{{"body", "must hold a name, a flavor_id and a target_instance_number of the usual types, since the ledger records them"}}}
	}
	r = LedgerRecord{Event: LedgerIntended, Name: sent.Name, FlavorID: sent.ResourceMetadata.FlavorID, Instances: absent}
	if n := sent.ResourceMetadata.TargetInstanceNumber; n != nil {
		r.Instances = int(*n)
	}
	return fields, r, nil
}

var ledgerMark = regexp.MustCompile(`(?s)^(.*)\[svc:([A-Z2-7]{26})\](.*)$`) // the last mark, since the first part is greedy

// findMark returns the intent in the last mark of a description, empty if there is no mark,
// and the description without that mark.
func findMark(description string) (intent, without string) {
	m := ledgerMark.FindStringSubmatch(description)
	if m == nil {
		return "", strings.TrimSpace(description)
	}
	return m[2], strings.TrimSpace(m[1] + m[3])
}

// addMark makes a request body whose description ends with the mark of an intent.
func addMark(fields map[string]any, intent string) ([]byte, error) {
	description, ok := fields["description"].(string)
	if !ok && fields["description"] != nil {
		return nil, &ValidationError{[]FieldError{{"description", "must be a string: the ledger adds its mark to it (see WithoutLedgerMark)"}}}
	}
	fields = maps.Clone(fields)
	_, description = findMark(description)
	fields["description"] = strings.TrimSpace(description + " [svc:" + intent + "]")
	return json.Marshal(fields)
}

// checkOwner fails unless the endpoint s has the name and the mark of the entry. If unmarked
// is true, an endpoint without a mark is accepted.
func (e *LedgerEntry) checkOwner(s *InferenceService, unmarked bool) error {
	switch intent, _ := findMark(s.Description); {
	case !sameText(s.Name, e.Name):
		return fmt.Errorf("the name of the endpoint is %q, but the entry has the name %q", s.Name, e.Name)
	case intent == e.Intent, intent == "" && unmarked:
		return nil
	case intent == "":
		return fmt.Errorf("%w: it has no mark", ErrLedgerMark)
	default:
		return fmt.Errorf("%w: it has the mark of another entry, whose intent is %s", ErrLedgerMark, intent)
	}
}

// checkDoubt returns an error unless the state is LedgerUnknown or LedgerIntended. It also
// returns an error if, by one of the clocks, the create may still be under way.
func (e *LedgerEntry) checkDoubt(clocks ...time.Time) error {
	if e.State != LedgerUnknown && e.State != LedgerIntended {
		return fmt.Errorf("the entry is not in doubt: its state is %q", e.State)
	}
	for _, now := range clocks {
		if !e.settled(now) {
			return fmt.Errorf("too early: the create may be under way until %s", e.SettleBy.Add(ledgerMargin).Format(time.RFC3339))
		}
	}
	return nil
}

var errNoDate = errors.New("the response has no Date header, so the local clock cannot be checked")

// mayForget fails unless the entry may be forgotten. date is the time by the service's clock.
func (e *LedgerEntry) mayForget(base string, now, date time.Time) error {
	if e.BaseURL != base {
		return e.elsewhere()
	}
	if date.IsZero() {
		return errNoDate
	}
	return e.checkDoubt(now, date)
}

// elsewhere is the error for an entry of another service.
func (e *LedgerEntry) elsewhere() error {
	return fmt.Errorf("the entry belongs to another base URL: %s", e.BaseURL)
}

// mayAdopt fails unless s may be recorded as the endpoint of the entry.
func (e *LedgerEntry) mayAdopt(base string, s *InferenceService, unmarked bool, now time.Time) error {
	mark, _ := findMark(s.Description)
	switch marked := e.State == LedgerIntended && mark == e.Intent; {
	case !marked && !e.InDoubt(now) && e.State != LedgerForgotten:
		return e.checkDoubt(now)
	case e.BaseURL != base:
		return e.elsewhere()
	case s.IsDeleted:
		return errors.New("the endpoint is deleted")
	}
	return e.checkOwner(s, unmarked)
}

// overdue reports whether the entry is open, belongs to the base URL, and has a lease that ended
// more than a second ago by the local clock. The Date of the service has only whole seconds.
func (e *LedgerEntry) overdue(base string, now time.Time) bool {
	return e.Open() && e.BaseURL == base && !e.LeaseEnd.IsZero() && now.After(e.LeaseEnd.Add(time.Second))
}

// mayReap fails unless the lease has ended by the service's clock too, and the
// endpoint s is the one of the entry.
func (e *LedgerEntry) mayReap(date time.Time, s *InferenceService) error {
	switch {
	case date.IsZero():
		return errNoDate
	case !date.After(e.LeaseEnd):
		return fmt.Errorf("the lease has not ended by the service's clock: it says %s", date.Format(time.RFC3339))
	}
	return e.checkOwner(s, !e.Adopted)
}

var ledgerKey = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// checkKey adds to p if key cannot be the key of a Deploy.
func checkKey(p *problems, key string) {
	p.add(!ledgerKey.MatchString(key), "Key", "must be 1 to 64 characters of a-z, 0-9, _ and -")
}

// settleBy is the time after which no attempt of a create is sent.
func settleBy(now, deadline time.Time) time.Time {
	by := now.Add(ledgerSettle)
	if !deadline.IsZero() && deadline.Before(by) {
		by = deadline
	}
	return by.Round(0).UTC()
}

// maySend reports whether an attempt may be sent, by the wall clock.
func maySend(settleBy, now time.Time) bool { return now.Before(settleBy) }

// wallClock is the time without the monotonic clock, which stands still while the
// machine sleeps, and which means nothing to other processes.
func wallClock() time.Time { return time.Now().Round(0).UTC() }
