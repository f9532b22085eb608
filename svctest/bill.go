package svctest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Bill is the billed run time of instances. Three instances that run for ten minutes make 30
// minutes of instance time. [Server.Bill] returns it.
type Bill struct {
	// Total is the instance time of all endpoints, deleted ones included.
	Total time.Duration
	// ByEndpoint is the instance time of each endpoint, by its ID. Every endpoint
	// that was ever created is in the map. An endpoint that never ran an instance
	// has zero.
	ByEndpoint map[string]time.Duration
}

// Bill returns the instance time of all endpoints until now. The times are taken
// from the clock of the server, and are not rounded.
//
// An endpoint is billed for its instances from its creation until it is stopped or deleted,
// including while it is "initializing" or "unavailable". Scaling changes the number of billed
// instances at once. With [WithDeleteTime], an endpoint is billed until its deletion takes
// effect. An endpoint of [Server.AddEndpoint] is billed from the moment it was added.
func (s *Server) Bill() Bill {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	bill := Bill{ByEndpoint: make(map[string]time.Duration, len(s.endpoints))}
	for _, e := range s.endpoints {
		e.bill(now)
		bill.ByEndpoint[e.id] = e.billedTime
		bill.Total += e.billedTime
	}
	return bill
}

// bill adds the instance time since the last call of bill. It assumes that the number
// of instances, and a status set by a test or a script, have not changed since then. So
// call it before you change one of them.
func (e *endpoint) bill(now time.Time) {
	end := now
	if e.deleted(now) {
		end = e.deletedAt
	}
	if end.After(e.billedUntil) {
		if e.running(now) {
			e.billedTime += time.Duration(e.target) * end.Sub(e.billedUntil)
		}
		e.billedUntil = end
	}
}

// NoLeaks makes t fail if an endpoint of srv still runs instances when t ends. Call
// NoLeaks in every test of a program that deploys, right after you create the server:
//
//	srv := svctest.NewInMemory()
//	svctest.NoLeaks(t, srv)
//
// The check runs as a cleanup of t. Cleanups run in reverse order: the cleanups that the test
// registers after this call run before the check. In a testing/synctest bubble, t must be the
// t that [testing/synctest.Test] passes to its function, so that the check uses the bubble's
// clock. A stopped endpoint is allowed, and so is an endpoint whose deletion was accepted and
// takes effect later (see [WithDeleteTime]).
func NoLeaks(t testing.TB, srv *Server) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		if leaks := srv.leaks(); len(leaks) > 0 {
			t.Errorf("svctest: endpoints still run and are billed: %s", strings.Join(leaks, ", "))
		}
	})
}

func (s *Server) leaks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var leaks []string
	now := s.now()
	for _, e := range s.alive(now) {
		if e.billed(now) && e.deletedAt.IsZero() {
			leaks = append(leaks, fmt.Sprintf("%s (%q, %s, instances: %d)", e.id, e.name, e.status(now), e.target))
		}
	}
	return leaks
}
