// Package ledger records which endpoints may be running. A client of package svc writes a record
// to a [Store] before it creates an endpoint, and another record with the outcome: see
// [example.com/svc.WithLedger].
//
//	store, err := ledger.Dir("/var/lib/deployer/ledger")
//	…
//	client, err := svc.NewClient(baseURL, svc.WithToken(token), svc.WithLedger(store))
//
// Begin with [Dir]: it needs only a folder, which may be on NFS. Package sqlledger has stores for
// SQLite and PostgreSQL. [Memory] is for tests. If you write a store, use [Encode] and [Decode]
// for its records, and package ledgertest to test it.
//
// [Fold] combines the records of each create into an [Entry]. The rules of the ledger are pure
// functions: they call neither the store nor the service, and get the time as an argument.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"example.com/svc/internal/apierr"
)

// A Store keeps the records of a ledger. It is a journal: records are added, and never changed
// or removed. Only one record can be added for each Key and Seq. A store must be safe for
// concurrent use, even by several processes that share it.
type Store interface {
	// Append stores r durably before it returns nil. If there is already a record with the same
	// Key and Seq, the error is [fs.ErrExist]. After any other error the record may be stored or
	// not. Append returns an error if ctx has ended.
	Append(ctx context.Context, r Record) error
	// List returns the records of key in order of Seq. For an empty key it returns the records
	// of all keys, grouped by key. With an error it returns the records that it could read. An
	// error that is about one key only is an [*Error] with that Key.
	List(ctx context.Context, key string) ([]Record, error)
}

// A Finder is a [Store] that can find the keys of an endpoint without reading all records.
type Finder interface {
	// Find returns the keys that have a record with this ServiceID, in upper or lower case. It may
	// return other keys as well.
	Find(ctx context.Context, id string) (keys []string, err error)
}

// A Pruner is a [Store] that can remove the oldest records of a key. A [Journal] first appends a
// Pruned record, so that nobody can append a record to a list that was read before.
type Pruner interface {
	// Prune removes the records of key whose Seq is at most upTo.
	Prune(ctx context.Context, key string, upTo int64) error
}

// An Option changes how a store is opened.
type Option struct{ name string }

// MustExist opens only a ledger that exists already: an error is better than an empty ledger if the
// path is wrong or a volume is not mounted. Use it wherever a ledger was made before. It needs no write,
// so it does not find out whether the ledger can be written: nothing is created until it can.
func MustExist() Option { return Option{"MustExist"} }

// MustNotExist makes a new ledger. If there is one already, also if another process makes it at the same moment, the error
// matches [fs.ErrExist]: of several processes, only the one that has made the ledger succeeds.
func MustNotExist() Option { return Option{"MustNotExist"} }

// An Event is the reason for a record. Some events change the state of the entry. The [State]
// then has the name of the event.
type Event string

// A State is the state of an entry: Intended, Created, Refused, Unknown, Forgotten or Deleted.
type State string

// The constants without a type are events and states.
const (
	Intended        = "intended"  // a create is about to be sent
	Created         = "created"   // the endpoint exists, and its ID is known
	Refused         = "refused"   // the create has failed, and no endpoint was created
	Unknown         = "unknown"   // the outcome of the create is not known
	Forgotten       = "forgotten" // a person confirmed that there is no endpoint
	Deleted         = "deleted"   // the endpoint was seen to be deleted
	Scaled    Event = "scaled"    // the number of instances changed; the state did not
	Extended  Event = "extended"  // the end of the lease changed; the state did not
	Pruned    Event = "pruned"    // the records before this one are ignored: all entries of the key had ended
)

// A Record is one record of the journal. It holds no token, and nothing of the request
// but these fields. Its JSON form is stable. A comment that begins with events, such as
// "created:", means that only records of these events have the field.
type Record struct {
	Key         string    `json:"key"`                    // 1 to 64 characters of a-z, 0-9, _ and -
	Seq         int64     `json:"seq"`                    // number of the record in its key: 1, 2, 3, …
	Intent      string    `json:"intent"`                 // random ID of a create call; all attempts of the call share it
	Event       Event     `json:"event"`                  // what happened
	At          time.Time `json:"at"`                     // when the record was made, in UTC, by the clock of the process; scaled, back to the number before a refused change: when that was recorded
	BaseURL     string    `json:"base_url,omitempty"`     // intended: base URL of the service
	Name        string    `json:"name,omitempty"`         // intended: name of the endpoint; created: the name that the service gave it, if it is another one
	FlavorID    string    `json:"flavor_id,omitempty"`    // intended: flavor of the endpoint
	RequestHash string    `json:"request_hash,omitempty"` // intended: hash of Intent and the request body
	SettleBy    time.Time `json:"settle_by,omitzero"`     // intended: the create is not sent after this time
	Instances   int       `json:"instances,omitempty"`    // intended, scaled: number of instances
	ServiceID   string    `json:"service_id,omitempty"`   // created, deleted, forgotten: ID of the endpoint; unknown: the same, if the response showed it
	Adopted     bool      `json:"adopted,omitempty"`      // created: the ID was adopted; unknown: the adoption of the ID is undone

	// Lease, of intended and extended, is how long the endpoint may exist, in nanoseconds. It
	// counts from ServiceTime. If 0, there is no lease.
	Lease time.Duration `json:"lease,omitempty"`
	// LeaseEnd is the end of the lease in records of earlier versions, which have no Lease.
	LeaseEnd time.Time `json:"lease_end,omitzero"`
	// ServiceTime is a time by the service's clock. Created: the Date of the response that showed
	// the create; of an adopted endpoint its created_at, or the time of the intent if that is later. Extended: when the new lease begins.
	// Intended, unknown: when the record was made, by earlier responses to this client. It is
	// zero if the response had no Date, or if an earlier version wrote the record.
	ServiceTime time.Time `json:"service_time,omitzero"`
	// TokenCheck, of created, identifies the token whose response showed the ID: the first 8 hex
	// digits of HMAC-SHA-256 over Intent, with the token as key. It is empty if not known.
	TokenCheck string `json:"token_check,omitempty"`
}

