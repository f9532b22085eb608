package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// conversation is a sequence of calls of one program to one service.
type conversation struct {
	seed       uint64
	dice       *rand.Rand
	world      *world
	clients    [2]services // the second client does not know the calls of the first one
	processes  [2]*process // which the clients are in
	opts       []svc.Option
	store      ledger.Store // nil: the clients have no ledger
	lie        func(services, *conversation) services
	calls      []*call
	known      []string // IDs that the caller knows
	checking   string   // the invariant that is being checked
	violations []violation
	hung       bool
	forgetful  bool // the store of the ledger loses records
}

// violation is an invariant that did not hold.
type violation struct {
	invariant string
	call      *call // nil: the violation was found at the end
	text      string
}

// converse runs the conversation with the given seed. If lie is not nil, it returns the
// client that is used in place of the real one.
func converse(seed uint64, lie func(services, *conversation) services) *conversation {
	c := &conversation{seed: seed, dice: rand.New(rand.NewPCG(seed, 1)), lie: lie}
	c.world = newWorld(seed, c.dice)
	c.openLedger()
	c.opts = c.options()
	for i := range c.clients {
		c.start(i)
	}
	c.known = append(c.known, c.world.endpoints[0].id)
	for range 1 + c.dice.IntN(6) {
		k := c.plan()
		c.carryOut(k)
		if c.hung {
			return c
		}
		for _, id := range k.learned() {
			if id != "" && !has(c.known, id) {
				c.known = append(c.known, id)
			}
		}
		if k.killed {
			c.check(afterKill, k)
			c.start(k.client())
		} else {
			c.check(afterCall, k)
		}
		if c.dice.IntN(2) == 0 {
			time.Sleep(time.Duration(c.dice.IntN(40000)) * time.Millisecond)
		}
	}
	time.Sleep(time.Minute) // all that continues after its call has happened by then
	c.world.mu.Lock()
	c.world.advance()
	c.world.mu.Unlock()
	c.check(atEnd, nil)
	return c
}

func (c *conversation) check(invariants []invariant, k *call) {
	for _, v := range invariants {
		c.checking = v.name
		v.check(c, k)
	}
}

func (c *conversation) options() []svc.Option {
	opts := []svc.Option{
		svc.WithToken("key-1"), svc.WithInferenceURL("https://inference.example.com"),
		svc.WithWaitHook(func(_ context.Context, end svc.WaitEnd) {
			if k := c.world.call; end.Cleanup {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.cleanups = append(k.cleanups, end)
			}
		}),
		svc.WithAttemptHook(func(ctx context.Context, _ svc.Attempt) {
			_ = c.world.call.perform(ctx, "hook")
		}),
	}
	if c.world.limited != (window{}) {
		opts = append(opts, svc.WithRateLimiter(limiter{c.world}))
	}
	if c.dice.IntN(3) == 0 || c.world.foreign != (window{}) || c.world.fickle || c.world.tokenless != (window{}) {
		opts = append(opts, svc.WithTokenSource(func(ctx context.Context) (string, error) {
			return c.world.token(ctx)
		}))
	}
	if c.dice.IntN(3) == 0 {
		opts = append(opts, svc.WithTimeout(5*time.Second))
	}
	if c.dice.IntN(3) == 0 {
		opts = append(opts, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1 + c.dice.IntN(8)}))
	}
	return opts
}

// strip removes the path of the base URL from requests.
type strip struct{ world *world }

func (s strip) RoundTrip(req *http.Request) (*http.Response, error) {
	path, ok := strings.CutPrefix(req.URL.Path, "/base")
	if !ok {
		panic("a path outside the base URL: " + req.URL.Path)
	}
	shallow := *req
	u := *req.URL
	u.Path = path
	shallow.URL = &u
	return s.world.RoundTrip(&shallow)
}

