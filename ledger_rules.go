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
)

// The rules of the ledger. They are pure functions: no store, no service, and the
// time comes as an argument.

const (
	ledgerSettle = 5 * time.Minute // how long a create may be sent, at most
	ledgerMargin = time.Minute     // after SettleBy, for clocks that differ and a request under way
)

// ledgerMoves holds the events that change a state; the event is the new state.
// Any other event is kept in the records and changes nothing. A slow process may learn
// the outcome after a wrong Forget, so a forgotten entry changes again.
var ledgerMoves = map[LedgerEvent][]LedgerEvent{
	LedgerIntended:  {LedgerCreated, LedgerRefused, LedgerUnknown, LedgerForgotten},
	LedgerUnknown:   {LedgerCreated, LedgerForgotten},
	LedgerRefused:   {LedgerCreated},
	LedgerForgotten: {LedgerCreated, LedgerRefused, LedgerUnknown},
	LedgerCreated:   {LedgerDeleted},
	LedgerDeleted:   {},
}

// foldLedger makes entries of records. Its error consists of a LedgerError for each key
// whose records are damaged: no create is sent under such a key.
func foldLedger(records []LedgerRecord) (entries []LedgerEntry, damaged error) {
	type intent struct{ key, intent string }
	index := make(map[intent]int)
	last := make(map[string]int64)
	for _, r := range records {
		var err error
		if r.Seq != last[r.Key]+1 {
			err = fmt.Errorf("record %d comes after record %d", r.Seq, last[r.Key])
		}
		last[r.Key] = r.Seq
		i, found := index[intent{r.Key, r.Intent}]
		_, isState := ledgerMoves[r.Event]
		switch {
		case !isState && r.Event != LedgerScaled && r.Event != LedgerExtended:
			err = fmt.Errorf("record %d has the unknown event %q: it may be of a later version", r.Seq, r.Event)
		case found:
			err = errors.Join(err, entries[i].apply(r))
		case r.Event == LedgerIntended:
			index[intent{r.Key, r.Intent}] = len(entries)
			entries = append(entries, newLedgerEntry(r))
		case r.Event != LedgerRefused: // that one may stand in the place of its intent
			err = fmt.Errorf("record %d (%s) has no intent before it", r.Seq, r.Event)
		}
		if err != nil {
			damaged = errors.Join(damaged, &LedgerError{Op: "list", Key: r.Key, Intent: r.Intent, ServiceID: r.ServiceID, Err: err})
		}
	}
	return entries, damaged
}

func newLedgerEntry(r LedgerRecord) LedgerEntry {
	return LedgerEntry{
		Key: r.Key, Intent: r.Intent, BaseURL: r.BaseURL, Name: r.Name, FlavorID: r.FlavorID,
		State: LedgerIntended, Instances: r.Instances, RequestedAt: r.At, SettleBy: r.SettleBy,
		LeaseEnd: r.LeaseEnd, Records: []LedgerRecord{r},
	}
}

// apply adds a record to its entry.
func (e *LedgerEntry) apply(r LedgerRecord) error {
	e.Records = append(e.Records, r)
	known := e.State == LedgerCreated || e.State == LedgerDeleted
	switch {
	case r.Event == LedgerScaled:
		e.Instances = r.Instances
	case r.Event == LedgerExtended:
		e.LeaseEnd = r.LeaseEnd
	case r.Event == LedgerCreated && (r.ServiceID == "" || known && r.ServiceID != e.ServiceID):
		return fmt.Errorf("record %d says that the create has the endpoint %q, and not %q as before", r.Seq, r.ServiceID, e.ServiceID)
	case !slices.Contains(ledgerMoves[e.State], r.Event), known && r.ServiceID != e.ServiceID:
	case r.Event == LedgerDeleted:
		e.State, e.DeletedAt = r.Event, r.At
	default:
		if e.State, e.ServiceID, e.Adopted = r.Event, r.ServiceID, r.Adopted; r.Event == LedgerCreated {
			e.CreatedAt = r.At
		}
	}
	return nil
}

// InstanceTime is an upper bound of the billed time by now: the number of
// instances times how long each number lasted, from RequestedAt to DeletedAt, by the
// clocks of the ledger. Time in the state stopped counts, and changes that were made
// elsewhere are not known. 0 if nothing was created. There is no price in it, since
// the service does not say what the unit of its prices is.
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

// inDoubt reports whether nobody will settle the entry any more.
func (e *LedgerEntry) inDoubt(now time.Time) bool {
	return e.State == LedgerUnknown || e.State == LedgerIntended && e.settled(now)
}

// settled reports whether SettleBy is certainly over.
func (e *LedgerEntry) settled(now time.Time) bool { return !now.Before(e.SettleBy.Add(ledgerMargin)) }

// ledgerVerdict says what a Deploy does about its key.
type ledgerVerdict int

const (
	ledgerFree   ledgerVerdict = iota // no open entry: record an intent, and create
	ledgerWait                        // another process is about to settle it
	ledgerDoubt                       // an endpoint may exist
	ledgerResume                      // wait for the endpoint of the entry
	ledgerInUse                       // by another request, or by two endpoints
)

