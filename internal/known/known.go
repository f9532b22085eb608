// Package known records what a client has seen of endpoints: when it created them, which
// records it has read, and with which tokens.
package known

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"example.com/svc/internal/same"
)

const (
	most = 16384     // number of endpoints from which on the oldest are dropped
	kept = time.Hour // how long a created endpoint is kept at least
)

// Sender identifies the token that was sent for a response, without showing it: it returns a
// checksum of the message with the token as key.
type Sender func(message string) string

// Endpoints is a bounded set of endpoints. It is safe for concurrent use. Without an entry, a
// wait for the deletion of an endpoint may take 30 s longer, or may not be able to prove the
// deletion.
type Endpoints struct {
	salt string
	mu   sync.Mutex
	all  map[string]endpoint // by ID
}

type endpoint struct {
	created time.Time // time of the create; zero if not known
	read    time.Time // time of the latest response with its record; zero if there was none
	checks  []check   // checksums by the tokens for which the ID is known
}

type check struct{ message, sum string }

// New returns an empty set.
func New() *Endpoints { return &Endpoints{salt: rand.Text(), all: map[string]endpoint{}} }

// Create records that an endpoint was created. sender is the sender of the request, or nil if the
// endpoint may be of another token.
func (e *Endpoints) Create(id string, sender Sender) {
	e.note(id, endpoint{created: time.Now()}, e.check(sender))
}

// CreatedAt returns the time when the endpoint was created, or zero if it is not known.
func (e *Endpoints) CreatedAt(id string) time.Time { return e.get(id).created }

// Read records that a response showed the record of an endpoint.
func (e *Endpoints) Read(id string, sender Sender) {
	e.note(id, endpoint{read: time.Now()}, e.check(sender))
}

// ReadAt returns the time of the latest response with the record of an endpoint, or zero if there was
// none.
func (e *Endpoints) ReadAt(id string) time.Time { return e.get(id).read }

// MarkKnown records that an ID is known for the token whose checksum of message is sum. It does
// nothing if sum is empty.
func (e *Endpoints) MarkKnown(id, message, sum string) { e.note(id, endpoint{}, check{message, sum}) }

// Knows reports whether an ID is known for the token of sender.
func (e *Endpoints) Knows(id string, sender Sender) bool {
	return slices.ContainsFunc(e.get(id).checks, func(c check) bool { return sender(c.message) == c.sum })
}

func (e *Endpoints) check(sender Sender) check {
	if sender == nil {
		return check{}
	}
	return check{e.salt, sender(e.salt)}
}

func (e *Endpoints) get(id string) endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[same.Canonical(id)]
}

// note adds to the entry of an endpoint.
func (e *Endpoints) note(id string, more endpoint, c check) {
	id = same.Canonical(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) >= most {
		maps.DeleteFunc(e.all, func(_ string, k endpoint) bool { return time.Since(k.created) > kept })
	}
	k := e.all[id]
	k.created = slices.MaxFunc([]time.Time{k.created, more.created}, time.Time.Compare)
	k.read = slices.MaxFunc([]time.Time{k.read, more.read}, time.Time.Compare)
	if c.sum != "" && !slices.Contains(k.checks, c) {
		k.checks = append(slices.Clip(k.checks), c)
	}
	e.all[id] = k
}