// plan chooses the next call at random.
func (c *conversation) plan() *call {
	d := c.dice
	k := &call{number: len(c.calls), fresh: d.IntN(6) == 0}
	ops := []string{"Deploy", "Deploy", "Deploy", "Create", "Use", "WaitUntilAvailable", "ScaleAndWait", "ScaleAndWait", "ScaleAndWait",
		"Delete", "Delete", "DeleteAndWait", "DeleteAndWait", "WaitUntilDeleted", "WaitUntilDeleted", "Wait", "WaitUntilAllAvailable"}
	if len(c.known) == 1 { // the caller has no endpoint yet: choose a call that mostly creates one
		ops = ops[:7]
	}
	k.op = ops[d.IntN(len(ops))]
	k.id = c.pick()
	k.instances = d.IntN(4)
	k.ids = c.known[max(0, len(c.known)-3):]
	k.want = []string{"available", "stopped", "initializing"}[d.IntN(3)]
	k.request = svc.CreateInferenceServiceRequest{
		Name:             fmt.Sprintf("Endpoint %d-%d", c.seed, k.number),
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "gpu", TargetInstanceNumber: 1 + d.IntN(3)},
	}
	k.tells = d.IntN(8) != 0
	k.removes = d.IntN(3) != 0 || k.op == "Use" // Use always deletes
	k.decides = d.IntN(3) == 0 && k.op != "Use"
	limits := []float64{0, 0.1, 2, 10, 45, 180, 600, 600}
	k.limit = time.Duration(limits[d.IntN(len(limits))] * (0.5 + d.Float64()/2) * float64(time.Second))
	k.cancels = d.IntN(3) == 0
	if c.world.calm {
		if k.limit > time.Minute || !k.creates() {
			k.limit = 20 * time.Minute
		}
		return c.withLedger(k)
	}
	if d.IntN(3) == 0 {
		k.antics = antics{
			where: []string{"OnCreate", "OnCreate", "OnPoll", "Probe", "Probe", "OnFailure", "hook", "hook", "token", "use", "until"}[d.IntN(11)],
			what:  []string{"error", "error", "permanent", "panic", "panic", "exit", "hang"}[d.IntN(7)],
			nth:   1 + d.IntN(4), again: d.IntN(2) == 0,
		}
		if d.IntN(4) == 0 {
			k.antics.where, k.antics.what, k.antics.again = []string{"OnPoll", "OnPoll", "Probe", "hook"}[d.IntN(4)], "sleep", false
		}
		if k.antics.where != "Probe" && k.antics.where != "token" && k.antics.what == "hang" {
			k.antics.what = "panic"
		}
		if slices.Contains([]string{"OnCreate", "OnFailure", "use"}, k.antics.where) {
			k.antics.nth = 1
		}
	}
	if k.op == "WaitUntilAllAvailable" && k.antics.what == "panic" { // the panic would be in another goroutine and end the test program
		k.antics.what = "exit"
	}
	if !k.creates() && d.IntN(12) == 0 {
		k.id += "0" // mistyped
	}
	c.others(k)
	return c.withLedger(k)
}

// pick chooses an ID: the latest one in two of three cases.
func (c *conversation) pick() string {
	if c.dice.IntN(3) != 0 {
		return c.known[len(c.known)-1]
	}
	return c.known[c.dice.IntN(len(c.known))]
}

// others may schedule that somebody else deletes, breaks or stops the endpoint during the
// call.
func (c *conversation) others(k *call) {
	w := c.world
	e := w.find(k.id)
	after := time.Duration(c.dice.IntN(60000)) * time.Millisecond
	what := c.dice.IntN(10)
	if e == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case what < 4 && k.op == "WaitUntilDeleted", what == 0:
		w.schedule(after, func() { w.remove(e, 0) })
	case what < 3:
		w.schedule(after, func() {
			now := time.Now()
			s := e.at(now, false)
			e.changes = append(e.changes, change{at: now, instances: s.instances, settled: now, becomes: []string{"", "unavailable", "stopped"}[what]})
		})
	}
}

