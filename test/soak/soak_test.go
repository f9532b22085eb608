// Package soak_test holds random conversations between a program that uses the SDK and a
// simulated service in which everything can go wrong, on virtual time. It compares what
// the SDK says with what is true in the service.
//
// SVC_SOAK_CONVERSATIONS is the number of conversations. SVC_SOAK_SEED repeats the one
// of that seed, many times, since the SDK varies its delays at random: it prints the
// first transcripts with a violation. SVC_SOAK_BEYOND adds troubles that no client can see
// through: the figures then say what they cost.
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

// tally collects what came of many conversations.
type tally struct {
	mu            sync.Mutex
	conversations int
	exchanges     int
	outcomes      map[string]int
	broken        map[string]int // violations by invariant
	failed        int            // conversations with a violation
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

// TestConversations holds conversations and reports each that broke an invariant.
func TestConversations(t *testing.T) {
	const usual = 3000
	n := number(t, "SVC_SOAK_CONVERSATIONS", usual)
	first := uint64(1)
	next := func(i uint64) uint64 { return first + i }
	switch {
	case os.Getenv("SVC_SOAK_SEED") != "":
		first = number(t, "SVC_SOAK_SEED", 0)
		n = number(t, "SVC_SOAK_CONVERSATIONS", 300)
		next = func(uint64) uint64 { return first }
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

// hold holds conversations in as many bubbles at a time as there are processors.
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

// oneAlone holds one conversation in this bubble, and sees what is left of it.
func oneAlone(seed uint64, lie func(services, *conversation) services) *conversation {
	c := converse(seed, lie)
	if c.hung { // nothing would ever end the bubble
		panic(c.transcript())
	}
	if left := leftovers(); left > 0 {
		c.checking = inTime
		c.fail(nil, "%d goroutines are left", left)
	}
	return c
}

// leftovers counts the goroutines of this bubble beyond those of the test itself.
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

// ownGoroutines are those of a bubble without any other: the one that made it, the one
// that waits for the test, and the test.
const ownGoroutines = 3