// An Entry combines all records of one create call. A key gets many entries over time. At most
// one of them is open, unless an entry was forgotten although its endpoint exists.
type Entry struct {
	Key         string    // the key of the Deploy; random for a Create and for a Deploy without one
	Intent      string    // random ID of the create call; the mark in the description of the endpoint holds it
	BaseURL     string    // the service that the create was meant for
	Name        string    // name of the endpoint: the one in the response to the create, or else as requested
	FlavorID    string    // flavor of the endpoint, as requested
	ServiceID   string    // ID of the endpoint; empty if not known
	State       State     // state after the last record
	Instances   int       // number of instances that this package asked for, or more
	Adopted     bool      // ServiceID was adopted
	RequestedAt time.Time // when the create was about to be sent
	SettleBy    time.Time // the create was not sent after this time: 5 min after RequestedAt, or the deadline of its ctx if that is earlier
	CreatedAt   time.Time // when the ID was recorded; zero if it was not
	DeletedAt   time.Time // when the endpoint was seen to be deleted, or was forgotten after it had been created; zero if neither
	ServiceTime time.Time // when the endpoint was created, by the service's clock; zero if not known
	TokenCheck  string    // identifies the token whose response showed the ID: see [Record]; empty if not known
	Records     []Record  // all records of the entry, in order of Seq

	// Lease is how long the endpoint may exist. If 0, there is no lease. It ends at LeaseEnd by the
	// service's clock. If the start of the lease by the service's clock is not known, LeaseEnd
	// counts from RequestedAt and is an estimate.
	Lease    time.Duration
	LeaseEnd time.Time
	// Doubt is why the times of the entry are wrong: they are in the future. It is empty if
	// they are plausible. A [Journal] sets it.
	Doubt string

	leased    time.Time     // when the lease begins, by the service's clock; zero if it begins when the endpoint was created
	before    *Entry        // the entry before it got its ID; nil if it never had one
	sentUntil time.Time     // the create was not sent after this time, by the service's clock; zero if not known
	seenFor   time.Duration // how long the process has known the entry without an outcome, by its monotonic clock
}

// An Error records why the ledger could not be read or written, or why it does not allow a
// call.
type Error struct {
	Op        string // what was attempted: "list", "append created", "adopt", "reap" …
	Key       string // key of the entry; if empty, the error is about the whole ledger
	Intent    string // Intent of the entry; if empty, the error is about the whole key
	ServiceID string // ID of the endpoint; empty if not known, or there is no endpoint
	Err       error  // the store's error, or why the ledger does not allow the call
}

// Error names the operation, the key, the endpoint and the cause.
func (e *Error) Error() string {
	text := "svc: ledger: " + e.Op
	if e.Key != "" {
		text += ", key " + e.Key
	}
	if e.ServiceID != "" {
		text += ", endpoint " + e.ServiceID
	}
	if e.Err != nil {
		text += ": " + strings.TrimPrefix(e.Err.Error(), "svc: ")
	}
	return apierr.Line(text)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Wrap returns an [*Error] about the entry e from err. It returns err itself if err is nil, or
// if err already holds an Error with the ServiceID of e (with any ServiceID if e has none).
func Wrap(op string, e Entry, err error) error {
	known, ok := errors.AsType[*Error](err)
	if err == nil || ok && (e.ServiceID == "" || known.ServiceID == e.ServiceID) {
		return err
	}
	return &Error{Op: op, Key: e.Key, Intent: e.Intent, ServiceID: e.ServiceID, Err: err}
}

// ValidKey reports whether key can be the key of a record. It is no regular expression: one that counts to 64 takes long to
// compile, at each start of a program.
func ValidKey(key string) bool {
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_-") == "" && len(key) == min(max(1, len(key)), 64)
}

var errRecord = errors.New("the key must be 1 to 64 characters of a-z, 0-9, _ and -, and Seq must be 1 or more")

// Encode returns the text of a record, for a store: one line of JSON in ASCII. It returns an
// error if the record is not valid.
func Encode(r Record) ([]byte, error) {
	if !ValidKey(r.Key) || r.Seq < 1 {
		return nil, errRecord
	}
	text, err := json.Marshal(r)
	var ascii []byte
	for _, unit := range utf16.Encode([]rune(string(text))) {
		if unit < utf8.RuneSelf {
			ascii = append(ascii, byte(unit))
		} else {
			ascii = fmt.Appendf(ascii, `\u%04x`, unit)
		}
	}
	return ascii, err
}

// Decode parses the text of the record that a store found under key and seq. place describes its
// location in error messages. If the text is not a record, or is another record, the error is an
// [*Error] with the Key.
func Decode(key string, seq int64, place string, text []byte) (r Record, err error) {
	err = json.Unmarshal(text, &r)
	if err == nil && (r.Key != key || r.Seq != seq) {
		err = fmt.Errorf("its contents are record %d of key %q", r.Seq, r.Key)
	}
	if err != nil {
		return r, Damage(key, place, err)
	}
	return r, nil
}

// Damage returns the error with which a store reports a record that cannot be read.
func Damage(key, place string, err error) error {
	return &Error{Op: "list", Key: key, Err: fmt.Errorf("%s is damaged: %w", place, err)}
}