// carryOut makes the call in a goroutine, because the call may end its goroutine.
func (c *conversation) carryOut(k *call) {
	c.calls = append(c.calls, k)
	c.world.call = k
	ctx, cancel := k.context()
	defer cancel()
	client := c.clients[k.client()]
	c.processes[k.client()].arm(k.dies, cancel)
	k.began = time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if !k.returned {
				k.panicked = recover()
				k.exited = k.panicked == nil
			}
			k.ended = time.Now()
		}()
		k.make(ctx, client, c)
		k.returned = true
	}()
	watchdog := time.NewTimer(k.limit + 2*time.Hour)
	defer watchdog.Stop()
	select {
	case <-done:
		synctest.Wait()
		k.killed = c.processes[k.client()].dead.Load()
	case <-watchdog.C:
		c.hung = true
		c.checking = inTime
		c.fail(k, "it still runs an hour after the end of ctx")
	}
}

// fail records a violation of the invariant that is being checked.
func (c *conversation) fail(k *call, format string, args ...any) {
	c.violations = append(c.violations, violation{c.checking, k, fmt.Sprintf(format, args...)})
}

// transcript returns the whole conversation as text. Each violation follows its call.
func (c *conversation) transcript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "conversation %d with a service like this: %+v\n", c.seed, c.world.traits)
	for _, k := range c.calls {
		c.tell(&b, k)
		c.blame(&b, k)
	}
	for _, e := range c.world.endpoints {
		fmt.Fprintf(&b, "%s %q created %s readable %s deleted %s:", e.id, e.name, c.since(e.created), c.since(e.readable), c.since(e.deleted))
		for _, h := range e.changes {
			fmt.Fprintf(&b, " [%s %d %s at %s]", c.since(h.at), h.instances, h.becomes, c.since(h.settled))
		}
		b.WriteByte('\n')
	}
	c.blame(&b, nil)
	return b.String()
}

func (c *conversation) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.3f", t.Sub(c.world.start).Seconds())
}

// tell writes one call with its exchanges and its result.
func (c *conversation) tell(b *strings.Builder, k *call) {
	fmt.Fprintf(b, "%s %s", c.since(k.began), k.op)
	if k.creates() {
		fmt.Fprintf(b, " %q instances %d removes %v decides %v tells %v", k.request.Name, k.request.ResourceMetadata.TargetInstanceNumber, k.removes, k.decides, k.tells)
	} else {
		fmt.Fprintf(b, " %s to %d for %s", k.id, k.instances, k.want)
	}
	if k.key != "" || k.dies > 0 {
		fmt.Fprintf(b, ", key %q, lease %v, dies at step %d, killed %v", k.key, k.lease, k.dies, k.killed)
	}
	fmt.Fprintf(b, ", ctx ends %s, cancel %v, fresh %v, antics %+v\n", c.since(k.end()), k.cancels, k.fresh, k.antics)
	for _, x := range k.exchanges {
		fmt.Fprintf(b, "    %s %s %s handled %s ended %s, status %d %.120q", c.since(x.sent), x.method, x.id, c.since(x.handled), c.since(x.ended), x.status, x.body)
		if x.fault != noFault {
			fmt.Fprintf(b, ", fault %q, early %v", x.fault, x.early)
		}
		if x.foreign {
			b.WriteString(", foreign token")
		}
		if x.cached {
			b.WriteString(", from the cache")
		}
		if x.acted {
			b.WriteString(", acted")
		}
		if x.made != nil {
			fmt.Fprintf(b, ", made %s", x.made.id)
		}
		if x.shown != nil {
			fmt.Fprintf(b, ", shown %s %d updated %s deleted %v", x.shown.status, x.shown.instances, c.since(x.shown.updated), x.shown.deleted)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "  %s %s, told %v, learned %v: %v\n", c.since(k.ended), k.outcome(), k.told, k.learned(), k.err)
}

// blame writes the violations of call k. For a nil k it writes those found at the end.
func (c *conversation) blame(b *strings.Builder, k *call) {
	for _, v := range c.violations {
		if v.call == k {
			fmt.Fprintf(b, "VIOLATION of %q by %s: %s\n", v.invariant, v.op(), v.text)
		}
	}
}
