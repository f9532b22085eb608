// Package soak_test runs random conversations between a program that uses the library and
// a simulated service in which anything can go wrong. The time is simulated. The tests
// compare what the library reports with the true state of the service.
//
// SVC_SOAK_CONVERSATIONS sets the number of conversations, and SVC_SOAK_FIRST the seed of the first
// one: the others have the seeds after it. So several processes can share a long run. SVC_SOAK_SEED repeats the
// conversation with that seed many times (the library chooses its delays at random), and
// prints the first transcripts with a violation. SVC_SOAK_BEYOND adds troubles that no
// client can detect; the counts of violations then show the damage that they do.
package soak_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tally counts the results of many conversations.
type tally struct {
	mu            sync.Mutex
	conversations int
	exchanges     int
	outcomes      map[string]int
	broken        map[string]int // number of violations by invariant
	failed        int            // number of conversations with a violation
	transcripts   []string
}

func (s *tally) add(c *conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conversations++
	for _, k := range c.calls {
		s.outcomes[k.op+": "+k.outcome()]++
		s.exchanges += len(k.exchanges)
	}
	if len(c.violations) == 0 {
		return
	}
	s.failed++
	for _, v := range c.violations {
		s.broken[v.invariant+" ("+v.op()+")"]++
	}
	if len(s.transcripts) < 10 {
		s.transcripts = append(s.transcripts, c.transcript())
	}
}

func (v violation) op() string {
	if v.call == nil {
		return "end"
	}
	return v.call.op
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestConversations runs conversations and reports each one that violates an invariant.
func TestConversations(t *testing.T) {
	usual := uint64(2500)
	if testing.Short() { // of the race step
		usual = 250
	}
	n := number(t, "SVC_SOAK_CONVERSATIONS", usual)
	first := uint64(1)
	next := func(i uint64) uint64 { return first + i }
	switch {
	case os.Getenv("SVC_SOAK_SEED") != "":
		first = number(t, "SVC_SOAK_SEED", 0)
		n = number(t, "SVC_SOAK_CONVERSATIONS", 300)
		next = func(uint64) uint64 { return first }
	case os.Getenv("SVC_SOAK_FIRST") != "":
		first = number(t, "SVC_SOAK_FIRST", 1)
	case n > usual:
		first = rand.Uint64N(1 << 40)
	}
	start := time.Now()
	s := hold(t, n, next)
	took := time.Since(start)
	for _, text := range s.transcripts {
		t.Error(text)
	}
	t.Logf("%d conversations from seed %d, %d exchanges, in %v; %d with a violation", s.conversations, first, s.exchanges, took.Round(time.Millisecond), s.failed)
	for _, kind := range []map[string]int{s.broken, s.outcomes} {
		for _, name := range slices.Sorted(maps.Keys(kind)) {
			t.Logf("%8d %s", kind[name], name)
		}
	}
}

// hold runs n conversations, at most one per processor at a time, each in its own
// synctest bubble.
func hold(t *testing.T, n uint64, seed func(uint64) uint64) *tally {
	s := &tally{outcomes: map[string]int{}, broken: map[string]int{}}
	var mu sync.Mutex
	var taken uint64
	take := func(most uint64) (from, to uint64) {
		mu.Lock()
		defer mu.Unlock()
		from = taken
		taken = min(taken+most, n)
		return from, taken
	}
	t.Run("bubbles", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for {
					from, to := take(50)
					if from == to {
						return
					}
					synctest.Test(t, func(t *testing.T) {
						for j := from; j < to; j++ {
							s.add(oneAlone(seed(j), nil))
						}
					})
				}
			})
		}
	})
	return s
}

// oneAlone runs one conversation in this bubble, and checks that no goroutine is left.
func oneAlone(seed uint64, lie func(services, *conversation) services) *conversation {
	c := converse(seed, lie)
	if c.hung { // synctest would wait forever
		panic(c.transcript())
	}
	if left := leftovers(); left > 0 {
		c.checking = inTime
		c.fail(nil, "%d goroutines are left", left)
	}
	return c
}

// leftovers returns the number of goroutines in this bubble, without those of the test
// itself.
func leftovers() int {
	buf := make([]byte, 64<<10)
	me, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "\n")
	at := strings.Index(me, "synctest bubble ")
	bubble := strings.TrimSuffix(me[at:], "]:")
	n := 0
	for _, line := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n") {
		if strings.HasPrefix(line, "goroutine ") && strings.HasSuffix(line, bubble+"]:") {
			n++
		}
	}
	return n - ownGoroutines
}

// ownGoroutines is the number of goroutines of an empty bubble: the goroutine that made
// it, the one that waits for the test, and the test.
const ownGoroutines = 3
