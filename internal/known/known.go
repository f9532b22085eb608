// Package known remembers what a client knows of endpoints: when it created them, which records
// it has read, and with which tokens.
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
	most = 16384     // number of endpoints that are remembered; then the old ones are forgotten
	kept = time.Hour // for how long an endpoint that was created is not forgotten
)

// Sender identifies the token that was sent for a response, without showing it: it returns a
// checksum of the message with the token as key.
type Sender func(message string) string

// Endpoints is safe for concurrent use. If it forgets an endpoint, a wait for its deletion may
// take 30 s longer, or may not be able to prove the deletion.
type Endpoints struct {
	salt string
	mu   sync.Mutex
	all  map[string]endpoint // maps an ID to what is known of it
}

type endpoint struct {
	created time.Time // zero if not known
	read    bool      // its record was read
	checks  []check   // checksums by the tokens for which the ID is known
}

type check struct{ message, sum string }

// New returns a memory without endpoints.
func New() *Endpoints { return &Endpoints{salt: rand.Text(), all: map[string]endpoint{}} }

// Create notes that an endpoint was created. sender is that of the response; nil if the token is not
// known to fit.
func (e *Endpoints) Create(id string, sender Sender) {
	e.note(id, endpoint{created: time.Now()}, e.check(sender))
}

// Born returns the time when the endpoint was created, or zero if it is not known.
func (e *Endpoints) Born(id string) time.Time { return e.get(id).created }

// Read notes that a response showed the record of an endpoint.
func (e *Endpoints) Read(id string, sender Sender) {
	e.note(id, endpoint{read: true}, e.check(sender))
}

// WasRead reports whether the record of an endpoint was read.
func (e *Endpoints) WasRead(id string) bool { return e.get(id).read }

// Vouch notes that an ID is known for the token that makes sum of message. An empty sum vouches
// for nothing.
func (e *Endpoints) Vouch(id, message, sum string) { e.note(id, endpoint{}, check{message, sum}) }

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

// note adds to what is remembered of an endpoint.
func (e *Endpoints) note(id string, more endpoint, c check) {
	id = same.Canonical(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) >= most {
		maps.DeleteFunc(e.all, func(_ string, k endpoint) bool { return time.Since(k.created) > kept })
	}
	k := e.all[id]
	if k.read = k.read || more.read; !more.created.IsZero() {
		k.created = more.created
	}
	if c.sum != "" && !slices.Contains(k.checks, c) {
		k.checks = append(slices.Clip(k.checks), c)
	}
	e.all[id] = k
}
