package main

import (
	"slices"
	"strings"
	"time"
)

// endpoint is what a command has seen of one endpoint. What the ledger has is in its entry.
type endpoint struct {
	id       string    // as the command writes it
	key      string    // of the entry that has its ID, as far as the ledger was read; empty if there is none
	shown    bool      // the service knew it
	maybe    bool      // a delete without a response may have taken effect, so it may have existed
	tried    bool      // a delete was sent
	accepted bool      // the service has accepted a delete
	marked   bool      // the ledger has that
	proved   time.Time // when the command has found out that it is deleted; zero before it
}

// noteEndpoint changes what is known of an endpoint, under the lock.
func (t *tool) noteEndpoint(id string, change func(*endpoint)) {
	t.note(func(*facts) {
		name := strings.ToLower(id) // the service does not tell capitals apart
		e := t.endpoints[name]
		if e == nil {
			e = &endpoint{id: id}
			t.endpoints[name] = e
		}
		change(e)
	})
}

// endpoint returns what is known of an endpoint; zero if nothing is.
func (t *tool) endpoint(id string) endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.endpoints[strings.ToLower(id)]; e != nil {
		return *e
	}
	return endpoint{}
}

// endpointsThat returns the IDs of the endpoints of which something holds, sorted.
func (t *tool) endpointsThat(holds func(endpoint) bool) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.endpoints {
		if holds(*e) {
			ids = append(ids, e.id)
		}
	}
	return slices.Sorted(slices.Values(ids))
}