// judgeKey decides by the entries of a key what a Deploy does that wants the
// endpoint of the record want, made of the body with these fields. It returns the entry
// that decided, and for ledgerInUse what differs.
func judgeKey(entries []LedgerEntry, want *LedgerRecord, fields map[string]any, now time.Time) (ledgerVerdict, LedgerEntry, string) {
	open := slices.DeleteFunc(slices.Clone(entries), func(e LedgerEntry) bool { return !e.Open() })
	switch {
	case len(open) == 0:
		return ledgerFree, LedgerEntry{}, ""
	case len(open) > 1:
		return ledgerInUse, open[0], fmt.Sprintf("%d entries of the key are open: delete the endpoints that are not wanted", len(open))
	case open[0].inDoubt(now):
		return ledgerDoubt, open[0], ""
	case open[0].State == LedgerIntended:
		return ledgerWait, open[0], ""
	}
	if why := differs(&open[0].Records[0], want, fields); why != "" {
		return ledgerInUse, open[0], "it belongs to another request: " + why
	}
	return ledgerResume, open[0], ""
}

// differs says what a recorded intent has other than the request want.
// A hash of another version says nothing: then the fields decide.
func differs(had, want *LedgerRecord, fields map[string]any) string {
	show := func(r *LedgerRecord) string {
		return fmt.Sprintf("name %q, flavor %q, instances %d, base URL %s", r.Name, r.FlavorID, r.Instances, r.BaseURL)
	}
	same := had.RequestHash == requestHash(had.Intent, fields)
	switch {
	case show(had) != show(want) && (!same || had.BaseURL != want.BaseURL):
		return show(had) + ", and not " + show(want)
	case !same && strings.HasPrefix(had.RequestHash, ledgerHashVersion):
		return "other fields of the request body differ"
	}
	return ""
}

const ledgerHashVersion = "1:"

// requestHash identifies a request without showing it: the hash of the intent and
// the body, with sorted keys and without the mark, behind the version of this rule.
func requestHash(intent string, fields map[string]any) string {
	fields = maps.Clone(fields)
	if text, ok := fields["description"].(string); ok {
		_, fields["description"] = findMark(text)
	}
	sorted, _ := json.Marshal(fields)
	sum := sha256.Sum256(append([]byte(intent+"\n"), sorted...))
	return ledgerHashVersion + hex.EncodeToString(sum[:])
}

// readBody returns the fields of a request body, with numbers as they are written, and
// what the ledger records of them. What [WithBodyField] has set counts. Without a number of
// instances, that is absent.
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
		return nil, r, &ValidationError{[]FieldError{{"body", "has a name, a flavor_id or a target_instance_number that the ledger cannot read"}}}
	}
	r = LedgerRecord{Event: LedgerIntended, Name: sent.Name, FlavorID: sent.ResourceMetadata.FlavorID, Instances: absent}
	if n := sent.ResourceMetadata.TargetInstanceNumber; n != nil {
		r.Instances = int(*n)
	}
	return fields, r, nil
}

var ledgerMark = regexp.MustCompile(`\[svc:([A-Z2-7]{26})\]`)

// findMark finds the intent of the last mark in a description, and what the
// description is without that mark.
func findMark(description string) (intent, without string) {
	description = strings.TrimSpace(description)
	all := ledgerMark.FindAllStringSubmatchIndex(description, -1)
	if len(all) == 0 {
		return "", description
	}
	m := all[len(all)-1]
	return description[m[2]:m[3]], strings.TrimSpace(description[:m[0]] + description[m[1]:])
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

// checkOwner fails if the endpoint may belong to somebody else.
func (e *LedgerEntry) checkOwner(s *InferenceService, unmarked bool) error {
	switch intent, _ := findMark(s.Description); {
	case !sameText(s.Name, e.Name):
		return fmt.Errorf("the endpoint is called %q, and not %q", s.Name, e.Name)
	case intent == e.Intent, intent == "" && unmarked:
		return nil
	case intent == "":
		return fmt.Errorf("%w: it has none", ErrLedgerMark)
	default:
		return fmt.Errorf("%w: it has that of %s", ErrLedgerMark, intent)
	}
}

var errNotInDoubt = errors.New("the entry is not in doubt")

// mayForget fails unless the entry is in doubt, and nothing can be sent for it any
// more, by the local clock and by the service's.
func (e *LedgerEntry) mayForget(now, date time.Time) error {
	switch {
	case e.State != LedgerUnknown && e.State != LedgerIntended:
		return fmt.Errorf("%w, but %s", errNotInDoubt, e.State)
	case date.IsZero():
		return errors.New("the response has no Date header, so the local clock cannot be checked")
	case !e.settled(now) || !e.settled(date):
		return fmt.Errorf("%w before %s", errNotInDoubt, e.SettleBy.Add(ledgerMargin).Format(time.RFC3339))
	}
	return nil
}

// mayAdopt fails unless the endpoint s is the one that the entry is looking for.
func (e *LedgerEntry) mayAdopt(base string, s *InferenceService, unmarked bool, now time.Time) error {
	switch {
	case !e.inDoubt(now) && e.State != LedgerForgotten:
		return errNotInDoubt
	case e.BaseURL != base:
		return fmt.Errorf("the entry belongs to another base URL: %s", e.BaseURL)
	case s.IsDeleted:
		return errors.New("the endpoint is deleted")
	}
	return e.checkOwner(s, unmarked)
}

// overdue reports whether the lease has ended by the local clock.
func (e *LedgerEntry) overdue(base string, now time.Time) bool {
	return e.Open() && e.BaseURL == base && !e.LeaseEnd.IsZero() && now.After(e.LeaseEnd)
}

// mayReap fails unless the lease has ended by the service's clock too, and the
// endpoint s is the one of the entry.
func (e *LedgerEntry) mayReap(date time.Time, s *InferenceService) error {
	switch {
	case date.IsZero():
		return errors.New("not deleted: the response has no Date header, so the local clock cannot be checked")
	case !date.After(e.LeaseEnd):
		return fmt.Errorf("not deleted: by the service's clock it is %s, before the end of the lease", date.Format(time.RFC3339))
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
