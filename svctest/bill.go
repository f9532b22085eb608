package svctest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Bill is the time that instances have run and are billed for. Three instances that
// run for ten minutes make 30 minutes of instance time. [Server.Bill] returns it.
type Bill struct {
	// Total is the instance time of all endpoints, deleted ones included.
	Total time.Duration
	// ByEndpoint is the instance time of each endpoint, by its ID. Every endpoint
	// that was ever created is in it. One that never ran an instance has zero.
	ByEndpoint map[string]time.Duration
}

// Bill returns the instance time of all endpoints until now. It is exact by the
// clock of the server.
//
// An endpoint is billed for its instances from its creation until it is stopped or
// deleted, also while it is "initializing" or "unavailable". Scaling changes the
// number of instances at once. With [WithDeleteTime], an endpoint is billed until
// its deletion takes effect. An endpoint of [Server.AddEndpoint] is billed from the
// moment it was added.
func (s *Server) Bill() Bill {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	bill := Bill{ByEndpoint: make(map[string]time.Duration, len(s.endpoints))}
	for _, e := range s.endpoints {
		e.bill(now)
		bill.ByEndpoint[e.id] = e.billedTime
		bill.Total += e.billedTime
	}
	return bill
}

// bill adds the instance time since the last call. It must be called before the
// number of instances or a status that costs nothing changes, since it takes them
// to be constant between two calls.
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

// NoLeaks makes t fail if an endpoint of srv still runs instances when t ends. Every
// test of a program that deploys should call it, right after it has created the
// server:
//
//	srv := svctest.NewInMemory()
//	svctest.NoLeaks(t, srv)
//
// The check runs as a cleanup of t, after the cleanups that were registered
// later. In a testing/synctest bubble, t must be the one of the bubble, so that
// the check uses the bubble's clock. An endpoint that is stopped does not count, nor does one whose
// deletion was accepted and takes effect later (see [WithDeleteTime]).
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
	now := time.Now()
	for _, e := range s.alive(now) {
		if e.billed(now) && e.deletedAt.IsZero() {
			leaks = append(leaks, fmt.Sprintf("%s (%q, %s, instances: %d)", e.id, e.name, e.status(now), e.target))
		}
	}
	return leaks
}
