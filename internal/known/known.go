// Package known remembers what a client knows of endpoints: when it created them, which records
// it has read, and with which tokens.
package known

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	most = 16384     // number of endpoints that are remembered; then all of them are forgotten
	kept = time.Hour // how long the time of a creation is remembered
)

// Sender identifies the token that was sent for a response, without showing it: it returns a
// checksum of the message with the token as key.
type Sender func(message string) string

// Endpoints is safe for concurrent use. If it forgets an endpoint, a wait for its deletion may
// take 30 s longer, or may not be able to prove the deletion.
type Endpoints struct {
	salt    string
	mu      sync.Mutex
	created map[string]time.Time // time of the creation, by the ID of the endpoint
	read    map[string]bool      // IDs of the endpoints whose record was read
	tokens  map[string][]check   // checks of the tokens for which an ID is known
}

type check struct{ message, sum string }

// New returns a memory without endpoints.
func New() *Endpoints {
	return &Endpoints{salt: rand.Text(), created: map[string]time.Time{}, read: map[string]bool{}, tokens: map[string][]check{}}
}

// Create notes that an endpoint was created. sender is that of the response; nil: another process
// created it.
func (e *Endpoints) Create(id string, sender Sender) {
	if sender != nil {
		e.Vouch(id, e.salt, sender(e.salt))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.created, func(_ string, at time.Time) bool { return time.Since(at) > kept })
	e.created[id] = time.Now()
}

// Born returns the time when the endpoint was created; zero: it is not known.
func (e *Endpoints) Born(id string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.created[id]
}

// Read notes that a response showed the record of an endpoint.
func (e *Endpoints) Read(id string, sender Sender) {
	e.Vouch(id, e.salt, sender(e.salt))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read[id] = true
}

// WasRead reports whether the record of an endpoint was read.
func (e *Endpoints) WasRead(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read[id]
}

// Vouch notes that an ID is known for the token that makes sum of message. An empty sum vouches
// for nothing.
func (e *Endpoints) Vouch(id, message, sum string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.tokens) >= most {
		clear(e.tokens)
		clear(e.read)
	}
	if c := (check{message, sum}); sum != "" && !slices.Contains(e.tokens[id], c) {
		e.tokens[id] = append(e.tokens[id], c)
	}
}

// Knows reports whether an ID is known for the token of sender.
func (e *Endpoints) Knows(id string, sender Sender) bool {
	e.mu.Lock()
	checks := slices.Clone(e.tokens[id])
	e.mu.Unlock()
	return slices.ContainsFunc(checks, func(c check) bool { return sender(c.message) == c.sum })
}
